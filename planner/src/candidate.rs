//! One point of the space, solved: strategies under a price per byte that falls until the stages just fit, levels of
//! recomputation that make the faster ones fit, the cut into stages, their memory to the byte, and the step's closed
//! form. The invariant: what is reported of memory is `algebra::stage_memory` of the very plan.

use crate::block::Load;
use crate::chain::{Chain, Fit, Spared};
use crate::closed_form::Breakdown;
use crate::cut::{Cut, Effort};
use crate::eliminate::Weigh;
use crate::family::{Chosen, Expanded, Family, Instance};
use crate::pricing::Prices;
use crate::space::{Keeping, Point};
use crate::variants::{Variant, Variants, variants};
use crate::work::{Step, data_axes};
use meshwright_algebra::schedules::{in_flight, order};
use meshwright_ir::{Axis, Bytes, Job, Recompute, StagePlan, Storage};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a point is solved with.
pub(crate) struct Scenario<'a> {
    pub(crate) job: &'a Job,
    pub(crate) point: Point,
    pub(crate) family: &'a Family<'a>,
    /// Prices on the point's own mesh.
    pub(crate) prices: &'a Prices<'a>,
    /// Bytes a rank's arena may take.
    pub(crate) limit: Bytes,
    /// Class of every block.
    pub(crate) blocks: &'a [u32],
    /// Whether to take the smallest choice rather than the fastest that fits.
    pub(crate) smallest: bool,
    /// Steps that take as long as this one are of no use.
    pub(crate) beat: u64,
}

/// A plan in all but name.
#[derive(Debug, Clone)]
pub(crate) struct Solved {
    pub(crate) point: Point,
    pub(crate) chosen: Chosen,
    pub(crate) classes: Vec<Arc<Expanded>>,
    /// How what is split is kept.
    pub(crate) keeping: Keeping,
    /// How each class's parameters are stored.
    pub(crate) storage: Vec<Vec<Storage>>,
    pub(crate) stages: Vec<StagePlan>,
    /// What backward recomputes, per block.
    pub(crate) recompute: Vec<Recompute>,
    /// What that and split states spare, per stage.
    pub(crate) spared: Vec<Spared>,
    /// Arena of each stage.
    pub(crate) peaks: Vec<Bytes>,
    pub(crate) time: Breakdown,
    /// Step time if nothing overlapped within a stage.
    pub(crate) in_turn: u64,
    /// Cost of the chosen block problem less its certified bound, per micro-batch.
    pub(crate) gap: u64,
    /// Step less a certified bound on that of every cut of the chain and every way to recompute.
    pub(crate) stage_gap: u64,
}

impl Solved {
    /// The largest arena.
    pub(crate) fn peak(&self) -> Bytes {
        self.peaks.iter().copied().max().unwrap_or_default()
    }
    /// What is not proved of the step: the block problem's gap in every block of the longest stage, and the stages' own.
    pub(crate) fn step_gap(&self) -> u64 {
        let blocks = self.stages.iter().map(|s| u64::from(s.blocks)).max().unwrap_or(0);
        self.gap * blocks * self.point.micro_batches + self.stage_gap
    }
    /// The stage with the largest arena.
    pub(crate) fn fullest(&self) -> usize {
        (0..self.peaks.len()).max_by_key(|s| (self.peaks[*s], std::cmp::Reverse(*s))).unwrap_or(0)
    }
}

/// What became of a point.
#[derive(Debug, Clone)]
pub(crate) enum Fate {
    /// It fits.
    Fits(Box<Solved>),
    /// Not even its smallest choice does.
    Short(Box<Solved>),
    /// Its fastest strategies take no less than what must be beaten, with memory to spare.
    Slow,
    /// It has no choice at all.
    Impossible(String),
}

