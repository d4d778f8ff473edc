//! Conversion steps: the collective, and the packing around it where pieces are not contiguous.

use super::{BlockAction, Expander, UNPLACED};
use crate::apply;
use meshwright_ir::program::{CollectiveKind, Kernel};
use meshwright_ir::{Axis, AxisSet, Layout, Step};

impl Expander<'_> {
    pub(super) fn convert(
        &mut self,
        v: usize,
        tensor: u32,
        from: &Layout,
        steps: &[Step],
        shape: &[u64],
        may_overwrite: bool,
    ) -> u32 {
        let (mut at, mut layout) = (tensor, from.clone());
        for (k, step) in steps.iter().enumerate() {
            let next = apply(*step, &layout).expect("a checked conversion applies");
            at = self.step(v, at, *step, &layout, &next, shape, may_overwrite || k > 0);
            layout = next;
        }
        at
    }

    #[allow(clippy::too_many_arguments)]
    pub(super) fn step(
        &mut self,
        v: usize,
        tensor: u32,
        step: Step,
        from: &Layout,
        to: &Layout,
        shape: &[u64],
        may_overwrite: bool,
    ) -> u32 {
        let before = from.local(shape, self.mesh).expect("a checked plan cuts evenly");
        let after = to.local(shape, self.mesh).expect("a checked plan cuts evenly");
        let count = |dims: &[u64]| dims.iter().product::<u64>();
        let outer = |dims: &[u64], dim: u8| count(&dims[..dim as usize]);
        let dtype = self.tensors[tensor as usize].dtype;
        let label = format!("{}.{}", self.name_of(v), if self.into_backward { "gradient" } else { "copy" });
        match step {
            Step::AllReduce { axis } => {
                let out =
                    if may_overwrite { tensor } else { self.tensor(label, count(&after), dtype, UNPLACED) };
                self.collective(v, CollectiveKind::AllReduceSum, axis, count(&after), tensor, out)
            }
            Step::Slice { axis, dim } => {
                let out = self.tensor(label, count(&after), dtype, UNPLACED);
                let inner = count(&before[dim as usize + 1..]);
                let kernel = Kernel::Slice {
                    axes: AxisSet::of(axis),
                    outer: outer(&before, dim),
                    piece: after[dim as usize],
                    inner,
                    dtype,
                };
                self.emit(BlockAction::Kernel(kernel), vec![tensor], vec![out], v);
                out
            }
            Step::AllGather { axis, dim } => {
                let gathered = self.tensor(label.clone(), count(&after), dtype, UNPLACED);
                self.collective(v, CollectiveKind::AllGather, axis, count(&after), tensor, gathered);
                self.unpack(v, gathered, axis, &before, dim, label)
            }
            Step::ReduceScatter { axis, dim } => {
                let packed = self.pack(v, tensor, axis, &after, dim, label.clone());
                let out = self.tensor(label, count(&after), dtype, UNPLACED);
                self.collective(v, CollectiveKind::ReduceScatter, axis, count(&before), packed, out)
            }
            Step::AllToAll { axis, from, to } => {
                let packed = self.pack(v, tensor, axis, &piece(&before, to, &after), to, label.clone());
                let swapped = self.tensor(label.clone(), count(&after), dtype, UNPLACED);
                self.collective(v, CollectiveKind::AllToAll, axis, count(&before), packed, swapped);
                self.unpack(v, swapped, axis, &piece(&before, to, &after), from, label)
            }
        }
    }

    pub(super) fn collective(
        &mut self,
        v: usize,
        kind: CollectiveKind,
        axis: Axis,
        elements: u64,
        from: u32,
        to: u32,
    ) -> u32 {
        let dtype = self.tensors[from as usize].dtype;
        self.emit(
            BlockAction::Collective { kind, axes: AxisSet::of(axis), elements, dtype },
            vec![from],
            vec![to],
            v,
        );
        to
    }

    /// `[outer, parts, piece]` → `[parts, outer, piece]`, unless the pieces are contiguous already. `piece` is the shape of
    /// one part.
    pub(super) fn pack(
        &mut self,
        v: usize,
        tensor: u32,
        axis: Axis,
        piece: &[u64],
        dim: u8,
        label: String,
    ) -> u32 {
        let outer: u64 = piece[..dim as usize].iter().product();
        if outer == 1 {
            return tensor;
        }
        let (inner, parts) = (piece[dim as usize..].iter().product(), u64::from(self.mesh.degree(axis)));
        let dtype = self.tensors[tensor as usize].dtype;
        let out = self.tensor(label, outer * parts * inner, dtype, UNPLACED);
        self.emit(
            BlockAction::Kernel(Kernel::Pack { outer, parts, inner, dtype }),
            vec![tensor],
            vec![out],
            v,
        );
        out
    }

    pub(super) fn unpack(
        &mut self,
        v: usize,
        tensor: u32,
        axis: Axis,
        piece: &[u64],
        dim: u8,
        label: String,
    ) -> u32 {
        let outer: u64 = piece[..dim as usize].iter().product();
        if outer == 1 {
            return tensor;
        }
        let (inner, parts) = (piece[dim as usize..].iter().product(), u64::from(self.mesh.degree(axis)));
        let dtype = self.tensors[tensor as usize].dtype;
        let out = self.tensor(label, outer * parts * inner, dtype, UNPLACED);
        self.emit(
            BlockAction::Kernel(Kernel::Unpack { outer, parts, inner, dtype }),
            vec![tensor],
            vec![out],
            v,
        );
        out
    }
}

/// Shape of one part when `before` is cut along `dim` as `after` is.
fn piece(before: &[u64], dim: u8, after: &[u64]) -> Vec<u64> {
    let mut shape = before.to_vec();
    shape[dim as usize] = after[dim as usize];
    shape
}
