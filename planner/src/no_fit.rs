//! When nothing fits: what is in the way, and the smallest change that would let something fit, each computed by solving
//! the changed job, not guessed: without its pins, on more nodes, with more memory per device, on shorter sequences. The
//! invariant: a change that is named was tried and gave a plan that fits.

use crate::candidate::{Fate, Solved, smallest_fits, solve_point};
use crate::ground::{Families, Ground};
use crate::report::shortage;
use crate::search::Search;
use crate::space::{Point, describe_pin, enumerate};
use meshwright_cost_models::CostModel;
use meshwright_ir::{Axis, Bytes, Job, Mesh, Schedule, Search as Limits, StateSharding};
use std::collections::BTreeMap;

/// How many times the nodes at hand are tried one by one before only doubling.
const NODES_SCANNED: u32 = 8;
/// How far from what was asked other numbers of ranks and batches are tried.
const SCANNED: u64 = 32;
/// The machine at hand, which has one node, and the most ranks that may share it.
const LOCALHOST: &str = "localhost";
const MOST_LOCAL_RANKS: u32 = 1024;
/// Most ranks a suggestion may ask for: what a mesh can number.
const MOST_RANKS: u64 = 1 << 24;

/// Points with the least parameter states that are solved to find how much memory is short, when rules rejected all.
const CLOSEST_TRIED: usize = 16;

/// Reasons, most common first, and the smallest change.
pub(crate) fn explain(search: &Search<'_>, families: &Families<'_>) -> (Vec<String>, String) {
    let mut why = vec![format!("none of {} points of the space fits", search.entries.len())];
    let closest = closest(search, families);
    let described =
        closest.as_ref().map(|s| format!("closest: {}: {}", describe(&s.point), shortage(search, s)));
    why.extend(described);
    let mut reasons: BTreeMap<&str, (u64, &str)> = BTreeMap::new();
    for entry in &search.entries {
        let reason = match (&entry.rejected, entry.short()) {
            (Some(why), _) => why,
            (None, Some(_)) => "memory",
            (None, None) => "no strategies",
        };
        let (kind, example) = reason.split_once(": ").unwrap_or((reason, ""));
        reasons.entry(kind).or_insert((0, example)).0 += 1;
    }
    let mut reasons: Vec<(&str, (u64, &str))> = reasons.into_iter().collect();
    reasons.sort_by_key(|(name, (n, _))| (std::cmp::Reverse(*n), *name));
    why.extend(reasons.into_iter().map(|(name, (n, example))| {
        let points = if n == 1 { "1 point".to_string() } else { format!("{n} points") };
        // Memory has been spelt out as the closest.
        match name == "memory" || example.is_empty() {
            true => format!("{name}: {points}"),
            false if n == 1 => format!("{name}: {points}: {example}"),
            false => format!("{name}: {points}, such as: {example}"),
        }
    }));
    (why, smallest_change(search.ground.job, closest.as_ref(), search.ground.limit))
}

/// The smallest choice of the point that is least short of memory.
fn closest(search: &Search<'_>, families: &Families<'_>) -> Option<Solved> {
    if let Some(short) = search.entries.iter().filter_map(|e| e.short()).min_by_key(|s| s.peak()) {
        return Some(short.clone());
    }
    // Rejected for their parameters alone: the only ones that were given a bound.
    let bounded = search.entries.iter().filter(|e| e.bound > 0).map(|e| e.point);
    let mut points: Vec<Point> = leanest(bounded.collect());
    points.sort_by_key(|p| search.ground.states(p));
    let solved = points.iter().take(CLOSEST_TRIED).filter_map(|p| {
        match solve_point(&search.ground.scenario(*p, families.of(p)?)).0 {
            Fate::Fits(solved) | Fate::Short(solved) => Some(*solved),
            Fate::Impossible(_) | Fate::Slow => None,
        }
    });
    solved.min_by_key(Solved::peak)
}

