//! From a finished search to the documents: plans, and the report of every point and its fate. The invariant: figures of
//! memory include what the runtime reserves, and figures of time are closed forms until a simulator replaces them.

use crate::candidate::{Fate, Solved};
use crate::family::{Expanded, boundary};
use crate::search::{Entry, Search};
use crate::work::data_axes;
use meshwright_ir::{
    Alternative, Bytes, Candidate, ClassPlan, Plan, Prediction, SearchReport, Storage, Time,
};

/// Most runners-up listed.
pub(crate) const RUNNERS_UP: usize = 10;

/// What the search did. `best` are the positions of the plans returned.
pub(crate) fn search(search: &Search<'_>, best: &[usize]) -> SearchReport {
    let reserved = search.ground.job.cluster.device.reserved;
    let entries = &search.entries;
    let alternative = |k: usize| {
        let s = entries[k].fits().expect("a ranked point fits");
        Alternative {
            mesh: s.point.mesh,
            sequence_parallel: s.point.sequence_parallel,
            micro_batch: s.point.micro_batch,
            schedule: s.point.schedule,
            state_sharding: s.point.state_sharding,
            step_time_s: Time(s.time.step).seconds(),
            peak_memory_bytes: s.peak() + reserved,
        }
    };
    let gap = best.first().and_then(|k| entries[*k].fits()).map_or(0, Solved::step_gap);
    SearchReport {
        candidates: entries.len() as u64,
        pruned: entries.iter().filter(|e| e.rejected.is_some()).count() as u64,
        solved: search.solved,
        simulated: 0,
        surrogate_gap_s: Time(gap).seconds(),
        alternatives: search.ranking().into_iter().skip(1).take(RUNNERS_UP).map(alternative).collect(),
        points: entries.iter().map(|e| candidate(search, e)).collect(),
    }
}

fn candidate(search: &Search<'_>, entry: &Entry) -> Candidate {
    let solved = entry.fits().or(entry.short());
    let reserved = search.ground.job.cluster.device.reserved;
    let rejected = match &entry.fate {
        Some(Fate::Fits(_)) => None,
        Some(Fate::Short(s)) => Some(shortage(search, s)),
        Some(Fate::Impossible(why)) => Some(why.clone()),
        Some(Fate::Slow) => {
            Some("bound: its fastest strategies beat none of the best, with memory to spare".into())
        }
        None => entry.rejected.clone(),
    };
    let bounded = solved.is_none() && entry.bound > 0;
    Candidate {
        mesh: entry.point.mesh,
        micro_batch: entry.point.micro_batch,
        schedule: entry.point.schedule,
        state_sharding: entry.point.state_sharding,
        sequence_parallel: entry.point.sequence_parallel,
        bound_s: bounded.then(|| Time(entry.bound).seconds()),
        states_bytes: bounded.then(|| search.ground.states(&entry.point) + reserved),
        closed_form_s: solved.map(|s| Time(s.time.step).seconds()),
        peak_memory_bytes: solved.map(|s| s.peak() + reserved),
        rejected,
    }
}

/// `stage 2 needs 91.0 GiB of 76.0 GiB at micro-batch 1`.
pub(crate) fn shortage(search: &Search<'_>, s: &Solved) -> String {
    let (reserved, limit) = (search.ground.job.cluster.device.reserved, search.ground.limit);
    let (need, have) = (s.peak() + reserved, limit + reserved);
    format!("memory: stage {} needs {need} of {have} at micro-batch {}", s.fullest(), s.point.micro_batch)
}

/// The plan of a solved point.
pub(crate) fn plan(search: &Search<'_>, s: &Solved, why: Vec<String>, report: &SearchReport) -> Plan {
    let (job, point) = (search.ground.job, &s.point);
    let reserved = job.cluster.device.reserved;
    let step = Time(s.time.step).seconds();
    let floor = Time(search.ground.bound(point)).seconds();
    let stored = |(class, storage): (&std::sync::Arc<Expanded>, &Vec<Storage>)| ClassPlan {
        storage: storage.clone(),
        ..class.plan.clone()
    };
    Plan {
        version: 1,
        job: job.clone(),
        mesh: point.mesh,
        micro_batch: point.micro_batch,
        micro_batches: point.micro_batches,
        schedule: point.schedule,
        stages: s.stages.clone(),
        boundary: boundary(data_axes(&point.mesh), point.sequence_parallel),
        classes: s.classes.iter().zip(&s.storage).map(stored).collect(),
        recompute: s.recompute.clone(),
        state_sharding: point.state_sharding,
        gathering: s.keeping.gathering,
        bucket: s.keeping.bucket,
        algorithms: search.ground.prices(point).algorithms().clone(),
        prediction: Prediction {
            step_time_s: step,
            step_time_band_s: (floor, Time(s.in_turn).seconds()),
            basis: "closed form, not simulated: from kernels alone to nothing overlapped".into(),
            closed_form_s: step,
            peak_memory_bytes: s.peaks.iter().map(|p| *p + reserved).collect(),
            memory_limit_bytes: search.ground.limit + reserved,
            lower_bound_s: Time(search.lower).seconds(),
        },
        search: report.clone(),
        why,
    }
}

/// A size by which two differ: `+11.0 GiB`, `-3.00 GiB`, `±0 B`.
pub(crate) fn difference(to: Bytes, from: Bytes) -> String {
    match to.cmp(&from) {
        std::cmp::Ordering::Greater => format!("+{}", to - from),
        std::cmp::Ordering::Less => format!("-{}", from - to),
        std::cmp::Ordering::Equal => "±0 B".into(),
    }
}
