//! The JSON objects of the contract, and the tables a person reads instead.

use super::output::table;
use meshwright::facade::MFU_CONVENTION;
use meshwright::{Ran, Simulated, mfu};
use meshwright_ir::program::Program;
use meshwright_ir::{Axis, Bytes, Plan, Precision, SearchReport};
use serde::Serialize;

/// Degrees as the contract names them.
#[derive(Serialize)]
pub(crate) struct MeshView {
    dp: u32,
    fsdp: u32,
    tp: u32,
    sp: bool,
    cp: u32,
    ep: u32,
    etp: u32,
    pp: u32,
    vpp: u32,
}

#[derive(Serialize)]
pub(crate) struct Timing {
    pub(crate) seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) configs_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) instructions_per_s: Option<f64>,
}

#[derive(Serialize)]
pub(crate) struct SearchView {
    candidates: u64,
    pruned: u64,
    solved: u64,
    simulated: u64,
    surrogate_gap_s: f64,
}

#[derive(Serialize)]
pub(crate) struct AlternativeView {
    mesh: MeshView,
    microbatch: u64,
    schedule: String,
    optimizer_sharding: String,
    step_time_s: f64,
    peak_memory_bytes: Bytes,
}

/// `plan --json` when a plan fits.
#[derive(Serialize)]
pub(crate) struct PlanView {
    status: &'static str,
    mesh: MeshView,
    microbatch: u64,
    microbatches: u64,
    schedule: String,
    recompute: String,
    optimizer_sharding: String,
    step_time_s: f64,
    step_time_band_s: (f64, f64),
    tokens_per_s: f64,
    mfu: f64,
    mfu_convention: &'static str,
    peak_memory_bytes: Vec<Bytes>,
    memory_limit_bytes: Bytes,
    lower_bound_s: f64,
    gap: f64,
    search: SearchView,
    timing: Timing,
    alternatives: Vec<AlternativeView>,
    why: Vec<String>,
}

/// `plan --json` when none does.
#[derive(Serialize)]
pub(crate) struct NoFitView {
    pub(crate) status: &'static str,
    pub(crate) why: Vec<String>,
    pub(crate) smallest_change: String,
    pub(crate) search: SearchView,
    pub(crate) timing: Timing,
}

pub(crate) fn search_view(report: &SearchReport) -> SearchView {
    SearchView {
        candidates: report.candidates,
        pruned: report.pruned,
        solved: report.solved,
        simulated: report.simulated,
        surrogate_gap_s: report.surrogate_gap_s,
    }
}

fn mesh_view(mesh: &meshwright_ir::Mesh, sp: bool) -> MeshView {
    let d = |a| mesh.degree(a);
    MeshView {
        dp: d(Axis::Dp),
        fsdp: d(Axis::Fsdp),
        tp: d(Axis::Tp),
        sp,
        cp: d(Axis::Cp),
        ep: 1,
        etp: 1,
        pp: d(Axis::Pp),
        vpp: 1,
    }
}

pub(crate) fn plan_view(plan: &Plan, seconds: f64) -> PlanView {
    let p = &plan.prediction;
    PlanView {
        status: "ok",
        mesh: mesh_view(&plan.mesh, plan.sequence_parallel()),
        microbatch: plan.micro_batch,
        microbatches: plan.micro_batches,
        schedule: plan.schedule.to_string(),
        recompute: plan.recompute_summary(),
        optimizer_sharding: plan.state_sharding.to_string(),
        step_time_s: p.step_time_s,
        step_time_band_s: p.step_time_band_s,
        tokens_per_s: plan.tokens() as f64 / p.step_time_s,
        mfu: mfu(plan, p.step_time_s),
        mfu_convention: MFU_CONVENTION,
        peak_memory_bytes: p.peak_memory_bytes.clone(),
        memory_limit_bytes: p.memory_limit_bytes,
        lower_bound_s: p.lower_bound_s,
        gap: (p.step_time_s - p.lower_bound_s) / p.step_time_s,
        search: search_view(&plan.search),
        timing: Timing {
            seconds,
            configs_per_s: Some(plan.search.candidates as f64 / seconds),
            instructions_per_s: None,
        },
        alternatives: plan
            .search
            .alternatives
            .iter()
            .map(|a| AlternativeView {
                mesh: mesh_view(&a.mesh, a.sequence_parallel),
                microbatch: a.micro_batch,
                schedule: a.schedule.to_string(),
                optimizer_sharding: a.state_sharding.to_string(),
                step_time_s: a.step_time_s,
                peak_memory_bytes: a.peak_memory_bytes,
            })
            .collect(),
        why: plan.why.clone(),
    }
}

