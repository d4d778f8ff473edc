//! Why the winner won, and what the figures assume: of the model, of the band, of every number of the cluster.

use crate::Report;
use crate::table::{Table, cell};
use maud::{Markup, html};

pub(super) fn draw(report: &Report<'_>) -> Option<Markup> {
    let plan = report.plan;
    let cluster = &plan.job.cluster;
    let mut sources =
        Table::new(format!("Sources of the numbers of {}", cluster.name)).labels("Number").words("Source");
    for (number, source) in &cluster.sources {
        sources.row(vec![cell(number), cell(source)]);
    }
    Some(html! {
        @if plan.why.is_empty() {
            p { "The planner gave no reasons." }
        } @else {
            ol.reasons { @for reason in &plan.why { li { (reason) } } }
        }
        h3 { "What the prediction rests on" }
        p { (plan.prediction.basis) }
        h3 { "Assumptions about the model" }
        @if plan.job.model.assumed.is_empty() {
            p { "None: the source of the model said everything." }
        } @else {
            ul { @for assumed in &plan.job.model.assumed { li { (assumed) } } }
        }
        @if cluster.sources.is_empty() {
            p { "The cluster names no sources for its numbers." }
        } @else {
            (sources)
        }
    })
}
