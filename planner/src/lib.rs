//! The search: intra-op ILP, stages, enumeration, bounds, explanations.

mod eliminate;
mod milp;
mod problem;
mod solve;

pub use milp::solve_milp;
pub use problem::{Choices, Edge, FORBIDDEN, Outcome, Problem, Solution, evaluate, memory};
pub use solve::solve;
