//! The chain of blocks under one choice of strategies: what any run of it takes as a stage, in bytes and in time, and how
//! much it recomputes to fit. The invariant: bytes are those of `algebra::stage_memory`, in closed form.

use crate::candidate::Scenario;
use crate::family::{Expanded, Level};
use crate::levels::{Counts, Kind, Version, every, fastest, leanest};
use crate::parameters::Own;
use crate::space::Keeping;
use crate::stages::{Part, possible, split};
use meshwright_algebra::{ALIGNMENT, Home, StageBlock, StageShape, stage_memory};
use meshwright_ir::{Bytes, Gathering, StagePlan, Storage};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Most ways to recompute that a run of blocks is looked at in: every way for small stages, whose order of gradients may
/// matter as much as their time. A guess.
const MOST_WAYS: usize = 64;

/// What a stage may do to fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fit {
    /// Nothing: every block takes its fastest version.
    Plain,
    /// Recompute as much as it must.
    Recomputing,
    /// It need not fit.
    Unbounded,
}

/// A choice's chain, ready to be cut.
pub(crate) struct Chain<'s, 'a> {
    scene: &'s Scenario<'a>,
    /// Frames each stage holds.
    frames: &'s [u64],
    pub(crate) classes: Vec<Arc<Expanded>>,
    /// How what is split is kept.
    pub(crate) keeping: Keeping,
    /// How each class's parameters are stored.
    pub(crate) storage: Vec<Vec<Storage>>,
    sizes: Vec<Size>,
    /// Blocks of each class before each position.
    before: Vec<Vec<u64>>,
    /// For each block the end of the blocks of its class that follow it.
    alike: Vec<usize>,
    /// Bytes of the tensor between blocks.
    boundary: u64,
    known: RefCell<BTreeMap<(usize, Same), Option<u64>>>,
}

/// What runs of the same classes in the same order have in common: where the neighbours alike of their first and of their
/// last block end, and how many of each they hold.
pub(crate) type Same = [usize; 4];

/// What a block of a class takes.
struct Size {
    /// One micro-batch forward, whatever backward recomputes.
    forward: u64,
    versions: Vec<Version>,
    /// Classes that own its tied parameters, itself aside.
    owners: Vec<u32>,
    /// What its parameters take, by which of those owners are on the same stage, a bit for each.
    own: Vec<Own>,
    transit: Transit,
}

/// What of a block's split parameters passes through slots.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Transit {
    /// Bytes of its whole weights and its whole gradients with the pieces they are summed to.
    pub(crate) weights: u64,
    pub(crate) gradients: u64,
    /// Gathering those, summing these, and adding the pieces to what earlier micro-batches left.
    pub(crate) gather: u64,
    pub(crate) scatter: u64,
    pub(crate) add: u64,
}

/// What recomputation and split states do for one stage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Spared {
    /// Bytes that recomputing does not keep.
    pub(crate) recomputed: Bytes,
    /// What it takes, per micro-batch.
    pub(crate) time: u64,
    /// Bytes of parameter states that other replicas hold.
    pub(crate) split: Bytes,
}

impl<'s, 'a> Chain<'s, 'a> {
    pub(crate) fn new(
        scene: &'s Scenario<'a>,
        classes: Vec<Arc<Expanded>>,
        frames: &'s [u64],
        keeping: Keeping,
    ) -> Self {
        let dtype = scene.job.training.precision.compute();
        let boundary = dtype.bytes(scene.family.boundary_elements).align(ALIGNMENT).get();
        let mut before = vec![vec![0; classes.len()]];
        for class in scene.blocks {
            let mut next = before[before.len() - 1].clone();
            next[*class as usize] += 1;
            before.push(next);
        }
        let mut alike: Vec<usize> = (1..=scene.blocks.len()).collect();
        for k in (1..alike.len()).rev() {
            if scene.blocks[k - 1] == scene.blocks[k] {
                alike[k - 1] = alike[k];
            }
        }
        let mut chain = Self {
            scene,
            frames,
            classes,
            keeping,
            storage: vec![],
            sizes: vec![],
            before,
            alike,
            boundary,
            known: RefCell::default(),
        };
        chain.storage = (0..chain.classes.len()).map(|c| chain.stored(c)).collect();
        chain.sizes = (0..chain.classes.len()).map(|c| chain.size(c)).collect();
        chain
    }

    pub(crate) fn scene(&self) -> &'s Scenario<'a> {
        self.scene
    }

