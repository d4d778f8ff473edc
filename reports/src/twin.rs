//! The JSON twin: the report's figures as one object, in seconds, bytes and shares between 0 and 1; what is unknown or no
//! number is `null`. The page holds it, so a script needs nothing else. The invariant: nothing in it can end the element
//! it stands in or turn the direction of text, whatever a name holds.

use crate::report::{Basis, Report};
use meshwright_ir::trace::RankBreakdown;
use meshwright_ir::{Bytes, Candidate, ErrorByKind, Mesh, Need, Trace};
use serde_json::{Value, json};
use std::fmt::Write;

/// Candidates listed; the plan file holds the rest.
const POINTS: usize = 600;

/// The report as JSON, indented by two.
pub fn twin(report: &Report<'_>) -> String {
    let text = serde_json::to_string_pretty(&value(report)).expect("a value is JSON");
    inert(&text) + "\n"
}

/// The same in one line, for the page.
pub(crate) fn embedded(report: &Report<'_>) -> String {
    inert(&value(report).to_string())
}

/// JSON whose strings hold no character that HTML or a reader's eye could take for something else.
pub(crate) fn inert(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            // Outside strings JSON has none of these.
            '<' | '>' | '&' => write!(out, "\\u{:04x}", c as u32).expect("a string grows"),
            c if deceives(c) => write!(out, "\\u{:04x}", c as u32).expect("a string grows"),
            c => out.push(c),
        }
    }
    out
}

