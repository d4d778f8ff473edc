//! Predicting rows: each through the planner with every degree pinned, lowering, the framework's way of issuing, the
//! checker and the simulator. Rows that differ in the number of micro-batches alone share a plan, and beyond the pipeline's
//! fill a step grows by the same time for each micro-batch, so a long step is drawn from two short ones. What stood on the
//! critical path is kept as priced terms, from which calibration learns how a step depends on constants.

use super::issue::issued;
use super::setup::{ENDLESS, Setup};
use crate::Failure;
use meshwright_cost_models::CostModel;
use meshwright_ir::program::{Action, Checked, CollectiveKind, Kernel, Program};
use meshwright_ir::trace::Trace;
use meshwright_ir::{Algorithm, Bytes, Cluster, Plan, StagePlan};
use meshwright_planner::Verdict;
use meshwright_simulator::{Options, Partition, Ranks, critical_path};
use rayon::prelude::*;
use std::collections::BTreeMap;

/// Something that takes time on a cluster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Term {
    /// A kernel.
    Kernel(Kernel),
    /// A collective of so many bytes among ranks.
    Collective(CollectiveKind, Algorithm, Bytes, Vec<u32>),
    /// A message of so many bytes from a rank to another.
    Message(Bytes, u32, u32),
}

impl Term {
    /// Seconds it takes.
    pub fn seconds(&self, cost: &CostModel) -> f64 {
        match self {
            Term::Kernel(kernel) => cost.kernel(kernel).time.seconds(),
            Term::Collective(kind, algorithm, bytes, ranks) => {
                cost.collective(*kind, *algorithm, *bytes, ranks).seconds()
            }
            Term::Message(bytes, from, to) => cost.exchange(*bytes, *from, *to).seconds(),
        }
    }
}

/// What is predicted of a row.
#[derive(Debug, Clone, PartialEq)]
pub struct Predicted {
    /// Step time in seconds.
    pub step_s: f64,
    /// Planned peak of the fullest stage, without what the runtime reserves.
    pub peak: Bytes,
    /// What stood on the critical path and how often; fractions and negatives come from drawing a long step from two.
    pub terms: Vec<(Term, f64)>,
}

/// A plan lowered at several numbers of micro-batches, and the rows that it stands for.
#[derive(Debug)]
struct Case {
    /// One of its rows, for what all share.
    row: usize,
    /// Numbers of micro-batches to simulate, and the programs.
    programs: BTreeMap<u64, Result<Lowered, String>>,
    /// Rows: position and number of micro-batches.
    rows: Vec<(usize, u64)>,
}

#[derive(Debug)]
struct Lowered {
    program: Checked,
    peak: Bytes,
}

/// Rows made ready to be simulated on clusters of the same shape: constants may change, plans stay.
#[derive(Debug)]
pub struct Prepared(Vec<Case>);

/// Plans and lowers all rows, in parallel.
pub fn prepare(setups: &[Setup]) -> Prepared {
    let mut cases = cases(setups);
    cases.par_iter_mut().for_each(|case| case.lower(&setups[case.row]));
    Prepared(cases)
}

/// [`prepare`] and [`predict`] in one, for those who need no program twice.
pub fn predict_once(setups: &[Setup]) -> Vec<Result<Predicted, String>> {
    let solve = |mut case: Case| {
        case.lower(&setups[case.row]);
        case.solve(setups)
    };
    in_order(cases(setups).into_par_iter().map(solve).collect(), setups.len())
}

fn in_order(
    solved: Vec<Vec<(usize, Result<Predicted, String>)>>,
    rows: usize,
) -> Vec<Result<Predicted, String>> {
    let mut all: Vec<Result<Predicted, String>> = (0..rows).map(|_| Err(String::new())).collect();
    for (row, predicted) in solved.into_iter().flatten() {
        all[row] = predicted;
    }
    all
}

