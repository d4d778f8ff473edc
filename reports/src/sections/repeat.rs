//! The exact command that repeats the report, and the hashes of what it rests on.

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
        pre { code { (report.command) } }
        (sources)
    })
}