fn describe(point: &Point) -> String {
    let (tp, pp, dp) = (point.degree(Axis::Tp), point.degree(Axis::Pp), point.degree(Axis::Dp));
    let fsdp = match point.degree(Axis::Fsdp) {
        1 => String::new(),
        n => format!(" fsdp={n}"),
    };
    let zero = match point.state_sharding {
        StateSharding::None => String::new(),
        split => format!(" {split}"),
    };
    format!("tp={tp} pp={pp} dp={dp}{fsdp} micro-batch {}{zero}", point.micro_batch)
}

/// Every kind of change that works, the one that asks for nothing new first.
fn smallest_change(job: &Job, closest: Option<&Solved>, limit: Bytes) -> String {
    if let Some(pins) = fewer_pins(job) {
        return pins;
    }
    let mut changes = vec![];
    let now = job.search.ranks;
    changes.extend(
        other_ranks(job).map(|(n, point)| format!("use {n} ranks instead of {now} ({})", describe(&point))),
    );
    if changes.is_empty() {
        changes.extend(nodes(job).map(|(n, point)| {
            let ranks = point.mesh.ranks();
            format!("use {n} nodes instead of {} ({ranks} ranks, {})", nodes_of(job), describe(&point))
        }));
    }
    let (sequence, batch) = (job.training.sequence, job.training.global_batch);
    match closest {
        Some(s) => {
            changes.extend(shorter(job).map(|(n, point)| {
                format!("train on sequences of {n} instead of {sequence} ({})", describe(&point))
            }));
            let short = s.peak().saturating_sub(limit);
            changes.push(format!("give each rank {short} more memory ({})", describe(&s.point)));
        }
        // Rules are in the way, not memory.
        None => changes.extend(other_batch(job).map(|(n, point)| {
            format!("train on {n} sequences a step instead of {batch} ({})", describe(&point))
        })),
    }
    match changes.is_empty() {
        true => "none was found: other ranks, more nodes and other batches were tried".into(),
        false => changes.join("; or "),
    }
}

/// The pin without which something fits, or all of them.
fn fewer_pins(job: &Job) -> Option<String> {
    let pins = &job.search.pins;
    let without = |dropped: &dyn Fn(usize) -> bool| {
        let kept = pins.iter().enumerate().filter(|(k, _)| !dropped(*k)).map(|(_, p)| *p).collect();
        fitting(&Job { search: Limits { pins: kept, ..job.search.clone() }, ..job.clone() })
    };
    let one = (0..pins.len()).find_map(|k| Some((describe_pin(&pins[k]), without(&|dropped| dropped == k)?)));
    let all = || {
        let names: Vec<String> = pins.iter().map(describe_pin).collect();
        (pins.len() > 1).then(|| without(&|_| true).map(|p| (names.join(","), p))).flatten()
    };
    let (names, point) = one.or_else(all)?;
    Some(format!("drop the pin {names}: {} fits", describe(&point)))
}

/// Values around `now`, nearest first and larger before smaller.
fn around(now: u64) -> impl Iterator<Item = u64> {
    (1..=SCANNED).flat_map(move |d| [Some(now + d), now.checked_sub(d)]).flatten().filter(|n| *n > 0)
}

/// The number of ranks nearest to now, of what the cluster at hand holds, with which something fits.
fn other_ranks(job: &Job) -> Option<(u64, Point)> {
    let local = job.cluster_source.name == LOCALHOST;
    let most = if local { u64::from(MOST_LOCAL_RANKS) } else { u64::from(job.cluster.ranks()) };
    let whole = (!local).then_some(most);
    around(u64::from(job.search.ranks)).chain(whole).filter(|n| *n <= most).find_map(|n| {
        let mut other = job.clone();
        other.search.ranks = n as u32;
        if local {
            // Its ranks share one device, and its memory.
            other.cluster.ranks_per_device = n as u32;
        }
        fitting(&other).map(|point| (n, point))
    })
}

