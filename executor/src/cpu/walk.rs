//! Walking a rank's code once: a thread per stream that has instructions, the compute stream on the caller's thread. An
//! instruction starts when its stream's earlier ones and those in its `after` are complete; waits park. Memory is counted
//! as it is used: a buffer is live from its first write to the end of its last use.
#![allow(unsafe_code)]

use super::arena::Arena;
use super::dispatch::{Site, run};
use super::operands::{Output, input};
use crate::backend::{Measured, RunError, StepSettings, Wires};
use crate::comm::{CommError, Communicator, Reduce};
use meshwright_ir::program::{Action, BufferClass, Checked, Code, Collective, CollectiveKind};
use meshwright_ir::trace::{MemoryPoint, Span};
use meshwright_ir::{Bytes, DType, Time};
use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

/// Who is complete, which buffers are live.
pub(super) struct Live {
    done: Vec<AtomicBool>,
    /// Accesses left before a buffer dies; states never do.
    left: Vec<AtomicU32>,
    uses: Vec<u32>,
    born: Vec<AtomicBool>,
    bytes: AtomicU64,
    peak: AtomicU64,
    always: u64,
    waiting: AtomicUsize,
    lock: Mutex<()>,
    moved: Condvar,
    stopped: AtomicBool,
}

impl Live {
    pub(super) fn new(code: &Code) -> Self {
        let mut uses = vec![0u32; code.buffers.len()];
        for k in 0..code.instructions.len() {
            code.reads(k).iter().chain(code.writes(k)).for_each(|b| uses[*b as usize] += 1);
        }
        let stays = |c: BufferClass| c.is_state() || matches!(c, BufferClass::Gradient | BufferClass::Scalar);
        for (b, buffer) in code.buffers.iter().enumerate().filter(|(_, b)| stays(b.class)) {
            let _ = buffer;
            uses[b] = 0;
        }
        Self {
            done: code.instructions.iter().map(|_| AtomicBool::new(false)).collect(),
            left: uses.iter().map(|_| AtomicU32::new(0)).collect(),
            born: uses.iter().map(|_| AtomicBool::new(false)).collect(),
            uses,
            bytes: AtomicU64::new(0),
            peak: AtomicU64::new(0),
            always: code.static_bytes().0,
            waiting: AtomicUsize::new(0),
            lock: Mutex::new(()),
            moved: Condvar::new(),
            stopped: AtomicBool::new(false),
        }
    }

    fn reset(&mut self) {
        self.done.iter_mut().for_each(|d| *d.get_mut() = false);
        self.born.iter_mut().for_each(|b| *b.get_mut() = false);
        for (left, uses) in self.left.iter_mut().zip(&self.uses) {
            *left.get_mut() = *uses;
        }
        *self.bytes.get_mut() = self.always;
        *self.peak.get_mut() = self.always;
        *self.stopped.get_mut() = false;
    }

    /// Parks until instruction `k` is complete; false when the rank is stopping.
    fn wait(&self, k: u32) -> bool {
        let done = || self.done[k as usize].load(Ordering::Acquire);
        if done() {
            return true;
        }
        let mut guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.waiting.fetch_add(1, Ordering::SeqCst);
        while !done() && !self.stopped.load(Ordering::SeqCst) {
            guard = self.moved.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        done()
    }

    fn complete(&self, k: usize) {
        self.done[k].store(true, Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.wake();
        }
    }

    fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        self.wake();
    }

    fn wake(&self) {
        drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
        self.moved.notify_all();
    }

    /// Counts the buffers that instruction `k` brings to life.
    fn enter(&self, code: &Code, k: usize) {
        for b in code.writes(k).iter().map(|b| *b as usize).filter(|b| self.uses[*b] > 0) {
            if !self.born[b].swap(true, Ordering::Relaxed) {
                let now = self.bytes.fetch_add(code.buffers[b].bytes().0, Ordering::Relaxed)
                    + code.buffers[b].bytes().0;
                self.peak.fetch_max(now, Ordering::Relaxed);
            }
        }
    }

