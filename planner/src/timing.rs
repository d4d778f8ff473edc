//! The times of one stage, from its blocks' expansions: forward and backward of every block, then what follows the last
//! micro-batch, as lowering lists it. The invariant: what a stage synchronises and updates are its own parameters, and
//! where replicas split their states each updates its piece and gathers the others'.

use crate::chain::Chain;
use crate::closed_form::StageTime;
use crate::family::Level;
use crate::work::Step;
use meshwright_algebra::Scope;
use meshwright_ir::program::{CollectiveKind, Kernel};
use meshwright_ir::{Axis, AxisSet, DType, StagePlan};
use std::collections::BTreeMap;

impl Chain<'_, '_> {
    /// Times of a stage whose blocks take these versions.
    pub(crate) fn stage_time(&self, stage: usize, plan: &StagePlan, versions: &[usize]) -> StageTime {
        let scene = self.scene();
        let step = Step::of(&scene.job.training, scene.point.pieces());
        let (first, end) = (plan.first as usize, (plan.first + plan.blocks) as usize);
        let blocks: Vec<&Level> = (first..end).map(|k| self.level(k, versions[k])).collect();
        let prices = scene.prices;
        let time = |k: &Kernel| prices.kernel(k);
        let mut norm = 0;
        let mut sync = vec![];
        let mut updates = vec![];
        for k in first..end {
            let groups = self.groups(scene.blocks[k], &scene.blocks[first..end]);
            let mut update = 0;
            for ((_, pieces), members) in &groups {
                let all: u64 = members.iter().map(|p| p.elements).sum();
                norm += step.norm(all / pieces, &time);
                let each = members.iter().map(|p| step.update_kernel(p.elements / pieces, p.decays, &time));
                update += each.sum::<u64>();
            }
            let elements = |members: &[&Scope]| members.iter().map(|p| p.elements).sum();
            let summed = groups.iter().map(|((axes, n), m)| step.sync(*axes, elements(m), *n > 1, prices));
            sync.push(summed.sum());
            let split = groups.iter().filter(|((_, n), _)| *n > 1);
            let gathers = split.map(|(_, m)| step.gather(elements(m), prices)).sum();
            updates.push((update, gathers));
        }
        norm += self.tied_sum(stage, &scene.blocks[first..end]);
        if step.clips {
            let axes = norm_axes(scene.point.zero, |a| scene.point.degree(a));
            norm += prices.collective(CollectiveKind::AllReduceSum, axes, 1, DType::F32);
        }
        StageTime {
            forward: blocks.iter().map(|b| b.forward).sum(),
            backward: blocks.iter().map(|b| b.backward).collect(),
            compute: blocks.iter().map(|b| b.compute).sum(),
            sync,
            norm,
            update: finished(&updates),
        }
    }

    /// Parameters that a block of a stage owns, by the axes they are summed over and the pieces they are split into.
    fn groups(&self, class: u32, run: &[u32]) -> BTreeMap<(AxisSet, u64), Vec<&Scope>> {
        let (model, mesh) = (&self.scene().job.model, &self.scene().point.mesh);
        let mut groups: BTreeMap<(AxisSet, u64), Vec<&Scope>> = BTreeMap::new();
        for (p, storage) in self.classes[class as usize].params().iter().zip(&self.storage[class as usize]) {
            let owner = p.tied.as_ref().and_then(|t| model.tied_to(t)).map(|o| o.0);
            if owner.is_none_or(|o| o == class || !run.contains(&o)) {
                groups.entry((p.sync, storage.pieces(mesh))).or_default().push(p);
            }
        }
        groups
    }

    /// Summing the gradient of a tied parameter over the first and the last stage, on both of them.
    fn tied_sum(&self, stage: usize, run: &[u32]) -> u64 {
        let scene = self.scene();
        let last = scene.point.degree(Axis::Pp) as usize - 1;
        if last == 0 || (stage != 0 && stage != last) {
            return 0;
        }
        let classes = self.classes.iter().enumerate();
        let tied = classes.flat_map(|(c, e)| e.params().iter().map(move |p| (c as u32, p)));
        let shared = tied.filter_map(|(c, p)| {
            let (owner, _) = scene.job.model.tied_to(p.tied.as_ref()?)?;
            (run.contains(&c) != run.contains(&owner)).then_some(p.elements)
        });
        shared.map(|n| scene.prices.between_stages(n, DType::F32, [0, last as u32])).sum()
    }
}

/// Axes over which squared gradient norms are summed: those over which what a rank counts differs, which with split
/// states is all of them.
fn norm_axes(zero: bool, degree: impl Fn(Axis) -> u32) -> AxisSet {
    let counted = [Axis::Pp, Axis::Dp, Axis::Tp].into_iter().filter(|a| zero || *a != Axis::Dp);
    counted.filter(|a| degree(*a) > 1).collect()
}

/// When updates and gathers of all blocks are done: kernels follow each other, and each block's gather follows its
/// update and the gather before.
fn finished(updates: &[(u64, u64)]) -> u64 {
    let (mut updated, mut gathered) = (0u64, 0u64);
    for (update, gather) in updates {
        updated += update;
        if *gather > 0 {
            gathered = gathered.max(updated) + gather;
        }
    }
    updated.max(gathered)
}
