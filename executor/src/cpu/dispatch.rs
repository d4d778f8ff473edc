//! From a kernel of the program to a kernel of this crate: local sizes from its extents, this rank's offsets from the axes
//! that cut it, operands in the order of the algebra's signatures.

use super::arena::{ids, ids_mut};
use crate::backend::StepSettings;
use crate::kernels::{
    activation, attention, bias, cross_entropy, dropout, eager, elementwise, embedding, gain, linear, norm,
    optimizer, rearrange, rope,
};
use meshwright_ir::program::{Kernel, OpKernel, Pass};
use meshwright_ir::{
    ActivationKind, AttentionCore, AxisSet, DType, Dropout, IdSource, Mesh, NormKind, Op, Optimizer,
};
use std::num::NonZeroUsize;

/// What a kernel may look at beside its operands.
pub(super) struct Site<'a, 'd> {
    pub(super) mesh: &'a Mesh,
    pub(super) rank: u32,
    pub(super) micro_batch: u64,
    pub(super) block: u64,
    pub(super) tokens: u64,
    pub(super) settings: &'a StepSettings<'d>,
}

impl Site<'_, '_> {
    /// The elements of this rank's piece of a buffer of `len` elements.
    fn range(&self, axes: AxisSet, len: usize) -> std::ops::Range<usize> {
        let (piece, size) = (self.piece(axes) as usize, len / self.mesh.size(axes) as usize);
        piece * size..(piece + 1) * size
    }
    /// Which piece this rank holds of something cut by `axes`.
    fn piece(&self, axes: AxisSet) -> u64 {
        u64::from(self.mesh.index_in(self.rank, axes))
    }
    /// Place in the global batch of the first of this rank's `batch` samples.
    fn first_sample(&self, batch: u64, axes: AxisSet) -> u64 {
        self.micro_batch * batch * u64::from(self.mesh.size(axes)) + self.piece(axes) * batch
    }
    /// What a dropout of this block drops in this step.
    fn dropping(&self, d: &Dropout) -> dropout::Dropping {
        let s = self.settings;
        dropout::Dropping::new(s.seed, s.step, self.block, u64::from(d.site), d.rate.0)
    }
}

