//! What the memory of a rank is for, by class of buffer, against the limit: one stacked bar for each stage, at the instant
//! when the rank that stands for it holds most. Classes are those of `BufferClass::ALL`, whatever they are.

use crate::Report;
use crate::figure::{Part, bar};
use crate::format::{bytes, counted, share};
use crate::kind::legend;
use crate::table::{Table, cell};
use maud::{Markup, html};
use meshwright_ir::program::BufferClass;
use meshwright_ir::{Bytes, Program};
use std::collections::BTreeMap;

/// Fills before they repeat.
const FILLS: usize = 10;

/// One bar.
struct Row {
    stage: u32,
    source: &'static str,
    held: BTreeMap<BufferClass, Bytes>,
    /// Of the arena, not held at that instant.
    apart: Bytes,
    /// Taken by the runtime.
    reserved: Bytes,
}

impl Row {
    fn total(&self) -> Bytes {
        self.held.values().copied().sum::<Bytes>() + self.apart + self.reserved
    }
}

pub(super) fn draw(report: &Report<'_>, program: &Program) -> Markup {
    let limit = report.plan.prediction.memory_limit_bytes;
    let rows = rows(report, program);
    let present = |c: &BufferClass| rows.iter().any(|r| r.held.contains_key(c));
    let classes: Vec<BufferClass> = BufferClass::ALL.into_iter().filter(present).collect();
    let names: Vec<String> = classes.iter().map(|c| c.to_string()).collect();
    let fills: Vec<String> = classes.iter().map(|c| fill(*c)).collect();
    let own = fills.iter().map(String::as_str).zip(names.iter().map(String::as_str));
    let most = rows.iter().map(Row::total).max().unwrap_or_default();
    // A limit far above would leave nothing to see.
    let near = limit <= most * 4;
    let full = if near { most.max(limit) } else { most };
    html! {
        h3 { "By class of buffer, at the fullest instant" }
        @if !rows.is_empty() {
            (legend(own.chain([("apart", "arena, not held then"), ("reserved", "runtime")]).chain(near.then_some(("free", "free")))))
            div.timeline.bars role="group" aria-label={ "Memory by class of buffer of " (report.model()) ", against the limit" } {
                @for (k, row) in rows.iter().enumerate() {
                    @let first = k == 0 || rows[k - 1].stage != row.stage;
                    div.lane-row.apart-row[first] {
                        span.stream { @if first { "stage " (row.stage) } }
                        span.source { (row.source) }
                        (bar(&format!("stage {}, {}: {} of {}", row.stage, row.source, bytes(row.total()), bytes(limit)), full.get(), &parts(row, if near { limit } else { row.total() })))
                    }
                }
            }
            p.note { "A full bar is " @if full == limit { "the limit of " (bytes(limit)) } @else if near { (bytes(full)) ", more than the limit of " (bytes(limit)) } @else { (bytes(full)) "; the limit of " (bytes(limit)) " is far above" } ". The arena is laid out so that every legal order of instructions fits; what this order leaves unused is drawn apart." }
        }
        (table(report, program, &rows, &classes).behind("Table: classes of buffers"))
    }
}

fn rows(report: &Report<'_>, program: &Program) -> Vec<Row> {
    let row = |stage: u32| {
        let code = &program.roles[stage as usize];
        let peak =
            report.plan.prediction.peak_memory_bytes.get(stage as usize).copied().unwrap_or(code.arena);
        report.traces().into_iter().filter_map(move |(source, trace)| {
            let rank = report.representative(trace, stage)?;
            let held: BTreeMap<BufferClass, Bytes> = trace.held_at_peak(program, rank).into_iter().collect();
            let live: Bytes = held.values().copied().sum();
            let apart = code.arena.saturating_sub(live);
            Some(Row { stage, source, held, apart, reserved: peak.saturating_sub(code.arena) })
        })
    };
    report.shown_stages().into_iter().flat_map(row).collect()
}

fn fill(class: BufferClass) -> String {
    let position = BufferClass::ALL.iter().position(|c| *c == class).expect("every class is listed");
    format!("c{}", position % FILLS)
}

fn parts(row: &Row, limit: Bytes) -> Vec<Part> {
    let part = |class: String, name: &str, length: Bytes| Part {
        class,
        length: length.get(),
        title: format!("{name}: {}", bytes(length)),
    };
    let held = row.held.iter().map(|(c, b)| part(fill(*c), &c.to_string(), *b));
    let rest = [
        part("apart".into(), "arena, not held then", row.apart),
        part("reserved".into(), "runtime", row.reserved),
        part("free".into(), "free", limit.saturating_sub(row.total())),
    ];
    held.chain(rest).collect()
}

fn table(report: &Report<'_>, program: &Program, rows: &[Row], classes: &[BufferClass]) -> Table {
    let shown = report.shown_stages();
    let limit = report.plan.prediction.memory_limit_bytes;
    let mut table = Table::new("What the memory of a rank is for").labels("Class of buffer");
    for row in rows {
        table = table.numbers(format!("Stage {}, {}", row.stage, row.source));
    }
    let line = |head: Markup, of: &dyn Fn(&Row) -> Bytes| -> Vec<Markup> {
        std::iter::once(head).chain(rows.iter().map(|r| cell(bytes(of(r))))).collect()
    };
    for class in classes {
        let of = |r: &Row| r.held.get(class).copied().unwrap_or_default();
        table.row(line(cell(class.to_string()), &of));
    }
    table.row(line(cell("arena, not held then"), &|r| r.apart));
    table.row(line(cell("runtime"), &|r| r.reserved));
    table.row(line(html! { strong { "planned peak" } }, &Row::total));
    table.row(line(cell("free"), &|r| limit.saturating_sub(r.total())));
    let of_limit = rows.iter().map(|r| cell(share(r.total().get(), limit.get())));
    table.row(std::iter::once(cell("of the limit")).chain(of_limit).collect());
    let buffers: u64 = shown.iter().map(|s| program.roles[*s as usize].buffers.len() as u64).sum();
    table.note(format!(
        "{} in all. Weights, master weights, gradients and optimizer state last the whole step.",
        counted(buffers, "buffer")
    ))
}
