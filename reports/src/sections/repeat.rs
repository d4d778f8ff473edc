//! The exact command that repeats the report, the pins that lead back to its plan, and the hashes of what it rests on.

use crate::Report;
use crate::table::{Table, cell, code};
use maud::{Markup, html};

pub(super) fn draw(report: &Report<'_>) -> Option<Markup> {
    let job = &report.plan.job;
    let mut sources =
        Table::new("What the figures rest on").labels("What").words("Name").labels("Hash (FNV-1a)");
    sources.row(vec![cell("model"), cell(&job.model_source.name), code(&job.model_source.hash)]);
    sources.row(vec![cell("cluster"), cell(&job.cluster_source.name), code(&job.cluster_source.hash)]);
    for source in report.sources {
        sources.row(vec![cell("file"), cell(&source.name), code(&source.hash)]);
    }
    Some(html! {
        p { "The same job and the same sources give the same bytes, whatever the thread count; measured figures vary with the machine." }
        h3 { "Command" }
        (copied("command", report.command))
        h3 { "Pins" }
        p { "Given to " code { "--pin" } ", these lead a search back to this point." }
        (copied("pins", &report.plan.pins()))
        h3 { "Figures as JSON" }
        p { "This page holds its figures as one JSON object, in the element " code { "#twin" } "; " code { "meshwright report --json-twin FILE" } " writes the same to a file." }
        div.copied hidden { button type="button" data-copy="twin" { "Copy JSON" } }
        (sources)
    })
}

/// A text with the button that copies it, which the page's script shows.
fn copied(id: &str, text: &str) -> Markup {
    html! {
        div.copied {
            pre tabindex="0" { code id=(id) { (text) } }
            button type="button" data-copy=(id) hidden { "Copy " (id) }
        }
    }
}
