//! Points whose step is too long to be counted in picoseconds, or whose program is too long to be simulated, are told
//! from their ceilings, in floats, before any price is made. The invariant: of a point that passes, no sum of durations
//! overflows, because its ceiling bounds every kernel and transfer of every plan, one after the other.

use crate::space::Point;
use meshwright_algebra::{Ceiling, ceilings, countable};
use meshwright_cost_models::{LONGEST_STEP_S, Slowest};
use meshwright_ir::{Axis, Job};

/// Most instructions of a program: it takes a few seconds and 2 GiB to simulate.
const MOST_INSTRUCTIONS: f64 = (1u64 << 22) as f64;
/// Kernels of a node in one micro-batch: a load, the passes, sums of gradients, packing.
const KERNELS: f64 = 8.0;
/// Conversions and sums of a node's operands in one micro-batch.
const TRANSFERS: f64 = 32.0;

/// Why a point cannot be counted, if it cannot.
pub(crate) fn excess(job: &Job, point: &Point) -> Option<String> {
    let (m, sequence) = (point.micro_batches, job.training.sequence);
    if countable(&job.model, point.micro_batch, sequence, m).is_err() {
        return Some(format!(
            "size: micro-batches of {} x {sequence} tokens are too large to count",
            point.micro_batch
        ));
    }
    let ceilings = ceilings(&job.model, point.micro_batch, sequence);
    let sum = |of: &dyn Fn(&Ceiling) -> f64| -> f64 {
        job.model.runs.iter().map(|r| f64::from(r.repeat) * of(&ceilings[r.class as usize])).sum()
    };
    let instructions = m as f64 * sum(&|c| 4.0 * c.nodes);
    if instructions > MOST_INSTRUCTIONS {
        return Some(format!(
            "length: {m} micro-batches make a program of some {instructions:.0} instructions"
        ));
    }
    let pace = Slowest::of(&job.cluster);
    let within = f64::from(point.degree(Axis::Tp).max(point.degree(Axis::Dp)));
    let world = f64::from(point.mesh.ranks());
    let micro_batch = sum(&|c| {
        let transfers =
            TRANSFERS * c.nodes * pace.transfer(0.0, within) + 2.0 * pace.transfer(c.bytes, within);
        c.flops / pace.flops + c.bytes / pace.memory + KERNELS * c.nodes * pace.launch + transfers
    });
    let update = sum(&|c| {
        let transfers = TRANSFERS * c.nodes * pace.transfer(0.0, world) + pace.transfer(c.states, world);
        c.states / pace.memory + KERNELS * c.nodes * pace.launch + transfers
    });
    let turns = m as f64 + f64::from(point.degree(Axis::Pp));
    let seconds = pace.crowding * (turns * micro_batch + update);
    (seconds > LONGEST_STEP_S).then(|| {
        format!("time: a step might take {:.0} days, and none above 53 is counted", seconds / 86400.0)
    })
}