/// Rows that share a plan.
fn cases(setups: &[Setup]) -> Vec<Case> {
    let mut cases: BTreeMap<String, Case> = BTreeMap::new();
    for (row, setup) in setups.iter().enumerate() {
        let job = &setup.job;
        let key = format!(
            "{:?} {:?} {:?} {} {} {} {:?}",
            setup.framework.manner,
            setup.recompute,
            job.search.pins,
            job.model_source.hash,
            job.cluster_source.hash,
            job.training.sequence,
            job.training.precision,
        );
        let case = cases.entry(key).or_insert(Case { row, programs: BTreeMap::new(), rows: vec![] });
        case.rows.push((row, setup.micro_batches));
        for m in lengths(setup) {
            case.programs.insert(m, Err(String::new()));
        }
    }
    cases.into_values().collect()
}

/// Simulates all rows with the constants that their setups have now, in parallel; results in the order of the setups.
pub fn predict(prepared: &Prepared, setups: &[Setup]) -> Vec<Result<Predicted, String>> {
    let solved: Vec<Vec<(usize, Result<Predicted, String>)>> =
        prepared.0.par_iter().map(|case| case.solve(setups)).collect();
    in_order(solved, setups.len())
}

/// Numbers of micro-batches to simulate for a row: its own, or, beyond the pipeline's fill, two from which a longer step
/// is drawn. They are two apart because buffers between stages alternate.
fn lengths(setup: &Setup) -> Vec<u64> {
    let (m, fill) = (setup.micro_batches, setup.degrees[2] + 1);
    if m < fill || m == fill + 1 { vec![m] } else { vec![fill, fill + 2] }
}

impl Case {
    fn lower(&mut self, setup: &Setup) {
        let Some(first) = self.programs.keys().next().copied() else { return };
        let plan = planned(setup, first);
        for (m, program) in &mut self.programs {
            let lowered = |plan: &Plan| {
                let mut plan = plan.clone();
                plan.micro_batches = *m;
                plan.job.training.global_batch = m * setup.micro_batch * setup.degrees[0];
                lowered(&plan, setup)
            };
            *program = plan.as_ref().map_err(Clone::clone).and_then(lowered);
        }
    }

    fn solve(&self, setups: &[Setup]) -> Vec<(usize, Result<Predicted, String>)> {
        let cluster = &setups[self.row].job.cluster;
        let each = |(m, l): (&u64, &Result<Lowered, String>)| {
            (*m, l.as_ref().map_err(Clone::clone).and_then(|l| simulated(l, cluster)))
        };
        let ends: BTreeMap<u64, Result<Predicted, String>> = self.programs.iter().map(each).collect();
        let of = |(row, m): &(usize, u64)| {
            let lengths = lengths(&setups[*row]);
            let end = |k: &u64| ends[k].clone();
            let predicted = match lengths[..] {
                [one] => end(&one),
                _ => end(&lengths[0])
                    .and_then(|a| end(&lengths[1]).map(|b| drawn(&a, &b, lengths[0], lengths[1], *m))),
            };
            (*row, predicted)
        };
        self.rows.iter().map(of).collect()
    }
}

/// A step of `m` micro-batches from steps of `a` and `b`.
fn drawn(at_a: &Predicted, at_b: &Predicted, a: u64, b: u64, m: u64) -> Predicted {
    let share = (m - a) as f64 / (b - a) as f64;
    let mix = |x: f64, y: f64| x + (y - x) * share;
    let mut terms: BTreeMap<&Term, (f64, f64)> = BTreeMap::new();
    at_a.terms.iter().for_each(|(t, n)| terms.entry(t).or_default().0 += n);
    at_b.terms.iter().for_each(|(t, n)| terms.entry(t).or_default().1 += n);
    Predicted {
        step_s: mix(at_a.step_s, at_b.step_s),
        peak: at_b.peak,
        terms: terms.into_iter().map(|(t, (x, y))| (t.clone(), mix(x, y))).collect(),
    }
}

