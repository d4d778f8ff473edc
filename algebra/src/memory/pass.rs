//! Places within one block: tensors that forward leaves for backward lie in the block's share of a micro-batch's frame,
//! those that live within one pass in the workspace. The invariant: tensors alive at once do not overlap.

use super::ALIGNMENT;
use crate::expand::{BlockInstruction, Home, Tensor, is_unplaced};
use meshwright_ir::Bytes;
use meshwright_ir::program::Kernel;
use std::collections::BTreeMap;

/// Gives every tensor that forward writes and backward reads a place in the frame; returns the frame's size.
pub(crate) fn place_frame(
    tensors: &mut [Tensor],
    forward: &[BlockInstruction],
    backward: &[BlockInstruction],
) -> Bytes {
    let mut kept = vec![false; tensors.len()];
    backward.iter().flat_map(|i| &i.reads).for_each(|t| kept[*t as usize] = true);
    let mut size = Bytes::ZERO;
    for t in forward.iter().flat_map(|i| &i.writes).map(|t| *t as usize) {
        if kept[t] && is_unplaced(tensors[t].home) {
            tensors[t].home = Home::Frame(size);
            size += tensors[t].dtype.bytes(tensors[t].elements).align(ALIGNMENT);
        }
    }
    size
}

/// Gives every unplaced tensor of a pass a place in the workspace, first fit by time of birth; returns its size.
pub(crate) fn place_workspace(tensors: &mut [Tensor], pass: &[BlockInstruction]) -> Bytes {
    let mut lives: BTreeMap<u32, (usize, usize)> = BTreeMap::new();
    for (k, i) in pass.iter().enumerate() {
        for t in i.reads.iter().chain(&i.writes).filter(|t| is_unplaced(tensors[**t as usize].home)) {
            lives.entry(*t).or_insert((k, k)).1 = k;
        }
    }
    let mut order: Vec<(u32, (usize, usize))> = lives.into_iter().collect();
    order.sort_by_key(|(t, (first, _))| (*first, *t));
    let mut placed: Vec<(u64, u64, usize)> = Vec::new();
    let mut size = 0;
    for (t, (first, last)) in order {
        let bytes = tensors[t as usize].dtype.bytes(tensors[t as usize].elements).align(ALIGNMENT).0;
        // Those still alive when this one is born; lists are ordered by birth.
        let mut alive: Vec<(u64, u64)> = placed.iter().filter(|p| p.2 >= first).map(|p| (p.0, p.1)).collect();
        alive.sort_unstable();
        let offset =
            alive.iter().fold(0, |at, (from, to)| if at + bytes <= *from { at } else { at.max(*to) });
        placed.push((offset, offset + bytes, last));
        size = size.max(offset + bytes);
        tensors[t as usize].home = Home::Workspace(Bytes(offset));
    }
    Bytes(size)
}

/// Whether a kernel adds to what its output holds when told to.
pub fn accumulates(kernel: &Kernel) -> bool {
    use meshwright_ir::Op;
    use meshwright_ir::program::{OpKernel, Pass};
    match kernel {
        Kernel::Op(OpKernel { pass: Pass::BackwardWeight, .. }) => true,
        Kernel::Op(OpKernel { op: Op::CrossEntropy { .. }, pass: Pass::Forward, .. }) => true,
        Kernel::Op(_)
        | Kernel::Add { .. }
        | Kernel::Slice { .. }
        | Kernel::Pack { .. }
        | Kernel::Unpack { .. } => false,
        Kernel::Load { .. } | Kernel::SumSquares { .. } | Kernel::Update { .. } => false,
    }
}