/// Solves a point; also how many block problems that took.
pub(crate) fn solve_point(scene: &Scenario<'_>) -> (Fate, u64) {
    let frames = scene.frames();
    let instance = scene.family.instance(scene.load(&frames));
    let (found, solved) = variants(scene, &instance, &frames);
    let fate = match found {
        Variants::None => Fate::Impossible("no strategies go together".into()),
        Variants::Slow => Fate::Slow,
        Variants::Fitting(all) => {
            let mut best: Option<Solved> = None;
            for Variant { chosen, chains } in all {
                for chain in chains.iter().filter(|chain| chain.fits(Fit::Recomputing)) {
                    let effort = scene.effort(best.as_ref());
                    let next = scene.finish(chain, chosen.clone(), Fit::Recomputing, effort);
                    if best.as_ref().is_none_or(|b| scene.rank(&next) < scene.rank(b)) {
                        best = Some(next);
                    }
                }
            }
            Fate::Fits(Box::new(best.expect("one was seen to fit")))
        }
        Variants::Short(all) => {
            let of = |v: &Variant<'_, '_>| {
                let finish = |chain| scene.finish(chain, v.chosen.clone(), Fit::Unbounded, Effort::Least);
                v.chains.iter().map(finish).min_by_key(Solved::peak)
            };
            let least = all.iter().filter_map(of).min_by_key(Solved::peak);
            Fate::Short(Box::new(least.expect("the smallest choice is one")))
        }
    };
    (fate, solved)
}

/// Whether the smallest choice of a point fits.
pub(crate) fn smallest_fits(scene: &Scenario<'_>) -> bool {
    let frames = scene.frames();
    let instance = scene.family.instance(scene.load(&frames));
    let fits = |c: Chosen| scene.variant(&instance, c, &frames).fits(Fit::Recomputing);
    instance.choose(Weigh::MemoryThenCost).0.is_some_and(fits) || scene.lean(&frames).0.is_some_and(fits)
}

/// Takes the spare memory of a solved point into its most repeated class and solves that to proof.
pub(crate) fn tighten(scene: &Scenario<'_>, solved: Solved) -> Solved {
    let frames = scene.frames();
    let instance = scene.family.instance(scene.load(&frames));
    let mut counts: BTreeMap<u32, u64> = BTreeMap::new();
    scene.blocks.iter().for_each(|c| *counts.entry(*c).or_default() += 1);
    let Some(repeated) = counts.iter().max_by_key(|(c, n)| (**n, std::cmp::Reverse(**c))).map(|x| *x.0)
    else {
        return solved;
    };
    let spare = |(stage, peak): (&StagePlan, &Bytes)| {
        let run = &scene.blocks[stage.first as usize..][..stage.blocks as usize];
        let here = run.iter().filter(|c| **c == repeated).count() as u64;
        (here > 0).then(|| scene.limit.saturating_sub(*peak).get() / here)
    };
    let spare = solved.stages.iter().zip(&solved.peaks).filter_map(spare).min().unwrap_or(0);
    let (chosen, gap) = instance.tighten(&solved.chosen, spare);
    let effort = if scene.smallest { Effort::Least } else { Effort::Prove };
    let known = [solved.chosen.clone(), chosen];
    let known = if known[0] == known[1] { &known[..1] } else { &known };
    let keeping = solved.keeping;
    let mut best = Solved { gap, ..solved };
    for chosen in known {
        for bucket in BUCKETS {
            let chain = scene.chain(&instance, chosen, &frames, Keeping { bucket, ..keeping });
            if chain.fits(Fit::Recomputing) {
                let next = scene.finish(&chain, chosen.clone(), Fit::Recomputing, effort);
                if scene.rank(&next) <= scene.rank(&best) {
                    best = Solved { gap, ..next };
                }
            }
        }
    }
    best
}

/// Bytes of gradients that may share a collective, the least last, which wins among equals: all of a stage; what PyTorch
/// puts together by default (`DistributedDataParallel`'s `bucket_cap_mb`); those of one block.
const BUCKETS: [Bytes; 3] = [Bytes(1 << 40), Bytes(25 << 20), Bytes::ZERO];

impl<'a> Scenario<'a> {
    /// What is better is less.
    fn rank(&self, s: &Solved) -> (u64, u64) {
        if self.smallest { (s.peak().get(), s.time.step) } else { (s.time.step, s.peak().get()) }
    }

