//! The space of plans: degrees dp·tp·pp over the job's ranks, micro-batches, schedules, whether the tensor between blocks
//! is cut along the sequence, and whether replicas split the optimizer's state. Rules that need no price reject points here, each with its reason. The invariant:
//! the order of points depends on the job alone.

use crate::reach::Reach;
use meshwright_ir::{Axis, AxisSet, Job, Mesh, Op, PinKey, Recompute, Schedule, StateSharding, Storage};

/// Most micro-batches of a step: what an instruction can number.
const MOST_MICRO_BATCHES: u64 = 1 << 16;

/// One point of the space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Point {
    pub(crate) mesh: Mesh,
    pub(crate) micro_batch: u64,
    pub(crate) micro_batches: u64,
    pub(crate) schedule: Schedule,
    pub(crate) sequence_parallel: bool,
    /// Whether replicas split the optimizer's state (ZeRO stage 1).
    pub(crate) zero: bool,
}

impl Point {
    pub(crate) fn degree(&self, axis: Axis) -> u32 {
        self.mesh.degree(axis)
    }
    /// Axes among which optimizer state is split, and the number of pieces.
    pub(crate) fn pieces(&self) -> (AxisSet, u64) {
        match self.zero {
            true => (AxisSet::of(Axis::Dp), u64::from(self.degree(Axis::Dp))),
            false => (AxisSet::EMPTY, 1),
        }
    }
    /// How a parameter is stored where it may be.
    pub(crate) fn storage(&self) -> Storage {
        Storage::of_word(self.state_sharding(), &self.mesh)
    }
    /// The same, as a plan writes it.
    pub(crate) fn state_sharding(&self) -> StateSharding {
        if self.zero { StateSharding::Zero1 } else { StateSharding::None }
    }
}

/// Every point over `ranks` ranks, with the reason of those that a rule rejects. A mesh that no micro-batch can save
/// stands for all of its points.
pub(crate) fn enumerate(job: &Job, ranks: u32) -> Vec<(Point, Option<String>)> {
    let mut points = vec![];
    let mut reach = Reach::new(job);
    for tp in divisors(u64::from(ranks)) {
        for pp in divisors(u64::from(ranks) / tp) {
            let dp = u64::from(ranks) / tp / pp;
            let mesh = Mesh::new([(Axis::Dp, dp as u32), (Axis::Tp, tp as u32), (Axis::Pp, pp as u32)])
                .expect("degrees whose product is the number of ranks");
            match mesh_rule(job, dp, tp, pp) {
                Some(why) => points.push((whole(mesh), Some(why))),
                None => points.extend(of_mesh(job, mesh).into_iter().map(|(point, why)| {
                    let why = why.or_else(|| reach.excess(&point));
                    (point, why)
                })),
            }
        }
    }
    points
}

/// A point that stands for its mesh.
fn whole(mesh: Mesh) -> Point {
    Point {
        mesh,
        micro_batch: 1,
        micro_batches: 1,
        schedule: Schedule::OneForwardOneBackward,
        sequence_parallel: false,
        zero: false,
    }
}

fn mesh_rule(job: &Job, dp: u64, tp: u64, pp: u64) -> Option<String> {
    let blocks = job.model.blocks().len() as u64;
    let batch = job.training.global_batch;
    let uneven = |op: &Op| {
        let Op::Attention { kv_heads, .. } = op else { return None };
        (!kv_heads.is_multiple_of(tp)).then_some(*kv_heads)
    };
    let heads = job.model.classes.iter().flat_map(|c| &c.nodes).find_map(|n| uneven(&n.op));
    pinned(job, PinKey::Dp, dp)
        .or_else(|| pinned(job, PinKey::Tp, tp))
        .or_else(|| pinned(job, PinKey::Pp, pp))
        .or_else(|| levels(job).is_empty().then(|| "pinned recompute: no level is left".to_string()))
        .or_else(|| heads.map(|h| format!("heads: {h} key heads do not divide by tp {tp}")))
        .or_else(|| (pp > blocks).then(|| format!("stages: {blocks} blocks do not fill pp {pp}")))
        .or_else(|| {
            (!batch.is_multiple_of(dp)).then(|| format!("batch: {batch} samples do not divide by dp {dp}"))
        })
}

