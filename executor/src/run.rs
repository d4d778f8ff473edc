//! A training run: open every rank, give every parameter its start, walk the program once per step, and collect losses,
//! times, one traced step and a hash of the final weights. Every layout starts from the same values and sees the same
//! samples, so losses of two plans of one job can be compared. The first rank that fails ends the run with its own message.

use crate::backend::{Backend, Measured, Rank, RunError, Samples, StepSettings};
use crate::comm::threads::group;
use crate::comm::{CommError, Communicator, Poison, Reduce};
use crate::{init, wires};
use meshwright_ir::program::{Checked, Parameter};
use meshwright_ir::trace::{MemoryPoint, Span, Trace, TraceSource};
use meshwright_ir::{Axis, AxisSet, Bytes, DType, Init, Mesh, Time};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// What a run does beside its program.
#[derive(Debug, Clone, PartialEq)]
pub struct RunOptions {
    /// Steps to train.
    pub steps: u64,
    /// Seed of the parameters.
    pub seed: u64,
    /// Learning rate after warm-up.
    pub learning_rate: f64,
    /// Steps of linear warm-up.
    pub warmup: u64,
    /// Largest global gradient norm; 0 is off.
    pub clip: f64,
    /// Decoupled weight decay.
    pub weight_decay: f64,
    /// Which step is traced, if any.
    pub traced_step: Option<u64>,
}

/// What a run measured.
#[derive(Debug, Clone, PartialEq)]
pub struct RunOutcome {
    /// Mean nats per token over the global batch, before each update.
    pub losses: Vec<f64>,
    /// Global gradient norm of each step.
    pub gradient_norms: Vec<f64>,
    /// Wall time of each step, in seconds.
    pub step_times_s: Vec<f64>,
    /// Most bytes of each rank's arena that were live at once, over all steps.
    pub high_water: Vec<Bytes>,
    /// Instructions executed over all ranks and steps.
    pub executed: u64,
    /// The traced step.
    pub trace: Option<Trace>,
    /// FNV-1a of all parameters in order of name, assembled from their pieces.
    pub weights_hash: String,
}

/// What ranks leave for the run after each step.
#[derive(Default)]
struct Collected {
    losses: Vec<f64>,
    norms: Vec<f64>,
    times: Vec<f64>,
    spans: Vec<Span>,
    memory: Vec<MemoryPoint>,
    traced_time: Time,
    high_water: BTreeMap<u32, Bytes>,
    executed: u64,
    pieces: BTreeMap<String, Whole>,
    failures: Vec<(u32, RunError)>,
}

/// Trains. `progress` is called on rank 0's thread after each step with the step, its loss and its wall time in seconds.
pub fn train(
    program: &Checked,
    backend: &dyn Backend,
    samples: &Samples<'_>,
    options: &RunOptions,
    progress: &(dyn Fn(u64, f64, f64) + Sync),
) -> Result<RunOutcome, RunError> {
    if options.steps == 0 {
        return Err(RunError::Invalid("a run of 0 steps trains nothing: ask for at least 1".into()));
    }
    backend.check(program)?;
    let world = program.mesh.ranks();
    let poison = Poison::new();
    let wires = wires::in_process(program, &poison);
    let barrier = group(world as usize, &poison);
    let collected = Mutex::new(Collected::default());
    let epoch = Instant::now();
    std::thread::scope(|scope| {
        for ((rank, wires), barrier) in (0..world).zip(wires).zip(barrier) {
            let (collected, poison) = (&collected, &poison);
            scope.spawn(move || {
                let work = || {
                    let opened = backend.open(program, rank, wires)?;
                    RankRun {
                        program,
                        rank,
                        opened,
                        barrier: &barrier,
                        samples,
                        options,
                        epoch,
                        collected,
                        scaler: Scaler::of(program),
                        progress,
                    }
                    .run()
                };
                let outcome =
                    poison.guard(&format!("rank {rank}"), work).unwrap_or_else(|e| Err(RunError::Stopped(e)));
                if let Err(error) = outcome {
                    poison.tell(format!("rank {rank}: {error}"));
                    lock(collected).failures.push((rank, error));
                }
            });
        }
    });
    let collected = collected.into_inner().unwrap_or_else(PoisonError::into_inner);
    finish(program, collected, options, &poison)
}

