//! The executor's one integration binary.

mod attention;
mod comm;
mod cross_entropy;
mod gradients;
mod kernels;
mod support;
