//! Sharded state: whatever is split among replicas, and whenever it is gathered and summed, a job learns what one rank
//! learns, and no rank holds more than the plan says.

use crate::parity::{assert_same_losses, options, run, single};
use crate::plans::{self, Shape};
use meshwright::{Change, what_if};
use meshwright_executor::{Cpu, RunOptions, train};
use meshwright_ir::{Axis, AxisSet, Bytes, Gathering, Model, Plan, Precision, Recompute, Schedule, Storage};

const DP: AxisSet = AxisSet::of(Axis::Dp);
const FSDP: AxisSet = AxisSet::of(Axis::Fsdp);
const ZERO_2: Storage = Storage { over: DP, weight: false, gradient: true };
/// Whole gradients are held until the last micro-batch.
const HOLDING: Storage = Storage { over: FSDP, weight: true, gradient: false };

/// `dp2 fsdp2 tp2 sp`, micro-batches of one sample, eight samples a step.
pub(crate) fn plan(model: &Model, degrees: &str, wanted: Storage) -> Plan {
    let degree = |axis: &str| {
        let word = degrees.split(' ').find_map(|w| w.strip_prefix(axis));
        word.map_or(1, |n| n.parse().unwrap())
    };
    let sp = degrees.ends_with("sp");
    let (dp, fsdp, tp, pp) = (degree("dp"), degree("fsdp"), degree("tp"), degree("pp"));
    let schedule = Schedule::OneForwardOneBackward;
    let (model, micro_batch, global_batch, sequence) = (model.clone(), 1, 8, 16);
    let shape = Shape { model, dp, fsdp, tp, pp, sp, micro_batch, global_batch, sequence, schedule };
    let mut plan = plans::plan(&shape, &mut plans::megatron(sp)).unwrap();
    plans::store(&mut plan, wanted);
    plan
}

#[test]
fn sharded_states_learn_what_one_rank_learns() {
    let fsdp = Storage::everything(FSDP);
    for model in [plans::gpt(2), plans::qwen(2)] {
        let reference = single(model.clone(), 20);
        for (degrees, wanted) in [
            ("dp4", Storage::states(DP)),
            ("dp4", ZERO_2),
            ("fsdp4", fsdp),
            ("fsdp4", HOLDING),
            ("dp2 fsdp2", fsdp),
            ("dp2 fsdp2", Storage::states(AxisSet::DATA)),
            ("fsdp2 tp2 sp", fsdp),
            ("fsdp2 pp2", fsdp),
            ("dp2 tp2 sp", ZERO_2),
            ("dp2 pp2", ZERO_2),
        ] {
            let what = format!("{} {degrees} {wanted}", model.name);
            let plan = plan(&model, degrees, wanted);
            assert_same_losses(&what, &reference, &run(&plan, 20));
        }
    }
}

/// When weights are gathered, how far ahead, and how gradients are put together, changes no loss.
#[test]
fn gathering_and_buckets_change_when_not_what() {
    let fsdp = Storage::everything(FSDP);
    for model in [plans::gpt(2), plans::qwen(2)] {
        let reference = single(model.clone(), 6);
        for (degrees, wanted) in [("fsdp4", fsdp), ("fsdp2 pp2", fsdp), ("dp2 fsdp2", HOLDING)] {
            let mut peaks = Vec::new();
            for (reshard_after_forward, prefetch, bucket) in
                [(true, 0, 0), (true, 1, 20_000), (true, 3, 1 << 30), (false, 0, 1), (false, 2, 60_000)]
            {
                let mut plan = plan(&model, degrees, wanted);
                plan.gathering = Gathering { reshard_after_forward, prefetch };
                plan.bucket = Bytes(bucket);
                let what = format!("{} {degrees} {wanted} {:?} {bucket}", model.name, plan.gathering);
                peaks.push(meshwright_lowering::planned_peaks(&plan).unwrap()[0]);
                assert_same_losses(&what, &reference, &run(&plan, 6));
            }
            assert!(peaks[0] < peaks[1] && peaks[1] < peaks[2], "{degrees}: {peaks:?}");
        }
        // Under ZeRO-1 and plain replicas, buckets only change how many sums there are.
        for wanted in [Storage::WHOLE, Storage::states(DP)] {
            let mut plan = plan(&model, "dp4", wanted);
            let collectives = |plan: &Plan| meshwright_lowering::lower(plan).unwrap().instructions();
            let each = collectives(&plan);
            plan.bucket = Bytes(50_000);
            assert!(collectives(&plan) < each);
            assert_same_losses(&format!("{wanted} in buckets"), &reference, &run(&plan, 6));
        }
    }
}

