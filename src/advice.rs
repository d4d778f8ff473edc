//! What would make a plan's step shorter, and by how much: changes to the cluster or the job that are each simulated, and
//! plans that the search found short of memory, by closed form. The invariant: a gain that is named was computed by the
//! same path as the plan's own prediction, never estimated.

use crate::change::Amount;
use crate::{facade, fields};
use meshwright_cost_models::CostModel;
use meshwright_ir::program::Checked;
use meshwright_ir::{Axis, Bytes, Candidate, Need, Plan, Recompute};
use meshwright_reports::{Action, Basis};
use meshwright_simulator::{Options, Partition, Ranks, step_time};
use rayon::prelude::*;

/// Instructions to simulate beyond which the changes are left untried: a few seconds.
const MOST_INSTRUCTIONS: u64 = 3_000_000;
/// A gain below this share of the step is not worth a line.
const LEAST: f64 = 0.005;

/// A change to try: what to say, and the field that becomes what.
struct Try {
    label: String,
    path: String,
    amount: Amount,
}

/// Actions that would shorten a token's share of the step, the largest gain first.
pub fn advice(plan: &Plan, program: &Checked) -> Vec<Action> {
    let mut actions: Vec<Action> = more_memory(plan).into_iter().collect();
    let own = CostModel::new(&plan.job.cluster);
    let folded = Options { ranks: Ranks::Representatives, ..Options::default() };
    let affordable = Partition::of(program, &own, &folded).instructions(program) <= MOST_INSTRUCTIONS;
    if affordable && facade::check_length(program, &own, 1.0).is_ok() {
        let now = step_time(program, &own, &folded).seconds();
        let tried: Vec<Option<Action>> =
            tries(plan).par_iter().map(|t| tried(plan, program, &folded, now, t)).collect();
        actions.extend(tried.into_iter().flatten());
    }
    actions.retain(|a| a.gain >= LEAST);
    // A stable sort: equals stay in the order of the list.
    actions.sort_by(|a, b| b.gain.total_cmp(&a.gain));
    actions
}

fn tries(plan: &Plan) -> Vec<Try> {
    let change = |label: String, path: String, amount| Try { label, path, amount };
    let cluster = &plan.job.cluster;
    let mut all = vec![];
    if plan.mesh.ranks() > 1 {
        all.extend(cluster.levels.iter().map(|l| {
            let path = format!("cluster.levels.{}.bandwidth", l.name);
            change(format!("twice the bandwidth of {}", l.name), path, Amount::Times(2.0))
        }));
    }
    let batch = plan.job.training.global_batch;
    let double =
        format!("{} sequences a step instead of {batch}, more micro-batches to fill the pipeline", 2 * batch);
    if plan.mesh.degree(Axis::Pp) > 1 || plan.mesh.replicas() > 1 {
        let double = if plan.mesh.degree(Axis::Pp) > 1 {
            double
        } else {
            format!("{} sequences a step instead of {batch}, gradients summed half as often", 2 * batch)
        };
        all.push(change(double, "training.global_batch".into(), Amount::Times(2.0)));
    }
    if cluster.device.launch.get() > 0 {
        let label = "kernels launched from a recorded graph, without host time for each".to_string();
        all.push(change(label, "cluster.device.launch".into(), Amount::To("0".into())));
    }
    let faster = "twice the memory bandwidth of the device".to_string();
    all.push(change(faster, "cluster.device.memory_bandwidth".into(), Amount::Times(2.0)));
    if plan.recompute.iter().any(|r| *r != Recompute::None) {
        let label = "memory enough to recompute nothing".to_string();
        all.push(change(label, "recompute".into(), Amount::To("none".into())));
    }
    all
}

/// Simulates the plan, whose step takes `now` seconds, under one change; `None` where the plan does not stand it.
fn tried(plan: &Plan, program: &Checked, folded: &Options, now: f64, t: &Try) -> Option<Action> {
    let after = fields::changed(plan, &t.path, &t.amount).ok()?;
    let lowered;
    let program = if t.path.starts_with("cluster.") {
        program
    } else {
        lowered = facade::lower(&after).ok()?;
        &lowered
    };
    let cluster = &after.job.cluster;
    let cost = CostModel::new(cluster);
    facade::check_length(program, &cost, 1.0).ok()?;
    let reserved = cluster.device.reserved;
    let limit = cost.memory_limit() + reserved;
    let peak = program.planned_peaks().into_iter().max().unwrap_or_default() + reserved;
    let short = peak.saturating_sub(limit);
    let step = step_time(program, &cost, folded).seconds();
    // Per token, so that a longer step of more tokens compares.
    let tokens = after.tokens() as f64 / plan.tokens() as f64;
    Some(Action {
        label: match short {
            Bytes::ZERO => t.label.clone(),
            _ => format!("{} ({short} more a rank)", t.label),
        },
        change: format!("{}={}", t.path, amount(&t.amount)),
        step_time_s: step,
        gain: 1.0 - step / now / tokens,
        basis: Basis::Simulated,
        fits: short == Bytes::ZERO,
    })
}

fn amount(a: &Amount) -> String {
    match a {
        Amount::Times(x) => format!("{x}x"),
        Amount::To(value) => value.clone(),
    }
}

/// The candidate that memory alone keeps from beating the plan by most.
fn more_memory(plan: &Plan) -> Option<Action> {
    let own = plan.prediction.step_time_s;
    let closer = |c: &Candidate| match plan.need(c) {
        Need::Memory { short, step: Some(step) } if step < 1.0 => Some((step, short, c.clone())),
        Need::Memory { .. } | Need::Time { .. } | Need::Bound { .. } | Need::Rule => None,
    };
    let faster = plan.search.points.iter().filter_map(closer);
    let (step, short, c) = faster.min_by(|a, b| a.0.total_cmp(&b.0))?;
    let degrees: Vec<String> = c.mesh.active().iter().map(|a| format!("{a} {}", c.mesh.degree(a))).collect();
    Some(Action {
        label: format!(
            "{short} more memory a rank, for {} at micro-batch {}",
            degrees.join(" × "),
            c.micro_batch
        ),
        change: format!("cluster.device.memory+{}", short.get()),
        step_time_s: step * own,
        gain: 1.0 - step,
        basis: Basis::ClosedForm,
        fits: false,
    })
}
