//! `whatif`: a plan under changes, one case for each value.

use super::{Answer, output, views};
use clap::Args;
use meshwright::what_if::{Case, GOODPUT_CONVENTION, WhatIf};
use meshwright::{Change, Failure, files, what_if};
use meshwright_ir::Bytes;
use serde::Serialize;
use std::path::PathBuf;

#[derive(Args)]
pub(crate) struct Arguments {
    /// Plan file (JSON).
    plan: PathBuf,
    /// Change a field of the plan or its job: `cluster.device.memory=42949672960`, or `=2x` for a factor.
    #[arg(long, value_name = "PATH=VALUE")]
    set: Vec<String>,
    /// One case for each value: `training.sequence=2048,4096,8192`.
    #[arg(long, value_name = "PATH=A,B,C")]
    sweep: Vec<String>,
    /// One rank computes slower: `rank=3,slow=1.3`.
    #[arg(long, value_name = "rank=R,slow=X")]
    straggler: Vec<String>,
    /// Failures (not built yet).
    #[arg(long, value_name = "mtbf_hours=H")]
    fail: Vec<String>,
    /// Plan anew under each change, instead of keeping the plan's choices.
    #[arg(long)]
    replan: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    /// No progress.
    #[arg(short, long)]
    quiet: bool,
}

#[derive(Serialize)]
struct View<'a> {
    baseline: CaseView<'a>,
    cases: Vec<CaseView<'a>>,
    goodput_convention: &'static str,
}

#[derive(Serialize)]
struct CaseView<'a> {
    change: &'a str,
    step_time_s: Option<f64>,
    goodput: Option<f64>,
    plan_changed: bool,
    /// Baseline over this case: above 1 is faster.
    speedup: Option<f64>,
    peak_memory_bytes: Option<&'a [Bytes]>,
    memory_limit_bytes: Bytes,
    fits: Option<bool>,
    note: Option<&'a str>,
}

pub(crate) fn command(a: Arguments) -> Result<Answer, Failure> {
    if let Some(fail) = a.fail.first() {
        let message = format!("whatif --fail {fail} is not built yet");
        return Err(Failure::new(message, "leave it out; --set, --sweep, --straggler and --replan are"));
    }
    let changes = changes(&a)?;
    let plan = files::read_plan(&a.plan)?;
    let note = format!("simulating {}", views::count(changes.len() as u64, "case"));
    output::note(a.quiet || a.json, &note);
    let answer = what_if(&plan, &changes, a.replan)?;
    if a.json {
        output::json(&view(&answer));
    } else {
        output::say(&text(&answer));
    }
    Ok(Answer::Yes)
}

fn changes(a: &Arguments) -> Result<Vec<Change>, Failure> {
    let mut changes = a.set.iter().map(|t| Change::set(t)).collect::<Result<Vec<_>, _>>()?;
    for text in &a.sweep {
        changes.extend(Change::sweep(text)?);
    }
    for text in &a.straggler {
        changes.push(Change::straggler(text)?);
    }
    if changes.is_empty() {
        return Err(Failure::new(
            "nothing to change",
            "pass --set PATH=VALUE, --sweep PATH=a,b,c or --straggler rank=R,slow=X",
        ));
    }
    Ok(changes)
}

fn view(answer: &WhatIf) -> View<'_> {
    let case = |c| case_view(&answer.baseline, c);
    View {
        baseline: case(&answer.baseline),
        cases: answer.cases.iter().map(case).collect(),
        goodput_convention: GOODPUT_CONVENTION,
    }
}

fn case_view<'a>(baseline: &Case, c: &'a Case) -> CaseView<'a> {
    CaseView {
        change: &c.change,
        step_time_s: c.step_time_s,
        goodput: c.goodput,
        plan_changed: c.plan_changed,
        speedup: baseline.step_time_s.zip(c.step_time_s).map(|(before, after)| before / after),
        peak_memory_bytes: c.peak_memory_bytes.as_deref(),
        memory_limit_bytes: c.memory_limit_bytes,
        fits: c.fits,
        note: c.note.as_deref(),
    }
}

fn text(answer: &WhatIf) -> String {
    let baseline = &answer.baseline;
    let row = |c: &Case| {
        let peak = c.peak_memory_bytes.iter().flatten().max();
        let change = baseline.step_time_s.zip(c.step_time_s).map(|(b, s)| 100.0 * (s / b - 1.0));
        vec![
            if std::ptr::eq(c, baseline) { "as planned".into() } else { c.change.clone() },
            peak.map_or("-".into(), |p| format!("{p} of {}", c.memory_limit_bytes)),
            c.step_time_s.map_or("-".into(), views::seconds),
            c.goodput.map_or("-".into(), |g| format!("{g:.0}")),
            change.map_or("-".into(), percent),
            if c.plan_changed { "yes" } else { "no" }.into(),
        ]
    };
    let head = ["change", "peak memory", "step time", "tokens/s", "difference", "plan changed"];
    let mut rows = vec![head.map(String::from).to_vec()];
    rows.extend(std::iter::once(baseline).chain(&answer.cases).map(row));
    let noted = std::iter::once(baseline).chain(&answer.cases);
    let notes: Vec<String> =
        noted.filter_map(|c| c.note.as_ref().map(|n| format!("{}: {n}", c.change))).collect();
    let gap = if notes.is_empty() { "" } else { "\n" };
    format!("{}{gap}{}", output::table(&rows), output::items(notes.iter().map(String::as_str)))
}

/// A signed share with one decimal; what rounds to nothing has no sign.
fn percent(x: f64) -> String {
    if x.abs() < 0.05 { "0.0 %".into() } else { format!("{x:+.1} %") }
}
