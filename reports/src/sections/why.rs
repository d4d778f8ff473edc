//! Why the winner won, in the planner's words.

use crate::Report;
use maud::{Markup, html};

pub(super) fn draw(report: &Report<'_>) -> Option<Markup> {
    let why = &report.plan.why;
    Some(html! {
        @if why.is_empty() {
            p { "The planner gave no reasons." }
        } @else {
            ol.reasons { @for reason in why { li { (reason) } } }
        }
    })
}
