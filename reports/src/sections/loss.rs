//! Training: the loss curve with its ends in words, and the time of each measured step against the predicted band.

use crate::Report;
use crate::chart::{Axis, Chart, Ink, legend};
use crate::format::{NBSP, Unit, counted, seconds, seconds_range};
use crate::table::{Table, cell};
use crate::thin::thin;
use maud::{Markup, html};

/// Columns that a curve is thinned to.
const COLUMNS: usize = 300;
/// Rows of the table.
const ROWS: usize = 200;

pub(super) fn draw(report: &Report<'_>) -> Option<Markup> {
    let losses = numbered(report.losses);
    let times = numbered(report.step_times_s);
    if report.losses.is_empty() && report.step_times_s.is_empty() {
        return None;
    }
    Some(html! {
        @if !report.losses.is_empty() {
            p { (in_words(report.losses)) }
            @if losses.len() > 1 { (loss_chart(report, &losses).draw()) }
        }
        @if times.len() > 1 {
            h3 { "Time of each step" }
            (legend([(Ink::Measured, "measured"), (Ink::Predicted, "predicted, with its band")]))
            (time_chart(report, &times).draw())
        }
        (table(report).behind("Table: steps"))
    })
}

/// Finite values with their step, from 1.
fn numbered(values: &[f64]) -> Vec<(f64, f64)> {
    values.iter().enumerate().map(|(k, y)| (k as f64 + 1.0, *y)).filter(|(_, y)| y.is_finite()).collect()
}

fn loss_text(x: f64) -> String {
    if x.is_finite() { format!("{x:.3}") } else { "not a number".into() }
}

fn in_words(losses: &[f64]) -> String {
    let (first, last) = (losses[0], losses[losses.len() - 1]);
    let steps = counted(losses.len() as u64, "step");
    let mut words = format!(
        "Over {steps} the loss went from {} to {} nats per token (mean over the global batch, before each update).",
        loss_text(first),
        loss_text(last)
    );
    if let Some(k) = losses.iter().position(|x| !x.is_finite()) {
        words += &format!(" It is not a number from step{NBSP}{} on or in places.", k + 1);
    }
    words
}

/// Ends of an axis a little beyond the values; equal values still get a range.
fn padded(values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    let low = values.clone().fold(f64::INFINITY, f64::min);
    let high = values.fold(f64::NEG_INFINITY, f64::max);
    let pad = ((high - low) * 0.06).max(high.abs() * 1e-3).max(1e-9);
    (low - pad, high + pad)
}

fn steps_axis(points: &[(f64, f64)]) -> Axis {
    let (from, to) = (points[0].0, points[points.len() - 1].0);
    Axis { name: "step".into(), unit: Unit::NONE, from, to, log: false }
}

fn loss_chart(report: &Report<'_>, points: &[(f64, f64)]) -> Chart {
    let (from, to) = padded(points.iter().map(|p| p.1));
    Chart {
        label: format!("Loss of {} over {} steps", report.model(), report.losses.len()),
        x: steps_axis(points),
        y: Axis { name: "loss, nats per token".into(), unit: Unit::NONE, from, to, log: false },
        band: None,
        lines: vec![(Ink::Alone, thin(points.iter().copied(), COLUMNS))],
        marks: vec![],
    }
}

fn time_chart(report: &Report<'_>, points: &[(f64, f64)]) -> Chart {
    let p = &report.plan.prediction;
    let (low, high) = p.step_time_band_s;
    let unit = Unit::of_time(points.iter().map(|p| p.1).fold(high, f64::max) * 1e12);
    let scale = 1e12 / unit.size;
    let highest = points.iter().map(|p| p.1).fold(high.max(p.step_time_s), f64::max) * scale;
    let x = steps_axis(points);
    let predicted = vec![(x.from, p.step_time_s * scale), (x.to, p.step_time_s * scale)];
    Chart {
        label: format!("Step time of {}, measured against predicted", report.model()),
        x,
        y: Axis { name: "step time".into(), unit, from: 0.0, to: highest * 1.06, log: false },
        band: Some((low * scale, high * scale)),
        lines: vec![
            (Ink::Predicted, predicted),
            (Ink::Measured, thin(points.iter().map(|(s, t)| (*s, t * scale)), COLUMNS)),
        ],
        marks: vec![],
    }
}

fn table(report: &Report<'_>) -> Table {
    let p = &report.plan.prediction;
    let n = report.losses.len().max(report.step_times_s.len());
    let every = n.div_ceil(ROWS).max(1);
    let mut table = Table::new("Steps").numbers("Step").numbers("Loss").numbers("Step time, measured");
    for k in (0..n).filter(|k| k % every == 0 || k + 1 == n) {
        table.row(vec![
            cell((k + 1).to_string()),
            cell(report.losses.get(k).map_or("–".into(), |x| loss_text(*x))),
            cell(report.step_times_s.get(k).map_or("–".into(), |x| seconds(*x))),
        ]);
    }
    let band = seconds_range(p.step_time_band_s.0, p.step_time_band_s.1);
    let predicted = format!("Predicted: {} a step (band {band}).", seconds(p.step_time_s));
    match every {
        1 => table.note(predicted),
        _ => table.note(format!("{predicted} Every {every}th step and the last are listed.")),
    }
}
