//! The times of one stage, from its blocks' expansions: forward and backward of every block beside what moves their
//! split parameters, then what follows the last micro-batch, as lowering lists it. The invariant: what a stage synchronises
//! and updates are its own parameters, and where replicas split their states each updates its piece.

use crate::chain::Chain;
use crate::closed_form::StageTime;
use crate::passes::{Turning, passes};
use meshwright_ir::program::{CollectiveKind, Kernel};
use meshwright_ir::{Axis, AxisSet, DType, Storage};
use std::collections::BTreeMap;

impl Chain<'_, '_> {
    /// Times of blocks `first..end` as a stage, which take these versions.
    pub(crate) fn time_of(&self, stage: usize, first: usize, end: usize, versions: &[usize]) -> StageTime {
        let scene = self.scene();
        let (step, point) = (scene.step(&self.keeping), &scene.point);
        let time = |k: &Kernel| scene.prices.kernel(k);
        let blocks = || (first..end).zip(versions).map(|(k, v)| self.level(k, *v));
        let own = || scene.blocks[first..end].iter().map(|c| self.own_of(*c as usize, first, end));
        let turning = |(k, v): (usize, &usize)| {
            let (level, moves) = (self.level(k, *v), self.moves(k));
            let (forward, backward) = (level.forward, level.backward);
            Turning { forward, backward, gather: moves.gather, scatter: moves.scatter, add: moves.add }
        };
        let turning: Vec<Turning> = (first..end).zip(versions).map(turning).collect();
        let passes = passes(&turning, point.schedule, point.micro_batches, self.keeping.gathering);
        let mut groups: BTreeMap<(AxisSet, Storage), u64> = BTreeMap::new();
        own().flat_map(|o| &o.groups).for_each(|(key, n)| *groups.entry(*key).or_default() += n);
        let mut norm = self.tied_sum(stage, &scene.blocks[first..end]);
        // What the last two slots hold is added when nothing is left to hide it.
        norm += turning.iter().take(2).map(|t| if point.micro_batches > 1 { t.add } else { 0 }).sum::<u64>();
        if step.clips {
            norm += step.norms(&groups, &point.mesh, &time);
            let axes = self.norm_axes();
            norm += scene.prices.collective(CollectiveKind::AllReduceSum, axes, 1, DType::F32);
        }
        StageTime {
            forward: passes.forward,
            first: passes.first,
            backward: passes.backward,
            compute: blocks().map(|b| b.compute).sum(),
            scatter: turning.iter().map(|t| t.scatter).collect(),
            sync: self.syncs(first, end),
            norm,
            update: finished(own().map(|o| (o.update, o.gather))),
        }
    }

    /// Summing gradients at the end of a step, by the block of a run whose backward completes them: going backward, those
    /// of one kind are put together until they fill a bucket.
    pub(crate) fn syncs(&self, first: usize, end: usize) -> Vec<u64> {
        let blocks = &self.scene().blocks[first..end];
        let mut syncs = vec![0; blocks.len()];
        let mut open: BTreeMap<(AxisSet, Storage), u64> = BTreeMap::new();
        for (k, class) in blocks.iter().enumerate().rev() {
            for (key, n) in &self.own_of(*class as usize, first, end).groups {
                let held = open.entry(*key).or_default();
                *held += n;
                if key.1.gradient || DType::F32.bytes(*held) >= self.keeping.bucket {
                    syncs[k] += self.sync(*key, std::mem::take(held));
                }
            }
        }
        let left = open.into_iter().filter(|(_, n)| *n > 0);
        syncs[0] += left.map(|(key, n)| self.sync(key, n)).sum::<u64>();
        syncs
    }

    /// Axes over which squared gradient norms are summed: those over which what a rank counts differs.
    fn norm_axes(&self) -> AxisSet {
        let split = self.storage.iter().flatten().fold(AxisSet::EMPTY, |all, s| all.union(s.over));
        let counted = |a: &Axis| matches!(a, Axis::Pp | Axis::Tp) || split.contains(*a);
        self.scene().point.mesh.active().iter().filter(counted).collect()
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