/// The global batch nearest to the one asked for with which something fits, else the next that all ranks divide.
fn other_batch(job: &Job) -> Option<(u64, Point)> {
    let (batch, ranks) = (job.training.global_batch, u64::from(job.search.ranks));
    around(batch).chain([batch.next_multiple_of(ranks)]).find_map(|n| {
        let mut other = job.clone();
        other.training.global_batch = n;
        fitting(&other).map(|point| (n, point))
    })
}

fn nodes_of(job: &Job) -> u32 {
    let per_node = job.cluster.devices_per_node * job.cluster.ranks_per_device;
    job.search.ranks.div_ceil(per_node)
}

/// The fewest nodes, more than now, on which something fits. A machine whose last level lies within a node has no others.
fn nodes(job: &Job) -> Option<(u32, Point)> {
    let within: u32 = job.cluster.levels.iter().rev().skip(1).map(|l| l.size).product();
    if job.cluster_source.name == LOCALHOST || !within.is_multiple_of(job.cluster.devices_per_node) {
        return None;
    }
    let now = nodes_of(job);
    let per_node = job.cluster.devices_per_node * job.cluster.ranks_per_device;
    let one_by_one = now + 1..=now.saturating_mul(NODES_SCANNED);
    let doubling = (1..).map(|k| now.saturating_mul(NODES_SCANNED).saturating_mul(1 << k));
    let possible = |n: &u32| u64::from(*n) * u64::from(per_node) <= MOST_RANKS;
    one_by_one.chain(doubling).take_while(possible).take(256).find_map(|n| {
        let mut larger = job.clone();
        larger.search.ranks = n * per_node;
        let outer = larger.cluster.levels.last_mut()?;
        // The outermost level grows.
        let below = job.cluster.devices() / outer.size;
        outer.size = (n * job.cluster.devices_per_node).div_ceil(below);
        fitting(&larger).map(|point| (n, point))
    })
}

/// The longest halving of the sequence at which something fits.
fn shorter(job: &Job) -> Option<(u64, Point)> {
    let halves = std::iter::successors(Some(job.training.sequence / 2), |s| Some(s / 2));
    halves.take_while(|s| *s >= 1).find_map(|sequence| {
        let mut shorter = job.clone();
        shorter.training.sequence = sequence;
        fitting(&shorter).map(|point| (sequence, point))
    })
}

/// A point of the job's space that fits, with the smallest micro-batch allowed; `None` when there is none.
fn fitting(job: &Job) -> Option<Point> {
    let allowed = enumerate(job, job.search.ranks).into_iter().filter(|(_, why)| why.is_none());
    let allowed = leanest(allowed.map(|(p, _)| p).collect());
    let model = CostModel::new(&job.cluster);
    let ground = Ground::new(job, &model, &allowed);
    let families = Families::new(&ground, &allowed);
    let search = Search::new(&ground, allowed.iter().map(|p| (*p, None)).collect());
    let open = search.entries.iter().filter(|e| e.rejected.is_none());
    // Least parameter states first: those are the likeliest to fit.
    let mut open: Vec<Point> = open.map(|e| e.point).collect();
    open.sort_by_key(|p| ground.states(p));
    open.into_iter()
        .find(|point| families.of(point).is_some_and(|f| smallest_fits(&ground.scenario(*point, f))))
}

/// Of points that differ in micro-batch, schedule and split of states alone, the one that holds least: the smallest
/// micro-batch, 1F1B and split as far as may be.
fn leanest(points: Vec<Point>) -> Vec<Point> {
    let split = |p: &Point| std::cmp::Reverse(p.state_sharding);
    let rank = |p: &Point| (p.micro_batch, p.schedule == Schedule::Gpipe, split(p));
    let mut least: BTreeMap<(Mesh, bool), Point> = BTreeMap::new();
    for point in points {
        let kept = least.entry((point.mesh, point.sequence_parallel)).or_insert(point);
        if rank(&point) < rank(kept) {
            *kept = point;
        }
    }
    least.into_values().collect()
}
