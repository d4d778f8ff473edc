//! Blocked attention (FlashAttention-2, arXiv 2307.08691): a block of queries meets one block of keys at a
//! time, with a running maximum and sum, so scores take O(block) memory and are never whole. Invariant: the
//! keys that a query sees form one range, and both ends of that range grow with the query; blocks outside it
//! are skipped. The gradient computes the probabilities again from the saved logarithm of each row's sum.

use std::num::NonZeroUsize;
use std::ops::Range;

use super::dropout::{self, Dropping};
use super::gemm::{Matrix, MatrixMut, multiply};
use super::math;

/// Queries taken together.
const QUERY_BLOCK: usize = 64;
/// Keys taken together.
const KEY_BLOCK: usize = 512;

/// Which keys a query may see, before the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mask {
    /// All of them.
    Full,
    /// Those at its own and at earlier positions.
    Causal,
}

/// Dropout of the softmax: of every (query, key), by its place in the whole.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DroppedScores {
    /// What is dropped.
    pub dice: Dropping,
    /// Place of the first sample in the global batch.
    pub first_sample: u64,
    /// Place of the first head among all.
    pub first_head: u64,
}

impl DroppedScores {
    /// Place of a query's row of scores; `query` counts from the sequence's start.
    pub(super) fn row(&self, b: usize, h: usize, query: usize) -> [u64; 3] {
        [self.first_sample + b as u64, self.first_head + h as u64, query as u64]
    }
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
    /// Dropout of the softmax, if any.
    pub dropping: Option<DroppedScores>,
}

/// Elements of workspace that [`forward`] and [`backward`] need: a few blocks, and the keys, values and their
/// gradients of one head.
pub fn workspace(a: &Attention) -> usize {
    let (rows, columns) = (QUERY_BLOCK.min(a.queries), KEY_BLOCK.min(a.keys));
    4 * a.keys * a.head_dim + 3 * rows * a.head_dim + 2 * rows * columns + 2 * rows + columns
}

/// y = softmax(scale · q·kᵀ)·v over the visible keys, and lse = the logarithm of each row's sum of
/// exponentials (nats). A query that sees no key gets y = 0 and lse = -inf.
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
    let d = a.head_dim;
    for (b, shared) in a.key_heads() {
        let [head_k, head_v, rest] = cut(workspace, [a.keys * d, a.keys * d]);
        gather(a.kv_heads * d, d, &k[a.key_at(b, shared)..], head_k);
        gather(a.kv_heads * d, d, &v[a.key_at(b, shared)..], head_v);
        for (h, rows) in a.query_blocks(shared) {
            let m = rows.len();
            let width = KEY_BLOCK.min(a.keys);
            let [block_q, block_y, maximum, total, row, rest] = cut(rest, [m * d, m * d, m, m, width]);
            gather(a.heads * d, d, &q[a.query_at(b, h, rows.start)..], block_q);
            block_y.fill(0.0);
            maximum.fill(f32::NEG_INFINITY);
            total.fill(0.0);
            let seen = a.seen(&rows);
            for start in seen.clone().step_by(KEY_BLOCK) {
                let columns = start..(start + KEY_BLOCK).min(seen.end);
                let (n, part) = (columns.len(), columns.start * d..columns.end * d);
                let scores = &mut rest[..m * n];
                let keys = Matrix::new(&head_k[part.clone()], n, d, d).transposed();
                multiply(MatrixMut::new(scores, m, n, n), true, a.scale, Matrix::new(block_q, m, d, d), keys);
                soften(a, &rows, &columns, scores, maximum, total, block_y);
                drop(a, (b, h), &rows, &columns, scores, row);
                let (p, values) = (Matrix::new(scores, m, n, n), Matrix::new(&head_v[part], n, d, d));
                multiply(MatrixMut::new(block_y, m, d, d), false, 1.0, p, values);
            }
            finish(d, maximum, total, block_y, &mut lse[a.lse_at(b, h, &rows)]);
            scatter(a.heads * d, d, block_y, &mut y[a.query_at(b, h, rows.start)..]);
        }
    }
}

