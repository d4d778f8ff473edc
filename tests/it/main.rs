//! Tests of the whole path: plans of many kinds are lowered, checked, run and simulated, and must agree.

mod cli;
mod conformance;
mod determinism;
mod parity;
mod plans;
mod planted;
mod planting;
