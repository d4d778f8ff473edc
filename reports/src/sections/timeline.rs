//! One step in time: for a rank of each stage and a few more, a pair of lanes per stream, predicted above measured, all on
//! one time axis. Positions are percentages, so lanes stretch with the screen while labels and patterns keep their size.

use crate::Report;
use crate::format::{Unit, count, counted, position, ticks, time};
use crate::kind::{Kind, legend, swatch};
use crate::lane::{LEVELS, Lane, Phase, Piece, Work, lanes, phases, works};
use crate::spans::{self, Told};
use crate::table::{Table, cell};
use crate::twin::inert;
use maud::{Markup, PreEscaped, html};
use meshwright_ir::program::Stream;
use meshwright_ir::{Program, Time, Trace};

/// One drawn stream.
struct Row {
    stage: u32,
    rank: u32,
    stream: String,
    stream_index: usize,
    compute: bool,
    source: &'static str,
    step: Time,
    works: Vec<Work>,
}

pub(super) fn draw(report: &Report<'_>) -> Option<Markup> {
    let program = report.program?;
    let full = report.traces().iter().map(|(_, t)| t.step_time).max().filter(|t| *t > Time::ZERO)?;
    let ranks = |s: u32| report.drawn_ranks(s).into_iter().map(move |r| (s, r));
    let drawn: Vec<(u32, u32)> = report.shown_stages().into_iter().flat_map(ranks).collect();
    let mut rows: Vec<Row> = drawn.iter().flat_map(|(s, r)| rows(report, program, *s, *r)).collect();
    let works: Vec<&[Work]> = rows.iter().map(|r| r.works.as_slice()).collect();
    let mut pictures = lanes(&works, full.get());
    let present = |k: Kind| rows.iter().any(|r| r.works.iter().any(|w| w.kind == k));
    let kinds: Vec<Kind> = Kind::ALL.into_iter().filter(|k| present(*k)).collect();
    let columns: Vec<u32> =
        pictures.iter().filter_map(|l| if let Lane::Columns(n, _) = l { Some(*n) } else { None }).collect();
    let (all, table) = (rows.len(), table(&rows));
    let told = spans::told(&told(program, &rows), &report.plan.job.model, full.get());
    let mut stages: Vec<(u32, Vec<Rank>)> = Vec::new();
    for (stage, rank) in drawn {
        let n = rows.iter().take_while(|r| r.rank == rank).count();
        let own = Rank { rank, rows: rows.drain(..n).zip(pictures.drain(..n)).collect() };
        match stages.last_mut().filter(|(s, _)| *s == stage) {
            Some((_, ranks)) => ranks.push(own),
            None => stages.push((stage, vec![own])),
        }
    }
    Some(html! {
        p {
            "The step takes "
            @for (k, (name, trace)) in report.traces().into_iter().enumerate() {
                @if k > 0 { " and " } (time(trace.step_time)) " " (name)
            }
            ". The first traced rank of each stage stands for its stage."
        }
        (controls(&stages, &kinds))
        div.timeline #lanes role="group" aria-label={ "Timeline of one step of " (report.model()) } {
            (axis(full))
            @for (stage, ranks) in &stages { (of_stage(report, program, *stage, ranks, full)) }
            (axis(full))
        }
        @if let Some(left_out) = report.stages_left_out() { p.note { (left_out) } }
        @if let Some(n) = columns.first() {
            p.note #columns {
                (counted(columns.len() as u64, "lane")) " of " (all) ", the longest, "
                @if columns.len() == 1 { "is" } @else { "are" }
                " drawn in columns of " (time(Time(full.get() / u64::from(*n)))) ": the colour is the kind that fills most of a column, the height how much of it was busy."
            }
        }
        p.note { "Neighbouring instructions of one kind are drawn as one where they are narrower than a pixel, its height how much of it was busy. F and B number the micro-batches going forward and backward." }
        (table.behind("Table: streams of these ranks"))
        script #spans type="application/json" { (PreEscaped(inert(&told.to_string()))) }
    })
}

/// The lanes of one rank.
struct Rank {
    rank: u32,
    rows: Vec<(Row, Lane)>,
}

/// What the page's script is told of the rows, in the order of their listings.
fn told<'a>(program: &'a Program, rows: &[Row]) -> Vec<Told<'a>> {
    let told = |row: &Row| {
        let mut spans: Vec<_> = row.works.iter().map(|w| w.span).collect();
        spans.sort_unstable_by_key(|s| s.instruction);
        Told { id: row.id(), stage: row.stage, stream: row.stream_index, spans, program }
    };
    rows.iter().map(told).collect()
}

impl Row {
    /// Names the row in the page.
    fn id(&self) -> String {
        format!("{}-{}-{}", self.source, self.rank, self.stream_index)
    }
}