/// A duration for a person.
pub(crate) fn seconds(s: f64) -> String {
    match s {
        s if s < 1e-3 => format!("{:.0} µs", s * 1e6),
        s if s < 1.0 => format!("{:.1} ms", s * 1e3),
        s => format!("{s:.2} s"),
    }
}

fn describe(mesh: &meshwright_ir::Mesh, sp: bool) -> String {
    let parts: Vec<String> = mesh.active().iter().map(|a| format!("{a} {}", mesh.degree(a))).collect();
    let parts = if parts.is_empty() { "one rank".to_string() } else { parts.join(" · ") };
    if sp { format!("{parts} · sp") } else { parts }
}

/// `, zero-1`, or nothing.
fn sharding(sharding: meshwright_ir::StateSharding) -> String {
    match sharding {
        meshwright_ir::StateSharding::None => String::new(),
        meshwright_ir::StateSharding::Zero1 => format!(", {sharding}"),
    }
}

pub(crate) fn plan_text(plan: &Plan) -> String {
    let p = &plan.prediction;
    let job = &plan.job;
    let mut text = format!(
        "{} on {} of {}: {}, micro-batch {} × {}, {}{}\n\n",
        job.model.name,
        count(u64::from(plan.mesh.ranks()), "rank"),
        job.cluster.name,
        describe(&plan.mesh, plan.sequence_parallel()),
        plan.micro_batch,
        plan.micro_batches,
        plan.schedule,
        sharding(plan.state_sharding)
    );
    let blocks = |s: &meshwright_ir::StagePlan| match s.blocks {
        1 => job.model.block_name(s.first),
        n => format!("{} … {}", job.model.block_name(s.first), job.model.block_name(s.first + n - 1)),
    };
    let mut rows = vec![["stage", "peak memory", "to spare", "blocks"].map(String::from).to_vec()];
    rows.extend(plan.stages.iter().zip(&p.peak_memory_bytes).enumerate().map(|(k, (stage, peak))| {
        vec![
            k.to_string(),
            peak.to_string(),
            p.memory_limit_bytes.saturating_sub(*peak).to_string(),
            blocks(stage),
        ]
    }));
    text += &table(&rows);
    let rows = [
        vec![
            "step time".into(),
            format!(
                "{}  ({} – {})",
                seconds(p.step_time_s),
                seconds(p.step_time_band_s.0),
                seconds(p.step_time_band_s.1)
            ),
        ],
        vec!["recompute".into(), plan.recompute_summary()],
        vec!["throughput".into(), format!("{:.0} tokens/s", plan.tokens() as f64 / p.step_time_s)],
        vec!["MFU".into(), format!("{:.1} %", 100.0 * mfu(plan, p.step_time_s))],
        vec![
            "lower bound".into(),
            format!(
                "{}  (gap {:.0} %)",
                seconds(p.lower_bound_s),
                100.0 * (p.step_time_s - p.lower_bound_s) / p.step_time_s
            ),
        ],
        vec!["basis".into(), p.basis.clone()],
        vec![
            "search".into(),
            format!(
                "{} candidates, {} block problems, {} simulated",
                plan.search.candidates, plan.search.solved, plan.search.simulated
            ),
        ],
    ];
    text += "\n";
    text += &pairs(&rows);
    if !plan.search.alternatives.is_empty() {
        let mut rows = vec![["next best", "step", "peak memory"].map(String::from).to_vec()];
        rows.extend(plan.search.alternatives.iter().map(|a| {
            vec![
                format!(
                    "{}, micro-batch {}, {}{}",
                    describe(&a.mesh, a.sequence_parallel),
                    a.micro_batch,
                    a.schedule,
                    sharding(a.state_sharding)
                ),
                seconds(a.step_time_s),
                a.peak_memory_bytes.to_string(),
            ]
        }));
        text += "\n";
        text += &table(&rows);
    }
    text
}

