//! A plan as the JSON object of the contract, and as the tables a person reads instead.

use super::output::{items, pairs, table};
use meshwright::facade::MFU_CONVENTION;
use meshwright::mfu;
use meshwright_ir::{Axis, Bytes, Plan, SearchReport};
use serde::Serialize;
use std::collections::BTreeMap;

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

/// What [`PlanView`] says of a plan, and nobody knows where none fits.
const UNKNOWN: [&str; 15] = [
    "mesh",
    "microbatch",
    "microbatches",
    "schedule",
    "recompute",
    "optimizer_sharding",
    "step_time_s",
    "step_time_band_s",
    "tokens_per_s",
    "mfu",
    "mfu_convention",
    "peak_memory_bytes",
    "memory_limit_bytes",
    "lower_bound_s",
    "gap",
];

/// `plan --json` when none does: the same fields, null where there is no plan to speak of.
#[derive(Serialize)]
pub(crate) struct NoFitView {
    status: &'static str,
    #[serde(flatten)]
    unknown: BTreeMap<&'static str, Option<()>>,
    search: SearchView,
    timing: Timing,
    alternatives: Vec<AlternativeView>,
    why: Vec<String>,
    smallest_change: String,
}

pub(crate) fn no_fit_view(
    why: Vec<String>,
    smallest_change: String,
    report: &SearchReport,
    seconds: f64,
) -> NoFitView {
    NoFitView {
        status: "no_fit",
        unknown: UNKNOWN.map(|field| (field, None)).into(),
        search: search_view(report),
        timing: timing(report, seconds),
        alternatives: vec![],
        why,
        smallest_change,
    }
}

fn timing(report: &SearchReport, seconds: f64) -> Timing {
    let configs_per_s = Some(report.candidates as f64 / seconds.max(1e-9));
    Timing { seconds, configs_per_s, instructions_per_s: None }
}

fn search_view(report: &SearchReport) -> SearchView {
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
        timing: timing(&plan.search, seconds),
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
        meshwright_ir::StateSharding::Zero1
        | meshwright_ir::StateSharding::Zero2
        | meshwright_ir::StateSharding::Zero3 => format!(", {sharding}"),
    }
}

/// What takes the memory of the stage with the least to spare, largest first.
fn fullest(plan: &Plan) -> String {
    let p = &plan.prediction;
    let peaks = p.peak_memory_bytes.iter().enumerate();
    let (stage, peak) = peaks.max_by_key(|(k, peak)| (**peak, std::cmp::Reverse(*k))).expect("a stage");
    let memory = meshwright_lowering::planned_memory(plan).expect("a plan of the search lowers");
    let runtime = plan.job.cluster.device.reserved;
    let mut parts: Vec<(&str, Bytes)> =
        memory[stage].regions.iter().copied().chain([("the runtime's own", runtime)]).collect();
    parts.retain(|(_, bytes)| *bytes > Bytes::ZERO);
    parts.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    let parts: Vec<String> = parts.iter().map(|(name, bytes)| format!("{name} {bytes}")).collect();
    let spare = p.memory_limit_bytes.saturating_sub(*peak);
    format!("{stage}: fits with {spare} to spare; {}", parts.join(", "))
}

/// Stages that a table lists at most, and how many of the fullest it then keeps beside the first and the last.
const STAGES_LISTED: usize = 16;
const FULLEST_LISTED: usize = 6;

/// One row a stage; of a deep pipeline the first, the last and the fullest, with what the rest have in common between.
pub(crate) fn stage_rows(peaks: &[Bytes], row: impl Fn(usize) -> Vec<String>) -> Vec<Vec<String>> {
    if peaks.len() <= STAGES_LISTED {
        return (0..peaks.len()).map(row).collect();
    }
    let mut by_peak: Vec<usize> = (0..peaks.len()).collect();
    by_peak.sort_by_key(|k| (std::cmp::Reverse(peaks[*k]), *k));
    let mut listed: Vec<usize> =
        by_peak.into_iter().take(FULLEST_LISTED).chain([0, peaks.len() - 1]).collect();
    listed.sort_unstable();
    listed.dedup();
    let mut rows = vec![row(listed[0])];
    for pair in listed.windows(2) {
        let between = &peaks[pair[0] + 1..pair[1]];
        if let (Some(least), Some(most)) = (between.iter().min(), between.iter().max()) {
            let stages = match between.len() {
                1 => (pair[0] + 1).to_string(),
                _ => format!("{}–{}", pair[0] + 1, pair[1] - 1),
            };
            let range = if least == most { least.to_string() } else { format!("{least} – {most}") };
            rows.push(vec![stages, range]);
        }
        rows.push(row(pair[1]));
    }
    rows
}

/// The plan in one line.
pub(crate) fn headline(plan: &Plan) -> String {
    let job = &plan.job;
    format!(
        "{} on {} of {}: {}, micro-batch {} × {}, {}{}",
        job.model.name,
        count(u64::from(plan.mesh.ranks()), "rank"),
        job.cluster.name,
        describe(&plan.mesh, plan.sequence_parallel()),
        plan.micro_batch,
        plan.micro_batches,
        plan.schedule,
        sharding(plan.state_sharding)
    )
}

pub(crate) fn plan_text(plan: &Plan) -> String {
    let p = &plan.prediction;
    let job = &plan.job;
    let mut text = format!("{}\n\n", headline(plan));
    let blocks = |s: &meshwright_ir::StagePlan| match s.blocks {
        1 => job.model.block_name(s.first),
        n => format!("{} … {}", job.model.block_name(s.first), job.model.block_name(s.first + n - 1)),
    };
    let limit = p.memory_limit_bytes;
    let mut rows = vec![["stage", "peak memory", "to spare", "blocks"].map(String::from).to_vec()];
    rows.extend(stage_rows(&p.peak_memory_bytes, |k| {
        let peak = p.peak_memory_bytes[k];
        vec![k.to_string(), peak.to_string(), limit.saturating_sub(peak).to_string(), blocks(&plan.stages[k])]
    }));
    text += &table(&rows);
    let rows = [
        vec!["fullest stage".into(), fullest(plan)],
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

/// Why this plan, for a person.
pub(crate) fn why_text(plan: &Plan) -> String {
    format!("\n  why this plan\n{}", items(plan.why.iter().map(String::as_str)))
}

/// `1 rank`, `4 ranks`.
pub(crate) fn count(n: u64, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}