/// Rows of a rank: by stream, predicted before measured; a stream on which nothing ran has none.
fn rows(report: &Report<'_>, program: &Program, stage: u32, rank: u32) -> Vec<Row> {
    let of = |(source, trace): (&'static str, &Trace)| -> Vec<Row> {
        if trace.ranks.binary_search(&rank).is_err() {
            return Vec::new();
        }
        let row = |(k, stream): (usize, &Stream)| Row {
            stage,
            rank,
            stream: stream.to_string().replace('-', "−"),
            stream_index: k,
            compute: *stream == Stream::Compute,
            source,
            step: trace.step_time,
            works: works(program, trace.of_rank(rank), k as u8),
        };
        program.streams.iter().enumerate().map(row).collect()
    };
    let mut rows: Vec<Row> = report.traces().into_iter().flat_map(of).collect();
    rows.sort_by_key(|r| r.stream_index);
    let idle: Vec<usize> = rows
        .chunk_by(|a, b| a.stream_index == b.stream_index)
        .filter(|pair| pair.iter().all(|r| r.works.is_empty()))
        .map(|pair| pair[0].stream_index)
        .collect();
    rows.retain(|r| !idle.contains(&r.stream_index));
    rows
}

/// What the page's script zooms and filters with; without one there is only the legend.
fn controls(stages: &[(u32, Vec<Rank>)], kinds: &[Kind]) -> Markup {
    html! {
        div #kinds { (legend(kinds.iter().map(|k| (k.name(), k.name())))) }
        div.controls #controls hidden {
            div.group {
                @for (id, label, sign) in [("out", "Zoom out", "−"), ("in", "Zoom in", "+"), ("left", "Earlier", "←"), ("right", "Later", "→")] {
                    button type="button" data-do=(id) aria-label=(label) title=(label) { (sign) }
                }
                button type="button" data-do="home" { "Whole step" }
            }
            @if stages.len() > 1 {
                label { "Stage " select #pick-stage {
                    option value="" { "all" }
                    @for (stage, _) in stages { option value=(stage) { (stage) } }
                } }
            }
            @if stages.iter().any(|(_, ranks)| ranks.len() > 1) || stages.len() > 1 {
                label { "Rank " select #pick-rank {
                    option value="" { "one of each stage" }
                    option value="all" { "all drawn" }
                    @for rank in stages.iter().flat_map(|(_, ranks)| ranks) { option value=(rank.rank) { (rank.rank) } }
                } }
            }
            fieldset.group {
                legend { "Kinds" }
                @for k in kinds {
                    label.check { input type="checkbox" checked value=(k.name()); (swatch(k.name())) (k.name()) }
                }
            }
            button type="button" data-copy="link" { "Copy link to this view" }
        }
        details #keys hidden {
            summary { "How to move and zoom" }
            p {
                "Drag to move; double-click or Ctrl + wheel to zoom; Shift + drag to zoom into a range. With the keyboard on the timeline: "
                kbd { "←" } " " kbd { "→" } " move, " kbd { "+" } " " kbd { "−" } " zoom, " kbd { "Home" } " shows the whole step, "
                kbd { "," } " " kbd { "." } " step through instructions, " kbd { "↑" } " " kbd { "↓" } " change the lane."
            }
        }
        p.window #window role="status" hidden {}
    }
}

/// A stage: the rank that stands for it, and the others that are drawn, folded away.
fn of_stage(report: &Report<'_>, program: &Program, stage: u32, ranks: &[Rank], full: Time) -> Markup {
    let (first, others) = ranks.split_first().map_or((None, ranks), |(f, o)| (Some(f), o));
    html! {
        div.of-stage data-stage=(stage) {
            @if let Some(own) = first {
                h3 { "Stage " (stage) " " span.dim { span data-of=(own.rank) { "rank " (own.rank) " · " } (report.blocks_of(stage)) } }
                (rank_lanes(report, program, own, full))
            }
            @if !others.is_empty() {
                details {
                    summary { (counted(others.len() as u64, "more rank")) " of stage " (stage) }
                    @for own in others {
                        h4 data-of=(own.rank) { "Rank " (own.rank) }
                        (rank_lanes(report, program, own, full))
                    }
                }
            }
        }
    }
}

fn rank_lanes(report: &Report<'_>, program: &Program, own: &Rank, full: Time) -> Markup {
    let rows = &own.rows;
    html! {
        @for (k, (row, lane)) in rows.iter().enumerate() {
            @let first = k == 0 || rows[k - 1].0.stream_index != row.stream_index;
            @let last = k + 1 == rows.len() || rows[k + 1].0.stream_index != row.stream_index;
            div.lane-row.end[last].tall[row.compute] data-of=(row.rank) data-lane=(row.id()) {
                span.stream { @if first { (row.stream) } }
                span.source { (row.source) }
                div { @if row.compute { (strip(row, full)) } (lane_svg(report, program, row, lane, full)) }
            }
        }
    }
}

