//! The search: intra-op ILP, stages, enumeration, bounds, explanations.

mod block;
mod eliminate;
mod milp;
mod pricing;
mod problem;
mod solo;
mod solve;
mod values;
mod work;

pub use block::Spec;
pub use milp::solve_milp;
pub use pricing::Prices;
pub use problem::{Choices, Edge, FORBIDDEN, Outcome, Problem, Solution, evaluate, memory};
pub use solo::{BlockPlan, plan_block};
pub use solve::solve;
