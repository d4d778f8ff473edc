//! The lowering crate's one integration binary. Plans come from the same builder as those of the whole-path tests.

mod edits;
mod listings;
#[path = "../../../tests/it/plans.rs"]
#[allow(dead_code)]
mod plans;
mod refusals;
mod smallest;
