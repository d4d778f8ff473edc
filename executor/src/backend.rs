//! The seam between a run and a device. A [`Backend`] opens one [`Rank`] per rank; a rank holds an arena and walks its
//! code once per step. The run above it knows data, losses and traces, never streams; the backend below knows streams,
//! never what is trained. Invariant: a backend refuses what it cannot run before step 0, by name.
//!
//! How others implement it. CUDA: `open` allocates the arena on the rank's device, maps each [`Stream`] to a CUDA stream
//! and each instruction that another stream waits for to an event; `step` enqueues the listing from one thread
//! (`cuStreamWaitEvent` for `after`, a kernel, cuBLAS or NCCL call for the action) and synchronises once at the end,
//! spans coming from timed events. MPI: the CPU backend as it is, in one process per rank, with communicators over
//! `MPI_Comm` in [`Wires`].
//!
//! [`Stream`]: meshwright_ir::program::Stream

use crate::comm::{CommError, Communicator, Link, Poison};
use meshwright_ir::program::{Checked, IdKind};
use meshwright_ir::trace::{MemoryPoint, Span};
use meshwright_ir::{AxisSet, Bytes};
use std::collections::BTreeMap;
use thiserror::Error;

/// Why a run ends early.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RunError {
    /// The backend lacks something the program needs.
    #[error("the {backend} backend cannot run {what}: {fix}")]
    Unsupported {
        /// Name of the backend.
        backend: &'static str,
        /// Kernel, collective or element type.
        what: String,
        /// What to do instead.
        fix: String,
    },
    /// A rank failed; the others were stopped.
    #[error("rank {rank} failed: {cause}")]
    Failed {
        /// The rank that failed first.
        rank: u32,
        /// Its own error.
        cause: String,
    },
    /// Stopped because another rank failed.
    #[error("{0}")]
    Stopped(CommError),
    /// The run was asked to do what makes no sense.
    #[error("{0}")]
    Invalid(String),
}

/// How collectives name a group: its axes, and its stages where it spans some of them.
pub type Group = (AxisSet, Option<Vec<u32>>);

/// What ranks talk through: one communicator per group of axes and stages, one link per neighbouring stage.
pub struct Wires {
    /// Communicators by `(axes, stages)`, as collectives name them.
    pub groups: BTreeMap<Group, Box<dyn Communicator>>,
    /// Links by offset in stages.
    pub links: BTreeMap<i32, Box<dyn Link>>,
    /// The run's one failure.
    pub poison: Poison,
}

/// Where ids come from: `(what, step, global sample, first token, ids to fill)`.
pub type Samples<'d> = dyn Fn(IdKind, u64, u64, u64, &mut [u32]) + Sync + 'd;

/// What one step needs beside the program.
pub struct StepSettings<'d> {
    /// Seed of the run, which dropout follows.
    pub seed: u64,
    /// Step, from 0.
    pub step: u64,
    /// Updates made before this step; fewer than steps where fp16 skipped some.
    pub updates: u64,
    /// What the loss is multiplied by in backward, and gradients divided by in the update: dynamic in fp16, else 1.
    pub loss_scale: f64,
    /// Learning rate of this step.
    pub rate: f64,
    /// Largest global gradient norm; 0 is off.
    pub clip: f64,
    /// Decoupled weight decay of parameters that decay.
    pub weight_decay: f64,
    /// Source of ids.
    pub samples: &'d Samples<'d>,
    /// Instant from which spans are counted.
    pub epoch: std::time::Instant,
    /// Whether spans and memory are recorded.
    pub traced: bool,
}

/// What one rank measured in one step.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Measured {
    /// Spans in no particular order; empty unless traced.
    pub spans: Vec<Span>,
    /// Memory points in order of time; empty unless traced.
    pub memory: Vec<MemoryPoint>,
    /// Most bytes of the arena that were live at once.
    pub high_water: Bytes,
    /// Instructions executed.
    pub executed: u64,
}

/// A device family.
pub trait Backend: Sync {
    /// What a person calls it.
    fn name(&self) -> &'static str;
    /// Refuses a program it cannot run, naming the first thing it lacks.
    fn check(&self, program: &Checked) -> Result<(), RunError>;
    /// Opens one rank.
    fn open<'p>(
        &'p self,
        program: &'p Checked,
        rank: u32,
        wires: Wires,
    ) -> Result<Box<dyn Rank + 'p>, RunError>;
}

/// One rank on its device.
pub trait Rank: Send {
    /// Overwrites a buffer.
    fn write(&mut self, buffer: u32, values: &[f32]);
    /// Reads a buffer.
    fn read(&self, buffer: u32) -> Vec<f32>;
    /// Walks the code once.
    fn step(&mut self, settings: &StepSettings<'_>) -> Result<Measured, RunError>;
}
