//! iopddl problems: reading, solving and bounding them, against brute force and against bytes that are no problem.

use expect_test::expect;
use meshwright_planner::shard::{Answer, Effort, Instance, Link, Node, RULED_OUT, evaluate, parse, solve};
use meshwright_planner::{Choices, Edge, FORBIDDEN, Problem};

/// The contest's worked example.
const EXAMPLE: &str = r#"{"problem": {"name": "example", "nodes": {
    "intervals": [[30, 70], [40, 70], [50, 120], [110, 140], [110, 150]],
    "costs": [[15], [55, 65], [25, 45, 35], [85, 75], [95]],
    "usages": [[10], [25, 25], [15, 20, 15], [10, 10], [15]]}, "edges": {
    "nodes": [[0, 1], [0, 2], [1, 3], [2, 4], [3, 4]],
    "costs": [[30, 40], [50, 10, 40], [90, 10, 20, 80], [60, 20, 30], [70, 60]]}, "usage_limit": 50}}"#;

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

/// Up to 8 nodes of up to 4 strategies, loops and parallel edges among their edges, memory that often binds. Matrices are
/// arbitrary, sums of two terms, or let one end follow the other.
fn instance(r: &mut Random) -> Instance {
    let n = 1 + r.below(8);
    let spread = [4, 1000][r.below(2) as usize];
    let mut instance = Instance { name: "random".into(), ..Instance::default() };
    for _ in 0..n {
        let from = r.below(12);
        let (k, alike) = (1 + r.below(4), r.below(3) == 0);
        instance.nodes.push(Node {
            from,
            until: from + r.below(8),
            costs: (0..k).map(|_| if r.below(12) == 0 { RULED_OUT } else { r.below(spread) }).collect(),
            usages: (0..k).map(|_| if alike { 7 } else { r.below(30) }).collect(),
        });
    }
    for _ in 0..r.below(2 * n) {
        let (from, to) = (r.below(n) as u32, r.below(n) as u32);
        let (rows, columns) =
            (instance.nodes[from as usize].costs.len(), instance.nodes[to as usize].costs.len());
        let kind = r.below(4);
        let terms: Vec<u64> = (0..8).map(|_| r.below(spread)).collect();
        let cell = |k: usize, r: &mut Random| match kind {
            0 => terms[k / columns] + terms[4 + k % columns],
            1 if k / columns % columns != k % columns => RULED_OUT,
            _ if r.below(6) == 0 => RULED_OUT,
            _ => r.below(spread),
        };
        let matrix = (0..rows * columns).map(|k| cell(k, r)).collect();
        instance.edges.push(Link { from, to, matrix: instance.matrices.len() as u32 });
        instance.matrices.push(matrix);
    }
    instance.limit = Some(20 + r.below(80));
    instance
}

fn brute_force(instance: &Instance) -> Option<u128> {
    let mut choice = vec![0u32; instance.nodes.len()];
    let mut best: Option<u128> = None;
    loop {
        let score = evaluate(instance, &choice).expect("the right shape");
        if score.feasible {
            best = Some(best.map_or(score.cost, |b| b.min(score.cost)));
        }
        let next = (0..choice.len()).find(|k| choice[*k] as usize + 1 < instance.nodes[*k].costs.len());
        let Some(k) = next else { return best };
        choice[k] += 1;
        choice[..k].fill(0);
    }
}

fn solved(instance: &Instance, sweeps: u64) -> Answer {
    solve(instance, Effort { threads: 1, sweeps: Some(sweeps), stop: &|| false })
}

#[test]
fn small_problems_are_solved_to_proof_and_equal_brute_force() {
    let (mut r, mut feasible) = (Random(3), 0);
    for k in 0..1500 {
        let instance = instance(&mut r);
        let truth = brute_force(&instance);
        let answer = solved(&instance, 5000);
        assert!(answer.proved(), "instance {k} is not solved: {answer:?}\n{}", instance.to_json());
        let found = answer.best.as_ref().filter(|(_, s)| s.feasible).map(|(_, s)| s.cost);
        assert_eq!(found, truth, "instance {k}: {answer:?}\n{}", instance.to_json());
        feasible += u32::from(truth.is_some());
    }
    assert!((300..1400).contains(&feasible), "{feasible} of 1500 are feasible: too few of one sort");
}

/// Cycles with trees on them whose strategies trade cost for memory, so that presolve leaves the trees standing.
fn hanging_trees(r: &mut Random) -> Instance {
    let n = 5 + r.below(4);
    let mut instance = Instance { name: "trees".into(), ..Instance::default() };
    for _ in 0..n {
        let mut sorted = |most: u64| {
            let mut all: Vec<u64> = (0..3).map(|_| r.below(most)).collect();
            all.sort_unstable();
            all
        };
        let (costs, mut usages) = (sorted(1000), sorted(60));
        usages.reverse();
        let from = r.below(3);
        instance.nodes.push(Node { from, until: from + 2 + r.below(4), costs, usages });
    }
    let tree = (1..n).map(|b| (r.below(b), b)).collect::<Vec<_>>();
    let cycle = if r.below(2) == 0 { vec![] } else { vec![(0, 2), (1, 2), (0, 1)] };
    for (from, to) in tree.into_iter().chain(cycle) {
        let matrix = instance.matrices.len() as u32;
        instance.edges.push(Link { from: from as u32, to: to as u32, matrix });
        instance
            .matrices
            .push((0..9).map(|_| if r.below(5) == 0 { RULED_OUT } else { r.below(600) }).collect());
    }
    let least: u64 = instance.nodes.iter().map(|n| n.usages[2]).sum();
    instance.limit = Some(least / 2 + r.below(15 * n));
    instance
}

