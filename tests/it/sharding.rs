//! Sharded state: whatever is split among replicas, and whenever it is gathered and summed, a job learns what one rank
//! learns, and no rank holds more than the plan says.

use crate::parity::{assert_same_losses, run, single};
use crate::plans::{self, Shape};
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

fn keeping(mut plan: Plan) -> Plan {
    plan.gathering = Gathering { reshard_after_forward: false, prefetch: 1 };
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
