//! `auto`: the quick start. Plan, simulate, run, report, in one go.

use super::job::JobArguments;
use super::{Answer, output, plan, run, views};
use clap::Args;
use meshwright::{Failure, files};
use serde::Serialize;
use std::path::PathBuf;
use std::time::Instant;

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    job: JobArguments,
    /// Where the report goes.
    #[arg(long, default_value = "meshwright-report.html")]
    report: PathBuf,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    /// No progress.
    #[arg(short, long)]
    quiet: bool,
}

#[derive(Serialize)]
struct View {
    plan: views::PlanView,
    simulate: views::SimulateView,
    run: views::RunView,
    report: String,
}

pub(crate) fn command(a: Arguments) -> Result<Answer, Failure> {
    let job = a.job.resolve(a.quiet)?;
    let Some((plan, took)) = plan::search(&job, a.quiet, a.json)? else { return Ok(Answer::No) };
    let program = meshwright::lower(&plan)?;
    if !a.json {
        output::say(&views::plan_text(&plan));
    }
    let began = Instant::now();
    let simulated = meshwright::simulate(&program, &plan.job.cluster, false);
    let simulating = began.elapsed().as_secs_f64();
    let ran = run::train(&plan, &program, a.quiet)?;
    let html =
        meshwright::report(&plan, Some(&program), Some(&simulated), None, Some(&ran), &output::typed());
    files::write(&a.report, &html)?;
    let report = a.report.display().to_string();
    if a.json {
        let simulate = views::simulate_view(&program, Some(&plan), &simulated, Some(simulating));
        output::json(&View {
            plan: views::plan_view(&plan, took),
            simulate,
            run: views::run_view(&plan, &program, &ran),
            report,
        });
    } else {
        output::say(&format!("\n{}\n  report: {report}\n", views::run_text(&plan, &program, &ran)));
    }
    Ok(Answer::Yes)
}
