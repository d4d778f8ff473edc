//! Where the time goes: the four parts of a rank's step, predicted beside measured; busy time by kind of instruction; and
//! the critical path, where it is known. All values come from `Trace` or from the caller.

use crate::Report;
use crate::figure::{Part, bar};
use crate::format::{count, counted, position, share, time};
use crate::kind::legend;
use crate::table::{Table, cell};
use maud::{Markup, html};
use meshwright_ir::trace::RankBreakdown;
use meshwright_ir::{Program, Time, Trace};
use std::collections::BTreeMap;

/// Class and words of the four parts, in the order of [`parts`].
const PARTS: [(&str, &str); 4] = [
    ("compute", "compute"),
    ("collective", "exposed collective"),
    ("exchange", "pipeline wait"),
    ("idle", "idle"),
];
/// Kinds of instructions listed before the others are folded away.
const KINDS: usize = 12;
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
        let row = |(source, trace, all): &(&'static str, &Trace, Vec<RankBreakdown>)| {
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
                div.lane-row.apart-row[first] {
                    span.stream { @if first { "stage " (row.stage) span.dim { " · rank " (row.parts.rank) } } }
                    span.source { (row.source) }
                    (bar(&format!("stage {}, {}", row.stage, row.source), full, &bar_parts(row)))
                }
            }
        }
    }
}

fn bar_parts(row: &Row) -> Vec<Part> {
    let part = |((class, words), length): ((&'static str, &'static str), Time)| Part {
        class: class.into(),
        length: length.get(),
        title: format!("{words}: {} ({})", time(length), share(length.get(), row.step.get())),
    };
    PARTS.into_iter().zip(parts(&row.parts)).map(part).collect()
}

fn parts_table(rows: &[Row]) -> Table {
    let mut table = Table::new("Parts of the step of the ranks drawn").labels("Stage").labels("Trace");
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
    let totals: Vec<u64> =
        (0..traces.len()).map(|k| kinds.values().filter_map(|v| v[k]).map(|(t, _)| t.get()).sum()).collect();
    let mut rows: Vec<_> = kinds.into_iter().collect();
    rows.sort_by_key(|(_, v)| std::cmp::Reverse(v.iter().flatten().next().map(|(t, _)| *t)));
    let headed = |caption: &str| {
        let mut table = Table::new(caption).labels("Kind").labels("Share of busy time");
        for head in ["Share", "Time", "Instructions"] {
            for (name, _) in &traces {
                table = table.numbers(format!("{head}, {name}"));
            }
        }
        table
    };
    let mut table = headed("Busy time by kind of instruction, over all traced ranks");
    let mut rest = headed("Busy time by kind of instruction, the other kinds");
    let shown = rows.len().min(KINDS);
    let most = shares(rows.first().map_or(&[], |r| &r.1), &totals).into_iter().fold(0.0, f64::max);
    for (k, (name, values)) in rows.iter().enumerate() {
        let mut cells = vec![cell(name), share_bars(&traces, &shares(values, &totals), most)];
        let dash = || cell("–");
        for (value, total) in values.iter().zip(&totals) {
            cells.push(value.map_or_else(dash, |(t, _)| cell(share(t.get(), *total))));
        }
        cells.extend(values.iter().map(|v| v.map_or_else(dash, |(t, _)| cell(time(t)))));
        cells.extend(values.iter().map(|v| v.map_or_else(dash, |(_, n)| cell(count(n)))));
        if k < shown { &mut table } else { &mut rest }.row(cells);
    }
    let ranks: Vec<_> =
        traces.iter().map(|(name, t)| format!("{} {name}", counted(t.ranks.len() as u64, "rank"))).collect();
    let pairs = if traces.len() > 1 { " Of each pair of bars the upper is predicted." } else { "" };
    let note = format!(
        "Traced: {}.{pairs} Streams overlap, so busy time does not add up to step time; compare shares where the numbers of ranks differ.",
        ranks.join(", ")
    );
    let (table, rest) = (table.note(note), rest);
    html! {
        (table)
        @if !rows[shown..].is_empty() { (rest.behind(&format!("Table: {} more", counted(rows[shown..].len() as u64, "kind")))) }
    }
}

/// Parts of their totals, between 0 and 1; what is absent is nothing.
fn shares(values: &[Option<(Time, u64)>], totals: &[u64]) -> Vec<f64> {
    let share = |(value, total): (&Option<(Time, u64)>, &u64)| match value {
        Some((t, _)) if *total > 0 => t.get() as f64 / *total as f64,
        _ => 0.0,
    };
    values.iter().zip(totals).map(share).collect()
}

/// Thin bars above each other, one per trace, the longest of the table filling the cell.
fn share_bars(traces: &[(&'static str, &Trace)], shares: &[f64], most: f64) -> Markup {
    let width = |share: f64| if most > 0.0 { position(100.0 * share / most) } else { "0".into() };
    html! {
        svg.share width="120" height=(8 * shares.len() + 2) aria-hidden="true" {
            @for (k, ((source, _), share)) in traces.iter().zip(shares).enumerate() {
                rect class=(source) y=(2 + 8 * k) width={ (width(*share)) "%" } height="6" {}
            }
        }
    }
}

fn path(report: &Report<'_>) -> Markup {
    let total: u64 = report.critical_path.iter().map(|i| i.time.get()).sum();
    let most = report.critical_path.iter().map(|i| i.time.get()).max().unwrap_or(0);
    let mut table = Table::new("The predicted critical path")
        .words("Waiting for")
        .labels("Against the longest")
        .numbers("Time")
        .numbers("Share");
    for item in report.critical_path.iter().take(PATH_ROWS) {
        let t = item.time.get();
        let bar = html! {
            svg.share width="120" height="10" aria-hidden="true" {
                rect.predicted y="2" width={ (position(100.0 * t as f64 / most.max(1) as f64)) "%" } height="6" {}
            }
        };
        table.row(vec![cell(&item.label), bar, cell(time(item.time)), cell(share(t, total))]);
    }
    let all = report.critical_path.len();
    if all > PATH_ROWS {
        table = table.note(format!("The first {PATH_ROWS} of {} are listed.", count(all as u64)));
    }
    html! { (table) }
}