fn finish(
    program: &Checked,
    mut c: Collected,
    options: &RunOptions,
    poison: &Poison,
) -> Result<RunOutcome, RunError> {
    if let Some(cause) = poison.cause() {
        // The rank that failed for its own reason, else whoever told the cause.
        let own =
            c.failures.iter().find(|(_, e)| !matches!(e, RunError::Stopped(CommError::Poisoned { .. })));
        let rank = own.or(c.failures.first()).map_or(0, |(rank, _)| *rank);
        return Err(RunError::Failed {
            rank,
            cause: own.map_or_else(|| cause.to_string(), |(_, e)| e.to_string()),
        });
    }
    c.spans.sort_unstable_by_key(|s| (s.rank, s.start, s.instruction));
    c.memory.sort_by_key(|p| (p.rank, p.time));
    let ranks: Vec<u32> = (0..program.mesh.ranks()).collect();
    let trace = options.traced_step.filter(|s| *s < options.steps).map(|_| Trace {
        version: 1,
        source: TraceSource::Measured,
        ranks,
        step_time: c.traced_time,
        spans: c.spans,
        memory: c.memory,
    });
    Ok(RunOutcome {
        losses: c.losses,
        gradient_norms: c.norms,
        step_times_s: c.times,
        high_water: c.high_water.into_values().collect(),
        executed: c.executed,
        trace,
        weights_hash: hash(&c.pieces),
    })
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

struct RankRun<'a, 'd> {
    program: &'a Checked,
    rank: u32,
    opened: Box<dyn Rank + 'a>,
    barrier: &'a dyn Communicator,
    samples: &'a Samples<'d>,
    options: &'a RunOptions,
    epoch: Instant,
    collected: &'a Mutex<Collected>,
    scaler: Scaler,
    progress: &'a (dyn Fn(u64, f64, f64) + Sync),
}

impl RankRun<'_, '_> {
    fn run(mut self) -> Result<(), RunError> {
        let code = self.program.code_of(self.rank);
        for p in &code.parameters {
            let start = initial(p, &self.program.mesh, self.rank, self.options.seed);
            let held = |over| &start[piece(&self.program.mesh, self.rank, over, start.len())];
            self.opened.write(p.weight, held(p.storage.of_weight()));
            if let Some(master) = p.master {
                self.opened.write(master, held(p.storage.over));
            }
        }
        for step in 0..self.options.steps {
            self.step(step)?;
        }
        self.weights();
        Ok(())
    }

    fn step(&mut self, step: u64) -> Result<(), RunError> {
        let traced = self.options.traced_step == Some(step);
        let warm = if self.options.warmup == 0 {
            1.0
        } else {
            ((step + 1) as f64 / self.options.warmup as f64).min(1.0)
        };
        let settings = StepSettings {
            seed: self.options.seed,
            step,
            updates: self.scaler.updates,
            loss_scale: self.scaler.scale,
            rate: self.options.learning_rate * warm,
            clip: self.options.clip,
            weight_decay: self.options.weight_decay,
            samples: self.samples,
            epoch: self.epoch,
            traced,
        };
        self.meet(0.0)?;
        let began = self.epoch.elapsed();
        let measured = self.opened.step(&settings)?;
        // Every rank of the last stage holds the loss of the whole batch; the first of them tells it.
        let code = self.program.code_of(self.rank);
        let tells = self.rank.is_multiple_of(self.program.mesh.stride(Axis::Pp));
        let share = code.loss.filter(|_| tells).map_or(0.0, |b| f64::from(self.opened.read(b)[0]));
        let loss = f64::from(self.meet(share as f32)?) / self.program.tokens as f64;
        let norm = self.norm();
        self.scaler.after(norm);
        let took = (self.epoch.elapsed() - began).as_secs_f64();
        self.collect(step, loss, norm / settings.loss_scale, took, began, measured, traced);
        if self.rank == 0 {
            (self.progress)(step, loss, took);
        }
        Ok(())
    }

    /// The global gradient norm, as scaled in backward.
    fn norm(&self) -> f64 {
        let buffer = self.program.code_of(self.rank).norm;
        buffer.map_or(0.0, |b| f64::from(self.opened.read(b)[0]).sqrt())
    }

    /// Waits for every rank and returns the sum of what they bring.
    fn meet(&self, share: f32) -> Result<f32, RunError> {
        let mut sum = [share];
        self.barrier.all_reduce(&mut sum, Reduce::Sum).map_err(RunError::Stopped)?;
        Ok(sum[0])
    }

    #[allow(clippy::too_many_arguments)]
    fn collect(
        &self,
        step: u64,
        loss: f64,
        norm: f64,
        took: f64,
        began: std::time::Duration,
        measured: Measured,
        traced: bool,
    ) {
        let mut c = lock(self.collected);
        c.executed += measured.executed;
        let high = c.high_water.entry(self.rank).or_default();
        *high = (*high).max(measured.high_water);
        if self.rank == 0 {
            c.losses.push(loss);
            c.norms.push(norm);
            c.times.push(took);
        }
        if traced {
            let began = Time(began.as_nanos() as u64 * 1000);
            let shift = |t: Time| t.saturating_sub(began);
            c.spans.extend(measured.spans.iter().map(|s| Span {
                start: shift(s.start),
                end: shift(s.end),
                ..*s
            }));
            c.memory.extend(measured.memory.iter().map(|p| MemoryPoint { time: shift(p.time), ..*p }));
            let last = measured.spans.iter().map(|s| shift(s.end)).max().unwrap_or_default();
            c.traced_time = c.traced_time.max(last);
        }
        debug_assert!(step < self.options.steps);
    }

    /// Hands in this rank's pieces of the parameters, replicas aside.
    fn weights(&self) {
        let mesh = &self.program.mesh;
        for p in &self.program.code_of(self.rank).parameters {
            let split = p.storage.of_weight();
            if mesh.index_in(self.rank, AxisSet::DATA.minus(split)) != 0 {
                continue;
            }
            let values = self.opened.read(p.weight);
            let local = values.len() * mesh.size(split) as usize;
            let mine = piece(mesh, self.rank, split, local);
            let indices = global_indices(p, mesh, self.rank).skip(mine.start);
            let mut c = lock(self.collected);
            let whole = c
                .pieces
                .entry(p.name.clone())
                .or_insert_with(|| vec![0.0; p.shape.iter().product::<u64>() as usize]);
            indices.zip(values).for_each(|(at, x)| whole[at as usize] = x);
        }
    }
}

/// Dynamic loss scaling (Micikevicius et al. 2018): fp16 gradients are kept in range by scaling the loss; a step whose
/// norm overflows is not applied and halves the scale, two thousand good ones double it (the defaults of PyTorch's
/// `GradScaler`). Every rank sees one norm, so every rank decides alike.
#[derive(Debug, Clone, Copy)]
struct Scaler {
    scale: f64,
    /// Good steps since the scale last moved; `None` where the scale is fixed at 1.
    good: Option<u32>,
    updates: u64,
}

impl Scaler {
    const GROWTH_INTERVAL: u32 = 2000;

    fn of(program: &Checked) -> Self {
        let fp16 = program.roles.iter().any(|r| r.buffers.iter().any(|b| b.dtype == DType::F16));
        Self { scale: if fp16 { 65536.0 } else { 1.0 }, good: fp16.then_some(0), updates: 0 }
    }

    fn after(&mut self, norm: f64) {
        self.updates += u64::from(norm.is_finite());
        let Some(good) = &mut self.good else { return };
        if !norm.is_finite() {
            (self.scale, *good) = ((self.scale / 2.0).max(1.0), 0);
        } else if *good + 1 == Self::GROWTH_INTERVAL {
            (self.scale, *good) = (self.scale * 2.0, 0);
        } else {
            *good += 1;
        }
    }
}

/// All elements of one parameter.
type Whole = Vec<f32>;

/// The elements that a rank holds of something of `len` elements that is split among these axes.
fn piece(mesh: &Mesh, rank: u32, over: AxisSet, len: usize) -> std::ops::Range<usize> {
    let (at, size) = (mesh.index_in(rank, over) as usize, len / mesh.size(over) as usize);
    at * size..(at + 1) * size
}

/// The start of this rank's shard, whole among replicas.
fn initial(p: &Parameter, mesh: &Mesh, rank: u32, seed: u64) -> Vec<f32> {
    let indices: Vec<u64> = global_indices(p, mesh, rank).collect();
    let mut start = vec![0.0; indices.len()];
    match p.init {
        Init::Normal { std } => init::fill_normal(&mut start, seed, &p.name, std.0 as f32, |k| indices[k]),
        Init::Ones => start.fill(1.0),
        Init::Zeros => {}
    }
    start
}

/// Position in the whole parameter of each element of this rank's piece.
fn global_indices<'p>(p: &'p Parameter, mesh: &Mesh, rank: u32) -> impl Iterator<Item = u64> + 'p {
    let local = p.layout.local(&p.shape, mesh).expect("a checked plan cuts evenly");
    let first: Vec<u64> = (0..p.shape.len())
        .map(|d| u64::from(mesh.index_in(rank, p.layout.axes(d).iter().copied().collect())) * local[d])
        .collect();
    (0..local.iter().product()).map(move |k: u64| {
        let (mut rest, mut at, mut stride) = (k, 0, 1);
        for d in (0..local.len()).rev() {
            at += (first[d] + rest % local[d]) * stride;
            rest /= local[d];
            stride *= p.shape[d];
        }
        at
    })
}

fn hash(pieces: &BTreeMap<String, Whole>) -> String {
    let mut h = 0xcbf2_9ce4_8422_2325u64;
    let mut eat = |byte: u8| h = (h ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    for (name, values) in pieces {
        name.bytes().for_each(&mut eat);
        values.iter().flat_map(|x| x.to_bits().to_le_bytes()).for_each(&mut eat);
    }
    format!("{h:016x}")
}

#[cfg(test)]
mod tests {
    use super::Scaler;

    #[test]
    fn the_scale_halves_on_overflow_and_doubles_after_many_good_steps() {
        let mut scaler = Scaler { scale: 65536.0, good: Some(0), updates: 0 };
        scaler.after(f64::INFINITY);
        scaler.after(f64::NAN);
        assert_eq!((scaler.scale, scaler.updates), (16384.0, 0));
        (0..Scaler::GROWTH_INTERVAL).for_each(|_| scaler.after(1.0));
        assert_eq!((scaler.scale, scaler.updates), (32768.0, u64::from(Scaler::GROWTH_INTERVAL)));
    }
}
