//! `report`: one HTML file of a plan and any traces of it, and its JSON twin where that is asked for.

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
    /// Where the report goes: one HTML file that needs nothing beside it.
    #[arg(short, long)]
    output: PathBuf,
    /// Also write the report's figures to this file, as the JSON object that the page holds in `#twin`.
    #[arg(long, value_name = "FILE")]
    json_twin: Option<PathBuf>,
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
    /// Where the JSON twin went.
    twin: Option<String>,
}

pub(crate) fn command(a: Arguments) -> Result<Answer, Failure> {
    let plan = files::read_plan(&a.plan)?;
    let inputs: Vec<&Path> = std::iter::once(&a.plan).chain(&a.traces).map(PathBuf::as_path).collect();
    files::check_outputs(&inputs, &[Some(&a.output), a.json_twin.as_ref()])?;
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
    let documents = meshwright::report(
        &plan,
        Some(&program),
        Some(&simulated),
        measured.as_ref(),
        None,
        &output::typed(),
    );
    files::write(&a.output, &documents.html)?;
    if let Some(path) = &a.json_twin {
        files::write(path, &documents.twin)?;
    }
    let path = a.output.display().to_string();
    let twin = a.json_twin.as_ref().map(|p| p.display().to_string());
    if a.json {
        output::json(&View { path, twin });
    } else {
        output::say(&format!("  report: {path}\n"));
    }
    Ok(Answer::Yes)
}