    /// Counts out the buffers that instruction `k` was the last to use.
    fn leave(&self, code: &Code, k: usize) {
        for b in code.reads(k).iter().chain(code.writes(k)).map(|b| *b as usize).filter(|b| self.uses[*b] > 0)
        {
            if self.left[b].fetch_sub(1, Ordering::Relaxed) == 1 {
                self.bytes.fetch_sub(code.buffers[b].bytes().0, Ordering::Relaxed);
            }
        }
    }
}

/// One rank's step.
pub(super) fn step(
    program: &Checked,
    rank: u32,
    wires: &Wires,
    arena: &Arena,
    live: &mut Live,
    settings: &StepSettings<'_>,
) -> Result<Measured, RunError> {
    live.reset();
    let live = &*live;
    let code = program.code_of(rank);
    let mut streams: Vec<Vec<u32>> = vec![Vec::new(); program.streams.len()];
    for (k, i) in code.instructions.iter().enumerate() {
        streams[i.stream as usize].push(k as u32);
    }
    let walker = Walker { program, rank, code, wires, arena, live, settings };
    let (compute, others) = streams.split_first().expect("a checked program has streams");
    let outcomes: Vec<Result<Measured, CommError>> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            others.iter().filter(|s| !s.is_empty()).map(|s| scope.spawn(|| walker.guarded(s))).collect();
        let mine = walker.guarded(compute);
        let theirs =
            threads.into_iter().map(|t| t.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        std::iter::once(mine).chain(theirs).collect()
    });
    let mut total = Measured::default();
    // The stream that failed for its own reason comes before those that were stopped by it.
    let failure = outcomes
        .iter()
        .filter_map(|o| o.as_ref().err())
        .min_by_key(|e| matches!(e, CommError::Poisoned { .. }));
    if let Some(error) = failure {
        return Err(RunError::Stopped(error.clone()));
    }
    for part in outcomes.into_iter().flatten() {
        total.spans.extend(part.spans);
        total.memory.extend(part.memory);
        total.executed += part.executed;
    }
    total.memory.sort_by_key(|p| p.time);
    total.high_water = Bytes(live.peak.load(Ordering::Relaxed));
    Ok(total)
}

struct Walker<'a, 'd> {
    program: &'a Checked,
    rank: u32,
    code: &'a Code,
    wires: &'a Wires,
    arena: &'a Arena,
    live: &'a Live,
    settings: &'a StepSettings<'d>,
}

impl Walker<'_, '_> {
    /// Walks a stream; a panic in it becomes the run's failure, so that no other rank waits for ever.
    fn guarded(&self, stream: &[u32]) -> Result<Measured, CommError> {
        self.wires
            .poison
            .guard(&format!("rank {}", self.rank), || self.walk(stream))
            .and_then(|outcome| outcome)
    }

    fn walk(&self, stream: &[u32]) -> Result<Measured, CommError> {
        let mut measured = Measured::default();
        let mut scratch = Vec::new();
        // A panic in a kernel must wake this rank's other streams too; the guard does so unless it is defused.
        let guard = StopOnDrop(self.live);
        for k in stream.iter().map(|k| *k as usize) {
            if !self.code.after(k).iter().all(|a| self.live.wait(*a)) {
                return Ok(measured);
            }
            let start = self.settings.epoch.elapsed();
            self.live.enter(self.code, k);
            self.execute(k, &mut scratch)?;
            self.live.leave(self.code, k);
            let end = self.settings.epoch.elapsed();
            self.live.complete(k);
            measured.executed += 1;
            if self.settings.traced {
                let at = |d: std::time::Duration| Time(d.as_nanos() as u64 * 1000);
                measured.spans.push(Span {
                    rank: self.rank,
                    instruction: k as u32,
                    start: at(start),
                    end: at(end),
                });
                let bytes = Bytes(self.live.bytes.load(Ordering::Relaxed));
                measured.memory.push(MemoryPoint { rank: self.rank, time: at(end), bytes });
            }
        }
        std::mem::forget(guard);
        Ok(measured)
    }

