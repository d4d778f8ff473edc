//! Kernels: local work of one rank, with every size it needs and nothing about time. An op's kernel keeps the whole op,
//! the local extent of each of its indices, and the axes that cut them, from which an interpreter derives its shard.

use crate::{AxisSet, DType, Op, Optimizer, room};
use std::fmt;

/// Which part of an op.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Pass {
    /// Row maximum of the logits (cross-entropy only).
    Max,
    /// Row sum of exponentials and the target's logit (cross-entropy only).
    Sum,
    /// Output from inputs.
    Forward,
    /// Gradient of the inputs.
    BackwardInput,
    /// Gradient of the parameters.
    BackwardWeight,
}

/// A pass of an op on one rank's piece.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpKernel {
    /// The whole op.
    pub op: Op,
    /// Which part.
    pub pass: Pass,
    /// Local extent of each index of the op.
    pub extents: Vec<u64>,
    /// Axes that cut each index.
    pub axes: Vec<AxisSet>,
    /// Add to what the outputs hold instead of overwriting.
    pub accumulate: bool,
    /// Element type of the tensors.
    pub dtype: DType,
}

/// What a batch is loaded for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IdKind {
    /// Input tokens.
    Tokens,
    /// The tokens that follow them.
    Targets,
}

/// Local work.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kernel {
    /// A pass of an op.
    Op(OpKernel),
    /// z = x + y, for each of several: reads all x, then all y, each of which may be its z.
    Add {
        /// Elements of all sums together.
        elements: u64,
        /// Element type.
        dtype: DType,
    },
    /// Keep this rank's piece of a dim: `[outer, pieces, piece, inner]` → `[outer, piece, inner]`.
    Slice {
        /// Whose coordinate chooses the piece.
        axes: AxisSet,
        /// Elements before the dim.
        outer: u64,
        /// The dim after cutting.
        piece: u64,
        /// Elements after the dim.
        inner: u64,
        /// Element type.
        dtype: DType,
    },
    /// `[outer, parts, inner]` → `[parts, outer, inner]`: makes pieces contiguous before a collective.
    Pack {
        /// Elements before the dim.
        outer: u64,
        /// Pieces.
        parts: u64,
        /// Elements of a piece of one row.
        inner: u64,
        /// Element type.
        dtype: DType,
    },
    /// `[parts, outer, inner]` → `[outer, parts, inner]`: puts pieces in place after a collective.
    Unpack {
        /// Elements before the dim.
        outer: u64,
        /// Pieces.
        parts: u64,
        /// Elements of a piece of one row.
        inner: u64,
        /// Element type.
        dtype: DType,
    },
    /// Read this rank's ids of the micro-batch.
    Load {
        /// Which ids.
        what: IdKind,
        /// Local samples.
        batch: u64,
        /// Local tokens of a sample.
        sequence: u64,
        /// Axes that cut the batch.
        batch_axes: AxisSet,
        /// Axes that cut the sequence.
        sequence_axes: AxisSet,
    },
    /// scalar = (0 or itself) + Σx²/replicas over all buffers read.
    SumSquares {
        /// Elements of all buffers together.
        elements: u64,
        /// Ranks of the group that hold the same values.
        replicas: u64,
        /// Whether the scalar keeps its value.
        accumulate: bool,
        /// Axes whose coordinate chooses the piece of each buffer that counts; none for the whole.
        piece: AxisSet,
    },
    /// One parameter's step: reads gradient and norm, updates weight, master and moments. With a piece, only that piece
    /// of a whole gradient or weight is touched; what has as many elements as are updated is that piece.
    Update {
        /// The rule.
        optimizer: Optimizer,
        /// Elements updated.
        elements: u64,
        /// Axes whose coordinate chooses the piece; none for the whole.
        piece: AxisSet,
        /// Element type of the compute copy.
        dtype: DType,
        /// Whether weight decay applies.
        decays: bool,
    },
}

/// The largest count that a kernel may amount to, in FLOPs or bytes.
const MOST: f64 = (1u64 << 61) as f64;

