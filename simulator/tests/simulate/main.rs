//! Predicted traces as data: text programs in, listings out; closed forms of pipelines; folded equals unfolded; shared
//! hosts; determinism; memory within the arena.

mod folding;
mod pipelines;
mod shared;
mod support;

use expect_test::{Expect, expect};
use meshwright_cost_models::CostModel;
use meshwright_ir::program::{Checked, Program};
use meshwright_ir::trace::MemoryPoint;
use meshwright_ir::{Cluster, Time};
use meshwright_simulator::{Options, Partition, Ranks, Summary, critical_path, simulate};
use std::collections::BTreeMap;
use support::{cluster, level, listing};

pub(crate) fn parse(text: &str) -> Checked {
    text.parse::<Program>().unwrap().check().unwrap()
}

fn check(program: &str, cluster: &Cluster, options: &Options, expected: Expect) {
    let trace = simulate(&parse(program), &CostModel::new(cluster), options);
    expected.assert_eq(&listing(&trace));
}

/// 1 µs, then 4 bytes per µs.
fn slow_network() -> Cluster {
    cluster(vec![level("switch", 8, 4e6, 1)])
}

#[test]
fn an_exchange_meets_a_separate_send_and_receive() {
    // The receive is posted at once but starts at 2; the other half only after the peer's kernel at 2+5+5.
    check(
        include_str!("../programs/rendezvous.txt"),
        &slow_network(),
        &Options::default(),
        expect![[r#"
        rank 0 #0: 0 – 2
        rank 0 #1: 2 – 21
        rank 0 #2: 2 – 4
        rank 1 #0: 0 – 7
        rank 1 #1: 7 – 12
        rank 1 #2: 12 – 21
    "#]],
    );
}

#[test]
fn communication_hides_under_kernels() {
    check(
        include_str!("../programs/overlap.txt"),
        &slow_network(),
        &Options::default(),
        expect![[r#"
        rank 0 #0: 0 – 4
        rank 0 #1: 4 – 14
        rank 0 #2: 4 – 7
        rank 0 #3: 14 – 24
        rank 0 #4: 24 – 28
        rank 1 #0: 0 – 4
        rank 1 #1: 4 – 14
        rank 1 #2: 4 – 7
        rank 1 #3: 14 – 24
        rank 1 #4: 24 – 28
    "#]],
    );
}

#[test]
fn a_straggler_holds_its_group_up() {
    let slow = Options { ranks: Ranks::Representatives, slow: BTreeMap::from([(1, 1.5)]) };
    check(
        include_str!("../programs/overlap.txt"),
        &slow_network(),
        &slow,
        expect![[r#"
        rank 0 #0: 0 – 4
        rank 0 #1: 4 – 16
        rank 0 #2: 4 – 7
        rank 0 #3: 16 – 26
        rank 0 #4: 26 – 30
        rank 1 #0: 0 – 6
        rank 1 #1: 6 – 16
        rank 1 #2: 6 – 10.5
        rank 1 #3: 16 – 26
        rank 1 #4: 26 – 32
    "#]],
    );
}

#[test]
fn some_stages_meet_without_the_others() {
    let folded = Options { ranks: Ranks::Representatives, slow: BTreeMap::new() };
    check(
        include_str!("../programs/tied.txt"),
        &slow_network(),
        &folded,
        expect![[r#"
        rank 0 #0: 0 – 2
        rank 0 #1: 2 – 14
        rank 2 #0: 0 – 6
        rank 4 #0: 0 – 6
        rank 4 #1: 6 – 8
        rank 4 #2: 8 – 14
    "#]],
    );
    let program = parse(include_str!("../programs/tied.txt"));
    let step = |o| simulate(&program, &CostModel::new(&slow_network()), o).step_time;
    assert_eq!(step(&folded), step(&Options::default()));
}

#[test]
fn memory_is_freed_before_it_is_taken_again() {
    let program = parse(include_str!("../programs/reuse.txt"));
    let trace = simulate(&program, &CostModel::new(&slow_network()), &Options::default());
    let line = |p: &MemoryPoint| format!("{}: {}\n", p.time.get() / 1_000_000, p.bytes.get());
    let points: String = trace.memory.iter().map(line).collect();
    expect![[r#"
        0: 320
        2: 576
        6: 320
        8: 64
    "#]]
    .assert_eq(&points);
    assert!(trace.peaks()[0] <= program.roles[0].arena);
}

#[test]
fn the_critical_path_goes_through_the_last_to_arrive() {
    let program = parse(include_str!("../programs/overlap.txt"));
    let slow = Options { ranks: Ranks::All, slow: BTreeMap::from([(1, 1.5)]) };
    let cost = CostModel::new(&slow_network());
    let trace = simulate(&program, &cost, &slow);
    let path = critical_path(&program, &Partition::of(&program, &cost, &slow), &trace);
    let names: Vec<_> = path.iter().map(|i| (i.rank, i.instruction)).collect();
    assert_eq!(names, [(1, 0), (1, 1), (1, 3), (1, 4)]);
    assert!(path.windows(2).all(|w| w[0].end == w[1].start || w[0].end <= w[1].end));
    let program = parse(include_str!("../programs/rendezvous.txt"));
    let trace = simulate(&program, &cost, &Options::default());
    let partition = Partition::of(&program, &cost, &Options::default());
    let path = critical_path(&program, &partition, &trace);
    let names: Vec<_> = path.iter().map(|i| (i.rank, i.instruction)).collect();
    assert_eq!(names, [(0, 0), (0, 1), (1, 1), (1, 2)]);
}

#[test]
fn a_summary_names_the_shares() {
    let program = parse(include_str!("../programs/overlap.txt"));
    let trace = simulate(&program, &CostModel::new(&slow_network()), &Options::default());
    let summary = Summary::of(&program, &trace);
    assert_eq!(summary.step_time, Time::micros(28));
    assert_eq!(summary.bubble_fraction, 0.0);
    assert!((summary.exposed_comm_fraction - 17.0 / 28.0).abs() < 1e-12);
    assert_eq!((summary.peaks[0].get(), summary.instructions), (96, 10));
}
