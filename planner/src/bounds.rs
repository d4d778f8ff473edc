//! What no plan of a point can undercut, in simulation or in fact: the kernels that a stage's ranks must run, each under
//! its cheapest strategy, without recomputation or communication, alone on its device; the kernels of all ranks together,
//! where they share a device's cores; and the parameter states they must hold. The
//! invariant: a bound never sums what could overlap. Forward work of earlier stages precedes a stage's first kernel and
//! their input gradients follow its last, because data passes through them; weight gradients may hide and do not count.

use crate::work::{Scene, Step};
use meshwright_algebra::{Shapes, layouts, strategies};
use meshwright_cost_models::CostModel;
use meshwright_ir::program::{Kernel, OpKernel, Pass};
use meshwright_ir::{Axis, Job, Mesh, Storage};

/// Least work of one block of a class on one rank.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Floor {
    /// Forward kernels of one micro-batch, in picoseconds.
    forward: u64,
    /// Kernels that make input gradients.
    backward_input: u64,
    /// All kernels of both passes.
    both: u64,
    /// The optimizer's, per step.
    update: u64,
    /// Squaring gradients for their norm, per step.
    norm: u64,
    /// Bytes of parameter states.
    pub(crate) states: u64,
}

/// Time of a kernel that no simulation undercuts: on shared cores work is fluid, and its end is rounded to the picosecond.
fn least_time(model: &CostModel, kernel: &Kernel) -> u64 {
    model.kernel(kernel).time.get().saturating_sub(u64::from(model.shares_devices()))
}

/// Kernels of every class at a tensor-parallel degree and micro-batch.
pub(crate) fn floors(job: &Job, model: &CostModel, tp: u32, micro_batch: u64) -> Vec<Floor> {
    let mesh = Mesh::new([(Axis::Tp, tp)]).expect("a degree of a checked mesh");
    let shapes = Shapes { batch: micro_batch, sequence: job.training.sequence };
    let scene = Scene { mesh: &mesh, shapes: &shapes, dtype: job.training.precision.compute() };
    let time = |k: &Kernel| least_time(model, k);
    let class = |class: &meshwright_ir::BlockClass| {
        let live = crate::block::live(class);
        let mut floor = Floor::default();
        for (node, live) in class.nodes.iter().zip(live) {
            let all = strategies(&node.op, &mesh, &shapes);
            let least = |of: &dyn Fn(&meshwright_ir::Strategy) -> u64| all.iter().map(of).min().unwrap_or(0);
            let passes = |wanted: &dyn Fn(Pass) -> bool| {
                least(&|s| {
                    let kernels = scene.kernels(&node.op, s, live);
                    let pass = |k: &Kernel| {
                        if let Kernel::Op(OpKernel { pass, .. }) = k { *pass } else { Pass::Forward }
                    };
                    let counts = kernels.iter().filter(|k| wanted(pass(k)));
                    counts.map(time).sum()
                })
            };
            let is_backward = |p: Pass| matches!(p, Pass::BackwardInput | Pass::BackwardWeight);
            floor.forward += if live { passes(&|p| !is_backward(p)) } else { 0 };
            floor.backward_input += passes(&|p| p == Pass::BackwardInput);
            floor.both += passes(&|_| true);
        }
        floor
    };
    job.model.classes.iter().map(class).collect()
}

/// Parameters of every class at a tensor-parallel degree, each stored so, in so many pieces wherever that is even.
pub(crate) fn holdings(job: &Job, model: &CostModel, tp: u32, storage: Storage, pieces: u64) -> Vec<Floor> {
    let mesh = Mesh::new([(Axis::Tp, tp)]).expect("a degree of a checked mesh");
    let shapes = Shapes { batch: u64::from(tp), sequence: u64::from(tp) };
    let scene = Scene { mesh: &mesh, shapes: &shapes, dtype: job.training.precision.compute() };
    let step = Step::on_one_rank(&job.training);
    let time = |k: &Kernel| least_time(model, k);
    let class = |class: &meshwright_ir::BlockClass| {
        let mut floor = Floor::default();
        for node in &class.nodes {
            let all = strategies(&node.op, &mesh, &shapes);
            let least = |of: &dyn Fn(u64, bool) -> u64| {
                let own = |s: &meshwright_ir::Strategy| {
                    let shards = scene.shards(node, &layouts(&node.op, s));
                    let owned = shards.iter().skip(usize::from(node.tied.is_some()));
                    owned.map(|shard| of(shard.elements, shard.decays)).sum::<u64>()
                };
                all.iter().map(own).min().unwrap_or(0)
            };
            floor.update += least(&|n, decays| step.update_kernel(n / pieces, decays, &time));
            floor.norm += least(&|n, _| step.norm_floor(n / pieces, model));
            floor.states += least(&|n, _| step.bytes_of(n, storage, pieces));
        }
        floor
    };
    job.model.classes.iter().map(class).collect()
}

