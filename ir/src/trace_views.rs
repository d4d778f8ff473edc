//! What reports draw of traces, computed once, as values: which kind of instruction each instant of a step went to, how
//! far a prediction is off by kind, what a rank's memory held at its fullest. The invariant: attributed times of a rank
//! add up to its step, so the contributions to an error add up to the error.

use crate::program::{Action, BufferClass, Program};
use crate::trace::{RankBreakdown, Span, Trace};
use crate::{Axis, Bytes, Time};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The kind that stands for instants in which nothing was under way.
pub const IDLE: &str = "idle";

/// One kind of instruction, predicted and measured, over the ranks that both traces hold.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KindError {
    /// Name of the kind, or [`IDLE`].
    pub kind: String,
    /// How many instructions of it the ranks ran; none for idleness.
    pub instructions: u64,
    /// Mean seconds of one, predicted and measured; of idleness, of the step.
    pub each_s: (f64, f64),
    /// Seconds of the step that went to it, mean over ranks, predicted and measured.
    pub of_step_s: (f64, f64),
    /// Predicted less measured seconds of the step: what it adds to the error.
    pub contribution_s: f64,
}

/// How far a prediction is off, and where.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ErrorByKind {
    /// Ranks compared.
    pub ranks: u32,
    /// Step times of the two traces in seconds, predicted and measured.
    pub step_s: (f64, f64),
    /// Kinds, the largest absolute contribution first; contributions add up to predicted less measured step.
    pub kinds: Vec<KindError>,
}

/// Time of each kind: attributed, busy, and how many instructions.
#[derive(Default, Clone, Copy)]
struct Spent {
    attributed: u128,
    busy: u128,
    instructions: u64,
}

impl ErrorByKind {
    /// Compares two traces of `program` on the ranks that both hold; `None` where there are none.
    pub fn of(program: &Program, predicted: &Trace, measured: &Trace) -> Option<Self> {
        let ranks: Vec<u32> =
            predicted.ranks.iter().copied().filter(|r| measured.ranks.binary_search(r).is_ok()).collect();
        if ranks.is_empty() {
            return None;
        }
        let (before, after) = (spent(program, predicted, &ranks), spent(program, measured, &ranks));
        let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
        let n = ranks.len() as f64;
        let seconds = |ps: u128, of: f64| if of > 0.0 { ps as f64 / of / 1e12 } else { 0.0 };
        let kind = |name: &String| {
            let of = |all: &BTreeMap<String, Spent>| all.get(name).copied().unwrap_or_default();
            let (p, m) = (of(&before), of(&after));
            let count = |s: Spent| if name == IDLE { n } else { s.instructions as f64 };
            let difference = p.attributed as i128 - m.attributed as i128;
            KindError {
                kind: name.clone(),
                instructions: p.instructions.max(m.instructions),
                each_s: (seconds(p.busy, count(p)), seconds(m.busy, count(m))),
                of_step_s: (seconds(p.attributed, n), seconds(m.attributed, n)),
                contribution_s: difference as f64 / n / 1e12,
            }
        };
        let mut kinds: Vec<KindError> = names.into_iter().map(kind).collect();
        let size = |k: &KindError| k.contribution_s.abs();
        kinds.sort_by(|a, b| size(b).total_cmp(&size(a)).then_with(|| a.kind.cmp(&b.kind)));
        let step_s = (predicted.step_time.seconds(), measured.step_time.seconds());
        Some(Self { ranks: ranks.len() as u32, step_s, kinds })
    }
}

/// What each kind took of the step of these ranks together.
fn spent(program: &Program, trace: &Trace, ranks: &[u32]) -> BTreeMap<String, Spent> {
    let mut by_action: BTreeMap<Option<Action>, Spent> = BTreeMap::new();
    for rank in ranks {
        let code = program.code_of(*rank);
        for span in trace.of_rank(*rank) {
            let entry =
                by_action.entry(Some(code.instructions[span.instruction as usize].action)).or_default();
            entry.busy += u128::from((span.end - span.start).get());
            entry.instructions += 1;
        }
        for (action, time) in attribute(program, trace, *rank) {
            let entry = by_action.entry(action).or_default();
            entry.attributed += u128::from(time);
            if action.is_none() {
                entry.busy += u128::from(time);
            }
        }
    }
    let mut by_name: BTreeMap<String, Spent> = BTreeMap::new();
    for (action, s) in by_action {
        let name = action.map_or(IDLE.into(), |a| program.kind_name(a));
        let entry = by_name.entry(name).or_default();
        entry.attributed += s.attributed;
        entry.busy += s.busy;
        entry.instructions += s.instructions;
    }
    by_name
}

