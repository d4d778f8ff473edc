//! A program: what each rank does in one training step, in which order, never how long it takes. Ranks of one pipeline
//! stage share a role; groups and peers are mesh expressions, so a program's size does not depend on the world size.
//! Simulator and executor interpret this same object, and only after [`Program::check`].
//!
//! Within a role, instructions lie on a few fixed-order streams; `after` names earlier instructions of the same role.
//! A buffer is a range of the rank's arena; kernels, collectives and exchanges are interned.

mod build;
mod check;
mod kernel;
mod memory;
mod parse;
mod progress;
mod text;

pub use build::{CodeBuilder, Parts};
pub use check::{Checked, Fault, Rule};
pub use kernel::{IdKind, Kernel, OpKernel, Pass};
pub use memory::Clocks;
pub use parse::ParseError;

use crate::{Algorithm, Axis, AxisSet, Bytes, DType, Init, Layout, Mesh, Storage};
use std::fmt;

/// What an instruction does: a position in the program's table of that kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// Run a kernel.
    Compute(u32),
    /// Take part in a collective.
    Collective(u32),
    /// Exchange messages with the same-placed rank of another stage.
    Exchange(u32),
}

/// One instruction: 28 bytes. Operands and dependencies are ranges of the role's tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instruction {
    /// What it does.
    pub action: Action,
    args: u32,
    reads: u16,
    writes: u16,
    deps: u32,
    after: u16,
    /// Stream it lies on.
    pub stream: u8,
    /// Micro-batch it belongs to.
    pub micro_batch: u16,
    /// Block of the model it belongs to.
    pub block: u16,
}

/// A fixed-order queue of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stream {
    /// Kernels.
    Compute,
    /// Collectives over these axes.
    Collective(AxisSet),
    /// Messages to and from the stage this far away.
    Link(i32),
}

/// Kind of collective.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CollectiveKind {
    /// Every rank ends with the sum.
    AllReduceSum,
    /// Every rank ends with the maximum.
    AllReduceMax,
    /// Every rank ends with all pieces, by position in the group.
    AllGather,
    /// Every rank ends with its piece of the sum.
    ReduceScatter,
    /// Every rank ends with its piece of every rank's tensor.
    AllToAll,
}

/// A collective over the group of ranks that differ in `axes`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Collective {
    /// Which one.
    pub kind: CollectiveKind,
    /// Axes of the group.
    pub axes: AxisSet,
    /// Stages that take part, where the group spans stages but not all of them.
    pub stages: Option<Vec<u32>>,
    /// Elements of the whole tensor on one rank (gathered, or before scattering), all coalesced buffers together.
    pub elements: u64,
    /// Element type.
    pub dtype: DType,
    /// How chunks move. In-process communicators execute `direct`; others model a library's choice.
    pub algorithm: Algorithm,
}

/// Messages with the rank that lies `peer` stages further on and is otherwise placed alike.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Exchange {
    /// Offset in stages.
    pub peer: i32,
    /// Elements sent, if any.
    pub send: Option<u64>,
    /// Elements received, if any.
    pub receive: Option<u64>,
    /// Element type.
    pub dtype: DType,
}

/// What a buffer is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BufferClass {
    /// Parameters in the compute type.
    Weight,
    /// fp32 copy of the parameters.
    Master,
    /// Gradients of parameters.
    Gradient,
    /// Whole weights and whole gradients of split parameters, in transit.
    Gathered,
    /// Optimizer moments.
    Optimizer,
    /// Activations kept for backward.
    Activation,
    /// Everything shorter-lived.
    Workspace,
    /// Scalars: loss, gradient norm.
    Scalar,
}

impl BufferClass {
    /// Every class, in declaration order.
    pub const ALL: [BufferClass; 8] = [
        BufferClass::Weight,
        BufferClass::Master,
        BufferClass::Gradient,
        BufferClass::Gathered,
        BufferClass::Optimizer,
        BufferClass::Activation,
        BufferClass::Workspace,
        BufferClass::Scalar,
    ];
    /// Whether the buffer holds a value before the step begins.
    pub fn is_state(self) -> bool {
        matches!(self, BufferClass::Weight | BufferClass::Master | BufferClass::Optimizer)
    }
    /// Whether the buffer keeps its memory for the whole step.
    pub fn is_static(self) -> bool {
        self.is_state() || matches!(self, BufferClass::Gradient | BufferClass::Scalar)
    }
}

/// A range of the arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Buffer {
    /// Position in [`Program::names`].
    pub name: u32,
    /// Element type.
    pub dtype: DType,
    /// Elements.
    pub elements: u64,
    /// Where it starts in the arena; 256-byte aligned unless it continues a contiguous run of gradients.
    pub offset: Bytes,
    /// What it is for.
    pub class: BufferClass,
}

impl Buffer {
    /// Size.
    pub fn bytes(&self) -> Bytes {
        self.dtype.bytes(self.elements)
    }
    /// First byte after it.
    pub fn end(&self) -> Bytes {
        self.offset + self.bytes()
    }
}

/// A parameter as one role stores it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameter {
    /// Global name: `layer.3.attn.q.weight`.
    pub name: String,
    /// Whole shape.
    pub shape: Vec<u64>,
    /// How it is cut.
    pub layout: Layout,
    /// How it starts.
    pub init: Init,
    /// Whether weight decay applies.
    pub decays: bool,
    /// Which of the buffers below hold a piece only, and among which axes it is cut.
    pub storage: Storage,
    /// Compute copy.
    pub weight: u32,
    /// fp32 copy, in mixed precision.
    pub master: Option<u32>,
    /// Gradient.
    pub gradient: u32,
    /// Optimizer moments.
    pub moments: Vec<u32>,
}

