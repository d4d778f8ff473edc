//! Meshwright plans, simulates and runs distributed deep-learning training. This crate is the façade over the workspace:
//! [`plan`] owns the loop *plan the best k, simulate them, re-rank*; [`lower`], [`simulate`], [`run`] and [`report`] take
//! it from there, and [`what_if()`] asks how a plan does when something changes. Each is a function from values to values;
//! files, clocks and terminals belong to the command line.

pub mod advice;
pub mod change;
pub mod facade;
pub mod failure;
mod fields;
pub mod files;
pub mod host;
pub mod load;
pub mod validate;
pub mod what_if;

pub use change::Change;
pub use facade::{Planned, Ran, Simulated, lower, mfu, plan, report, run, simulate};
pub use failure::Failure;
pub use what_if::what_if;
