//! What one lane of a timeline draws: one stream of one rank. A short lane keeps every piece, neighbours of one kind
//! merged where they are narrower than a pixel. A longer one becomes columns, each in the kind that fills most of it.
//! The height of what was merged says how much of it was busy. Either way nothing that ran is invisible.

use crate::kind::Kind;
use meshwright_ir::Program;
use meshwright_ir::trace::Span;

/// Width of a lane in pixels, for deciding what is too narrow to see.
const PIXELS: u64 = 900;
/// Heights a column can have.
pub(crate) const LEVELS: u32 = 5;

/// One span with its kind.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Work {
    /// Kind of work.
    pub(crate) kind: Kind,
    /// Micro-batch it belongs to.
    pub(crate) micro_batch: u16,
    /// Which instruction, when.
    pub(crate) span: Span,
}

/// A drawn rectangle: one instruction, or several in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Kind of work.
    pub(crate) kind: Kind,
    /// First instruction.
    pub(crate) instruction: u32,
    /// How many instructions.
    pub(crate) count: u32,
    /// Start in picoseconds.
    pub(crate) start: u64,
    /// End in picoseconds.
    pub(crate) end: u64,
    /// How much of it the instructions fill, in picoseconds.
    busy: u64,
}

impl Piece {
    /// Height, 1 to [`LEVELS`]: full for one instruction, else the share of the piece that was busy.
    pub(crate) fn level(&self) -> u32 {
        let whole = (self.end - self.start).max(1);
        let share = self.busy.min(whole) as f64 / whole as f64;
        if self.count == 1 { LEVELS } else { ((share * f64::from(LEVELS)).ceil() as u32).clamp(1, LEVELS) }
    }
}

/// Columns `from..to` that look alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    /// Kind that fills most of each.
    pub(crate) kind: Kind,
    /// First column.
    pub(crate) from: u32,
    /// Column after the last.
    pub(crate) to: u32,
    /// Height, 1 to [`LEVELS`].
    pub(crate) level: u32,
}

/// A lane as drawn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Every piece.
    Pieces(Vec<Piece>),
    /// This many columns, runs of equal ones joined.
    Columns(u32, Vec<Run>),
}

/// Spans of one rank on one stream, in order of start.
pub(crate) fn works(program: &Program, spans: &[Span], stream: u8) -> Vec<Work> {
    let work = |span: &Span| {
        let code = program.code_of(span.rank);
        let i = &code.instructions[span.instruction as usize];
        (i.stream == stream).then(|| Work {
            kind: Kind::of(program, i.action),
            micro_batch: i.micro_batch,
            span: *span,
        })
    };
    spans.iter().filter_map(work).collect()
}

/// Pieces that all lanes of a timeline may have together, and columns: what keeps a report of any size below 1 MB.
const PIECES: usize = 1_200;
const COLUMNS: usize = 9_000;

/// The lanes of a timeline whose axis ends at `full`. The shortest keep their pieces, as many as the budget lets.
pub(crate) fn lanes(works: &[&[Work]], full: u64) -> Vec<Lane> {
    let merged: Vec<Vec<Piece>> = works.iter().map(|w| merge(w, (full / PIXELS).max(1))).collect();
    let mut lengths: Vec<usize> = merged.iter().map(Vec::len).collect();
    lengths.sort_unstable();
    let mut total = 0;
    let exceeds = |n: &&usize| {
        total += **n;
        total > PIECES
    };
    let too_long = lengths.iter().find(exceeds).copied().unwrap_or(usize::MAX);
    let long = lengths.iter().filter(|n| **n >= too_long).count().max(1);
    let columns = (COLUMNS / long).clamp(150, 800) as u32;
    let draw = |(pieces, works): (Vec<Piece>, &&[Work])| {
        if pieces.len() < too_long {
            Lane::Pieces(pieces)
        } else {
            Lane::Columns(columns, runs(works, full, columns))
        }
    };
    merged.into_iter().zip(works).map(draw).collect()
}

fn merge(works: &[Work], pixel: u64) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    for work in works {
        let (start, end) = (work.span.start.get(), work.span.end.get());
        match pieces.last_mut() {
            Some(p)
                if p.kind == work.kind
                    && start.saturating_sub(p.end) < pixel
                    && (p.end - p.start < pixel || end.saturating_sub(start) < pixel) =>
            {
                p.end = p.end.max(end);
                p.busy += end.saturating_sub(start);
                p.count += 1;
            }
            _ => pieces.push(Piece {
                kind: work.kind,
                instruction: work.span.instruction,
                count: 1,
                start,
                end: end.max(start),
                busy: end.saturating_sub(start),
            }),
        }
    }
    pieces
}

