//! Pipelines against their closed forms, and representatives against the whole world.

use crate::support::{Pipeline, cluster, free_network, level, nodes};
use meshwright_cost_models::CostModel;
use meshwright_ir::program::Checked;
use meshwright_ir::{Axis, Cluster, Schedule, Time, Trace};
use meshwright_simulator::{Options, Partition, Ranks, Summary, critical_path, simulate};
use proptest::prelude::*;
use std::collections::BTreeMap;

fn run(program: &Checked, cluster: &Cluster, ranks: Ranks) -> Trace {
    simulate(program, &CostModel::new(cluster), &Options { ranks, slow: BTreeMap::new() })
}

fn within_the_arena(program: &Checked, trace: &Trace) {
    assert!(trace.ranks.iter().all(|r| trace.memory.iter().any(|p| p.rank == *r)));
    for point in &trace.memory {
        assert!(point.bytes <= program.code_of(point.rank).arena, "{point:?} exceeds the arena");
    }
}

#[test]
fn both_schedules_take_m_plus_p_minus_1_passes() {
    for schedule in [Schedule::Gpipe, Schedule::OneForwardOneBackward] {
        for (p, m, (f, b)) in
            [(1, 3, (1, 2)), (2, 4, (1, 1)), (4, 8, (1, 2)), (5, 3, (3, 5)), (8, 16, (2, 2))]
        {
            let program = Pipeline::new(&format!("pp={p}"), schedule, m, (f, b)).program();
            let trace = run(&program, &free_network(), Ranks::All);
            // And three kernels of 1 µs for the optimizer.
            let expected = Time::micros(u64::from(m + p - 1) * (f + b) + 3);
            assert_eq!(trace.step_time, expected, "{schedule} p={p} m={m}");
            within_the_arena(&program, &trace);
            let bubble = Summary::of(&program, &trace).bubble_fraction;
            let idle = f64::from(p - 1) * (f + b) as f64 / trace.step_time.seconds() * 1e-6;
            assert!((bubble - idle).abs() < 1e-9, "{schedule} p={p} m={m}: {bubble} {idle}");
        }
    }
}

fn layered(mesh: &str, m: u32) -> Pipeline {
    Pipeline { layers: 3, ..Pipeline::new(mesh, Schedule::OneForwardOneBackward, m, (2, 3)) }
}

#[test]
fn sixty_four_ranks_equal_their_representatives_to_the_picosecond() {
    for mesh in ["pp=4 dp=2 fsdp=1 cp=1 tp=8", "pp=2 dp=4 fsdp=2 cp=2 tp=2", "pp=8 dp=8", "pp=1 dp=8 tp=8"] {
        let program = layered(mesh, 6).program();
        let (all, few) =
            (run(&program, &nodes(8), Ranks::All), run(&program, &nodes(8), Ranks::Representatives));
        assert_eq!((all.ranks.len(), few.ranks.len()), (64, program.roles.len()));
        assert_eq!(all.step_time, few.step_time);
        for rank in &all.ranks {
            let stand_in = program.role_of(*rank) as u32 * program.mesh.stride(Axis::Pp);
            let pairs = all.of_rank(*rank).iter().zip(few.of_rank(stand_in));
            assert!(all.of_rank(*rank).len() == few.of_rank(stand_in).len());
            for (a, b) in pairs {
                assert_eq!(
                    (a.instruction, a.start, a.end),
                    (b.instruction, b.start, b.end),
                    "{mesh}: {rank}"
                );
            }
        }
        within_the_arena(&program, &all);
        let (a, b) = (Summary::of(&program, &all), Summary::of(&program, &few));
        assert_eq!((a.peaks, a.bubble_fraction), (b.peaks, b.bubble_fraction));
    }
}

#[test]
fn large_steps_are_folded_by_choice() {
    let auto = |mesh, micro_batches| Options::auto(&layered(mesh, micro_batches).program()).ranks;
    assert_eq!(auto("pp=2 dp=4 tp=2", 2), Ranks::All);
    assert_eq!(auto("pp=2 dp=8 tp=8", 2), Ranks::Representatives);
    assert_eq!(auto("pp=2 dp=4 tp=8", 400), Ranks::Representatives);
}

#[test]
fn two_runs_are_equal() {
    let program = layered("pp=4 dp=2 tp=8", 8).program();
    assert_eq!(run(&program, &nodes(8), Ranks::All), run(&program, &nodes(8), Ranks::All));
}

#[test]
fn the_critical_path_fills_the_step() {
    for mesh in ["pp=4 dp=2 tp=8", "pp=1 dp=4 tp=4", "pp=8 dp=1 tp=1"] {
        let program = layered(mesh, 5).program();
        for ranks in [Ranks::All, Ranks::Representatives] {
            let trace = run(&program, &nodes(8), ranks);
            let options = Options { ranks, slow: BTreeMap::new() };
            let partition = Partition::of(&program, &CostModel::new(&nodes(8)), &options);
            let path = critical_path(&program, &partition, &trace);
            assert_eq!(path[0].start, Time::ZERO);
            assert!(path.windows(2).all(|w| w[0].end == w[1].start), "{mesh}: {path:?}");
            assert_eq!(path[path.len() - 1].end, trace.step_time);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn pipelines_never_beat_their_work_and_stay_in_their_arena(
        pp in 1u32..5, dp in 0u32..3, tp in 0u32..3, m in 1u32..7, f in 1u64..9, b in 1u64..9, gpipe: bool,
        inner in 0u32..3, latency in 0u64..4,
    ) {
        let mesh = format!("pp={pp} dp={} tp={}", 1 << dp, 1 << tp);
        let schedule = if gpipe { Schedule::Gpipe } else { Schedule::OneForwardOneBackward };
        let program = Pipeline { layers: 2, ..Pipeline::new(&mesh, schedule, m, (f, b)) }.program();
        let levels = vec![level("in", 1 << inner, 40e6, latency), level("out", 64, 5e6, latency * 3)];
        let cluster = cluster(levels);
        let all = run(&program, &cluster, Ranks::All);
        within_the_arena(&program, &all);
        prop_assert_eq!(all.spans.len() as u64, (1u64 << (dp + tp)) * program.instructions());
        prop_assert!(all.step_time >= Time::micros(2 * u64::from(m + pp - 1) * (f + b)));
        prop_assert_eq!(all.step_time, run(&program, &cluster, Ranks::Representatives).step_time);
    }
}
