//! Tests of the planner through its public interface.

mod blocks;
mod fixtures;
mod searches;
mod sharding;
mod solvers;
