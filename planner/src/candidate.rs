//! One point of the space, solved: strategies under a price per byte that falls until the stages just fit, the cut into
//! stages, their memory to the byte, and the step's closed form. The invariant: what is reported of memory is
//! `algebra::stage_memory` of the very plan.

use crate::block::Load;
use crate::closed_form::{Breakdown, StageTime, step};
use crate::eliminate::Weigh;
use crate::family::{Chosen, Expanded, Family, Instance};
use crate::pricing::Prices;
use crate::space::Point;
use crate::stages::split;
use crate::work::Step;
use meshwright_algebra::schedules::{in_flight, order};
use meshwright_algebra::{ALIGNMENT, BlockCode, Home, StageShape, stage_memory};
use meshwright_ir::program::{CollectiveKind, Kernel};
use meshwright_ir::{Axis, AxisSet, Bytes, DType, Job, StagePlan};
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
}

/// A plan in all but name.
#[derive(Debug, Clone)]
pub(crate) struct Solved {
    pub(crate) point: Point,
    pub(crate) chosen: Chosen,
    pub(crate) classes: Vec<Arc<Expanded>>,
    pub(crate) stages: Vec<StagePlan>,
    /// Arena of each stage.
    pub(crate) peaks: Vec<Bytes>,
    pub(crate) time: Breakdown,
    /// Step time if nothing overlapped within a stage.
    pub(crate) in_turn: u64,
    /// Cost of the chosen block problem less its certified bound, per micro-batch.
    pub(crate) gap: u64,
}

impl Solved {
    /// The largest arena.
    pub(crate) fn peak(&self) -> Bytes {
        self.peaks.iter().copied().max().unwrap_or_default()
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
    /// It has no choice at all.
    Impossible(String),
}

/// Solves a point; also how many block problems that took.
pub(crate) fn solve_point(scene: &Scenario<'_>) -> (Fate, u64) {
    let frames = scene.frames();
    let instance = scene.family.instance(scene.load(&frames));
    let fits = |chosen: &Chosen| scene.cut(&instance, chosen, &frames, true).is_some();
    let mut solved = 0;
    let mut choose = |weigh| {
        let (found, n) = instance.choose(weigh);
        solved += n;
        found
    };
    let Some(fast) = choose(Weigh::CostThenMemory) else {
        return (Fate::Impossible("no strategies go together".into()), solved);
    };
    if !scene.smallest && fits(&fast) {
        return (Fate::Fits(Box::new(scene.finish(&instance, fast, &frames, true))), solved);
    }
    let small = choose(Weigh::MemoryThenCost).unwrap_or_else(|| fast.clone());
    if !fits(&small) {
        return (Fate::Short(Box::new(scene.finish(&instance, small, &frames, false))), solved);
    }
    let best = if scene.smallest { small } else { walk(fast, small, &mut choose, &fits) };
    (Fate::Fits(Box::new(scene.finish(&instance, best, &frames, true))), solved)
}

/// Whether the smallest choice of a point fits.
pub(crate) fn smallest_fits(scene: &Scenario<'_>) -> bool {
    let frames = scene.frames();
    let instance = scene.family.instance(scene.load(&frames));
    let (small, _) = instance.choose(Weigh::MemoryThenCost);
    small.is_some_and(|small| scene.cut(&instance, &small, &frames, true).is_some())
}

/// The fastest choice that fits on the lower hull of (memory, cost), between one that does not and one that does.
fn walk(
    mut over: Chosen,
    mut under: Chosen,
    choose: &mut dyn FnMut(Weigh) -> Option<Chosen>,
    fits: &dyn Fn(&Chosen) -> bool,
) -> Chosen {
    while over.memory > under.memory && under.cost > over.cost {
        let weigh = Weigh::Sum { cost: over.memory - under.memory, memory: under.cost - over.cost };
        let Some(found) = choose(weigh) else { break };
        if weigh.of(found.cost, found.memory) >= weigh.of(over.cost, over.memory) {
            break;
        }
        match fits(&found) {
            true => under = found,
            false => over = found,
        }
    }
    under
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
    if chosen != solved.chosen && scene.cut(&instance, &chosen, &frames, true).is_some() {
        let better = scene.finish(&instance, chosen, &frames, true);
        let fits = better.peak() <= scene.limit;
        if fits && better.time.step < solved.time.step {
            return Solved { gap, ..better };
        }
    }
    Solved { gap, ..solved }
}

impl<'a> Scenario<'a> {
    fn stages(&self) -> u32 {
        self.point.degree(Axis::Pp)
    }