#[test]
fn recomputation_gathers_again_and_learns_the_same() {
    use Recompute::{Full, None, Selective};
    for model in [plans::gpt(3), plans::qwen(3)] {
        let reference = single(model.clone(), 4);
        for levels in [[None, Selective, Full], [Selective; 3], [Full; 3]] {
            for degrees in ["fsdp2", "fsdp2 tp2 sp"] {
                let mut plan = plan(&model, degrees, Storage::everything(FSDP));
                plan.recompute[1..4].copy_from_slice(&levels);
                assert_same_losses(&format!("{} {levels:?}", model.name), &reference, &run(&plan, 4));
            }
        }
    }
}

/// Sixteen bits: weights travel rounded, gradients in fp32; a step whose fp16 gradients overflow is left out everywhere.
#[test]
fn sharded_sixteen_bits_learn_what_one_rank_learns_in_sixteen_bits() {
    let fsdp = Storage::everything(FSDP);
    for precision in [Precision::Bf16, Precision::Fp16] {
        for model in [plans::gpt(2), plans::qwen(2)] {
            let in_precision = |degrees, wanted| {
                let mut plan = plan(&model, degrees, wanted);
                plan.job.training.precision = precision;
                run(&plan, 12)
            };
            let reference = in_precision("", Storage::WHOLE);
            for (degrees, wanted) in
                [("fsdp4", fsdp), ("dp2 fsdp2", fsdp), ("fsdp2 tp2 sp", fsdp), ("dp4", ZERO_2)]
            {
                let outcome = in_precision(degrees, wanted);
                for (a, b) in reference.losses.iter().zip(&outcome.losses) {
                    let what = format!("{} {precision} {degrees} {wanted}", model.name);
                    assert!((a - b).abs() <= 4e-3 * a.abs(), "{what}: {b} instead of {a}");
                }
            }
        }
    }
}

/// Where sums are made in the same order, the final weights are the same to the bit, however they were stored.
#[test]
fn weights_come_together_as_they_were() {
    for model in [plans::gpt(2), plans::qwen(2)] {
        let hash = |degrees, wanted| {
            let program = meshwright_lowering::lower(&plan(&model, degrees, wanted)).unwrap();
            let checked = program.check().unwrap();
            let options = RunOptions { clip: 0.0, ..options(3) };
            train(&checked, &Cpu, &plans::ids, &options, &|_, _, _| {}).unwrap().weights_hash
        };
        let whole = hash("dp4", Storage::WHOLE);
        assert_eq!(hash("dp4", Storage::states(DP)), whole);
        assert_eq!(hash("fsdp4", HOLDING), whole);
        assert_eq!(hash("fsdp4", Storage::everything(FSDP)), hash("dp4", ZERO_2));
    }
}

/// What each rank holds of parameters, gradients and moments falls as more is split.
#[test]
fn each_stage_of_sharding_holds_less() {
    let model = plans::gpt(6);
    let held = |degrees, wanted| {
        let plan = plan(&model, degrees, wanted);
        let program = meshwright_lowering::lower(&plan).unwrap();
        (program.roles[0].static_bytes().f64(), program.planned_peaks()[0])
    };
    let stages = [
        held("dp4", Storage::WHOLE),
        held("dp4", Storage::states(DP)),
        held("dp4", ZERO_2),
        held("fsdp4", Storage::everything(FSDP)),
    ];
    // fp32 with AdamW: 16 bytes a parameter, then 4+8/4+4, then 4+8/4+4/4, then 16/4.
    for (k, share) in [1.0, 10.0 / 16.0, 7.0 / 16.0, 4.0 / 16.0].into_iter().enumerate() {
        let found = stages[k].0 / stages[0].0;
        assert!((found - share).abs() < 0.02, "stage {k} holds {found} of the whole, not {share}");
    }
    assert!(stages.windows(2).all(|w| w[1].1 < w[0].1), "{stages:?}");
}

