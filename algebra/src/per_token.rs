//! What one token costs a model: FLOPs under the conventions that published figures use, bytes kept for backward, and what
//! a cache of keys and values would hold. Sums over the ops of the chain, in integers; towers see other tokens and are
//! left out.

use crate::count::{attended_pairs, elements};
use crate::{Expr, Extent, Slot, model_flops, signature};
use meshwright_ir::program::Pass;
use meshwright_ir::{BlockClass, DType, Model, Node, Op, ParamSpec, Value};
use std::collections::BTreeSet;

/// FLOPs of one token under one convention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Convention {
    /// What is counted, in a few words.
    pub name: &'static str,
    /// Forward.
    pub forward: u64,
    /// Forward and backward.
    pub training: u64,
}

/// Counts of one token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PerToken {
    /// FLOPs by convention; the customary one first.
    pub conventions: Vec<Convention>,
    /// Bytes of forward's tensors that backward reads: 16-bit activations, nothing recomputed, scores never stored.
    pub activation_bytes: u64,
    /// Elements of keys and values that inference would keep, over all layers.
    pub kv_width: u64,
}

/// Counts of one token among `sequence`.
pub fn per_token(model: &Model, sequence: u64) -> PerToken {
    let nodes = |of: &dyn Fn(&BlockClass, &Node) -> u64| -> u64 {
        classes(model).map(|(n, class)| n * class.nodes.iter().map(|node| of(class, node)).sum::<u64>()).sum()
    };
    let (forward, training) = model_flops(model, sequence);
    let attention = nodes(&|_, n| dense_attention(&n.op, sequence));
    let masked = nodes(&|_, n| masked_attention(&n.op, sequence));
    let matrices = forward.get() - attention;
    let weights = used_weights(model);
    let convention = |name, forward, training| Convention { name, forward, training };
    PerToken {
        conventions: vec![
            convention(
                "2 per matrix weight used and token, dense attention; training is 3 x forward (PaLM appendix B)",
                forward.get(),
                training.get(),
            ),
            convention(
                "2 per active parameter but tables only looked up, dense attention within windows; training is 3 x forward (torchtitan)",
                2 * weights + attention,
                3 * (2 * weights + attention),
            ),
            convention(
                "2 per matrix weight used and token, attention only where the mask lets it; training is 3 x forward",
                matrices + masked,
                3 * (matrices + masked),
            ),
            convention(
                "as executed: masked attention, whose backward makes the scores again and costs 2.5 x its forward",
                matrices + masked,
                3 * matrices + masked + masked * 5 / 2,
            ),
        ],
        activation_bytes: classes(model).map(|(n, class)| n * kept_bytes(class)).sum(),
        kv_width: nodes(&cached),
    }
}

/// Every class of the chain with how often it occurs.
fn classes(model: &Model) -> impl Iterator<Item = (u64, &BlockClass)> {
    model.runs.iter().map(|r| (u64::from(r.repeat), &model.classes[r.class as usize]))
}

/// FLOPs forward of scores and values per token, every key within the window.
pub(crate) fn dense_attention(op: &Op, sequence: u64) -> u64 {
    match op {
        Op::Attention { heads, head_dim, window, .. } => {
            4 * window.unwrap_or(sequence).min(sequence) * heads * head_dim
        }
        Op::LatentAttention { heads, nope, rotary, value, top } => {
            2 * top.unwrap_or(sequence).min(sequence) * heads * (nope + rotary + value)
        }
        Op::Index { heads, head_dim, .. } => 2 * sequence * heads * head_dim,
        Op::Embedding { .. }
        | Op::Linear { .. }
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
        | Op::ExpertLinear { .. }
        | Op::ExpertBias { .. }
        | Op::Combine { .. }
        | Op::Conv { .. }
        | Op::Scan { .. }
        | Op::Input { .. }
        | Op::Dropout { .. }
        | Op::Add { .. }
        | Op::CrossEntropy { .. } => 0,
    }
}

