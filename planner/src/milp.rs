//! The pairwise problem as a mixed-integer linear programme in *flow form* (`notes/planning.md` 2.2): binaries are one-hot
//! per node; edge variables are continuous, their row sums are the one node's variables and their column sums the other's,
//! which is the tightest pairwise relaxation. The solver is chosen here and nowhere else. The invariant: what comes back
//! is a choice, and its cost is computed elsewhere in integers.

use crate::eliminate::{Graph, NEVER};
use crate::problem::{Outcome, Problem};
use good_lp::variable::UnsolvedProblem;
use good_lp::{
    Constraint, Expression, ProblemVariables, ResolutionError, Solution as _, SolutionStatus, SolverModel,
    Variable, constraint, variable,
};

/// Pure Rust, on one thread, to proof.
#[cfg(not(feature = "highs"))]
fn solver(problem: UnsolvedProblem) -> impl SolverModel<Error = ResolutionError> {
    good_lp::solvers::microlp::microlp(problem)
}

/// HiGHS on one thread, from a fixed seed and without a clock, so that the same problem has the same answer; to proof,
/// where it would stop at a gap of 1e-4.
#[cfg(feature = "highs")]
fn solver(problem: UnsolvedProblem) -> impl SolverModel<Error = ResolutionError> {
    use good_lp::solvers::highs::{HighsParallelType, highs};
    highs(problem)
        .set_threads(1)
        .set_parallel(HighsParallelType::Off)
        .set_option("random_seed", 0)
        .set_option("time_limit", f64::INFINITY)
        .set_option("mip_rel_gap", 0.0)
}

/// Largest cost the solver sees, and the size of the memory budget: its tolerances are absolute (1e-10 to 1e-7).
pub(crate) const SCALE: f64 = 1e6;

/// Most edge variables microlp is given: 3,500 take it half a second to a second, 15,000 up to a minute (measured on
/// blocks whose attention and MLP read one norm, on one core).
#[cfg(not(feature = "highs"))]
pub(crate) const MOST_COLUMNS: usize = 5_000;
/// Most edge variables HiGHS is given (`notes/planning.md`: 70,000 solve in seconds, 800,000 do not).
#[cfg(feature = "highs")]
pub(crate) const MOST_COLUMNS: usize = 200_000;

/// What the solver made of a graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    /// One strategy per node still in the graph.
    Choice(Vec<u32>),
    /// There is none.
    None,
    /// It was not tried, or failed.
    Unknown,
}

/// Solves a problem by the programme alone, without reductions: the reference that reductions are tested against.
pub fn solve_milp(problem: &Problem) -> Outcome {
    let graph = Graph::new(problem, crate::eliminate::Weigh::CostThenMemory, true);
    match milp(&graph, problem.budget, None) {
        Answer::Choice(choice) => match problem.solution(choice) {
            Some(solution) => Outcome::Optimal(solution),
            None => Outcome::Stopped { best: None },
        },
        Answer::None => Outcome::Infeasible { why: "no choice meets every row".into() },
        Answer::Unknown => Outcome::Stopped { best: None },
    }
}

