//! The critical path: from the last end back through whatever held each instruction up. The invariant: in a predicted
//! trace on unshared devices each item starts when the one before it ended, so the items add up to the step time.

use crate::Partition;
use crate::tables::{Meetings, NONE};
use meshwright_ir::program::Action;
use meshwright_ir::trace::{Span, Trace};
use meshwright_ir::{Program, Time};
use std::collections::BTreeMap;

/// One instruction on the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CriticalItem {
    /// Whose: of those who met in a collective or a message, the last to arrive.
    pub rank: u32,
    /// Position in the listing of the rank's role.
    pub instruction: u32,
    /// When it began.
    pub start: Time,
    /// When it was complete, as far as the next on the path had to wait for it.
    pub end: Time,
}

/// The chain of instructions that ends with the step, first to last: before each stands the stream predecessor or
/// `after` that ended latest, and for communication the peer that arrived last. Empty for an empty trace. `trace` must
/// be one of `program`, of the classes of `partition`; it may be measured, and its items then have gaps.
pub fn critical_path(program: &Program, partition: &Partition, trace: &Trace) -> Vec<CriticalItem> {
    let walk = Walk::new(program, partition, trace);
    let last = trace.spans.iter().max_by_key(|s| (s.end, std::cmp::Reverse((s.rank, s.instruction))));
    let mut path = Vec::new();
    let mut at = last;
    while let Some(span) = at.filter(|_| path.len() < trace.spans.len()) {
        let held = walk.last_arrival(span);
        let Span { rank, instruction, start, end } = *held;
        path.push(CriticalItem { rank, instruction, start, end });
        at = walk.before(held);
    }
    path.reverse();
    for k in 1..path.len() {
        // Of an exchange that also waits for its other half, the path holds the half that the next item waited for.
        path[k - 1].end = path[k - 1].end.min(path[k].start);
    }
    path
}

struct Walk<'a> {
    program: &'a Program,
    partition: &'a Partition,
    trace: &'a Trace,
    meetings: Meetings,
    /// For each traced rank, the position of each instruction's span.
    spans: BTreeMap<u32, Vec<u32>>,
}

impl<'a> Walk<'a> {
    fn new(program: &'a Program, partition: &'a Partition, trace: &'a Trace) -> Self {
        let mut spans: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (position, span) in trace.spans.iter().enumerate() {
            let of_rank = spans
                .entry(span.rank)
                .or_insert_with(|| vec![NONE; program.code_of(span.rank).instructions.len()]);
            of_rank[span.instruction as usize] = position as u32;
        }
        Self { program, partition, trace, meetings: Meetings::of(program), spans }
    }

    fn span(&self, rank: u32, k: u32) -> Option<&'a Span> {
        let position = *self.spans.get(&rank)?.get(k as usize)?;
        self.trace.spans.get(position as usize)
    }

    /// Of a span and those it meets, the one that began last; itself in a tie.
    fn last_arrival(&self, span: &'a Span) -> &'a Span {
        let (rank, k) = (span.rank, span.instruction);
        let role = self.program.role_of(rank);
        let met: Vec<&Span> = match self.program.roles[role].instructions[k as usize].action {
            Action::Compute(_) => Vec::new(),
            Action::Collective(c) => {
                let members = self.program.members(rank, &self.program.collectives[c as usize]);
                let instruction =
                    |m: u32| self.meetings.joined_by(role as u32, k, self.program.role_of(m) as u32);
                let mut stand_ins: Vec<u32> =
                    members.into_iter().map(|m| self.partition.representative_of(m)).collect();
                stand_ins.sort_unstable();
                stand_ins.dedup();
                stand_ins.into_iter().filter_map(|m| self.span(m, instruction(m))).collect()
            }
            Action::Exchange(e) => {
                let peer = self.program.peer(rank, &self.program.exchanges[e as usize]);
                let peer = self.partition.representative_of(peer);
                let halves = self.meetings.halves(role as u32, k);
                halves.into_iter().filter(|h| *h != NONE).filter_map(|h| self.span(peer, h)).collect()
            }
        };
        met.into_iter().fold(span, |last, s| if s.start > last.start { s } else { last })
    }

    /// What ended last of all that a span waited for on its own rank.
    fn before(&self, span: &Span) -> Option<&'a Span> {
        let (code, k) = (self.program.code_of(span.rank), span.instruction as usize);
        let on_stream = |p: &usize| code.instructions[*p].stream == code.instructions[k].stream;
        let stream = (0..k).rev().find(on_stream).map(|p| p as u32);
        let waited = code.after(k).iter().copied().chain(stream);
        waited.filter_map(|d| self.span(span.rank, d)).max_by_key(|s| (s.end, s.instruction))
    }
}
