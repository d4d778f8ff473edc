//! Timing every cut that the bound does not rule out: branch and bound over stages, last to first, with the closed form at
//! its leaves. What the bound leaves open is little, so for a small problem this ends with a proof; a large one is left at
//! a count of steps. The invariant: a cut that is told has the closed form told with it.

use super::labels::Rest;
use super::pipeline::Label;
use super::{Run, Stages};

/// What the trial found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tried {
    /// The cut with the least closed form under the one given, and that.
    pub(crate) best: Option<(u64, Vec<Run>)>,
    /// Whether every other was ruled out.
    pub(crate) proven: bool,
}

/// The cut with the least closed form under `upper`, by `time`, which counts as many steps as there are tasks; about
/// `most` steps are taken.
pub(crate) fn trial(problem: &Stages<'_>, upper: u64, most: u64, time: &dyn Fn(&[Run]) -> u64) -> Tried {
    let p = problem.pipeline.stages();
    let mut search = Search {
        problem,
        time,
        rest: Rest::of(problem),
        leaf: 2 * p as u64 * problem.pipeline.micro_batches,
        left: most,
        upper,
        cut: vec![],
        best: None,
    };
    let proven = search.stage(p, problem.blocks.len(), None);
    Tried { best: search.best.map(|cut| (search.upper, cut)), proven }
}

struct Search<'s, 'a> {
    problem: &'s Stages<'a>,
    time: &'s dyn Fn(&[Run]) -> u64,
    rest: Rest,
    /// Steps that timing a cut counts for.
    leaf: u64,
    left: u64,
    upper: u64,
    /// Runs chosen so far, last stage first.
    cut: Vec<Run>,
    best: Option<Vec<Run>>,
}

impl Search<'_, '_> {
    /// Goes through the stages before one that begins at `end`; `false` when steps ran out.
    fn stage(&mut self, later: usize, end: usize, after: Option<&Label>) -> bool {
        let Some(stage) = later.checked_sub(1) else { return self.leaf() };
        let mut open: Vec<(u64, Run, Label)> = vec![];
        for first in self.problem.firsts(stage, end) {
            let parts = (self.problem.parts)(stage, first, end);
            let mut any = false;
            for (k, part) in parts.iter().enumerate() {
                let Some(left) = self.left.checked_sub(1) else { return false };
                self.left = left;
                any |= self.rest.alone(self.problem, stage, first, part) < self.upper;
                let label = self.problem.pipeline.before(stage, part, after);
                let least = self.rest.least(self.problem, stage, first, &label);
                if least < self.upper {
                    open.push((least, (first, k), label));
                }
            }
            if !any {
                break;
            }
        }
        // The most promising first: what it finds rules out others.
        open.sort();
        for (least, run, label) in open {
            if least >= self.upper {
                break;
            }
            self.cut.push(run);
            let done = self.stage(stage, run.0, Some(&label));
            self.cut.pop();
            if !done {
                return false;
            }
        }
        true
    }

    fn leaf(&mut self) -> bool {
        let Some(left) = self.left.checked_sub(self.leaf) else { return false };
        self.left = left;
        let cut: Vec<Run> = self.cut.iter().rev().copied().collect();
        let time = (self.time)(&cut);
        if time < self.upper {
            (self.upper, self.best) = (time, Some(cut));
        }
        true
    }
}
