//! What a kernel does, counted: floating-point operations executed (causal attention counts the half it computes) and
//! bytes that must move through memory at least once. Cost models turn these into time.

use crate::per_token::dense_attention;
use crate::{Dim, Expr, Slot, signature};
use meshwright_ir::program::{Kernel, OpKernel, Pass};
use meshwright_ir::{AttentionCore, Bytes, DType, Flops, Model, Op, Optimizer, WorkClass};

/// Counted work of one kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Work {
    /// Which efficiency curve it follows.
    pub class: WorkClass,
    /// Operations executed by matrix units; 0 where memory decides.
    pub flops: Flops,
    /// Bytes read and written.
    pub bytes: Bytes,
    /// Type the operations run in.
    pub dtype: DType,
}

/// Work of any kernel.
pub fn kernel_work(kernel: &Kernel) -> Work {
    let memory = |class, bytes, dtype| Work { class, flops: Flops(0), bytes, dtype };
    match kernel {
        Kernel::Op(k) => op_work(k),
        Kernel::Add { elements, dtype } => memory(WorkClass::Memory, dtype.bytes(3 * elements), *dtype),
        Kernel::Slice { outer, piece, inner, axes: _, dtype } => {
            memory(WorkClass::Memory, dtype.bytes(2 * outer * piece * inner), *dtype)
        }
        Kernel::Pack { outer, parts, inner, dtype } | Kernel::Unpack { outer, parts, inner, dtype } => {
            memory(WorkClass::Memory, dtype.bytes(2 * outer * parts * inner), *dtype)
        }
        Kernel::Load { batch, sequence, .. } => {
            memory(WorkClass::Memory, DType::I32.bytes(batch * sequence), DType::I32)
        }
        Kernel::SumSquares { elements, .. } => {
            memory(WorkClass::Memory, DType::F32.bytes(*elements), DType::F32)
        }
        Kernel::Update { optimizer, elements, dtype, .. } => {
            // Gradient read; fp32 weight (or master) and moments read and written; a 16-bit copy written beside a master.
            let fp32 = match optimizer {
                Optimizer::Adamw => 1 + 2 + 4,
                Optimizer::Sgd => 1 + 2,
            };
            let copy = if *dtype == DType::F32 { 0 } else { dtype.width() };
            memory(WorkClass::Optimizer, Bytes(elements * (fp32 * 4 + copy)), DType::F32)
        }
    }
}

/// Elements of an operand from the local extents of the op's indices.
pub(crate) fn elements(dims: &[Dim], extents: &[u64]) -> u64 {
    dims.iter().map(|d| d.index.map_or(1, |k| extents[k as usize]) * d.unit).product()
}

fn op_work(k: &OpKernel) -> Work {
    let expr = Expr::of(&k.op);
    let x = &k.extents;
    let (batch, sequence) = (x[0], x[1]);
    let class = match (&k.op, k.pass) {
        (Op::Linear { .. } | Op::ExpertLinear { .. }, _) => WorkClass::Matmul,
        (Op::Attention { .. } | Op::LatentAttention { .. } | Op::Index { .. }, Pass::Forward) => {
            WorkClass::Attention
        }
        (Op::Attention { .. }, Pass::BackwardWeight) => WorkClass::Memory,
        (Op::Attention { .. } | Op::LatentAttention { .. } | Op::Index { .. }, _) => {
            WorkClass::AttentionBackward
        }
        (Op::Embedding { .. }, _) => WorkClass::Embedding,
        (Op::Norm { .. }, _) => WorkClass::Norm,
        (Op::Rope { .. }, _) => WorkClass::Rope,
        (Op::Activation { .. } | Op::Gate { .. }, _) => WorkClass::Activation,
        (
            Op::Bias { .. }
            | Op::Scale { .. }
            | Op::Spread { .. }
            | Op::Gain { .. }
            | Op::Route { .. }
            | Op::Dispatch { .. }
            | Op::ExpertBias { .. }
            | Op::Combine { .. }
            | Op::Conv { .. }
            | Op::Scan { .. }
            | Op::Input { .. }
            | Op::Dropout { .. }
            | Op::Add { .. },
            _,
        ) => WorkClass::Memory,
        (Op::CrossEntropy { .. }, _) => WorkClass::Loss,
    };
    let flops = match &k.op {
        Op::Linear { .. } => 2 * batch * sequence * x[2] * x[3],
        // A gradient of what attention learns is summed from scores made again.
        Op::Attention { .. } if k.pass == Pass::BackwardWeight => 0,
        Op::Attention { heads, kv_heads, head_dim, causal, window, core, .. } => {
            // Two products forward (scores, values); backward four gradients and, where they were not kept, the scores
            // again. Only a fused core leaves out the pairs that it masks.
            let (backward, pairs) = match core {
                AttentionCore::Fused => (5, attended_pairs(sequence, *causal, *window)),
                AttentionCore::Eager => (4, sequence * sequence),
            };
            let products = if k.pass == Pass::Forward { 2 } else { backward };
            2 * products * batch * (x[2] * heads / kv_heads) * head_dim * pairs
        }
        Op::LatentAttention { nope, rotary, value, top, .. } => {
            // Scores over keys, values over values: one of each forward; backward makes the scores again, and two gradients each.
            let (of_keys, of_values) = if k.pass == Pass::Forward { (1, 1) } else { (3, 2) };
            let pairs = attended_pairs(sequence, true, None).min(top.map_or(u64::MAX, |t| t * sequence));
            2 * batch * x[2] * pairs * (of_keys * (nope + rotary) + of_values * value)
        }
        Op::Index { head_dim, .. } => {
            let products = if k.pass == Pass::Forward { 1 } else { 2 };
            2 * products * batch * x[2] * head_dim * attended_pairs(sequence, true, None)
        }
        Op::ExpertLinear { experts, top_k, input, output } => {
            let copies = (batch * sequence * top_k * x[2]).div_ceil(*experts);
            2 * copies * input * output
        }
        Op::Embedding { .. }
        | Op::Bias { .. }
        | Op::Norm { .. }
        | Op::Rope { .. }
        | Op::Dropout { .. }
        | Op::Activation { .. }
        | Op::Gate { .. } => 0,
        // Recurrences and short convolutions run on vector units, whose time is that of the bytes.
        Op::Scale { .. }
        | Op::Spread { .. }
        | Op::Gain { .. }
        | Op::Route { .. }
        | Op::Dispatch { .. }
        | Op::ExpertBias { .. }
        | Op::Combine { .. }
        | Op::Conv { .. }
        | Op::Scan { .. }
        | Op::Input { .. } => 0,
        Op::Add { .. } | Op::CrossEntropy { .. } => 0,
    };
    let bytes = match (&k.op, k.pass) {
        // Rows touched, not the whole table: read and write of each row forward; backward reads a row, adds to one.
        (Op::Embedding { .. }, Pass::Forward) => k.dtype.bytes(2 * batch * sequence * x[3]),
        (Op::Embedding { .. }, _) => k.dtype.bytes(3 * batch * sequence * x[3]),
        // Between the separate kernels of an eager core, scores go through memory: scaled and masked before the softmax,
        // read again by dropout and by the product with the values; backward, the gradients of each.
        (Op::Attention { core: AttentionCore::Eager, .. }, _) => {
            let scores = k.dtype.bytes(elements(&expr.aux[0].dims, x));
            operands(k, &expr).into_iter().sum::<Bytes>() + scores * 4
        }
        _ => operands(k, &expr).into_iter().sum(),
    };
    Work { class, flops: Flops(flops), bytes, dtype: k.dtype }
}

