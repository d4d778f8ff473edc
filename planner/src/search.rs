//! The search over the whole space: points in order of their bound, a batch at a time and each batch in parallel, until
//! every point left is bounded by the k-th best closed form. The invariant: the result depends on the job alone, not on
//! threads, because batches are fixed, results are collected in order and ties resolve by the order of points.

use crate::candidate::{Fate, Scenario, Solved, solve_point, tighten};
use crate::explain::why;
use crate::ground::{Families, Ground};
use crate::no_fit;
use crate::report;
use crate::space::{Point, enumerate};
use meshwright_cost_models::CostModel;
use meshwright_ir::{Job, Objective, Plan, SearchReport, Time};
use rayon::prelude::*;

/// Points solved between two looks at the bound: enough to keep a few cores busy, few enough to prune early.
const BATCH: usize = 16;

/// Plans of which the order is certain, whatever is asked for: the best and the runners-up that a report lists.
const RANKED: usize = report::RUNNERS_UP + 1;

/// How far a search has come.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Progress {
    /// Points of the space that rules leave.
    pub points: u64,
    /// Those solved or pruned so far.
    pub done: u64,
    /// Block problems solved so far.
    pub solved: u64,
    /// Best closed-form step time so far, in seconds.
    pub best_s: Option<f64>,
    /// No plan of the space is faster in simulation than this, in seconds.
    pub lower_bound_s: f64,
}

/// What a search found.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// The best plans by their closed form, best first, each another point of the space.
    Plans {
        /// At most as many as the job asks for.
        plans: Vec<Plan>,
        /// What the search did.
        report: SearchReport,
    },
    /// No plan fits.
    NoFit {
        /// Why not, for a person.
        why: Vec<String>,
        /// The smallest change that would make one fit.
        smallest_change: String,
        /// What the search did.
        report: SearchReport,
    },
}

/// A point and what became of it.
pub(crate) struct Entry {
    pub(crate) point: Point,
    /// Why a rule or a bound rejected it.
    pub(crate) rejected: Option<String>,
    /// Least simulated step time, in picoseconds; 0 where a rule rejected it.
    pub(crate) bound: u64,
    /// What solving it gave.
    pub(crate) fate: Option<Fate>,
}

impl Entry {
    /// The solution, where it fits.
    pub(crate) fn fits(&self) -> Option<&Solved> {
        match &self.fate {
            Some(Fate::Fits(solved)) => Some(solved),
            Some(Fate::Short(_) | Fate::Impossible(_) | Fate::Slow) | None => None,
        }
    }
    /// The smallest solution, where not even that fits.
    pub(crate) fn short(&self) -> Option<&Solved> {
        match &self.fate {
            Some(Fate::Short(solved)) => Some(solved),
            Some(Fate::Fits(_) | Fate::Impossible(_) | Fate::Slow) | None => None,
        }
    }
}

/// A search under way.
pub(crate) struct Search<'g> {
    pub(crate) ground: &'g Ground<'g>,
    pub(crate) entries: Vec<Entry>,
    /// Block problems solved.
    pub(crate) solved: u64,
    /// Least simulated step time of the space.
    pub(crate) lower: u64,
}

/// Finds the best plans for a job, which must pass [`Job::check`]; tells `progress` after every batch.
pub fn search(job: &Job, progress: &dyn Fn(Progress)) -> Verdict {
    let model = CostModel::new(&job.cluster);
    let points = enumerate(job, job.search.ranks);
    let allowed: Vec<Point> = points.iter().filter(|(_, why)| why.is_none()).map(|(p, _)| *p).collect();
    let ground = Ground::new(job, &model, &allowed);
    let families = Families::new(&ground, &allowed);
    let mut search = Search::new(&ground, points);
    search.explore(&families, progress);
    let best = search.best(&families);
    let report = report::search(&search, &best);
    if best.is_empty() {
        let (why, smallest_change) = no_fit::explain(&search, &families);
        return Verdict::NoFit { why, smallest_change, report };
    }
    let plan = |(k, entry): (usize, &usize)| {
        let solved = search.entries[*entry].fits().expect("the best fit");
        report::plan(&search, solved, why(&search, &best, k), &report)
    };
    Verdict::Plans { plans: best.iter().enumerate().map(plan).collect(), report }
}

impl<'g> Search<'g> {
    /// Bounds every point and rejects those whose parameters alone do not fit.
    pub(crate) fn new(ground: &'g Ground<'g>, points: Vec<(Point, Option<String>)>) -> Self {
        let entry = |(point, rejected): (Point, Option<String>)| {
            if rejected.is_some() {
                return Entry { point, rejected, bound: 0, fate: None };
            }
            let states = ground.states(&point);
            let rejected = (states > ground.limit).then(|| {
                format!("memory: parameters and their states alone need {states} of {}", ground.limit)
            });
            Entry { point, rejected, bound: ground.bound(&point), fate: None }
        };
        let entries: Vec<Entry> = points.into_par_iter().map(entry).collect();
        let open = entries.iter().filter(|e| e.rejected.is_none());
        let lower = open.map(|e| e.bound).min().unwrap_or(0);
        Self { ground, entries, solved: 0, lower }
    }

