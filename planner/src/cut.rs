//! The stages of a chain: the cut with the fastest bottleneck first, then any cut whose step the bound leaves room to
//! shorten, and what is proved of the one kept. The invariant: the gap told is between this chain's own closed form and a
//! bound on that of every cut and every way to recompute.

use crate::candidate::Scenario;
use crate::chain::{Chain, Fit, Same};
use crate::closed_form::{Breakdown, StageTime, step};
use crate::levels::Counts;
use crate::stages::{Answer, Part, Pipeline, Run, Stages, least, programme, trial};
use meshwright_ir::{Axis, StagePlan};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Steps of the schedule that may be spent on timing cuts that the bound does not rule out; a guess at what is worth a
/// millisecond.
const TRIED: u64 = 20_000;

/// The stages of a chain, and how long they take.
#[derive(Debug, Clone)]
pub(crate) struct Cut {
    pub(crate) stages: Vec<StagePlan>,
    /// Version of every block.
    pub(crate) versions: Vec<usize>,
    pub(crate) time: Breakdown,
    /// No other cut of the chain takes less than the step less this.
    pub(crate) gap: u64,
}

/// How much to do for a faster cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effort {
    /// Nothing: the smallest version of every block, cut by its bottleneck.
    Least,
    /// The bound, and what it leaves; steps that do not beat this one are of no use.
    Beat(u64),
    /// The programme too, where the bound was rounded.
    Prove,
}

/// What runs of a chain may be, each found once.
struct Known<'c, 's, 'a> {
    chain: &'c Chain<'s, 'a>,
    fit: Fit,
    ways: RefCell<BTreeMap<(usize, Same), Ways>>,
}

type Ways = Rc<(Rc<Vec<Part>>, Vec<Option<Counts>>)>;

impl Known<'_, '_, '_> {
    fn of(&self, stage: usize, first: usize, end: usize) -> Ways {
        let look = || {
            let (parts, counts) = self.chain.ways(stage, first, end, self.fit).into_iter().unzip();
            Rc::new((Rc::new(parts), counts))
        };
        self.ways.borrow_mut().entry((stage, self.chain.same(first, end))).or_insert_with(look).clone()
    }

    /// Whether each way was looked at, and not only one that none beats.
    fn all(&self) -> bool {
        self.ways.borrow().values().all(|w| w.1.iter().all(Option::is_some))
    }
}

impl<'s, 'a> Chain<'s, 'a> {
    fn known<'c>(&'c self, fit: Fit) -> Known<'c, 's, 'a> {
        Known { chain: self, fit, ways: RefCell::default() }
    }

    fn pipeline<'h>(&self, hop: &'h [u64]) -> Pipeline<'h> {
        let scene = self.scene();
        Pipeline {
            hop,
            schedule: scene.point.schedule,
            micro_batches: scene.point.micro_batches,
            clips: scene.job.training.clip > 0.0,
        }
    }

    /// Whether some cut has a bound under this step, were memory no matter.
    pub(crate) fn may_beat(&self, step: u64) -> bool {
        let (hop, known) = (hops(self.scene()), self.known(Fit::Unbounded));
        let fastest = self.cut(Fit::Unbounded).expect("every cut will do");
        let runs = fastest.iter().map(|s| (s.first as usize, (s.first + s.blocks) as usize));
        let counts = fastest.iter().map(|s| self.fastest(s.first as usize, (s.first + s.blocks) as usize));
        if self.timed(runs.zip(counts), &hop).time.step < step {
            return true;
        }
        let parts = |stage, first, end| known.of(stage, first, end).0.clone();
        let problem = Stages { blocks: &self.least(), pipeline: self.pipeline(&hop), parts: &parts };
        least(&problem, step).cut.is_some()
    }

    /// Cuts the chain, whose stages must fit or need not.
    pub(crate) fn plan(&self, fit: Fit, effort: Effort) -> Cut {
        let scene = self.scene();
        let stages = self.cut(fit).expect("a choice that fits, or need not");
        let few = effort == Effort::Least || fit == Fit::Unbounded;
        let run = |s: &StagePlan| (s.first as usize, (s.first + s.blocks) as usize);
        let counts = stages.iter().enumerate().map(|(s, stage)| {
            let (first, end) = run(stage);
            self.counts(s, first, end, fit, few)
        });
        let hop = hops(scene);
        let mut best = self.timed(stages.iter().map(run).zip(counts), &hop);
        if few {
            return best;
        }
        let known = self.known(fit);
        let parts = |stage, first, end| known.of(stage, first, end).0.clone();
        let problem = Stages { blocks: &self.least(), pipeline: self.pipeline(&hop), parts: &parts };
        let blocks = scene.blocks.len();
        let of_runs = |cut: &[Run]| {
            let ends = cut.iter().skip(1).map(|r| r.0).chain([blocks]);
            let taken = cut.iter().zip(ends).enumerate().map(|(s, ((first, part), end))| {
                let counts = known.of(s, *first, end).1[*part].clone();
                ((*first, end), counts.unwrap_or_else(|| self.counts(s, *first, end, fit, false)))
            });
            self.timed(taken, &hop)
        };
        let upper = match effort {
            Effort::Beat(other) => best.time.step.min(other),
            Effort::Least | Effort::Prove => best.time.step,
        };
        let mut found = least(&problem, upper);
        if let (Effort::Prove, false, Some(start)) = (effort, found.exact, &found.cut) {
            match programme(&problem, upper, Some(start)) {
                Answer::Cut(cut) => {
                    found.bound = problem.bound(&cut);
                    found.cut = Some(cut);
                }
                Answer::None => (found.bound, found.cut) = (upper, None),
                Answer::Unknown => {}
            }
        }
        if let Some(other) = found.cut.as_deref().map(of_runs)
            && other.time.step < best.time.step
        {
            best = other;
        }
        let mut proved = found.bound;
        if proved < upper.min(best.time.step) {
            let tried = trial(&problem, upper.min(best.time.step), TRIED, &|cut| of_runs(cut).time.step);
            if let Some((_, cut)) = tried.best {
                best = of_runs(&cut);
            }
            // Ways that were not looked at one by one may be faster.
            if tried.proven && known.all() {
                proved = upper.min(best.time.step);
            }
        }
        best.gap = best.time.step.saturating_sub(proved);
        best
    }

    /// Places and times the blocks of each stage.
    fn timed(&self, stages: impl Iterator<Item = ((usize, usize), Counts)>, hop: &[u64]) -> Cut {
        let scene = self.scene();
        let (mut plans, mut versions, mut times): (Vec<StagePlan>, Vec<usize>, Vec<StageTime>) =
            Default::default();
        for (s, ((first, end), counts)) in stages.enumerate() {
            let placed = self.placed(first, end, &counts);
            times.push(self.time_of(s, first, end, &placed));
            versions.extend(placed);
            plans.push(StagePlan { first: first as u32, blocks: (end - first) as u32 });
        }
        let m = scene.point.micro_batches as u32;
        let time = step(&times, hop, scene.point.schedule, m, scene.job.training.clip > 0.0);
        Cut { stages: plans, versions, time, gap: 0 }
    }
}

/// A message between each stage and the next.
pub(crate) fn hops(scene: &Scenario<'_>) -> Vec<u64> {
    let dtype = scene.job.training.precision.compute();
    let stride = scene.point.mesh.stride(Axis::Pp);
    let hop = |s: u32| scene.prices.hop(scene.family.boundary_elements, dtype, (s - 1) * stride);
    (1..scene.point.degree(Axis::Pp)).map(hop).collect()
}
