//! One rank of each class stands for all of it: to the picosecond what simulating every rank gives, whatever breaks
//! symmetry, and in as many classes as it must be.

use crate::support::{Pipeline, cluster, host, level, nodes};
use expect_test::expect;
use meshwright_cost_models::CostModel;
use meshwright_ir::program::Checked;
use meshwright_ir::{Axis, Cluster, DeviceKind, Schedule, Time};
use meshwright_simulator::{Options, Partition, Ranks, critical_path, simulate, step_time};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::fmt::Write;

fn program(mesh: &str, micro_batches: u32) -> Checked {
    let schedule = Schedule::OneForwardOneBackward;
    Pipeline { layers: 2, ..Pipeline::new(mesh, schedule, micro_batches, (3, 5)) }.program()
}

/// Compares every rank with its stand-in; how many classes there were.
fn folds(program: &Checked, cluster: &Cluster, slow: &BTreeMap<u32, f64>, case: &str) -> usize {
    let cost = CostModel::new(cluster);
    let [all, few] = [Ranks::All, Ranks::Representatives].map(|ranks| Options { ranks, slow: slow.clone() });
    let partition = Partition::of(program, &cost, &few);
    assert_eq!(partition.classes().iter().map(|c| c.ranks).sum::<u32>(), program.mesh.ranks(), "{case}");
    let (whole, folded) = (simulate(program, &cost, &all), simulate(program, &cost, &few));
    assert_eq!(whole.step_time, folded.step_time, "{case}");
    assert_eq!(whole.step_time, step_time(program, &cost, &few), "{case}");
    assert!(folded.ranks.iter().eq(partition.classes().iter().map(|c| &c.representative)), "{case}");
    for rank in &whole.ranks {
        let stand_in = partition.representative_of(*rank);
        let seen = |t: &meshwright_ir::Trace, r: u32| -> Vec<(u32, Time, Time)> {
            t.of_rank(r).iter().map(|s| (s.instruction, s.start, s.end)).collect()
        };
        assert!(seen(&whole, *rank) == seen(&folded, stand_in), "{case}: rank {rank} as {stand_in}");
    }
    let kept = whole.memory.iter().filter(|p| folded.ranks.contains(&p.rank));
    assert!(kept.eq(&folded.memory), "{case}: memory");
    if !cost.shares_devices() {
        let path = critical_path(program, &partition, &folded);
        let gapless = path.windows(2).all(|w| w[0].end == w[1].start);
        assert!(gapless && path[0].start == Time::ZERO, "{case}: {path:?}");
        assert_eq!(path[path.len() - 1].end, whole.step_time, "{case}");
    }
    folded.ranks.len()
}

/// Every rank that `hit` picks, so many times as slow.
fn slowed(program: &Checked, factor: f64, hit: impl Fn(u32) -> bool) -> BTreeMap<u32, f64> {
    (0..program.mesh.ranks()).filter(|r| hit(*r)).map(|r| (r, factor)).collect()
}

const MESHES: [&str; 12] = [
    "pp=4 dp=4 tp=8",
    "pp=2 dp=4 fsdp=2 cp=2 tp=2",
    "pp=1 dp=16 tp=4",
    "pp=8 dp=8",
    "pp=3 dp=5 tp=6",
    "pp=2 dp=6 tp=3",
    "pp=4 dp=3 cp=2 tp=4",
    "pp=2 dp=2 fsdp=8 tp=2",
    "pp=2 tp=8",
    "pp=1 fsdp=7 tp=2",
    "pp=8 tp=4",
    "pp=2 dp=9 tp=2",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn folded_equals_unfolded(
        mesh in 0..MESHES.len(), where_ in 0u32..8, inner in 1u32..10, cores in 1u32..12, micro_batches in 1u32..5,
        kind in 0u32..6, at in any::<u32>(), also in any::<u32>(), factor in 1u32..40,
    ) {
        let program = program(MESHES[mesh], micro_batches);
        let (ranks, stride) = (program.mesh.ranks(), program.mesh.stride(Axis::Pp));
        let (inner, slow) = (if where_ % 2 == 0 { 1 << (inner % 4) } else { inner }, f64::from(factor) / 8.0);
        let place = match where_ {
            0..4 => cluster(vec![
                level("in", inner, 40e6, 1),
                level("out", 2, 9e6, 2),
                level("far", 256, 5e6, 7),
            ]),
            4..6 => {
                let mut several = host(inner, cores, 30e6);
                several.levels.push(level("out", 256, 2e6, 5));
                several
            }
            _ => host(ranks, cores, 30e6),
        };
        let (at, also) = (at % ranks, also % ranks);
        let hit: BTreeMap<u32, f64> = match kind {
            0 => BTreeMap::new(),
            1 => BTreeMap::from([(at, slow)]),
            2 => BTreeMap::from([(at, slow), (also, slow)]),
            3 => BTreeMap::from([(at, slow), (also, 1.5 * slow)]),
            4 => slowed(&program, slow, |r| r / inner == at / inner),
            _ => slowed(&program, slow, |r| r / stride == at / stride),
        };
        let case = format!("{} on {where_} of {inner}, {cores} cores, {hit:?}", MESHES[mesh]);
        folds(&program, &place, &hit, &case);
    }
}

