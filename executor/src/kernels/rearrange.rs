//! Copies that gather and scatter pieces of a tensor along a dimension that is not the leading one, for
//! collectives that concatenate by rank. A tensor cut along dimension d is `[outer, pieces, block]`, block =
//! the piece's share of d times everything inside it.

/// Packs `[outer, pieces, block]` into `[pieces, outer, block]`: every piece becomes contiguous.
pub fn pack(pieces: usize, outer: usize, block: usize, whole: &[f32], packed: &mut [f32]) {
    swap_leading(outer, pieces, block, whole, packed);
}

/// Unpacks `[pieces, outer, block]` into `[outer, pieces, block]`: the inverse of [`pack`].
pub fn unpack(pieces: usize, outer: usize, block: usize, packed: &[f32], whole: &mut [f32]) {
    swap_leading(pieces, outer, block, packed, whole);
}

/// Takes piece `piece` of `[outer, pieces, block]` as `[outer, block]`.
pub fn slice_dim(pieces: usize, outer: usize, block: usize, piece: usize, whole: &[f32], part: &mut [f32]) {
    assert!(piece < pieces, "piece {piece} of {pieces}");
    assert_eq!((whole.len(), part.len()), (outer * pieces * block, outer * block));
    for o in 0..outer {
        let from = (o * pieces + piece) * block;
        part[o * block..(o + 1) * block].copy_from_slice(&whole[from..from + block]);
    }
}

/// `[a, b, block]` to `[b, a, block]`.
fn swap_leading(a: usize, b: usize, block: usize, from: &[f32], to: &mut [f32]) {
    assert_eq!((from.len(), to.len()), (a * b * block, a * b * block));
    for j in 0..b {
        for i in 0..a {
            let (source, target) = ((i * b + j) * block, (j * a + i) * block);
            to[target..target + block].copy_from_slice(&from[source..source + block]);
        }
    }
}
