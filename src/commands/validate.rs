//! `validate`: predictions beside a table of measured runs.

use super::{Answer, output, progress};
use clap::Args;
use meshwright::validate::{self, Fitted, Score, Scored, Setup, Skipped};
use meshwright::{Failure, files};
use meshwright_zoo::Constants;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

#[derive(Args)]
#[command(allow_negative_numbers = true)]
pub(crate) struct Arguments {
    /// Table of measured runs (CSV).
    runs: PathBuf,
    /// Calibrated constants (TOML) for the clusters they name.
    #[arg(long)]
    constants: Option<PathBuf>,
    /// Fit each cluster's constants to these rows first and write them here (TOML).
    #[arg(long)]
    calibrate: Option<PathBuf>,
    /// Largest mean absolute error that is a yes, in per cent.
    #[arg(long)]
    budget: Option<f64>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    /// No progress.
    #[arg(short, long)]
    quiet: bool,
}

#[derive(Serialize)]
struct View<'v> {
    rows: usize,
    used: usize,
    skipped: Vec<SkippedView<'v>>,
    #[serde(flatten)]
    score: ScoreView,
    per_source: BTreeMap<&'v str, SourceView>,
    detail: Vec<DetailView<'v>>,
    assumed: BTreeMap<String, usize>,
    calibrated: Vec<FittedView<'v>>,
    timing: Timing,
}

#[derive(Serialize)]
struct SkippedView<'v> {
    id: &'v str,
    why: &'v str,
}

#[derive(Serialize)]
struct ScoreView {
    mape: Option<f64>,
    median_ape: Option<f64>,
    p90_ape: Option<f64>,
    bias: Option<f64>,
    baseline_mape: Option<f64>,
    kendall_tau: Option<f64>,
    regret: Option<f64>,
    memory_mape: Option<f64>,
}

#[derive(Serialize)]
struct SourceView {
    rows: usize,
    #[serde(flatten)]
    score: ScoreView,
}

#[derive(Serialize)]
struct DetailView<'v> {
    id: &'v str,
    predicted_s: f64,
    measured_s: f64,
    cluster: &'v str,
    predicted_memory_bytes: u64,
    measured_memory_bytes: Option<u64>,
    assumed: &'v [String],
}

#[derive(Serialize)]
struct FittedView<'v> {
    cluster: &'v str,
    rows: usize,
    constants: usize,
    mape_before: f64,
    mape_after: f64,
}

#[derive(Serialize)]
struct Timing {
    seconds: f64,
}

pub(crate) fn command(a: Arguments) -> Result<Answer, Failure> {
    let began = Instant::now();
    let inputs: Vec<_> =
        [Some(&a.runs), a.constants.as_ref()].into_iter().flatten().map(PathBuf::as_path).collect();
    files::check_outputs(&inputs, &[a.calibrate.as_ref()])?;
    if let Some(budget) = a.budget.filter(|b| !(b.is_finite() && *b >= 0.0)) {
        return Err(Failure::new(format!("--budget {budget}"), "write per cent, 0 or more"));
    }
    let file = a.runs.display().to_string();
    let rows = validate::read(&file, &files::read(&a.runs)?)?;
    let (mut setups, mut skipped) = validate::setups(&rows);
    if let Some(path) = &a.constants {
        let name = path.display().to_string();
        let constants = meshwright_zoo::constants_from_toml(&name, &files::read(path)?)?;
        validate::with_constants(&mut setups, &name, &constants)?;
    }
    let bar = progress::bar(0, "predicting", a.quiet);
    let (fitted, predicted) = match &a.calibrate {
        Some(path) => {
            let prepared = validate::prepare(&setups);
            let fitted = validate::calibrate(&prepared, &mut setups);
            files::write(path, &toml(&file, &fitted))?;
            (fitted, validate::predict(&prepared, &setups))
        }
        None => (vec![], validate::predict_once(&setups)),
    };
    bar.finish_and_clear();
    let mut used = vec![];
    for (setup, predicted) in setups.iter().zip(&predicted) {
        match predicted {
            Ok(p) => used.push((setup, p)),
            Err(why) => skipped.push(Skipped { id: setup.id.clone(), why: why.clone() }),
        }
    }
    let order: BTreeMap<&str, usize> = rows.iter().enumerate().map(|(k, r)| (r.id(), k)).collect();
    skipped.sort_by_key(|s| order.get(s.id.as_str()).copied());
    let scored = validate::with_baseline(&used);
    let total = validate::score(&scored);
    if a.json {
        let seconds = began.elapsed().as_secs_f64();
        output::json(&view(rows.len(), &skipped, &scored, &total, &fitted, seconds));
    } else {
        output::say(&text(rows.len(), &skipped, &scored, &total, &fitted));
    }
    match (a.budget, total.mape) {
        (Some(budget), Some(mape)) if mape * 100.0 > budget => Ok(Answer::No),
        (Some(_), None) => Ok(Answer::No),
        _ => Ok(Answer::Yes),
    }
}

/// Rows of each source.
fn by_source<'v>(scored: &[Scored<'v>]) -> BTreeMap<&'v str, Vec<Scored<'v>>> {
    let mut sources: BTreeMap<&str, Vec<Scored<'_>>> = BTreeMap::new();
    scored.iter().for_each(|s| sources.entry(&s.setup.source).or_default().push(*s));
    sources
}

