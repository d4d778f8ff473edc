//! What the figures assume: of the model, of the prediction's band, and of every number of the cluster, with its source.

use crate::Report;
use crate::format::counted;
use crate::table::{Table, cell};
use maud::{Markup, html};

pub(super) fn draw(report: &Report<'_>) -> Option<Markup> {
    let cluster = &report.plan.job.cluster;
    let assumed = &report.plan.job.model.assumed;
    let mut sources =
        Table::new(format!("Sources of the numbers of {}", cluster.name)).labels("Number").words("Source");
    for (number, source) in &cluster.sources {
        sources.row(vec![cell(number), html! { @if guessed(source) { span.flag { "guess" } " " } (source) }]);
    }
    let guesses = cluster.sources.values().filter(|s| guessed(s)).count();
    Some(html! {
        h3 { "What the prediction rests on" }
        p { (report.plan.prediction.basis) }
        h3 { "Assumptions about the model" }
        @if assumed.is_empty() {
            p { "None: the source of the model said everything." }
        } @else {
            ul { @for a in assumed { li { (a) } } }
        }
        @if cluster.sources.is_empty() {
            p { "The cluster names no sources for its numbers." }
        } @else {
            @if guesses > 0 {
                p { "Of " (counted(cluster.sources.len() as u64, "number")) " of the cluster, " (guesses) (if guesses == 1 { " is" } else { " are" }) " a guess, or rest on one." }
            }
            (sources)
        }
    })
}

/// Whether a source says of itself that it is a guess.
fn guessed(source: &str) -> bool {
    source.to_lowercase().contains("guess")
}
