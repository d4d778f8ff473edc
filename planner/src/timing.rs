//! The times of one stage, from its blocks' expansions: forward and backward of every block, then what follows the last
//! micro-batch, as lowering lists it. The invariant: what a stage synchronises and updates are its own parameters, and
//! where replicas split their states each updates its piece and gathers the others'.

use crate::chain::{Chain, Own};
use crate::closed_form::StageTime;
use crate::work::Step;
use meshwright_algebra::Scope;
use meshwright_ir::program::{CollectiveKind, Kernel};
use meshwright_ir::{Axis, AxisSet, DType, Storage};
use std::collections::BTreeMap;

impl Chain<'_, '_> {
    /// Times of blocks `first..end` as a stage, which take these versions.
    pub(crate) fn time_of(&self, stage: usize, first: usize, end: usize, versions: &[usize]) -> StageTime {
        let scene = self.scene();
        let step = Step::of(&scene.job.training, scene.point.pieces());
        let blocks = || (first..end).zip(versions).map(|(k, v)| self.level(k, *v));
        let own = || scene.blocks[first..end].iter().map(|c| self.own_of(*c as usize, first, end));
        let mut norm = own().map(|o| o.norm).sum::<u64>() + self.tied_sum(stage, &scene.blocks[first..end]);
        if step.clips {
            let axes = norm_axes(scene.point.zero, |a| scene.point.degree(a));
            norm += scene.prices.collective(CollectiveKind::AllReduceSum, axes, 1, DType::F32);
        }
        StageTime {
            forward: blocks().map(|b| b.forward).sum(),
            backward: blocks().map(|b| b.backward).collect(),
            compute: blocks().map(|b| b.compute).sum(),
            sync: own().map(|o| o.sync).collect(),
            norm,
            update: finished(own().map(|o| (o.update, o.gather))),
        }
    }

    /// What a step does to these parameters of a block: those that are summed over the same axes and stored alike together.
    pub(crate) fn own(&self, params: &[(&Scope, Storage)]) -> Own {
        let scene = self.scene();
        let (step, prices) = (Step::of(&scene.job.training, scene.point.pieces()), scene.prices);
        let time = |k: &Kernel| prices.kernel(k);
        let mut groups: BTreeMap<(AxisSet, Storage), Vec<&Scope>> = BTreeMap::new();
        for (p, storage) in params {
            groups.entry((p.sync, *storage)).or_default().push(*p);
        }
        let stored = |whole: bool| {
            self.states(params.iter().map(|(p, s)| (*p, if whole { Storage::WHOLE } else { *s })))
        };
        let mut own = Own { states: [stored(false), stored(true)], ..Own::default() };
        for ((axes, storage), members) in groups {
            let pieces = storage.pieces(&scene.point.mesh);
            let all: u64 = members.iter().map(|p| p.elements).sum();
            let update = |p: &&Scope| step.update_kernel(p.elements / pieces, p.decays, &time);
            own.sync += step.sync(axes, all, pieces > 1, prices);
            own.norm += step.norm(all / pieces, &time);
            own.update += members.iter().map(update).sum::<u64>();
            own.gather += if pieces > 1 { step.gather(all, prices) } else { 0 };
        }
        own
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
fn finished(updates: impl Iterator<Item = (u64, u64)>) -> u64 {
    let (mut updated, mut gathered) = (0u64, 0u64);
    for (update, gather) in updates {
        updated += update;
        if gather > 0 {
            gathered = gathered.max(updated) + gather;
        }
    }
    updated.max(gathered)
}
