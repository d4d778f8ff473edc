//! Cross-entropy of a vocabulary split over ranks, in the phases between its collectives: row maxima (then a
//! maximum over the shards), row sums and target logits (then a sum), and losses with gradients. Losses are
//! in nats. Invariant: one shard that holds the whole vocabulary runs the same code. Follows Megatron-LM's
//! vocabulary-parallel loss (arXiv 1909.08053, section 3).

use super::math::{self, exp, sum};

/// The columns of the vocabulary that local logits `[rows, width]` hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Global id of the first column.
    pub offset: usize,
    /// Local columns.
    pub width: usize,
}

impl Shard {
    /// The local column of a token, if this shard has it.
    fn column(&self, id: u32) -> Option<usize> {
        (id as usize).checked_sub(self.offset).filter(|column| *column < self.width)
    }
}

simd! {
    /// Phase 1: `maximum[r]` = max over the local columns of row r. All-reduce `maximum` by Max next.
    pub fn row_maxima(shard: &Shard, logits: &[f32], maximum: &mut [f32]) {
        assert_eq!(logits.len(), maximum.len() * shard.width);
        for (row, maximum) in logits.chunks_exact(shard.width).zip(maximum) {
            *maximum = math::max(row);
        }
    }
}

simd! {
    /// Phase 2: `total[r]` = Σ e^(logit - `maximum[r]`) over the local columns, and `target[r]` = the
    /// target's logit, or 0 when another shard has it. All-reduce `total` and `target` by Sum next.
    pub fn row_sums(
        shard: &Shard,
        logits: &[f32],
        ids: &[u32],
        maximum: &[f32],
        total: &mut [f32],
        target: &mut [f32],
    ) {
        let rows = ids.len();
        assert_eq!(logits.len(), rows * shard.width);
        assert_eq!((maximum.len(), total.len(), target.len()), (rows, rows, rows));
        for (r, row) in logits.chunks_exact(shard.width).enumerate() {
            total[r] = sum(row, |logit| exp(logit - maximum[r]));
            target[r] = shard.column(ids[r]).map_or(0.0, |column| row[column]);
        }
    }
}

/// Phase 3, value: `loss[r] = ln(total[r]) + maximum[r] - target[r]` from the global values; returns Σ loss
/// in f64.
pub fn losses(maximum: &[f32], total: &[f32], target: &[f32], loss: &mut [f32]) -> f64 {
    let rows = loss.len();
    assert_eq!((maximum.len(), total.len(), target.len()), (rows, rows, rows));
    for (r, loss) in loss.iter_mut().enumerate() {
        *loss = total[r].ln() + (maximum[r] - target[r]);
    }
    loss.iter().map(|l| f64::from(*l)).sum()
}

simd! {
    /// Phase 3, gradient: dlogits = (softmax - onehot) · scale from the global maximum and total. `scale` is
    /// usually one over the global token count.
    pub fn backward(
        shard: &Shard,
        logits: &[f32],
        ids: &[u32],
        maximum: &[f32],
        total: &[f32],
        scale: f32,
        dlogits: &mut [f32],
    ) {
        let rows = ids.len();
        assert_eq!((logits.len(), dlogits.len()), (rows * shard.width, rows * shard.width));
        assert_eq!((maximum.len(), total.len()), (rows, rows));
        let pairs = logits.chunks_exact(shard.width).zip(dlogits.chunks_exact_mut(shard.width));
        for (r, (row, drow)) in pairs.enumerate() {
            let (shift, factor) = (maximum[r], scale / total[r]);
            for (d, logit) in drow.iter_mut().zip(row) {
                *d = exp(logit - shift) * factor;
            }
            if let Some(column) = shard.column(ids[r]) {
                drow[column] -= scale;
            }
        }
    }
}

/// All phases for an unsplit vocabulary of `vocabulary` columns: writes loss `[rows]` and dlogits, returns Σ
/// loss. `workspace` holds at least `3 * rows` elements. Panics when an id lies outside the vocabulary.
pub fn fused(
    vocabulary: usize,
    logits: &[f32],
    ids: &[u32],
    scale: f32,
    loss: &mut [f32],
    dlogits: &mut [f32],
    workspace: &mut [f32],
) -> f64 {
    let shard = Shard { offset: 0, width: vocabulary };
    assert!(ids.iter().all(|id| shard.column(*id).is_some()), "a target lies outside {vocabulary} tokens");
    let (maximum, rest) = workspace.split_at_mut(ids.len());
    let (total, rest) = rest.split_at_mut(ids.len());
    let target = &mut rest[..ids.len()];
    row_maxima(&shard, logits, maximum);
    row_sums(&shard, logits, ids, maximum, total, target);
    backward(&shard, logits, ids, maximum, total, scale, dlogits);
    losses(maximum, total, target, loss)
}