fn of_mesh(job: &Job, mesh: Mesh) -> Vec<(Point, Option<String>)> {
    let per_replica = job.training.global_batch / u64::from(mesh.degree(Axis::Dp));
    let (tp, pp) = (u64::from(mesh.degree(Axis::Tp)), mesh.degree(Axis::Pp));
    let schedules = match pp {
        // One stage runs every schedule alike unless a pin asks for one by name.
        1 if pinned(job, PinKey::Schedule, number(Schedule::OneForwardOneBackward)).is_none() => {
            vec![Schedule::OneForwardOneBackward]
        }
        _ => vec![Schedule::OneForwardOneBackward, Schedule::Gpipe],
    };
    let boundaries = if tp > 1 { vec![false, true] } else { vec![false] };
    let training = &job.training;
    let states = training.optimizer.states() > 0 || training.precision.has_master();
    let shardings = if mesh.degree(Axis::Dp) > 1 && states { vec![false, true] } else { vec![false] };
    let mut points = vec![];
    for micro_batch in divisors(per_replica) {
        for schedule in &schedules {
            for sequence_parallel in &boundaries {
                for zero in &shardings {
                    let point = Point {
                        mesh,
                        micro_batch,
                        micro_batches: per_replica / micro_batch,
                        schedule: *schedule,
                        sequence_parallel: *sequence_parallel,
                        zero: *zero,
                    };
                    points.push((point, rule(job, &point, tp)));
                }
            }
        }
    }
    points
}

fn rule(job: &Job, point: &Point, tp: u64) -> Option<String> {
    let sequence = job.training.sequence;
    pinned(job, PinKey::Microbatch, point.micro_batch)
        .or_else(|| pinned(job, PinKey::Schedule, number(point.schedule)))
        .or_else(|| pinned(job, PinKey::Sp, u64::from(point.sequence_parallel)))
        .or_else(|| pinned(job, PinKey::Zero, u64::from(point.zero)))
        .or_else(|| {
            (point.sequence_parallel && !sequence.is_multiple_of(tp))
                .then(|| format!("sequence: {sequence} tokens do not divide by tp {tp}"))
        })
        .or_else(|| {
            (point.micro_batches >= MOST_MICRO_BATCHES).then(|| {
                format!("length: {} micro-batches are more than a program numbers", point.micro_batches)
            })
        })
}

/// Levels of recomputation that pins leave to the blocks that may recompute, least first.
pub(crate) fn levels(job: &Job) -> Vec<Recompute> {
    let pins = || job.search.pins.iter().filter(|p| p.key == PinKey::Recompute);
    let allowed = |(k, _): &(usize, &Recompute)| pins().all(|p| p.allows(*k as u64));
    Recompute::ALL.iter().enumerate().filter(allowed).map(|(_, level)| *level).collect()
}

/// A schedule's number in a pin.
fn number(schedule: Schedule) -> u64 {
    match schedule {
        Schedule::Gpipe => 0,
        Schedule::OneForwardOneBackward => 1,
    }
}

/// The pin that rules a value out, as its user wrote it.
fn pinned(job: &Job, key: PinKey, value: u64) -> Option<String> {
    let pin = job.search.pins.iter().find(|p| p.key == key && !p.allows(value))?;
    Some(format!("pinned {}", describe_pin(pin)))
}

/// `tp=8`, `sp=false`, `schedule=1f1b`.
pub(crate) fn describe_pin(pin: &meshwright_ir::Pin) -> String {
    use meshwright_ir::Comparison;
    let (key, value) = match (pin.key, pin.value) {
        (PinKey::Dp, n) => ("dp", n.to_string()),
        (PinKey::Tp, n) => ("tp", n.to_string()),
        (PinKey::Pp, n) => ("pp", n.to_string()),
        (PinKey::Microbatch, n) => ("microbatch", n.to_string()),
        (PinKey::Sp, n) => ("sp", (n != 0).to_string()),
        (PinKey::Schedule, n) => {
            let named = Schedule::ALL.iter().find(|s| number(**s) == n);
            ("schedule", named.map_or_else(|| n.to_string(), Schedule::to_string))
        }
        (PinKey::Zero, n) => ("zero", n.to_string()),
        (PinKey::Recompute, n) => {
            let named = Recompute::ALL.get(n as usize);
            ("recompute", named.map_or_else(|| n.to_string(), Recompute::to_string))
        }
    };
    let sign = match pin.comparison {
        Comparison::Equal => "=",
        Comparison::NotEqual => "!=",
        Comparison::AtMost => "<=",
        Comparison::AtLeast => ">=",
    };
    format!("{key}{sign}{value}")
}

/// Divisors in rising order.
fn divisors(n: u64) -> Vec<u64> {
    let small: Vec<u64> = (1..).take_while(|d| d * d <= n).filter(|d| n.is_multiple_of(*d)).collect();
    let large = small.iter().rev().map(|d| n / d).filter(|d| d * d > n);
    small.iter().copied().chain(large).collect()
}
