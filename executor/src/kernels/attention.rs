//! Blocked attention (FlashAttention-2, arXiv 2307.08691): a block of queries meets one block of keys at a time,
//! with a running maximum and sum, so memory is O(block) and no score matrix is ever whole. Invariant: the keys that
//! a query sees form one range, and both ends of that range grow with the query; blocks outside it are skipped.
//! The gradient computes the probabilities again from the saved logarithm of each row's sum.

use std::num::NonZeroUsize;
use std::ops::Range;

use super::gemm::{Matrix, MatrixMut, multiply};
use super::math;

/// Queries taken together.
const QUERY_BLOCK: usize = 64;
/// Keys taken together.
const KEY_BLOCK: usize = 256;

/// Which keys a query may see, before the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mask {
    /// All of them.
    Full,
    /// Those at its own and at earlier positions.
    Causal,
}

/// Sizes and mask of one (local) attention: q and y `[batch, queries, heads * head_dim]`,
/// k and v `[batch, keys, kv_heads * head_dim]`, lse `[batch, heads, queries]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attention {
    /// Sequences.
    pub batch: usize,
    /// Local queries of a sequence.
    pub queries: usize,
    /// Keys of a sequence; equal to `queries` unless the query sequence is sharded.
    pub keys: usize,
    /// Position of the first query among the keys; 0 unless the query sequence is sharded.
    pub first_query: usize,
    /// Query heads, a multiple of `kv_heads`: consecutive query heads share one key head.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Features of one head.
    pub head_dim: usize,
    /// Multiplies the scores; usually 1/sqrt(head_dim).
    pub scale: f32,
    /// Which keys a query may see.
    pub mask: Mask,
    /// With a window w, only keys at a distance under w.
    pub window: Option<NonZeroUsize>,
}

/// Elements of workspace that [`forward`] and [`backward`] need.
pub fn workspace(a: &Attention) -> usize {
    let (rows, columns) = (QUERY_BLOCK.min(a.queries), KEY_BLOCK.min(a.keys));
    2 * rows * columns + 2 * rows
}

/// y = softmax(scale · q·kᵀ)·v over the visible keys, and lse = the logarithm of each row's sum of exponentials
/// (nats). A query that sees no key gets y = 0 and lse = -inf.
pub fn forward(
    a: &Attention,
    q: &[f32],
    k: &[f32],
    v: &[f32],
    y: &mut [f32],
    lse: &mut [f32],
    workspace: &mut [f32],
) {
    a.check(&[q.len(), y.len()], &[k.len(), v.len()], lse.len());
    let (queries, keys) = (a.heads * a.head_dim, a.kv_heads * a.head_dim);
    for block in a.blocks() {
        let rows = block.rows.len();
        let (maximum, rest) = workspace.split_at_mut(rows);
        let (total, rest) = rest.split_at_mut(rows);
        maximum.fill(f32::NEG_INFINITY);
        total.fill(0.0);
        let q = Matrix::new(&q[block.query..], rows, a.head_dim, queries);
        let y = &mut y[block.query..];
        let seen = a.seen(&block.rows);
        for start in seen.clone().step_by(KEY_BLOCK) {
            let columns = start..(start + KEY_BLOCK).min(seen.end);
            let scores = &mut rest[..rows * columns.len()];
            let at = block.key + start * keys;
            let k = Matrix::new(&k[at..], columns.len(), a.head_dim, keys);
            let v = Matrix::new(&v[at..], columns.len(), a.head_dim, keys);
            let first = start == seen.start;
            multiply(
                MatrixMut::new(scores, rows, columns.len(), columns.len()),
                true,
                a.scale,
                q,
                k.transposed(),
            );
            soften(a, &block.rows, &columns, scores, maximum, total, if first { &mut [] } else { y });
            let scores = Matrix::new(scores, rows, columns.len(), columns.len());
            multiply(MatrixMut::new(y, rows, a.head_dim, queries), first, 1.0, scores, v);
        }
        for (r, lse) in lse[block.statistics.clone()].iter_mut().enumerate() {
            let y = &mut y[r * queries..r * queries + a.head_dim];
            match total[r] > 0.0 || total[r].is_nan() {
                true => super::elementwise::scale(1.0 / total[r], y),
                false => y.fill(0.0),
            }
            *lse = maximum[r] + total[r].ln();
        }
    }
}

