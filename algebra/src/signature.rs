//! Which tensors each pass of an op reads and writes, in the order in which kernels take their operands. What backward
//! reads of forward's tensors is what has to be kept.

use crate::Expr;
use meshwright_ir::program::Pass;
use meshwright_ir::{AttentionCore, Op};

/// A tensor in its part for one op.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Slot {
    /// Input `k`.
    Input(u8),
    /// Parameter `k`.
    Param(u8),
    /// Token or target ids.
    Ids,
    /// The output; for the loss, the running sum over micro-batches.
    Output,
    /// What forward keeps beside inputs and output.
    Aux(u8),
    /// Gradient of the output.
    OutputGradient,
    /// Gradient of input `k`.
    InputGradient(u8),
    /// Gradient of parameter `k`, accumulated over micro-batches.
    ParamGradient(u8),
}

/// Operands of one pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    /// Tensors read.
    pub reads: Vec<Slot>,
    /// Tensors written.
    pub writes: Vec<Slot>,
}

/// Operands of a pass of an op, or `None` where the op has no such pass.
pub fn signature(op: &Op, pass: Pass) -> Option<Signature> {
    use Slot::{Aux, Ids, Input, InputGradient, Output, OutputGradient, Param, ParamGradient};
    let some = |reads: Vec<Slot>, writes: Vec<Slot>| Some(Signature { reads, writes });
    let params: Vec<u8> = (0..op.params().len() as u8).collect();
    let with_params = |mut slots: Vec<Slot>| {
        slots.extend(params.iter().map(|p| Param(*p)));
        slots
    };
    let gradients = || params.iter().map(|p| ParamGradient(*p)).collect::<Vec<_>>();
    let ids = |mut slots: Vec<Slot>| {
        if Expr::reads_ids(op) {
            slots.push(Ids);
        }
        slots
    };
    match (op, pass) {
        (Op::CrossEntropy { .. }, Pass::Max) => some(vec![Input(0)], vec![Aux(0)]),
        (Op::CrossEntropy { .. }, Pass::Sum) => some(vec![Input(0), Ids, Aux(0)], vec![Aux(1)]),
        (Op::CrossEntropy { .. }, Pass::Forward) => some(vec![Aux(0), Aux(1)], vec![Output]),
        (Op::CrossEntropy { .. }, Pass::BackwardInput) => {
            some(vec![Input(0), Ids, Aux(0), Aux(1)], vec![InputGradient(0)])
        }
        (_, Pass::Max | Pass::Sum) => None,
        (Op::Attention { .. }, Pass::Forward) => {
            let kept = (0..Expr::of(op).aux.len() as u8).map(Aux);
            some(vec![Input(0), Input(1), Input(2)], [Output].into_iter().chain(kept).collect())
        }
        (Op::Attention { core, .. }, Pass::BackwardInput) => {
            let kept = (0..Expr::of(op).aux.len() as u8).map(Aux);
            let inputs = [OutputGradient, Input(0), Input(1), Input(2)].into_iter();
            // A core that keeps the softmax has no use for the output.
            let output = (*core == AttentionCore::Fused).then_some(Output);
            some(
                inputs.chain(output).chain(kept).collect(),
                vec![InputGradient(0), InputGradient(1), InputGradient(2)],
            )
        }
        (Op::Dropout { .. }, Pass::Forward) => some(vec![Input(0)], vec![Output, Aux(0)]),
        (Op::Dropout { .. }, Pass::BackwardInput) => {
            some(vec![OutputGradient, Aux(0)], vec![InputGradient(0)])
        }
        (_, Pass::Forward) => {
            let inputs = (0..op.arity() as u8).map(Input).collect();
            some(ids(with_params(inputs)), vec![Output])
        }
        (Op::Embedding { .. }, Pass::BackwardWeight) => some(ids(vec![OutputGradient]), gradients()),
        (Op::Linear { .. } | Op::Norm { .. }, Pass::BackwardWeight) => {
            some(vec![OutputGradient, Input(0)], gradients())
        }
        (Op::Bias { .. }, Pass::BackwardWeight) => some(vec![OutputGradient], gradients()),
        (Op::Linear { .. }, Pass::BackwardInput) => {
            some(vec![OutputGradient, Param(0)], vec![InputGradient(0)])
        }
        (Op::Norm { .. }, Pass::BackwardInput) => {
            some(vec![OutputGradient, Input(0), Param(0)], vec![InputGradient(0)])
        }
        (Op::Rope { .. }, Pass::BackwardInput) => some(vec![OutputGradient], vec![InputGradient(0)]),
        (Op::Activation { .. }, Pass::BackwardInput) => {
            some(vec![OutputGradient, Input(0)], vec![InputGradient(0)])
        }
        (Op::Gate { .. }, Pass::BackwardInput) => {
            some(vec![OutputGradient, Input(0), Input(1)], vec![InputGradient(0), InputGradient(1)])
        }
        (Op::Embedding { .. } | Op::Bias { .. } | Op::Add { .. }, Pass::BackwardInput) => None,
        (
            Op::Rope { .. }
            | Op::Attention { .. }
            | Op::Dropout { .. }
            | Op::Activation { .. }
            | Op::Gate { .. }
            | Op::Add { .. }
            | Op::CrossEntropy { .. },
            Pass::BackwardWeight,
        ) => None,
    }
}

/// Whether the gradient of the op's inputs *is* the gradient of its output, so that no kernel makes it.
pub fn gradient_aliases(op: &Op) -> bool {
    match op {
        Op::Bias { .. } | Op::Add { .. } => true,
        Op::Embedding { .. }
        | Op::Linear { .. }
        | Op::Norm { .. }
        | Op::Rope { .. }
        | Op::Attention { .. }
        | Op::Dropout { .. }
        | Op::Activation { .. }
        | Op::Gate { .. }
        | Op::CrossEntropy { .. } => false,
    }
}
