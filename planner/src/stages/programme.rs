//! The stage problem as a mixed-integer linear programme: a binary for each part of each stage that may be in a cut under
//! the best known step, whose flow from the first block to the last is one; rows that are the bound's own, since each of
//! them is a maximum of sums. For where the dynamic programme had to round. The invariant: what comes back is a cut; its
//! bound is computed elsewhere, in integers.

use super::labels::survivors;
use super::pipeline::{Part, Waits};
use super::{Run, Stages};
use crate::milp::{MOST_COLUMNS, Refused, SCALE, minimum};
use good_lp::{Expression, ProblemVariables, Solution as _, Variable, constraint, variable};

/// What the programme made of a stage problem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The cut with the least bound.
    Cut(Vec<Run>),
    /// No cut has a bound under the one given.
    None,
    /// It was not tried, or failed.
    Unknown,
}

/// Parts for each edge variable that the solver is given: a guess, since rows of maxima branch more than flows do.
const COLUMN_SHARE: usize = 20;

/// The cut of least bound among those under `upper`, which `start` has at most if it is given.
pub(crate) fn programme(problem: &Stages<'_>, upper: u64, start: Option<&[Run]>) -> Answer {
    let arcs = survivors(problem, upper);
    if arcs.is_empty() {
        return Answer::None;
    }
    if arcs.len() > MOST_COLUMNS / COLUMN_SHARE {
        return Answer::Unknown;
    }
    let (p, n) = (problem.pipeline.stages(), problem.blocks.len());
    let unit = |x: u64| x as f64 / upper.max(1) as f64 * SCALE;
    let mut variables = ProblemVariables::new();
    let mut rows = vec![];
    let begun = |stage: usize, first: usize, part: usize| start.map(|s| s[stage] == (first, part));
    let chosen: Vec<Variable> = arcs
        .iter()
        .map(|[stage, first, _, part]| match begun(*stage, *first, *part) {
            Some(yes) => variables.add(variable().binary().initial(f64::from(u8::from(yes)))),
            None => variables.add(variable().binary()),
        })
        .collect();
    let sum = |wanted: &dyn Fn(&[usize; 4]) -> bool| -> Expression {
        arcs.iter().zip(&chosen).filter(|(arc, _)| wanted(arc)).map(|(_, x)| *x).sum()
    };
    rows.push(constraint!(sum(&|arc| arc[0] == 0) == 1));
    for stage in 1..p {
        for at in 1..n {
            let into = sum(&|arc| arc[0] + 1 == stage && arc[2] == at);
            rows.push(constraint!(into == sum(&|arc| arc[0] == stage && arc[1] == at)));
        }
    }
    let of = |stage: usize, what: &dyn Fn(&Part) -> f64| -> Expression {
        let here = arcs.iter().zip(&chosen).filter(|(arc, _)| arc[0] == stage);
        here.map(|(arc, x)| what(&(problem.parts)(arc[0], arc[1], arc[2])[arc[3]]) * *x).sum()
    };
    let pipeline = &problem.pipeline;
    let mut cost = Expression::default();
    let mut after: Option<(Variable, Variable, Expression)> = None;
    let at_least = |variables: &mut ProblemVariables| variables.add(variable().min(0.0));
    for stage in (0..p).rev() {
        let f = of(stage, &|x| unit(x.forward));
        let b = of(stage, &|x| unit(x.backward));
        let hop = unit(pipeline.hop(stage));
        let trip = after.as_ref().map_or_else(Expression::default, |(_, _, trip)| trip.clone() + 2.0 * hop);
        let Waits { meanwhile, one, between } = pipeline.waits(stage);
        let (meanwhile, both) = (meanwhile as f64, f.clone() + b.clone());
        let (first, last, steady) =
            (at_least(&mut variables), at_least(&mut variables), at_least(&mut variables));
        rows.push(constraint!(first >= trip.clone() - meanwhile * f.clone()));
        let waits = match one {
            true => first.into(),
            false => first + last,
        };
        rows.push(constraint!(if one { first } else { last } >= trip.clone() - meanwhile * b.clone()));
        rows.push(constraint!(steady >= trip.clone() - meanwhile * both.clone()));
        let (ends, done) = (at_least(&mut variables), at_least(&mut variables));
        let m = pipeline.micro_batches as f64;
        rows.push(constraint!(ends >= m * both.clone() + waits + between as f64 * steady));
        let tail = of(stage, &|x| {
            let update = if pipeline.clips { 0 } else { x.update };
            unit(x.synced + x.norm + update) - unit(x.backward)
        });
        rows.push(constraint!(done >= ends + tail));
        if let Some((later_ends, later_done, _)) = after {
            rows.push(constraint!(ends >= both.clone() + later_ends + 2.0 * hop));
            rows.push(constraint!(done >= f + later_done + hop));
        }
        after = Some((ends, done, trip + both));
    }
    let (_, done, _) = after.expect("a pipeline has a stage");
    cost += done;
    if pipeline.clips {
        let update = at_least(&mut variables);
        rows.extend((0..p).map(|stage| constraint!(update >= of(stage, &|x| unit(x.update)))));
        cost += update;
    }
    rows.push(constraint!(cost.clone() <= SCALE));
    match minimum(variables, cost, rows) {
        Ok(found) => {
            let taken = |stage: usize| {
                let here = arcs.iter().zip(&chosen).filter(|(arc, _)| arc[0] == stage);
                here.max_by(|a, b| found.value(*a.1).total_cmp(&found.value(*b.1)))
            };
            let cut: Option<Vec<Run>> = (0..p).map(|s| taken(s).map(|(arc, _)| (arc[1], arc[3]))).collect();
            cut.map_or(Answer::Unknown, Answer::Cut)
        }
        Err(Refused::Infeasible) => Answer::None,
        Err(Refused::Unknown) => Answer::Unknown,
    }
}