/// The plan of a row at so many micro-batches, its layers spread over stages as frameworks do: evenly.
fn planned(setup: &Setup, micro_batches: u64) -> Result<Plan, String> {
    let mut job = setup.job.clone();
    job.training.global_batch = micro_batches * setup.micro_batch * setup.degrees[0];
    job.cluster.device.memory = Bytes(ENDLESS.get());
    let mut plan = match meshwright_planner::search(&job, &|_| {}) {
        Verdict::Plans { plans, .. } => plans.into_iter().next().ok_or("no plan")?,
        Verdict::NoFit { why, .. } => return Err(why.first().cloned().unwrap_or_else(|| "no plan".into())),
    };
    plan.stages = even(plan.recompute.len() as u32, setup.degrees[2] as u32);
    let blocks = plan.recompute.len();
    for (k, level) in plan.recompute.iter_mut().enumerate() {
        let layer = k > 0 && k + 1 < blocks;
        *level = if layer { setup.recompute } else { meshwright_ir::Recompute::None };
    }
    Ok(plan)
}

/// Stages of as many layers each as goes, earlier ones one more; the first has the embedding, the last the head.
fn even(blocks: u32, stages: u32) -> Vec<StagePlan> {
    let layers = blocks.saturating_sub(2);
    let mut first = 0;
    let stage = |s: u32| {
        let own = layers / stages + u32::from(s < layers % stages);
        let blocks = own + u32::from(s == 0) + u32::from(s + 1 == stages);
        let stage = StagePlan { first, blocks };
        first += blocks;
        stage
    };
    (0..stages).map(stage).collect()
}

fn lowered(plan: &Plan, setup: &Setup) -> Result<Lowered, String> {
    let program = meshwright_lowering::lower(plan).map_err(|e| e.to_string())?;
    let peak = program.planned_peaks().into_iter().max().unwrap_or_default();
    let program = issued(program, setup.framework.manner).check().map_err(|e| e.to_string())?;
    Ok(Lowered { program, peak })
}

fn simulated(lowered: &Lowered, cluster: &Cluster) -> Result<Predicted, String> {
    let program = &lowered.program;
    let cost = CostModel::new(cluster);
    crate::facade::check_length(program, &cost, 1.0).map_err(|e: Failure| e.to_string())?;
    let options = Options { ranks: Ranks::Representatives, ..Options::default() };
    let partition = Partition::of(program, &cost, &options);
    let trace = meshwright_simulator::simulate(program, &cost, &options);
    Ok(Predicted {
        step_s: trace.step_time.seconds(),
        peak: lowered.peak,
        terms: terms(program, &partition, &trace),
    })
}

/// What stands on the critical path, counted.
fn terms(program: &Checked, partition: &Partition, trace: &Trace) -> Vec<(Term, f64)> {
    let mut counts: BTreeMap<(Action, u32), (u32, f64)> = BTreeMap::new();
    for item in critical_path(program, partition, trace) {
        let action = program.code_of(item.rank).instructions[item.instruction as usize].action;
        // Kernels are alike on all ranks; groups and messages may lie differently.
        let place = match action {
            Action::Compute(_) => 0,
            Action::Collective(_) | Action::Exchange(_) => item.rank,
        };
        counts.entry((action, place)).or_insert((item.rank, 0.0)).1 += 1.0;
    }
    let mut terms: BTreeMap<Term, f64> = BTreeMap::new();
    for ((action, _), (rank, n)) in counts {
        if let Some(term) = term(program, action, rank) {
            *terms.entry(term).or_default() += n;
        }
    }
    terms.into_iter().collect()
}

fn term(program: &Program, action: Action, rank: u32) -> Option<Term> {
    match action {
        Action::Compute(k) => Some(Term::Kernel(program.kernels[k as usize].clone())),
        Action::Collective(c) => {
            let c = &program.collectives[c as usize];
            let ranks = program.members(rank, c);
            Some(Term::Collective(c.kind, c.algorithm, c.dtype.bytes(c.elements), ranks))
        }
        Action::Exchange(e) => {
            let exchange = &program.exchanges[e as usize];
            let bytes = exchange.send.or(exchange.receive).map(|n| exchange.dtype.bytes(n))?;
            Some(Term::Message(bytes, rank, program.peer(rank, exchange)))
        }
    }
}
