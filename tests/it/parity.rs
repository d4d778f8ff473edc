//! Every layout of one job must learn the same: losses of twenty steps equal those of a single rank within 1e-5.

use crate::plans::{self, Shape};
use meshwright_executor::{Cpu, RunOptions, RunOutcome, train};
use meshwright_ir::program::Program;
use meshwright_ir::{Axis, AxisSet, Model, Plan, Schedule, Storage};

pub(crate) fn options(steps: u64) -> RunOptions {
    RunOptions {
        steps,
        seed: 1,
        learning_rate: 3e-3,
        warmup: 2,
        clip: 1.0,
        weight_decay: 0.1,
        traced_step: None,
    }
}

pub(crate) fn run_program(program: Program, steps: u64) -> Result<RunOutcome, String> {
    let checked = program.check().map_err(|f| f.to_string())?;
    train(&checked, &Cpu, &plans::ids, &options(steps), &|_, _, _| {}).map_err(|e| e.to_string())
}

pub(crate) fn run(plan: &Plan, steps: u64) -> RunOutcome {
    run_program(meshwright_lowering::lower(plan).unwrap(), steps).unwrap()
}

pub(crate) fn shape(model: Model, dp: u32, tp: u32, pp: u32, sp: bool, schedule: Schedule) -> Shape {
    Shape { model, dp, fsdp: 1, tp, pp, sp, micro_batch: 2, global_batch: 8, sequence: 16, schedule }
}

pub(crate) fn single(model: Model, steps: u64) -> RunOutcome {
    let shape = shape(model, 1, 1, 1, false, Schedule::OneForwardOneBackward);
    run(&plans::plan(&shape, &mut plans::megatron(false)).unwrap(), steps)
}

pub(crate) fn assert_same_losses(what: &str, reference: &RunOutcome, outcome: &RunOutcome) {
    for (step, (a, b)) in reference.losses.iter().zip(&outcome.losses).enumerate() {
        assert!((a - b).abs() <= 1e-5 * a.abs(), "{what}: loss {b} instead of {a} at step {step}");
    }
    assert_eq!(reference.losses.len(), outcome.losses.len());
}

#[test]
fn layouts_learn_what_one_rank_learns() {
    use Schedule::{Gpipe, OneForwardOneBackward as Fb};
    for model in [plans::gpt(2), plans::qwen(2)] {
        let reference = single(model.clone(), 20);
        assert!(
            reference.losses[19] < reference.losses[0] - 0.5,
            "nothing was learnt: {:?}",
            reference.losses
        );
        for (dp, tp, pp, sp, schedule) in [
            (4, 1, 1, false, Fb),
            (1, 4, 1, false, Fb),
            (1, 4, 1, true, Fb),
            (1, 1, 4, false, Fb),
            (1, 1, 4, false, Gpipe),
            (2, 2, 1, false, Fb),
            (2, 2, 1, true, Fb),
            (2, 1, 2, false, Fb),
            (2, 1, 2, false, Gpipe),
            (1, 2, 2, false, Fb),
            (1, 2, 2, true, Fb),
            (1, 2, 2, true, Gpipe),
        ] {
            let what = format!("{} dp{dp} tp{tp} pp{pp} sp={sp} {schedule}", model.name);
            let plan = plans::plan(&shape(model.clone(), dp, tp, pp, sp, schedule), &mut plans::megatron(sp))
                .unwrap();
            assert_same_losses(&what, &reference, &run(&plan, 20));
        }
    }
}

/// Any legal choice of strategies must give the same losses: the algebra as a whole, against execution.
#[test]
fn random_strategies_learn_what_one_rank_learns() {
    for model in [plans::gpt(1), plans::qwen(1), plans::dropping(1, "eager"), plans::dropping(1, "sdpa")] {
        let reference = single(model.clone(), 4);
        for seed in 0..24 {
            let (dp, tp, pp) = [(1, 2, 1), (1, 4, 1), (2, 2, 1), (1, 2, 2)][seed as usize % 4];
            let shape = shape(model.clone(), dp, tp, pp, seed % 3 == 0, Schedule::OneForwardOneBackward);
            let mut plan = plans::plan(&shape, &mut plans::random(seed)).expect("even sizes convert");
            let levels = meshwright_ir::Recompute::ALL;
            plan.recompute[1] = levels[seed as usize / 4 % levels.len()];
            assert_same_losses(
                &format!("{} seed {seed} dp{dp} tp{tp} pp{pp}", model.name),
                &reference,
                &run(&plan, 4),
            );
        }
    }
}

