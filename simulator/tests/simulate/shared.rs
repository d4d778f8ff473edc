//! Ranks that share a host: cores and memory bandwidth are divided fairly, and uncontended work takes its own time.

use crate::parse;
use crate::support::{Pipeline, host, listing};
use expect_test::expect;
use meshwright_cost_models::CostModel;
use meshwright_ir::{Cluster, Schedule, Time, Trace};
use meshwright_simulator::{Options, Ranks, Summary, simulate};
use std::collections::BTreeMap;

fn run(cluster: &Cluster) -> Trace {
    let program = parse(include_str!("../programs/even_work.txt"));
    simulate(&program, &CostModel::new(cluster), &Options::default())
}

/// End of the kernels: the collective's start on rank 0.
fn kernels(cluster: &Cluster) -> Time {
    run(cluster).of_rank(0)[2].start
}

#[test]
fn four_ranks_on_two_cores_take_exactly_twice_as_long() {
    let plenty = 1e12;
    assert_eq!(kernels(&host(4, 4, plenty)), Time::micros(14));
    assert_eq!(kernels(&host(4, 2, plenty)), Time::micros(28));
    assert_eq!(kernels(&host(4, 1, plenty)), Time::micros(56));
    // Three cores for four ranks: a third longer, each of two kernels rounded.
    assert_eq!(kernels(&host(4, 3, plenty)), Time(2 * 9_333_333));
}

#[test]
fn memory_bandwidth_is_shared_too() {
    // Each of four cores draws 12 MB/s alone; 16 MB/s is a third of what they want.
    assert_eq!(kernels(&host(4, 4, 16e6)), Time::micros(42));
}

#[test]
fn a_collective_waits_then_needs_cores() {
    // Two rounds of 1 µs, then 2·3/4 of 16 bytes at 4 MB/s: 6 µs on each of four ranks.
    let end = |cores| run(&host(4, cores, 1e12)).step_time;
    assert_eq!(end(4), Time::micros(14 + 2 + 6));
    assert_eq!(end(2), Time::micros(28 + 2 + 12));
}

#[test]
fn a_straggler_leaves_its_cores_to_others() {
    let program = parse(include_str!("../programs/even_work.txt"));
    let slow = Options { ranks: Ranks::All, slow: BTreeMap::from([(3, 3.0)]) };
    let trace = simulate(&program, &CostModel::new(&host(4, 2, 1e12)), &slow);
    expect![[r#"
        rank 0 #0: 0 – 14
        rank 0 #1: 14 – 28
        rank 0 #2: 28 – 70
        rank 1 #0: 0 – 14
        rank 1 #1: 14 – 28
        rank 1 #2: 28 – 70
        rank 2 #0: 0 – 14
        rank 2 #1: 14 – 28
        rank 2 #2: 28 – 70
        rank 3 #0: 0 – 35
        rank 3 #1: 35 – 56
        rank 3 #2: 56 – 70
    "#]]
    .assert_eq(&listing(&trace));
}

#[test]
fn pipelines_on_a_host_are_deterministic_and_stay_in_their_arena() {
    let program =
        Pipeline { layers: 2, ..Pipeline::new("pp=2 dp=2 tp=2", Schedule::OneForwardOneBackward, 4, (3, 5)) }
            .program();
    let cost = CostModel::new(&host(8, 3, 30e6));
    let options = Options::auto(&program);
    assert_eq!(options.ranks, Ranks::All);
    let trace = simulate(&program, &cost, &options);
    assert_eq!(trace, simulate(&program, &cost, &options));
    assert!(trace.memory.iter().all(|p| p.bytes <= program.code_of(p.rank).arena));
    let summary = Summary::of(&program, &trace);
    assert_eq!(summary.instructions, 4 * program.instructions());
    // Eight ranks on three cores are slower than on eight, faster than one after another.
    let alone = simulate(&program, &CostModel::new(&host(8, 8, 1e12)), &options).step_time;
    assert!(alone < trace.step_time && trace.step_time < alone * 8);
}
