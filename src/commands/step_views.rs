//! A step, simulated or run, as the JSON object of the contract, and as the tables a person reads instead.

use super::output::{pairs, table};
use super::views::{Timing, count, seconds, stage_rows};
use meshwright::{Ran, Simulated, mfu};
use meshwright_cost_models::CostModel;
use meshwright_ir::program::Program;
use meshwright_ir::{Axis, Bytes, Cluster, Plan};
use serde::Serialize;

/// `simulate --json`.
#[derive(Serialize)]
pub(crate) struct SimulateView {
    step_time_s: f64,
    tokens_per_s: f64,
    mfu: Option<f64>,
    bubble_fraction: f64,
    exposed_comm_fraction: f64,
    peak_memory_bytes: Vec<Bytes>,
    memory_limit_bytes: Bytes,
    fits: bool,
    instructions: u64,
    critical_path: Vec<CriticalView>,
    timing: Timing,
}

#[derive(Serialize)]
struct CriticalView {
    what: String,
    seconds: f64,
}

pub(crate) fn simulate_view(
    program: &Program,
    plan: Option<&Plan>,
    cluster: &Cluster,
    s: &Simulated,
    took: f64,
) -> SimulateView {
    let step = s.summary.step_time.seconds();
    SimulateView {
        step_time_s: step,
        tokens_per_s: program.tokens as f64 / step,
        mfu: plan.map(|p| mfu(p, step)),
        bubble_fraction: s.summary.bubble_fraction,
        exposed_comm_fraction: s.summary.exposed_comm_fraction,
        fits: peaks(program, cluster).into_iter().all(|p| p <= limit(cluster)),
        peak_memory_bytes: peaks(program, cluster),
        memory_limit_bytes: limit(cluster),
        instructions: s.summary.instructions,
        critical_path: s
            .critical
            .iter()
            .map(|c| CriticalView { what: c.label.clone(), seconds: c.time.seconds() })
            .collect(),
        timing: Timing {
            seconds: took,
            configs_per_s: None,
            instructions_per_s: Some(s.summary.instructions as f64 / took.max(1e-9)),
        },
    }
}

/// What a rank of each stage needs, the runtime's reserve included: as a plan counts it.
fn peaks(program: &Program, cluster: &Cluster) -> Vec<Bytes> {
    program.planned_peaks().into_iter().map(|peak| peak + cluster.device.reserved).collect()
}

/// What a rank may use, the runtime's reserve included.
fn limit(cluster: &Cluster) -> Bytes {
    CostModel::new(cluster).memory_limit() + cluster.device.reserved
}

pub(crate) fn simulate_text(program: &Program, cluster: &Cluster, s: &Simulated) -> String {
    let step = s.summary.step_time.seconds();
    let limit = limit(cluster);
    let mut stages = vec![["stage", "peak memory", "to spare"].map(String::from).to_vec()];
    let peaks = peaks(program, cluster);
    stages.extend(stage_rows(&peaks, |k| {
        let peak = peaks[k];
        let spare = match peak <= limit {
            true => limit.saturating_sub(peak).to_string(),
            false => format!("{} short", peak.saturating_sub(limit)),
        };
        vec![k.to_string(), peak.to_string(), spare]
    }));
    let rows = [
        vec!["step time".into(), seconds(step)],
        vec!["throughput".into(), format!("{:.0} tokens/s", program.tokens as f64 / step)],
        vec!["bubble".into(), format!("{:.1} %", 100.0 * s.summary.bubble_fraction)],
        vec!["exposed communication".into(), format!("{:.1} %", 100.0 * s.summary.exposed_comm_fraction)],
        vec!["instructions".into(), s.summary.instructions.to_string()],
    ];
    let mut path = vec![["critical path", "time"].map(String::from).to_vec()];
    path.extend(s.critical.iter().map(|c| vec![c.label.clone(), c.time.to_string()]));
    format!("{}\n{}\n{}", table(&stages), pairs(&rows), table(&path))
}

/// Predicted beside measured.
#[derive(Serialize)]
pub(crate) struct StepTimeView {
    measured: f64,
    predicted: f64,
    error: f64,
}

#[derive(Serialize)]
pub(crate) struct PeakView {
    measured: Vec<Bytes>,
    predicted: Vec<Bytes>,
}

/// `run --json`.
#[derive(Serialize)]
pub(crate) struct RunView {
    losses: Vec<f64>,
    step_time_s: StepTimeView,
    peak_memory_bytes: PeakView,
    weights_hash: String,
}

/// Largest high-water mark of each stage.
fn stage_peaks(plan: &Plan, ran: &Ran) -> Vec<Bytes> {
    let mut peaks = vec![Bytes::ZERO; plan.stages.len()];
    for (rank, high) in ran.outcome.high_water.iter().enumerate() {
        let stage = plan.mesh.coord(rank as u32, Axis::Pp) as usize;
        peaks[stage] = peaks[stage].max(*high);
    }
    peaks
}

pub(crate) fn run_view(plan: &Plan, program: &Program, ran: &Ran) -> RunView {
    let (measured, predicted) = (ran.step_time_s, plan.prediction.step_time_s);
    RunView {
        losses: ran.outcome.losses.clone(),
        step_time_s: StepTimeView { measured, predicted, error: (predicted - measured) / measured },
        peak_memory_bytes: PeakView { measured: stage_peaks(plan, ran), predicted: program.planned_peaks() },
        weights_hash: ran.outcome.weights_hash.clone(),
    }
}

pub(crate) fn run_text(plan: &Plan, program: &Program, ran: &Ran) -> String {
    let (measured, predicted) = (ran.step_time_s, plan.prediction.step_time_s);
    let list = |peaks: &[Bytes]| peaks.iter().map(Bytes::to_string).collect::<Vec<_>>().join(", ");
    let (first, last) = (
        ran.outcome.losses.first().copied().unwrap_or(0.0),
        ran.outcome.losses.last().copied().unwrap_or(0.0),
    );
    let rows = [
        vec![
            "peak memory".into(),
            format!(
                "{} of buffers measured, {} planned, a rank by stage",
                list(&stage_peaks(plan, ran)),
                list(&program.planned_peaks())
            ),
        ],
        vec![
            "step time".into(),
            format!(
                "{} measured, {} predicted ({:+.0} %)",
                seconds(measured),
                seconds(predicted),
                100.0 * (predicted - measured) / measured
            ),
        ],
        vec![
            "loss".into(),
            format!(
                "{first:.3} → {last:.3} nats a token in {}",
                count(ran.outcome.losses.len() as u64, "step")
            ),
        ],
        vec!["weights".into(), ran.outcome.weights_hash.clone()],
    ];
    pairs(&rows)
}