fn view<'v>(
    rows: usize,
    skipped: &'v [Skipped],
    scored: &[Scored<'v>],
    total: &Score,
    fitted: &'v [Fitted],
    seconds: f64,
) -> View<'v> {
    let sources = by_source(scored).into_iter().map(|(name, rows)| {
        (name, SourceView { rows: rows.len(), score: score_view(&validate::score(&rows)) })
    });
    let mut assumed: BTreeMap<String, usize> = BTreeMap::new();
    scored.iter().flat_map(|s| &s.setup.assumed).for_each(|a| *assumed.entry(a.clone()).or_default() += 1);
    View {
        rows,
        used: scored.len(),
        skipped: skipped.iter().map(|s| SkippedView { id: &s.id, why: &s.why }).collect(),
        score: score_view(total),
        per_source: sources.collect(),
        detail: scored.iter().map(detail).collect(),
        assumed,
        calibrated: fitted.iter().map(fitted_view).collect(),
        timing: Timing { seconds },
    }
}

fn detail<'v>(s: &Scored<'v>) -> DetailView<'v> {
    let setup: &'v Setup = s.setup;
    DetailView {
        id: &setup.id,
        predicted_s: s.predicted.step_s,
        measured_s: setup.measured_s,
        cluster: &setup.cluster,
        predicted_memory_bytes: s.memory().get(),
        measured_memory_bytes: setup.measured_memory.map(|b| b.get()),
        assumed: &setup.assumed,
    }
}

fn fitted_view(f: &Fitted) -> FittedView<'_> {
    FittedView {
        cluster: &f.cluster,
        rows: f.rows,
        constants: f.moved,
        mape_before: f.error.0,
        mape_after: f.error.1,
    }
}

fn score_view(s: &Score) -> ScoreView {
    ScoreView {
        mape: s.mape,
        median_ape: s.median_ape,
        p90_ape: s.p90_ape,
        bias: s.bias,
        baseline_mape: s.baseline_mape,
        kendall_tau: s.kendall_tau,
        regret: s.regret,
        memory_mape: s.memory_mape,
    }
}

/// The constants as a file, with a remark for each cluster.
fn toml(file: &str, fitted: &[Fitted]) -> String {
    let mut text = format!(
        "# Constants fitted by `meshwright validate --calibrate` to {file}. Times in picoseconds, rates per second.\n"
    );
    for f in fitted {
        text += &format!(
            "# {}: {} constants moved on {} rows; mean error {:.1} % before, {:.1} % after.\n",
            f.cluster,
            f.moved,
            f.rows,
            100.0 * f.error.0,
            100.0 * f.error.1
        );
    }
    let all: BTreeMap<&str, &Constants> = fitted.iter().map(|f| (f.cluster.as_str(), &f.constants)).collect();
    text + "\n" + &toml::to_string(&all).expect("constants are numbers and words")
}

fn text(rows: usize, skipped: &[Skipped], scored: &[Scored<'_>], total: &Score, fitted: &[Fitted]) -> String {
    let mut lines = vec![header()];
    lines.extend(by_source(scored).into_iter().map(|(name, rows)| line(name, &validate::score(&rows))));
    lines.push(line("all", total));
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    skipped.iter().for_each(|s| *reasons.entry(&s.why).or_default() += 1);
    let mut counted: Vec<(&str, usize)> = reasons.into_iter().collect();
    counted.sort_by_key(|(why, n)| (std::cmp::Reverse(*n), *why));
    let reasons: Vec<String> = counted.iter().map(|(why, n)| format!("{n}: {why}")).collect();
    let head = format!("{rows} rows, {} predicted, {} skipped.\n\n", scored.len(), skipped.len());
    let why = match reasons.is_empty() {
        true => String::new(),
        false => format!("\nSkipped:\n\n{}", output::items(reasons.iter().map(String::as_str))),
    };
    let moved = fitted.iter().map(|f| {
        format!(
            "{}: {} constants on {} rows, mean error {:.1} % before and {:.1} % after",
            f.cluster,
            f.moved,
            f.rows,
            100.0 * f.error.0,
            100.0 * f.error.1
        )
    });
    let moved: Vec<String> = moved.collect();
    let calibrated = match moved.is_empty() {
        true => String::new(),
        false => format!("\nCalibrated:\n\n{}", output::items(moved.iter().map(String::as_str))),
    };
    head + &output::table(&lines) + &why + &calibrated
}

fn header() -> Vec<String> {
    ["source", "rows", "error", "median", "p90", "bias", "baseline", "tau", "regret", "memory"]
        .map(String::from)
        .to_vec()
}

fn line(name: &str, s: &Score) -> Vec<String> {
    let percent = |x: Option<f64>| x.map_or("-".into(), |x| format!("{:.1} %", 100.0 * x));
    let short: String = name.chars().take(48).collect();
    vec![
        short,
        s.rows.to_string(),
        percent(s.mape),
        percent(s.median_ape),
        percent(s.p90_ape),
        s.bias.map_or("-".into(), |x| format!("{:+.1} %", 100.0 * x)),
        percent(s.baseline_mape),
        s.kendall_tau.map_or("-".into(), |x| format!("{x:.2}")),
        percent(s.regret),
        percent(s.memory_mape),
    ]
}
