//! The search: intra-op ILP, stages, enumeration, bounds, explanations.

mod block;
mod eliminate;
mod milp;
mod pricing;
mod problem;
mod solve;
mod work;

pub use block::{BlockPlan, Spec, plan_block};
pub use milp::solve_milp;
pub use pricing::Prices;
pub use problem::{Choices, Edge, FORBIDDEN, Outcome, Problem, Solution, evaluate, memory};
pub use solve::solve;
