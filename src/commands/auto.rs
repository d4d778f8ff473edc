//! `auto`: the quick start. Plan, simulate, run, report, in one go.

use super::job::JobArguments;
use super::{Answer, output, plan, run, step_views, views};
use clap::Args;
use meshwright::{Failure, files};
use serde::Serialize;
use std::path::PathBuf;
use std::time::Instant;

#[derive(Args)]
#[command(allow_negative_numbers = true)]
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
    simulate: step_views::SimulateView,
    run: step_views::RunView,
    report: String,
}

pub(crate) fn command(a: Arguments) -> Result<Answer, Failure> {
    files::check_outputs(&a.job.inputs(), &[Some(&a.report)])?;
    let job = a.job.resolve(a.quiet)?;
    run::ready(&job)?;
    let Some((plan, took)) = plan::search(&job, a.quiet, a.json)? else { return Ok(Answer::No) };
    output::note(a.quiet, &format!("planned: {}", views::headline(&plan)));
    let program = meshwright::lower(&plan)?;
    let began = Instant::now();
    let simulated = meshwright::simulate(&program, &plan.job.cluster, false)?;
    let simulating = began.elapsed().as_secs_f64();
    let ran = run::train(&plan, &program, a.quiet)?;
    let documents =
        meshwright::report(&plan, Some(&program), Some(&simulated), None, Some(&ran), &output::typed());
    files::write(&a.report, &documents.html)?;
    let report = a.report.display().to_string();
    if a.json {
        let cluster = &plan.job.cluster;
        let simulate = step_views::simulate_view(&program, Some(&plan), cluster, &simulated, simulating);
        output::json(&View {
            plan: views::plan_view(&plan, took),
            simulate,
            run: step_views::run_view(&plan, &program, &ran),
            report,
        });
    } else {
        let (planned, ran) = (views::plan_text(&plan), step_views::run_text(&plan, &program, &ran));
        output::say(&format!("{planned}\n{ran}\n  report: {report}\n"));
    }
    Ok(Answer::Yes)
}
