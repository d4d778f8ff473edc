//! When nothing fits: what is in the way, and the smallest change that would let something fit, each computed by solving
//! the changed job, not guessed: without its pins, on more nodes, with more memory per device, on shorter sequences. The
//! invariant: a change that is named was tried and gave a plan that fits.

use crate::candidate::{Fate, Solved, smallest_fits, solve_point};
use crate::ground::{Families, Ground};
use crate::report::shortage;
use crate::search::Search;
use crate::space::{Point, describe_pin, enumerate};
use meshwright_cost_models::CostModel;
use meshwright_ir::{Axis, Bytes, Job, Mesh, Schedule};
use std::collections::BTreeMap;

/// How many times the nodes at hand are tried one by one before only doubling.
const NODES_SCANNED: u32 = 8;
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
    let mut reasons: BTreeMap<&str, u64> = BTreeMap::new();
    for entry in &search.entries {
        let reason = match (&entry.rejected, entry.short()) {
            (Some(why), _) => why.split(':').next().unwrap_or(why),
            (None, Some(_)) => "memory",
            (None, None) => "no strategies",
        };
        *reasons.entry(reason).or_default() += 1;
    }
    let mut reasons: Vec<(&str, u64)> = reasons.into_iter().collect();
    reasons.sort_by_key(|(name, n)| (std::cmp::Reverse(*n), *name));
    why.extend(reasons.into_iter().map(|(name, n)| format!("{name}: {n} points")));
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
            Fate::Impossible(_) => None,
        }
    });
    solved.min_by_key(Solved::peak)
}

fn describe(point: &Point) -> String {
    let (tp, pp, dp) = (point.degree(Axis::Tp), point.degree(Axis::Pp), point.degree(Axis::Dp));
    let zero = if point.zero { " zero-1" } else { "" };
    format!("tp={tp} pp={pp} dp={dp} micro-batch {}{zero}", point.micro_batch)
}

/// Every kind of change that works, the one that asks for nothing new first.
fn smallest_change(job: &Job, closest: Option<&Solved>, limit: Bytes) -> String {
    if !job.search.pins.is_empty() {
        let freed =
            Job { search: meshwright_ir::Search { pins: vec![], ..job.search.clone() }, ..job.clone() };
        if let Some(point) = fitting(&freed) {
            let pins: Vec<String> = job.search.pins.iter().map(describe_pin).collect();
            return format!("drop the pin {}: {} fits", pins.join(","), describe(&point));
        }
    }
    let mut changes = vec![];
    changes.extend(nodes(job).map(|(nodes, point)| {
        let now = nodes_of(job);
        format!("use {nodes} nodes instead of {now} ({} ranks, {})", point.mesh.ranks(), describe(&point))
    }));
    changes.extend(shorter(job).map(|(sequence, point)| {
        format!(
            "train on sequences of {sequence} instead of {} ({})",
            job.training.sequence,
            describe(&point)
        )
    }));
    changes.extend(closest.map(|s| {
        let short = s.peak().saturating_sub(limit);
        format!("give each rank {short} more memory ({})", describe(&s.point))
    }));
    match changes.is_empty() {
        true => "change the batch, so that some number of replicas divides it".into(),
        false => changes.join("; or "),
    }
}

fn nodes_of(job: &Job) -> u32 {
    let per_node = job.cluster.devices_per_node * job.cluster.ranks_per_device;
    job.search.ranks.div_ceil(per_node)
}

/// The fewest nodes, more than now, on which something fits.
fn nodes(job: &Job) -> Option<(u32, Point)> {
    let now = nodes_of(job);
    let per_node = job.cluster.devices_per_node * job.cluster.ranks_per_device;
    let one_by_one = now + 1..=now.saturating_mul(NODES_SCANNED);
    let doubling = (1..).map(|k| now.saturating_mul(NODES_SCANNED).saturating_mul(1 << k));
    let possible = |n: &u32| u64::from(*n) * u64::from(per_node) <= MOST_RANKS;
    one_by_one.chain(doubling).take_while(possible).take(256).find_map(|n| {
        let mut larger = job.clone();
        larger.search.ranks = n * per_node;
        let outer = larger.cluster.levels.last_mut()?;
        // The outermost level grows; where it is the node itself, nodes are joined at its rate.
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
/// micro-batch, 1F1B and split if they may be.
fn leanest(points: Vec<Point>) -> Vec<Point> {
    let rank = |p: &Point| (p.micro_batch, p.schedule == Schedule::Gpipe, !p.zero);
    let mut least: BTreeMap<(Mesh, bool), Point> = BTreeMap::new();
    for point in points {
        let kept = least.entry((point.mesh, point.sequence_parallel)).or_insert(point);
        if rank(&point) < rank(kept) {
            *kept = point;
        }
    }
    least.into_values().collect()
}
