//! Communicators between threads of one process. Every rank posts a pointer to its buffer and waits until all
//! have (enter); then each does its share of the work straight on the peers' buffers and waits until all are
//! done (leave). Invariant: between enter and leave every posted buffer stays borrowed by its owner, who is
//! inside the call, so peers may use it; leave therefore waits even when the run is poisoned, and the work
//! between never blocks. A short all_reduce is done whole by the last rank to enter, which saves the others a
//! second sleep. Elements are reduced in rank order, so sums are the same bits on every rank and in every
//! run.

use std::ops::Range;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, Weak};

use super::poison::{Sleeper, locked, wait};
use super::{CommError, Communicator, Poison, Reduce};
use crate::kernels::elementwise;

pub use super::link::{End, link};

/// The communicators of a new group of `size` threads, in rank order.
pub fn group(size: usize, poison: &Poison) -> Vec<Member> {
    let state = State { calls: vec![None; size].into(), arrived: 0, done: 0, begun: 0, ended: 0 };
    let posted = (0..size).map(|_| AtomicPtr::new(std::ptr::null_mut())).collect();
    let shared =
        Arc::new(Group { poison: poison.clone(), state: Mutex::new(state), moved: Condvar::new(), posted });
    let sleeper: Weak<Group> = Arc::downgrade(&shared);
    poison.register(sleeper);
    (0..size).map(|rank| Member { rank, group: shared.clone() }).collect()
}

/// One rank of a group of threads.
pub struct Member {
    rank: usize,
    group: Arc<Group>,
}

/// What the ranks of a group share.
struct Group {
    poison: Poison,
    state: Mutex<State>,
    /// Told whenever a round begins or ends.
    moved: Condvar,
    /// Each rank's buffer of the current round; written while entering, read between enter and leave.
    posted: Box<[AtomicPtr<f32>]>,
}

struct State {
    /// The call each rank has entered and not left.
    calls: Box<[Option<Call>]>,
    /// How many those are.
    arrived: usize,
    /// Ranks that have finished their share of the current round.
    done: usize,
    /// Rounds begun and ended since the start.
    begun: u64,
    ended: u64,
}

/// A call as all ranks must make it, with its length in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    AllReduce(Reduce, usize),
    AllGather(usize),
    ReduceScatter(usize),
    AllToAll(usize),
    Broadcast { root: usize, len: usize },
}

impl Communicator for Member {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.group.posted.len()
    }

    fn all_reduce(&self, buffer: &mut [f32], op: Reduce) -> Result<(), CommError> {
        let len = buffer.len();
        let round = self.enter(Call::AllReduce(op, len), buffer.as_mut_ptr())?;
        if !round.over {
            round.reduce(self.share(len), op, Target::Everyone);
        }
        Ok(())
    }

    fn all_gather(&self, part: &[f32], whole: &mut [f32]) -> Result<(), CommError> {
        self.fits("all_gather", part.len() * self.size(), whole.len())?;
        let round = self.enter(Call::AllGather(part.len()), part.as_ptr().cast_mut())?;
        for (peer, piece) in pieces(whole, self.size()).enumerate() {
            round.copy(peer, 0, piece);
        }
        Ok(())
    }

    fn reduce_scatter(&self, whole: &[f32], part: &mut [f32]) -> Result<(), CommError> {
        self.fits("reduce_scatter", part.len() * self.size(), whole.len())?;
        let start = self.rank * part.len();
        let round = self.enter(Call::ReduceScatter(part.len()), whole.as_ptr().cast_mut())?;
        round.reduce(start..start + part.len(), Reduce::Sum, Target::Own(part));
        Ok(())
    }

    fn all_to_all(&self, send: &[f32], receive: &mut [f32]) -> Result<(), CommError> {
        self.fits("all_to_all", send.len(), receive.len())?;
        let share = send.len() / self.size();
        self.fits("all_to_all", share * self.size(), send.len())?;
        let round = self.enter(Call::AllToAll(send.len()), send.as_ptr().cast_mut())?;
        for (peer, piece) in pieces(receive, self.size()).enumerate() {
            round.copy(peer, self.rank * share, piece);
        }
        Ok(())
    }

    fn broadcast(&self, buffer: &mut [f32], root: usize) -> Result<(), CommError> {
        assert!(root < self.size(), "root {root} of {} ranks", self.size());
        let round = self.enter(Call::Broadcast { root, len: buffer.len() }, buffer.as_mut_ptr())?;
        if self.rank != root {
            round.copy(root, 0, buffer);
        }
        Ok(())
    }
}