    /// Frames each stage holds at most.
    fn frames(&self) -> Vec<u64> {
        let m = self.point.micro_batches as u32;
        let of = |s| in_flight(&order(self.point.schedule, s, self.stages(), m));
        (0..self.stages()).map(of).collect()
    }

    fn load(&self, frames: &[u64]) -> Load<'a> {
        Load {
            step: Step::of(&self.job.training),
            prices: self.prices,
            micro_batches: self.point.micro_batches,
            in_flight: frames.iter().copied().max().unwrap_or(1),
            shares_ties: self.stages() == 1,
        }
    }

    /// The best cut of the chain, within memory if `bounded`.
    fn cut(
        &self,
        instance: &Instance<'_, '_>,
        chosen: &Chosen,
        frames: &[u64],
        bounded: bool,
    ) -> Option<Vec<StagePlan>> {
        let classes = instance.expanded(chosen);
        let of = |c: &u32| &classes[*c as usize];
        let times: Vec<u64> = self.blocks.iter().map(|c| of(c).forward + of(c).backward).collect();
        if self.stages() == 1 {
            let whole = vec![StagePlan { first: 0, blocks: self.blocks.len() as u32 }];
            return (!bounded || self.peaks(&classes, &whole, frames)[0] <= self.limit).then_some(whole);
        }
        let sizes: Vec<ClassSize> = classes.iter().map(|e| self.size(&e.code)).collect();
        let mut before = vec![(0, 0)];
        for c in self.blocks {
            let (states, frame) = before[before.len() - 1];
            let size = &sizes[*c as usize];
            before.push((states + size.states, frame + size.frame));
        }
        let boundary = self.boundary_bytes();
        // A little above the exact arena: six boundary buffers, two between blocks, and scalars.
        let around = 8 * boundary + 2 * ALIGNMENT;
        let fits = |stage: usize, first: usize, end: usize| {
            let states = before[end].0 - before[first].0;
            let frame = before[end].1 - before[first].1;
            let workspace = self.blocks[first..end].iter().map(|c| sizes[*c as usize].workspace).max();
            let total = states + frames[stage] * frame + workspace.unwrap_or(0) + around;
            !bounded || total <= self.limit.get()
        };
        split(&times, self.stages() as usize, &fits)
    }

    fn boundary_bytes(&self) -> u64 {
        let dtype = self.job.training.precision.compute();
        dtype.bytes(self.family.boundary_elements).align(ALIGNMENT).get()
    }

    fn size(&self, code: &BlockCode) -> ClassSize {
        let step = Step::of(&self.job.training);
        let input = if code.tensor_at(Home::Input).is_some() { self.boundary_bytes() } else { 0 };
        ClassSize {
            states: code.params.iter().map(|p| step.bytes_of(p.elements)).sum(),
            frame: code.frame.align(ALIGNMENT).get() + input,
            workspace: code.workspace.align(ALIGNMENT).get(),
        }
    }

    /// Exact arena of every stage.
    fn peaks(&self, classes: &[Arc<Expanded>], stages: &[StagePlan], frames: &[u64]) -> Vec<Bytes> {
        let codes: Vec<BlockCode> = classes.iter().map(|e| e.code.clone()).collect();
        let peak = |(s, stage): (usize, &StagePlan)| {
            let shape = StageShape {
                stage: (s as u32, self.stages()),
                in_flight: frames[s],
                micro_batches: self.point.micro_batches,
                boundary_elements: self.family.boundary_elements,
                precision: self.job.training.precision,
                optimizer: self.job.training.optimizer,
            };
            let run = &self.blocks[stage.first as usize..][..stage.blocks as usize];
            stage_memory(&self.job.model, &codes, run, &shape).peak
        };
        stages.iter().enumerate().map(peak).collect()
    }

