//! The passes of a stage whose weights are gathered and whose gradients are scattered beside them: the kernels of its
//! blocks on one stream, moves on another, in the order in which lowering lists both, each waiting for what it needs
//! (a gather for its slot, a pass for its weights, a slot for its sum). Three micro-batches tell the steady time of a pass
//! and what the first takes beyond it. The invariant: nothing that moves, nothing that changes: then a pass takes the sum
//! of its blocks.

use meshwright_algebra::schedules::{Task, order};
use meshwright_algebra::turns;
use meshwright_ir::{Gathering, Schedule};

/// One block of a stage, in picoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Turning {
    pub(crate) forward: u64,
    pub(crate) backward: u64,
    /// Gathering its split weights.
    pub(crate) gather: u64,
    /// Summing its split gradients into pieces, and adding the pieces to those of earlier micro-batches.
    pub(crate) scatter: u64,
    pub(crate) add: u64,
}

/// Times of a stage's passes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Passes {
    /// A forward, once the stage is under way.
    pub(crate) forward: u64,
    /// How much longer the first one takes, from the start of the step.
    pub(crate) first: u64,
    /// A backward, by block in chain order.
    pub(crate) backward: Vec<u64>,
}

/// Most micro-batches that are followed: the first, one that is like those after it, and one more for gathers that run
/// ahead of it.
const FOLLOWED: u64 = 3;

/// Slots of whole gradients.
const GRADIENT_SLOTS: usize = 2;

pub(crate) fn passes(blocks: &[Turning], schedule: Schedule, m: u64, gathering: Gathering) -> Passes {
    let sum = |of: &dyn Fn(&Turning) -> u64| blocks.iter().map(of).sum();
    if blocks.iter().all(|b| b.gather == 0 && b.scatter == 0) {
        let backward = blocks.iter().map(|b| b.backward).collect();
        return Passes { forward: sum(&|b| b.forward), first: 0, backward };
    }
    let tasks = order(schedule, 0, 1, m.min(FOLLOWED) as u32);
    let gathers: Vec<bool> = blocks.iter().map(|b| b.gather > 0).collect();
    let turns = turns(&tasks, &gathers, gathering).iter().map(|t| t.block as usize).collect();
    let mut streams = Streams { blocks, gathering, turns, ..Streams::default() };
    let mut found = Passes { forward: 0, first: 0, backward: vec![] };
    for task in tasks {
        let start = streams.computed;
        match task {
            Task::F(k) => {
                (0..blocks.len()).for_each(|b| streams.pass(b, None));
                found.forward = streams.computed - start;
                found.first = if k == 0 { found.forward } else { found.first };
            }
            Task::B(k) => {
                let timed = |b| {
                    let start = streams.computed;
                    streams.pass(b, Some(k));
                    streams.computed - start
                };
                found.backward = (0..blocks.len()).rev().map(timed).collect();
                found.backward.reverse();
            }
        }
    }
    found.first = found.first.saturating_sub(found.forward);
    found
}

/// Where the two streams of a stage stand.
#[derive(Default)]
struct Streams<'b> {
    blocks: &'b [Turning],
    gathering: Gathering,
    /// Blocks in the order of their turns.
    turns: Vec<usize>,
    /// When kernels and moves listed so far end.
    computed: u64,
    moved: u64,
    turn: Option<usize>,
    /// When the gather of each listed turn ends, and each turn that is over did.
    gathered: Vec<u64>,
    over: Vec<u64>,
    /// When the sum in each used gradient slot ends, and what adding it takes.
    sums: Vec<(u64, u64)>,
}

impl Streams<'_> {
    /// Lists a pass of a block: the forward, or the backward of a micro-batch.
    fn pass(&mut self, block: usize, backward: Option<u32>) {
        let times = self.blocks[block];
        if times.gather > 0 {
            self.take_turn(block);
        }
        let Some(k) = backward else {
            self.computed += times.forward;
            return;
        };
        if times.scatter > 0
            && let Some(slot) = self.sums.len().checked_sub(GRADIENT_SLOTS)
        {
            let (summed, add) = self.sums[slot];
            self.computed = self.computed.max(summed) + add;
        }
        self.computed += times.backward;
        if times.scatter > 0 {
            self.moved = self.moved.max(self.computed) + times.scatter;
            // The step's first goes straight to its piece.
            self.sums.push((self.moved, if k > 0 { times.add } else { 0 }));
        }
    }

    fn take_turn(&mut self, block: usize) {
        let ahead = usize::from(self.gathering.prefetch);
        let turn = match self.turn {
            Some(t) if self.turns[t] == block => t,
            Some(t) if self.gathering.reshard_after_forward => {
                self.over.push(self.computed);
                t + 1
            }
            _ => self.turns.iter().position(|b| *b == block).unwrap_or(0),
        };
        self.turn = Some(turn);
        while self.gathered.len() <= turn + ahead && self.gathered.len() < self.turns.len() {
            let next = self.gathered.len();
            // Its slot is that of the turn so many before.
            let slot = next.checked_sub(ahead + 1).filter(|_| self.gathering.reshard_after_forward);
            let free = slot.map_or(0, |t| self.over[t]);
            self.moved = self.moved.max(free) + self.blocks[self.turns[next]].gather;
            self.gathered.push(self.moved);
        }
        self.computed = self.computed.max(self.gathered[turn]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(gather: u64, scatter: u64, prefetch: u8, reshard_after_forward: bool) -> Passes {
        let blocks = [Turning { forward: 10, backward: 20, gather, scatter, add: 1 }; 4];
        let gathering = Gathering { reshard_after_forward, prefetch };
        passes(&blocks, Schedule::OneForwardOneBackward, 8, gathering)
    }

    #[test]
    fn moves_hide_behind_the_next_pass_as_far_as_they_fit() {
        // No moves: sums.
        assert_eq!(run(0, 0, 1, true), Passes { forward: 40, first: 0, backward: vec![20; 4] });
        // Gathers that fit behind a forward cost the first one alone.
        let fits = run(5, 0, 1, true);
        assert_eq!((fits.forward, fits.first, fits.backward.iter().sum::<u64>()), (40, 5, 80));
        // Without prefetch each but the turn that goes on is exposed.
        let exposed = run(5, 0, 0, true);
        assert_eq!((exposed.forward, exposed.backward.iter().sum::<u64>()), (40 + 3 * 5, 80 + 3 * 5));
        // Longer than a forward: the first block's went on from backward, which hid the second's; two are exposed.
        assert_eq!(run(15, 0, 1, true).forward, 10 + 2 * 15 + 10);
        // Gathered once: the rest of the step is free of it.
        assert_eq!(run(15, 0, 1, false).forward, 40);
        assert!(run(15, 0, 1, false).first > 15);
        // A backward hides a sum and a gather that fit behind it, and adds what the slot held.
        assert_eq!(run(5, 10, 1, true).backward, vec![21; 4]);
        // Where moves take longer than kernels, they are what a micro-batch takes (four sums, six gathers), and the last
        // block's two passes, which no move is left to accompany.
        let bound = run(5, 40, 1, true);
        assert_eq!(bound.forward + bound.backward.iter().sum::<u64>(), 4 * 40 + 6 * 5 + 10 + 20 + 1);
    }
}
