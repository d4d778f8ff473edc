//! Reductions, linear programme and brute force agree on small random instances.

use meshwright_planner::{Choices, Edge, FORBIDDEN, Outcome, Problem, evaluate, memory, solve, solve_milp};

/// SplitMix64 (Steele, Lea and Flood 2014).
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }
}

/// A connected graph of 2 to 8 nodes: a tree, or one with extra edges, some of them parallel.
fn instance(r: &mut Random, cyclic: bool, budgeted: bool) -> Problem {
    let n = 2 + r.below(7) as usize;
    let cost = |r: &mut Random| if r.below(8) == 0 { FORBIDDEN } else { r.below(1000) };
    let nodes: Vec<Choices> = (0..n)
        .map(|_| {
            let k = 1 + r.below(4) as usize;
            let alike = r.below(3) == 0;
            Choices {
                cost: (0..k).map(|_| r.below(1000)).collect(),
                memory: (0..k).map(|_| if alike { 7 } else { r.below(100) }).collect(),
            }
        })
        .collect();
    let extra = if cyclic { 2 + r.below(2 * n as u64) as usize } else { 0 };
    let tree: Vec<(usize, usize)> = (1..n).map(|b| (r.below(b as u64) as usize, b)).collect();
    let more: Vec<(usize, usize)> =
        (0..extra).map(|_| (r.below(n as u64) as usize, r.below(n as u64) as usize)).collect();
    let edges = tree
        .into_iter()
        .chain(more)
        .map(|(a, b)| Edge {
            from: a as u32,
            to: b as u32,
            cost: (0..nodes[a].cost.len() * nodes[b].cost.len()).map(|_| cost(r)).collect(),
        })
        .collect();
    let budget = budgeted.then(|| n as u64 * (20 + r.below(40)));
    Problem { nodes, edges, budget }
}

fn brute_force(problem: &Problem) -> Option<u64> {
    let mut choice = vec![0u32; problem.nodes.len()];
    let mut best = None;
    loop {
        if let Some(cost) = evaluate(problem, &choice) {
            best = Some(best.map_or(cost, |b: u64| b.min(cost)));
        }
        let Some(k) = (0..choice.len()).find(|k| choice[*k] as usize + 1 < problem.nodes[*k].cost.len())
        else {
            return best;
        };
        choice[k] += 1;
        choice[..k].fill(0);
    }
}

fn optimum(problem: &Problem, outcome: &Outcome) -> Option<u64> {
    match outcome {
        Outcome::Optimal(s) => {
            assert_eq!(evaluate(problem, &s.choice), Some(s.cost));
            assert_eq!(memory(problem, &s.choice), s.memory);
            Some(s.cost)
        }
        Outcome::Infeasible { .. } => None,
        Outcome::Feasible { .. } | Outcome::Stopped { .. } => panic!("not solved: {outcome:?}"),
    }
}

#[test]
fn reductions_programme_and_brute_force_agree() {
    let (mut r, mut solved) = (Random(1), 0);
    for k in 0..400 {
        let problem = instance(&mut r, k % 2 == 1, k % 4 >= 2);
        let truth = brute_force(&problem);
        assert_eq!(optimum(&problem, &solve(&problem)), truth, "instance {k}: {problem:?}");
        assert_eq!(optimum(&problem, &solve_milp(&problem)), truth, "instance {k}: {problem:?}");
        solved += u32::from(truth.is_some());
    }
    assert!((200..400).contains(&solved), "{solved} of 400 have a solution: too few of one sort");
}

#[test]
fn equal_costs_are_told_apart_by_memory_then_position() {
    let node = |memory: Vec<u64>| Choices { cost: vec![5; memory.len()], memory };
    let flat = |a: usize, b: usize| vec![1; a * b];
    let problem = Problem {
        nodes: vec![node(vec![9, 3, 3]), node(vec![4, 4])],
        edges: vec![Edge { from: 0, to: 1, cost: flat(3, 2) }],
        budget: None,
    };
    let Outcome::Optimal(s) = solve(&problem) else { panic!("a tree is solved") };
    assert_eq!((s.choice, s.cost, s.memory), (vec![1, 0], 11, 7));
}

#[test]
fn a_budget_nobody_meets_is_infeasible_and_says_by_how_much() {
    let node = Choices { cost: vec![1, 2], memory: vec![60, 50] };
    let problem = Problem { nodes: vec![node.clone(), node], edges: vec![], budget: Some(99) };
    let Outcome::Infeasible { why } = solve(&problem) else { panic!("100 bytes do not fit 99") };
    assert_eq!(why, "every choice holds at least 100 of 99 bytes");
}

#[test]
fn large_costs_keep_their_last_digit() {
    let base = 3_000_000_000_000;
    let node = |a: u64, b: u64| Choices { cost: vec![base + a, base + b], memory: vec![1, 1] };
    let ring = |a: u32, b: u32| Edge { from: a, to: b, cost: vec![1, 0, 0, 2] };
    let nodes = vec![node(0, 1), node(1, 0), node(0, 0), node(1, 0)];
    let edges = (0..4).flat_map(|a| (0..a).map(move |b| ring(a, b))).collect();
    let problem = Problem { nodes, edges, budget: None };
    assert_eq!(optimum(&problem, &solve(&problem)), brute_force(&problem));
}
