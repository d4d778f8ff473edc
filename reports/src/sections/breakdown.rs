//! Where the time goes: the four parts of a rank's step, predicted beside measured; busy time by kind of instruction; and
//! the critical path, where it is known. All values come from `Trace` or from the caller.

use crate::Report;
use crate::figure::{Part, bar};
use crate::format::{count, counted, position, share, time};
use crate::kind::legend;
use crate::table::{Table, cell};
use maud::{Markup, html};
use meshwright_ir::trace::RankBreakdown;
use meshwright_ir::{Program, Time};
use std::collections::BTreeMap;

/// Class and words of the four parts, in the order of [`parts`].
const PARTS: [(&str, &str); 4] = [
    ("compute", "compute"),
    ("collective", "exposed collective"),
    ("exchange", "pipeline wait"),
    ("idle", "idle"),
];
/// Rows of the critical path that are listed.
const PATH_ROWS: usize = 40;

pub(super) fn draw(report: &Report<'_>) -> Option<Markup> {
    let parts = report.program.map(|p| rows(report, p)).filter(|r| !r.is_empty());
    if parts.is_none() && report.critical_path.is_empty() {
        return None;
    }
    Some(html! {
        @if let (Some(rows), Some(program)) = (&parts, report.program) {
            p { "Time in which a kernel ran; in which only a collective was under way; in which only a message between stages was; and the rest. The four add up to the step." }
            (legend(PARTS))
            (bars(report, rows))
            @if let Some(left_out) = report.stages_left_out() { p.note { (left_out) } }
            (parts_table(rows).behind("Table: parts of the step"))
            (kinds(report, program))
        }
        @if !report.critical_path.is_empty() { (path(report)) }
    })
}

/// A representative rank's parts in one trace.
struct Row {
    stage: u32,
    source: &'static str,
    step: Time,
    parts: RankBreakdown,
}

fn rows(report: &Report<'_>, program: &Program) -> Vec<Row> {
    let breakdowns: Vec<_> = report.traces().into_iter().map(|(n, t)| (n, t, t.breakdown(program))).collect();
    let of_stage = |stage: u32| -> Vec<Row> {
        let row = |(source, trace, all): &(&'static str, &meshwright_ir::Trace, Vec<RankBreakdown>)| {
            let rank = report.representative(trace, stage)?;
            let parts = *all.iter().find(|b| b.rank == rank)?;
            Some(Row { stage, source, step: trace.step_time, parts })
        };
        breakdowns.iter().filter_map(row).collect()
    };
    report.shown_stages().into_iter().flat_map(of_stage).collect()
}

fn parts(b: &RankBreakdown) -> [Time; 4] {
    [b.compute, b.exposed_collective, b.pipeline, b.idle]
}

fn bars(report: &Report<'_>, rows: &[Row]) -> Markup {
    let full = rows.iter().map(|r| r.step.get()).max().unwrap_or(0);
    html! {
        div.timeline.bars role="group" aria-label={ "Parts of one step of " (report.model()) } {
            @for (k, row) in rows.iter().enumerate() {
                @let first = k == 0 || rows[k - 1].stage != row.stage;
                div.lane-row.apart[first] {
                    span.stream { @if first { "stage " (row.stage) span.dim { " · rank " (row.parts.rank) } } }
                    span.source { (row.source) }
                    (bar(&format!("stage {}, {}", row.stage, row.source), full, &bar_parts(row)))
                }
            }
        }
    }
}

fn bar_parts(row: &Row) -> Vec<Part<'static>> {
    let part = |((class, words), length): ((&'static str, &'static str), Time)| Part {
        class,
        length: length.get(),
        title: format!("{words}: {} ({})", time(length), share(length.get(), row.step.get())),
    };
    PARTS.into_iter().zip(parts(&row.parts)).map(part).collect()
}

fn parts_table(rows: &[Row]) -> Table {
    let mut table = Table::new("Parts of the step of the ranks drawn").words("Stage").words("Trace");
    for (_, words) in PARTS {
        table = table.numbers(words).numbers("share");
    }
    table = table.numbers("step");
    for row in rows {
        let mut cells = vec![cell(row.stage.to_string()), cell(row.source)];
        for part in parts(&row.parts) {
            cells.extend([cell(time(part)), cell(share(part.get(), row.step.get()))]);
        }
        cells.push(cell(time(row.step)));
        table.row(cells);
    }
    table
}

/// Busy time by kind, predicted beside measured, longest first.
fn kinds(report: &Report<'_>, program: &Program) -> Markup {
    let traces = report.traces();
    let mut kinds: BTreeMap<String, Vec<Option<(Time, u64)>>> = BTreeMap::new();
    for (k, (_, trace)) in traces.iter().enumerate() {
        for (name, busy, instructions) in trace.by_kind(program) {
            kinds.entry(name).or_insert_with(|| vec![None; traces.len()])[k] = Some((busy, instructions));
        }
    }
    let totals: Vec<u64> = (0..traces.len())
        .map(|k| kinds.values().filter_map(|v| v[k]).map(|(t, _)| t.get()).sum())
        .collect();
    let mut table = Table::new("Busy time by kind of instruction, over all traced ranks").words("Kind");
    for (name, _) in &traces {
        table = table.numbers(format!("Instructions, {name}")).numbers(format!("Time, {name}")).numbers("Share").words("");
    }
    let mut rows: Vec<_> = kinds.into_iter().collect();
    rows.sort_by_key(|(_, v)| std::cmp::Reverse(v.iter().flatten().next().map(|(t, _)| *t)));
    for (name, values) in rows {
        let mut cells = vec![cell(name)];
        for (value, total) in values.iter().zip(&totals) {
            match value {
                Some((t, n)) => cells.extend([
                    cell(count(*n)),
                    cell(time(*t)),
                    cell(share(t.get(), *total)),
                    share_bar(t.get(), *total),
                ]),
                None => cells.extend([cell("–"), cell("–"), cell("–"), cell("")]),
            }
        }
        table.row(cells);
    }
    let ranks: Vec<_> = traces
        .iter()
        .map(|(name, t)| format!("{} {name}", counted(t.ranks.len() as u64, "rank")))
        .collect();
    let note = format!(
        "Traced: {}. Streams overlap, so the sum of busy time is no step time; compare shares where the numbers of ranks differ.",
        ranks.join(", ")
    );
    html! { (table.note(note)) }
}

fn share_bar(part: u64, whole: u64) -> Markup {
    let width = if whole == 0 { 0.0 } else { 100.0 * part as f64 / whole as f64 };
    html! { svg.share width="72" height="8" aria-hidden="true" { rect width={ (position(width)) "%" } height="8" {} } }
}

fn path(report: &Report<'_>) -> Markup {
    let total: u64 = report.critical_path.iter().map(|i| i.time.get()).sum();
    let mut table = Table::new("The predicted critical path").words("Waiting for").numbers("Time").numbers("Share").words("");
    for item in report.critical_path.iter().take(PATH_ROWS) {
        let t = item.time.get();
        table.row(vec![cell(&item.label), cell(time(item.time)), cell(share(t, total)), share_bar(t, total)]);
    }
    let all = report.critical_path.len();
    if all > PATH_ROWS {
        table = table.note(format!("The first {PATH_ROWS} of {} are listed.", count(all as u64)));
    }
    html! { (table) }
}
