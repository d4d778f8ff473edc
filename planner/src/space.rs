//! The space of plans: degrees dp·fsdp·tp·pp over the job's ranks, micro-batches, schedules, whether the tensor between
//! blocks is cut along the sequence, and how far replicas split training state. Rules that need no price reject points
//! here, each with its reason. The invariant: the order of points depends on the job alone.

use crate::reach::Reach;
use meshwright_ir::{
    Axis, Bytes, Gathering, Job, Mesh, Op, PinKey, Recompute, Schedule, StateSharding, Storage,
};

/// Most micro-batches of a step: what an instruction can number.
const MOST_MICRO_BATCHES: u64 = 1 << 16;

/// By how much each degree of `fsdp` that is tried beyond one node exceeds the one before: a guess at how finely memory
/// need be matched, since a search over every divisor would be several times as long.
const FSDP_STRIDE: u64 = 4;

/// One point of the space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Point {
    pub(crate) mesh: Mesh,
    pub(crate) micro_batch: u64,
    pub(crate) micro_batches: u64,
    pub(crate) schedule: Schedule,
    pub(crate) sequence_parallel: bool,
    /// How far replicas split training state. ZeRO stage 3 and a degree of fsdp above one are the same.
    pub(crate) state_sharding: StateSharding,
}

/// How a point keeps what it splits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Keeping {
    /// Whether whole gradients of split weights are held until the last micro-batch, and then summed once.
    pub(crate) holds_gradients: bool,
    pub(crate) gathering: Gathering,
    /// Bytes of gradients that share a collective at the end of the step.
    pub(crate) bucket: Bytes,
}

impl Point {
    pub(crate) fn degree(&self, axis: Axis) -> u32 {
        self.mesh.degree(axis)
    }
    /// Ranks that see different samples.
    pub(crate) fn replicas(&self) -> u32 {
        self.mesh.replicas()
    }
    /// How a parameter is stored where it may be, if as much as possible is split.
    pub(crate) fn storage(&self) -> Storage {
        Storage::of_word(self.state_sharding, &self.mesh)
    }
    /// Every way to keep what is split.
    pub(crate) fn keepings(&self) -> Vec<Keeping> {
        let of = |holds_gradients, reshard_after_forward, prefetch| Keeping {
            holds_gradients,
            gathering: Gathering { reshard_after_forward, prefetch },
            bucket: Bytes::ZERO,
        };
        match self.state_sharding {
            StateSharding::None | StateSharding::Zero1 | StateSharding::Zero2 => vec![of(false, true, 1)],
            StateSharding::Zero3 => vec![
                of(false, true, 0),
                of(false, true, 1),
                of(false, true, 2),
                of(true, true, 1),
                of(false, false, 1),
                of(true, false, 1),
            ],
        }
    }
}

impl Keeping {
    /// How a parameter is stored where it may be.
    pub(crate) fn storage(&self, point: &Point) -> Storage {
        let most = point.storage();
        Storage { gradient: most.gradient && !self.holds_gradients, ..most }
    }
}

/// Every point over `ranks` ranks, with the reason of those that a rule rejects. A mesh that no micro-batch can save
/// stands for all of its points.
pub(crate) fn enumerate(job: &Job, ranks: u32) -> Vec<(Point, Option<String>)> {
    let mut points = vec![];
    let mut reach = Reach::new(job);
    for tp in divisors(u64::from(ranks)) {
        for pp in divisors(u64::from(ranks) / tp) {
            let data = u64::from(ranks) / tp / pp;
            for fsdp in fsdp_degrees(job, data, tp) {
                let (dp, fsdp, tp, pp) = ((data / fsdp) as u32, fsdp as u32, tp as u32, pp as u32);
                let mesh = Mesh::new([(Axis::Dp, dp), (Axis::Fsdp, fsdp), (Axis::Tp, tp), (Axis::Pp, pp)])
                    .expect("degrees whose product is the number of ranks");
                match mesh_rule(job, &mesh) {
                    Some(why) => points.push((whole(mesh), Some(why))),
                    None => points.extend(of_mesh(job, mesh).into_iter().map(|(point, why)| {
                        let why = why.or_else(|| reach.excess(&point));
                        (point, why)
                    })),
                }
            }
        }
    }
    points
}