/// Stores drawn parameter by parameter: all data axes or some, weight and gradient split or not.
pub(crate) fn drawn(plan: &mut Plan, mut next: impl FnMut(u64) -> u64) {
    let data: AxisSet = plan.mesh.active().iter().filter(|a| AxisSet::DATA.contains(*a)).collect();
    let subsets = data.subsets();
    if subsets.is_empty() {
        return;
    }
    let sharded = data.contains(Axis::Fsdp);
    plans::store_some(plan, &mut |_| {
        let over = subsets[next(subsets.len() as u64) as usize];
        let (whole, weight, gradient) = (next(4) == 0, sharded && next(2) == 0, next(2) == 0);
        Some(if whole { Storage::WHOLE } else { Storage { over, weight, gradient } })
    });
    plan.gathering = Gathering { reshard_after_forward: next(4) > 0, prefetch: next(3) as u8 };
    plan.bucket = Bytes([0, 4_000, 1 << 30][next(3) as usize]);
}

#[test]
fn drawn_storages_learn_what_one_rank_learns() {
    for model in [plans::gpt(2), plans::qwen(2)] {
        let reference = single(model.clone(), 4);
        for seed in 0..20u64 {
            let degrees = ["fsdp2", "dp2 fsdp2", "fsdp2 tp2 sp", "fsdp2 pp2", "dp4"][seed as usize % 5];
            let mut plan = plan(&model, degrees, Storage::WHOLE);
            let mut state = seed;
            drawn(&mut plan, |n| {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (state >> 33) % n
            });
            assert_same_losses(&format!("{} {degrees} {seed}", model.name), &reference, &run(&plan, 4));
        }
    }
}

/// Everything that looks at a plan and its program takes a sharded one as it comes.
#[test]
fn a_sharded_plan_is_simulated_asked_about_and_drawn() {
    let plan = plan(&plans::qwen(4), "dp2 fsdp2 tp2 sp", Storage::everything(FSDP));
    let program = meshwright::lower(&plan).unwrap();
    let cluster = &plan.job.cluster;
    let simulated = meshwright::simulate(&program, cluster, true).unwrap();
    let planned = program.planned_peaks()[0];
    assert!(simulated.trace.memory.iter().all(|point| point.bytes <= planned));
    let changes =
        ["micro_batch=2", "recompute=full", "training.sequence=8", "cluster.levels.link.latency=2x"];
    let changes: Vec<Change> = changes.iter().map(|c| Change::set(c).unwrap()).collect();
    let straggler = [Change::Straggler { rank: 3, slow: 1.5 }];
    let changes: Vec<Change> = changes.into_iter().chain(straggler).collect();
    let answer = what_if(&plan, &changes, false).unwrap();
    assert!(answer.cases.iter().all(|c| c.fits == Some(true)), "{answer:?}");
    assert!(answer.cases[4].step_time_s > answer.baseline.step_time_s);
    let page = meshwright::report(&plan, Some(&program), Some(&simulated), None, None, "test").html;
    let mut events = Vec::new();
    meshwright_reports::perfetto(&program, &simulated.trace, &mut events).unwrap();
    let events = String::from_utf8(events).unwrap();
    for text in ["all-gather fsdp", "reduce-scatter fsdp"] {
        assert!(page.contains(text) && events.contains(text), "{text} is not shown");
    }
}

/// A gather that is listed ahead of its turn runs beside the turn before.
#[test]
fn prefetch_hides_gathers() {
    let step = |prefetch| {
        let mut plan = plan(&plans::qwen(6), "fsdp4", Storage::everything(FSDP));
        plan.gathering.prefetch = prefetch;
        // Kernels long enough to hide something behind.
        plan.job.training.sequence = 4096;
        let (cluster, program) = (plan.job.cluster.clone(), meshwright::lower(&plan).unwrap());
        meshwright::simulate(&program, &cluster, false).unwrap().trace.step_time
    };
    assert!(step(1) < step(0) && step(2) <= step(1));
}
