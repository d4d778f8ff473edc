//! The search: intra-op ILP, stages, enumeration, bounds, explanations.

mod block;
mod bounds;
mod candidate;
mod closed_form;
mod eliminate;
mod explain;
mod family;
mod ground;
mod milp;
mod no_fit;
mod pricing;
mod problem;
mod report;
mod search;
mod solo;
mod solve;
mod space;
mod stages;
mod values;
mod work;

pub use block::Spec;
pub use milp::solve_milp;
pub use pricing::Prices;
pub use problem::{Choices, Edge, FORBIDDEN, Outcome, Problem, Solution, evaluate, memory};
pub use search::{Progress, Verdict, search};
pub use solo::{BlockPlan, plan_block};
pub use solve::solve;
