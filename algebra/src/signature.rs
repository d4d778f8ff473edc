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
    let inputs = || 0..op.arity() as u8;
    let kept = || (0..Expr::of(op).aux.len() as u8).map(Aux);
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
        (Op::Attention { .. } | Op::LatentAttention { .. }, Pass::Forward) => {
            some(with_params(inputs().map(Input).collect()), [Output].into_iter().chain(kept()).collect())
        }
        // What attention learns gets its gradient where the scores are made again. A choice of keys gets zeros.
        (Op::Attention { .. } | Op::LatentAttention { .. }, Pass::BackwardInput) => {
            // A core that keeps the softmax has no use for the output.
            let eager = matches!(op, Op::Attention { core: AttentionCore::Eager, .. });
            let reads = [OutputGradient].into_iter().chain(inputs().map(Input));
            let output = (!eager).then_some(Output);
            some(
                with_params(reads.chain(output).chain(kept()).collect()),
                inputs().map(InputGradient).collect(),
            )
        }
        (Op::Index { .. }, Pass::BackwardInput) => some(
            std::iter::once(OutputGradient).chain(inputs().map(Input)).collect(),
            inputs().map(InputGradient).collect(),
        ),
        (Op::Attention { .. }, Pass::BackwardWeight) if !params.is_empty() => {
            some(with_params(vec![OutputGradient, Input(0), Input(1), Input(2), Output, Aux(0)]), gradients())
        }
        (Op::Dropout { .. }, Pass::Forward) => some(vec![Input(0)], vec![Output, Aux(0)]),
        (Op::Dropout { .. }, Pass::BackwardInput) => {
            some(vec![OutputGradient, Aux(0)], vec![InputGradient(0)])
        }
        (_, Pass::Forward) => some(ids(with_params(inputs().map(Input).collect())), vec![Output]),
        (Op::Embedding { .. }, Pass::BackwardWeight) => some(ids(vec![OutputGradient]), gradients()),
        (Op::Norm { .. }, Pass::BackwardWeight) if params.is_empty() => None,
        (Op::Linear { .. } | Op::Norm { .. }, Pass::BackwardWeight) => {
            some(vec![OutputGradient, Input(0)], gradients())
        }
        (Op::Gain { .. } | Op::ExpertLinear { .. } | Op::Conv { .. }, Pass::BackwardWeight) => {
            some(vec![OutputGradient, Input(0)], gradients())
        }
        (Op::Bias { .. } | Op::ExpertBias { .. }, Pass::BackwardWeight) => {
            some(vec![OutputGradient], gradients())
        }
        (
            Op::Linear { .. } | Op::Gain { .. } | Op::ExpertLinear { .. } | Op::Conv { .. },
            Pass::BackwardInput,
        ) => some(vec![OutputGradient, Param(0)], vec![InputGradient(0)]),
        // Only the scale matters to the gradient; a plain norm has none.
        (Op::Norm { .. }, Pass::BackwardInput) => {
            let scale = params.first().map(|p| Param(*p));
            some([OutputGradient, Input(0)].into_iter().chain(scale).collect(), vec![InputGradient(0)])
        }
        (Op::Rope { .. } | Op::Scale { .. }, Pass::BackwardInput) => {
            some(vec![OutputGradient], vec![InputGradient(0)])
        }
        // Softmax and sigmoid have their slopes from the weights they made.
        (Op::Route { .. }, Pass::BackwardInput) => some(vec![OutputGradient, Output], vec![InputGradient(0)]),
        // The route only says where; its gradient, from here, is zero.
        (Op::Dispatch { .. }, Pass::BackwardInput) => {
            some(vec![OutputGradient, Input(1)], vec![InputGradient(0), InputGradient(1)])
        }
        (Op::Combine { .. }, Pass::BackwardInput) => {
            some(vec![OutputGradient, Input(0), Input(1)], vec![InputGradient(0), InputGradient(1)])
        }
        // Both gradients of a recurrence need its states, which are made again from the inputs.
        (Op::Scan { .. }, Pass::BackwardInput) => {
            let reads = std::iter::once(OutputGradient).chain(inputs().map(Input)).collect();
            some(with_params(reads), inputs().map(InputGradient).collect())
        }
        (Op::Scan { .. }, Pass::BackwardWeight) => {
            let reads = std::iter::once(OutputGradient).chain(inputs().map(Input)).collect();
            some(with_params(reads), gradients())
        }
        (Op::Activation { .. }, Pass::BackwardInput) => {
            some(vec![OutputGradient, Input(0)], vec![InputGradient(0)])
        }
        (Op::Gate { .. } | Op::Spread { .. }, Pass::BackwardInput) => {
            some(vec![OutputGradient, Input(0), Input(1)], vec![InputGradient(0), InputGradient(1)])
        }
        (
            Op::Embedding { .. }
            | Op::Bias { .. }
            | Op::ExpertBias { .. }
            | Op::Input { .. }
            | Op::Add { .. },
            Pass::BackwardInput,
        ) => None,
        (
            Op::Rope { .. }
            | Op::Attention { .. }
            | Op::LatentAttention { .. }
            | Op::Index { .. }
            | Op::Dropout { .. }
            | Op::Activation { .. }
            | Op::Gate { .. }
            | Op::Scale { .. }
            | Op::Spread { .. }
            | Op::Route { .. }
            | Op::Dispatch { .. }
            | Op::Combine { .. }
            | Op::Input { .. }
            | Op::Add { .. }
            | Op::CrossEntropy { .. },
            Pass::BackwardWeight,
        ) => None,
    }
}

/// Whether the gradient of the op's inputs *is* the gradient of its output, so that no kernel makes it.
pub fn gradient_aliases(op: &Op) -> bool {
    match op {
        Op::Bias { .. } | Op::ExpertBias { .. } | Op::Add { .. } => true,
        Op::Embedding { .. }
        | Op::Linear { .. }
        | Op::Norm { .. }
        | Op::Rope { .. }
        | Op::Attention { .. }
        | Op::Dropout { .. }
        | Op::Activation { .. }
        | Op::Gate { .. }
        | Op::LatentAttention { .. }
        | Op::Index { .. }
        | Op::Scale { .. }
        | Op::Spread { .. }
        | Op::Gain { .. }
        | Op::Route { .. }
        | Op::Dispatch { .. }
        | Op::ExpertLinear { .. }
        | Op::Combine { .. }
        | Op::Conv { .. }
        | Op::Scan { .. }
        | Op::Input { .. }
        | Op::CrossEntropy { .. } => false,
    }
}