    fn execute(&self, k: usize, scratch: &mut Vec<f32>) -> Result<(), CommError> {
        let buffer = |b: &u32| &self.code.buffers[*b as usize];
        let (reads, writes) = (self.code.reads(k), self.code.writes(k));
        match self.code.instructions[k].action {
            Action::Compute(n) => {
                let site = Site {
                    mesh: &self.program.mesh,
                    rank: self.rank,
                    micro_batch: u64::from(self.code.instructions[k].micro_batch),
                    block: u64::from(self.code.instructions[k].block),
                    tokens: self.program.tokens,
                    settings: self.settings,
                };
                // SAFETY: the program is checked: nobody else touches what this instruction writes, or writes what it
                // reads, until it is complete. A buffer that it both reads and writes is read through the written slice
                // only, so its place among the reads is left empty.
                let inputs: Vec<Cow<'_, [f32]>> = reads
                    .iter()
                    .map(|b| match writes.contains(b) {
                        true => Cow::Borrowed(&[][..]),
                        false => unsafe { input(self.arena, buffer(b)) },
                    })
                    .collect();
                let open = |b: &u32| unsafe { Output::open(self.arena, buffer(b), reads.contains(b)) };
                let mut outputs: Vec<Output<'_>> = writes.iter().map(open).collect();
                let inputs: Vec<&[f32]> = inputs.iter().map(|i| &**i).collect();
                let mut values: Vec<&mut [f32]> = outputs.iter_mut().map(Output::values).collect();
                run(&self.program.kernels[n as usize], &site, &inputs, &mut values, scratch);
                outputs.into_iter().for_each(Output::close);
                Ok(())
            }
            Action::Collective(n) => self.collective(&self.program.collectives[n as usize], reads, writes),
            Action::Exchange(n) => {
                let link = &self.wires.links[&self.program.exchanges[n as usize].peer];
                // SAFETY: as above; what is sent and what is received are different buffers.
                let send = reads.first().map(|b| unsafe { input(self.arena, buffer(b)) });
                let mut receive =
                    writes.first().map(|b| unsafe { Output::open(self.arena, buffer(b), false) });
                link.exchange(send.as_deref(), receive.as_mut().map(Output::values))?;
                receive.into_iter().for_each(Output::close);
                Ok(())
            }
        }
    }

    fn collective(&self, c: &Collective, reads: &[u32], writes: &[u32]) -> Result<(), CommError> {
        let buffer = |b: u32| &self.code.buffers[b as usize];
        let group = &self.wires.groups[&(c.axes, c.stages.clone())];
        match c.kind {
            CollectiveKind::AllReduceSum | CollectiveKind::AllReduceMax => {
                let op = if c.kind == CollectiveKind::AllReduceMax { Reduce::Max } else { Reduce::Sum };
                if c.dtype == DType::F32 && reads == writes {
                    for run in contiguous(self.code, writes) {
                        let words = run.iter().map(|b| buffer(*b).elements as usize).sum();
                        // SAFETY: as in `execute`; the run covers exactly the written buffers.
                        group.all_reduce(unsafe { self.arena.run_mut(buffer(run[0]), words) }, op)?;
                    }
                    return Ok(());
                }
                for (from, into) in reads.iter().zip(writes) {
                    // SAFETY: as in `execute`; one buffer, or two different ones.
                    let mut output = unsafe { Output::open(self.arena, buffer(*into), from == into) };
                    if from != into {
                        output.values().copy_from_slice(&unsafe { input(self.arena, buffer(*from)) });
                    }
                    group.all_reduce(output.values(), op)?;
                    output.close();
                }
                Ok(())
            }
            CollectiveKind::AllGather => self.gather(&**group, reads, writes),
            CollectiveKind::ReduceScatter => self.scatter(&**group, reads, writes),
            CollectiveKind::AllToAll => {
                // SAFETY: as in `execute`; two different buffers.
                let (from, mut output) = unsafe {
                    (input(self.arena, buffer(reads[0])), Output::open(self.arena, buffer(writes[0]), false))
                };
                group.all_to_all(&from, output.values())?;
                output.close();
                Ok(())
            }
        }
    }