    /// What another choice's stages are worth once one is known.
    fn effort(&self, best: Option<&Solved>) -> Effort {
        match self.smallest {
            true => Effort::Least,
            false => Effort::Beat(best.map_or(self.beat, |b| b.time.step.min(self.beat))),
        }
    }

    fn stages(&self) -> u32 {
        self.point.degree(Axis::Pp)
    }

    /// What a step does to parameters that are kept so: weights are gathered for each pass of their block, or once.
    pub(crate) fn step(&self, keeping: &Keeping) -> Step {
        let m = self.point.micro_batches;
        let turns = if keeping.gathering.reshard_after_forward { 2 * m } else { 1 };
        Step::of(&self.job.training, keeping.storage(&self.point), &self.point.mesh, m, turns)
    }

    /// A choice's chain with parameters kept so.
    pub(crate) fn chain<'s>(
        &'s self,
        instance: &Instance<'_, '_>,
        chosen: &Chosen,
        frames: &'s [u64],
        keeping: Keeping,
    ) -> Chain<'s, 'a> {
        Chain::new(self, instance.expanded(chosen, data_axes(&self.point.mesh)), frames, keeping)
    }

    /// A choice's chains, by how what is split is kept.
    pub(crate) fn variant<'s>(
        &'s self,
        instance: &Instance<'_, '_>,
        chosen: Chosen,
        frames: &'s [u64],
    ) -> Variant<'s, 'a> {
        let keepings = self.point.keepings().into_iter();
        let chains = keepings.map(|k| self.chain(instance, &chosen, frames, k)).collect();
        Variant { chosen, chains }
    }

    /// Frames each stage holds at most.
    pub(crate) fn frames(&self) -> Vec<u64> {
        let m = self.point.micro_batches as u32;
        let of = |s| in_flight(&order(self.point.schedule, s, self.stages(), m));
        (0..self.stages()).map(of).collect()
    }

    pub(crate) fn load(&self, frames: &[u64]) -> Load<'a> {
        Load {
            step: self.step(&self.point.keepings()[0]),
            prices: self.prices,
            micro_batches: self.point.micro_batches,
            in_flight: frames.iter().copied().max().unwrap_or(1),
            shares_ties: self.stages() == 1,
        }
    }

    /// The choice with the least parameter states, whatever its frames, and how many block problems that took.
    pub(crate) fn lean(&self, frames: &[u64]) -> (Option<Chosen>, u64) {
        let load = Load { in_flight: 0, ..self.load(frames) };
        self.family.instance(load).choose(Weigh::MemoryThenCost)
    }

    /// Cuts, measures and times a choice.
    fn finish(&self, chain: &Chain<'_, '_>, chosen: Chosen, fit: Fit, effort: Effort) -> Solved {
        let Cut { stages, versions, time, gap } = chain.plan(fit, effort);
        let peaks = chain.peaks(&stages, &versions);
        assert!(
            fit == Fit::Unbounded || peaks.iter().all(|p| *p <= self.limit),
            "an arena is larger than its closed form"
        );
        let run = |s: &StagePlan| s.first as usize..(s.first + s.blocks) as usize;
        let in_turn = |s: &StagePlan| run(s).map(|k| chain.level(k, versions[k]).in_turn).sum::<u64>();
        let in_turn = stages.iter().map(in_turn).max().unwrap_or(0) * self.point.micro_batches;
        let in_turn = (time.step - time.compute - time.communication) + in_turn;
        let level = |(k, v): (usize, &usize)| chain.level(k, *v).level;
        Solved {
            point: self.point,
            chosen,
            classes: chain.classes.clone(),
            storage: chain.storage.clone(),
            keeping: chain.keeping,
            recompute: versions.iter().enumerate().map(level).collect(),
            spared: chain.spared(&stages, &versions),
            stages,
            peaks,
            in_turn: in_turn.max(time.step),
            time,
            gap: 0,
            stage_gap: gap,
        }
    }
}
