//! `plan`: search, simulate the best few, print the answer.

use super::job::JobArguments;
use super::{Answer, output, progress, views};
use clap::Args;
use meshwright::{Failure, Planned, files};
use meshwright_ir::{Job, Plan};
use std::path::PathBuf;
use std::time::Instant;

#[derive(Args)]
#[command(allow_negative_numbers = true)]
pub(crate) struct Arguments {
    #[command(flatten)]
    job: JobArguments,
    /// Write the plan to this file (JSON).
    #[arg(short, long)]
    output: Option<PathBuf>,
    /// Write an HTML report to this file.
    #[arg(long)]
    report: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    /// No progress.
    #[arg(short, long)]
    quiet: bool,
}

pub(crate) fn command(a: Arguments) -> Result<Answer, Failure> {
    files::check_outputs(&a.job.inputs(), &[a.output.as_ref(), a.report.as_ref()])?;
    let job = a.job.resolve(a.quiet)?;
    let Some((plan, took)) = search(&job, a.quiet, a.json)? else { return Ok(Answer::No) };
    if let Some(path) = &a.output {
        files::write(path, &files::to_json(&plan))?;
    }
    if let Some(path) = &a.report {
        let program = meshwright::lower(&plan)?;
        let simulated = meshwright::simulate(&program, &plan.job.cluster, false)?;
        files::write(
            path,
            &meshwright::report(&plan, Some(&program), Some(&simulated), None, None, &output::typed()).html,
        )?;
    }
    for path in [a.output.as_ref(), a.report.as_ref()].into_iter().flatten() {
        output::note(a.quiet, &format!("written: {}", path.display()));
    }
    if a.json {
        output::json(&views::plan_view(&plan, took));
    } else {
        output::say(&(views::plan_text(&plan) + &views::why_text(&plan)));
    }
    Ok(Answer::Yes)
}

/// Plans and says so when nothing fits. Returns the plan and the seconds it took.
pub(crate) fn search(job: &Job, quiet: bool, json: bool) -> Result<Option<(Plan, f64)>, Failure> {
    let began = Instant::now();
    let bar = progress::bar(0, "planning", quiet);
    let planned = meshwright::plan(job, &|p| {
        bar.set_length(p.points);
        bar.set_position(p.done);
    });
    bar.finish_and_clear();
    match planned? {
        Planned::Fits(plan) => Ok(Some((*plan, began.elapsed().as_secs_f64()))),
        Planned::NoFit { why, smallest_change, report } => {
            if json {
                let seconds = began.elapsed().as_secs_f64();
                output::json(&views::no_fit_view(why, smallest_change, &report, seconds));
            } else {
                let ranks = views::count(u64::from(job.search.ranks), "rank");
                let headline = format!("No plan fits {} on {ranks} of {}.", job.model.name, job.cluster.name);
                let reasons = output::items(why.iter().map(String::as_str));
                let changes = output::items(smallest_change.split("; or "));
                output::say(&format!("{headline}\n\n{reasons}\nWhat would fit:\n\n{changes}"));
            }
            Ok(None)
        }
    }
}
