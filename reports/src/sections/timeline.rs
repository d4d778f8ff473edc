//! One step in time: for the first traced rank of each stage, a pair of lanes per stream, predicted above measured, all on
//! one time axis. Positions are percentages, so lanes stretch with the screen while labels and patterns keep their size.

use crate::Report;
use crate::format::{Unit, count, counted, position, ticks, time};
use crate::kind::{Kind, legend};
use crate::lane::{LEVELS, Lane, Phase, Piece, Work, lanes, phases, works};
use crate::table::{Table, cell};
use maud::{Markup, html};
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
    let rows: Vec<Row> = report.shown_stages().into_iter().flat_map(|s| rows(report, program, s)).collect();
    let works: Vec<&[Work]> = rows.iter().map(|r| r.works.as_slice()).collect();
    let drawn = lanes(&works, full.get());
    let present = |k: Kind| rows.iter().any(|r| r.works.iter().any(|w| w.kind == k));
    let columns: Vec<u32> =
        drawn.iter().filter_map(|l| if let Lane::Columns(n, _) = l { Some(*n) } else { None }).collect();
    Some(html! {
        p {
            "The first traced rank of each stage stands for its stage. "
            "The step takes "
            @for (k, (name, trace)) in report.traces().into_iter().enumerate() {
                @if k > 0 { " and " } (time(trace.step_time)) " " (name)
            }
            "."
        }
        (legend(Kind::ALL.into_iter().filter(|k| present(*k)).map(|k| (k.name(), k.name()))))
        div.timeline role="group" aria-label={ "Timeline of one step of " (report.model()) } {
            (axis(full))
            @for stage in rows.chunk_by(|a, b| a.stage == b.stage).zip(starts(&rows)) {
                (stage_lanes(report, program, stage.0, &drawn[stage.1..], full))
            }
            (axis(full))
        }
        @if let Some(left_out) = report.stages_left_out() { p.note { (left_out) } }
        @if let Some(n) = columns.first() {
            p.note {
                (counted(columns.len() as u64, "lane")) " of " (rows.len()) ", the longest, "
                @if columns.len() == 1 { "is" } @else { "are" }
                " drawn in columns of " (time(Time(full.get() / u64::from(*n)))) ": the colour is the kind that fills most of a column, the height how much of it was busy."
            }
        }
        p.note { "Neighbouring instructions of one kind are drawn as one where they are narrower than a pixel, its height how much of it was busy. F and B number the micro-batches going forward and backward." }
        (table(&rows).behind("Table: streams of these ranks"))
    })
}

/// Where each stage's rows begin.
fn starts(rows: &[Row]) -> Vec<usize> {
    (0..rows.len()).filter(|k| *k == 0 || rows[*k].stage != rows[*k - 1].stage).collect()
}

/// Rows of a stage: by stream, predicted before measured; a stream on which nothing ran has none.
fn rows(report: &Report<'_>, program: &Program, stage: u32) -> Vec<Row> {
    let of = |(source, trace): (&'static str, &Trace)| -> Vec<Row> {
        let Some(rank) = report.representative(trace, stage) else { return Vec::new() };
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

fn stage_lanes(report: &Report<'_>, program: &Program, rows: &[Row], lanes: &[Lane], full: Time) -> Markup {
    let stage = rows[0].stage;
    html! {
        h3 { "Stage " (stage) " " span.dim { "rank " (rank_words(rows)) " · " (report.blocks_of(stage)) } }
        @for (k, (row, lane)) in rows.iter().zip(lanes).enumerate() {
            @let first = k == 0 || rows[k - 1].stream_index != row.stream_index;
            @let last = k + 1 == rows.len() || rows[k + 1].stream_index != row.stream_index;
            div.lane-row.end[last].tall[row.compute] {
                span.stream { @if first { (row.stream) } }
                span.source { (row.source) }
                div { @if row.compute { (strip(row, full)) } (lane_svg(report, program, row, lane, full)) }
            }
        }
    }
}

fn rank_words(rows: &[Row]) -> String {
    let (first, last) = (rows[0].rank, rows[rows.len() - 1].rank);
    match rows.iter().find(|r| r.rank != first) {
        Some(other) => format!("{first} predicted, {} measured", other.rank),
        None => last.to_string(),
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
