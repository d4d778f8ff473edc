//! The integer programme beside the reductions that mostly replace it, on the block problems of models: milliseconds of
//! `solve` and of `solve_milp` without a memory budget and with one halfway between the least and the fastest choice's.
//! Run it with and without `--features highs` to compare solvers. Not criterion: some solves take tens of seconds.
#![allow(missing_docs, clippy::print_stdout)]

use fixtures::{GPT2_XL, LLAMA_8B, LLAMA_70B, Sizes};
use meshwright_algebra::Shapes;
use meshwright_cost_models::CostModel;
use meshwright_ir::{DType, Model};
use meshwright_planner::{Outcome, Prices, Problem, Spec, block_problem, solve, solve_milp};
use std::collections::BTreeMap;
use std::time::Instant;

#[allow(dead_code, unreachable_pub)]
#[path = "../tests/planner/fixtures.rs"]
mod fixtures;

fn main() {
    let solver = if cfg!(feature = "highs") { "HiGHS" } else { "microlp" };
    println!(
        "{:<28}{:>6}{:>12}{:>10}{:>8}{:>14}{:>14}",
        "block problem",
        "nodes",
        "strategies",
        "edge vars",
        "budget",
        "reductions ms",
        format!("{solver} ms")
    );
    let llama = |sizes: Sizes| fixtures::llama(sizes);
    for (name, model, sequence) in [
        ("gpt2-xl", fixtures::gpt2(GPT2_XL, 1024), 1024),
        ("llama-8b", llama(LLAMA_8B), 4096),
        ("llama-70b", llama(LLAMA_70B), 8192),
    ] {
        for (mesh, boundary) in [("tp=8", "(-,tp,-)"), ("dp=2 tp=4", "(dp,tp,-)")] {
            let problem = problem(&model, mesh, boundary, sequence);
            compare(&format!("{name} layer, {mesh}"), &problem);
            compare(&format!("{name} layer, {mesh}"), &tight(&problem));
        }
    }
}

/// The layer's problem at 16 micro-batches, one in flight.
fn problem(model: &Model, mesh: &str, boundary: &str, sequence: u64) -> Problem {
    let cluster = fixtures::h100(8);
    let cost = CostModel::new(&cluster);
    let mesh = mesh.parse().expect("a mesh");
    let prices = Prices::new(&cost, mesh, &BTreeMap::new());
    let spec = Spec {
        class: &model.classes[1],
        mesh,
        shapes: Shapes { batch: 2, sequence },
        hidden: model.hidden,
        boundary: boundary.parse().expect("a layout"),
        dtype: DType::Bf16,
    };
    block_problem(spec, &fixtures::training(sequence, 32), &prices, 16, 1).expect("an even cut")
}

/// Under a budget that the fastest choice does not meet.
fn tight(problem: &Problem) -> Problem {
    let Outcome::Optimal(fastest) = solve(problem) else { panic!("the reductions solve it") };
    let mut smallest = problem.clone();
    for node in &mut smallest.nodes {
        let allowed = |c: &u64| *c != meshwright_planner::FORBIDDEN;
        node.cost =
            node.cost.iter().zip(&node.memory).map(|(c, m)| if allowed(c) { *m } else { *c }).collect();
    }
    for cost in smallest.edges.iter_mut().flat_map(|e| &mut e.cost) {
        *cost = if *cost == meshwright_planner::FORBIDDEN { *cost } else { 0 };
    }
    let Outcome::Optimal(smallest) = solve(&smallest) else { panic!("the reductions solve it") };
    Problem { budget: Some(smallest.memory.midpoint(fastest.memory)), ..problem.clone() }
}

fn compare(name: &str, problem: &Problem) {
    let (reduced, by_reductions) = timed(|| solve(problem));
    let (whole, by_programme) = timed(|| solve_milp(problem));
    let cost = |outcome: &Outcome| outcome.best().map(|(s, gap)| (s.cost, gap));
    let note = match (cost(&reduced), cost(&whole)) {
        (a, b) if a == b => String::new(),
        (a, None) => format!("  not solved ({a:?} by reductions)"),
        (a, b) => format!("  differ: {a:?}, {b:?}"),
    };
    let width = |k: u32| problem.nodes[k as usize].cost.len();
    println!(
        "{name:<28}{:>6}{:>12}{:>10}{:>8}{by_reductions:>14.2}{by_programme:>14.1}{note}",
        problem.nodes.len(),
        problem.nodes.iter().map(|n| n.cost.len()).sum::<usize>(),
        problem.edges.iter().map(|e| width(e.from) * width(e.to)).sum::<usize>(),
        if problem.budget.is_some() { "half" } else { "none" },
    );
}

/// An outcome and the milliseconds it took.
fn timed(solve: impl FnOnce() -> Outcome) -> (Outcome, f64) {
    let start = Instant::now();
    let outcome = solve();
    (outcome, start.elapsed().as_secs_f64() * 1e3)
}
