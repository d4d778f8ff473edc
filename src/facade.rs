//! The five verbs as functions from values to values. [`plan`] searches, lowers and simulates the best few, and ranks them
//! by what the simulator says; the others each take one step along the spine.

use crate::Failure;
use crate::advice::advice;
use crate::load::load;
use meshwright_algebra::model_flops;
use meshwright_cost_models::{CostModel, LONGEST_STEP_S, Slowest};
use meshwright_executor::data::Corpus;
use meshwright_executor::{Cpu, RunOptions, RunOutcome, train};
use meshwright_ir::program::{Action, Checked, Collective, Exchange, IdKind, Instruction, Program};
use meshwright_ir::{Alternative, Cluster, DType, Job, Objective, Plan, SearchReport, Time, Trace};
use meshwright_planner::{Progress, Verdict};
use meshwright_reports::{CriticalItem, Report};
use meshwright_simulator::{Options, Partition, Ranks, Summary, critical_path};
use std::path::Path;

/// The answer to a job.
#[derive(Debug)]
pub enum Planned {
    /// A plan fits; the best one, simulated.
    Fits(Box<Plan>),
    /// No plan fits.
    NoFit {
        /// What each way fails on.
        why: Vec<String>,
        /// The smallest change that would make one fit.
        smallest_change: String,
        /// What the search did.
        report: SearchReport,
    },
}

/// A simulated step.
#[derive(Debug)]
pub struct Simulated {
    /// The predicted trace.
    pub trace: Trace,
    /// Its figures.
    pub summary: Summary,
    /// What the step was waiting for, longest first: label and time.
    pub critical: Vec<CriticalItem>,
}

/// A training run.
#[derive(Debug)]
pub struct Ran {
    /// What the executor measured.
    pub outcome: RunOutcome,
    /// Median step time after warm-up, in seconds.
    pub step_time_s: f64,
}

/// The program of a plan, checked. A plan this crate's planner made always lowers and checks.
pub fn lower(plan: &Plan) -> Result<Checked, Failure> {
    let program = meshwright_lowering::lower(plan).map_err(Failure::of)?;
    program.check().map_err(|fault| {
        Failure::new(
            format!("the plan's program is refused: {fault}"),
            "plan again; if it persists, report this as a bug",
        )
    })
}

/// Simulates one step on a cluster that holds its ranks. Refuses a step too long to be counted in picoseconds.
pub fn simulate(program: &Checked, cluster: &Cluster, unfold: bool) -> Result<Simulated, Failure> {
    let cost = CostModel::new(cluster);
    check_length(program, &cost, 1.0)?;
    let options = if unfold { Options::default() } else { Options::auto(program) };
    let trace = meshwright_simulator::simulate(program, &cost, &options);
    let summary = Summary::of(program, &trace);
    let partition = Partition::of(program, &cost, &options);
    Ok(Simulated { critical: critical(program, &partition, &trace), trace, summary })
}

/// Refuses a step too long to be counted in picoseconds, even were every rank `slow` times as slow.
pub(crate) fn check_length(program: &Program, cost: &CostModel, slow: f64) -> Result<(), Failure> {
    let cluster = cost.cluster();
    let longest = in_turn(program, cost) * f64::from(cluster.ranks_per_device) * slow.max(1.0);
    if longest <= LONGEST_STEP_S {
        return Ok(());
    }
    let days = longest / 86400.0;
    Err(Failure::new(
        format!("a step on {} might take {days:.0} days, and none above 53 is counted", cluster.name),
        "simulate a smaller step, or a cluster whose rates are believable",
    ))
}

/// Seconds of every instruction of every role, one after the other: no step of the program takes longer on ranks that
/// share nothing.
fn in_turn(program: &Program, cost: &CostModel) -> f64 {
    let slowest = Slowest::of(cost.cluster());
    let kernels: Vec<f64> = program.kernels.iter().map(|k| cost.kernel(k).time.seconds()).collect();
    let members = |c: &Collective| f64::from(program.mesh.size(c.axes));
    let collective = |c: &Collective| slowest.transfer(c.dtype.bytes(c.elements).f64(), members(c));
    let collectives: Vec<f64> = program.collectives.iter().map(collective).collect();
    let exchange = |x: &Exchange| {
        let sizes = x.send.iter().chain(&x.receive).map(|n| x.dtype.bytes(*n));
        sizes.map(|bytes| slowest.message(bytes)).sum::<f64>()
    };
    let exchanges: Vec<f64> = program.exchanges.iter().map(exchange).collect();
    let time = |i: &Instruction| match i.action {
        Action::Compute(k) => kernels[k as usize],
        Action::Collective(c) => collectives[c as usize],
        Action::Exchange(x) => exchanges[x as usize],
    };
    program.roles.iter().flat_map(|r| &r.instructions).map(time).sum()
}