/// The numbers of micro-batches above a compute lane, where there is room for them.
fn strip(row: &Row, full: Time) -> Markup {
    let share = |t: u64| 100.0 * t as f64 / full.get() as f64;
    let wide = |p: &Phase| share(p.end - p.start) >= 2.2;
    let phases: Vec<Phase> = phases(&row.works, full.get() / 50).into_iter().filter(wide).collect();
    html! {
        @if !phases.is_empty() {
            svg.strip width="100%" height="13" aria-hidden="true" {
                @for p in phases {
                    @let letter = if p.kind == Kind::Forward { "F" } else { "B" };
                    @let roomy = share(p.end - p.start) >= 7.0;
                    text x={ (position((share(p.start) + share(p.end)) / 2.0)) "%" } y="10" class=[(!roomy).then_some("tight")] { (letter) (p.micro_batch) }
                }
            }
        }
    }
}

fn lane_svg(report: &Report<'_>, program: &Program, row: &Row, lane: &Lane, full: Time) -> Markup {
    let percent = |t: u64| 100.0 * t as f64 / full.get() as f64;
    let label = format!(
        "stage {}, {}, {}: {}",
        row.stage,
        row.stream,
        row.source,
        counted(row.works.len() as u64, "instruction")
    );
    let unit = Unit::of_time(full.get() as f64);
    html! {
        svg.lane width="100%" height=(if row.compute { 24 } else { 15 }) role="img" aria-label=(label) {
            rect.ground width={ (position(percent(row.step.get()))) "%" } height="100%" {}
            @for t in ticks(0.0, full.get() as f64 / unit.size, 6) {
                @let x = position(percent((t * unit.size) as u64));
                line x1={ (x) "%" } x2={ (x) "%" } y1="0" y2="100%" {}
            }
            @match lane {
                Lane::Pieces(pieces) => @for kind in Kind::ALL {
                    @if pieces.iter().any(|p| p.kind == kind) { g class=(kind.name()) {
                        @for p in pieces.iter().filter(|p| p.kind == kind) {
                            @let share = 100 * p.level() / LEVELS;
                            rect x={ (position(percent(p.start))) "%" } y=[(share < 100).then(|| format!("{}%", 100 - share))] width={ (position(percent(p.end - p.start).max(0.04))) "%" } height={ (share) "%" } {
                                title { (piece_title(report, program, row, p)) }
                            }
                        }
                    } }
                },
                Lane::Columns(columns, runs) => svg viewBox={ "0 0 " (columns) " " (LEVELS) } preserveAspectRatio="none" width="100%" height="100%" {
                    @for kind in Kind::ALL {
                        @let path: String = runs.iter().filter(|r| r.kind == kind)
                            .map(|r| format!("M{},{LEVELS}h{}v-{}h-{}z", r.from, r.to - r.from, r.level, r.to - r.from)).collect();
                        @if !path.is_empty() { path class={ "solid " (kind.name()) } d=(path) { title { (kind.name()) } } }
                    }
                }
            }
        }
    }
}

fn piece_title(report: &Report<'_>, program: &Program, row: &Row, piece: &Piece) -> String {
    let when = format!("{} to {}", time(Time(piece.start)), time(Time(piece.end)));
    if piece.count > 1 {
        return format!("{} × {}, {when}", piece.kind.name(), piece.count);
    }
    let i = &program.code_of(row.rank).instructions[piece.instruction as usize];
    let blocks = report.plan.job.model.runs.iter().map(|r| r.repeat).sum::<u32>();
    let block = match u32::from(i.block) {
        b if b < blocks => format!(", {}", report.plan.job.model.block_name(b)),
        _ => String::new(),
    };
    format!(
        "{}{block}, micro-batch {}, {when} ({})",
        program.kind_name(i.action),
        i.micro_batch,
        time(Time(piece.end - piece.start))
    )
}

/// The time axis, above and below the lanes.
fn axis(full: Time) -> Markup {
    let unit = Unit::of_time(full.get() as f64);
    let end = full.get() as f64 / unit.size;
    html! {
        div.lane-row.axis {
            span {} span {}
            svg width="100%" height="16" aria-hidden="true" {
                @for (k, t) in ticks(0.0, end, 6).into_iter().enumerate() {
                    @let x = 100.0 * t / end;
                    @let class = match (k, x > 94.0) { (0, _) => "first", (_, true) => "last", (k, _) if k % 2 == 1 => "odd", _ => "even" };
                    text x={ (position(x)) "%" } y="12" class=(class) { (unit.tick(t)) }
                }
            }
        }
    }
}

fn table(rows: &[Row]) -> Table {
    let mut table = Table::new("Streams of the ranks drawn")
        .labels("Stage")
        .numbers("Rank")
        .labels("Stream")
        .labels("Trace")
        .numbers("Instructions")
        .numbers("Busy")
        .numbers("First start")
        .numbers("Last end");
    for row in rows {
        let busy: Time = row.works.iter().map(|w| w.span.end.saturating_sub(w.span.start)).sum();
        let first = row.works.iter().map(|w| w.span.start).min();
        let last = row.works.iter().map(|w| w.span.end).max();
        table.row(vec![
            cell(row.stage.to_string()),
            cell(row.rank.to_string()),
            cell(&row.stream),
            cell(row.source),
            cell(count(row.works.len() as u64)),
            cell(time(busy)),
            cell(first.map_or("–".into(), time)),
            cell(last.map_or("–".into(), time)),
        ]);
    }
    table
}
