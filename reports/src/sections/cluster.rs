//! The plan drawn on the cluster: nodes, devices in them, ranks on those, coloured by stage. Up to [`DRAWN`] ranks are
//! drawn one by one; beyond that, one node and one rank of each stage stand for the rest, and the drawing says so.

use crate::Report;
use crate::format::{NBSP, bytes, coordinates, counted, degrees, percent, share};
use crate::table::{Table, cell};
use maud::{Markup, html};
use meshwright_ir::{Axis, Bytes, Mesh};

/// Ranks drawn one by one; also the most that are drawn of one node.
const DRAWN: u32 = 64;
/// Stage colours before they repeat.
const COLOURS: u32 = 8;
/// Rank cells side by side in a node.
const ACROSS: u32 = 4;
const CELL_W: u32 = 84;
const LINE: u32 = 15;
const GAP: u32 = 6;
const PAD: u32 = 8;
const HEAD: u32 = 20;

pub(super) fn draw(report: &Report<'_>) -> Option<Markup> {
    let (plan, cluster) = (report.plan, &report.plan.job.cluster);
    let ranks = plan.mesh.ranks();
    let used_nodes = ranks.div_ceil(cluster.ranks_per_device).div_ceil(cluster.devices_per_node);
    let (nodes, unused) = (cluster.nodes(), cluster.nodes().saturating_sub(used_nodes));
    Some(html! {
        p {
            (counted(nodes.into(), "node")) " of " (counted(cluster.devices_per_node.into(), "device")) " (" (cluster.device.name) ", " (bytes(cluster.device.memory))
            @if cluster.ranks_per_device > 1 { ", shared by " (counted(cluster.ranks_per_device.into(), "rank")) }
            "). The mesh is " (degrees(&plan.mesh)) "."
            @if unused > 0 { " " (counted(unused.into(), "node")) " left unused are not drawn." }
        }
        div.nodes {
            @if ranks <= DRAWN {
                @for node in 0..used_nodes { (node_svg(report, node)) }
            } @else {
                div.times { (node_svg(report, 0)) p { "× " (used_nodes) " nodes" } }
                div.stand-ins { @for stage in report.shown_stages() { (stage_svg(report, stage)) } }
            }
        }
        @if ranks > DRAWN {
            p.note { "One node stands for all, and the first rank of a stage for the stage's " (counted(report.stage_ranks(0).1.into(), "rank")) "." }
            @if let Some(left_out) = report.stages_left_out() { p.note { (left_out) } }
        }
        (stages(report))
        @if report.load.is_none() { (levels(report).behind("Table: interconnect")) }
    })
}

/// One node with its devices and their ranks.
fn node_svg(report: &Report<'_>, node: u32) -> Markup {
    let cluster = &report.plan.job.cluster;
    let per_device = cluster.ranks_per_device;
    let devices = cluster.devices_per_node.min(DRAWN.div_ceil(per_device));
    let cells_across = per_device.min(ACROSS);
    let device_w = cells_across * (CELL_W + GAP) - GAP + 2 * PAD;
    let cell_rows = per_device.min(DRAWN).div_ceil(ACROSS);
    let device_h = HEAD + cell_rows * (cell_h(&report.plan.mesh) + GAP) - GAP + PAD;
    let columns = (ACROSS / cells_across).min(devices).max(1);
    let rows = devices.div_ceil(columns);
    let (w, h) = (columns * (device_w + GAP) - GAP + 2 * PAD, HEAD + 4 + rows * (device_h + GAP) - GAP + PAD);
    let label = format!("node {node} of {}, with its ranks", cluster.name);
    let hidden = cluster.devices_per_node - devices;
    let first = node * cluster.devices_per_node;
    let place = |d: u32| (PAD + d % columns * (device_w + GAP), HEAD + 4 + d / columns * (device_h + GAP));
    html! {
        svg.node width=(w) height=(h) viewBox={ "0 0 " (w) " " (h) } role="img" aria-label=(label) {
            rect.frame x="0.5" y="0.5" width=(w - 1) height=(h - 1) rx="8" {}
            text.head x=(PAD) y="17" {
                "node " (node)
                @if hidden > 0 { tspan.dim { " · " (counted(hidden.into(), "device")) " more" } }
            }
            @for d in 0..devices {
                (device_g(report, first + d, place(d), (device_w, device_h)))
            }
        }
    }
}

fn device_g(report: &Report<'_>, device: u32, (x, y): (u32, u32), (w, h): (u32, u32)) -> Markup {
    let cluster = &report.plan.job.cluster;
    let per_device = cluster.ranks_per_device;
    let ranks = report.plan.mesh.ranks();
    let (from, to) = (device * per_device, ((device + 1) * per_device).min(ranks));
    let own = from..to.min(from + DRAWN);
    let hidden = to.saturating_sub(own.end);
    let level = cluster.levels.first().map_or("", |l| l.name.as_str());
    html! {
        g transform={ "translate(" (x) " " (y) ")" } {
            rect.device width=(w) height=(h) rx="5" { title { (cluster.device.name) " " (device) ", joined by " (level) } }
            text.sub x=(PAD) y="14" { "device " (device) @if hidden > 0 { " · " (counted(hidden.into(), "rank")) " more" } }
            @if own.is_empty() { text.sub x=(PAD) y=(HEAD + cell_h(&report.plan.mesh) / 2) { "unused" } }
            @for (k, rank) in own.enumerate() {
                @let (cx, cy) = (k as u32 % ACROSS, k as u32 / ACROSS);
                (rank_g(report, rank, (PAD + cx * (CELL_W + GAP), HEAD + cy * (cell_h(&report.plan.mesh) + GAP))))
            }
        }
    }
}