    /// A version of a block of the chain.
    pub(crate) fn level(&self, block: usize, version: usize) -> &Level {
        &self.classes[self.scene.blocks[block] as usize].versions[version]
    }

    fn size(&self, class: usize) -> Size {
        let expanded = &self.classes[class];
        let version = |v: &Level| {
            let input = if v.code.tensor_at(Home::Input).is_some() { self.boundary } else { 0 };
            Version {
                time: v.forward + v.backward,
                frame: v.code.frame.align(ALIGNMENT).get() + input,
                workspace: v.code.workspace.align(ALIGNMENT).get(),
            }
        };
        let owners = self.owners(class);
        let own = |mask: u64| self.own(&self.elsewhere(class, &owners, mask));
        Size {
            forward: expanded.versions[0].forward,
            versions: expanded.versions.iter().map(version).collect(),
            own: (0..1 << owners.len()).map(own).collect(),
            transit: self.transit(&self.elsewhere(class, &[], 0)),
            owners,
        }
    }

    /// What the parameters of a block of a run take.
    pub(crate) fn own_of(&self, class: usize, first: usize, end: usize) -> &Own {
        let size = &self.sizes[class];
        let here = |o: &u32| u64::from(self.count(*o as usize, first, end) > 0);
        let mask = size.owners.iter().enumerate().fold(0, |mask, (k, o)| mask | here(o) << k);
        &size.own[mask as usize]
    }

    fn count(&self, class: usize, first: usize, end: usize) -> u64 {
        self.before[end][class] - self.before[first][class]
    }

    /// Classes on a run, with their sizes and counts.
    fn here(&self, first: usize, end: usize) -> impl Iterator<Item = (usize, &Size, u64)> {
        let counted = move |(c, size)| (c, size, self.count(c, first, end));
        self.sizes.iter().enumerate().map(counted).filter(|(_, _, n)| *n > 0)
    }

    fn of_states(&self, first: usize, end: usize, whole: bool) -> u64 {
        self.here(first, end).map(|(c, _, n)| n * self.own_of(c, first, end).states[usize::from(whole)]).sum()
    }

    /// Bytes of a stage that no level of recomputation changes: states, scalars, the stage's boundary, slots.
    fn fixed(&self, stage: usize, first: usize, end: usize) -> u64 {
        let slots = self.scene.point.micro_batches.min(2);
        let sides = 2 * u64::from(stage + 1 < self.frames.len()) + u64::from(stage > 0);
        let handover = if end - first > 1 { 2 } else { 0 };
        let states = self.of_states(first, end, false) + self.in_transit(first, end);
        states + 2 * ALIGNMENT + (slots * sides + handover) * self.boundary
    }

    /// Bytes of a stage's slots for whole weights and gradients.
    fn in_transit(&self, first: usize, end: usize) -> u64 {
        let Gathering { reshard_after_forward, prefetch } = self.keeping.gathering;
        let (mut gathering, mut weights, mut kept) = (0, 0, 0);
        let (mut scattering, mut gradients) = (0, 0);
        for (_, size, n) in self.here(first, end) {
            let t = &size.transit;
            (weights, kept) = (t.weights.max(weights), kept + n * t.weights);
            gathering += if t.weights > 0 { n } else { 0 };
            gradients = t.gradients.max(gradients);
            scattering += if t.gradients > 0 { n } else { 0 };
        }
        let turns = if gathering > 1 { u64::from(prefetch) + 1 } else { gathering };
        let passes = scattering * self.scene.point.micro_batches;
        (if reshard_after_forward { turns * weights } else { kept }) + passes.min(2) * gradients
    }

    /// What passes through slots for a block of the chain.
    pub(crate) fn moves(&self, block: usize) -> &Transit {
        &self.sizes[self.scene.blocks[block] as usize].transit
    }

    /// Time, and bytes beside the fixed ones, of a run whose blocks all take their fastest version.
    fn plain(&self, stage: usize, first: usize, end: usize) -> (u64, u64) {
        let (mut time, mut frame, mut workspace) = (0, 0, 0);
        for (_, size, n) in self.here(first, end) {
            let v = &size.versions[0];
            (time, frame, workspace) = (time + n * v.time, frame + n * v.frame, v.workspace.max(workspace));
        }
        (time, self.frames[stage] * frame + workspace)
    }