/// Time on the critical path by kind of instruction, longest first.
fn critical(program: &Program, partition: &Partition, trace: &Trace) -> Vec<CriticalItem> {
    let mut kinds = std::collections::BTreeMap::<String, Time>::new();
    for item in critical_path(program, partition, trace) {
        let action: Action = program.code_of(item.rank).instructions[item.instruction as usize].action;
        *kinds.entry(program.kind_name(action)).or_default() += item.end - item.start;
    }
    let mut items: Vec<_> = kinds.into_iter().map(|(label, time)| CriticalItem { label, time }).collect();
    items.sort_by(|a, b| b.time.cmp(&a.time).then_with(|| a.label.cmp(&b.label)));
    items.truncate(12);
    items
}

/// Plans a job: searches, simulates the best few and ranks them by simulated time (or the job's objective).
pub fn plan(job: &Job, progress: &(dyn Fn(Progress) + Sync)) -> Result<Planned, Failure> {
    match meshwright_planner::search(job, progress) {
        Verdict::NoFit { why, smallest_change, report } => {
            Ok(Planned::NoFit { why, smallest_change, report })
        }
        Verdict::Plans { plans, report } => rank(plans, report).map(|p| Planned::Fits(Box::new(p))),
    }
}

/// Simulates the candidates and keeps the best, with the others as alternatives.
fn rank(plans: Vec<Plan>, mut report: SearchReport) -> Result<Plan, Failure> {
    let cost = CostModel::new(&plans[0].job.cluster);
    let mut simulated = Vec::new();
    for mut plan in plans {
        let program = lower(&plan)?;
        let options = Options { ranks: Ranks::Representatives, ..Options::default() };
        let seconds = meshwright_simulator::step_time(&program, &cost, &options).seconds();
        let (band, basis) = band(&plan.job.cluster);
        plan.prediction.step_time_s = seconds;
        plan.prediction.step_time_band_s = (seconds * (1.0 - band), seconds * (1.0 + band));
        plan.prediction.basis = basis;
        simulated.push(plan);
    }
    let key = |p: &Plan| {
        let peak = p.prediction.peak_memory_bytes.iter().max().copied().unwrap_or_default();
        match p.job.search.objective {
            Objective::Memory => (peak.0, p.prediction.step_time_s),
            // Every candidate uses the same devices, so dollars and joules rank as time does.
            Objective::Time | Objective::Cost | Objective::Energy => (0, p.prediction.step_time_s),
        }
    };
    // A stable sort: equals stay in the planner's order.
    simulated.sort_by(|a, b| key(a).partial_cmp(&key(b)).expect("times are finite"));
    report.simulated = simulated.len() as u64;
    let alternatives = simulated[1..].iter().map(alternative).collect();
    report.alternatives = alternatives;
    let mut best = simulated.swap_remove(0);
    best.search = report;
    best.why = why(&best);
    Ok(best)
}

fn alternative(p: &Plan) -> Alternative {
    Alternative {
        mesh: p.mesh,
        sequence_parallel: p.sequence_parallel(),
        micro_batch: p.micro_batch,
        schedule: p.schedule,
        state_sharding: p.state_sharding,
        step_time_s: p.prediction.step_time_s,
        peak_memory_bytes: p.prediction.peak_memory_bytes.iter().max().copied().unwrap_or_default(),
    }
}

/// How far a prediction may be off, and why that much. Both are guesses until a validation has been run on the machine.
fn band(cluster: &Cluster) -> (f64, String) {
    match cluster.sources.values().any(|s| s.starts_with("measured here")) {
        true => (0.25, "kernels and links measured on this machine; the width of the band is a guess".into()),
        false if cluster.sources.is_empty() => {
            (0.30, "rates as the cluster's file states them, not calibrated; the width of the band is a guess".into())
        }
        false => (0.30, "datasheet and published curves, not calibrated on this cluster; the width of the band is a guess".into()),
    }
}

/// Why the best plan won: how the simulator ranks it, and what the planner says of it.
fn why(best: &Plan) -> Vec<String> {
    let next = best.search.alternatives.iter().map(|a| a.step_time_s).reduce(f64::min);
    let ranked = next.map(|next| {
        let step = best.prediction.step_time_s;
        let (simulated, slower) = (best.search.simulated, 100.0 * (next / step - 1.0));
        match best.job.search.objective {
            Objective::Memory => format!("the least memory of the {simulated} plans simulated"),
            Objective::Time | Objective::Cost | Objective::Energy => {
                format!("the fastest of the {simulated} plans simulated: the next takes {slower:.1} % longer")
            }
        }
    });
    ranked.into_iter().chain(best.why.iter().cloned()).collect()
}

