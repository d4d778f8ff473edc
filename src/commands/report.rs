//! `report`: one HTML file of a plan and any traces of it.

use super::{Answer, output};
use clap::Args;
use meshwright::{Failure, files};
use meshwright_ir::trace::TraceSource;
use serde::Serialize;
use std::path::{Path, PathBuf};

#[derive(Args)]
pub(crate) struct Arguments {
    /// Plan file (JSON).
    plan: PathBuf,
    /// Traces that `simulate` or `run` wrote.
    traces: Vec<PathBuf>,
    /// Where the report goes.
    #[arg(short, long)]
    output: PathBuf,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    /// No progress.
    #[arg(short, long)]
    quiet: bool,
}

#[derive(Serialize)]
struct View {
    path: String,
}

pub(crate) fn command(a: Arguments) -> Result<Answer, Failure> {
    let plan = files::read_plan(&a.plan)?;
    let inputs: Vec<&Path> = std::iter::once(&a.plan).chain(&a.traces).map(PathBuf::as_path).collect();
    files::check_outputs(&inputs, &[Some(&a.output)])?;
    let program = meshwright::lower(&plan).map_err(|e| Failure::in_file(&a.plan.display().to_string(), e))?;
    let mut simulated = meshwright::simulate(&program, &plan.job.cluster, false)?;
    let mut measured = None;
    for path in &a.traces {
        let trace = files::read_trace(path)?;
        trace.check(&program).map_err(|e| {
            Failure::in_file(&format!("{} is no trace of {}", path.display(), a.plan.display()), e)
        })?;
        match trace.source {
            TraceSource::Predicted => simulated.trace = trace,
            TraceSource::Measured => measured = Some(trace),
        }
    }
    let html = meshwright::report(
        &plan,
        Some(&program),
        Some(&simulated),
        measured.as_ref(),
        None,
        &output::typed(),
    );
    files::write(&a.output, &html)?;
    let path = a.output.display().to_string();
    if a.json {
        output::json(&View { path });
    } else {
        output::say(&format!("  report: {path}\n"));
    }
    Ok(Answer::Yes)
}
