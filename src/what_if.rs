//! What a plan would do if something were otherwise: another bandwidth, a longer sequence, a slow rank. Every case, the
//! plan as it stands included, goes the same way: lower, check, fit, simulate one step. The invariant: cases depend on
//! plan and changes alone and come in the order of the changes; a case that cannot be says why instead of a time.

use crate::change::Change;
use crate::facade::{self, Planned};
use crate::{Failure, fields};
use meshwright_cost_models::CostModel;
use meshwright_ir::program::Checked;
use meshwright_ir::{Axis, Bytes, Comparison, Job, Pin, PinKey, Plan, Recompute, Schedule, StateSharding};
use meshwright_simulator::{Options, Partition, Ranks, step_time};
use rayon::prelude::*;
use std::collections::BTreeMap;

/// What [`Case::goodput`] counts.
pub const GOODPUT_CONVENTION: &str = "tokens per second of one uninterrupted step";

/// Most instructions that are simulated for one case, over all classes of ranks that a slow one tells apart: some 1 GiB.
const MOST_INSTRUCTIONS: u64 = 50_000_000;

/// One step under one change.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    /// The change as it would be typed; `none` for the plan as it stands.
    pub change: String,
    /// Simulated step time in seconds, where the plan is legal and fits.
    pub step_time_s: Option<f64>,
    /// Tokens per second, by [`GOODPUT_CONVENTION`].
    pub goodput: Option<f64>,
    /// Whether planning anew chose otherwise.
    pub plan_changed: bool,
    /// Peak of one rank of each stage, runtime reserve included, where the plan is legal.
    pub peak_memory_bytes: Option<Vec<Bytes>>,
    /// What a rank may use, runtime reserve included.
    pub memory_limit_bytes: Bytes,
    /// Whether every stage fits, where the plan is legal.
    pub fits: Option<bool>,
    /// What a new plan chose otherwise, or why there is no time.
    pub note: Option<String>,
}

/// The plan as it stands, and one case for each change.
#[derive(Debug, Clone, PartialEq)]
pub struct WhatIf {
    /// No change.
    pub baseline: Case,
    /// In the order of the changes.
    pub cases: Vec<Case>,
}

/// A change that has met the plan.
struct Variant {
    plan: Plan,
    /// The job to plan anew, where that is asked for.
    job: Option<Job>,
    slow: BTreeMap<u32, f64>,
    /// The program of the unchanged plan serves: only its cluster or a rank's speed differs.
    same_program: bool,
    /// What a reader of its figures should know.
    note: Option<String>,
}

/// Simulates `plan` under each change alone. Without `replan` its choices stay; with it the changed job is planned anew.
/// Refuses a change that no plan could take: an unknown path, a value of the wrong kind or out of range.
pub fn what_if(plan: &Plan, changes: &[Change], replan: bool) -> Result<WhatIf, Failure> {
    let variants = changes.iter().map(|c| variant(plan, c, replan)).collect::<Result<Vec<_>, _>>()?;
    let program = facade::lower(plan)?;
    let baseline = simulated("none", plan, &program, &BTreeMap::new());
    let case = |(change, variant): (&Change, Variant)| case(&change.to_string(), plan, variant, &program);
    let cases = changes.par_iter().zip(variants).map(case).collect();
    Ok(WhatIf { baseline, cases })
}

fn variant(plan: &Plan, change: &Change, replan: bool) -> Result<Variant, Failure> {
    match change {
        Change::Straggler { rank, slow } => {
            let ranks = plan.mesh.ranks();
            if *rank >= ranks {
                let message = format!("{change}: the plan has {ranks} ranks");
                return Err(Failure::new(message, format!("name a rank from 0 to {}", ranks - 1)));
            }
            // The planner prices ranks alike, so a slow one would not change its choice.
            let slow = BTreeMap::from([(*rank, *slow)]);
            let note = replan.then(|| "planning anew prices all ranks alike, so the plan stays".to_string());
            Ok(Variant { plan: plan.clone(), job: None, slow, same_program: true, note })
        }
        Change::Set { path, amount } => {
            let path = fields::short(path);
            let after = fields::changed(plan, path, amount)?;
            let job = if replan { Some(job_anew(path, &after)?) } else { None };
            if !replan {
                keeps_world(path, plan, &after)?;
            }
            let same_program = !replan && path.starts_with("cluster.");
            Ok(Variant { plan: after, job, slow: BTreeMap::new(), same_program, note: None })
        }
    }
}

/// Refuses, where nothing is planned anew, what only a new plan can follow.
fn keeps_world(path: &str, before: &Plan, after: &Plan) -> Result<(), Failure> {
    let ranks = |p: &Plan| p.job.search.ranks;
    if path.starts_with("search.") || ranks(before) != ranks(after) {
        let message =
            format!("{path}: the plan's {} ranks were chosen under the old value", before.mesh.ranks());
        return Err(Failure::new(message, "add --replan, which plans anew under the change"));
    }
    Ok(())
}