#[test]
fn trees_under_a_tight_limit_are_solved_to_proof() {
    let (mut r, mut feasible) = (Random(41), 0);
    for k in 0..200 {
        let instance = hanging_trees(&mut r);
        let truth = brute_force(&instance);
        let answer = solved(&instance, 5000);
        assert!(answer.proved(), "instance {k} is not solved: {answer:?}\n{}", instance.to_json());
        let found = answer.best.as_ref().filter(|(_, s)| s.feasible).map(|(_, s)| s.cost);
        assert_eq!(found, truth, "instance {k}: {answer:?}\n{}", instance.to_json());
        feasible += u32::from(truth.is_some());
    }
    assert!((60..200).contains(&feasible), "{feasible} of 200 are feasible: too few of one sort");
}

#[test]
fn however_little_work_the_bound_never_crosses_the_optimum() {
    let mut r = Random(17);
    for k in 0..300 {
        let instance = instance(&mut r);
        let Some(truth) = brute_force(&instance) else { continue };
        let answer = solved(&instance, k % 7);
        assert!(answer.lower_bound <= truth, "instance {k}: bound {} over {truth}", answer.lower_bound);
        let (choice, score) = answer.best.expect("some choice");
        assert_eq!(evaluate(&instance, &choice), Some(score));
        assert!(!score.feasible || score.cost >= truth);
    }
}

/// A ladder of nodes that overlap in time, too large to enumerate.
fn ladder(seed: u64, n: u64) -> Instance {
    let mut r = Random(seed);
    let mut instance = Instance { name: "ladder".into(), limit: Some(6 * n), ..Instance::default() };
    for k in 0..n {
        let (costs, usages) = (0..5).map(|_| (r.below(1000), r.below(30))).unzip();
        instance.nodes.push(Node { from: k, until: k + n / 3 + r.below(n), costs, usages });
        for back in [1, 2, 7].into_iter().filter(|b| *b <= k) {
            let matrix = instance.matrices.len() as u32;
            instance.edges.push(Link { from: k as u32, to: (k - back) as u32, matrix });
            instance.matrices.push((0..25).map(|_| r.below(400)).collect());
        }
    }
    instance
}

#[test]
fn the_same_work_gives_the_same_answer_and_a_closer_bound_than_half() {
    let instance = ladder(5, 60);
    let first = solved(&instance, 300);
    assert_eq!(first, solved(&instance, 300));
    let (_, score) = first.best.expect("a choice");
    assert!(score.feasible && first.lower_bound <= score.cost && 2 * first.lower_bound > score.cost);
}

#[test]
fn two_hands_find_what_one_proves() {
    let instance = ladder(9, 14);
    let one = solved(&instance, 20_000);
    assert!(one.proved(), "{one:?}");
    let two = solve(&instance, Effort { threads: 2, sweeps: Some(20_000), stop: &|| false });
    assert_eq!(one.best.map(|b| b.1.cost), two.best.map(|b| b.1.cost));
}

#[test]
fn the_example_costs_445() {
    let example = parse(EXAMPLE.as_bytes()).unwrap();
    let answer = solved(&example, 100);
    let (_, score) = answer.best.as_ref().unwrap();
    assert_eq!(Some(score.cost), brute_force(&example));
    assert!(answer.proved() && score.feasible);
    // Half-open: nodes 0 and 1 leave at 70; the first three together hold 50 of 50.
    assert_eq!(evaluate(&example, &[0, 0, 0, 0, 0]).unwrap().peak, 50);
    assert!(!evaluate(&example, &[0, 0, 1, 0, 0]).unwrap().feasible);
    assert_eq!(evaluate(&example, &[0, 2, 0, 0, 0]), None);
}

#[test]
fn a_planners_problem_comes_back_from_its_json() {
    let node = |cost: Vec<u64>, memory: Vec<u64>| Choices { cost, memory };
    let problem = Problem {
        nodes: vec![node(vec![5, 7], vec![9, 3]), node(vec![1, FORBIDDEN, 2], vec![4, 4, 1])],
        edges: vec![Edge { from: 1, to: 0, cost: vec![0, 3, FORBIDDEN, 1, 8, 8] }; 2],
        budget: Some(11),
    };
    let dumped = Instance::of("block", &problem);
    assert_eq!(dumped.matrices.len(), 1, "both edges share a matrix");
    let read = parse(dumped.to_json().as_bytes()).unwrap();
    assert_eq!(read, dumped);
    for choice in [[0, 0], [1, 0], [1, 2], [0, 1]] {
        let own = meshwright_planner::evaluate(&problem, &choice);
        let score = evaluate(&read, &choice).unwrap();
        assert_eq!(own.map(u128::from), score.feasible.then_some(score.cost), "{choice:?}");
    }
    let free = Instance::of("free", &Problem { budget: None, ..problem });
    let read = parse(free.to_json().as_bytes()).unwrap();
    assert!(evaluate(&read, &[0, 0]).unwrap().feasible, "no budget bounds nothing");
}

