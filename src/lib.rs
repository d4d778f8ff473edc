//! Meshwright plans, simulates and runs distributed deep-learning training. This crate is the façade over the workspace:
//! [`plan`] owns the loop *plan the best k, simulate them, re-rank*; [`lower`], [`simulate`], [`run`] and [`report`] take
//! it from there. Each is a function from values to values; files, clocks and terminals belong to the command line.

pub mod facade;
pub mod failure;
pub mod files;
pub mod host;

pub use facade::{Planned, Ran, Simulated, lower, mfu, plan, report, run, simulate};
pub use failure::Failure;