/// Model FLOP utilisation, a fraction: model FLOPs of a step over what the devices could do at their peak.
pub fn mfu(plan: &Plan, step_time_s: f64) -> f64 {
    let (_, training) = model_flops(&plan.job.model, plan.job.training.sequence);
    let device = &plan.job.cluster.device;
    let dtype = plan.job.training.precision.matmul();
    let peak =
        device.peak.get(&dtype).or_else(|| device.peak.get(&DType::F32)).or(device.peak.values().next());
    let used = plan.mesh.ranks().div_ceil(plan.job.cluster.ranks_per_device);
    let per_second = peak.map_or(f64::INFINITY, |p| p.get()) * f64::from(device.cores) * f64::from(used);
    training.get() as f64 * plan.tokens() as f64 / step_time_s / per_second
}

/// What [`mfu`] counts.
pub const MFU_CONVENTION: &str =
    "model FLOPs, dense attention (PaLM appendix B), over peak of all devices used";

/// Trains for real on this machine's cores.
pub fn run(
    plan: &Plan,
    program: &Checked,
    data: &Path,
    steps: u64,
    progress: &(dyn Fn(u64, f64, f64) + Sync),
) -> Result<Ran, Failure> {
    let training = &plan.job.training;
    if plan.job.model.vocab < 256 {
        return Err(Failure::new(
            format!(
                "{} has a vocabulary of {}: data is read as bytes, which need 256",
                plan.job.model.name, plan.job.model.vocab
            ),
            "train a model with at least 256 tokens",
        ));
    }
    let corpus =
        Corpus::open(data, training.sequence as usize).map_err(|e| Failure::in_file("run.data", e))?;
    let samples = |what: IdKind, step: u64, sample: u64, first: u64, into: &mut [u32]| {
        let (ids, targets) = corpus.sample(
            training.seed,
            step,
            sample as usize,
            training.global_batch as usize,
            training.sequence as usize,
        );
        let wanted = if what == IdKind::Tokens { ids } else { targets };
        into.copy_from_slice(&wanted[first as usize..first as usize + into.len()]);
    };
    let options = RunOptions {
        steps,
        seed: training.seed,
        learning_rate: training.learning_rate,
        warmup: training.warmup,
        clip: training.clip,
        weight_decay: training.weight_decay,
        traced_step: Some(steps / 2),
    };
    let outcome = train(program, &Cpu, &samples, &options, progress).map_err(|e| Failure::new(e, ""))?;
    let step_time_s = median_after_warm_up(&outcome.step_times_s);
    Ok(Ran { outcome, step_time_s })
}

/// Median of the later nine tenths of the steps (of all, when there are fewer than three).
fn median_after_warm_up(times: &[f64]) -> f64 {
    let skip = if times.len() < 3 { 0 } else { times.len().div_ceil(10) };
    let mut sorted = times[skip..].to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// A report as its page and as its JSON twin, which the page holds too.
#[derive(Debug, Clone)]
pub struct Documents {
    /// One HTML file.
    pub html: String,
    /// The same figures as one JSON object.
    pub twin: String,
}

/// The report of whatever is known of a plan.
pub fn report(
    plan: &Plan,
    program: Option<&Checked>,
    simulated: Option<&Simulated>,
    measured: Option<&Trace>,
    ran: Option<&Ran>,
    command: &str,
) -> Documents {
    let predicted_s = plan.prediction.step_time_s;
    let measured_step_s = ran.map(|r| r.step_time_s);
    let load = program.map(|p| load(p, &plan.job.cluster, predicted_s));
    let advice = program.map(|p| advice(plan, p)).unwrap_or_default();
    let report = Report {
        program: program.map(|p| &**p),
        predicted: simulated.map(|s| &s.trace),
        measured: measured.or_else(|| ran.and_then(|r| r.outcome.trace.as_ref())),
        losses: ran.map_or(&[], |r| &r.outcome.losses),
        step_times_s: ran.map_or(&[], |r| &r.outcome.step_times_s),
        measured_step_s,
        error: measured_step_s.map(|m| (predicted_s - m) / m),
        tokens_per_s: Some(plan.tokens() as f64 / predicted_s),
        mfu: Some((mfu(plan, predicted_s), MFU_CONVENTION)),
        critical_path: simulated.map_or(&[], |s| &s.critical),
        load: load.as_ref(),
        advice: &advice,
        ..Report::new(plan, command)
    };
    Documents { html: meshwright_reports::html(&report), twin: meshwright_reports::twin(&report) }
}