/// The same where a mask leaves keys out: the average over the sequence.
fn masked_attention(op: &Op, sequence: u64) -> u64 {
    let causal = if let Op::Attention { causal, .. } = op { *causal } else { true };
    let window = if let Op::Attention { window, .. } | Op::LatentAttention { top: window, .. } = op {
        *window
    } else {
        None
    };
    let reach = window.unwrap_or(sequence).min(sequence);
    let (pairs, all) = (attended_pairs(sequence, causal, window), u128::from(reach) * u128::from(sequence));
    (u128::from(dense_attention(op, sequence)) * u128::from(pairs) / all) as u64
}

/// Active parameters of the chain that take part in products: all but tables that are only looked up. A table that the
/// head shares is a matrix as well.
fn used_weights(model: &Model) -> u64 {
    let elements = |params: &[ParamSpec]| params.iter().map(ParamSpec::elements).sum::<u64>();
    let node = |n: &Node| match (&n.op, n.op.routed()) {
        (Op::Embedding { .. }, _) => 0,
        (_, Some((experts, top_k))) => elements(&n.params()) / experts * top_k,
        // A tied parameter is used here, whoever owns it.
        (_, None) => elements(&n.params()),
    };
    classes(model).map(|(n, class)| n * class.nodes.iter().map(node).sum::<u64>()).sum()
}

/// Bytes per token of the distinct tensors of a block that its backward passes read.
fn kept_bytes(class: &BlockClass) -> u64 {
    let (mut values, mut bytes) = (BTreeSet::new(), 0);
    for (k, node) in class.nodes.iter().enumerate() {
        let expr = Expr::of(&node.op);
        let one: Vec<u64> = expr
            .indices
            .iter()
            .map(|i| match i.extent {
                Extent::Batch | Extent::Sequence => 1,
                Extent::Fixed(n) => n,
            })
            .collect();
        let passes = [Pass::BackwardInput, Pass::BackwardWeight];
        let reads = passes.into_iter().filter_map(|p| signature(&node.op, p)).flat_map(|s| s.reads);
        let mut aux = BTreeSet::new();
        for slot in reads {
            match slot {
                Slot::Input(i) => drop(values.insert(node.inputs[i as usize])),
                Slot::Output => drop(values.insert(Value::Node(k as u32))),
                Slot::Aux(a) => drop(aux.insert(a)),
                Slot::Param(_)
                | Slot::Ids
                | Slot::OutputGradient
                | Slot::InputGradient(_)
                | Slot::ParamGradient(_) => {}
            }
        }
        let size = |a: &u8| {
            let aux = &expr.aux[*a as usize];
            aux.store.dtype(DType::Bf16).bytes(elements(&aux.dims, &one)).get()
        };
        bytes += aux.iter().map(size).sum::<u64>();
    }
    // What a block reads of the one before is counted there, as its output.
    let width = |v: &Value| match v {
        Value::Input => 0,
        Value::Node(k) => class.nodes[*k as usize].op.output_width(),
    };
    let handed_on = class.nodes.len() as u32 - 1;
    let output = Value::Node(handed_on);
    let more = if values.contains(&output) { 0 } else { width(&output) };
    bytes + 2 * (values.iter().map(width).sum::<u64>() + more)
}

/// Elements that inference keeps of a token for one op: keys and values of each key head, or the latent and the shared key.
fn cached(class: &BlockClass, node: &Node) -> u64 {
    let rank = |v: &Value| match v {
        Value::Node(k) => class.nodes[*k as usize].op.input_width(0),
        Value::Input => 0,
    };
    match &node.op {
        // Keys of what a tower hands in belong to its tokens.
        Op::Attention { kv_heads, head_dim, causal: true, .. } => 2 * kv_heads * head_dim,
        Op::LatentAttention { rotary, .. } => rank(&node.inputs[1]) + rotary,
        Op::Index { head_dim, .. } => *head_dim,
        Op::Attention { .. }
        | Op::Embedding { .. }
        | Op::Linear { .. }
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
        | Op::ExpertLinear { .. }
        | Op::ExpertBias { .. }
        | Op::Combine { .. }
        | Op::Conv { .. }
        | Op::Scan { .. }
        | Op::Input { .. }
        | Op::Dropout { .. }
        | Op::Add { .. }
        | Op::CrossEntropy { .. } => 0,
    }
}
