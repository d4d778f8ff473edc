//! Why a plan won, from the numbers: where its step goes, how full its memory is, what it may not undercut, and what its
//! neighbours would change. The invariant: every sentence is computed from solved points; nothing is said of points that
//! were not solved.

use crate::candidate::Solved;
use crate::report::{difference, shortage};
use crate::search::Search;
use meshwright_ir::{Axis, Gathering, Recompute, StateSharding, Time};

/// Most neighbours compared with.
const NEIGHBOURS: usize = 3;

/// Sentences for plan `k` of the `best` ones.
pub(crate) fn why(search: &Search<'_>, best: &[usize], k: usize) -> Vec<String> {
    let entries = &search.entries;
    let own = entries[best[k]].fits().expect("a plan that was found");
    let fitting = entries.iter().filter(|e| e.fits().is_some()).count();
    let mut lines = vec![
        format!("{fitting} plans fit, of {} points of the space", entries.len()),
        spent(own),
        memory(search, own),
    ];
    lines.extend(recomputed(own));
    lines.extend(split(own));
    let lower = Time(search.lower);
    lines.push(format!(
        "no plan of this space simulates faster than {lower}: this one takes {:.1} times that",
        own.time.step as f64 / lower.get().max(1) as f64
    ));
    let rivals = search.ranking().into_iter().filter(|r| *r != best[k]);
    let fitting = rivals.filter_map(|r| entries[r].fits()).map(|other| compare(own, other));
    lines.extend(fitting.take(NEIGHBOURS));
    let tight = entries.iter().filter_map(|e| e.short()).filter(|s| s.time.step < own.time.step);
    let mut tight: Vec<&Solved> = tight.collect();
    tight.sort_by_key(|s| s.time.step);
    let refused = |s: &&Solved| format!("{}: does not fit ({})", compare(own, s), shortage(search, s));
    lines.extend(tight.iter().take(NEIGHBOURS).map(refused));
    lines
}

/// Where the step goes.
fn spent(s: &Solved) -> String {
    let t = &s.time;
    let share = |x: u64| format!("{} ({:.0} %)", Time(x), 100.0 * x as f64 / t.step.max(1) as f64);
    format!(
        "closed form {}: kernels {}, exposed communication {}, bubble {}, gradients {}, update {}",
        Time(t.step),
        share(t.compute),
        share(t.communication),
        share(t.bubble),
        share(t.gradients),
        share(t.update)
    )
}

fn memory(search: &Search<'_>, s: &Solved) -> String {
    let reserved = search.ground.job.cluster.device.reserved;
    let (peak, limit) = (s.peak() + reserved, search.ground.limit + reserved);
    format!("peak memory {peak} of {limit}, on stage {}", s.fullest())
}

/// `recompute full in 12 of 20 blocks saves 9.3 GiB on stage 0 for 6 % of time`, on the stage that gives most.
fn recomputed(s: &Solved) -> Option<String> {
    let most = (0..s.spared.len()).max_by_key(|k| (s.spared[*k].time, std::cmp::Reverse(*k)))?;
    let (spared, stage) = (&s.spared[most], &s.stages[most]);
    let here = &s.recompute[stage.first as usize..][..stage.blocks as usize];
    let share = 100.0 * (spared.time * s.point.micro_batches) as f64 / s.time.step.max(1) as f64;
    (spared.time > 0).then(|| {
        let (what, saved) = (Recompute::summary(here), spared.recomputed);
        format!("recompute {what} saves {saved} on stage {most} for {share:.1} % of time")
    })
}

/// What splitting training state among replicas spares, and how weights come together.
fn split(s: &Solved) -> Option<String> {
    let sharding = s.point.state_sharding;
    let what = match sharding {
        StateSharding::None => return None,
        StateSharding::Zero1 => "optimizer state",
        StateSharding::Zero2 => "gradients and optimizer state",
        StateSharding::Zero3 if s.keeping.holds_gradients => "weights and optimizer state",
        StateSharding::Zero3 => "weights, gradients and optimizer state",
    };
    let most = s.spared.iter().map(|x| x.split).max()?;
    let pieces = s.point.storage().pieces(&s.point.mesh);
    let Gathering { reshard_after_forward, prefetch } = s.keeping.gathering;
    let gathers = match (sharding, reshard_after_forward, prefetch) {
        (StateSharding::None | StateSharding::Zero1 | StateSharding::Zero2, ..) => "".into(),
        (StateSharding::Zero3, false, _) => "; weights are gathered once a step".into(),
        (StateSharding::Zero3, true, n) => format!("; weights are gathered for each pass, {n} ahead"),
    };
    Some(format!("{sharding} splits {what} among {pieces} replicas, which saves {most}{gathers}"))
}

/// `tp 8 → 4, pp 4 → 8: step +3.1 %, communication -3.0 %, bubble +5.2 %, memory +11.0 GiB`: what going from one plan to
/// another would change, in percent of the first's step.
fn compare(own: &Solved, other: &Solved) -> String {
    let changed = changes(own, other);
    let step = own.time.step;
    let part = |name: &str, from: u64, to: u64| {
        let share = 100.0 * (to as f64 - from as f64) / step.max(1) as f64;
        (share.abs() >= 0.05).then(|| format!("{name} {share:+.1} %"))
    };
    let (a, b) = (&own.time, &other.time);
    let parts = [
        Some(format!("step {:+.1} %", percent(b.step, step))),
        part("kernels", a.compute, b.compute),
        part("communication", a.communication, b.communication),
        part("bubble", a.bubble, b.bubble),
        part("gradients", a.gradients, b.gradients),
        part("update", a.update, b.update),
        Some(format!("memory {}", difference(other.peak(), own.peak()))),
    ];
    format!("{changed}: {}", parts.into_iter().flatten().collect::<Vec<_>>().join(", "))
}

fn changes(from: &Solved, to: &Solved) -> String {
    let (own, other) = (&from.point, &to.point);
    let degree = |axis: Axis| (axis.name(), own.degree(axis).to_string(), other.degree(axis).to_string());
    let all = [
        degree(Axis::Tp),
        degree(Axis::Pp),
        degree(Axis::Dp),
        ("micro-batch", own.micro_batch.to_string(), other.micro_batch.to_string()),
        ("schedule", own.schedule.to_string(), other.schedule.to_string()),
        degree(Axis::Fsdp),
        ("sharding", own.state_sharding.to_string(), other.state_sharding.to_string()),
        ("recompute", Recompute::summary(&from.recompute), Recompute::summary(&to.recompute)),
        ("sp", own.sequence_parallel.to_string(), other.sequence_parallel.to_string()),
    ];
    let changed = all.into_iter().filter(|(_, a, b)| a != b);
    changed.map(|(name, a, b)| format!("{name} {a} → {b}")).collect::<Vec<_>>().join(", ")
}

/// By how many percent `x` exceeds `base`.
fn percent(x: u64, base: u64) -> f64 {
    100.0 * (x as f64 - base as f64) / base.max(1) as f64
}
