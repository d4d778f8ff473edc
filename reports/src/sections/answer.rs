//! The answer in one sentence, then what a new user asks first: how long, whether it fits, what limits it, what would help.
//! The rest stands in tiles.

use crate::Report;
use crate::figure::{Part, bar};
use crate::format::{
    NBSP, bytes, counted, degrees, percent, position, rate, schedule, seconds, seconds_range, share,
    signed_percent,
};
use crate::report::Basis;
use maud::{Markup, html};
use meshwright_ir::program::BufferClass;
use meshwright_ir::trace::RankBreakdown;
use meshwright_ir::{Axis, Bytes, Program, Time};

/// Actions named.
const ACTIONS: usize = 3;

pub(super) fn draw(report: &Report<'_>) -> Option<Markup> {
    Some(html! {
        p.lead { (sentence(report)) }
        div.verdicts {
            (step_time(report))
            (memory(report))
            (limits(report))
            (help(report))
        }
        ul.tiles { @for tile in tiles(report) { li.tile {
            span.name { (tile.name) }
            span.value { (tile.value) }
            @if !tile.note.is_empty() { span.note { (tile.note) } }
        } } }
    })
}

/// How long a step takes.
fn step_time(report: &Report<'_>) -> Markup {
    let p = &report.plan.prediction;
    let measured = report.measured_step();
    let (low, high) = p.step_time_band_s;
    let outside = measured.is_some_and(|m| m < low || m > high);
    html! {
        div.verdict {
            h3 { "Step time" }
            p.value { (seconds(p.step_time_s)) " " span.dim { "predicted" } }
            p { "Band " (seconds_range(p.step_time_band_s.0, p.step_time_band_s.1)) "." }
            @if let Some(m) = measured {
                p.value.second { (seconds(m)) " " span.dim { "measured" } }
                @if let Some(e) = report.error {
                    p {
                        "The prediction is off by " (signed_percent(e))
                        @if outside { ", " span.bad { "outside its band" } }
                        ": " a href="#errors" { "by kind" } "."
                    }
                }
            }
            p { "No plan of the searched space is faster than " (seconds(p.lower_bound_s)) "." }
        }
    }
}

/// Whether it fits, and by how much.
fn memory(report: &Report<'_>) -> Markup {
    let (plan, p) = (report.plan, &report.plan.prediction);
    let Some((stage, peak)) = report.peak() else { return html! {} };
    let limit = p.memory_limit_bytes;
    let of = if plan.stages.len() > 1 { format!(", on stage{NBSP}{stage}") } else { String::new() };
    let spare = if peak <= limit { limit - peak } else { peak - limit };
    html! {
        div.verdict {
            h3 { "Memory of a rank" }
            p.value {
                @if peak <= limit { "fits, " (bytes(spare)) " " span.dim { "to spare" } }
                @else { span.bad { "does not fit" } ", " (bytes(spare)) " " span.dim { "short" } }
            }
            @if limit > Bytes::ZERO { (gauge(peak.f64() / limit.f64())) }
            p { "Peak " (bytes(peak)) " of " (bytes(limit)) (of) "." }
            @if let Some(program) = report.program { p { "The largest part is " a href="#memory" { (largest(program, stage, peak)) } "." } }
        }
    }
}

/// What the step spends its time on.
fn limits(report: &Report<'_>) -> Markup {
    let mean = report.program.zip(report.predicted).and_then(|(program, trace)| {
        Some((RankBreakdown::mean(&trace.breakdown(program), trace.step_time)?, trace.step_time))
    });
    let Some((mean, step)) = mean else { return html! {} };
    let parts = [
        ("compute", "kernels", mean.compute),
        ("collective", "exposed collectives", mean.exposed_collective),
        ("exchange", "waiting between stages", mean.pipeline),
        ("idle", "nothing under way", mean.idle),
    ];
    let most = parts.into_iter().rev().max_by_key(|p| p.2).expect("four parts");
    let drawn: Vec<Part> = parts
        .into_iter()
        .map(|(class, name, t)| Part {
            class: class.into(),
            length: t.get(),
            title: format!("{name}: {}", share(t.get(), step.get())),
        })
        .collect();
    html! {
        div.verdict {
            h3 { "What limits it" }
            p.value { (most.1) ", " (share(most.2.get(), step.get())) " " span.dim { "of the step" } }
            (bar("parts of the step, mean over ranks", step.get(), &drawn))
            ul.plain {
                @for (class, name, t) in parts.into_iter().filter(|p| p.2 > Time::ZERO) {
                    li { svg.swatch width="14" height="14" aria-hidden="true" { g class=(class) { rect width="14" height="14" {} } } (name) " " (share(t.get(), step.get())) }
                }
            }
            @if let Some(c) = report.critical_path.first() {
                p { "On the critical path, most is " a href="#breakdown" { (c.label) } ", " (share(c.time.get(), step.get())) " of the step." }
            }
        }
    }
}