/// Characters that change how others are shown and are not seen themselves: marks, embeddings, overrides and isolates of
/// direction (Unicode annex 9), line separators.
pub(crate) fn deceives(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn value(report: &Report<'_>) -> Value {
    let (plan, p, job) = (report.plan, &report.plan.prediction, &report.plan.job);
    let hashes = [&job.model_source, &job.cluster_source].into_iter().chain(report.sources);
    let hashes: Vec<Value> = hashes.map(|s| json!({"name": s.name, "hash": s.hash})).collect();
    json!({
        "format": "meshwright-report",
        "version": 1,
        "model": job.model.name,
        "cluster": job.cluster.name,
        "command": report.command,
        "pins": plan.pins(),
        "plan": {
            "mesh": mesh(&plan.mesh),
            "sequence_parallel": plan.sequence_parallel(),
            "micro_batch": plan.micro_batch,
            "micro_batches": plan.micro_batches,
            "schedule": plan.schedule.to_string(),
            "recompute": plan.recompute_summary(),
            "optimizer_sharding": plan.state_sharding.to_string(),
            "precision": job.training.precision.to_string(),
            "optimizer": job.training.optimizer.to_string(),
            "sequence": job.training.sequence,
            "global_batch": job.training.global_batch,
            "stages": plan.stages.iter().map(|s| json!({"first_block": s.first, "blocks": s.blocks})).collect::<Vec<_>>(),
        },
        "prediction": {
            "step_time_s": p.step_time_s,
            "step_time_band_s": p.step_time_band_s,
            "closed_form_s": p.closed_form_s,
            "lower_bound_s": p.lower_bound_s,
            "peak_memory_bytes": p.peak_memory_bytes,
            "memory_limit_bytes": p.memory_limit_bytes,
            "tokens_per_s": report.tokens_per_s,
            "mfu": report.mfu.map(|m| m.0),
            "mfu_convention": report.mfu.map(|m| m.1),
            "basis": p.basis,
        },
        "measured": measured(report),
        "advice": report.advice.iter().map(|a| json!({
            "label": a.label,
            "change": a.change,
            "step_time_s": a.step_time_s,
            "gain": a.gain,
            "fits": a.fits,
            "basis": match a.basis { Basis::Simulated => "simulated", Basis::ClosedForm => "closed form" },
        })).collect::<Vec<_>>(),
        "parts_of_step": parts(report),
        "critical_path": report.critical_path.iter().map(|c| json!({"label": c.label, "seconds": c.time.seconds()})).collect::<Vec<_>>(),
        "error_by_kind": errors(report),
        "memory_by_class": memory(report),
        "load": report.load,
        "search": {
            "candidates": plan.search.candidates,
            "pruned": plan.search.pruned,
            "solved": plan.search.solved,
            "simulated": plan.search.simulated,
            "alternatives": plan.search.alternatives.iter().map(|a| json!({
                "mesh": mesh(&a.mesh),
                "micro_batch": a.micro_batch,
                "schedule": a.schedule.to_string(),
                "optimizer_sharding": a.state_sharding.to_string(),
                "sequence_parallel": a.sequence_parallel,
                "step_time_s": a.step_time_s,
                "peak_memory_bytes": a.peak_memory_bytes,
            })).collect::<Vec<_>>(),
            "points": points(report),
            "points_listed": plan.search.points.len().min(POINTS),
            "points_total": plan.search.points.len(),
        },
        "why": plan.why,
        "assumed": job.model.assumed,
        "sources": job.cluster.sources,
        "hashes": hashes,
    })
}

/// Degrees above one.
fn mesh(mesh: &Mesh) -> Value {
    mesh.active()
        .iter()
        .map(|a| (a.to_string(), json!(mesh.degree(a))))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

fn measured(report: &Report<'_>) -> Value {
    if report.measured.is_none() && report.losses.is_empty() && report.measured_step_s.is_none() {
        return Value::Null;
    }
    json!({
        "step_time_s": report.measured_step(),
        "error": report.error,
        "losses": report.losses,
        "step_times_s": report.step_times_s,
    })
}

fn parts(report: &Report<'_>) -> Value {
    let Some(program) = report.program else { return json!([]) };
    let part = |stage: u32, source: &str, trace: &Trace, b: RankBreakdown| {
        json!({
            "stage": stage,
            "rank": b.rank,
            "trace": source,
            "step_s": trace.step_time.seconds(),
            "compute_s": b.compute.seconds(),
            "exposed_collective_s": b.exposed_collective.seconds(),
            "pipeline_s": b.pipeline.seconds(),
            "idle_s": b.idle.seconds(),
        })
    };
    let of_trace = |(source, trace): (&'static str, &Trace)| {
        let all = trace.breakdown(program);
        let row = |stage: u32| {
            let rank = report.representative(trace, stage)?;
            Some(part(stage, source, trace, *all.iter().find(|b| b.rank == rank)?))
        };
        report.shown_stages().into_iter().filter_map(row).collect::<Vec<_>>()
    };
    report.traces().into_iter().flat_map(of_trace).collect()
}

fn errors(report: &Report<'_>) -> Option<ErrorByKind> {
    ErrorByKind::of(report.program?, report.predicted?, report.measured?)
}

fn memory(report: &Report<'_>) -> Value {
    let Some(program) = report.program else { return json!([]) };
    let of = |stage: u32| {
        let code = &program.roles[stage as usize];
        let traces = report.traces().into_iter().filter_map(|(source, trace)| {
            let rank = report.representative(trace, stage)?;
            let held = trace.held_at_peak(program, rank);
            let classes: serde_json::Map<_, _> =
                held.iter().map(|(c, b)| (c.to_string(), json!(b))).collect();
            Some(json!({"trace": source, "rank": rank, "bytes": classes}))
        });
        let traces: Vec<Value> = traces.collect();
        json!({"stage": stage, "arena_bytes": code.arena, "held_at_peak": traces})
    };
    report.shown_stages().into_iter().map(of).collect()
}

fn points(report: &Report<'_>) -> Vec<Value> {
    let plan = report.plan;
    let front = plan.search.pareto();
    let point = |(k, c): (usize, &Candidate)| {
        let mut all = json!({
            "mesh": mesh(&c.mesh),
            "micro_batch": c.micro_batch,
            "schedule": c.schedule.to_string(),
            "optimizer_sharding": c.state_sharding.to_string(),
            "sequence_parallel": c.sequence_parallel,
        });
        let fields = all.as_object_mut().expect("an object was made");
        let seconds = |x: Option<f64>| x.filter(|x| x.is_finite()).map(|x| json!(x));
        let known = [
            ("closed_form_s", seconds(c.closed_form_s)),
            ("bound_s", seconds(c.bound_s)),
            ("peak_memory_bytes", c.peak_memory_bytes.map(|b: Bytes| json!(b))),
            ("states_bytes", c.states_bytes.map(|b| json!(b))),
            ("rejected", c.rejected.as_ref().map(|r| json!(r))),
            ("pareto", front.contains(&k).then_some(json!(true))),
            ("needs", needs(plan.need(c), c)),
        ];
        fields.extend(known.into_iter().filter_map(|(name, v)| Some((name.to_string(), v?))));
        all
    };
    plan.search.points.iter().enumerate().take(POINTS).map(point).collect()
}

fn needs(need: Need, c: &Candidate) -> Option<Value> {
    c.rejected.as_ref()?;
    match need {
        Need::Memory { short, step } => Some(json!({"memory_bytes": short, "step_over_plan": step})),
        Need::Bound { step } | Need::Time { step } => Some(json!({"step_over_plan": step})),
        Need::Rule => None,
    }
}