fn runs(works: &[Work], full: u64, columns: u32) -> Vec<Run> {
    let width = full as f64 / f64::from(columns);
    let mut busy = vec![[0f64; Kind::ALL.len()]; columns as usize];
    for work in works {
        let (start, end) = (work.span.start.get() as f64 / width, work.span.end.get() as f64 / width);
        let last = (end as usize).min(columns as usize - 1);
        for (k, column) in busy.iter_mut().enumerate().take(last + 1).skip(start as usize) {
            // A span of no length still leaves a trace in its column.
            column[work.kind as usize] += (end.min(k as f64 + 1.0) - start.max(k as f64)).max(1e-9);
        }
    }
    let mut runs: Vec<Run> = Vec::new();
    for (k, column) in busy.iter().enumerate() {
        let total: f64 = column.iter().sum();
        if total == 0.0 {
            continue;
        }
        let most = (1..column.len()).fold(0, |best, c| if column[c] > column[best] { c } else { best });
        let level = ((total * f64::from(LEVELS)).ceil() as u32).clamp(1, LEVELS);
        let (kind, from) = (Kind::ALL[most], k as u32);
        match runs.last_mut() {
            Some(r) if r.to == from && r.kind == kind && r.level == level => r.to += 1,
            _ => runs.push(Run { kind, from, to: from + 1, level }),
        }
    }
    runs
}

/// A stretch in which a rank worked on one micro-batch in one direction: what `F3` and `B3` stand above.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Phase {
    /// Forward or backward.
    pub(crate) kind: Kind,
    /// Micro-batch.
    pub(crate) micro_batch: u16,
    /// Start in picoseconds.
    pub(crate) start: u64,
    /// End in picoseconds.
    pub(crate) end: u64,
}

/// Phases of a compute stream; pauses shorter than `gap` do not end one.
pub(crate) fn phases(works: &[Work], gap: u64) -> Vec<Phase> {
    let mut phases: Vec<Phase> = Vec::new();
    for work in works.iter().filter(|w| matches!(w.kind, Kind::Forward | Kind::Backward)) {
        let (start, end) = (work.span.start.get(), work.span.end.get());
        match phases.last_mut() {
            Some(p)
                if p.kind == work.kind
                    && p.micro_batch == work.micro_batch
                    && start.saturating_sub(p.end) <= gap =>
            {
                p.end = end;
            }
            _ => phases.push(Phase { kind: work.kind, micro_batch: work.micro_batch, start, end }),
        }
    }
    phases
}

#[cfg(test)]
mod tests {
    use super::*;
    use meshwright_ir::Time;

    fn works(list: &[(Kind, u64, u64)]) -> Vec<Work> {
        let work = |(k, (kind, start, end)): (usize, &(Kind, u64, u64))| Work {
            kind: *kind,
            micro_batch: 0,
            span: Span { rank: 0, instruction: k as u32, start: Time(*start), end: Time(*end) },
        };
        list.iter().enumerate().map(work).collect()
    }

    #[test]
    fn narrow_neighbours_of_one_kind_merge() {
        let list = works(&[
            (Kind::Forward, 0, 5),
            (Kind::Forward, 6, 9),
            (Kind::Backward, 9, 12),
            (Kind::Backward, 500, 800),
        ]);
        let drawn = lanes(&[&list], 9_000);
        let Lane::Pieces(pieces) = &drawn[0] else { panic!("four spans need no columns") };
        let drawn: Vec<_> = pieces.iter().map(|p| (p.kind, p.count, p.start, p.end, p.level())).collect();
        assert_eq!(
            drawn,
            [(Kind::Forward, 2, 0, 9, 5), (Kind::Backward, 1, 9, 12, 5), (Kind::Backward, 1, 500, 800, 5)]
        );
        let sparse = works(&[(Kind::Forward, 0, 2), (Kind::Forward, 8, 10)]);
        let Lane::Pieces(pieces) = &lanes(&[&sparse], 9_000)[0] else { panic!("two spans need no columns") };
        assert_eq!((pieces[0].count, pieces[0].level()), (2, 2));
    }

    #[test]
    fn long_lanes_become_columns() {
        // Forward and backward alternate, busy half of the first half of the step; then nothing.
        let kind = |k| if k % 3 == 0 { Kind::Backward } else { Kind::Forward };
        let list: Vec<_> = (0..10_000).map(|k| (kind(k), k * 10, k * 10 + 5)).collect();
        let short = works(&[(Kind::Exchange, 0, 7)]);
        let drawn = lanes(&[&works(&list), &short], 200_000);
        assert!(matches!(&drawn[1], Lane::Pieces(p) if p.len() == 1));
        let Lane::Columns(800, runs) = &drawn[0] else { panic!("too many pieces") };
        assert!(runs.iter().all(|r| r.kind == Kind::Forward && r.to <= 400 && r.level >= 2), "{runs:?}");
    }
}