#[test]
fn bad_input_is_named_with_its_place_and_its_fix() {
    let edits = [
        ("[55, 65]", "[55]"),
        ("[25, 25]", "[25]"),
        ("[0, 1]", "[0, 9]"),
        ("[0, 1]", "[0]"),
        ("[15]", "[]"),
        ("[30, 40]", "[30, -40]"),
        ("[30, 40]", "[30, 4.5]"),
        ("[30, 40]", "[30, \"a\"]"),
        ("50}}", "50}"),
        ("[30, 70], ", ""),
        ("\"usage_limit\": 50", "\"limit\": 50"),
        ("\"usages\"", "\"costs\""),
        ("50}}", "50}} x"),
        ("[30, 40]", "[30, 99999999999999999999]"),
        ("{\"problem\"", "[\"problem\""),
    ];
    let message = |(from, to): (&str, &str)| parse(EXAMPLE.replacen(from, to, 1).as_bytes()).expect_err(to);
    let all: Vec<String> = edits.into_iter().map(message).collect();
    expect![[r#"
        problem.nodes.usages[1] has 2 numbers for 1 costs; give each strategy one of each
        problem.nodes.usages[1] has 1 numbers for 2 costs; give each strategy one of each
        problem.edges.nodes[0][1] is 9; name one of the 5 nodes, counted from 0
        problem.edges.nodes[0] has 1 numbers; give two
        problem.nodes.costs[0] is empty; every node needs a strategy
        problem.edges.costs[0][1] is -40; give a whole number from 0 to 9223372036854775807
        problem.edges.costs[0][1] is 4.5; give a whole number from 0 to 9223372036854775807
        line 6, column 20: found `"a"], [50, 1`; put a whole number, problem.edges.costs[0][1], there
        line 6, column 101: the file ends; put `}` of the file there
        problem.nodes.costs has 5 lists for the 4 pairs in problem.nodes.intervals; give each node one of each
        problem.usage_limit is missing; add it: a whole number
        problem.nodes.costs is there twice; keep one
        line 6, column 103: found `x`; put the end of the file there
        problem.edges.costs[0][1] is 99999999999999999999; give a whole number from 0 to 9223372036854775807
        line 1, column 1: found `["problem": `; put `{` of the file there"#]]
    .assert_eq(&all.join("\n"));
    assert!(
        parse(EXAMPLE.replace("[30, 40]", "[3e1, 40.0]").as_bytes()).is_ok(),
        "whole numbers in other spellings"
    );
}

#[test]
fn any_bytes_are_an_instance_or_a_message() {
    let mut r = Random(29);
    let marks = b"[]{},:\"\\0123456789-+.eE nulltrue\xff\n";
    let mut read = 0;
    for _ in 0..20_000 {
        let mut bytes = EXAMPLE.as_bytes().to_vec();
        for _ in 0..1 + r.below(4) {
            if bytes.is_empty() {
                break;
            }
            let (at, to) =
                (r.below(bytes.len() as u64) as usize, marks[r.below(marks.len() as u64) as usize]);
            match r.below(4) {
                0 => bytes[at] = to,
                1 => bytes.insert(at, to),
                2 => drop(bytes.remove(at)),
                _ => bytes.truncate(at.max(1)),
            }
        }
        match parse(&bytes) {
            Ok(instance) => {
                read += 1;
                if read % 20 == 0 {
                    solved(&instance, 20);
                }
            }
            Err(message) => assert!(message.contains("; ") && message.len() < 300, "{message}"),
        }
    }
    assert!(read > 100, "{read} of 20,000 could be read");
}

#[test]
fn huge_numbers_do_not_overflow() {
    let most = i64::MAX as u64;
    let node =
        |usages: Vec<u64>| Node { from: 0, until: u64::MAX >> 1, costs: vec![RULED_OUT - 1, most], usages };
    let nodes = vec![node(vec![most, 0]), node(vec![most / 3, most]), node(vec![most / 3, 1])];
    let edges = vec![Link { from: 0, to: 1, matrix: 0 }, Link { from: 1, to: 2, matrix: 0 }];
    for limit in [0, 1, most / 3, most] {
        let matrices = vec![vec![RULED_OUT - 1, 0, most, 7]];
        let instance = Instance {
            name: String::new(),
            nodes: nodes.clone(),
            edges: edges.clone(),
            matrices,
            limit: Some(limit),
        };
        let answer = solved(&instance, 200);
        assert!(answer.best.is_some() || answer.infeasible.is_some());
    }
}
