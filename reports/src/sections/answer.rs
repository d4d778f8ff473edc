//! The answer in one sentence, then the figures behind it as tiles: memory first, for a plan that does not fit has no
//! step time.

use crate::Report;
use crate::format::{
    NBSP, bytes, counted, degrees, percent, position, rate, schedule, seconds, seconds_range, signed_percent,
};
use maud::{Markup, html};
use meshwright_ir::program::BufferClass;
use meshwright_ir::{Axis, Bytes, Program};

pub(super) fn draw(report: &Report<'_>) -> Option<Markup> {
    Some(html! {
        p.lead { (sentence(report)) }
        ul.tiles { @for tile in tiles(report) { li.tile {
            span.name { (tile.name) }
            span.value { (tile.value) }
            @if let Some(used) = tile.used { (gauge(used)) }
            @if !tile.note.is_empty() { span.note { (tile.note) } }
        } } }
    })
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
    used: Option<f64>,
    note: String,
}

fn tiles(report: &Report<'_>) -> Vec<Tile> {
    let (plan, p) = (report.plan, &report.plan.prediction);
    let job = &plan.job;
    let tile = |name, value, note| Tile { name, value, used: None, note };
    let mut tiles = Vec::new();
    if let Some((stage, peak)) = report.peak() {
        let limit = p.memory_limit_bytes;
        let of = if plan.stages.len() > 1 { format!(" on stage{NBSP}{stage}") } else { String::new() };
        let most = report
            .program
            .map(|p| format!("; the largest part is {}", largest(p, stage)))
            .unwrap_or_default();
        tiles.push(Tile {
            name: "Peak memory of a rank",
            value: bytes(peak),
            used: (limit > Bytes::ZERO).then(|| peak.f64() / limit.f64()),
            note: format!("of {}{of}{most}", bytes(limit)),
        });
    }
    let band = seconds_range(p.step_time_band_s.0, p.step_time_band_s.1);
    tiles.push(tile("Step time, predicted", seconds(p.step_time_s), format!("band {band}")));
    if let Some(measured) = report.measured_step() {
        let note = report.error.map(|e| format!("prediction error {}", signed_percent(e)));
        tiles.push(tile("Step time, measured", seconds(measured), note.unwrap_or_default()));
    }
    if let Some(tokens) = report.tokens_per_s {
        tiles.push(tile("Tokens per second", rate(tokens), "predicted".into()));
    }
    if let Some((mfu, convention)) = report.mfu {
        tiles.push(tile("Model FLOP utilisation", percent(mfu), convention.to_string()));
    }
    let bound = "no plan of the searched space is faster".to_string();
    tiles.push(tile("Lower bound", seconds(p.lower_bound_s), bound));
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

/// The largest part of a stage's planned peak, in words.
fn largest(program: &Program, stage: u32) -> String {
    let code = &program.roles[stage as usize];
    let of = |class: BufferClass| code.buffers.iter().filter(|b| b.class == class).map(|b| b.bytes()).sum();
    let moving = code.arena.saturating_sub(code.static_bytes());
    let mut parts: Vec<(&str, Bytes)> = vec![
        ("activations and workspace", moving),
        ("weights", of(BufferClass::Weight)),
        ("master weights", of(BufferClass::Master)),
        ("gradients", of(BufferClass::Gradient)),
        ("optimizer state", of(BufferClass::Optimizer)),
    ];
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