impl Floor {
    /// Kernels of one block and its parameters.
    pub(crate) fn with(self, holding: &Self) -> Self {
        Self { update: holding.update, norm: holding.norm, states: holding.states, ..self }
    }
}

/// Least step time where the ranks of all stages share `cores`: the work of all of them, spread evenly. Every block runs
/// on `replicas` ranks.
pub(crate) fn shared_floor(chain: &[Floor], replicas: u64, m: u64, cores: u64) -> u64 {
    let rank: u64 = chain.iter().map(|f| m * f.both + f.update + f.norm).sum();
    replicas * rank / cores
}

/// Least step time over all cuts of the chain into `stages`, for `m` micro-batches. `chain` lists the blocks' floors.
pub(crate) fn step_floor(chain: &[Floor], stages: usize, m: u64) -> u64 {
    let whole = |f: &Floor| m * f.both + f.forward + f.backward_input + f.update;
    let (mut low, mut high) = (0, chain.iter().map(whole).sum());
    while low < high {
        let middle = low + (high - low) / 2;
        match within(chain, stages, m, middle) {
            true => high = middle,
            false => low = middle + 1,
        }
    }
    low
}

/// Whether some cut may end by `limit`: each stage in turn takes as many blocks as it can, which leaves the least for
/// those after it (a block moved forward costs them a forward and an input gradient and saves `m` of both).
fn within(chain: &[Floor], stages: usize, m: u64, limit: u64) -> bool {
    let (mut at, mut forward, mut backward) = (0, 0, 0);
    for _ in 0..stages {
        let mut stage = Floor::default();
        while let Some(next) = chain.get(at) {
            let both = stage.both + next.both;
            let update = stage.update + next.update;
            let last = stage.forward + next.forward + stage.backward_input + next.backward_input;
            // Its own weight gradients of the last micro-batch may run while earlier stages finish.
            if forward + (m * both + update).max((m - 1) * both + last + backward) > limit {
                break;
            }
            stage = Floor {
                both,
                update,
                forward: stage.forward + next.forward,
                backward_input: stage.backward_input + next.backward_input,
                ..stage
            };
            at += 1;
        }
        forward += stage.forward;
        backward += stage.backward_input;
    }
    at == chain.len()
}

/// Least bytes of parameter states on the fullest stage.
pub(crate) fn states_floor(chain: &[Floor], stages: u64) -> u64 {
    let total: u64 = chain.iter().map(|f| f.states).sum();
    let largest = chain.iter().map(|f| f.states).max().unwrap_or(0);
    total.div_ceil(stages).max(largest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_floor_is_the_pipeline_of_the_best_cut() {
        let block = |both| Floor { both, forward: both / 3, backward_input: both / 3, ..Floor::default() };
        let chain = vec![block(30); 8];
        assert_eq!(step_floor(&chain, 1, 4), 4 * 240);
        // The last of two stages starts after the first's forward and ends before its input gradients.
        let two = step_floor(&chain, 2, 4);
        assert!((4 * 120..=4 * 120 + 80).contains(&two), "{two}");
        assert!(step_floor(&chain, 8, 64) >= 64 * 30);
    }

    #[test]
    fn no_cut_ends_before_the_floor() {
        let chain: Vec<Floor> = [50u64, 30, 30, 30, 90]
            .iter()
            .map(|b| Floor { both: *b, forward: b / 3, backward_input: b / 4, update: 5, ..Floor::default() })
            .collect();
        for m in 1..6u64 {
            let floor = step_floor(&chain, 2, m);
            for cut in 0..=chain.len() {
                let sum = |part: &[Floor], f: &dyn Fn(&Floor) -> u64| part.iter().map(f).sum::<u64>();
                let (first, second) = chain.split_at(cut);
                let ends = [
                    m * sum(first, &|f| f.both) + sum(first, &|f| f.update),
                    sum(first, &|f| f.forward)
                        + m * sum(second, &|f| f.both)
                        + sum(second, &|f| f.update).max(sum(first, &|f| f.backward_input)),
                ];
                assert!(floor <= ends[0].max(ends[1]));
            }
        }
    }
}
