//! Which gradients share a collective. The invariant: a group's gradients are summed over the same axes, stored alike, and
//! complete once the backward of the group's first block is.

use super::StageBlock;
use meshwright_ir::{AxisSet, Bytes, DType, Storage};
use std::collections::BTreeMap;

/// Gradients that are summed together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GradientGroup {
    /// First of their blocks within the stage: the last to run backward.
    pub block: u32,
    /// Axes they are summed over.
    pub axes: AxisSet,
    /// How their parameters are stored.
    pub storage: Storage,
    /// Block of the stage and parameter of the block, in order.
    pub members: Vec<(u32, u32)>,
}

/// The groups of a stage, by first block. Going backward through its blocks, gradients of one kind are put together until
/// they hold `bucket` bytes; those that are split micro-batch by micro-batch are not put together across blocks. `owns`
/// says whether a parameter is the block's own.
pub fn gradient_groups(
    chain: &[StageBlock<'_>],
    bucket: Bytes,
    owns: &dyn Fn(usize, usize) -> bool,
) -> Vec<GradientGroup> {
    let mut groups: Vec<GradientGroup> = Vec::new();
    let mut open: BTreeMap<(AxisSet, Storage), (Bytes, GradientGroup)> = BTreeMap::new();
    for (b, block) in chain.iter().enumerate().rev() {
        let mut touched = Vec::new();
        for (p, scope) in block.code.params.iter().enumerate().filter(|(p, _)| owns(b, *p)).rev() {
            let (axes, storage) = (scope.sync, block.storage[p]);
            let fresh = GradientGroup { block: b as u32, axes, storage, members: vec![] };
            let (bytes, group) = open.entry((axes, storage)).or_insert((Bytes::ZERO, fresh));
            *bytes += DType::F32.bytes(scope.elements);
            group.block = b as u32;
            group.members.insert(0, (b as u32, p as u32));
            touched.push((axes, storage));
        }
        for key in touched {
            if open.get(&key).is_some_and(|(bytes, _)| key.1.gradient || *bytes >= bucket) {
                groups.extend(open.remove(&key).map(|(_, group)| group));
            }
        }
    }
    groups.extend(open.into_values().map(|(_, group)| group));
    groups.sort_by_key(|g| (g.block, g.axes, g.storage));
    groups
}
