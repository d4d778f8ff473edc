//! How each op of each block is sharded, and where tensors change layout: the forward conversions read as the
//! collectives they are, so that column and row parallelism, sequence parallelism and vocabulary parallelism are visible.

use crate::Report;
use crate::table::{Table, cell, code};
use maud::{Markup, html};
use meshwright_ir::{Axis, BlockClass, ClassPlan, Op, Step, Strategy, ValuePlan};

pub(super) fn draw(report: &Report<'_>) -> Option<Markup> {
    let plan = report.plan;
    let classes = plan.job.model.classes.iter().zip(&plan.classes);
    Some(html! {
        p {
            "A strategy names the index of the op that each mesh axis cuts: " code { "b" } " batch, " code { "s" } " sequence, "
            code { "i" } "/" code { "o" } " input and output features, " code { "e" } " features, " code { "h" } " heads, "
            code { "v" } " vocabulary. A layout lists what cuts each dim of " code { "[batch, sequence, features]" }
            "; " code { "+tp" } " marks addends still to be summed. Between blocks the layout is " code { (plan.boundary) } "."
        }
        @for (class, choice) in classes {
            @let repeats = plan.job.model.runs.iter().filter(|r| plan.job.model.classes[r.class as usize].name == class.name).map(|r| r.repeat).sum::<u32>();
            (of_class(class, choice, repeats))
        }
        @if !plan.algorithms.is_empty() {
            p.note {
                "Collectives: "
                @for (k, (axis, algorithm)) in plan.algorithms.iter().enumerate() {
                    @if k > 0 { ", " } (algorithm) " over " (axis)
                }
                "."
            }
        }
    })
}

fn of_class(class: &BlockClass, choice: &ClassPlan, repeats: u32) -> Table {
    let times = if repeats > 1 { format!(" × {repeats}") } else { String::new() };
    let mut table = Table::new(format!("Block {}{times}", class.name))
        .labels("Node")
        .labels("Op")
        .labels("Strategy")
        .labels("In words")
        .labels("Output")
        .words("Forward conversions");
    if let Some(input) = &choice.input {
        table.row(vec![
            cell("(input)"),
            cell(""),
            cell(""),
            cell(""),
            code(input.produced.to_string()),
            conversions(class, input),
        ]);
    }
    for ((node, strategy), output) in class.nodes.iter().zip(&choice.strategies).zip(&choice.outputs) {
        table.row(vec![
            cell(&node.name),
            cell(node.op.name()),
            code(strategy.describe(node.op.indices())),
            cell(in_words(&node.op, strategy)),
            code(output.produced.to_string()),
            conversions(class, output),
        ]);
    }
    table
}

/// What the field calls the tensor axis's cut of an op.
fn in_words(op: &Op, strategy: &Strategy) -> &'static str {
    let Some(index) = strategy.index(Axis::Tp) else { return "" };
    match (op, op.indices()[index as usize]) {
        (_, "s") => "sequence-parallel",
        (Op::Linear { .. }, "o") => "column-parallel",
        (Op::Linear { .. }, "i") => "row-parallel",
        (Op::Embedding { .. } | Op::CrossEntropy { .. }, "v") => "vocabulary-parallel",
        (Op::Attention { .. }, "h") => "head-parallel",
        (_, "e" | "h") => "feature-parallel",
        _ => "",
    }
}

/// Each converted copy: its steps, and who reads it.
fn conversions(class: &BlockClass, value: &ValuePlan) -> Markup {
    let readers = |copy: usize| -> String {
        let name = |node: u32| class.nodes.get(node as usize).map_or("the next block", |n| n.name.as_str());
        let mut names: Vec<&str> =
            value.uses.iter().filter(|u| u.copy as usize == copy).map(|u| name(u.node)).collect();
        names.dedup();
        names.join(", ")
    };
    let converted = value.copies.iter().enumerate().filter(|(_, c)| !c.steps.is_empty());
    html! {
        @for (k, copy) in converted {
            div { (copy.steps.iter().map(describe).collect::<Vec<_>>().join(", then ")) " → " code { (copy.layout) } @let by = readers(k); @if !by.is_empty() { " for " (by) } }
        }
    }
}

fn describe(step: &Step) -> String {
    match step {
        Step::AllGather { axis, dim } => format!("all-gather over {axis} along {}", dim_name(*dim)),
        Step::AllReduce { axis } => format!("all-reduce over {axis}"),
        Step::ReduceScatter { axis, dim } => format!("reduce-scatter over {axis} along {}", dim_name(*dim)),
        Step::AllToAll { axis, from, to } => {
            format!("all-to-all over {axis} from {} to {}", dim_name(*from), dim_name(*to))
        }
        Step::Slice { axis, dim } => format!("keep own piece over {axis} along {}", dim_name(*dim)),
    }
}

fn dim_name(dim: u8) -> &'static str {
    match dim {
        0 => "batch",
        1 => "sequence",
        2 => "features",
        _ => "a later dim",
    }
}
