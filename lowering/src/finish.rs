//! What follows the last backward: gradients are summed over the axes on which they are partial, block by block while
//! earlier blocks still run backward; tied copies are added; the global norm is formed; every parameter is updated, and
//! where replicas split the optimizer state (ZeRO, Rajbhandari et al. 2020), each updates its piece and weights that are
//! not split are gathered again. Pieces of whole gradients and weights are summed and gathered in place.

use crate::stage::Writer;
use meshwright_algebra::GradientGroup;
use meshwright_ir::program::{Collective, CollectiveKind, Kernel};
use meshwright_ir::{Axis, AxisSet, DType, Storage};
use std::collections::BTreeMap;

impl Writer<'_, '_> {
    /// Sums gradients that are complete once this block's are, one coalesced collective per group: either those that are
    /// held in pieces or the others.
    pub(crate) fn synchronise(&mut self, block: usize, k: u32, in_pieces: bool) {
        let here = |g: &&GradientGroup| {
            g.block as usize == block && g.storage.gradient == in_pieces && !g.axes.is_empty()
        };
        let groups: Vec<GradientGroup> = self.memory.gradient_groups.iter().filter(here).cloned().collect();
        for group in groups {
            let buffers: Vec<u32> =
                group.members.iter().map(|(b, p)| self.params[*b as usize][*p as usize].1).collect();
            let at = self.global_block(block);
            // Pieces of split gradients were summed over the axes that split them after every backward.
            let split = group.storage.over;
            let others = group.axes.minus(split);
            if !others.is_empty() {
                self.all_reduce(others, None, &buffers, k, at);
            }
            if group.storage.is_split() && !group.storage.gradient {
                self.in_place(CollectiveKind::ReduceScatter, split, None, DType::F32, &buffers, k, at);
            }
        }
    }

    fn all_reduce(&mut self, axes: AxisSet, stages: Option<Vec<u32>>, buffers: &[u32], k: u32, block: u16) {
        self.in_place(CollectiveKind::AllReduceSum, axes, stages, DType::F32, buffers, k, block);
    }

    #[allow(clippy::too_many_arguments)]
    fn in_place(
        &mut self,
        kind: CollectiveKind,
        axes: AxisSet,
        stages: Option<Vec<u32>>,
        dtype: DType,
        buffers: &[u32],
        k: u32,
        block: u16,
    ) {
        let elements = self.elements(buffers);
        let algorithm = self.algorithm(axes);
        let c = Collective { kind, axes, stages, elements, dtype, algorithm };
        self.collective(c, k, block, buffers, buffers);
    }

    /// Sums the loss over the axes on which it is partial: afterwards every rank of the stage holds the global one.
    pub(crate) fn loss(&mut self) {
        let Some(loss) = self.loss else { return };
        let last = self.classes.len() - 1;
        let class = &self.context.plan.classes[self.classes[last] as usize];
        let axes = class.outputs.last().expect("the head ends in the loss").produced.partial();
        if !axes.is_empty() {
            self.all_reduce(axes, None, &[loss], 0, self.global_block(last));
        }
    }

    /// Sums the gradients of a tied parameter's two copies, where they lie on different stages.
    pub(crate) fn tied_copies(&mut self) {
        for (owner, copy) in self.context.tied_copies() {
            if owner.stage == copy.stage || (self.stage != owner.stage && self.stage != copy.stage) {
                continue;
            }
            let here = if self.stage == owner.stage { &owner } else { &copy };
            let gradient = self.params[here.block][here.param].1;
            let stages = Some(vec![owner.stage as u32, copy.stage as u32]);
            self.all_reduce(AxisSet::of(Axis::Pp), stages, &[gradient], 0, self.global_block(here.block));
        }
    }

    /// The squared norm of all gradients: each rank counts its pieces, those held by several ranks divided among them.
    pub(crate) fn norm(&mut self) {
        let axes = self.context.norm_axes();
        let copied = |(o, c): &(crate::stage::TiedCopy, crate::stage::TiedCopy)| {
            o.stage != c.stage && c.stage == self.stage
        };
        let copies: Vec<String> =
            self.context.tied_copies().into_iter().filter(copied).map(|(_, c)| c.name).collect();
        let mesh = &self.context.plan.mesh;
        let mut groups: BTreeMap<(u64, AxisSet), Vec<u32>> = BTreeMap::new();
        for p in self.builder.code.parameters.iter().filter(|p| !copies.contains(&p.name)) {
            let held_by_all = |a: &Axis| p.layout.dim_of(*a).is_none() && !p.storage.over.contains(*a);
            let several = axes.without(Axis::Pp).iter().filter(held_by_all);
            let replicas = several.map(|a| u64::from(mesh.degree(a))).product();
            let piece = p.storage.over.minus(p.storage.of_gradient());
            groups.entry((replicas, piece)).or_default().push(p.gradient);
        }
        if groups.is_empty() {
            groups.insert((1, AxisSet::EMPTY), vec![]);
        }
        let (norm, block) = (self.norm, self.global_block(0));
        for (n, ((replicas, piece), buffers)) in groups.into_iter().enumerate() {
            let elements = self.elements(&buffers) / u64::from(mesh.size(piece));
            let kernel = Kernel::SumSquares { elements, replicas, accumulate: n > 0, piece };
            let reads: Vec<u32> = buffers.into_iter().chain((n > 0).then_some(norm)).collect();
            self.kernel(kernel, 0, block, &reads, &[norm]);
        }
        if !axes.is_empty() {
            self.all_reduce(axes, None, &[norm], 0, block);
        }
    }

    /// Updates every parameter, and gathers what replicas updated in pieces.
    pub(crate) fn updates(&mut self) {
        let training = &self.context.plan.job.training;
        let (optimizer, dtype) = (training.optimizer, training.precision.compute());
        let block = self.global_block(0);
        for p in self.builder.code.parameters.clone() {
            let Storage { over, weight, gradient } = p.storage;
            // Where weight and gradient are pieces already, nothing is left to cut.
            let piece = if weight && gradient { AxisSet::EMPTY } else { over };
            let pieces = p.storage.pieces(&self.context.plan.mesh);
            let elements = self.elements(&[p.weight]) / if weight { 1 } else { pieces };
            let kernel = Kernel::Update { optimizer, elements, dtype, decays: p.decays, piece };
            let state: Vec<u32> =
                std::iter::once(p.weight).chain(p.master).chain(p.moments.iter().copied()).collect();
            let reads: Vec<u32> = [p.gradient, self.norm].into_iter().chain(state.iter().copied()).collect();
            self.kernel(kernel, 0, block, &reads, &state);
        }
        let gathered_after = |g: &&GradientGroup| g.storage.is_split() && !g.storage.weight;
        let groups: Vec<GradientGroup> =
            self.memory.gradient_groups.iter().filter(gathered_after).cloned().collect();
        for g in groups {
            let weights: Vec<u32> =
                g.members.iter().map(|(b, p)| self.params[*b as usize][*p as usize].0).collect();
            let at = self.global_block(g.block as usize);
            self.in_place(CollectiveKind::AllGather, g.storage.over, None, dtype, &weights, 0, at);
        }
    }
}