/// Key and value lines, both left-aligned.
pub(crate) fn pairs(rows: &[Vec<String>]) -> String {
    let width = rows.iter().map(|r| r[0].chars().count()).max().unwrap_or(0);
    rows.iter().map(|r| format!("  {:<width$}  {}\n", r[0], r[1])).collect()
}

/// `1 rank`, `4 ranks`.
pub(crate) fn count(n: u64, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

/// `simulate --json`.
#[derive(Serialize)]
pub(crate) struct SimulateView {
    step_time_s: f64,
    tokens_per_s: f64,
    mfu: Option<f64>,
    bubble_fraction: f64,
    exposed_comm_fraction: f64,
    peak_memory_bytes: Vec<Bytes>,
    instructions: u64,
    critical_path: Vec<CriticalView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timing: Option<Timing>,
}

#[derive(Serialize)]
struct CriticalView {
    what: String,
    seconds: f64,
}

pub(crate) fn simulate_view(
    program: &Program,
    plan: Option<&Plan>,
    s: &Simulated,
    took: Option<f64>,
) -> SimulateView {
    let step = s.summary.step_time.seconds();
    SimulateView {
        step_time_s: step,
        tokens_per_s: program.tokens as f64 / step,
        mfu: plan.map(|p| mfu(p, step)),
        bubble_fraction: s.summary.bubble_fraction,
        exposed_comm_fraction: s.summary.exposed_comm_fraction,
        peak_memory_bytes: program.planned_peaks(),
        instructions: s.summary.instructions,
        critical_path: s
            .critical
            .iter()
            .map(|c| CriticalView { what: c.label.clone(), seconds: c.time.seconds() })
            .collect(),
        timing: took.map(|t| Timing {
            seconds: t,
            configs_per_s: None,
            instructions_per_s: Some(s.summary.instructions as f64 / t),
        }),
    }
}

pub(crate) fn simulate_text(program: &Program, s: &Simulated) -> String {
    let step = s.summary.step_time.seconds();
    let peaks: Vec<String> = program.planned_peaks().iter().map(Bytes::to_string).collect();
    let rows = [
        vec!["peak memory".into(), format!("{} a rank, by stage", peaks.join(", "))],
        vec!["step time".into(), seconds(step)],
        vec!["throughput".into(), format!("{:.0} tokens/s", program.tokens as f64 / step)],
        vec!["bubble".into(), format!("{:.1} %", 100.0 * s.summary.bubble_fraction)],
        vec!["exposed communication".into(), format!("{:.1} %", 100.0 * s.summary.exposed_comm_fraction)],
        vec!["instructions".into(), s.summary.instructions.to_string()],
    ];
    let mut path = vec![["critical path", "time"].map(String::from).to_vec()];
    path.extend(s.critical.iter().map(|c| vec![c.label.clone(), c.time.to_string()]));
    format!("{}\n{}", pairs(&rows), table(&path))
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
                "{} measured, {} planned, a rank by stage",
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

/// Whether this slice's executor can run a plan, before anything is opened.
pub(crate) fn needs_fp32(plan: &Plan) -> bool {
    plan.job.training.precision != Precision::Fp32
}