#[test]
fn a_hundred_ranks_fold_into_few_classes() {
    let mut told = String::new();
    for mesh in ["pp=4 dp=4 tp=8", "pp=2 dp=8 tp=8", "pp=4 dp=3 cp=2 tp=4"] {
        let program = program(mesh, 3);
        let (ranks, stride) = (program.mesh.ranks(), program.mesh.stride(Axis::Pp));
        let places = [
            ("nodes of 8", nodes(64)),
            ("nodes of 3", cluster(vec![level("in", 3, 40e6, 1), level("out", 64, 9e6, 2)])),
            ("one host", host(ranks, 24, 1e9)),
        ];
        for (name, place) in places {
            let cases = [
                ("even", BTreeMap::new()),
                ("a slow rank", BTreeMap::from([(5, 1.5)])),
                ("two slow ranks", BTreeMap::from([(0, 1.5), (9, 1.5)])),
                ("a slow node", slowed(&program, 2.0, |r| r / 8 == 1)),
                ("a slow stage", slowed(&program, 2.0, |r| r / stride == 1)),
                ("every other rank slow", slowed(&program, 2.0, |r| r % 2 == 1)),
            ];
            write!(told, "{mesh} on {name}, {ranks} ranks:").unwrap();
            for (what, slow) in cases {
                let classes = folds(&program, &place, &slow, &format!("{mesh} on {name}: {what}"));
                write!(told, " {what} {classes};").unwrap();
            }
            told.push('\n');
        }
    }
    expect![[r#"
        pp=4 dp=4 tp=8 on nodes of 8, 128 ranks: even 4; a slow rank 16; two slow ranks 20; a slow node 8; a slow stage 4; every other rank slow 8;
        pp=4 dp=4 tp=8 on nodes of 3, 128 ranks: even 12; a slow rank 32; two slow ranks 48; a slow node 12; a slow stage 12; every other rank slow 24;
        pp=4 dp=4 tp=8 on one host, 128 ranks: even 4; a slow rank 16; two slow ranks 20; a slow node 8; a slow stage 4; every other rank slow 8;
        pp=2 dp=8 tp=8 on nodes of 8, 128 ranks: even 2; a slow rank 8; two slow ranks 10; a slow node 4; a slow stage 2; every other rank slow 4;
        pp=2 dp=8 tp=8 on nodes of 3, 128 ranks: even 6; a slow rank 16; two slow ranks 30; a slow node 8; a slow stage 6; every other rank slow 12;
        pp=2 dp=8 tp=8 on one host, 128 ranks: even 2; a slow rank 8; two slow ranks 10; a slow node 4; a slow stage 2; every other rank slow 4;
        pp=4 dp=3 cp=2 tp=4 on nodes of 8, 96 ranks: even 4; a slow rank 16; two slow ranks 20; a slow node 8; a slow stage 4; every other rank slow 8;
        pp=4 dp=3 cp=2 tp=4 on nodes of 3, 96 ranks: even 12; a slow rank 32; two slow ranks 60; a slow node 20; a slow stage 12; every other rank slow 24;
        pp=4 dp=3 cp=2 tp=4 on one host, 96 ranks: even 4; a slow rank 16; two slow ranks 20; a slow node 8; a slow stage 4; every other rank slow 8;
    "#]].assert_eq(&told);
}

#[test]
fn classes_do_not_grow_with_the_world() {
    let program = program("pp=16 dp=1024 tp=8", 1);
    let cost = CostModel::new(&nodes(16_384));
    let stride = program.mesh.stride(Axis::Pp);
    let count = |slow| {
        let options = Options { ranks: Ranks::Representatives, slow };
        Partition::of(&program, &cost, &options).classes().len()
    };
    let told = [
        count(BTreeMap::new()),
        count(BTreeMap::from([(70_001, 1.5)])),
        count(BTreeMap::from([(70_001, 1.5), (8, 2.0)])),
        count(slowed(&program, 2.0, |r| r / 8 == 77)),
        count(slowed(&program, 2.0, |r| r / stride == 3)),
        count(slowed(&program, 2.0, |r| r % 2 == 1)),
    ];
    // Per stage: the slow rank, those that share one of its two groups, and the others.
    assert_eq!(told, [16, 4 * 16, 9 * 16, 2 * 16, 16, 2 * 16]);
}

/// The two engines: with a core and all the bandwidth it can use for each rank, sharing a device makes no difference.
#[test]
fn an_uncontended_host_takes_the_times_of_devices_of_their_own() {
    for mesh in ["pp=4 dp=2 tp=2", "pp=2 dp=4 tp=2", "pp=1 dp=4", "pp=8"] {
        for schedule in [Schedule::Gpipe, Schedule::OneForwardOneBackward] {
            let program = Pipeline { layers: 3, ..Pipeline::new(mesh, schedule, 5, (2, 7)) }.program();
            let shared = host(16, 64, 1e15);
            let mut own = shared.clone();
            own.device.kind = DeviceKind::Gpu;
            own.device.memory_bandwidth = own.device.core_bandwidth.unwrap();
            for slow in [BTreeMap::new(), BTreeMap::from([(3, 1.3)])] {
                let options = Options { ranks: Ranks::All, slow };
                let [a, b] = [&shared, &own].map(|c| simulate(&program, &CostModel::new(c), &options));
                assert!(a == b, "{mesh} {schedule}");
            }
        }
    }
}