simd! {
    /// Turns a block of scores into e^(score - maximum), zero where masked; brings maximum, total and the rows of
    /// `y` gathered so far (none in the first block) to the new maximum.
    fn soften(
        a: &Attention,
        rows: &Range<usize>,
        columns: &Range<usize>,
        scores: &mut [f32],
        maximum: &mut [f32],
        total: &mut [f32],
        y: &mut [f32],
    ) {
        for (r, row) in scores.chunks_exact_mut(columns.len()).enumerate() {
            let open = a.open(rows.start + r, columns);
            row[..open.start].fill(0.0);
            row[open.end..].fill(0.0);
            if open.is_empty() {
                continue;
            }
            let row = &mut row[open];
            let largest = math::max(row).max(maximum[r]);
            let kept = math::exp(maximum[r] - largest);
            total[r] = total[r] * kept + math::exp_shifted(row, largest);
            maximum[r] = largest;
            if !y.is_empty() && kept != 1.0 {
                for y in &mut y[r * a.heads * a.head_dim..][..a.head_dim] {
                    *y *= kept;
                }
            }
        }
    }
}

/// Gradients dq, dk and dv (overwritten) from dy and the saved q, k, v, y and lse.
#[allow(clippy::too_many_arguments)]
pub fn backward(
    a: &Attention,
    dy: &[f32],
    q: &[f32],
    k: &[f32],
    v: &[f32],
    y: &[f32],
    lse: &[f32],
    dq: &mut [f32],
    dk: &mut [f32],
    dv: &mut [f32],
    workspace: &mut [f32],
) {
    a.check(&[dy.len(), q.len(), y.len(), dq.len()], &[k.len(), v.len(), dk.len(), dv.len()], lse.len());
    let (d, queries, keys) = (a.head_dim, a.heads * a.head_dim, a.kv_heads * a.head_dim);
    dq.fill(0.0);
    dk.fill(0.0);
    dv.fill(0.0);
    for block in a.blocks() {
        let rows = block.rows.len();
        let (deltas, rest) = workspace.split_at_mut(rows);
        let (p, ds) = rest.split_at_mut(rows * KEY_BLOCK.min(a.keys));
        row_dots(d, queries, &dy[block.query..], &y[block.query..], deltas);
        let q = Matrix::new(&q[block.query..], rows, d, queries);
        let dy = Matrix::new(&dy[block.query..], rows, d, queries);
        let seen = a.seen(&block.rows);
        for start in seen.clone().step_by(KEY_BLOCK) {
            let columns = start..(start + KEY_BLOCK).min(seen.end);
            let (n, at) = (columns.len(), block.key + start * keys);
            let (p, ds) = (&mut p[..rows * n], &mut ds[..rows * n]);
            let k = Matrix::new(&k[at..], n, d, keys);
            let v = Matrix::new(&v[at..], n, d, keys);
            multiply(MatrixMut::new(p, rows, n, n), true, a.scale, q, k.transposed());
            multiply(MatrixMut::new(ds, rows, n, n), true, 1.0, dy, v.transposed());
            slopes(a, &block.rows, &columns, &lse[block.statistics.clone()], deltas, p, ds);
            let (p, ds) = (Matrix::new(p, rows, n, n), Matrix::new(ds, rows, n, n));
            multiply(MatrixMut::new(&mut dv[at..], n, d, keys), false, 1.0, p.transposed(), dy);
            multiply(MatrixMut::new(&mut dq[block.query..], rows, d, queries), false, 1.0, ds, k);
            multiply(MatrixMut::new(&mut dk[at..], n, d, keys), false, 1.0, ds.transposed(), q);
        }
    }
}

simd! {
    /// deltas[r] = dy[r]·y[r] over one head of each row.
    fn row_dots(width: usize, stride: usize, dy: &[f32], y: &[f32], deltas: &mut [f32]) {
        for (r, delta) in deltas.iter_mut().enumerate() {
            let row = r * stride..r * stride + width;
            *delta = math::sum2(&dy[row.clone()], &y[row], |dy, y| dy * y);
        }
    }
}