    /// Gathers every rank's pieces of several buffers in one call; in place, each buffer holds this rank's piece at its
    /// own place. A single buffer out of place is gathered where it lies, several by way of a copy.
    fn gather(&self, group: &dyn Communicator, reads: &[u32], writes: &[u32]) -> Result<(), CommError> {
        let buffer = |b: &u32| &self.code.buffers[*b as usize];
        let in_place = reads == writes;
        // SAFETY: as in `execute`; each buffer is borrowed once, in place through its output only.
        let mut outputs: Vec<Output<'_>> =
            writes.iter().map(|b| unsafe { Output::open(self.arena, buffer(b), in_place) }).collect();
        if let ([read], [output], false) = (reads, &mut outputs[..], in_place) {
            // SAFETY: as above; two different buffers.
            group.all_gather(&unsafe { input(self.arena, buffer(read)) }, output.values())?;
        } else {
            let mut mine = Vec::new();
            for (output, read) in outputs.iter_mut().zip(reads) {
                match in_place {
                    true => {
                        mine.extend_from_slice(&output.values()[own(group, buffer(read).elements as usize)])
                    }
                    // SAFETY: as above; what is read is not written.
                    false => mine.extend_from_slice(&unsafe { input(self.arena, buffer(read)) }),
                }
            }
            let mut all = vec![0.0; mine.len() * group.size()];
            group.all_gather(&mine, &mut all)?;
            for (rank, pieces) in all.chunks_exact(mine.len().max(1)).enumerate() {
                let mut at = 0;
                for output in &mut outputs {
                    let whole = output.values();
                    let size = whole.len() / group.size();
                    whole[rank * size..][..size].copy_from_slice(&pieces[at..][..size]);
                    at += size;
                }
            }
        }
        outputs.into_iter().for_each(Output::close);
        Ok(())
    }

    /// Sums several buffers over the ranks, of which each gets its piece of every buffer; as for gathers.
    fn scatter(&self, group: &dyn Communicator, reads: &[u32], writes: &[u32]) -> Result<(), CommError> {
        let buffer = |b: &u32| &self.code.buffers[*b as usize];
        let in_place = reads == writes;
        // SAFETY: as in `gather`.
        let mut outputs: Vec<Output<'_>> =
            writes.iter().map(|b| unsafe { Output::open(self.arena, buffer(b), in_place) }).collect();
        let inputs: Vec<Cow<'_, [f32]>> = match in_place {
            true => outputs.iter_mut().map(|o| Cow::Owned(o.values().to_vec())).collect(),
            // SAFETY: as above; what is read is not written.
            false => reads.iter().map(|b| unsafe { input(self.arena, buffer(b)) }).collect(),
        };
        if let ([whole], [output], false) = (&inputs[..], &mut outputs[..], in_place) {
            group.reduce_scatter(whole, output.values())?;
        } else {
            let total: usize = inputs.iter().map(|i| i.len()).sum();
            let mut all = Vec::with_capacity(total);
            for rank in 0..group.size() {
                for whole in &inputs {
                    let size = whole.len() / group.size();
                    all.extend_from_slice(&whole[rank * size..][..size]);
                }
            }
            let mut mine = vec![0.0; total / group.size()];
            group.reduce_scatter(&all, &mut mine)?;
            let mut at = 0;
            for (output, whole) in outputs.iter_mut().zip(&inputs) {
                let size = whole.len() / group.size();
                let place = if in_place { own(group, whole.len()) } else { 0..size };
                output.values()[place].copy_from_slice(&mine[at..][..size]);
                at += size;
            }
        }
        outputs.into_iter().for_each(Output::close);
        Ok(())
    }
}

/// This rank's piece of a whole buffer.
fn own(group: &dyn Communicator, whole: usize) -> std::ops::Range<usize> {
    let size = whole / group.size();
    size * group.rank()..size * (group.rank() + 1)
}

/// Splits a list of buffers into runs that follow each other in the arena without a gap.
fn contiguous<'b>(code: &Code, buffers: &'b [u32]) -> Vec<&'b [u32]> {
    buffers.chunk_by(|a, b| code.buffers[*a as usize].end() == code.buffers[*b as usize].offset).collect()
}

/// Stops the rank's other streams when a walk ends early.
struct StopOnDrop<'a>(&'a Live);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}
