//! Upper bounds, in floats, of what a model's step can count, whatever its layout: so that a job too large for 64-bit
//! counts is refused before anything is counted. The invariant: no kernel or tensor of any plan exceeds them, because a
//! shard is never larger than the whole.

use crate::{Expr, Extent};
use meshwright_ir::{Invalid, Model, Op};

/// FLOPs and bytes of one kernel, and bytes of a step, stay below this: 2^62.
const MOST: f64 = (1u64 << 62) as f64;
/// Bytes of an element in all: values and gradients, read and written by a few passes, each in a few layouts.
const BYTES: f64 = 128.0;

/// What the nodes of one block class count at most, for one micro-batch on a rank that holds everything.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Ceiling {
    /// Nodes.
    pub nodes: f64,
    /// Elements of all activations, inputs and outputs of each node.
    pub activations: f64,
    /// Elements of all parameters.
    pub params: f64,
    /// The largest count of a kernel.
    largest: f64,
}

/// The ceiling of every class of a model, at `batch` samples of `sequence` tokens.
pub fn ceilings(model: &Model, batch: u64, sequence: u64) -> Vec<Ceiling> {
    let class = |class: &meshwright_ir::BlockClass| {
        class.nodes.iter().map(|n| of_op(&n.op, batch, sequence)).fold(Ceiling::default(), |a, b| Ceiling {
            nodes: a.nodes + 1.0,
            activations: a.activations + b.activations,
            params: a.params + b.params,
            largest: a.largest.max(b.largest),
        })
    };
    model.classes.iter().map(class).collect()
}

/// Refuses micro-batches of `batch` samples of `sequence` tokens, `micro_batches` of them, of which something could not
/// be counted in 64 bits.
pub fn countable(model: &Model, batch: u64, sequence: u64, micro_batches: u64) -> Result<(), Invalid> {
    let ceilings = ceilings(model, batch, sequence);
    let repeats = || model.runs.iter().map(|r| (f64::from(r.repeat), &ceilings[r.class as usize]));
    let bytes: f64 =
        repeats().map(|(n, c)| n * BYTES * (c.activations * micro_batches as f64 + c.params)).sum();
    let largest = ceilings.iter().map(|c| c.largest).fold(0.0, f64::max);
    if bytes.max(largest) <= MOST {
        return Ok(());
    }
    let found = format!("{micro_batches} micro-batches of {batch} x {sequence} tokens");
    Err(Invalid::new(
        "training",
        found,
        "use a smaller batch or shorter sequences: no step that large is counted",
    ))
}

fn of_op(op: &Op, batch: u64, sequence: u64) -> Ceiling {
    let expr = Expr::of(op);
    let extent = |e: Extent| match e {
        Extent::Batch => batch as f64,
        Extent::Sequence => sequence as f64,
        Extent::Fixed(n) => n as f64,
    };
    let elements = |dims: &Vec<crate::Dim>| -> f64 {
        dims.iter()
            .map(|d| d.index.map_or(1.0, |k| extent(expr.indices[k as usize].extent)) * d.unit as f64)
            .product()
    };
    let sum = |operands: &[Vec<crate::Dim>]| operands.iter().map(elements).sum::<f64>();
    let tokens = batch as f64 * sequence as f64;
    let flops = match op {
        Op::Linear { input, output, .. } => 6.0 * tokens * *input as f64 * *output as f64,
        // Two products forward, five backward.
        Op::Attention { heads, head_dim, .. } => {
            14.0 * tokens * sequence as f64 * *heads as f64 * *head_dim as f64
        }
        Op::LatentAttention { heads, nope, rotary, value, .. } => {
            14.0 * tokens * sequence as f64 * *heads as f64 * (nope + rotary + value) as f64
        }
        Op::Index { heads, head_dim, .. } => {
            6.0 * tokens * sequence as f64 * *heads as f64 * *head_dim as f64
        }
        Op::ExpertLinear { top_k, input, output, .. } => {
            6.0 * tokens * *top_k as f64 * *input as f64 * *output as f64
        }
        Op::Embedding { .. }
        | Op::Bias { .. }
        | Op::Norm { .. }
        | Op::Rope { .. }
        | Op::Activation { .. }
        | Op::Gate { .. }
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
        | Op::Add { .. }
        | Op::CrossEntropy { .. } => 0.0,
    };
    let aux: f64 = expr.aux.iter().map(|a| elements(&a.dims)).sum();
    let activations = sum(&expr.inputs) + elements(&expr.output) + aux + tokens;
    let params = sum(&expr.params);
    Ceiling { nodes: 1.0, activations, params, largest: flops.max(BYTES * (activations + params)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel_work;
    use meshwright_ir::program::{Kernel, OpKernel, Pass};
    use meshwright_ir::{AxisSet, DType, ScanKind};

    #[test]
    fn no_kernel_counts_more() {
        let ops = [
            Op::Linear { input: 96, output: 64, input_grain: 1, output_grain: 1 },
            Op::attention(8, 2, 16, false, None),
            "attention[heads=8 kv_heads=2 head_dim=16 causal=true window=0 core=eager rate=0.1 site=0]"
                .parse()
                .unwrap(),
            "dropout[width=96 rate=0.1 site=0]".parse().unwrap(),
            Op::CrossEntropy { vocab: 300 },
            Op::Add { width: 96 },
            Op::LatentAttention { heads: 4, nope: 16, rotary: 8, value: 12, top: None },
            Op::Dispatch { width: 96, experts: 5, top_k: 2 },
            Op::ExpertLinear { experts: 5, top_k: 2, input: 96, output: 64 },
            Op::Combine { width: 96, experts: 5, top_k: 2 },
            Op::Scan { kind: ScanKind::Ssd, heads: 4, head_dim: 8, state: 16, groups: 2 },
        ];
        for op in ops {
            let expr = Expr::of(&op);
            let extents: Vec<u64> = expr
                .indices
                .iter()
                .map(|i| match i.extent {
                    Extent::Batch => 3,
                    Extent::Sequence => 40,
                    Extent::Fixed(n) => n,
                })
                .collect();
            let ceiling = of_op(&op, 3, 40);
            let passes = [Pass::Max, Pass::Sum, Pass::Forward, Pass::BackwardInput, Pass::BackwardWeight];
            let passes = passes.into_iter().filter(|p| crate::signature(&op, *p).is_some());
            let (mut flops, mut bytes) = (0, 0);
            for pass in passes {
                let axes = vec![AxisSet::EMPTY; extents.len()];
                let kernel = OpKernel {
                    op: op.clone(),
                    pass,
                    extents: extents.clone(),
                    axes,
                    accumulate: true,
                    dtype: DType::F32,
                };
                let work = kernel_work(&Kernel::Op(kernel));
                flops += work.flops.get();
                bytes += work.bytes.get();
            }
            assert!(flops.max(bytes) as f64 <= ceiling.largest, "{op:?}");
        }
    }
}
