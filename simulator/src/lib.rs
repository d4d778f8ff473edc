//! Program and costs to a predicted Trace: a discrete-event simulation of one training step. Ranks walk their streams in
//! order; kernels, collectives and messages take the cost model's times; where ranks share a host's cores and memory
//! bandwidth, work is fluid and rates are max-min fair. The invariant: the same program, costs and options give the same
//! trace to the picosecond, and simulating one rank of each class gives the same times as simulating all.

mod cells;
mod critical;
mod engine;
mod fluid;
mod listing;
mod memory;
mod options;
mod order;
mod partition;
mod summary;
mod tables;
mod world;

pub use critical::{CriticalItem, critical_path};
pub use options::{Options, Ranks};
pub use partition::{Class, Partition};
pub use summary::Summary;

use meshwright_cost_models::CostModel;
use meshwright_ir::program::Checked;
use meshwright_ir::trace::{Span, Trace, TraceSource};
use meshwright_ir::{Program, Time};

/// What a program would do on the cost model's cluster. Panics when the world is larger than the cluster or a factor in
/// `options.slow` is no finite number above zero.
pub fn simulate(program: &Checked, cost: &CostModel, options: &Options) -> Trace {
    let (world, times) = times(program, cost, options);
    trace(program, &world, &times)
}

/// The step time of [`simulate`]'s trace, without the trace.
pub fn step_time(program: &Checked, cost: &CostModel, options: &Options) -> Time {
    let (_, times) = times(program, cost, options);
    Time(times.end.into_iter().max().unwrap_or_default())
}

/// When each instruction of each class started and ended, by instance.
pub(crate) struct Times {
    pub(crate) start: Vec<u64>,
    pub(crate) end: Vec<u64>,
}

fn times(program: &Checked, cost: &CostModel, options: &Options) -> (world::World, Times) {
    let (world, ranks) = (program.mesh.ranks(), cost.cluster().ranks());
    assert!(world <= ranks, "a world of {world} ranks on a cluster that holds {ranks}");
    let partition = Partition::of(program, cost, options);
    let world = world::World::of(program, cost, &partition);
    let times = match &world.devices {
        Some(devices) => engine::run(program, cost, &world, devices, &options.slow),
        None => listing::run(program, cost, &world, &options.slow),
    };
    (world, times)
}

fn trace(program: &Program, world: &world::World, times: &Times) -> Trace {
    let mut spans = Vec::with_capacity(times.start.len());
    let mut points = Vec::with_capacity(times.start.len());
    for (i, rank) in world.ranks.iter().enumerate() {
        let instances = world.base[i]..world.base[i + 1];
        let (start, end) = (&times.start[instances.clone()], &times.end[instances]);
        let code = program.code_of(*rank);
        let lanes = order::Lanes::of(code, program.streams.len());
        spans.extend(order::Order::new(&lanes, start).map(|(at, k)| Span {
            rank: *rank,
            instruction: k,
            start: Time(at),
            end: Time(end[k as usize]),
        }));
        memory::points(code, *rank, (start, end, &lanes), &mut points);
    }
    let step_time = spans.iter().map(|s| s.end).max().unwrap_or_default();
    Trace {
        version: 1,
        source: TraceSource::Predicted,
        ranks: world.ranks.clone(),
        step_time,
        spans,
        memory: points,
    }
}
