//! A trace: what happened in one step, or would. Spans name `(rank, instruction)`, so a predicted and a measured trace of
//! one program join exactly. Breakdown and join are computed here, once, as values; reports only draw them.

use crate::program::{Action, Program};
use crate::{Axis, Bytes, Invalid, Time};
use serde::{Deserialize, Serialize};

mod packed;
use packed::{memory as packed_memory, spans as packed_spans};

/// Where a trace comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TraceSource {
    /// The simulator.
    Predicted,
    /// An executor.
    Measured,
}

/// One instruction of one rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Span {
    /// Which rank.
    pub rank: u32,
    /// Position in the listing of the rank's role.
    pub instruction: u32,
    /// When it began: for communication, when the rank joined it.
    pub start: Time,
    /// When it was complete.
    pub end: Time,
}

/// Bytes live on a rank from an instant on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryPoint {
    /// Which rank.
    pub rank: u32,
    /// From when.
    pub time: Time,
    /// Bytes live in the arena.
    pub bytes: Bytes,
}

/// One step of the ranks that were traced (all of them, or one per role when folded).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trace {
    /// Version of this document: 1.
    pub version: u32,
    /// Where it comes from.
    pub source: TraceSource,
    /// Ranks traced, in order.
    pub ranks: Vec<u32>,
    /// Length of the step.
    pub step_time: Time,
    /// Spans by rank, then start.
    #[serde(with = "packed_spans")]
    pub spans: Vec<Span>,
    /// Memory by rank, then time.
    #[serde(with = "packed_memory")]
    pub memory: Vec<MemoryPoint>,
}

/// Longest step and largest memory that a trace may tell of, so that a few of them still add up: 2^62 ps are 53 days.
const MOST: u64 = 1 << 62;

/// Where a rank's step went. The four parts add up to the step time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankBreakdown {
    /// Which rank.
    pub rank: u32,
    /// Some kernel was running.
    pub compute: Time,
    /// No kernel, but a collective within the stage was under way.
    pub exposed_collective: Time,
    /// No kernel and no collective within the stage, but one between stages, or a message, was waited for or moved.
    pub pipeline: Time,
    /// Nothing was under way.
    pub idle: Time,
}

impl Trace {
    /// Checks that the trace can be one of this program: every instruction of its ranks once, times and sizes in order
    /// and believable.
    pub fn check(&self, program: &Program) -> Result<(), Invalid> {
        let bad = |field: &str, found: String| {
            Err(Invalid::new(field, found, "give a trace that `simulate` or `run` wrote of this very plan"))
        };
        let ranks = program.mesh.ranks();
        let known = |rank: u32| rank < ranks && self.ranks.binary_search(&rank).is_ok();
        if self.version != 1 {
            return bad("trace.version", format!("{}, and 1 is read", self.version));
        }
        if !self.ranks.is_sorted_by(|a, b| a < b) || self.ranks.iter().any(|r| *r >= ranks) {
            return bad("trace.ranks", format!("{} ranks, for {ranks}", self.ranks.len()));
        }
        if self.step_time.get() > MOST {
            return bad("trace.step_time", self.step_time.to_string());
        }
        let ordered = self.spans.is_sorted_by_key(|s| (s.rank, s.start))
            && self.memory.is_sorted_by_key(|p| (p.rank, p.time));
        if !ordered {
            return bad("trace.spans", "entries out of order".into());
        }
        let sound = |s: &&Span| s.start <= s.end && s.end <= self.step_time && known(s.rank);
        if let Some(s) = self.spans.iter().find(|s| !sound(s)) {
            return bad("trace.spans", format!("rank {} from {} to {}", s.rank, s.start, s.end));
        }
        for rank in &self.ranks {
            let mut once: Vec<u32> = self.of_rank(*rank).iter().map(|s| s.instruction).collect();
            once.sort_unstable();
            let code = program.code_of(*rank);
            if !once.iter().copied().eq(0..code.instructions.len() as u32) {
                let found =
                    format!("{} of rank {rank}, for {} instructions", once.len(), code.instructions.len());
                return bad("trace.spans", found);
            }
        }
        let sound = |p: &&MemoryPoint| known(p.rank) && p.time <= self.step_time && p.bytes.get() <= MOST;
        match self.memory.iter().find(|p| !sound(p)) {
            Some(p) => bad("trace.memory", format!("{} of rank {} at {}", p.bytes, p.rank, p.time)),
            None => Ok(()),
        }
    }

    /// Spans of one rank.
    pub fn of_rank(&self, rank: u32) -> &[Span] {
        let from = self.spans.partition_point(|s| s.rank < rank);
        let to = self.spans.partition_point(|s| s.rank <= rank);
        &self.spans[from..to]
    }

    /// Where each traced rank's time went.
    pub fn breakdown(&self, program: &Program) -> Vec<RankBreakdown> {
        self.ranks.iter().map(|rank| self.rank_breakdown(program, *rank)).collect()
    }

    fn rank_breakdown(&self, program: &Program, rank: u32) -> RankBreakdown {
        let code = program.code_of(rank);
        let mut edges: Vec<(u64, usize, i32)> = Vec::new();
        for span in self.of_rank(rank) {
            let class = match code.instructions[span.instruction as usize].action {
                Action::Compute(_) => 0,
                Action::Collective(c) if program.collectives[c as usize].axes.contains(Axis::Pp) => 2,
                Action::Collective(_) => 1,
                Action::Exchange(_) => 2,
            };
            edges.push((span.start.0, class, 1));
            edges.push((span.end.0, class, -1));
        }
        edges.sort_unstable();
        let (mut open, mut spent, mut now) = ([0i32; 3], [0u64; 4], 0u64);
        for (at, class, delta) in edges.into_iter().chain([(self.step_time.0, 0, 0)]) {
            let state = open.iter().position(|n| *n > 0).unwrap_or(3);
            spent[state] += at.saturating_sub(now);
            now = now.max(at);
            open[class] += delta;
        }
        RankBreakdown {
            rank,
            compute: Time(spent[0]),
            exposed_collective: Time(spent[1]),
            pipeline: Time(spent[2]),
            idle: Time(spent[3]),
        }
    }

    /// Largest memory point of each traced rank, in the order of `ranks`.
    pub fn peaks(&self) -> Vec<Bytes> {
        let peak =
            |r: &u32| self.memory.iter().filter(|p| p.rank == *r).map(|p| p.bytes).max().unwrap_or_default();
        self.ranks.iter().map(peak).collect()
    }

    /// Total busy time by kind of instruction over all traced ranks: `(name, time, instructions)`, by name.
    pub fn by_kind(&self, program: &Program) -> Vec<(String, Time, u64)> {
        let mut kinds = std::collections::BTreeMap::<String, (Time, u64)>::new();
        for span in &self.spans {
            let code = program.code_of(span.rank);
            let entry = kinds
                .entry(program.kind_name(code.instructions[span.instruction as usize].action))
                .or_default();
            // Over thousands of ranks of long steps, "all that can be counted".
            entry.0 = Time(entry.0.get().saturating_add((span.end - span.start).get()));
            entry.1 += 1;
        }
        kinds.into_iter().map(|(k, (t, n))| (k, t, n)).collect()
    }
}