/// Runs a kernel. `scratch` is the thread's own and grows as needed.
pub(super) fn run(
    kernel: &Kernel,
    site: &Site<'_, '_>,
    reads: &[&[f32]],
    writes: &mut [&mut [f32]],
    scratch: &mut Vec<f32>,
) {
    match kernel {
        Kernel::Op(k) => run_op(k, site, reads, writes, scratch),
        Kernel::Add { .. } => {
            let (xs, ys) = reads.split_at(writes.len());
            for ((x, y), z) in xs.iter().zip(ys).zip(writes) {
                // An operand that is also the result is read where it is written.
                match (x.is_empty(), y.is_empty()) {
                    (true, _) => elementwise::accumulate(y, z),
                    (_, true) => elementwise::accumulate(x, z),
                    _ => elementwise::add(x, y, z),
                }
            }
        }
        Kernel::Slice { axes, outer, piece, inner, .. } => {
            let pieces = site.mesh.size(*axes) as usize;
            let block = (piece * inner) as usize;
            rearrange::slice_dim(
                pieces,
                *outer as usize,
                block,
                site.piece(*axes) as usize,
                reads[0],
                writes[0],
            );
        }
        Kernel::Pack { outer, parts, inner, .. } => {
            rearrange::pack(*parts as usize, *outer as usize, *inner as usize, reads[0], writes[0])
        }
        Kernel::Unpack { outer, parts, inner, .. } => {
            rearrange::unpack(*parts as usize, *outer as usize, *inner as usize, reads[0], writes[0])
        }
        Kernel::Load { what, batch, sequence, batch_axes, sequence_axes } => {
            let first = site.first_sample(*batch, *batch_axes);
            let token = site.piece(*sequence_axes) * sequence;
            for (k, row) in ids_mut(writes[0]).chunks_exact_mut(*sequence as usize).enumerate() {
                (site.settings.samples)(*what, site.settings.step, first + k as u64, token, row);
            }
        }
        Kernel::SumSquares { replicas, accumulate, piece, .. } => {
            // An accumulating sum also reads the scalar it writes; that operand stands last.
            let addends = &reads[..reads.len() - usize::from(*accumulate)];
            let sum: f64 =
                addends.iter().map(|x| optimizer::sum_squares(&x[site.range(*piece, x.len())])).sum();
            let before = if *accumulate { f64::from(writes[0][0]) } else { 0.0 };
            writes[0][0] = (before + sum / *replicas as f64) as f32;
        }
        Kernel::Update { optimizer: rule, decays, piece, dtype, elements } => {
            let s = site.settings;
            // The norm is of scaled gradients. Where it is not finite, something overflowed: nobody updates.
            let norm = f64::from(reads[1][0]).sqrt() / s.loss_scale;
            if !norm.is_finite() {
                return;
            }
            let clipped = if s.clip > 0.0 { optimizer::clip_factor(norm, s.clip) } else { 1.0 };
            let factor = (f64::from(clipped) / s.loss_scale) as f32;
            // Of a whole operand this rank's piece; a piece has the updated elements already.
            let mine = |len: usize| match len as u64 == *elements {
                true => 0..len,
                false => site.range(*piece, len),
            };
            let gradient = &reads[0][mine(reads[0].len())];
            match (rule, writes) {
                // Mixed precision: the master is updated and the compute copy follows it.
                (rule, [weight, master, state @ ..]) if *dtype != DType::F32 => {
                    update(*rule, site, factor, *decays, master, gradient, state);
                    let mine = mine(weight.len());
                    weight[mine].copy_from_slice(master);
                }
                (rule, [weight, state @ ..]) => {
                    let mine = mine(weight.len());
                    update(*rule, site, factor, *decays, &mut weight[mine], gradient, state);
                }
                _ => panic!("an update writes a weight"),
            }
        }
    }
}

/// One step of the rule on fp32 parameters. Betas and epsilon as Megatron-LM's GPT recipes set them (0.9, 0.95, 1e-8).
fn update(
    rule: Optimizer,
    site: &Site<'_, '_>,
    factor: f32,
    decays: bool,
    weight: &mut [f32],
    gradient: &[f32],
    state: &mut [&mut [f32]],
) {
    let rate = site.settings.rate as f32;
    match (rule, state) {
        (Optimizer::Adamw, [m, v]) => {
            let decay = if decays { site.settings.weight_decay as f32 } else { 0.0 };
            let constants = optimizer::AdamW { rate, beta1: 0.9, beta2: 0.95, epsilon: 1e-8, decay };
            optimizer::adamw(&constants, site.settings.updates + 1, factor, weight, gradient, m, v);
        }
        (Optimizer::Sgd, []) => optimizer::sgd(rate, factor, weight, gradient),
        _ => panic!("an update with {rule} has other state than its rule keeps"),
    }
}

