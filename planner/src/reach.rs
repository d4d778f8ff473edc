//! Points whose step is too long to be counted in picoseconds, or whose program is too long to be simulated, are told
//! apart before they are priced. The invariant: of a point that passes, no sum of durations overflows, because its
//! ceiling has every kernel whole, every tensor converted several times, and all of it one after the other.

use crate::pricing::accumulating;
use crate::space::Point;
use crate::work::Scene;
use meshwright_algebra::{Ceiling, Shapes, ceilings, countable};
use meshwright_cost_models::{CostModel, LONGEST_STEP_S, Slowest};
use meshwright_ir::{Axis, Job, Mesh, Strategy};
use std::collections::BTreeMap;

/// Most instructions of a program: one takes a few seconds and 2 GiB to simulate.
const MOST_INSTRUCTIONS: f64 = (1u64 << 22) as f64;
/// Instructions of a node in one micro-batch: its passes, and some to convert and to sum.
const PER_NODE: f64 = 4.0;
/// Conversions and sums of a node's operands in one micro-batch, and how often each of their elements is moved.
const TRANSFERS: f64 = 16.0;
const MOVES: f64 = 6.0;
/// Bytes of an element.
const WIDTH: f64 = 4.0;

/// What tells points apart; remembers what points share.
pub(crate) struct Reach<'a> {
    job: &'a Job,
    model: CostModel,
    slowest: Slowest,
    /// Seconds of all kernels of one micro-batch of each size, none of them cut.
    kernels: BTreeMap<u64, f64>,
}

impl<'a> Reach<'a> {
    pub(crate) fn new(job: &'a Job) -> Self {
        let (model, slowest) = (CostModel::new(&job.cluster), Slowest::of(&job.cluster));
        Self { job, model, slowest, kernels: BTreeMap::new() }
    }

    /// Why a point cannot be counted, if it cannot.
    pub(crate) fn excess(&mut self, point: &Point) -> Option<String> {
        let (m, batch, sequence) = (point.micro_batches, point.micro_batch, self.job.training.sequence);
        let model = &self.job.model;
        // Of all replicas together, as lowering will ask.
        let all = batch * u64::from(point.replicas());
        if countable(model, all, sequence, m).is_err() {
            return Some(format!("size: micro-batches of {all} x {sequence} tokens are too large to count"));
        }
        let ceilings = ceilings(model, batch, sequence);
        let sum = |of: &dyn Fn(&Ceiling) -> f64| -> f64 {
            model.runs.iter().map(|r| f64::from(r.repeat) * of(&ceilings[r.class as usize])).sum()
        };
        let instructions = m as f64 * sum(&|c| PER_NODE * c.nodes);
        if instructions > MOST_INSTRUCTIONS {
            return Some(format!(
                "length: {m} micro-batches make a program of {instructions:.0} instructions"
            ));
        }
        let world = f64::from(point.mesh.ranks());
        let block = world / f64::from(point.degree(Axis::Pp));
        let slowest = self.slowest;
        let transfers = sum(&|c| {
            TRANSFERS * c.nodes * slowest.transfer(0.0, block)
                + slowest.transfer(MOVES * WIDTH * c.activations, 1.0)
        });
        // The optimizer reads and writes up to eight values of a parameter; its gradient is summed twice at most.
        let update = sum(&|c| {
            let summed = TRANSFERS * c.nodes * slowest.transfer(0.0, world);
            summed
                + slowest.transfer(2.0 * WIDTH * c.params, 1.0)
                + 8.0 * WIDTH * c.params / slowest.memory
                + TRANSFERS * c.nodes * slowest.launch
        });
        let kernels = *self.kernels.entry(batch).or_insert_with(|| kernels(self.job, &self.model, batch));
        let turns = m as f64 + f64::from(point.degree(Axis::Pp));
        let crowding = self.model.crowding(point.mesh.ranks());
        let seconds = crowding * (turns * (kernels + transfers) + update);
        let days = seconds / 86400.0;
        (seconds > LONGEST_STEP_S)
            .then(|| format!("time: a step might take {days:.0} days, and no more than 53 are counted"))
    }
}

/// Seconds of all kernels of one micro-batch, none of them cut.
fn kernels(job: &Job, model: &CostModel, batch: u64) -> f64 {
    let (mesh, shapes) = (Mesh::single(), Shapes { batch, sequence: job.training.sequence });
    let scene = Scene { mesh: &mesh, shapes: &shapes, dtype: job.training.precision.compute() };
    let class = |c: u32| -> f64 {
        let nodes = job.model.classes[c as usize].nodes.iter();
        let all = nodes.flat_map(|n| scene.kernels(&n.op, &Strategy::default(), true));
        all.map(|k| model.kernel(&accumulating(&k)).time.seconds()).sum()
    };
    job.model.runs.iter().map(|r| f64::from(r.repeat) * class(r.class)).sum()
}