simd! {
    /// p: scores to probabilities e^(score - lse); ds: dp to p (dp - delta) scale. Masked entries become zero.
    fn slopes(
        a: &Attention,
        rows: &Range<usize>,
        columns: &Range<usize>,
        lse: &[f32],
        deltas: &[f32],
        p: &mut [f32],
        ds: &mut [f32],
    ) {
        let pairs = p.chunks_exact_mut(columns.len()).zip(ds.chunks_exact_mut(columns.len()));
        for (r, (p, ds)) in pairs.enumerate() {
            let open = a.open(rows.start + r, columns);
            for masked in [0..open.start, open.end..columns.len()] {
                p[masked.clone()].fill(0.0);
                ds[masked].fill(0.0);
            }
            let (shift, delta, scale) = (lse[r], deltas[r], a.scale);
            for (p, ds) in p[open.clone()].iter_mut().zip(&mut ds[open]) {
                *p = math::exp(*p - shift);
                *ds = *p * (*ds - delta) * scale;
            }
        }
    }
}

/// One block of queries of one head of one sequence.
struct Block {
    /// Local queries.
    rows: Range<usize>,
    /// Where its first query lies in q, y and their gradients.
    query: usize,
    /// Where the first key of its sequence and head lies in k, v and their gradients.
    key: usize,
    /// Where its rows lie in lse.
    statistics: Range<usize>,
}

impl Attention {
    /// Floating-point operations of the two products of the forward pass over visible pairs; the backward pass
    /// has five products of the same size, so 2.5 times as many.
    pub fn flops(&self) -> f64 {
        let pairs: usize = (0..self.queries).map(|query| self.visible(query).len()).sum();
        4.0 * (self.batch * self.heads * self.head_dim) as f64 * pairs as f64
    }

    fn check(&self, queries: &[usize], keys: &[usize], lse: usize) {
        let tokens = self.batch * self.queries;
        assert_eq!(self.heads % self.kv_heads, 0, "query heads are no multiple of key heads: {self:?}");
        assert!(
            queries.iter().all(|len| *len == tokens * self.heads * self.head_dim),
            "{queries:?}: {self:?}"
        );
        let needed = self.batch * self.keys * self.kv_heads * self.head_dim;
        assert!(keys.iter().all(|len| *len == needed), "{keys:?}: {self:?}");
        assert_eq!(lse, tokens * self.heads, "lse: {self:?}");
    }

    /// All blocks; a key head's blocks follow one another.
    fn blocks(&self) -> impl Iterator<Item = Block> {
        let a = *self;
        let heads = (0..a.batch).flat_map(move |b| (0..a.heads).map(move |h| (b, h)));
        heads.flat_map(move |(b, h)| {
            (0..a.queries).step_by(QUERY_BLOCK).map(move |start| {
                let rows = start..(start + QUERY_BLOCK).min(a.queries);
                let lse = (b * a.heads + h) * a.queries;
                Block {
                    query: ((b * a.queries + start) * a.heads + h) * a.head_dim,
                    key: (b * a.keys * a.kv_heads + h / (a.heads / a.kv_heads)) * a.head_dim,
                    statistics: lse + rows.start..lse + rows.end,
                    rows,
                }
            })
        })
    }

    /// Keys that a local query sees.
    fn visible(&self, query: usize) -> Range<usize> {
        let position = self.first_query + query;
        let reach = self.window.map_or(usize::MAX, NonZeroUsize::get);
        let end = match self.mask {
            Mask::Causal => position + 1,
            Mask::Full => position.saturating_add(reach),
        };
        let end = end.min(self.keys);
        (position + 1).saturating_sub(reach).min(end)..end
    }

    /// Keys that any query of a block sees.
    fn seen(&self, rows: &Range<usize>) -> Range<usize> {
        self.visible(rows.start).start..self.visible(rows.end - 1).end
    }

    /// The part of a block of keys that a query sees, counted from the block's start.
    #[inline(always)]
    fn open(&self, query: usize, columns: &Range<usize>) -> Range<usize> {
        let seen = self.visible(query);
        let clip = |key: usize| key.clamp(columns.start, columns.end) - columns.start;
        clip(seen.start)..clip(seen.end)
    }
}
