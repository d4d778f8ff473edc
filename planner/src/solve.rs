//! Solving a pairwise problem: reductions first, the linear programme for what they leave. Under a memory budget the row
//! is first relaxed with a multiplier (Everett 1963; the dual is walked along the lower hull of (memory, cost) points, so
//! it ends at the exact dual optimum), which gives a certified bound and usually the answer; the programme closes the gap.

use crate::eliminate::{Graph, Weigh};
use crate::milp::{Answer, milp};
use crate::problem::{Outcome, Problem, Solution};

/// Cheapest allowed choice; among equal costs less memory, then earlier strategies, where reductions alone suffice.
pub fn solve(problem: &Problem) -> Outcome {
    let free = match relaxed(problem, Weigh::CostThenMemory) {
        Ok(free) => free,
        Err(outcome) => return outcome,
    };
    let Some(budget) = problem.budget.filter(|b| free.memory > *b) else { return Outcome::Optimal(free) };
    let small = match relaxed(problem, Weigh::MemoryThenCost) {
        Ok(small) => small,
        Err(outcome) => return outcome,
    };
    if small.memory > budget {
        let why = format!("every choice holds at least {} of {budget} bytes", small.memory);
        return Outcome::Infeasible { why };
    }
    let (bound, incumbent) = dual(problem, budget, free, small);
    if incumbent.cost <= bound { Outcome::Optimal(incumbent) } else { close(problem, bound, incumbent) }
}

/// The optimum without the memory row, under a weighing.
pub(crate) fn relaxed(problem: &Problem, weigh: Weigh) -> Result<Solution, Outcome> {
    let whole = Problem { budget: None, ..problem.clone() };
    let mut graph = Graph::new(&whole, weigh, false);
    graph.reduce().map_err(|node| Outcome::Infeasible {
        why: format!("node {node} has no strategy that its neighbours can go with"),
    })?;
    let mut choice = vec![0; problem.nodes.len()];
    if graph.alive.iter().any(|a| *a) {
        match milp(&graph, None, None) {
            Answer::Choice(core) => choice = core,
            Answer::None => {
                return Err(Outcome::Infeasible { why: "no choice avoids every forbidden pair".into() });
            }
            Answer::Unknown => return Err(Outcome::Stopped { best: None }),
        }
    }
    graph.extend(&mut choice);
    whole.solution(choice).ok_or(Outcome::Stopped { best: None })
}

/// Largest Lagrangian bound, and the cheapest choice within the budget met on the way to it. `over` is cheapest of all,
/// `under` smallest of all; each step tries the multiplier at which the two weigh the same.
fn dual(problem: &Problem, budget: u64, mut over: Solution, mut under: Solution) -> (u64, Solution) {
    let mut incumbent = under.clone();
    let mut bound = over.cost;
    loop {
        let (dm, dc) = (over.memory - under.memory, under.cost.saturating_sub(over.cost));
        let weigh = Weigh::Sum { cost: dm, memory: dc };
        let weight = |s: &Solution| weigh.of(s.cost, s.memory);
        let Ok(found) = relaxed(problem, weigh) else {
            return (bound, incumbent);
        };
        let over_budget = weight(&found).saturating_sub(u128::from(budget) * u128::from(dc));
        bound = bound.max(u64::try_from(over_budget.div_ceil(u128::from(dm))).unwrap_or(bound));
        if found.memory <= budget && found.cost < incumbent.cost {
            incumbent = found.clone();
        }
        if weight(&found) >= weight(&over) {
            return (bound, incumbent);
        }
        match found.memory > budget {
            true => over = found,
            false => under = found,
        }
    }
}

/// Closes the gap with the programme, on what reductions that respect the memory row leave.
fn close(problem: &Problem, bound: u64, incumbent: Solution) -> Outcome {
    let feasible = |solution: Solution| {
        let gap = solution.cost.saturating_sub(bound);
        Outcome::Feasible { solution, gap }
    };
    let mut graph = Graph::new(problem, Weigh::CostThenMemory, true);
    if graph.reduce().is_err() {
        return feasible(incumbent);
    }
    let folded: u64 = (0..graph.alive.len())
        .filter(|k| !graph.alive[*k])
        .map(|k| graph.active[k].first().map_or(0, |p| graph.bytes(k, *p)))
        .sum();
    let left = problem.budget.map(|b| b.saturating_sub(folded));
    let start = |graph: &Graph| {
        let kept = |k: usize| !graph.alive[k] || graph.active[k].contains(&incumbent.choice[k]);
        (0..graph.alive.len()).all(kept).then_some(incumbent.choice.as_slice())
    };
    match milp(&graph, left, start(&graph)) {
        Answer::Choice(mut choice) => {
            graph.extend(&mut choice);
            match problem.solution(choice) {
                Some(found) if found.cost <= incumbent.cost => Outcome::Optimal(found),
                Some(_) | None => feasible(incumbent),
            }
        }
        Answer::None | Answer::Unknown => feasible(incumbent),
    }
}