/// Recomputing changes when tensors are made and how long they are kept, not what is learnt.
#[test]
fn recomputation_learns_the_same_in_less_memory() {
    use meshwright_ir::Recompute::{Full, Gathers, None, Selective};
    for model in [plans::gpt(3), plans::qwen(3), plans::dropping(3, "eager")] {
        let reference = single(model.clone(), 6);
        for (dp, tp, pp, sp) in
            [(1, 1, 1, false), (2, 1, 1, false), (1, 2, 1, true), (1, 1, 2, false), (1, 2, 2, true)]
        {
            let shape = shape(model.clone(), dp, tp, pp, sp, Schedule::OneForwardOneBackward);
            let mut plan = plans::plan(&shape, &mut plans::megatron(sp)).unwrap();
            let mut peaks = Vec::new();
            for levels in [[None; 3], [Gathers; 3], [None, Selective, Full], [Selective; 3], [Full; 3]] {
                // The first and the last block are the embedding and the head.
                plan.recompute[1..4].copy_from_slice(&levels);
                peaks.push(meshwright_lowering::planned_peaks(&plan).unwrap()[0]);
                let what = format!("{} dp{dp} tp{tp} pp{pp} {levels:?}", model.name);
                assert_same_losses(&what, &reference, &run(&plan, 6));
            }
            assert!(
                peaks[4] < peaks[3] && peaks[3] < peaks[0] && peaks[3] <= peaks[1],
                "{} dp{dp} tp{tp} pp{pp}: {peaks:?}",
                model.name
            );
            // Without a sequence cut along tp there is nothing to gather again.
            assert!(if sp { peaks[1] < peaks[0] } else { peaks[1] == peaks[0] }, "{}: {peaks:?}", model.name);
        }
    }
}

/// Masks are functions of the place in the global batch: whatever the layout, the size of micro-batches and the attention
/// core, the same elements are dropped.
#[test]
fn dropout_drops_the_same_in_every_layout() {
    use Schedule::{Gpipe, OneForwardOneBackward as Fb};
    let reference = single(plans::dropping(2, "eager"), 8);
    let undropped = single(plans::gpt(2), 8);
    let apart = reference.losses.iter().zip(&undropped.losses).filter(|(a, b)| (*a - *b).abs() > 1e-3);
    assert!(apart.count() >= 6, "nothing was dropped");
    for core in ["eager", "sdpa"] {
        for (dp, tp, pp, sp, micro_batch, schedule) in [
            (1, 1, 1, false, 4, Fb),
            (4, 1, 1, false, 1, Fb),
            (1, 4, 1, true, 2, Fb),
            (1, 1, 4, false, 1, Gpipe),
            (2, 2, 1, true, 2, Fb),
            (1, 2, 2, false, 2, Fb),
        ] {
            let shape = shape(plans::dropping(2, core), dp, tp, pp, sp, schedule);
            let plan = plans::plan(&Shape { micro_batch, ..shape }, &mut plans::megatron(sp)).unwrap();
            let what = format!("{core} dp{dp} tp{tp} pp{pp} sp={sp} {schedule} x{micro_batch}");
            assert_same_losses(&what, &reference, &run(&plan, 8));
        }
    }
}

/// Splitting optimizer state among replicas changes who updates what, not the update.
#[test]
fn zero_1_learns_the_same_with_less_state() {
    for model in [plans::gpt(2), plans::qwen(2)] {
        let reference = single(model.clone(), 12);
        for (dp, tp, pp, sp) in [(2, 1, 1, false), (4, 1, 1, false), (2, 2, 1, true), (2, 1, 2, false)] {
            let shape = shape(model.clone(), dp, tp, pp, sp, Schedule::OneForwardOneBackward);
            let mut plan = plans::plan(&shape, &mut plans::megatron(sp)).unwrap();
            let whole = meshwright_lowering::planned_peaks(&plan).unwrap()[0];
            plans::store(&mut plan, Storage::states(AxisSet::of(Axis::Dp)));
            let split = meshwright_lowering::planned_peaks(&plan).unwrap()[0];
            let what = format!("{} zero-1 dp{dp} tp{tp} pp{pp}", model.name);
            assert!(split < whole, "{what}: {split} of {whole}");
            assert_same_losses(&what, &reference, &run(&plan, 12));
        }
    }
}

/// Sixteen bits round, and every layout rounds where it must: losses stay near those of one rank in the same precision.
#[test]
fn sixteen_bits_learn_what_one_rank_learns_in_sixteen_bits() {
    use meshwright_ir::Precision::{Bf16, Fp16};
    for precision in [Bf16, Fp16] {
        for model in [plans::gpt(2), plans::qwen(2)] {
            let in_precision = |dp, tp, pp, sp, zero| {
                let shape = shape(model.clone(), dp, tp, pp, sp, Schedule::OneForwardOneBackward);
                let mut plan = plans::plan(&shape, &mut plans::megatron(sp)).unwrap();
                plan.job.training.precision = precision;
                if zero {
                    plans::store(&mut plan, Storage::states(AxisSet::of(Axis::Dp)));
                }
                run(&plan, 12)
            };
            let (full, reference) = (single(model.clone(), 12), in_precision(1, 1, 1, false, false));
            assert_ne!(full.losses, reference.losses, "nothing was rounded");
            for (dp, tp, pp, sp, zero) in [
                (4, 1, 1, false, true),
                (1, 4, 1, true, false),
                (1, 1, 4, false, false),
                (2, 2, 1, true, true),
            ] {
                let outcome = in_precision(dp, tp, pp, sp, zero);
                for (a, b) in reference.losses.iter().zip(&outcome.losses) {
                    let what = format!("{} {precision} dp{dp} tp{tp} pp{pp}", model.name);
                    assert!((a - b).abs() <= 4e-3 * a.abs(), "{what}: {b} instead of {a}");
                }
            }
            let drop = |o: &RunOutcome| o.losses[0] - o.losses[11];
            assert!(
                (drop(&reference) - drop(&full)).abs() <= 0.1 * drop(&full),
                "{precision} learns otherwise"
            );
        }
    }
}
