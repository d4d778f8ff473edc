//! Conformance: what the executor records against what the program plans, on random small plans.

use crate::parity;
use crate::plans::{self, Shape};
use crate::sharding;
use meshwright_ir::Schedule;

#[test]
fn memory_stays_within_the_plan_and_every_instruction_runs_once() {
    let mut state = 7u64;
    let mut next = |n: u64| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) % n
    };
    for case in 0..100 {
        let (dp, fsdp, tp, pp) = [
            (1, 1, 1, 1),
            (2, 1, 1, 1),
            (1, 1, 2, 1),
            (1, 1, 1, 2),
            (2, 1, 2, 1),
            (1, 1, 2, 2),
            (2, 1, 1, 2),
            (1, 1, 1, 3),
            (4, 1, 1, 1),
            (1, 1, 4, 1),
            (1, 2, 1, 1),
            (1, 4, 1, 1),
            (2, 2, 1, 1),
            (1, 2, 2, 1),
            (1, 2, 1, 2),
        ][next(15) as usize];
        let layers = 1 + next(2) as u32;
        let model = if next(2) == 0 { plans::gpt(layers) } else { plans::qwen(layers) };
        let micro_batch = 1 + next(2);
        let schedule = if next(2) == 0 { Schedule::Gpipe } else { Schedule::OneForwardOneBackward };
        let shape = Shape {
            model,
            dp,
            fsdp,
            tp,
            pp,
            sp: next(2) == 0,
            micro_batch,
            global_batch: u64::from(dp * fsdp) * micro_batch * (1 + next(4)),
            sequence: 8 * (1 + next(2)),
            schedule,
        };
        let mut plan = plans::plan(&shape, &mut plans::random(case)).expect("even sizes convert");
        sharding::drawn(&mut plan, &mut next);
        let closed_form = meshwright_lowering::planned_peaks(&plan).unwrap();
        let program = meshwright_lowering::lower(&plan).unwrap();
        let planned = program.planned_peaks();
        for (closed, planned) in closed_form.iter().zip(&planned) {
            assert!(
                closed >= planned && closed.f64() <= 1.02 * planned.f64(),
                "case {case}: {closed} for {planned}"
            );
        }
        let text = program.to_string();
        assert!(
            text.parse::<meshwright_ir::Program>().unwrap() == program,
            "case {case}: text does not round-trip"
        );
        let instructions: u64 =
            (0..plan.mesh.ranks()).map(|r| program.code_of(r).instructions.len() as u64).sum();
        let mesh = plan.mesh;
        let outcome = parity::run_program(program, 1).unwrap_or_else(|e| panic!("case {case}: {e}"));
        assert_eq!(outcome.executed, instructions, "case {case}");
        for (rank, high) in outcome.high_water.iter().enumerate() {
            let stage = mesh.coord(rank as u32, meshwright_ir::Axis::Pp) as usize;
            assert!(*high <= planned[stage], "case {case}: rank {rank} used {high} of {}", planned[stage]);
            assert!(
                high.f64() >= 0.5 * planned[stage].f64(),
                "case {case}: rank {rank} used only {high} of {}",
                planned[stage]
            );
        }
    }
}
