//! Lookup of token rows in a vocabulary shard, lookup of position rows, and their gradients. A token outside
//! the shard yields a row of zeros, so that the sum over the shards is the lookup in the whole table.

use super::elementwise::accumulate;

/// The part of the vocabulary that a table `[rows, width]` holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Global id of the table's first row.
    pub offset: usize,
    /// Features of one row.
    pub width: usize,
}

impl Shard {
    /// Where the row of `id` lies in a table of `len` elements, if it does.
    fn row(&self, id: u32, len: usize) -> Option<std::ops::Range<usize>> {
        let start = (id as usize).checked_sub(self.offset)?.checked_mul(self.width)?;
        (start < len).then(|| start..start + self.width)
    }
}

/// `y[r] = table[ids[r] - offset]`, or zeros where the id is in another shard; y `[rows, width]`.
pub fn forward(shard: &Shard, table: &[f32], ids: &[u32], y: &mut [f32]) {
    assert_eq!((table.len() % shard.width, y.len()), (0, ids.len() * shard.width));
    for (id, y) in ids.iter().zip(y.chunks_exact_mut(shard.width)) {
        match shard.row(*id, table.len()) {
            Some(row) => y.copy_from_slice(&table[row]),
            None => y.fill(0.0),
        }
    }
}

/// `dtable[ids[r] - offset] += dy[r]` in row order; `first` zeroes dtable before.
pub fn backward(shard: &Shard, dy: &[f32], ids: &[u32], dtable: &mut [f32], first: bool) {
    assert_eq!((dtable.len() % shard.width, dy.len()), (0, ids.len() * shard.width));
    if first {
        dtable.fill(0.0);
    }
    for (id, dy) in ids.iter().zip(dy.chunks_exact(shard.width)) {
        if let Some(row) = shard.row(*id, dtable.len()) {
            accumulate(dy, &mut dtable[row]);
        }
    }
}

/// Learned positions of a local `[batch, sequence, width]` tensor, rows of a table `[positions, width]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Positions {
    /// Local sequence length.
    pub sequence: usize,
    /// Features of one row.
    pub width: usize,
    /// Global position of the first local token.
    pub first_position: usize,
}

impl Positions {
    fn rows(&self) -> std::ops::Range<usize> {
        self.first_position * self.width..(self.first_position + self.sequence) * self.width
    }
}

/// `y[b, s] = table[first_position + s]` for every b.
pub fn positions_forward(at: &Positions, table: &[f32], y: &mut [f32]) {
    let rows = &table[at.rows()];
    assert_eq!(y.len() % rows.len(), 0, "{} elements are no batch of {at:?}", y.len());
    for y in y.chunks_exact_mut(rows.len()) {
        y.copy_from_slice(rows);
    }
}

/// `dtable[first_position + s]` += Σ over b of `dy[b, s]`; `first` zeroes the whole dtable before.
pub fn positions_backward(at: &Positions, dy: &[f32], dtable: &mut [f32], first: bool) {
    if first {
        dtable.fill(0.0);
    }
    let rows = &mut dtable[at.rows()];
    assert_eq!(dy.len() % rows.len(), 0, "{} elements are no batch of {at:?}", dy.len());
    for dy in dy.chunks_exact(rows.len()) {
        accumulate(dy, rows);
    }
}
