//! Tests of the planner through its public interface.

mod solvers;