/// What the ranks of one stage do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Code {
    /// Instructions in listing order.
    pub instructions: Vec<Instruction>,
    args: Vec<u32>,
    deps: Vec<u32>,
    /// Buffers.
    pub buffers: Vec<Buffer>,
    /// Parameters.
    pub parameters: Vec<Parameter>,
    /// Size of the arena: the planned peak.
    pub arena: Bytes,
    /// Where the step leaves the loss of the global batch, as a sum over tokens.
    pub loss: Option<u32>,
    /// Where the step leaves the squared global gradient norm.
    pub norm: Option<u32>,
}

impl Code {
    /// Buffers instruction `k` reads.
    pub fn reads(&self, k: usize) -> &[u32] {
        let i = &self.instructions[k];
        &self.args[i.args as usize..][..i.reads as usize]
    }
    /// Buffers instruction `k` writes; one that it also reads stands in both lists.
    pub fn writes(&self, k: usize) -> &[u32] {
        let i = &self.instructions[k];
        &self.args[i.args as usize + i.reads as usize..][..i.writes as usize]
    }
    /// Instructions that must be complete before instruction `k` starts, beside its stream's earlier ones.
    pub fn after(&self, k: usize) -> &[u32] {
        let i = &self.instructions[k];
        &self.deps[i.deps as usize..][..i.after as usize]
    }
    /// First and last instruction that touch each buffer; `None` for one never touched.
    pub fn lifetimes(&self) -> Vec<Option<(u32, u32)>> {
        let mut lives = vec![None; self.buffers.len()];
        for k in 0..self.instructions.len() {
            for b in self.reads(k).iter().chain(self.writes(k)) {
                let life = &mut lives[*b as usize];
                *life = Some((life.map_or(k as u32, |(first, _)| first), k as u32));
            }
        }
        lives
    }
    /// Bytes of each class at the peak if every buffer lived for ever; states and gradients do.
    pub fn static_bytes(&self) -> Bytes {
        self.buffers.iter().filter(|b| b.class.is_static()).map(Buffer::bytes).sum()
    }
}

/// One training step for every rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// The world.
    pub mesh: Mesh,
    /// Tokens in the global batch: the loss is a sum divided by this.
    pub tokens: u64,
    /// Micro-batches of the step.
    pub micro_batches: u32,
    /// Streams every rank has.
    pub streams: Vec<Stream>,
    /// Interned kernels.
    pub kernels: Vec<Kernel>,
    /// Interned collectives.
    pub collectives: Vec<Collective>,
    /// Interned exchanges.
    pub exchanges: Vec<Exchange>,
    /// Interned buffer names.
    pub names: Vec<String>,
    /// One code per pipeline stage.
    pub roles: Vec<Code>,
}

impl Program {
    /// The role of a rank: its stage.
    pub fn role_of(&self, rank: u32) -> usize {
        self.mesh.coord(rank, Axis::Pp) as usize
    }
    /// The code of a rank.
    pub fn code_of(&self, rank: u32) -> &Code {
        &self.roles[self.role_of(rank)]
    }
    /// Instructions of all roles together.
    pub fn instructions(&self) -> u64 {
        self.roles.iter().map(|r| r.instructions.len() as u64).sum()
    }
    /// Planned peak of each stage.
    pub fn planned_peaks(&self) -> Vec<Bytes> {
        self.roles.iter().map(|r| r.arena).collect()
    }
    /// Members of the group of `rank` in a collective, in rank order.
    pub fn members(&self, rank: u32, collective: &Collective) -> Vec<u32> {
        let in_stages =
            |r: &u32| collective.stages.as_ref().is_none_or(|s| s.contains(&self.mesh.coord(*r, Axis::Pp)));
        self.mesh.group(rank, collective.axes).into_iter().filter(in_stages).collect()
    }
    /// The rank at the other end of an exchange.
    pub fn peer(&self, rank: u32, exchange: &Exchange) -> u32 {
        rank.wrapping_add_signed(exchange.peer * self.mesh.stride(Axis::Pp) as i32)
    }
    /// A short name for what an action does: `linear forward`, `all-reduce tp`, `exchange`.
    pub fn kind_name(&self, action: Action) -> String {
        match action {
            Action::Compute(k) => self.kernels[k as usize].kind_name(),
            Action::Collective(c) => {
                let c = &self.collectives[c as usize];
                format!("{} {}", c.kind, c.axes)
            }
            Action::Exchange(_) => "exchange pp".into(),
        }
    }
}

impl fmt::Display for CollectiveKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            CollectiveKind::AllReduceSum => "all-reduce",
            CollectiveKind::AllReduceMax => "all-reduce-max",
            CollectiveKind::AllGather => "all-gather",
            CollectiveKind::ReduceScatter => "reduce-scatter",
            CollectiveKind::AllToAll => "all-to-all",
        })
    }
}

impl fmt::Display for BufferClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            BufferClass::Weight => "weight",
            BufferClass::Master => "master",
            BufferClass::Gradient => "gradient",
            BufferClass::Gathered => "gathered",
            BufferClass::Optimizer => "optimizer",
            BufferClass::Activation => "activation",
            BufferClass::Workspace => "workspace",
            BufferClass::Scalar => "scalar",
        })
    }
}

impl fmt::Display for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stream::Compute => f.pad("compute"),
            Stream::Collective(axes) => f.pad(&format!("collective {axes}")),
            Stream::Link(offset) => f.pad(&format!("link {offset:+}")),
        }
    }
}