/// What would make it faster.
fn help(report: &Report<'_>) -> Markup {
    let any_closed = report.advice.iter().take(ACTIONS).any(|a| a.basis == Basis::ClosedForm);
    html! {
        div.verdict {
            h3 { "What would help" }
            @if report.advice.is_empty() {
                p { "Nothing that was tried saves half a percent. " a href="#candidates" { "What was rejected, and what it would take" } "." }
            } @else {
                ol.actions {
                    @for a in report.advice.iter().take(ACTIONS) {
                        li {
                            strong { (signed_percent(-a.gain)) } " " span.dim { "time per token" } ": " (a.label)
                            @if a.basis == Basis::ClosedForm { " *" }
                        }
                    }
                }
                p.note {
                    "Each was simulated with this plan and nothing else changed"
                    @if any_closed { "; * by the planner's closed form" }
                    ". " a href="#candidates" { "What rejected plans would take" } "."
                }
            }
        }
    }
}

fn sentence(report: &Report<'_>) -> String {
    let (plan, p) = (report.plan, &report.plan.prediction);
    let mut words = format!(
        "{} on {} of {}: {}, {}, micro-batch{NBSP}{}: predicted {} a step (band {})",
        report.model(),
        counted(u64::from(plan.mesh.ranks()), "rank"),
        plan.job.cluster.name,
        degrees(&plan.mesh),
        schedule(plan.schedule),
        plan.micro_batch,
        seconds(p.step_time_s),
        seconds_range(p.step_time_band_s.0, p.step_time_band_s.1),
    );
    if let Some(measured) = report.measured_step() {
        words += &format!(", measured {}", seconds(measured));
        if let Some(error) = report.error {
            words += &format!(" (error {})", signed_percent(error));
        }
    }
    let limit = p.memory_limit_bytes;
    words += &match report.peak() {
        Some((_, peak)) if peak <= limit => {
            format!(", fits with {} of {} to spare.", bytes(limit.saturating_sub(peak)), bytes(limit))
        }
        Some((stage, peak)) => format!(
            ", does not fit: stage{NBSP}{stage} needs {} of {}, {} too much.",
            bytes(peak),
            bytes(limit),
            bytes(peak.saturating_sub(limit))
        ),
        None => ".".into(),
    };
    words
}

/// One key figure.
struct Tile {
    name: &'static str,
    value: String,
    note: String,
}

fn tiles(report: &Report<'_>) -> Vec<Tile> {
    let (plan, job) = (report.plan, &report.plan.job);
    let tile = |name, value, note| Tile { name, value, note };
    let mut tiles = Vec::new();
    if let Some(tokens) = report.tokens_per_s {
        tiles.push(tile("Tokens per second", rate(tokens), "predicted".into()));
    }
    if let Some((mfu, convention)) = report.mfu {
        tiles.push(tile("Model FLOP utilisation", percent(mfu), convention.to_string()));
    }
    let t = &job.training;
    tiles.push(tile(
        "Global batch",
        counted(t.global_batch, "sequence"),
        format!(
            "of {}; {} of {} per replica",
            counted(t.sequence, "token"),
            counted(plan.micro_batches, "micro-batch"),
            plan.micro_batch
        ),
    ));
    tiles.push(tile(
        "Training",
        format!("{}, {}", t.precision, t.optimizer),
        format!(
            "recompute: {}; state sharding: {}; {}",
            plan.recompute_summary(),
            plan.state_sharding,
            sequence_parallel(report)
        ),
    ));
    tiles
}

fn sequence_parallel(report: &Report<'_>) -> &'static str {
    match (report.plan.mesh.degree(Axis::Tp), report.plan.sequence_parallel()) {
        (1, _) => "nothing to split over tp",
        (_, true) => "sequence-parallel norms",
        (_, false) => "norms replicated over tp",
    }
}

/// The largest part of a stage's peak, in words.
fn largest(program: &Program, stage: u32, peak: Bytes) -> String {
    let code = &program.roles[stage as usize];
    let of = |class: BufferClass| code.buffers.iter().filter(|b| b.class == class).map(|b| b.bytes()).sum();
    let moving = code.arena.saturating_sub(code.static_bytes());
    let lasting = BufferClass::ALL.into_iter().filter(|c| c.is_static());
    let mut parts: Vec<(String, Bytes)> = lasting.map(|c| (format!("{c}s"), of(c))).collect();
    parts.insert(0, ("activations and workspace".into(), moving));
    parts.push(("the runtime's own".into(), peak.saturating_sub(code.arena)));
    parts.sort_by_key(|(_, b)| std::cmp::Reverse(*b));
    format!("{} ({})", parts[0].0, bytes(parts[0].1))
}

/// How full the memory is.
fn gauge(used: f64) -> Markup {
    let class = if used > 1.0 { "over" } else { "used" };
    html! {
        svg.gauge width="100%" height="6" role="img" aria-label=(format!("{} of the limit", percent(used))) {
            rect.all width="100%" height="6" rx="3" {}
            rect class=(class) width={ (position(100.0 * used.clamp(0.0, 1.0))) "%" } height="6" rx="3" {}
        }
    }
}
