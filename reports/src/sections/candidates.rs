//! Candidates: peak memory against step time of every point the search priced, the runners-up it simulated, and what it
//! rejected with the reason, equal reasons together.

use crate::Report;
use crate::chart::{Axis, Chart, Ink, legend};
use crate::format::{Unit, bytes, count, counted, degrees, schedule, seconds};
use crate::table::{Table, cell};
use maud::{Markup, html};
use meshwright_ir::{Bytes, Candidate, Mesh};
use std::collections::{BTreeMap, BTreeSet};

/// Rows of each table.
const ROWS: usize = 200;
/// Marks of each kind in the chart.
const MARKS: usize = 400;
/// Examples named beside a reason.
const EXAMPLES: usize = 3;

pub(super) fn draw(report: &Report<'_>) -> Option<Markup> {
    let search = &report.plan.search;
    if search.points.is_empty() && search.alternatives.is_empty() {
        return None;
    }
    let priced = search.points.iter().filter(|c| place(c).is_some()).count();
    let feasible = marks(&search.points, |c| c.rejected.is_none());
    let rejected = marks(&search.points, |c| c.rejected.is_some());
    Some(html! {
        p {
            (counted(search.candidates, "candidate")) " enumerated, " (count(search.pruned)) " cut by a rule or a bound, "
            (counted(search.solved, "block problem")) " solved, " (counted(search.simulated, "plan")) " simulated. "
            "No plan of this space takes less than " (seconds(report.plan.prediction.lower_bound_s)) "."
        }
        @if priced > 0 {
            (legend([(Ink::Winner, "this plan"), (Ink::Feasible, "feasible"), (Ink::Rejected, "rejected"), (Ink::Limit, "memory limit")]))
            @if let Some(chart) = chart(report, &feasible, &rejected) { (chart.draw()) }
            p.note {
                (count(priced as u64)) " of " (count(search.points.len() as u64)) " points have a price and are drawn, by the planner's closed form; the others were cut before."
                @if feasible.len() == MARKS || rejected.len() == MARKS { " At most " (MARKS) " marks of each kind are drawn; those that would hide each other count once." }
            }
        }
        @if !search.alternatives.is_empty() { (alternatives(report)) }
        @if search.points.iter().any(|c| c.rejected.is_some()) { (reasons(&search.points)) }
        @if priced > 0 { (points(&search.points).behind("Table: candidates with a price")) }
    })
}

/// Peak memory and step time of a candidate, if both are known and can be drawn on logarithmic axes.
fn place(c: &Candidate) -> Option<(f64, f64)> {
    let (memory, step) = (c.peak_memory_bytes?.f64(), c.closed_form_s?);
    (memory > 0.0 && step.is_finite() && step > 0.0).then_some((memory, step * 1e12))
}

/// Places of the chosen candidates, one for each spot that a reader can tell apart.
fn marks(points: &[Candidate], choose: fn(&Candidate) -> bool) -> Vec<(f64, f64)> {
    let mut spots = BTreeSet::new();
    let spot = |(x, y): (f64, f64)| ((x.log10() * 60.0).round() as i64, (y.log10() * 60.0).round() as i64);
    let places = points.iter().filter(|c| choose(c)).filter_map(place);
    places.filter(|p| spots.insert(spot(*p))).take(MARKS).collect()
}

fn chart(report: &Report<'_>, feasible: &[(f64, f64)], rejected: &[(f64, f64)]) -> Option<Chart> {
    let p = &report.plan.prediction;
    let winner =
        report.peak().map(|(_, b)| (b.f64(), p.closed_form_s * 1e12)).filter(|(x, y)| *x > 0.0 && *y > 0.0);
    let limit = p.memory_limit_bytes.f64();
    let all: Vec<(f64, f64)> = feasible.iter().chain(rejected).copied().chain(winner).collect();
    let xs: Vec<f64> = all.iter().map(|p| p.0).chain((limit > 0.0).then_some(limit)).collect();
    let x = axis("peak memory of a rank", &xs, Unit::of_bytes);
    let y = axis("step time, closed form", &all.iter().map(|p| p.1).collect::<Vec<_>>(), Unit::of_time);
    let (gib, ms) = (x.unit.size, y.unit.size);
    let scaled = |points: &[(f64, f64)]| points.iter().map(|p| (p.0 / gib, p.1 / ms)).collect();
    let wall = vec![(limit / gib, y.from), (limit / gib, y.to)];
    (!all.is_empty()).then(|| Chart {
        label: format!("Candidates for {}: peak memory against step time", report.model()),
        band: None,
        lines: if limit > 0.0 { vec![(Ink::Limit, wall)] } else { vec![] },
        marks: vec![
            (Ink::Rejected, scaled(rejected)),
            (Ink::Feasible, scaled(feasible)),
            (Ink::Winner, scaled(winner.as_slice())),
        ],
        x,
        y,
    })
}

