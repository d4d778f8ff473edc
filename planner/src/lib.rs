//! The search: intra-op ILP, stages, enumeration, bounds, explanations. It prices with `cost-models`, counts with
//! `algebra`, and knows neither lowering nor simulator: its times are closed forms until somebody simulates its plans.
//! The one invariant of the crate: the same job gives the same plans and the same report, whatever the thread count.
//!
//! # From a job to plans
//!
//! ```text
//! Job ── space ──▶ points ── bounds ──▶ in order of their bound, pruned by the k-th best closed form
//!                                         │  a batch at a time, each batch in parallel
//!                                         ▼
//!        family ─ one block problem per class: block, values, work, priced by pricing
//!                 solved by eliminate, solve, milp (problem is what they solve)
//!                                         ▼
//!     candidate ─ a price per byte until the stages just fit; levels recompute, stages cut the chain; closed_form times
//!                                         ▼
//!        search ─ the best k, their most repeated block solved to proof ── report, explain, no_fit ──▶ Verdict
//! ```
//!
//! 1. [`search`] enumerates degrees dp·fsdp·tp·pp, micro-batches, schedules, two layouts of the tensor between blocks, and whether
//!    replicas split training state (ZeRO 1 and 2 over dp, 3 over fsdp). Pins and divisibility reject points, each with its
//!    reason; so do parameter states that cannot fit under any strategy.
//! 2. Every point left has a *floor*: the kernels its busiest stage must run under their cheapest strategies. The least floor
//!    is the plan's `lower_bound_s`. A point whose floor is not below the k-th best closed form is not solved.
//! 3. A block class becomes a [`Problem`]: one node per op, whose strategies are `algebra::strategies`; one edge or node per
//!    value, priced by converting it forward and its gradient back. Nothing in it names a parallelism; column- and
//!    row-parallel layers, sequence-parallel norms, the vocabulary-parallel loss and Ulysses' all_to_all are answers, not
//!    templates. Its cost is the price of what `algebra::expand` lists for the answer, plus the parameters' share of a step.
//! 4. Without a memory row such problems fold away exactly (their graphs are all but series-parallel). Memory enters as one
//!    price per byte for the whole chain, walked along the lower hull until the stages fit; for the plans returned,
//!    the block that repeats most is solved again under a byte budget to proof, and what gap is left is `surrogate_gap_s`.
//! 5. Stages are the contiguous cut with the fastest bottleneck among those that fit, where a stage that would not fit takes
//!    the least recomputation with which it does: a count of its blocks per class and level. Of the choices that the walk of 4
//!    met, with recomputation or without, the one with the fastest step is kept; memory is `algebra::stage_memory` of the
//!    plan itself, to the byte. The step's closed form runs the schedule's own order over the stages' overlapped times.
//! 6. If nothing fits, [`Verdict::NoFit`] names the changes that would help, each found by solving the changed job.
//!
//! All data-parallel degrees above one share their block problems but for the price of gradients, so a search over
//! hundreds of points builds a few dozen. The solver of the programme is microlp; the feature `highs` replaces it.

mod block;
mod bounds;
#[cfg(test)]
mod brute;
mod candidate;
mod chain;
mod closed_form;
mod cut;
mod eliminate;
mod explain;
mod family;
mod ground;
mod levels;
mod milp;
mod no_fit;
mod parameters;
mod passes;
mod pricing;
mod problem;
#[cfg(test)]
mod random;
mod reach;
mod report;
mod search;
pub mod shard;
mod solo;
mod solve;
mod space;
mod stages;
mod timing;
mod values;
mod variants;
mod work;

pub use block::Spec;
pub use ground::lower_bound;
pub use milp::solve_milp;
pub use pricing::Prices;
pub use problem::{Choices, Edge, FORBIDDEN, Outcome, Problem, Solution, evaluate, memory};
pub use search::{Progress, Verdict, search};
pub use solo::{BlockPlan, block_problem, plan_block};
pub use solve::solve;
