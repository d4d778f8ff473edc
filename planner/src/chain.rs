//! The chain of blocks under one choice of strategies: what any run of it takes as a stage, in bytes and in time, and how
//! much it recomputes to fit. The invariant: bytes are those of `algebra::stage_memory`, in closed form.

use crate::candidate::Scenario;
use crate::family::{Expanded, Level};
use crate::levels::{Counts, Kind, Version, fastest, leanest};
use crate::stages::{possible, split};
use meshwright_algebra::{ALIGNMENT, Home, Scope, StageBlock, StageShape, stage_memory, storages};
use meshwright_ir::{AxisSet, Bytes, DType, Gathering, StagePlan, Storage};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a stage may do to fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
    /// How each class's parameters are stored.
    pub(crate) storage: Vec<Vec<Storage>>,
    sizes: Vec<Size>,
    /// Blocks of each class before each position.
    before: Vec<Vec<u64>>,
    /// Bytes of the tensor between blocks.
    boundary: u64,
    known: RefCell<BTreeMap<(usize, usize, usize), Option<u64>>>,
}

/// What a class takes.
struct Size {
    versions: Vec<Version>,
    /// Parameter states of a block, by itself and beside the owners of its tied parameters.
    states: [u64; 2],
    /// The same were no state split among replicas.
    whole: [u64; 2],
    /// Classes of those owners.
    owners: Vec<u32>,
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
    pub(crate) fn new(scene: &'s Scenario<'a>, classes: Vec<Arc<Expanded>>, frames: &'s [u64]) -> Self {
        let dtype = scene.job.training.precision.compute();
        let boundary = dtype.bytes(scene.family.boundary_elements).align(ALIGNMENT).get();
        let mut before = vec![vec![0; classes.len()]];
        for class in scene.blocks {
            let mut next = before[before.len() - 1].clone();
            next[*class as usize] += 1;
            before.push(next);
        }
        let (point, stages) = (&scene.point, frames.len() as u32);
        let stored = |(c, class): (usize, &Arc<Expanded>)| {
            let model = &scene.job.model;
            storages(model, c as u32, class.params(), stages, &point.mesh, point.storage())
        };
        let storage = classes.iter().enumerate().map(stored).collect();
        let mut chain = Self {
            scene,
            frames,
            classes,
            storage,
            sizes: vec![],
            before,
            boundary,
            known: RefCell::default(),
        };
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
        let model = &self.scene.job.model;
        let owner = |p: &Scope| p.tied.as_ref().and_then(|t| model.tied_to(t)).map(|o| o.0);
        let other = |p: &Scope| owner(p).filter(|o| *o as usize != class);
        let (shape, storage) = (self.shape(0), &self.storage[class]);
        let whole = vec![Storage::WHOLE; storage.len()];
        let states = |storage: &[Storage]| {
            [false, true].map(|shared| {
                let own = expanded.params().iter().zip(storage.iter().copied());
                self.states(own.filter(|(p, _)| !shared || other(p).is_none()), &shape)
            })
        };
        Size {
            versions: expanded.versions.iter().map(version).collect(),
            states: states(storage),
            whole: states(&whole),
            owners: expanded.params().iter().filter_map(other).collect(),
        }
    }

