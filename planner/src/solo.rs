//! One block class solved by itself, without pipeline or search: what tests and tools ask for.

use crate::block::{Block, Load, Spec};
use crate::pricing::Prices;
use crate::problem::{Outcome, Problem, evaluate};
use crate::solve::solve;
use crate::work::Step;
use meshwright_ir::{ClassPlan, Storage, Training};

/// A block class solved by itself.
#[derive(Debug, Clone)]
pub struct BlockPlan {
    /// The choices.
    pub plan: ClassPlan,
    /// Kernels, collectives and conversions of one micro-batch, forward and backward, one after the other.
    pub time: u64,
    /// The parameters' share per micro-batch: gradient all_reduce, norm, update.
    pub parameters: u64,
    /// Parameter states and the frames in flight, in bytes.
    pub memory: u64,
    /// What the solver proved.
    pub outcome: Outcome,
}

/// The problem that [`plan_block`] solves, without a budget: what solvers are compared on.
pub fn block_problem(
    spec: Spec<'_>,
    training: &Training,
    prices: &Prices<'_>,
    micro_batches: u64,
    in_flight: u64,
) -> Result<Problem, String> {
    pose(spec, training, prices, micro_batches, in_flight).map(|(_, problem)| problem)
}

/// Solves one block class by itself, `in_flight` frames and parameter states within `budget` bytes if one is given.
/// `prices` are those of the whole mesh. `Err` says why there is no plan.
pub fn plan_block(
    spec: Spec<'_>,
    training: &Training,
    prices: &Prices<'_>,
    micro_batches: u64,
    in_flight: u64,
    budget: Option<u64>,
) -> Result<BlockPlan, String> {
    let name = spec.class.name.clone();
    let (block, problem) = pose(spec, training, prices, micro_batches, in_flight)?;
    let problem = Problem { budget, ..problem };
    let outcome = solve(&problem);
    let solution = match (&outcome, outcome.best()) {
        (_, Some((solution, _))) => solution.clone(),
        (Outcome::Infeasible { why }, None) => return Err(format!("{name}: {why}")),
        (_, None) => return Err(format!("{name}: the solver stopped without a choice")),
    };
    let time = evaluate(&block.bare(), &solution.choice).expect("an allowed choice");
    Ok(BlockPlan {
        plan: block.spec.plan(block.chosen(&solution.choice), prices),
        time,
        parameters: solution.cost - time,
        memory: solution.memory,
        outcome,
    })
}

fn pose<'a>(
    spec: Spec<'a>,
    training: &Training,
    prices: &Prices<'_>,
    micro_batches: u64,
    in_flight: u64,
) -> Result<(Block<'a>, Problem), String> {
    let uneven = format!("{}: the boundary {} does not cut evenly", spec.class.name, spec.boundary);
    let block = Block::new(spec, prices).ok_or(uneven)?;
    let step = Step::of(training, Storage::WHOLE, prices.mesh(), micro_batches, 0);
    let load = Load { step, prices, micro_batches, in_flight, shares_ties: false };
    let problem = block.problem(&load, &|_| false);
    Ok((block, problem))
}