/// The job that asks for the change: a changed choice of the plan becomes a pin.
fn job_anew(path: &str, after: &Plan) -> Result<Job, Failure> {
    let mut job = after.job.clone();
    let pin = match path {
        "micro_batch" => Some((PinKey::Microbatch, after.micro_batch)),
        "schedule" => {
            let position = Schedule::ALL.iter().position(|s| *s == after.schedule);
            Some((PinKey::Schedule, position.expect("every schedule is listed") as u64))
        }
        "state_sharding" => {
            let position = StateSharding::ALL.iter().position(|s| *s == after.state_sharding);
            Some((PinKey::Zero, position.expect("every sharding is listed") as u64))
        }
        // A change of it holds for every block, as the pin does.
        "recompute" => {
            let level = after.recompute.iter().max();
            let position = Recompute::ALL.iter().position(|l| Some(l) == level);
            position.map(|p| (PinKey::Recompute, p as u64))
        }
        _ if ["training.", "cluster.", "search."].iter().any(|p| path.starts_with(p)) => None,
        _ => {
            let message = format!("{path}: planning anew chooses it, and no pin can hold it");
            return Err(Failure::new(message, "leave out --replan, or change the job instead"));
        }
    };
    if let Some((key, value)) = pin {
        job.search.pins.retain(|p| p.key != key);
        job.search.pins.push(Pin { key, comparison: Comparison::Equal, value });
    }
    Ok(job)
}

fn case(change: &str, before: &Plan, variant: Variant, program: &Checked) -> Case {
    let Variant { plan, job, slow, same_program, note } = variant;
    if let Some(job) = job {
        return anew(change, before, &job);
    }
    if same_program {
        let case = simulated(change, &plan, program, &slow);
        return Case { note: case.note.clone().or(note), ..case };
    }
    match lowered(&plan) {
        Ok(program) => simulated(change, &plan, &program, &slow),
        Err(why) => impossible(change, &plan.job, why),
    }
}

fn lowered(plan: &Plan) -> Result<Checked, String> {
    let program = meshwright_lowering::lower(plan).map_err(|e| e.to_string())?;
    program.check().map_err(|fault| format!("the plan's program is refused: {fault}"))
}

/// The best plan of a changed job.
fn anew(change: &str, before: &Plan, job: &Job) -> Case {
    if let Err(e) = job.check() {
        return impossible(change, job, e.to_string());
    }
    let plan = match facade::plan(job, &|_| {}) {
        Ok(Planned::Fits(plan)) => *plan,
        Ok(Planned::NoFit { smallest_change, .. }) => {
            let case = impossible(change, job, format!("no plan fits; {smallest_change}"));
            return Case { fits: Some(false), ..case };
        }
        Err(e) => return impossible(change, job, e.to_string()),
    };
    let program = match lowered(&plan) {
        Ok(program) => program,
        Err(why) => return impossible(change, job, why),
    };
    let differences = differences(before, &plan);
    let case = simulated(change, &plan, &program, &BTreeMap::new());
    let note = (!differences.is_empty()).then(|| differences.join(", "));
    Case { plan_changed: !differences.is_empty(), note: note.or(case.note.clone()), ..case }
}

fn impossible(change: &str, job: &Job, why: String) -> Case {
    Case {
        change: change.into(),
        step_time_s: None,
        goodput: None,
        plan_changed: false,
        peak_memory_bytes: None,
        memory_limit_bytes: job.cluster.memory_per_rank() + job.cluster.device.reserved,
        fits: None,
        note: Some(why),
    }
}

/// One step of a plan's program, if its memory fits; some ranks may be slow.
fn simulated(change: &str, plan: &Plan, program: &Checked, slow: &BTreeMap<u32, f64>) -> Case {
    let cluster = &plan.job.cluster;
    let (reserved, room) = (cluster.device.reserved, cluster.memory_per_rank());
    let peaks: Vec<Bytes> = program.planned_peaks().iter().map(|p| *p + reserved).collect();
    let fullest = (0..peaks.len()).rev().max_by_key(|s| peaks[*s]).expect("a program has a stage");
    let short = Some(fullest).filter(|s| peaks[*s] > room + reserved);
    let case = Case {
        peak_memory_bytes: Some(peaks.clone()),
        fits: Some(short.is_none()),
        ..impossible(change, &plan.job, String::new())
    };
    let refuse = |why: String| Case { note: Some(why), ..case.clone() };
    if let Some(stage) = short {
        return refuse(format!("stage {stage} needs {} of {}", peaks[stage], room + reserved));
    }
    let options = Options { ranks: Ranks::Representatives, slow: slow.clone() };
    let cost = CostModel::new(cluster);
    if let Err(why) = facade::check_length(program, &cost, slow.values().copied().fold(1.0, f64::max)) {
        return refuse(why.to_string());
    }
    let all = Partition::of(program, &cost, &options).instructions(program);
    if all > MOST_INSTRUCTIONS {
        return refuse(format!("so few ranks see the same times that {all} instructions are too many"));
    }
    let step = step_time(program, &cost, &options).seconds();
    Case { step_time_s: Some(step), goodput: Some(plan.tokens() as f64 / step), note: None, ..case }
}

/// What a new plan chooses otherwise: `tp 2 → 4`, `schedule gpipe → 1f1b`.
fn differences(before: &Plan, after: &Plan) -> Vec<String> {
    let choices = |p: &Plan| -> Vec<(String, String)> {
        let degrees = Axis::ALL.into_iter().map(|a| (a.to_string(), p.mesh.degree(a).to_string()));
        let others = [
            ("sp", p.sequence_parallel().to_string()),
            ("micro-batch", p.micro_batch.to_string()),
            ("schedule", p.schedule.to_string()),
            ("recompute", p.recompute_summary()),
            ("optimizer sharding", p.state_sharding.to_string()),
        ];
        degrees.chain(others.map(|(k, v)| (k.to_string(), v))).collect()
    };
    let pairs = choices(before).into_iter().zip(choices(after));
    pairs.filter(|(a, b)| a.1 != b.1).map(|(a, b)| format!("{} {} → {}", a.0, a.1, b.1)).collect()
}