impl Member {
    /// Posts a buffer and waits until all ranks have entered the same call. On an error no peer will use the
    /// buffer.
    fn enter(&self, call: Call, buffer: *mut f32) -> Result<Round<'_>, CommError> {
        let group = &*self.group;
        let mut state = locked(&group.state);
        group.poison.check()?;
        if state.calls[self.rank].is_some() {
            drop(state);
            return Err(group.poison.raise(CommError::Busy { call: call.name(), rank: self.rank }));
        }
        group.posted[self.rank].store(buffer, Relaxed);
        state.calls[self.rank] = Some(call);
        state.arrived += 1;
        if state.arrived == self.size() {
            if let Some(error) = self.disagreement(&state.calls, call) {
                state.withdraw(self.rank);
                drop(state);
                return Err(group.poison.raise(error));
            }
            state.begun += 1;
            let round = Round { group, over: call.is_short() };
            if let (true, Call::AllReduce(op, len)) = (round.over, call) {
                round.reduce(0..len, op, Target::Everyone);
                state.end();
            }
            group.moved.notify_all();
            return Ok(round);
        }
        let round = state.begun;
        while state.begun == round {
            if let Err(error) = group.poison.check() {
                state.withdraw(self.rank);
                return Err(error);
            }
            state = wait(&group.moved, state);
        }
        Ok(Round { group, over: call.is_short() })
    }

    /// How the calls of a group differ from this rank's, if they do.
    fn disagreement(&self, calls: &[Option<Call>], call: Call) -> Option<CommError> {
        let (peer, other) = calls
            .iter()
            .enumerate()
            .find_map(|(peer, other)| other.filter(|other| *other != call).map(|other| (peer, other)))?;
        Some(if call.resized(other.len()) == other {
            let (expected, actual) = (other.len(), call.len());
            CommError::SizeMismatch { call: call.name(), rank: self.rank, expected, actual }
        } else {
            let (call, peer_call) = (format!("{call:?}"), format!("{other:?}"));
            CommError::CallMismatch { rank: self.rank, call, peer, peer_call }
        })
    }

    /// Checks a buffer of this rank; a mismatch stops the peers too, who would wait for this rank in vain.
    fn fits(&self, call: &'static str, expected: usize, actual: usize) -> Result<(), CommError> {
        let error = CommError::SizeMismatch { call, rank: self.rank, expected, actual };
        if expected == actual { Ok(()) } else { Err(self.group.poison.raise(error)) }
    }

    /// The elements that this rank reduces for all: the shares tile 0..len and differ by at most one element.
    fn share(&self, len: usize) -> Range<usize> {
        let at = |rank: usize| len / self.size() * rank + (len % self.size()).min(rank);
        at(self.rank)..at(self.rank + 1)
    }
}

/// Where a reduced share goes.
enum Target<'a> {
    /// Into every rank's posted buffer, at the place it came from.
    Everyone,
    /// Into a buffer of this rank.
    Own(&'a mut [f32]),
}

/// Proof that all ranks are between enter and leave; dropping it leaves.
struct Round<'a> {
    group: &'a Group,
    /// The last rank to enter has done everything already: nothing is left to do, nobody to wait for.
    over: bool,
}

