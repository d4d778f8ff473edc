//! Candidates: peak memory against step time of every point the search priced with the front that nothing beats, the
//! runners-up it simulated, what it would take for those rejected, and the reasons, equal ones together.

use crate::Report;
use crate::chart::{Axis, Chart, Ink, legend};
use crate::format::{Unit, bytes, count, counted, degrees, percent, schedule, seconds, signed_percent};
use crate::table::{Table, cell};
use maud::{Markup, html};
use meshwright_ir::{Bytes, Candidate, Mesh, Need, StateSharding};
use std::collections::{BTreeMap, BTreeSet};

/// Rows of each table.
const ROWS: usize = 200;
/// Marks of each kind in the chart.
const MARKS: usize = 400;
/// How far beyond memory limit and chosen step time the chart reaches, as factors.
const REACH: (f64, f64) = (1.6, 2.2);
/// Rejected candidates whose need is spelt out.
const NEAR: usize = 8;
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
            (legend([(Ink::Winner, "this plan"), (Ink::Feasible, "feasible"), (Ink::Rejected, "rejected"), (Ink::Front, "Pareto front: none is faster with less memory"), (Ink::Limit, "memory limit")]))
            @if let Some(chart) = chart(report, &feasible, &rejected) { (chart.draw()) }
            p.note {
                (count(priced as u64)) " of " (count(search.points.len() as u64)) " points have a price and are drawn, by the planner's closed form; the others were cut before. Those of more than " (REACH.0) " times the limit or " (REACH.1) " times this plan's step time lie beyond the edge."
                @if feasible.len() == MARKS || rejected.len() == MARKS { " At most " (MARKS) " marks of each kind are drawn; those that would hide each other count once." }
            }
        }
        @if !search.alternatives.is_empty() { (alternatives(report)) }
        (front(report).behind("Table: the Pareto front"))
        (near(report))
        @if search.points.iter().any(|c| c.rejected.is_some()) { (reasons(&search.points).behind("Table: every reason for a rejection")) }
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
    // What lies far beyond the limit or takes several times as long would leave the rest no room.
    let (far, slow) = (REACH.0 * limit, winner.map_or(f64::INFINITY, |w| REACH.1 * w.1));
    let inside = |p: &&(f64, f64)| (limit <= 0.0 || p.0 <= far) && p.1 <= slow;
    let all: Vec<(f64, f64)> = all.iter().filter(inside).copied().collect();
    let xs: Vec<f64> = all.iter().map(|p| p.0).chain((limit > 0.0).then_some(limit)).collect();
    let x = axis("peak memory of a rank", &xs, Unit::of_bytes, 0.0);
    let y = axis("step time, closed form", &all.iter().map(|p| p.1).collect::<Vec<_>>(), Unit::of_time, 0.9);
    let (gib, ms) = (x.unit.size, y.unit.size);
    let scaled = |points: &[(f64, f64)]| -> Vec<(f64, f64)> {
        points.iter().filter(inside).map(|p| (p.0 / gib, p.1 / ms)).collect()
    };
    let wall = vec![(limit / gib, y.from), (limit / gib, y.to)];
    let search = &report.plan.search;
    let best: Vec<(f64, f64)> = search.pareto().iter().filter_map(|k| place(&search.points[*k])).collect();
    // From the frugal end: less time takes more memory, a step at each point.
    let mut stepped: Vec<(f64, f64)> = vec![];
    for (memory, step) in best.iter().rev() {
        stepped.extend(stepped.last().map(|last: &(f64, f64)| (*memory, last.1)));
        stepped.push((*memory, *step));
    }
    let mut lines = vec![(Ink::Front, scaled(&stepped))];
    lines.extend((limit > 0.0).then_some((Ink::Limit, wall)));
    (!all.is_empty()).then(|| Chart {
        label: format!("Candidates for {}: peak memory against step time", report.model()),
        band: None,
        lines,
        marks: vec![
            (Ink::Rejected, scaled(rejected)),
            (Ink::Feasible, scaled(feasible)),
            (Ink::Winner, scaled(winner.as_slice())),
        ],
        x,
        y,
    })
}