fn run_op(
    k: &OpKernel,
    site: &Site<'_, '_>,
    reads: &[&[f32]],
    writes: &mut [&mut [f32]],
    scratch: &mut Vec<f32>,
) {
    let x = |i: usize| k.extents[i] as usize;
    let (batch, sequence) = (x(0), x(1));
    let rows = batch * sequence;
    let first = !k.accumulate;
    // The first position and the first feature of this rank's piece.
    let position = (site.piece(k.axes[1]) * k.extents[1]) as usize;
    match (&k.op, k.pass) {
        (Op::Linear { .. }, pass) => {
            let l = linear::Linear { rows, inputs: x(2), outputs: x(3) };
            match pass {
                Pass::Forward => linear::forward(&l, reads[0], reads[1], writes[0]),
                Pass::BackwardInput => linear::backward_input(&l, reads[0], reads[1], writes[0]),
                _ => linear::backward_weight(&l, reads[0], reads[1], writes[0], first),
            }
        }
        (Op::Bias { .. }, Pass::Forward) => bias::forward(reads[0], reads[1], writes[0]),
        (Op::Bias { .. }, _) => bias::backward_weight(reads[0], writes[0], first),
        (Op::Norm { kind, width, eps, .. }, pass) => {
            let (kind, plain) = match kind {
                NormKind::Layer | NormKind::LayerScale => (norm::Kind::Layer, false),
                NormKind::LayerPlain => (norm::Kind::Layer, true),
                NormKind::Rms => (norm::Kind::Rms, false),
                NormKind::RmsPlain => (norm::Kind::Rms, true),
            };
            // A norm without parameters is one whose scale is 1.
            let ones = if plain { *width as usize } else { 0 };
            scratch.resize(scratch.len().max(ones), 0.0);
            scratch[..ones].fill(1.0);
            let scale = |at: usize| if plain { &scratch[..ones] } else { reads[at] };
            let n = norm::Norm { kind, width: *width as usize, epsilon: eps.0 as f32 };
            match pass {
                Pass::Forward => norm::forward(&n, reads[0], scale(1), reads.get(2).copied(), writes[0]),
                Pass::BackwardInput => norm::backward_input(&n, reads[0], reads[1], scale(2), writes[0]),
                _ => {
                    let (gamma, beta) = writes.split_first_mut().expect("a norm has a gamma");
                    norm::backward_weight(
                        &n,
                        reads[0],
                        reads[1],
                        gamma,
                        beta.first_mut().map(|b| &mut **b),
                        first,
                    );
                }
            }
        }
        (Op::Rope { head_dim, theta, turned, .. }, pass) => {
            let heads = x(2) / *head_dim as usize;
            let r = rope::Rope {
                sequence,
                heads,
                head_dim: *head_dim as usize,
                turned: turned.unwrap_or(*head_dim) as usize,
                theta: theta.0,
                first_position: position,
            };
            match pass {
                Pass::Forward => rope::forward(&r, reads[0], writes[0]),
                _ => rope::backward(&r, reads[0], writes[0]),
            }
        }
        (Op::Dropout { width: _, dropout: drop }, Pass::Forward) => {
            let [y, mask] = writes else { panic!("dropout with other outputs than its signature has") };
            let (dice, width) = (site.dropping(drop), x(2));
            let first = site.first_sample(k.extents[0], k.axes[0]);
            let column = site.piece(k.axes[2]) as usize * width;
            for (row, mask) in mask.chunks_exact_mut(width).enumerate() {
                let place = [first + (row / sequence) as u64, (position + row % sequence) as u64, 0];
                dice.mask(place, column as u32, mask);
            }
            dropout::apply(reads[0], mask, dice.scale(), y);
        }
        (Op::Dropout { width: _, dropout: drop }, _) => {
            dropout::apply(reads[0], reads[1], site.dropping(drop).scale(), writes[0]);
        }
        (
            Op::Attention { heads, kv_heads, head_dim, causal, window, core, dropout: drop, scores: _ },
            pass,
        ) => {
            let first_head = site.piece(k.axes[2]) * k.extents[2] * (heads / kv_heads);
            let first_sample = site.first_sample(k.extents[0], k.axes[0]);
            let scores = |d| attention::DroppedScores { dice: site.dropping(d), first_sample, first_head };
            let a = attention::Attention {
                batch,
                queries: sequence,
                keys: sequence,
                first_query: 0,
                heads: x(2) * (heads / kv_heads) as usize,
                kv_heads: x(2),
                head_dim: *head_dim as usize,
                scale: 1.0 / (*head_dim as f32).sqrt(),
                mask: if *causal { attention::Mask::Causal } else { attention::Mask::Full },
                window: window.and_then(|w| NonZeroUsize::new(w as usize)),
                dropping: drop.as_ref().map(scores),
            };
            let needed = match core {
                AttentionCore::Fused => attention::workspace(&a),
                AttentionCore::Eager => eager::workspace(&a),
            };
            if scratch.len() < needed {
                scratch.resize(needed, 0.0);
            }
            match (core, pass, writes) {
                (AttentionCore::Eager, Pass::Forward, [y, softmax, others @ ..]) => {
                    let mut others = others.iter_mut().map(|o| &mut **o);
                    let (mask, dropped) = (others.next(), others.next());
                    let mut kept = eager::Kept { softmax: &mut **softmax, mask, dropped };
                    eager::forward(&a, reads[0], reads[1], reads[2], y, &mut kept, scratch);
                }
                (AttentionCore::Eager, _, [dq, dk, dv]) => {
                    let [dy, q, k, v, softmax] = [0, 1, 2, 3, 4].map(|i| reads[i]);
                    let (mask, dropped) = (reads.get(5).copied(), reads.get(6).copied());
                    let kept = eager::Kept { softmax, mask, dropped };
                    eager::backward(&a, dy, q, k, v, &kept, dq, dk, dv, scratch);
                }
                (AttentionCore::Fused, Pass::Forward, [y, lse]) => {
                    attention::forward(&a, reads[0], reads[1], reads[2], y, lse, scratch)
                }
                (AttentionCore::Fused, _, [dq, dk, dv]) => {
                    let [dy, q, k, v, y, lse] = [0, 1, 2, 3, 4, 5].map(|i| reads[i]);
                    attention::backward(&a, dy, q, k, v, y, lse, dq, dk, dv, scratch);
                }
                _ => panic!("attention with other outputs than its signature has"),
            }
        }
        (Op::Activation { kind, .. }, Pass::Forward) => {
            activation::forward(activation_of(*kind), reads[0], writes[0])
        }
        (Op::Activation { kind, .. }, _) => {
            activation::backward(activation_of(*kind), reads[0], reads[1], writes[0])
        }
        (Op::Gate { kind, .. }, Pass::Forward) => {
            activation::gate::forward(activation_of(*kind), reads[0], reads[1], writes[0])
        }
        (Op::Gate { kind, .. }, _) => match writes {
            [dg, du] => {
                activation::gate::backward(activation_of(*kind), reads[0], reads[1], reads[2], dg, du)
            }
            _ => panic!("a gate with other gradients than its signature has"),
        },
        (Op::Scale { factor, .. }, _) => {
            elementwise::copy(reads[0], writes[0]);
            elementwise::scale(factor.0 as f32, writes[0]);
        }
        (Op::Gain { .. }, Pass::BackwardWeight) => {
            gain::backward_weight(reads[0], reads[1], writes[0], first)
        }
        (Op::Gain { .. }, _) => gain::forward(reads[0], reads[1], writes[0]),
        (
            Op::LatentAttention { .. }
            | Op::Spread { .. }
            | Op::Index { .. }
            | Op::Route { .. }
            | Op::Dispatch { .. }
            | Op::ExpertLinear { .. }
            | Op::ExpertBias { .. }
            | Op::Combine { .. }
            | Op::Conv { .. }
            | Op::Scan { .. }
            | Op::Input { .. },
            _,
        ) => panic!("{} was refused before step 0", k.op.name()),
        (Op::Add { .. }, _) => elementwise::add(reads[0], reads[1], writes[0]),
        (Op::Embedding { index: IdSource::Tokens, .. }, pass) => {
            let shard =
                embedding::Shard { offset: (site.piece(k.axes[2]) * k.extents[2]) as usize, width: x(3) };
            match pass {
                Pass::Forward => embedding::forward(&shard, reads[0], ids(reads[1]), writes[0]),
                _ => embedding::backward(&shard, reads[0], ids(reads[1]), writes[0], first),
            }
        }
        (Op::Embedding { index: IdSource::Segments, .. }, _) => panic!("segments were refused before step 0"),
        (Op::Embedding { index: IdSource::Positions, .. }, pass) => {
            let rows_before = (site.piece(k.axes[2]) * k.extents[2]) as usize;
            positions(sequence, position, rows_before, x(2), x(3), pass, first, reads[0], writes[0]);
        }
        (Op::CrossEntropy { .. }, pass) => {
            let shard =
                cross_entropy::Shard { offset: (site.piece(k.axes[2]) * k.extents[2]) as usize, width: x(2) };
            match pass {
                Pass::Max => cross_entropy::row_maxima(&shard, reads[0], writes[0]),
                Pass::Sum => {
                    let (total, target) = writes[0].split_at_mut(rows);
                    cross_entropy::row_sums(&shard, reads[0], ids(reads[1]), reads[2], total, target);
                }
                Pass::Forward => {
                    let (total, target) = reads[1].split_at(rows);
                    scratch.resize(scratch.len().max(rows), 0.0);
                    let sum = cross_entropy::losses(reads[0], total, target, &mut scratch[..rows]) as f32;
                    writes[0][0] = if first { sum } else { writes[0][0] + sum };
                }
                Pass::BackwardInput | Pass::BackwardWeight => {
                    let scale = (site.settings.loss_scale / site.tokens as f64) as f32;
                    cross_entropy::backward(
                        &shard,
                        reads[0],
                        ids(reads[1]),
                        reads[2],
                        &reads[3][..rows],
                        scale,
                        writes[0],
                    );
                }
            }
        }
    }
}