impl Round<'_> {
    /// Reduces elements `range` of all posted buffers in rank order.
    #[allow(unsafe_code)]
    fn reduce(&self, range: Range<usize>, op: Reduce, mut into: Target) {
        const TILE: usize = 2048;
        let mut tile = [0.0f32; TILE];
        for start in range.clone().step_by(TILE) {
            let tile = &mut tile[..TILE.min(range.end - start)];
            for (peer, buffer) in self.group.posted.iter().enumerate() {
                // SAFETY: all ranks have entered with buffers of one length that covers `range`
                // (`disagreement`, `fits`) and stay inside their calls, holding the borrow the pointer came
                // from: until this round is dropped, or, in a short call, until the lock is released that the
                // last rank holds here. Nobody else writes these elements: posted buffers are only written by
                // `Target::Everyone`, where the ranks' ranges are disjoint, and owners touch their own buffer
                // only through the pointer.
                let addend =
                    unsafe { std::slice::from_raw_parts(buffer.load(Relaxed).add(start), tile.len()) };
                match op {
                    _ if peer == 0 => tile.copy_from_slice(addend),
                    Reduce::Sum => elementwise::accumulate(addend, tile),
                    Reduce::Max => elementwise::maximum(addend, tile),
                }
            }
            match &mut into {
                Target::Own(part) => part[start - range.start..][..tile.len()].copy_from_slice(tile),
                Target::Everyone => self.group.posted.iter().for_each(|buffer| {
                    // SAFETY: as above; these pointers came from `&mut` borrows (`all_reduce`), and the
                    // elements are this rank's alone to reduce.
                    unsafe {
                        let target = buffer.load(Relaxed).add(start);
                        std::ptr::copy_nonoverlapping(tile.as_ptr(), target, tile.len());
                    }
                }),
            }
        }
    }

    /// Copies `into.len()` elements from `start` on of a peer's posted buffer.
    #[allow(unsafe_code)]
    fn copy(&self, peer: usize, start: usize, into: &mut [f32]) {
        // SAFETY: the peer's buffer covers the elements (one call, one length on all ranks; `fits`), stays
        // borrowed by its owner until this round is dropped, and nobody writes it in the calls that copy.
        // `into` is borrowed mutably, so it does not overlap what any rank posted.
        unsafe {
            let source = self.group.posted[peer].load(Relaxed).add(start);
            std::ptr::copy_nonoverlapping(source, into.as_mut_ptr(), into.len());
        }
    }
}

impl Drop for Round<'_> {
    /// Waits until all ranks have done their share, poisoned or not: peers may still be using this rank's
    /// buffer.
    fn drop(&mut self) {
        if self.over {
            return;
        }
        let mut state = locked(&self.group.state);
        state.done += 1;
        if state.done == self.group.posted.len() {
            state.end();
            self.group.moved.notify_all();
            return;
        }
        let round = state.ended;
        while state.ended == round {
            state = wait(&self.group.moved, state);
        }
    }
}

impl State {
    /// Closes a round: the ranks may enter the next.
    fn end(&mut self) {
        self.calls.fill(None);
        (self.arrived, self.done) = (0, 0);
        self.ended += 1;
    }

    fn withdraw(&mut self, rank: usize) {
        self.calls[rank] = None;
        self.arrived -= 1;
    }
}

impl Call {
    fn name(self) -> &'static str {
        match self {
            Call::AllReduce(..) => "all_reduce",
            Call::AllGather(..) => "all_gather",
            Call::ReduceScatter(..) => "reduce_scatter",
            Call::AllToAll(..) => "all_to_all",
            Call::Broadcast { .. } => "broadcast",
        }
    }

    /// Whether the last rank to enter does it for all: faster than waking them first up to about 16 KiB.
    fn is_short(self) -> bool {
        matches!(self, Call::AllReduce(_, len) if len <= 4096)
    }

    fn len(self) -> usize {
        match self {
            Call::AllReduce(_, len)
            | Call::AllGather(len)
            | Call::ReduceScatter(len)
            | Call::AllToAll(len)
            | Call::Broadcast { len, .. } => len,
        }
    }

    /// The same call with another length.
    fn resized(self, len: usize) -> Self {
        match self {
            Call::AllReduce(op, _) => Call::AllReduce(op, len),
            Call::AllGather(_) => Call::AllGather(len),
            Call::ReduceScatter(_) => Call::ReduceScatter(len),
            Call::AllToAll(_) => Call::AllToAll(len),
            Call::Broadcast { root, .. } => Call::Broadcast { root, len },
        }
    }
}

impl Sleeper for Group {
    fn wake(&self) {
        let _held = locked(&self.state);
        self.moved.notify_all();
    }
}

/// `n` equal pieces, also of an empty slice.
fn pieces(whole: &mut [f32], n: usize) -> impl Iterator<Item = &mut [f32]> {
    let len = (whole.len() / n).max(1);
    whole.chunks_exact_mut(len)
}