/// Drops elements of a block of scores, or of their gradients, if the attention drops any; `row` is scratch.
fn drop(
    a: &Attention,
    (b, h): (usize, usize),
    rows: &Range<usize>,
    columns: &Range<usize>,
    scores: &mut [f32],
    row: &mut [f32],
) {
    let Some(dropping) = &a.dropping else { return };
    let mask = &mut row[..columns.len()];
    for (scores, query) in scores.chunks_exact_mut(columns.len()).zip(rows.clone()) {
        dropping.dice.mask(dropping.row(b, h, a.first_query + query), columns.start as u32, mask);
        dropout::apply_to(mask, dropping.dice.scale(), scores);
    }
}

/// Divides each row of `y` by its total and writes the logarithm of its sum; a row without keys stays zero.
fn finish(width: usize, maximum: &[f32], total: &[f32], y: &mut [f32], lse: &mut [f32]) {
    for (r, y) in y.chunks_exact_mut(width).enumerate() {
        lse[r] = maximum[r] + total[r].ln();
        if total[r] != 0.0 {
            super::elementwise::scale(1.0 / total[r], y);
        }
    }
}

simd! {
    /// Turns a block of scores into e^(score - maximum), zero where masked; brings maximum, total and the
    /// rows of `y` gathered so far to the new maximum.
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
            for y in &mut y[r * a.head_dim..(r + 1) * a.head_dim] {
                *y *= kept;
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
    let d = a.head_dim;
    let whole = a.keys * d;
    for (b, shared) in a.key_heads() {
        let [head_k, head_v, head_dk, head_dv, rest] = cut(workspace, [whole, whole, whole, whole]);
        gather(a.kv_heads * d, d, &k[a.key_at(b, shared)..], head_k);
        gather(a.kv_heads * d, d, &v[a.key_at(b, shared)..], head_v);
        head_dk.fill(0.0);
        head_dv.fill(0.0);
        for (h, rows) in a.query_blocks(shared) {
            let (m, at) = (rows.len(), a.query_at(b, h, rows.start));
            let width = KEY_BLOCK.min(a.keys);
            let [block_q, block_dy, block_dq, deltas, row, p, ds, _] =
                cut(rest, [m * d, m * d, m * d, m, width, m * width, m * width]);
            // The block of y is only needed for the deltas; its place is that of dq.
            gather(a.heads * d, d, &q[at..], block_q);
            gather(a.heads * d, d, &dy[at..], block_dy);
            gather(a.heads * d, d, &y[at..], block_dq);
            row_dots(d, block_dy, block_dq, deltas);
            block_dq.fill(0.0);
            let (q, dy) = (Matrix::new(block_q, m, d, d), Matrix::new(block_dy, m, d, d));
            let seen = a.seen(&rows);
            for start in seen.clone().step_by(KEY_BLOCK) {
                let columns = start..(start + KEY_BLOCK).min(seen.end);
                let (n, part) = (columns.len(), columns.start * d..columns.end * d);
                let (p, ds) = (&mut p[..m * n], &mut ds[..m * n]);
                let keys = Matrix::new(&head_k[part.clone()], n, d, d);
                let values = Matrix::new(&head_v[part.clone()], n, d, d);
                multiply(MatrixMut::new(p, m, n, n), true, a.scale, q, keys.transposed());
                multiply(MatrixMut::new(ds, m, n, n), true, 1.0, dy, values.transposed());
                drop(a, (b, h), &rows, &columns, ds, row);
                slopes(a, &rows, &columns, &lse[a.lse_at(b, h, &rows)], deltas, p, ds);
                drop(a, (b, h), &rows, &columns, p, row);
                let (p, ds) = (Matrix::new(p, m, n, n), Matrix::new(ds, m, n, n));
                multiply(MatrixMut::new(&mut head_dv[part.clone()], n, d, d), false, 1.0, p.transposed(), dy);
                multiply(MatrixMut::new(&mut head_dk[part], n, d, d), false, 1.0, ds.transposed(), q);
                multiply(MatrixMut::new(block_dq, m, d, d), false, 1.0, ds, keys);
            }
            scatter(a.heads * d, d, block_dq, &mut dq[at..]);
        }
        scatter(a.kv_heads * d, d, head_dk, &mut dk[a.key_at(b, shared)..]);
        scatter(a.kv_heads * d, d, head_dv, &mut dv[a.key_at(b, shared)..]);
    }
}

simd! {
    /// deltas[r] = dy[r]·y[r].
    fn row_dots(width: usize, dy: &[f32], y: &[f32], deltas: &mut [f32]) {
        let rows = dy.chunks_exact(width).zip(y.chunks_exact(width));
        for (delta, (dy, y)) in deltas.iter_mut().zip(rows) {
            *delta = math::sum2(dy, y, |dy, y| dy * y);
        }
    }
}

simd! {
    /// p: scores to probabilities e^(score - lse); ds: dp to p (dp - delta) scale. Masked entries become
    /// zero.
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

impl Attention {
    /// Floating-point operations of the two products of the forward pass over visible pairs; the backward
    /// pass has five products of the same size, so 2.5 times as many.
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

    /// Queries of a block at most.
    pub(super) fn block_rows(&self) -> usize {
        QUERY_BLOCK.min(self.queries)
    }

    /// Every (sequence, key head).
    pub(super) fn key_heads(&self) -> impl Iterator<Item = (usize, usize)> {
        let heads = self.kv_heads;
        (0..self.batch).flat_map(move |b| (0..heads).map(move |shared| (b, shared)))
    }

    /// Every (query head, block of queries) that shares one key head.
    pub(super) fn query_blocks(&self, shared: usize) -> impl Iterator<Item = (usize, Range<usize>)> {
        let (group, queries) = (self.heads / self.kv_heads, self.queries);
        let block = move |start: usize| start..(start + QUERY_BLOCK).min(queries);
        (shared * group..(shared + 1) * group)
            .flat_map(move |h| (0..queries).step_by(QUERY_BLOCK).map(move |start| (h, block(start))))
    }

    /// Where one head's part of a query's row lies in q, y and their gradients.
    pub(super) fn query_at(&self, b: usize, h: usize, query: usize) -> usize {
        ((b * self.queries + query) * self.heads + h) * self.head_dim
    }

    /// Where one head's part of the first key's row lies in k, v and their gradients.
    pub(super) fn key_at(&self, b: usize, shared: usize) -> usize {
        (b * self.keys * self.kv_heads + shared) * self.head_dim
    }

    /// Where the rows of one head lie in lse.
    pub(super) fn lse_at(&self, b: usize, h: usize, rows: &Range<usize>) -> Range<usize> {
        let head = (b * self.heads + h) * self.queries;
        head + rows.start..head + rows.end
    }

    /// Keys that a local query sees.
    pub(super) fn visible(&self, query: usize) -> Range<usize> {
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

/// Splits a workspace into pieces of the given lengths and the rest.
pub(super) fn cut<const N: usize, const M: usize>(
    workspace: &mut [f32],
    lengths: [usize; N],
) -> [&mut [f32]; M] {
    assert_eq!(N + 1, M);
    let mut rest = workspace;
    std::array::from_fn(|piece| {
        let here = std::mem::take(&mut rest);
        let (taken, left) = here.split_at_mut(lengths.get(piece).copied().unwrap_or(here.len()));
        rest = left;
        taken
    })
}

/// Copies one head of every row into contiguous rows, so that no product strides over the other heads:
/// strides that are powers of two would put all rows into a few cache sets.
pub(super) fn gather(stride: usize, width: usize, from: &[f32], to: &mut [f32]) {
    for (from, to) in from.chunks(stride).zip(to.chunks_exact_mut(width)) {
        to.copy_from_slice(&from[..width]);
    }
}

/// The inverse of [`gather`].
pub(super) fn scatter(stride: usize, width: usize, from: &[f32], to: &mut [f32]) {
    for (from, to) in from.chunks_exact(width).zip(to.chunks_mut(stride)) {
        to[..width].copy_from_slice(from);
    }
}
