//! The integer programme beside the reductions that mostly replace it, on the block problems of models: milliseconds of
//! `solve` and of `solve_milp` without a memory budget and with one halfway between the least and the fastest choice's.
//! Run it with and without `--features highs` to compare solvers. Not criterion: some solves take tens of seconds.
#![allow(missing_docs, clippy::print_stdout)]

use fixtures::{Block, GPT2_XL, LLAMA_8B, LLAMA_70B, Sizes};
use meshwright_algebra::Shapes;
use meshwright_cost_models::CostModel;
use meshwright_ir::{ActivationKind, BlockClass, DType, Model, NormKind, Op, Real, Value};
use meshwright_planner::{Outcome, Prices, Problem, Solution, Spec, block_problem, solve, solve_milp};
use std::collections::BTreeMap;
use std::time::Instant;

#[allow(dead_code, unreachable_pub)]
#[path = "../tests/planner/fixtures.rs"]
mod fixtures;

fn main() {
    let solver = if cfg!(feature = "highs") { "HiGHS" } else { "microlp" };
    println!(
        "{:<32}{:>6}{:>12}{:>10}{:>8}{:>10}{:>8}{:>12}",
        "block problem",
        "nodes",
        "strategies",
        "edge vars",
        "budget",
        "solve ms",
        "gap %",
        format!("{solver} ms")
    );
    let layer = |model: Model| model.classes[1].clone();
    for (name, class, hidden, sequence) in [
        ("gpt2-xl", layer(fixtures::gpt2(GPT2_XL, 1024)), GPT2_XL.hidden, 1024),
        ("llama-8b", layer(fixtures::llama(LLAMA_8B)), LLAMA_8B.hidden, 4096),
        ("llama-70b", layer(fixtures::llama(LLAMA_70B)), LLAMA_70B.hidden, 8192),
        ("llama-8b, one norm", one_norm(LLAMA_8B), LLAMA_8B.hidden, 4096),
    ] {
        for (mesh, boundary) in [("tp=8", "(-,tp,-)"), ("dp=2 tp=4", "(dp,tp,-)")] {
            let problem = problem(&class, hidden, mesh, boundary, sequence);
            compare(&format!("{name}, {mesh}"), &problem);
            compare(&format!("{name}, {mesh}"), &tight(&problem));
        }
    }
}

/// A layer whose attention and MLP read one norm and are added at once, as in GPT-J and PaLM: it does not fold away.
fn one_norm(s: Sizes) -> BlockClass {
    let (h, d) = (s.hidden, s.hidden / s.heads);
    let mut b = Block::new();
    let norm = Op::Norm { kind: NormKind::Rms, width: h, groups: 1, eps: Real(1e-5) };
    let n = b.add("norm", norm, &[Value::Input]);
    let qkv = ["q", "k", "v"].map(|name| b.linear(name, n, [h, h], [1, d]));
    let core = Op::attention(s.heads, s.heads, d, true, None);
    let a = b.add("attention", core, &qkv);
    let attended = b.linear("proj", a, [h, h], [d, 1]);
    let [gate, up] = ["gate", "up"].map(|name| b.linear(name, n, [h, s.inner], [1, 1]));
    let g = b.add("glu", Op::Gate { kind: ActivationKind::Silu, width: s.inner }, &[gate, up]);
    let mlp = b.linear("down", g, [s.inner, h], [1, 1]);
    let both = b.add("add1", Op::Add { width: h }, &[attended, mlp]);
    b.add("add2", Op::Add { width: h }, &[Value::Input, both]);
    b.finish("layer")
}

/// The layer's problem at 16 micro-batches, one in flight.
fn problem(class: &BlockClass, hidden: u64, mesh: &str, boundary: &str, sequence: u64) -> Problem {
    let cluster = fixtures::h100(8);
    let cost = CostModel::new(&cluster);
    let mesh = mesh.parse().expect("a mesh");
    let prices = Prices::new(&cost, mesh, &BTreeMap::new());
    let spec = Spec {
        class,
        mesh,
        shapes: Shapes { batch: 2, sequence },
        hidden,
        boundary: boundary.parse().expect("a layout"),
        dtype: DType::Bf16,
    };
    block_problem(spec, &fixtures::training(sequence, 32), &prices, 16, 1).expect("an even cut")
}

/// Under a budget that the fastest choice does not meet.
fn tight(problem: &Problem) -> Problem {
    let Some(fastest) = solve(problem).best().map(|(s, _)| s.clone()) else { return problem.clone() };
    let mut smallest = problem.clone();
    for node in &mut smallest.nodes {
        let allowed = |c: &u64| *c != meshwright_planner::FORBIDDEN;
        node.cost =
            node.cost.iter().zip(&node.memory).map(|(c, m)| if allowed(c) { *m } else { *c }).collect();
    }
    for cost in smallest.edges.iter_mut().flat_map(|e| &mut e.cost) {
        *cost = if *cost == meshwright_planner::FORBIDDEN { *cost } else { 0 };
    }
    let Some(smallest) = solve(&smallest).best().map(|(s, _)| s.clone()) else { return problem.clone() };
    Problem { budget: Some(smallest.memory.midpoint(fastest.memory)), ..problem.clone() }
}

fn compare(name: &str, problem: &Problem) {
    let (reduced, by_reductions) = timed(|| solve(problem));
    let (whole, by_programme) = timed(|| solve_milp(problem));
    let cost = |outcome: &Outcome| outcome.best().map(|(s, _)| s.cost);
    let note = match (cost(&reduced), cost(&whole)) {
        (a, b) if a == b => String::new(),
        (_, None) => "  (not tried: too large)".into(),
        (a, b) => format!("  ({a:?} against {b:?})"),
    };
    let of = |(s, gap): (&Solution, Option<u64>)| {
        gap.map_or("?".into(), |gap| format!("{:.2}", 100.0 * gap as f64 / s.cost as f64))
    };
    let gap: String = reduced.best().map_or("-".into(), of);
    let width = |k: u32| problem.nodes[k as usize].cost.len();
    println!(
        "{name:<32}{:>6}{:>12}{:>10}{:>8}{by_reductions:>10.2}{gap:>8}{by_programme:>12.1}{note}",
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
