//! Attention as separate kernels run it ("eager"): scores, softmax, dropout and the product with the values, each whole
//! in memory, the last three kept for backward. Invariant: it computes what [`attention`](super::attention) computes,
//! which keeps none of them.

use super::attention::{Attention, cut, gather, scatter};
use super::gemm::{Matrix, MatrixMut, multiply};
use super::{dropout, elementwise, math};

/// What forward keeps of the scores, `[batch, heads, queries, keys]` each. Without dropout there is no mask and no
/// `dropped`.
#[derive(Debug)]
pub struct Kept<T> {
    /// Softmax of the scores; 0 for keys that a query does not see.
    pub softmax: T,
    /// 1 where dropout keeps an element, 0 where it drops it.
    pub mask: Option<T>,
    /// Output of dropout.
    pub dropped: Option<T>,
}

/// Elements of workspace that [`forward`] and [`backward`] need.
pub fn workspace(a: &Attention) -> usize {
    let rows = a.block_rows();
    4 * a.keys * a.head_dim + 3 * rows * a.head_dim + rows * a.keys
}

/// y = dropout(softmax(scale · q·kᵀ))·v over the visible keys, and what is kept on the way.
pub fn forward(
    a: &Attention,
    q: &[f32],
    k: &[f32],
    v: &[f32],
    y: &mut [f32],
    kept: &mut Kept<&mut [f32]>,
    workspace: &mut [f32],
) {
    let (d, n) = (a.head_dim, a.keys);
    for (b, shared) in a.key_heads() {
        let [head_k, head_v, rest] = cut(workspace, [n * d, n * d]);
        gather(a.kv_heads * d, d, &k[a.key_at(b, shared)..], head_k);
        gather(a.kv_heads * d, d, &v[a.key_at(b, shared)..], head_v);
        for (h, rows) in a.query_blocks(shared) {
            let m = rows.len();
            let [block_q, block_y, _] = cut(rest, [m * d, m * d]);
            gather(a.heads * d, d, &q[a.query_at(b, h, rows.start)..], block_q);
            let at = a.lse_at(b, h, &rows);
            let here = at.start * n..at.end * n;
            let softmax = &mut kept.softmax[here.clone()];
            let keys = Matrix::new(head_k, n, d, d).transposed();
            multiply(MatrixMut::new(softmax, m, n, n), true, a.scale, Matrix::new(block_q, m, d, d), keys);
            for (row, query) in softmax.chunks_exact_mut(n).zip(rows.clone()) {
                normalise(row, a.visible(query));
            }
            let weights = match (&a.dropping, &mut kept.mask, &mut kept.dropped) {
                (Some(drop), Some(mask), Some(dropped)) => {
                    let (mask, dropped) = (&mut mask[here.clone()], &mut dropped[here]);
                    for (row, query) in mask.chunks_exact_mut(n).zip(rows.clone()) {
                        drop.dice.mask(drop.row(b, h, a.first_query + query), 0, row);
                    }
                    dropout::apply(softmax, mask, drop.dice.scale(), dropped);
                    &*dropped
                }
                _ => &*softmax,
            };
            let (p, values) = (Matrix::new(weights, m, n, n), Matrix::new(head_v, n, d, d));
            multiply(MatrixMut::new(block_y, m, d, d), true, 1.0, p, values);
            scatter(a.heads * d, d, block_y, &mut y[a.query_at(b, h, rows.start)..]);
        }
    }
}

/// A row of scores to its softmax over the keys it sees, 0 elsewhere.
fn normalise(row: &mut [f32], seen: std::ops::Range<usize>) {
    row[..seen.start].fill(0.0);
    row[seen.end..].fill(0.0);
    let row = &mut row[seen];
    let largest = math::max(row);
    let total = math::exp_shifted(row, largest);
    if total != 0.0 {
        elementwise::scale(1.0 / total, row);
    }
}

/// Gradients dq, dk and dv (overwritten) from dy and what forward kept.
#[allow(clippy::too_many_arguments)]
pub fn backward(
    a: &Attention,
    dy: &[f32],
    q: &[f32],
    k: &[f32],
    v: &[f32],
    kept: &Kept<&[f32]>,
    dq: &mut [f32],
    dk: &mut [f32],
    dv: &mut [f32],
    workspace: &mut [f32],
) {
    let (d, n) = (a.head_dim, a.keys);
    for (b, shared) in a.key_heads() {
        let [head_k, head_v, head_dk, head_dv, rest] = cut(workspace, [n * d, n * d, n * d, n * d]);
        gather(a.kv_heads * d, d, &k[a.key_at(b, shared)..], head_k);
        gather(a.kv_heads * d, d, &v[a.key_at(b, shared)..], head_v);
        head_dk.fill(0.0);
        head_dv.fill(0.0);
        for (h, rows) in a.query_blocks(shared) {
            let (m, at) = (rows.len(), a.query_at(b, h, rows.start));
            let [block_q, block_dy, block_dq, ds, _] = cut(rest, [m * d, m * d, m * d, m * n]);
            gather(a.heads * d, d, &q[at..], block_q);
            gather(a.heads * d, d, &dy[at..], block_dy);
            let scores = a.lse_at(b, h, &rows);
            let here = scores.start * n..scores.end * n;
            let softmax = &kept.softmax[here.clone()];
            let weights = kept.dropped.map_or(softmax, |dropped| &dropped[here.clone()]);
            let (q, dy) = (Matrix::new(block_q, m, d, d), Matrix::new(block_dy, m, d, d));
            let (keys, values) = (Matrix::new(head_k, n, d, d), Matrix::new(head_v, n, d, d));
            multiply(MatrixMut::new(ds, m, n, n), true, 1.0, dy, values.transposed());
            if let (Some(drop), Some(mask)) = (&a.dropping, kept.mask) {
                dropout::apply_to(&mask[here], drop.dice.scale(), ds);
            }
            for (p, ds) in softmax.chunks_exact(n).zip(ds.chunks_exact_mut(n)) {
                let delta = math::sum2(p, ds, |p, ds| p * ds);
                p.iter().zip(ds).for_each(|(p, ds)| *ds = p * (*ds - delta) * a.scale);
            }
            let (p, ds) = (Matrix::new(weights, m, n, n), Matrix::new(ds, m, n, n));
            multiply(MatrixMut::new(head_dv, n, d, d), false, 1.0, p.transposed(), dy);
            multiply(MatrixMut::new(head_dk, n, d, d), false, 1.0, ds.transposed(), q);
            multiply(MatrixMut::new(block_dq, m, d, d), true, 1.0, ds, keys);
            scatter(a.heads * d, d, block_dq, &mut dq[at..]);
        }
        scatter(a.kv_heads * d, d, head_dk, &mut dk[a.key_at(b, shared)..]);
        scatter(a.kv_heads * d, d, head_dv, &mut dv[a.key_at(b, shared)..]);
    }
}