/// Learned positions when the table's rows may be cut as well: rows that lie elsewhere give zeros and take no gradient.
#[allow(clippy::too_many_arguments)]
fn positions(
    sequence: usize,
    position: usize,
    rows_before: usize,
    rows: usize,
    width: usize,
    pass: Pass,
    first: bool,
    from: &[f32],
    into: &mut [f32],
) {
    let row = |s: usize| (position + s).checked_sub(rows_before).filter(|r| *r < rows);
    match pass {
        Pass::Forward => {
            for (s, y) in into.chunks_exact_mut(width).enumerate() {
                match row(s % sequence) {
                    Some(r) => y.copy_from_slice(&from[r * width..(r + 1) * width]),
                    None => y.fill(0.0),
                }
            }
        }
        _ => {
            if first {
                into.fill(0.0);
            }
            for (s, dy) in from.chunks_exact(width).enumerate() {
                if let Some(r) = row(s % sequence) {
                    elementwise::accumulate(dy, &mut into[r * width..(r + 1) * width]);
                }
            }
        }
    }
}

/// Why the CPU has no kernel for an op, if it has none.
pub(super) fn lacks(op: &Op) -> Option<String> {
    match op {
        Op::Rope { head_dim, turned, .. } if turned.unwrap_or(*head_dim) % 2 != 0 => {
            Some(format!("rotary embedding of an odd number of features ({op})"))
        }
        Op::Attention { scores, .. } if !scores.is_plain() => {
            Some(format!("attention whose scores are bent ({op})"))
        }
        Op::Embedding { index: IdSource::Segments, .. }
        | Op::LatentAttention { .. }
        | Op::Spread { .. }
        | Op::Index { .. }
        | Op::Route { .. }
        | Op::Dispatch { .. }
        | Op::ExpertLinear { .. }
        | Op::ExpertBias { .. }
        | Op::Combine { .. }
        | Op::Conv { .. }
        | Op::Scan { .. }
        | Op::Input { .. } => Some(op.to_string()),
        Op::Embedding { .. }
        | Op::Linear { .. }
        | Op::Bias { .. }
        | Op::Norm { .. }
        | Op::Rope { .. }
        | Op::Attention { .. }
        | Op::Activation { .. }
        | Op::Gate { .. }
        | Op::Scale { .. }
        | Op::Gain { .. }
        | Op::Dropout { .. }
        | Op::Add { .. }
        | Op::CrossEntropy { .. } => None,
    }
}

fn activation_of(kind: ActivationKind) -> activation::Activation {
    match kind {
        ActivationKind::Gelu => activation::Activation::GeluExact,
        ActivationKind::GeluTanh => activation::Activation::Gelu,
        ActivationKind::Silu => activation::Activation::Silu,
        ActivationKind::Relu => activation::Activation::Relu,
        ActivationKind::Relu2 => activation::Activation::Relu2,
        ActivationKind::QuickGelu => activation::Activation::QuickGelu,
        ActivationKind::Tanh => activation::Activation::Tanh,
        ActivationKind::Sigmoid => activation::Activation::Sigmoid,
    }
}
