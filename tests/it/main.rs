//! Tests of the whole path: plans of many kinds are lowered, checked, run and simulated, and must agree.

mod bounds;
mod cases;
mod cli;
mod conformance;
mod determinism;
mod folding;
mod layering;
mod memory;
mod mutations;
mod parity;
mod plans;
mod planted;
mod planting;
mod report;
mod scale;
mod sharding;
mod validate;
mod whatif;
