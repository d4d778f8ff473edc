//! The document: one file with its stylesheet inside, no script, no font, no request. Sections that have nothing to show
//! are left out, and so are their links.

use crate::figure::patterns;
use crate::report::Report;
use crate::sections::SECTIONS;
use maud::{DOCTYPE, Markup, PreEscaped, html};

const STYLE: &str = include_str!("style.css");

/// The whole report as one HTML file.
///
/// # Panics
/// If a trace names a rank or an instruction that the program does not have, or the plan's lists do not match its model
/// (`Plan::check` finds the latter).
pub fn html(report: &Report<'_>) -> String {
    let drawn: Vec<(&str, &str, Markup)> =
        SECTIONS.iter().filter_map(|s| Some((s.id, s.title, (s.draw)(report)?))).collect();
    let title = format!("{} on {}", report.model(), report.plan.job.cluster.name);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " – Meshwright report" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                (patterns())
                header {
                    p.brand { "Meshwright report" }
                    h1 { (title) }
                    nav aria-label="Sections" { @for (id, title, _) in drawn.iter().skip(1) {
                        a href={ "#" (id) } { (title) }
                    } }
                }
                main { @for (id, title, markup) in &drawn {
                    section id=(id) { h2 { (title) } (markup) }
                } }
                footer { p { "Written by Meshwright. Times are of one training step; sizes are powers of 1024." } }
            }
        }
    };
    page.into_string()
}