impl Kernel {
    /// Refuses sizes of which no sum or product could be counted in 64 bits. Planner and lowering never make such kernels.
    pub(crate) fn check(&self) -> Result<(), String> {
        let product = |sizes: &[u64]| sizes.iter().map(|n| *n as f64).product::<f64>();
        let most = match self {
            Kernel::Op(k) => {
                let names = k.op.indices().len();
                if k.extents.len() != names || k.axes.len() != names {
                    return Err(format!("kernel `{self}` does not give the extent of each index"));
                }
                k.op.check_sizes().map_err(|e| format!("kernel `{self}`: {e}"))?;
                // Elements behind one step of the indices, and for attention what each query meets.
                let behind = match k.op {
                    Op::Attention { heads, kv_heads, head_dim, .. } => {
                        product(&[heads / kv_heads, head_dim, k.extents[1]])
                    }
                    Op::LatentAttention { nope, rotary, value, .. } => {
                        product(&[2 * nope + rotary + value, k.extents[1]])
                    }
                    Op::Index { head_dim, top, .. } => product(&[head_dim + 1, k.extents[1]]) + top as f64,
                    Op::ExpertLinear { experts, top_k, input, output } => {
                        product(&[top_k, input, output]) / experts as f64 + product(&[input, output])
                    }
                    Op::Dispatch { experts, top_k, width }
                    | Op::Combine { experts, top_k, width }
                    | Op::ExpertBias { experts, top_k, width } => {
                        room(experts, top_k, width) as f64 + (width + experts) as f64
                    }
                    Op::Conv { kernel, .. } => kernel as f64,
                    Op::Scan { heads, head_dim, state, groups, .. } => {
                        product(&[heads / groups + 2, head_dim + 2, state])
                    }
                    Op::Norm { width, .. } => width as f64 / k.extents[2].max(1) as f64 + 1.0,
                    Op::Embedding { .. }
                    | Op::Linear { .. }
                    | Op::Bias { .. }
                    | Op::Rope { .. }
                    | Op::Activation { .. }
                    | Op::Gate { .. }
                    | Op::Scale { .. }
                    | Op::Spread { .. }
                    | Op::Gain { .. }
                    | Op::Route { .. }
                    | Op::Input { .. }
                    | Op::Dropout { .. }
                    | Op::Add { .. }
                    | Op::CrossEntropy { .. } => 1.0,
                };
                // An empty index leaves the others' operands.
                product(&k.extents.iter().map(|n| (*n).max(1)).collect::<Vec<_>>()) * behind
            }
            Kernel::Add { elements, .. }
            | Kernel::SumSquares { elements, .. }
            | Kernel::Update { elements, .. } => *elements as f64,
            Kernel::Slice { outer, piece, inner, .. } => product(&[*outer, *piece, *inner]),
            Kernel::Pack { outer, parts, inner, .. } | Kernel::Unpack { outer, parts, inner, .. } => {
                product(&[*outer, *parts, *inner])
            }
            Kernel::Load { batch, sequence, .. } => product(&[*batch, *sequence]),
        };
        // At most 64 operations or bytes for each.
        if 64.0 * most <= MOST {
            Ok(())
        } else {
            Err(format!("kernel `{self}` is larger than anything that runs"))
        }
    }

    /// What a person calls it: `linear forward`.
    pub fn kind_name(&self) -> String {
        match self {
            Kernel::Op(k) => format!("{} {}", k.op.name(), k.pass),
            Kernel::Add { .. } => "add gradients".into(),
            Kernel::Slice { .. } => "slice".into(),
            Kernel::Pack { .. } => "pack".into(),
            Kernel::Unpack { .. } => "unpack".into(),
            Kernel::Load { .. } => "load".into(),
            Kernel::SumSquares { .. } => "gradient norm".into(),
            Kernel::Update { optimizer, .. } => optimizer.to_string(),
        }
    }
}

impl fmt::Display for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Pass::Max => "max",
            Pass::Sum => "sum",
            Pass::Forward => "forward",
            Pass::BackwardInput => "backward-input",
            Pass::BackwardWeight => "backward-weight",
        })
    }
}

impl fmt::Display for IdKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            IdKind::Tokens => "tokens",
            IdKind::Targets => "targets",
        })
    }
}

impl fmt::Display for Kernel {
    /// The words after `kernel N` in a program's text, which its reader reads back.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kernel::Op(k) => {
                let mark = if k.accumulate { "+" } else { "" };
                write!(f, "op {}{mark} {} {}", k.pass, k.dtype, k.op)?;
                for ((name, extent), axes) in k.op.indices().iter().zip(&k.extents).zip(&k.axes) {
                    write!(f, " {name}={extent}/{axes}")?;
                }
                Ok(())
            }
            Kernel::Add { elements, dtype } => write!(f, "add {dtype} n={elements}"),
            Kernel::Slice { axes, outer, piece, inner, dtype } => {
                write!(f, "slice {dtype} axes={axes} outer={outer} piece={piece} inner={inner}")
            }
            Kernel::Pack { outer, parts, inner, dtype } => {
                write!(f, "pack {dtype} outer={outer} parts={parts} inner={inner}")
            }
            Kernel::Unpack { outer, parts, inner, dtype } => {
                write!(f, "unpack {dtype} outer={outer} parts={parts} inner={inner}")
            }
            Kernel::Load { what, batch, sequence, batch_axes, sequence_axes } => {
                write!(f, "load {what} batch={batch}/{batch_axes} sequence={sequence}/{sequence_axes}")
            }
            Kernel::SumSquares { elements, replicas, accumulate, piece } => {
                write!(
                    f,
                    "sum-squares n={elements} replicas={replicas} accumulate={accumulate} piece={piece}"
                )
            }
            Kernel::Update { optimizer, elements, dtype, decays, piece } => {
                write!(f, "update {optimizer} {dtype} n={elements} decays={decays} piece={piece}")
            }
        }
    }
}
