//! The executor's one integration binary.

mod attention;
mod comm;
mod cross_entropy;
mod data;
mod failures;
mod gradients;
mod init;
mod kernels;
mod microbench;
mod support;