    /// Cuts, measures and times a choice.
    fn finish(&self, instance: &Instance<'_, '_>, chosen: Chosen, frames: &[u64], bounded: bool) -> Solved {
        let classes = instance.expanded(&chosen);
        let stages = self.cut(instance, &chosen, frames, bounded).unwrap_or_default();
        let peaks = self.peaks(&classes, &stages, frames);
        let times: Vec<StageTime> = stages.iter().map(|s| self.stage_time(&classes, s)).collect();
        let dtype = self.job.training.precision.compute();
        let stride = self.point.mesh.stride(Axis::Pp);
        let hop: Vec<u64> = (1..self.stages())
            .map(|s| self.prices.hop(self.family.boundary_elements, dtype, (s - 1) * stride))
            .collect();
        let m = self.point.micro_batches as u32;
        let clips = Step::of(&self.job.training).clips;
        let time = step(&times, &hop, self.point.schedule, m, clips);
        let run = |s: &StagePlan| &self.blocks[s.first as usize..][..s.blocks as usize];
        let slowest = |s: &StagePlan| run(s).iter().map(|c| classes[*c as usize].in_turn).sum::<u64>();
        let in_turn = stages.iter().map(slowest).max().unwrap_or(0) * u64::from(m);
        let in_turn = (time.step - time.compute - time.communication) + in_turn;
        Solved {
            point: self.point,
            chosen,
            classes,
            stages,
            peaks,
            in_turn: in_turn.max(time.step),
            time,
            gap: 0,
        }
    }

    fn stage_time(&self, classes: &[Arc<Expanded>], stage: &StagePlan) -> StageTime {
        let step = Step::of(&self.job.training);
        let run = &self.blocks[stage.first as usize..][..stage.blocks as usize];
        let of = |c: &u32| &classes[*c as usize];
        let here = |class: u32| run.contains(&class);
        let time = |k: &Kernel| self.prices.kernel(k);
        let (mut norm, mut update) = (0, 0);
        let mut sync = vec![];
        for class in run {
            let mut groups: BTreeMap<AxisSet, u64> = BTreeMap::new();
            for p in &of(class).code.params {
                let owner = p.tied.as_ref().and_then(|t| self.job.model.tied_to(t)).map(|o| o.0);
                if owner.is_some_and(|o| o != *class && here(o)) {
                    continue;
                }
                *groups.entry(p.sync).or_default() += p.elements;
                update += step.update_kernel(p.elements, p.decays, &time);
            }
            norm += groups.values().map(|n| step.norm(*n, &time)).sum::<u64>();
            let reduce = |(axes, n): (&AxisSet, &u64)| {
                self.prices.collective(CollectiveKind::AllReduceSum, *axes, *n, DType::F32)
            };
            sync.push(groups.iter().filter(|(axes, _)| !axes.is_empty()).map(reduce).sum());
        }
        norm += self.tied_sum(classes, run, stage);
        if step.clips {
            // Replicas hold the same sums, so only axes over which parameters differ take part.
            let differ = [Axis::Pp, Axis::Tp].into_iter().filter(|a| self.point.degree(*a) > 1);
            norm += self.prices.collective(CollectiveKind::AllReduceSum, differ.collect(), 1, DType::F32);
        }
        StageTime {
            forward: run.iter().map(|c| of(c).forward).sum(),
            backward: run.iter().map(|c| of(c).backward).collect(),
            compute: run.iter().map(|c| of(c).compute).sum(),
            sync,
            norm,
            update,
        }
    }

    /// Summing the gradient of a tied parameter over the first and the last stage, on both of them.
    fn tied_sum(&self, classes: &[Arc<Expanded>], run: &[u32], stage: &StagePlan) -> u64 {
        let ends = stage.first == 0 || (stage.first + stage.blocks) as usize == self.blocks.len();
        if self.stages() == 1 || !ends {
            return 0;
        }
        let tied =
            classes.iter().enumerate().flat_map(|(c, e)| e.code.params.iter().map(move |p| (c as u32, p)));
        let shared = tied.filter_map(|(c, p)| {
            let (owner, _) = self.job.model.tied_to(p.tied.as_ref()?)?;
            (run.contains(&c) != run.contains(&owner)).then_some(p.elements)
        });
        let last = self.stages() - 1;
        shared.map(|n| self.prices.between_stages(n, DType::F32, [0, last])).sum()
    }
}

/// What one block of a class adds to a stage, in bytes.
struct ClassSize {
    states: u64,
    frame: u64,
    workspace: u64,
}
