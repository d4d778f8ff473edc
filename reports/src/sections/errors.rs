//! Predicted against measured by kind of instruction, the kind that adds most to the error of the step first. Each instant
//! of a rank's step counts for one kind, so the contributions add up to the error. All values come from `ErrorByKind`.

use crate::Report;
use crate::format::{count, counted, position, seconds, signed_percent, signed_seconds};
use crate::kind::legend;
use crate::table::{Table, cell};
use maud::{Markup, html};
use meshwright_ir::{ErrorByKind, IDLE, KindError};

/// Kinds drawn; the table holds all.
const DRAWN: usize = 12;

pub(super) fn draw(report: &Report<'_>) -> Option<Markup> {
    let errors = ErrorByKind::of(report.program?, report.predicted?, report.measured?)?;
    let (predicted, measured) = errors.step_s;
    let worst = errors.kinds.first()?;
    let most = worst.contribution_s.abs();
    let shown = &errors.kinds[..errors.kinds.len().min(DRAWN)];
    Some(html! {
        p {
            "The traced step takes " (seconds(measured)) ", and " (seconds(predicted)) " was predicted: "
            strong { (signed_seconds(predicted - measured)) } ", or " (signed_percent((predicted - measured) / measured)) ". "
            @if most > 0.0 {
                "The largest part of that is " strong { (worst.kind) } " with " (signed_seconds(worst.contribution_s)) "."
            }
        }
        (legend([("less", "predicted too short"), ("more", "predicted too long")]))
        div.offenders role="group" aria-label={ "What adds to the prediction error of " (report.model()) } {
            @for kind in shown { (offender(kind, most)) }
        }
        p.note {
            "Mean over " (counted(u64::from(errors.ranks), "rank")) " that both traces hold. Each instant of the step counts for what ran then: kernels before collectives before messages, or nothing. So the parts add up to the error of this step; the figure at the top is of the median step."
        }
        (table(&errors).behind("Table: every kind, predicted and measured"))
    })
}

/// A bar from the middle to the left or the right.
fn offender(kind: &KindError, most: f64) -> Markup {
    let c = kind.contribution_s;
    let length = if most > 0.0 { 50.0 * c.abs() / most } else { 0.0 };
    let (class, from) = if c < 0.0 { ("less", 50.0 - length) } else { ("more", 50.0) };
    let label = format!("{}: {}", kind.kind, signed_seconds(c));
    html! {
        div.offender {
            span.stream { (kind.kind) }
            svg width="100%" height="16" role="img" aria-label=(label) {
                rect.ground width="100%" height="100%" {}
                g class=(class) { rect x={ (position(from)) "%" } width={ (position(length)) "%" } height="100%" {} }
                line x1="50%" x2="50%" y1="0" y2="100%" {}
            }
            span.n { (signed_seconds(c)) }
        }
    }
}

fn table(errors: &ErrorByKind) -> Table {
    let mut table = Table::new("Predicted against measured, largest contribution first")
        .labels("Kind")
        .numbers("Adds to the error")
        .numbers("Of the step, predicted")
        .numbers("Of the step, measured")
        .numbers("Instructions")
        .numbers("Each, predicted")
        .numbers("Each, measured")
        .numbers("Error of each");
    for k in &errors.kinds {
        let (p, m) = k.each_s;
        let idle = k.kind == IDLE;
        let each = |text: String| cell(if idle { "–".into() } else { text });
        table.row(vec![
            cell(&k.kind),
            cell(signed_seconds(k.contribution_s)),
            cell(seconds(k.of_step_s.0)),
            cell(seconds(k.of_step_s.1)),
            each(count(k.instructions)),
            each(seconds(p)),
            each(seconds(m)),
            each(if m > 0.0 { signed_percent((p - m) / m) } else { "–".into() }),
        ]);
    }
    table.note(
        "“Each” is from start to end, waiting for other ranks included, also where something else hides it.",
    )
}