/// An axis around `values`, logarithmic where they span more than a factor of ten, else from `floor` times
/// the least of them.
fn axis(name: &str, values: &[f64], unit: fn(f64) -> Unit, floor: f64) -> Axis {
    let (low, high) = values.iter().fold((f64::INFINITY, 0f64), |(l, h), v| (l.min(*v), h.max(*v)));
    let unit = unit(high);
    let (low, high) = (low / unit.size, high / unit.size);
    let log = high > 10.0 * low;
    let (from, to) = if log { (low / 1.3, high * 1.3) } else { (floor * low, high * 1.08) };
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

/// What a candidate is, in one cell.
fn describe(c: &Candidate) -> String {
    let sp = if c.sequence_parallel { ", sequence-parallel" } else { "" };
    let sharding = match c.state_sharding {
        StateSharding::None => String::new(),
        other => format!(", {other}"),
    };
    format!("{}, micro-batch {}, {}{sharding}{sp}", degrees(&c.mesh), c.micro_batch, schedule(c.schedule))
}

fn front(report: &Report<'_>) -> Table {
    let search = &report.plan.search;
    let best = search.pareto();
    let mut table = Table::new("Plans that none beats in both time and memory, fastest first")
        .words("Candidate")
        .numbers("Step time, closed form")
        .numbers("Peak memory");
    for c in best.iter().take(ROWS).map(|k| &search.points[*k]) {
        table.row(vec![
            cell(describe(c)),
            cell(c.closed_form_s.map_or("–".into(), seconds)),
            cell(c.peak_memory_bytes.map_or("–".into(), bytes)),
        ]);
    }
    capped(table, best.len(), "plans")
}

/// Rejected candidates of one mesh and micro-batch, by the nearest of them.
struct Near<'a> {
    need: Need,
    nearest: &'a Candidate,
    count: u64,
}

/// What it would take for rejected candidates: those short of memory, the least short first; those that are too slow, the
/// closest first.
fn near(report: &Report<'_>) -> Markup {
    let plan = report.plan;
    let rejected = plan.search.points.iter().filter(|c| c.rejected.is_some()).map(|c| (plan.need(c), c));
    let (mut short, mut slow, mut ruled) = (BTreeMap::new(), BTreeMap::new(), 0);
    for (need, c) in rejected {
        let group = match need {
            Need::Memory { .. } => &mut short,
            Need::Time { .. } | Need::Bound { .. } => &mut slow,
            Need::Rule => {
                ruled += 1;
                continue;
            }
        };
        let of = group.entry((c.mesh, c.micro_batch)).or_insert(Near { need, nearest: c, count: 0 });
        of.count += 1;
        if distance(need) < distance(of.need) {
            (of.need, of.nearest) = (need, c);
        }
    }
    let short =
        nearest(short.into_values().collect(), "Short of memory: what would let them fit, the least first");
    let slow = nearest(slow.into_values().collect(), "Too slow: what would let them win, the least first");
    html! {
        @if short.is_some() || slow.is_some() || ruled > 0 { h3 { "What it would take for rejected plans" } }
        @if let Some(table) = short { (table) }
        @if let Some(table) = slow { (table) }
        @if ruled > 0 { p.note { "A rule is in the way of " (counted(ruled, "candidate")) ": no amount of memory or time helps those." } }
    }
}

/// How far a candidate is from winning: first what is short, then the time.
fn distance(need: Need) -> (Bytes, f64) {
    match need {
        Need::Memory { short, step } => (short, step.unwrap_or(f64::INFINITY)),
        Need::Time { step } | Need::Bound { step } => (Bytes::ZERO, step),
        Need::Rule => (Bytes::ZERO, f64::INFINITY),
    }
}

fn nearest(mut all: Vec<Near<'_>>, caption: &str) -> Option<Table> {
    let far = |n: &Near<'_>| distance(n.need);
    all.sort_by(|a, b| far(a).0.cmp(&far(b).0).then(far(a).1.total_cmp(&far(b).1)));
    let mut table = Table::new(caption)
        .words("Candidate")
        .words("It would take")
        .numbers("Its step, then, against this plan");
    for n in all.iter().take(NEAR) {
        let (takes, step) = takes(n.need);
        let others = if n.count > 1 { format!(" and {} like it", n.count - 1) } else { String::new() };
        table.row(vec![html! { (describe(n.nearest)) span.dim { (others) } }, cell(takes), cell(step)]);
    }
    let hidden = all.len().saturating_sub(NEAR) as u64;
    if hidden > 0 {
        table = table.note(format!("{} more meshes and micro-batches need at least as much.", count(hidden)));
    }
    (!all.is_empty()).then_some(table)
}

/// A need in words, and the step time it goes with.
fn takes(need: Need) -> (String, String) {
    let off = |step: f64| format!("{} off its step", percent(1.0 - 1.0 / step));
    let more = |short: Bytes| format!("{} more memory a rank", bytes(short));
    match need {
        Need::Memory { short, step: Some(step) } if step < 1.0 => {
            (format!("{}; it would then be the faster one", more(short)), signed_percent(step - 1.0))
        }
        Need::Memory { short, step: Some(step) } => {
            (format!("{} to fit, and {} to win", more(short), off(step)), signed_percent(step - 1.0))
        }
        Need::Memory { short, step: None } => {
            (format!("{} for its parameters and their states alone", more(short)), "not priced".into())
        }
        Need::Time { step } => (off(step), signed_percent(step - 1.0)),
        Need::Bound { step } if step < 1.0 => (
            "to reach its bound, which was not tried".into(),
            format!("at best {}", signed_percent(step - 1.0)),
        ),
        Need::Bound { step } => {
            (format!("{}, even at its bound", off(step)), format!("at best {}", signed_percent(step - 1.0)))
        }
        Need::Rule => ("another model: a rule is in the way".into(), String::new()),
    }
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