    /// Solves points, least bound first, until bound or work limit stops it.
    pub(crate) fn explore(&mut self, families: &Families<'g>, progress: &dyn Fn(Progress)) {
        let search = &self.ground.job.search;
        let (wanted, limit) = (search.top.max(1) as usize, search.work_limit);
        let mut order: Vec<usize> =
            (0..self.entries.len()).filter(|k| self.entries[*k].rejected.is_none()).collect();
        order.sort_by_key(|k| (self.entries[*k].bound, *k));
        let points = order.len() as u64;
        let mut best: Vec<u64> = vec![];
        let mut left = order.as_slice();
        while !left.is_empty() {
            let done = points - left.len() as u64;
            self.tell(progress, points, done, best.first());
            let worst = best.get(wanted - 1).copied().filter(|_| search.objective != Objective::Memory);
            let stop = match (worst, limit) {
                // Sorted by bound: what holds of the first holds of all that are left.
                (Some(worst), _) if self.entries[left[0]].bound >= worst => Some(format!(
                    "bound: cannot beat the closed form of the best {wanted} found, {}",
                    Time(worst)
                )),
                (_, limit) if limit > 0 && self.solved >= limit => {
                    Some(format!("not tried: the work limit of {limit} block problems was reached"))
                }
                _ => None,
            };
            if let Some(why) = stop {
                left.iter().for_each(|k| self.entries[*k].rejected = Some(why.clone()));
                break;
            }
            let beat = best.get(wanted.max(RANKED) - 1).copied().unwrap_or(u64::MAX);
            let (batch, rest) = left.split_at(BATCH.min(left.len()));
            let solve = |k: &usize| {
                let point = self.entries[*k].point;
                match families.of(&point) {
                    Some(family) => {
                        let scene = self.ground.scenario(point, family);
                        solve_point(&Scenario { beat, ..scene })
                    }
                    None => (Fate::Impossible("the tensor between blocks does not divide".into()), 0),
                }
            };
            let fates: Vec<(Fate, u64)> = batch.par_iter().map(solve).collect();
            for (k, (fate, n)) in batch.iter().zip(fates) {
                self.solved += n;
                if let Fate::Fits(solved) = &fate {
                    let (step, bound) = (solved.time.step, self.entries[*k].bound);
                    assert!(step >= bound, "a closed form of {step} ps under its bound of {bound} ps");
                    best.push(step);
                }
                self.entries[*k].fate = Some(fate);
            }
            best.sort_unstable();
            left = rest;
        }
        self.tell(progress, points, points, best.first());
    }

    fn tell(&self, progress: &dyn Fn(Progress), points: u64, done: u64, best: Option<&u64>) {
        progress(Progress {
            points,
            done,
            solved: self.solved,
            best_s: best.map(|t| Time(*t).seconds()),
            lower_bound_s: Time(self.lower).seconds(),
        });
    }

    /// Positions of the best entries, best first, after their most repeated block was solved to proof.
    pub(crate) fn best(&mut self, families: &Families<'g>) -> Vec<usize> {
        let mut best = self.ranking();
        best.truncate(self.ground.job.search.top.max(1) as usize);
        let improve = |k: &usize| {
            let solved = self.entries[*k].fits()?.clone();
            let family = families.of(&solved.point)?;
            Some((*k, tighten(&self.ground.scenario(solved.point, family), solved)))
        };
        let improved: Vec<Option<(usize, Solved)>> = best.par_iter().map(improve).collect();
        for (k, solved) in improved.into_iter().flatten() {
            self.solved += 1;
            self.entries[k].fate = Some(Fate::Fits(Box::new(solved)));
        }
        let ranking = self.ranking();
        ranking.into_iter().filter(|k| best.contains(k)).collect()
    }

    /// Positions of all entries that fit, best first.
    pub(crate) fn ranking(&self) -> Vec<usize> {
        let mut fitting: Vec<(usize, &Solved)> =
            self.entries.iter().enumerate().filter_map(|(k, e)| Some((k, e.fits()?))).collect();
        fitting.sort_by_key(|(k, s)| match self.ground.job.search.objective {
            // Every plan uses the same ranks for the whole step, so dollars and joules order plans as time does.
            Objective::Time | Objective::Cost | Objective::Energy => (s.time.step, s.peak().get(), *k),
            Objective::Memory => (s.peak().get(), s.time.step, *k),
        });
        fitting.into_iter().map(|(k, _)| k).collect()
    }
}
