//! The document: one file with its stylesheet, its script and its figures as JSON inside; no font, no request. It says all
//! it has to say without the script, which zooms, filters and copies. Sections that have nothing to show are left out,
//! and so are their links.

use crate::figure::patterns;
use crate::report::Report;
use crate::sections::SECTIONS;
use crate::twin::{deceives, embedded};
use maud::{DOCTYPE, Markup, PreEscaped, html};
use std::fmt::Write;

const STYLE: &str = include_str!("assets/report.css");
/// In order; each adds to the one object that they share.
const SCRIPTS: [&str; 3] =
    [include_str!("assets/spans.js"), include_str!("assets/timeline.js"), include_str!("assets/report.js")];
/// Nothing may be fetched, whatever the page came to hold.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

/// The whole report as one HTML file.
///
/// # Panics
/// If a trace names a rank or an instruction that the program does not have, or the plan's lists do not match its model
/// (`Plan::check` finds the latter).
pub fn html(report: &Report<'_>) -> String {
    let drawn: Vec<(&str, &str, &str, Markup)> =
        SECTIONS.iter().filter_map(|s| Some((s.id, s.title, s.short, (s.draw)(report)?))).collect();
    let title = format!("{} on {}", report.model(), report.plan.job.cluster.name);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                title { (title) " – Meshwright report" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                a.skip href="#answer" { "Skip to the answer" }
                (patterns())
                header {
                    p.brand { "Meshwright report" }
                    h1 { (title) }
                }
                nav aria-label="Sections" { @for (id, _, short, _) in &drawn {
                    a href={ "#" (id) } { (short) }
                } }
                main { @for (id, title, _, markup) in &drawn {
                    section id=(id) aria-labelledby={ "title-" (id) } { h2 id={ "title-" (id) } { (title) } (markup) }
                } }
                footer { p { "Written by Meshwright. Times are of one training step; sizes are powers of 1024." } }
                script #twin type="application/json" { (PreEscaped(embedded(report))) }
                script { (PreEscaped(SCRIPTS.concat())) }
            }
        }
    };
    visible(&page.into_string())
}

/// The page with every character that would turn text around spelt out instead: only names from files hold any.
fn visible(page: &str) -> String {
    let mut out = String::with_capacity(page.len());
    for c in page.chars() {
        match deceives(c) {
            true => write!(out, "⟨U+{:04X}⟩", c as u32).expect("a string grows"),
            false => out.push(c),
        }
    }
    out
}
