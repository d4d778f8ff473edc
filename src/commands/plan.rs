//! `plan`: search, simulate the best few, print the answer.

use super::job::JobArguments;
use super::{Answer, output, progress, views};
use clap::Args;
use meshwright::{Failure, Planned, files};
use meshwright_ir::{Job, Plan};
use std::path::PathBuf;
use std::time::Instant;

#[derive(Args)]
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
    let job = a.job.resolve(a.quiet)?;
    let Some((plan, took)) = search(&job, a.quiet, a.json)? else { return Ok(Answer::No) };
    if let Some(path) = &a.output {
        files::write(path, &files::to_json(&plan))?;
    }
    if let Some(path) = &a.report {
        let program = meshwright::lower(&plan)?;
        let simulated = meshwright::simulate(&program, &plan.job.cluster, false);
        files::write(
            path,
            &meshwright::report(&plan, Some(&program), Some(&simulated), None, None, &output::typed()),
        )?;
    }
    if a.json {
        output::json(&views::plan_view(&plan, took));
    } else {
        output::say(&views::plan_text(&plan));
        let written = [a.output.as_ref(), a.report.as_ref()];
        written.into_iter().flatten().for_each(|p| output::say(&format!("\n  written: {}\n", p.display())));
    }
    Ok(Answer::Yes)
}

/// Plans and says so when nothing fits. Returns the plan and the seconds it took.
pub(crate) fn search(job: &Job, quiet: bool, json: bool) -> Result<Option<(Plan, f64)>, Failure> {
    let began = Instant::now();
    let bar = progress::bar(0, "planning", quiet);
    let planned = meshwright::plan(job, &|p| {
        bar.set_length(p.points as u64);
        bar.set_position(p.done as u64);
    });
    bar.finish_and_clear();
    match planned? {
        Planned::Fits(plan) => Ok(Some((*plan, began.elapsed().as_secs_f64()))),
        Planned::NoFit { why, smallest_change, report } => {
            let timing = views::Timing {
                seconds: began.elapsed().as_secs_f64(),
                configs_per_s: None,
                instructions_per_s: None,
            };
            if json {
                output::json(&views::NoFitView {
                    status: "no_fit",
                    why,
                    smallest_change,
                    search: views::search_view(&report),
                    timing,
                });
            } else {
                let reasons: String = why.iter().map(|w| format!("  - {w}\n")).collect();
                let (model, ranks, cluster) = (&job.model.name, job.search.ranks, &job.cluster.name);
                output::say(&format!(
                    "No plan fits {model} on {ranks} ranks of {cluster}.\n\n{reasons}\n  smallest change: {smallest_change}\n"
                ));
            }
            Ok(None)
        }
    }
}
