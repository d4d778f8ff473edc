//! The interconnect and what one step asks of it: bytes and busy share of each level, and for each axis of the mesh which
//! levels it runs on. All values come from `Load`.

use crate::Report;
use crate::format::{NBSP, bytes, count, percent, position, time};
use crate::table::{Table, cell};
use maud::{Markup, html};
use meshwright_ir::{AxisLoad, Bytes, Level, LevelLoad};

pub(super) fn draw(report: &Report<'_>) -> Option<Markup> {
    let load = report.load?;
    let levels = &report.plan.job.cluster.levels;
    let busiest =
        load.levels.iter().filter(|l| l.bytes > Bytes::ZERO).max_by(|a, b| a.busy.total_cmp(&b.busy));
    Some(html! {
        p {
            @match busiest {
                Some(l) => { "The busiest level is " strong { (l.level) } ": a device sends " (bytes(l.bytes)) " over it in a step, which takes " (percent(l.busy)) " of the step at the bandwidth that large transfers reach." },
                None => { "Nothing is sent: no axis of the mesh has more than one rank." },
            }
        }
        div.offenders.levels role="group" aria-label={ "Load on each level of the interconnect of " (report.plan.job.cluster.name) } {
            @for (k, l) in load.levels.iter().enumerate().rev() { (level(l, levels.get(k), k, &load.axes)) }
        }
        p.note { "Outermost level first. A bar is the share of the step in which a device's port is busy, one way; overlapped with kernels or not." }
        (level_table(&load.levels, levels).behind("Table: levels"))
        @if !load.axes.is_empty() { (axis_table(&load.axes)) }
    })
}

fn level(l: &LevelLoad, level: Option<&Level>, k: usize, axes: &[AxisLoad]) -> Markup {
    let used: Vec<String> =
        axes.iter().filter(|a| a.levels.contains(&l.level)).map(|a| a.axes.to_string()).collect();
    let label = format!("{}: {} a device, busy {} of the step", l.level, bytes(l.bytes), percent(l.busy));
    let busy = if l.busy.is_finite() { l.busy.clamp(0.0, 1.0) } else { 0.0 };
    html! {
        div.offender {
            span.stream {
                (l.level)
                @if let Some(level) = level { span.dim { " joins " (count(level.size.into())) } }
            }
            svg width="100%" height="16" role="img" aria-label=(label) {
                rect.ground width="100%" height="100%" {}
                g class={ "c" (k % 8) } { rect width={ (position(100.0 * busy)) "%" } height="100%" {} }
            }
            span.n { (percent(l.busy)) }
            p.dim.under { (bytes(l.bytes)) " a device"
                @if used.is_empty() { ", used by no axis" } @else { ", for " (used.join(", ")) }
            }
        }
    }
}

fn level_table(loads: &[LevelLoad], levels: &[Level]) -> Table {
    let mut table = Table::new("Interconnect and its load, innermost first")
        .labels("Level")
        .numbers("Joins")
        .numbers("Bandwidth each way")
        .numbers("Latency")
        .numbers("Large transfers reach")
        .numbers("Sent by a device")
        .numbers("Busy share of the step");
    for (load, level) in loads.iter().zip(levels) {
        table.row(vec![
            cell(&level.name),
            cell(level.size.to_string()),
            cell(level.bandwidth.to_string().replace(' ', &NBSP.to_string())),
            cell(time(level.latency)),
            cell(percent(level.efficiency)),
            cell(bytes(load.bytes)),
            cell(percent(load.busy)),
        ]);
    }
    table
}

fn axis_table(axes: &[AxisLoad]) -> Table {
    let mut table = Table::new("What runs along the axes of the mesh, and on which level")
        .labels("Axes")
        .labels("Levels crossed")
        .labels("Algorithm")
        .numbers("Operations of a rank")
        .numbers("Sent by a rank")
        .numbers("Time under way")
        .numbers("Of the step");
    for a in axes {
        table.row(vec![
            cell(a.axes.to_string()),
            cell(if a.levels.is_empty() { "–".into() } else { a.levels.join(", ") }),
            cell(a.algorithm.map_or("messages".into(), |a| a.to_string())),
            cell(count(a.count)),
            cell(bytes(a.bytes)),
            cell(time(a.time)),
            cell(percent(a.share)),
        ]);
    }
    table.note("Of the stage where they take longest, once everyone has arrived: waiting for others is not counted, and what kernels hide is.")
}
