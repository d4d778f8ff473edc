//! What a plan's program asks of the interconnect: bytes over each level, and time along each group of axes. Bytes are
//! those of the collectives' own algorithms over the places of their ranks, as `cost-models` prices them. The invariant:
//! what a group sends is shared out among levels and none of it is lost.

use meshwright_algebra::collectives::{closed_form, effective};
use meshwright_cost_models::CostModel;
use meshwright_ir::program::{Action, Code, Collective, Exchange, Program};
use meshwright_ir::{Algorithm, Axis, AxisLoad, AxisSet, Bytes, Cluster, LevelLoad, Load, Time};
use std::collections::BTreeMap;

/// Bytes that one rank sends over each level, the mean over its group.
type Sent = Vec<f64>;

/// One stage's use of some axes.
#[derive(Default, Clone)]
struct Use {
    algorithm: Option<Algorithm>,
    count: u64,
    bytes: f64,
    time: Time,
    levels: Vec<bool>,
}

/// The load of one step that takes `step_s` seconds.
pub fn load(program: &Program, cluster: &Cluster, step_s: f64) -> Load {
    let cost = CostModel::new(cluster);
    let levels = cluster.levels.len();
    let mut most: Sent = vec![0.0; levels];
    let mut axes: BTreeMap<AxisSet, Use> = BTreeMap::new();
    for (stage, code) in program.roles.iter().enumerate() {
        let rank = stage as u32 * program.mesh.stride(Axis::Pp);
        let (sent, uses) = of_stage(program, &cost, code, rank);
        most.iter_mut().zip(sent).for_each(|(m, s)| *m = m.max(s));
        for (set, new) in uses {
            let busiest = axes.entry(set).or_default();
            if new.time > busiest.time || busiest.count == 0 {
                *busiest = new;
            }
        }
    }
    let level = |(k, bytes): (usize, f64)| {
        let level = &cluster.levels[k];
        let bytes = bytes * f64::from(cluster.ranks_per_device);
        let busy = bytes / (level.bandwidth.get() * level.efficiency) / step_s;
        LevelLoad { level: level.name.clone(), bytes: whole(bytes), busy }
    };
    let axis = |(axes, u): (AxisSet, Use)| AxisLoad {
        axes,
        levels: (0..levels).filter(|k| u.levels[*k]).map(|k| cluster.levels[k].name.clone()).collect(),
        algorithm: u.algorithm,
        count: u.count,
        bytes: whole(u.bytes),
        time: u.time,
        share: u.time.seconds() / step_s,
    };
    Load {
        levels: most.into_iter().enumerate().map(level).collect(),
        axes: axes.into_iter().map(axis).collect(),
    }
}

fn whole(bytes: f64) -> Bytes {
    Bytes(bytes.round() as u64)
}

fn of_stage(program: &Program, cost: &CostModel, code: &Code, rank: u32) -> (Sent, BTreeMap<AxisSet, Use>) {
    let mut counts: BTreeMap<Action, u64> = BTreeMap::new();
    for i in code.instructions.iter().filter(|i| !matches!(i.action, Action::Compute(_))) {
        *counts.entry(i.action).or_default() += 1;
    }
    let mut all = vec![0.0; cost.cluster().levels.len()];
    let mut uses: BTreeMap<AxisSet, Use> = BTreeMap::new();
    for (action, count) in counts {
        let (axes, algorithm, sent, time) = match action {
            Action::Compute(_) => continue,
            Action::Collective(c) => collective(program, cost, rank, &program.collectives[c as usize]),
            Action::Exchange(e) => exchange(program, cost, rank, &program.exchanges[e as usize]),
        };
        let used = uses.entry(axes).or_default();
        used.levels.resize(sent.len(), false);
        used.algorithm = algorithm;
        used.count += count;
        used.time += time * count;
        for (k, bytes) in sent.iter().enumerate() {
            all[k] += bytes * count as f64;
            used.bytes += bytes * count as f64;
            used.levels[k] |= *bytes > 0.0;
        }
    }
    (all, uses)
}

fn collective(
    program: &Program,
    cost: &CostModel,
    rank: u32,
    c: &Collective,
) -> (AxisSet, Option<Algorithm>, Sent, Time) {
    let members = program.members(rank, c);
    let bytes = c.dtype.bytes(c.elements);
    let algorithm = effective(c.kind, c.algorithm);
    let n = members.len() as u32;
    let mut sent = vec![0.0; cost.cluster().levels.len()];
    if n > 1 {
        let form = closed_form(c.kind, algorithm, n).expect("an effective algorithm has a closed form");
        let volume = form.volume(bytes).f64();
        let mut over = |a: u32, b: u32, bytes: f64| sent[cost.cluster().level_between(a, b)] += bytes;
        match algorithm {
            // Each member passes the same on to the next.
            Algorithm::Ring => {
                let next = members.iter().skip(1).chain(&members[..1]);
                members.iter().zip(next).for_each(|(a, b)| over(*a, *b, volume / f64::from(n)));
            }
            // The whole tensor up each edge, and down again.
            Algorithm::Tree => {
                let mut distance = 1;
                while distance < members.len() {
                    for child in (distance..members.len()).step_by(2 * distance) {
                        over(members[child], members[child - distance], 2.0 * bytes.f64() / f64::from(n));
                    }
                    distance *= 2;
                }
            }
            // The same to every peer; groups of a mesh look alike from each of their members.
            Algorithm::Direct => {
                let peers = members.iter().filter(|m| **m != rank);
                peers.for_each(|p| over(rank, *p, volume / f64::from(n - 1)));
            }
        }
    }
    (c.axes, Some(algorithm), sent, cost.collective(c.kind, c.algorithm, bytes, &members))
}

fn exchange(
    program: &Program,
    cost: &CostModel,
    rank: u32,
    e: &Exchange,
) -> (AxisSet, Option<Algorithm>, Sent, Time) {
    let peer = program.peer(rank, e);
    let bytes = |elements: Option<u64>| elements.map(|n| e.dtype.bytes(n));
    let mut sent = vec![0.0; cost.cluster().levels.len()];
    if let Some(out) = bytes(e.send) {
        sent[cost.cluster().level_between(rank, peer)] += out.f64();
    }
    // Both directions at once.
    let time = bytes(e.send).max(bytes(e.receive)).map_or(Time::ZERO, |b| cost.exchange(b, rank, peer));
    (AxisSet::of(Axis::Pp), None, sent, time)
}