/// What hides what: kernels everything, collectives within a stage what passes between stages.
fn layer(program: &Program, action: Action) -> u8 {
    match action {
        Action::Compute(_) => 0,
        Action::Collective(c) if program.collectives[c as usize].axes.contains(Axis::Pp) => 2,
        Action::Collective(_) => 1,
        Action::Exchange(_) => 2,
    }
}

/// Picoseconds of a rank's step by what they went to: of all that is under way, the uppermost layer, then the first in
/// the listing; `None` where nothing is.
fn attribute(program: &Program, trace: &Trace, rank: u32) -> BTreeMap<Option<Action>, u64> {
    let code = program.code_of(rank);
    let key = |s: &Span| {
        let action = code.instructions[s.instruction as usize].action;
        (layer(program, action), s.instruction)
    };
    let spans = trace.of_rank(rank);
    let mut edges: Vec<(u64, bool, (u8, u32))> = Vec::with_capacity(2 * spans.len());
    for span in spans.iter().filter(|s| s.start < s.end) {
        edges.push((span.start.get(), true, key(span)));
        edges.push((span.end.get(), false, key(span)));
    }
    edges.sort_unstable();
    let mut open = BTreeSet::new();
    let mut times: BTreeMap<Option<Action>, u64> = BTreeMap::new();
    let mut now = 0;
    let mut pass = |open: &BTreeSet<(u8, u32)>, until: u64| {
        if until > now {
            let action = open.first().map(|(_, i)| code.instructions[*i as usize].action);
            *times.entry(action).or_default() += until - now;
            now = until;
        }
    };
    for (at, starts, key) in edges {
        pass(&open, at);
        if starts {
            open.insert(key);
        } else {
            open.remove(&key);
        }
    }
    pass(&BTreeSet::new(), trace.step_time.get());
    times
}

impl Trace {
    /// Bytes of each class that one rank held when it held most, the first such instant; classes it never held are left
    /// out. Adds up to the rank's entry in [`Trace::peaks`] where that was recorded by the same rule: states, gradients
    /// and scalars throughout, others from their first use to their last.
    pub fn held_at_peak(&self, program: &Program, rank: u32) -> Vec<(BufferClass, Bytes)> {
        let code = program.code_of(rank);
        let mut lives = vec![(u64::MAX, 0u64); code.buffers.len()];
        for span in self.of_rank(rank) {
            let k = span.instruction as usize;
            for b in code.reads(k).iter().chain(code.writes(k)) {
                let life = &mut lives[*b as usize];
                *life = (life.0.min(span.start.get()), life.1.max(span.end.get()));
            }
        }
        let mut live: BTreeMap<BufferClass, u64> = BTreeMap::new();
        // Deaths sort before births of the same instant.
        let mut edges: Vec<(u64, bool, BufferClass, u64)> = Vec::new();
        for (buffer, (from, to)) in code.buffers.iter().zip(lives) {
            if buffer.class.is_static() {
                *live.entry(buffer.class).or_default() += buffer.bytes().get();
            } else if from < to && buffer.elements > 0 {
                edges.push((from, true, buffer.class, buffer.bytes().get()));
                edges.push((to, false, buffer.class, buffer.bytes().get()));
            }
        }
        edges.sort_unstable();
        let mut total: u64 = live.values().sum();
        let mut most = (total, live.clone());
        for (_, born, class, bytes) in edges {
            let held = live.entry(class).or_default();
            if born {
                *held += bytes;
                total += bytes;
            } else {
                *held -= bytes;
                total -= bytes;
            }
            if total > most.0 {
                most = (total, live.clone());
            }
        }
        most.1.into_iter().filter(|(_, b)| *b > 0).map(|(c, b)| (c, Bytes(b))).collect()
    }
}

impl RankBreakdown {
    /// Mean of several, rounded down, with the leftover in `idle` so that the parts still add up to `step`; `None` of none.
    pub fn mean(all: &[Self], step: Time) -> Option<Self> {
        let n = all.len() as u128;
        let of = |part: fn(&Self) -> Time| {
            let sum: u128 = all.iter().map(|b| u128::from(part(b).get())).sum();
            Time(u64::try_from(sum / n).expect("a mean is no larger than the largest"))
        };
        let first = all.first()?;
        let (compute, exposed_collective, pipeline) =
            (of(|b| b.compute), of(|b| b.exposed_collective), of(|b| b.pipeline));
        let idle = step.saturating_sub(compute + exposed_collective + pipeline);
        Some(Self { rank: first.rank, compute, exposed_collective, pipeline, idle })
    }
}