/// An axis around `values`, logarithmic where they span more than a factor of ten.
fn axis(name: &str, values: &[f64], unit: fn(f64) -> Unit) -> Axis {
    let (low, high) = values.iter().fold((f64::INFINITY, 0f64), |(l, h), v| (l.min(*v), h.max(*v)));
    let unit = unit(high);
    let (low, high) = (low / unit.size, high / unit.size);
    let log = high > 10.0 * low;
    let (from, to) = if log { (low / 1.3, high * 1.3) } else { (0.0, high * 1.08) };
    Axis { name: name.into(), unit, from, to, log }
}

fn alternatives(report: &Report<'_>) -> Table {
    let all = &report.plan.search.alternatives;
    let mut table = Table::new("Runners-up, simulated, best first")
        .labels("Mesh")
        .labels("Sequence-parallel")
        .numbers("Micro-batch")
        .labels("Schedule")
        .labels("Optimizer state")
        .numbers("Step time")
        .numbers("Peak memory");
    for a in all.iter().take(ROWS) {
        table.row(vec![
            cell(degrees(&a.mesh)),
            cell(if a.sequence_parallel { "yes" } else { "no" }),
            cell(a.micro_batch.to_string()),
            cell(schedule(a.schedule)),
            cell(a.state_sharding.to_string()),
            cell(seconds(a.step_time_s)),
            cell(bytes(a.peak_memory_bytes)),
        ]);
    }
    capped(table, all.len(), "runners-up")
}

/// Rejected candidates, equal reasons together, most frequent first.
fn reasons(points: &[Candidate]) -> Table {
    let mut by_reason: BTreeMap<&str, Vec<(Mesh, u64)>> = BTreeMap::new();
    for c in points {
        if let Some(reason) = &c.rejected {
            by_reason.entry(reason).or_default().push((c.mesh, c.micro_batch));
        }
    }
    let mut rows: Vec<_> = by_reason.into_iter().collect();
    rows.sort_by_key(|(_, who)| std::cmp::Reverse(who.len()));
    let mut table =
        Table::new("Rejected, and why").words("Reason").numbers("Candidates").words("For instance");
    for (reason, who) in rows.iter().take(ROWS) {
        let some: Vec<_> =
            who.iter().take(EXAMPLES).map(|(m, b)| format!("{}, micro-batch {b}", degrees(m))).collect();
        table.row(vec![cell(reason), cell(count(who.len() as u64)), cell(some.join("; "))]);
    }
    capped(table, rows.len(), "reasons")
}

fn points(points: &[Candidate]) -> Table {
    let priced: Vec<&Candidate> = points.iter().filter(|c| place(c).is_some()).collect();
    let mut table = Table::new("Candidates with a price, in the order of enumeration")
        .labels("Mesh")
        .numbers("Micro-batch")
        .labels("Schedule")
        .numbers("Step time, closed form")
        .numbers("Peak memory")
        .words("Rejected because");
    for c in priced.iter().take(ROWS) {
        table.row(vec![
            cell(degrees(&c.mesh)),
            cell(c.micro_batch.to_string()),
            cell(schedule(c.schedule)),
            cell(c.closed_form_s.map_or("–".into(), seconds)),
            cell(c.peak_memory_bytes.map_or("–".into(), |b: Bytes| bytes(b))),
            cell(c.rejected.as_deref().unwrap_or("")),
        ]);
    }
    capped(table, priced.len(), "candidates")
}

fn capped(table: Table, all: usize, what: &str) -> Table {
    if all <= ROWS {
        return table;
    }
    table.note(format!(
        "The first {ROWS} of {} {what} are listed; the plan file holds the rest.",
        count(all as u64)
    ))
}