/// Degrees of `fsdp` to try among so many replicas: none; the most that fit a node beside their tensor-parallel peers;
/// from there on in strides; all replicas. A pin may ask for any divisor.
fn fsdp_degrees(job: &Job, data: u64, tp: u64) -> Vec<u64> {
    let mut pins = job.search.pins.iter().filter(|p| p.key == PinKey::Fsdp).peekable();
    if pins.peek().is_some() {
        let allowed: Vec<u64> =
            divisors(data).into_iter().filter(|d| pins.clone().all(|p| p.allows(*d))).collect();
        // One that the pin rejects stands for all of them.
        return if allowed.is_empty() { vec![1] } else { allowed };
    }
    let cluster = &job.cluster;
    let node = u64::from(cluster.devices_per_node * cluster.ranks_per_device) / tp;
    let all = divisors(data);
    let mut degrees = vec![1];
    degrees.extend(all.iter().copied().filter(|d| *d > 1 && *d <= node).max());
    while let Some(next) = all.iter().find(|d| **d >= FSDP_STRIDE * degrees[degrees.len() - 1]) {
        degrees.push(*next);
    }
    if degrees[degrees.len() - 1] < data {
        degrees.push(data);
    }
    degrees
}

/// A point that stands for its mesh.
fn whole(mesh: Mesh) -> Point {
    Point {
        mesh,
        micro_batch: 1,
        micro_batches: 1,
        schedule: Schedule::OneForwardOneBackward,
        sequence_parallel: false,
        state_sharding: if mesh.degree(Axis::Fsdp) > 1 { StateSharding::Zero3 } else { StateSharding::None },
    }
}

fn mesh_rule(job: &Job, mesh: &Mesh) -> Option<String> {
    let degree = |axis| u64::from(mesh.degree(axis));
    let (tp, pp, replicas) = (degree(Axis::Tp), degree(Axis::Pp), u64::from(mesh.replicas()));
    let blocks = job.model.blocks().len() as u64;
    let batch = job.training.global_batch;
    let uneven = |op: &Op| {
        let Op::Attention { kv_heads, .. } = op else { return None };
        (!kv_heads.is_multiple_of(tp)).then_some(*kv_heads)
    };
    let heads = job.model.classes.iter().flat_map(|c| &c.nodes).find_map(|n| uneven(&n.op));
    pinned(job, PinKey::Dp, degree(Axis::Dp))
        .or_else(|| pinned(job, PinKey::Fsdp, degree(Axis::Fsdp)))
        .or_else(|| pinned(job, PinKey::Tp, tp))
        .or_else(|| pinned(job, PinKey::Pp, pp))
        .or_else(|| levels(job).is_empty().then(|| "pinned recompute: no level is left".to_string()))
        .or_else(|| heads.map(|h| format!("heads: {h} key heads do not divide by tp {tp}")))
        .or_else(|| (pp > blocks).then(|| format!("stages: {blocks} blocks do not fill pp {pp}")))
        .or_else(|| {
            let uneven = !batch.is_multiple_of(replicas);
            uneven.then(|| format!("batch: {batch} samples do not divide among {replicas} replicas"))
        })
}

fn of_mesh(job: &Job, mesh: Mesh) -> Vec<(Point, Option<String>)> {
    let per_replica = job.training.global_batch / u64::from(mesh.replicas());
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
    let shardings = match (mesh.degree(Axis::Fsdp) > 1, mesh.degree(Axis::Dp) > 1) {
        (true, _) => vec![StateSharding::Zero3],
        (false, true) if states => vec![StateSharding::None, StateSharding::Zero1, StateSharding::Zero2],
        (false, true) => vec![StateSharding::None, StateSharding::Zero2],
        (false, false) => vec![StateSharding::None],
    };
    let mut points = vec![];
    for micro_batch in divisors(per_replica) {
        for schedule in &schedules {
            for sequence_parallel in &boundaries {
                for state_sharding in &shardings {
                    let point = Point {
                        mesh,
                        micro_batch,
                        micro_batches: per_replica / micro_batch,
                        schedule: *schedule,
                        sequence_parallel: *sequence_parallel,
                        state_sharding: *state_sharding,
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
        .or_else(|| pinned(job, PinKey::Zero, stage(point.state_sharding)))
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

/// A stage of ZeRO's number in a pin.
fn stage(sharding: StateSharding) -> u64 {
    match sharding {
        StateSharding::None => 0,
        StateSharding::Zero1 => 1,
        StateSharding::Zero2 => 2,
        StateSharding::Zero3 => 3,
    }
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
        (PinKey::Fsdp, n) => ("fsdp", n.to_string()),
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
