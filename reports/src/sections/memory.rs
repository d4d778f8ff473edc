//! Memory: what it is for by class of buffer, and over time against the limit, one chart per stage on one scale. Curves are
//! of the arena; peaks in the plan's predictions also count what the runtime reserves.

use super::memory_classes;
use crate::Report;
use crate::chart::{Axis, Chart, Ink, legend};
use crate::format::{Unit, bytes, share, time};
use crate::table::{Table, cell};
use crate::thin::{stairs, thin};
use maud::{Markup, html};
use meshwright_ir::{Bytes, Time, Trace};

/// Columns that a curve is thinned to: across the page, and in half of it.
const COLUMNS: (usize, usize) = (200, 80);

pub(super) fn draw(report: &Report<'_>) -> Option<Markup> {
    let limit = report.plan.prediction.memory_limit_bytes;
    let end = report.traces().iter().map(|(_, t)| t.step_time).max().unwrap_or_default();
    let curves: Vec<(u32, Vec<Curve>)> = report
        .shown_stages()
        .into_iter()
        .map(|s| (s, curves(report, s)))
        .filter(|(_, c)| !c.is_empty())
        .collect();
    let top = curves.iter().flat_map(|(_, c)| c).map(Curve::peak).max();
    if top.is_none() && report.program.is_none() {
        return None;
    }
    let near = top.is_some_and(|t| limit <= t * 4);
    Some(html! {
        @if let Some(program) = report.program { (memory_classes::draw(report, program)) }
        @if let Some(top) = top {
            h3 { "Over the step" }
            p {
                "A rank may use " (bytes(limit)) ". The highest point drawn is " (bytes(top)) ", " (share(top.get(), limit.get())) " of it."
                @if !near { " The limit is far above and not drawn, so that the curves can be seen." }
            }
            (inks(report, near))
            div.charts { @for (stage, curves) in &curves { div {
                h4 { "Stage " (stage) " " span.dim { (report.blocks_of(*stage)) } }
                @let chart = chart(report, *stage, curves, (end, top), near.then_some(limit));
                @if report.stages() > 1 { (chart.draw_half()) } @else { (chart.draw()) }
            } } }
            @if let Some(left_out) = report.stages_left_out() { p.note { (left_out) } }
            (peaks(&curves, limit).behind("Table: peaks of these ranks"))
        }
    })
}

fn inks(report: &Report<'_>, near: bool) -> Markup {
    let mut inks = Vec::new();
    if report.predicted.is_some() {
        inks.push((Ink::Predicted, "predicted"));
    }
    if report.measured.is_some() {
        inks.push((Ink::Measured, "measured"));
    }
    if near {
        inks.push((Ink::Limit, "limit"));
    }
    legend(inks)
}

/// Memory of the rank that stands for a stage.
struct Curve {
    source: &'static str,
    rank: u32,
    points: Vec<(Time, Bytes)>,
}

impl Curve {
    fn peak(&self) -> Bytes {
        self.points.iter().map(|p| p.1).max().unwrap_or_default()
    }
}

fn curves(report: &Report<'_>, stage: u32) -> Vec<Curve> {
    let of = |(source, trace): (&'static str, &Trace)| {
        let rank = report.representative(trace, stage)?;
        let points: Vec<_> =
            trace.memory.iter().filter(|p| p.rank == rank).map(|p| (p.time, p.bytes)).collect();
        (!points.is_empty()).then_some(Curve { source, rank, points })
    };
    report.traces().into_iter().filter_map(of).collect()
}

fn chart(
    report: &Report<'_>,
    stage: u32,
    curves: &[Curve],
    (end, top): (Time, Bytes),
    limit: Option<Bytes>,
) -> Chart {
    let highest = top.max(limit.unwrap_or_default());
    let (ms, gib) = (Unit::of_time(end.get() as f64), Unit::of_bytes(highest.f64()));
    let end = (end.get() as f64 / ms.size).max(f64::MIN_POSITIVE);
    let columns = if report.stages() > 1 { COLUMNS.1 } else { COLUMNS.0 };
    let mut lines: Vec<(Ink, Vec<(f64, f64)>)> = curves
        .iter()
        .map(|c| {
            let scaled = c.points.iter().map(|(t, b)| (t.get() as f64 / ms.size, b.f64() / gib.size));
            (
                if c.source == "predicted" { Ink::Predicted } else { Ink::Measured },
                stairs(&thin(scaled, columns), end),
            )
        })
        .collect();
    if let Some(limit) = limit {
        let y = limit.f64() / gib.size;
        lines.push((Ink::Limit, vec![(0.0, y), (end, y)]));
    }
    let axis = |name: &str, unit, to| Axis { name: name.into(), unit, from: 0.0, to, log: false };
    Chart {
        label: format!("Memory of stage {stage} of {} over one step", report.model()),
        x: axis("time in the step", ms, end),
        y: axis("bytes live in the arena of one rank", gib, (highest.f64() / gib.size * 1.06).max(1.0)),
        band: None,
        lines,
        marks: vec![],
    }
}

fn peaks(curves: &[(u32, Vec<Curve>)], limit: Bytes) -> Table {
    let mut table = Table::new("Highest point of each curve")
        .labels("Stage")
        .labels("Trace")
        .numbers("Rank")
        .numbers("Peak")
        .numbers("First reached")
        .numbers("Of the limit");
    for (stage, curves) in curves {
        for c in curves {
            let peak = c.peak();
            let at = c.points.iter().find(|p| p.1 == peak).map(|p| p.0).unwrap_or_default();
            table.row(vec![
                cell(stage.to_string()),
                cell(c.source),
                cell(c.rank.to_string()),
                cell(bytes(peak)),
                cell(time(at)),
                cell(share(peak.get(), limit.get())),
            ]);
        }
    }
    table
}
