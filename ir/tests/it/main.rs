//! The ir crate's one integration binary.

mod checker;
mod fuzz;
mod nouns;
mod programs;
mod search;
mod structure;
mod text;
mod trace;