    /// Bytes of these parameters with their states, as the accountant lays them out.
    fn states<'p>(&self, params: impl Iterator<Item = (&'p Scope, Storage)>, shape: &StageShape) -> u64 {
        let aligned = |bytes: Bytes| bytes.align(ALIGNMENT).get();
        let states = u64::from(shape.precision.has_master()) + shape.optimizer.states();
        let mut gradients: BTreeMap<(AxisSet, u64), u64> = BTreeMap::new();
        let mut total = 0;
        for (p, storage) in params {
            let pieces = storage.pieces(&shape.mesh);
            total += aligned(shape.precision.compute().bytes(p.elements));
            total += states * aligned(DType::F32.bytes(p.elements / pieces));
            *gradients.entry((p.sync, pieces)).or_default() += p.elements;
        }
        total + gradients.values().map(|n| aligned(DType::F32.bytes(*n))).sum::<u64>()
    }

    fn count(&self, class: usize, first: usize, end: usize) -> u64 {
        self.before[end][class] - self.before[first][class]
    }

    /// Classes on a run, with their sizes and counts.
    fn here(&self, first: usize, end: usize) -> impl Iterator<Item = (usize, &Size, u64)> {
        let counted = move |(c, size)| (c, size, self.count(c, first, end));
        self.sizes.iter().enumerate().map(counted).filter(|(_, _, n)| *n > 0)
    }

    fn of_states(&self, first: usize, end: usize, which: &dyn Fn(&Size) -> [u64; 2]) -> u64 {
        let shared = |s: &Size| {
            !s.owners.is_empty() && s.owners.iter().all(|o| self.count(*o as usize, first, end) > 0)
        };
        self.here(first, end).map(|(_, s, n)| n * which(s)[usize::from(shared(s))]).sum()
    }

    /// Bytes of a stage that no level of recomputation changes: states, scalars, the stage's boundary.
    fn fixed(&self, stage: usize, first: usize, end: usize) -> u64 {
        let slots = self.scene.point.micro_batches.min(2);
        let sides = 2 * u64::from(stage + 1 < self.frames.len()) + u64::from(stage > 0);
        let handover = if end - first > 1 { 2 } else { 0 };
        let states = self.of_states(first, end, &|s| s.states);
        states + 2 * ALIGNMENT + (slots * sides + handover) * self.boundary
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
        if let Some(known) = self.known.borrow().get(&(stage, first, end)) {
            return *known;
        }
        let found = self.mixed(stage, first, end).map(|(time, _)| time);
        self.known.borrow_mut().insert((stage, first, end), found);
        found
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

    /// The version of every block under a cut: the fastest that fit, or those that hold least; and what that spares each
    /// stage. Of a class's blocks on a stage the first recompute most.
    pub(crate) fn versions(&self, stages: &[StagePlan], fit: Fit, least: bool) -> (Vec<usize>, Vec<Spared>) {
        let mut versions = Vec::with_capacity(self.scene.blocks.len());
        let mut spared = vec![];
        for (s, stage) in stages.iter().enumerate() {
            let (first, end) = (stage.first as usize, (stage.first + stage.blocks) as usize);
            let (plain, bytes) = self.plain(s, first, end);
            let kinds = self.kinds(first, end);
            let fits = self.fixed(s, first, end) + bytes <= self.scene.limit.get();
            let counts: Counts = match (least, fits) {
                (false, true) => kinds.iter().map(all_fastest).collect(),
                (false, false) if fit == Fit::Recomputing => {
                    self.mixed(s, first, end).expect("the cut made it fit").1
                }
                _ => leanest(&kinds, self.frames[s]),
            };
            let (mut time, mut frame, mut workspace) = (0, 0, 0);
            for (kind, counts) in kinds.iter().zip(&counts) {
                for (v, n) in kind.versions.iter().zip(counts).filter(|(_, n)| **n > 0) {
                    (time, frame) = (time + v.time * n, frame + v.frame * n);
                    workspace = v.workspace.max(workspace);
                }
            }
            let whole = self.of_states(first, end, &|s| s.whole);
            spared.push(Spared {
                recomputed: Bytes(bytes.saturating_sub(self.frames[s] * frame + workspace)),
                time: time.saturating_sub(plain),
                // Pieces of tiny parameters are padded, and may hold more than the whole.
                split: Bytes(whole.saturating_sub(self.of_states(first, end, &|s| s.states))),
            });
            versions.extend(self.placed(first, end, &counts));
        }
        (versions, spared)
    }

    /// Versions by block of a run, given how many of each class take each.
    fn placed(&self, first: usize, end: usize, counts: &Counts) -> Vec<usize> {
        let mut queues: BTreeMap<u32, std::vec::IntoIter<usize>> = BTreeMap::new();
        for ((class, ..), counts) in self.here(first, end).zip(counts) {
            let mut order: Vec<usize> = (0..counts.len()).collect();
            order.sort_by_key(|v| std::cmp::Reverse(self.classes[class].versions[*v].level));
            let queue: Vec<usize> =
                order.into_iter().flat_map(|v| std::iter::repeat_n(v, counts[v] as usize)).collect();
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
            gathering: Gathering::default(),
            bucket: Bytes::ZERO,
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