    /// Time of blocks `first..end` as a stage; `None` where they do not fit.
    fn cost(&self, stage: usize, first: usize, end: usize, fit: Fit) -> Option<u64> {
        let (time, bytes) = self.plain(stage, first, end);
        if fit == Fit::Unbounded || self.fixed(stage, first, end) + bytes <= self.scene.limit.get() {
            return Some(time);
        }
        if fit == Fit::Plain {
            return None;
        }
        let key = (stage, self.same(first, end));
        if let Some(known) = self.known.borrow().get(&key) {
            return *known;
        }
        let found = self.mixed(stage, first, end).map(|(time, _)| time);
        self.known.borrow_mut().insert(key, found);
        found
    }

    /// What a run has in common with others.
    pub(crate) fn same(&self, first: usize, end: usize) -> Same {
        let (of_first, of_last) = (self.alike[first], self.alike[end - 1]);
        match of_first == of_last {
            true => [of_first, of_last, end - first, 0],
            false => {
                let start = (first..end).rev().find(|k| self.alike[*k] != of_last).map_or(first, |k| k + 1);
                [of_first, of_last, of_first - first, end - start]
            }
        }
    }

    fn mixed(&self, stage: usize, first: usize, end: usize) -> Option<(u64, Counts)> {
        let room = self.scene.limit.get().checked_sub(self.fixed(stage, first, end))?;
        fastest(&self.kinds(first, end), self.frames[stage], room)
    }