/// A rank: its number, its stage, its other coordinates.
fn rank_g(report: &Report<'_>, rank: u32, (x, y): (u32, u32)) -> Markup {
    let mesh = &report.plan.mesh;
    let stage = mesh.coord(rank, Axis::Pp);
    let coords = coordinates(mesh, rank);
    let title = format!("rank {rank}: stage {stage}, {} – {}", coords.join(" "), report.blocks_of(stage));
    html! {
        g class={ "rank s" (stage % COLOURS) } transform={ "translate(" (x) " " (y) ")" } {
            rect.tint width=(CELL_W) height=(cell_h(&report.plan.mesh)) rx="3" { title { (title) } }
            rect.edge width="4" height=(cell_h(&report.plan.mesh)) rx="2" {}
            text.name x="10" y="15" { "rank " (rank) }
            @for (k, line) in lines(mesh, rank).iter().enumerate() {
                text.sub x="10" y=(15 + LINE * (k as u32 + 1)) { (line) }
            }
        }
    }
}

/// What stands below a rank's number: its stage, then its other coordinates, two to a line.
fn lines(mesh: &Mesh, rank: u32) -> Vec<String> {
    let staged = mesh.degree(Axis::Pp) > 1;
    let stage = staged.then(|| format!("stage {}", mesh.coord(rank, Axis::Pp)));
    stage.into_iter().chain(coordinates(mesh, rank).chunks(2).map(|c| c.join(" "))).collect()
}

/// Height of a rank's cell.
fn cell_h(mesh: &Mesh) -> u32 {
    22 + LINE * lines(mesh, 0).len() as u32
}

/// One rank that stands for its stage.
fn stage_svg(report: &Report<'_>, stage: u32) -> Markup {
    let (first, size) = report.stage_ranks(stage);
    let (w, h) = (CELL_W + 2 * PAD, HEAD + cell_h(&report.plan.mesh) + PAD + 4);
    html! {
        div.times {
            svg.node width=(w) height=(h) viewBox={ "0 0 " (w) " " (h) } role="img" aria-label={ "stage " (stage) ": " (report.blocks_of(stage)) } {
                rect.frame x="0.5" y="0.5" width=(w - 1) height=(h - 1) rx="8" {}
                text.head x=(PAD) y="17" { "stage " (stage) }
                (rank_g(report, first, (PAD, HEAD + 4)))
            }
            p { "× " (size) " ranks" }
        }
    }
}

fn stages(report: &Report<'_>) -> Table {
    let p = &report.plan.prediction;
    let measured = report.measured.map(|t| (t, t.peaks()));
    let mut table = Table::new("Stages")
        .labels("Stage")
        .words("Blocks")
        .numbers("Ranks")
        .numbers("Peak memory, predicted")
        .numbers("Of the limit");
    if measured.is_some() {
        table = table.numbers("Peak of the arena, measured");
    }
    for (s, peak) in p.peak_memory_bytes.iter().enumerate().take(report.plan.stages.len()) {
        let stage = s as u32;
        let (first, size) = report.stage_ranks(stage);
        let range = if size == 1 { first.to_string() } else { format!("{first}–{}", first + size - 1) };
        let mut row = vec![
            html! { span class={ "chip s" (stage % COLOURS) } { (stage) } },
            cell(report.blocks_of(stage)),
            cell(range),
            cell(bytes(*peak)),
            cell(share(peak.get(), p.memory_limit_bytes.get())),
        ];
        if let Some((trace, peaks)) = &measured {
            let of_stage = |r: u32| (first..first + size).contains(&r);
            let most = trace.ranks.iter().zip(peaks).filter(|(r, _)| of_stage(**r)).map(|(_, b)| *b).max();
            row.push(cell(most.filter(|b| *b > Bytes::ZERO).map_or("–".into(), bytes)));
        }
        table.row(row);
    }
    table
}

fn levels(report: &Report<'_>) -> Table {
    let mut table = Table::new("Interconnect, innermost first")
        .labels("Level")
        .numbers("Joins")
        .numbers("Bandwidth each way")
        .numbers("Latency")
        .numbers("Large collectives reach");
    for level in &report.plan.job.cluster.levels {
        table.row(vec![
            cell(&level.name),
            cell(level.size.to_string()),
            cell(level.bandwidth.to_string().replace(' ', &NBSP.to_string())),
            cell(crate::format::time(level.latency)),
            cell(percent(level.efficiency)),
        ]);
    }
    table
}
