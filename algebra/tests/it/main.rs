//! The algebra crate's one integration binary.

mod conversion;
mod counts;
mod memory;
mod strategies;
mod support;