    fn kinds(&self, first: usize, end: usize) -> Vec<Kind<'_>> {
        self.here(first, end).map(|(_, s, n)| Kind { count: n, versions: &s.versions }).collect()
    }

    /// Whether some cut fits.
    pub(crate) fn fits(&self, fit: Fit) -> bool {
        possible(self.scene.blocks.len(), self.frames.len(), &|s, first, end| self.cost(s, first, end, fit))
    }

    /// The cut with the fastest bottleneck.
    pub(crate) fn cut(&self, fit: Fit) -> Option<Vec<StagePlan>> {
        split(self.scene.blocks.len(), self.frames.len(), &|s, first, end| self.cost(s, first, end, fit))
    }

    /// Every block of a run at its fastest.
    pub(crate) fn fastest(&self, first: usize, end: usize) -> Counts {
        self.kinds(first, end).iter().map(all_fastest).collect()
    }

    /// How many blocks of a run take each version: the fastest that fit, or those that hold least.
    pub(crate) fn counts(&self, stage: usize, first: usize, end: usize, fit: Fit, least: bool) -> Counts {
        let kinds = self.kinds(first, end);
        match (least, self.all_fit(stage, first, end)) {
            (false, true) => self.fastest(first, end),
            (false, false) if fit == Fit::Recomputing => {
                self.mixed(stage, first, end).expect("the cut made it fit").1
            }
            _ => leanest(&kinds, self.frames[stage]),
        }
    }

    /// Whether a run fits with every block at its fastest.
    fn all_fit(&self, stage: usize, first: usize, end: usize) -> bool {
        self.fixed(stage, first, end) + self.plain(stage, first, end).1 <= self.scene.limit.get()
    }

    /// What recomputation and split states do for each stage.
    pub(crate) fn spared(&self, stages: &[StagePlan], versions: &[usize]) -> Vec<Spared> {
        let of = |(s, stage): (usize, &StagePlan)| {
            let (first, end) = (stage.first as usize, (stage.first + stage.blocks) as usize);
            let (plain, bytes) = self.plain(s, first, end);
            let (mut time, mut frame, mut workspace) = (0, 0, 0);
            for (block, version) in self.scene.blocks[first..end].iter().zip(&versions[first..end]) {
                let v = &self.sizes[*block as usize].versions[*version];
                (time, frame, workspace) = (time + v.time, frame + v.frame, v.workspace.max(workspace));
            }
            let whole = self.of_states(first, end, true);
            Spared {
                recomputed: Bytes(bytes.saturating_sub(self.frames[s] * frame + workspace)),
                time: time.saturating_sub(plain),
                // Pieces of tiny parameters are padded, and may hold more than the whole.
                split: Bytes(
                    whole.saturating_sub(self.of_states(first, end, false) + self.in_transit(first, end)),
                ),
            }
        };
        stages.iter().enumerate().map(of).collect()
    }

    /// What a run may be as a stage: where all is fastest that alone, since all else takes longer; where blocks must
    /// recompute, each way to that none beats in both the backward and its end with all gradients summed. Where there are
    /// too many ways, one that no way beats, and nothing for their counts.
    pub(crate) fn ways(
        &self,
        stage: usize,
        first: usize,
        end: usize,
        fit: Fit,
    ) -> Vec<(Part, Option<Counts>)> {
        let Some(least) = self.cost(stage, first, end, fit) else { return vec![] };
        let kinds = self.kinds(first, end);
        let fastest = self.fastest(first, end);
        let part = |counts: &Counts| {
            let versions = self.placed(first, end, counts);
            self.time_of(stage, first, end, &versions).part()
        };
        if fit == Fit::Unbounded || self.all_fit(stage, first, end) {
            return vec![(part(&fastest), Some(fastest))];
        }
        let room = self.scene.limit.get() - self.fixed(stage, first, end);
        let Some(all) = every(&kinds, self.frames[stage], room, MOST_WAYS) else {
            let fast = part(&fastest);
            let forward: u64 = self.here(first, end).map(|(_, s, n)| n * s.forward).sum();
            let backward = fast.backward.max(least - forward);
            // Whatever recomputes, the first block's gradients are summed after all of backward.
            let after = self.moves(first).scatter + self.syncs(first, end)[0];
            let synced = fast.synced.max(backward + after);
            return vec![(Part { backward, synced, ..fast }, None)];
        };
        let mut ways: Vec<(Part, Option<Counts>)> = all.into_iter().map(|c| (part(&c), Some(c))).collect();
        ways.sort_by_key(|(p, _)| (p.backward, p.synced));
        let mut soonest = u64::MAX;
        ways.retain(|(p, _)| {
            let sooner = p.synced < soonest;
            soonest = soonest.min(p.synced);
            sooner
        });
        ways
    }

    /// Least forward and backward of every block.
    pub(crate) fn least(&self) -> Vec<(u64, u64)> {
        let of = |c: &u32| {
            let size = &self.sizes[*c as usize];
            (size.forward, size.versions[0].time - size.forward)
        };
        self.scene.blocks.iter().map(of).collect()
    }

    /// Versions by block of a run, given how many of each class take each. The first recompute most: theirs is the part of
    /// backward that most sums of gradients can overlap.
    pub(crate) fn placed(&self, first: usize, end: usize, counts: &Counts) -> Vec<usize> {
        let mut queues: BTreeMap<u32, std::vec::IntoIter<usize>> = BTreeMap::new();
        for ((class, ..), counts) in self.here(first, end).zip(counts) {
            // By falling time.
            let queue: Vec<usize> =
                (0..counts.len()).rev().flat_map(|v| std::iter::repeat_n(v, counts[v] as usize)).collect();
            queues.insert(class as u32, queue.into_iter());
        }
        let next = |class: &u32| queues.get_mut(class).and_then(Iterator::next);
        self.scene.blocks[first..end].iter().map(next).map(|v| v.expect("a version for each block")).collect()
    }

    /// What the stage's memory depends on beside its blocks.
    pub(crate) fn shape(&self, stage: usize) -> StageShape {
        let training = &self.scene.job.training;
        StageShape {
            stage: (stage as u32, self.frames.len() as u32),
            in_flight: self.frames[stage],
            micro_batches: self.scene.point.micro_batches,
            boundary_elements: self.scene.family.boundary_elements,
            precision: training.precision,
            optimizer: training.optimizer,
            mesh: self.scene.point.mesh,
            gathering: self.keeping.gathering,
            bucket: self.keeping.bucket,
        }
    }

    /// Exact arena of every stage.
    pub(crate) fn peaks(&self, stages: &[StagePlan], versions: &[usize]) -> Vec<Bytes> {
        let peak = |(s, stage): (usize, &StagePlan)| {
            let (first, end) = (stage.first as usize, (stage.first + stage.blocks) as usize);
            let block = |k: usize| {
                let class = self.scene.blocks[k];
                let code = &self.level(k, versions[k]).code;
                StageBlock { class, code, storage: &self.storage[class as usize] }
            };
            let chain: Vec<StageBlock<'_>> = (first..end).map(block).collect();
            stage_memory(&self.scene.job.model, &chain, &self.shape(s)).peak
        };
        stages.iter().enumerate().map(peak).collect()
    }
}

fn all_fastest(kind: &Kind<'_>) -> Vec<u64> {
    (0..kind.versions.len()).map(|v| if v == 0 { kind.count } else { 0 }).collect()
}