/// Cheapest choice for the nodes left in a graph, within `budget` bytes for them; `start` is a choice to begin from.
pub(crate) fn milp(graph: &Graph, budget: Option<u64>, start: Option<&[u32]>) -> Answer {
    let alive: Vec<usize> = (0..graph.alive.len()).filter(|k| graph.alive[*k]).collect();
    let pairs: Vec<(usize, usize)> = graph.pairs().collect();
    let allowed = |(a, b): &(usize, usize)| entries(graph, *a, *b).filter(|e| e.2 != NEVER).count();
    let columns: usize = pairs.iter().map(allowed).sum();
    if columns > MOST_COLUMNS {
        return Answer::Unknown;
    }
    // Only differences matter, so every node's and every edge's least weight is taken off before scaling.
    let least = |weights: &mut dyn Iterator<Item = u128>| weights.min().unwrap_or(0);
    let base: Vec<u128> = (0..graph.alive.len())
        .map(|k| least(&mut graph.active[k].iter().map(|p| graph.weight[k][*p as usize])))
        .collect();
    let edge_base: Vec<u128> =
        pairs.iter().map(|(a, b)| least(&mut entries(graph, *a, *b).map(|e| e.2))).collect();
    let nodes =
        alive.iter().flat_map(|k| graph.active[*k].iter().map(|p| (graph.weight[*k][*p as usize], base[*k])));
    let edges = pairs
        .iter()
        .zip(&edge_base)
        .flat_map(|((a, b), base)| entries(graph, *a, *b).map(|(_, _, w)| (w, *base)));
    let spread = nodes.chain(edges).filter(|(w, _)| *w != NEVER).map(|(w, base)| w - base);
    let largest = spread.max().unwrap_or(0).max(1);
    let scaled = |w: u128| w as f64 / largest as f64 * SCALE;

    let started = |yes: Option<bool>, v: good_lp::VariableDefinition| match yes {
        Some(yes) => v.initial(if yes { 1.0 } else { 0.0 }),
        None => v,
    };
    let mut variables = ProblemVariables::new();
    let mut cost = Expression::default();
    let mut rows = Vec::new();
    let mut chosen: Vec<Vec<Variable>> = vec![vec![]; graph.alive.len()];
    for k in &alive {
        for p in &graph.active[*k] {
            let v = variables.add(started(start.map(|s| s[*k] == *p), variable().binary()));
            let weight = graph.weight[*k][*p as usize];
            match weight {
                NEVER => rows.push(constraint!(v == 0)),
                weight => cost += scaled(weight - base[*k]) * v,
            }
            chosen[*k].push(v);
        }
        rows.push(constraint!(sum(&chosen[*k]) == 1));
    }
    for ((a, b), base) in pairs.into_iter().zip(edge_base) {
        let mut by_row = vec![Expression::default(); graph.active[a].len()];
        let mut by_column = vec![Expression::default(); graph.active[b].len()];
        for (p, q, weight) in entries(graph, a, b).filter(|e| e.2 != NEVER) {
            let both = start.map(|s| s[a] == graph.active[a][p] && s[b] == graph.active[b][q]);
            let flow = variables.add(started(both, variable().min(0).max(1)));
            cost += scaled(weight - base) * flow;
            by_row[p] += flow;
            by_column[q] += flow;
        }
        let ends = [(by_row, &chosen[a]), (by_column, &chosen[b])];
        for (sums, ends) in ends {
            rows.extend(sums.into_iter().zip(ends).map(|(sum, x)| constraint!(sum == *x)));
        }
    }
    if let Some(budget) = budget {
        let unit = SCALE / budget.max(1) as f64;
        let bytes = alive.iter().flat_map(|k| {
            let of = |(p, v): (&u32, &Variable)| graph.bytes(*k, *p) as f64 * unit * *v;
            graph.active[*k].iter().zip(&chosen[*k]).map(of).collect::<Vec<_>>()
        });
        rows.push(constraint!(bytes.sum::<Expression>() <= budget as f64 * unit));
    }
    match minimum(variables, cost, rows) {
        Ok(found) => {
            let mut choice = vec![0; graph.alive.len()];
            for k in alive {
                let value = |(_, v): &(&u32, &Variable)| found.value(**v);
                let most =
                    graph.active[k].iter().zip(&chosen[k]).max_by(|a, b| value(a).total_cmp(&value(b)));
                choice[k] = most.map_or(0, |(p, _)| *p);
            }
            Answer::Choice(choice)
        }
        Err(Refused::Infeasible) => Answer::None,
        Err(Refused::Unknown) => Answer::Unknown,
    }
}

/// Why a programme has no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Nothing meets its rows.
    Infeasible,
    /// The solver failed, or stopped before its proof.
    Unknown,
}

/// The least cost under these rows, proved.
pub(crate) fn minimum(
    variables: ProblemVariables,
    cost: Expression,
    rows: Vec<Constraint>,
) -> Result<impl good_lp::Solution, Refused> {
    let mut model = variables.minimise(cost).using(solver);
    for row in rows {
        model.add_constraint(row);
    }
    match model.solve() {
        // Stopped before the proof, by a limit of the solver's own.
        Ok(found) if matches!(found.status(), SolutionStatus::TimeLimit) => Err(Refused::Unknown),
        Ok(found) => Ok(found),
        Err(ResolutionError::Infeasible) => Err(Refused::Infeasible),
        Err(_) => Err(Refused::Unknown),
    }
}

fn sum(variables: &[Variable]) -> Expression {
    variables.iter().sum()
}

/// Positions among the active strategies of both ends, and the weight.
fn entries(graph: &Graph, a: usize, b: usize) -> impl Iterator<Item = (usize, usize, u128)> {
    let row = move |(p, x): (usize, &u32)| {
        let x = *x;
        let cell = move |(q, y): (usize, &u32)| (p, q, graph.between(a, x, b, *y));
        graph.active[b].iter().enumerate().map(cell).collect::<Vec<_>>()
    };
    graph.active[a].iter().enumerate().flat_map(row)
}