/// Bytes of each operand of the pass.
fn operands(k: &OpKernel, expr: &Expr) -> Vec<Bytes> {
    let size = |slot: &Slot| match slot {
        Slot::Input(i) | Slot::InputGradient(i) => {
            k.dtype.bytes(elements(&expr.inputs[*i as usize], &k.extents))
        }
        Slot::Param(p) => k.dtype.bytes(elements(&expr.params[*p as usize], &k.extents)),
        Slot::ParamGradient(p) => DType::F32
            .bytes(elements(&expr.params[*p as usize], &k.extents) * if k.accumulate { 2 } else { 1 }),
        Slot::Output | Slot::OutputGradient => k.dtype.bytes(elements(&expr.output, &k.extents)),
        Slot::Aux(a) => {
            let aux = &expr.aux[*a as usize];
            aux.store.dtype(k.dtype).bytes(elements(&aux.dims, &k.extents))
        }
        Slot::Ids => DType::I32.bytes(k.extents[0] * k.extents[1]),
    };
    let signature = signature(&k.op, k.pass);
    signature.iter().flat_map(|s| s.reads.iter().chain(&s.writes)).map(size).collect()
}

/// (query, key) pairs that attention computes: a window reaches keys at a distance below it, on both sides unless causal.
pub(crate) fn attended_pairs(sequence: u64, causal: bool, window: Option<u64>) -> u64 {
    let reach = window.unwrap_or(sequence).min(sequence);
    match causal {
        // The first `reach` queries see 1, 2, …, reach keys; the rest see `reach`.
        true => reach * (reach + 1) / 2 + (sequence - reach) * reach,
        false => sequence * (2 * reach - 1) - reach * (reach - 1),
    }
}

/// Model FLOPs per token under the customary convention (PaLM appendix B): forward = 2 per matrix weight used, plus
/// attention counted as dense, 4·s·heads·head_dim per layer; training = 3 × forward. Lookups count nothing.
pub fn model_flops(model: &Model, sequence: u64) -> (Flops, Flops) {
    let node = |op: &Op| match op {
        Op::Linear { input, output, .. } => 2 * input * output,
        Op::Attention { .. } | Op::LatentAttention { .. } | Op::Index { .. } => dense_attention(op, sequence),
        Op::ExpertLinear { top_k, input, output, .. } => 2 * top_k * input * output,
        Op::Scale { .. }
        | Op::Spread { .. }
        | Op::Gain { .. }
        | Op::Route { .. }
        | Op::Dispatch { .. }
        | Op::ExpertBias { .. }
        | Op::Combine { .. }
        | Op::Conv { .. }
        | Op::Scan { .. }
        | Op::Input { .. } => 0,
        Op::Embedding { .. }
        | Op::Bias { .. }
        | Op::Norm { .. }
        | Op::Rope { .. }
        | Op::Dropout { .. }
        | Op::Activation { .. }
        | Op::Gate { .. } => 0,
        Op::Add { .. } | Op::CrossEntropy { .. } => 0,
    };
    let class = |c: u32| model.classes[c as usize].nodes.iter().map(|n| node(&n.op)).sum::<u64>();
    let forward: u64 = model.runs.iter().map(|r| u64::from(r.repeat) * class(r.class)).sum();
    (Flops(forward), Flops(3 * forward))
}
