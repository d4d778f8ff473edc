//! `lower`: the program of a plan, as text.

use super::{Answer, output};
use clap::Args;
use meshwright::{Failure, files};
use meshwright_ir::Bytes;
use serde::Serialize;
use std::path::PathBuf;

#[derive(Args)]
pub(crate) struct Arguments {
    /// Plan file (JSON).
    plan: PathBuf,
    /// Write the program to this file; without it, to stdout.
    #[arg(short, long)]
    output: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    /// No progress.
    #[arg(short, long)]
    quiet: bool,
}

#[derive(Serialize)]
struct View {
    roles: usize,
    instructions: u64,
    planned_peak_bytes: Vec<Bytes>,
}

pub(crate) fn command(a: Arguments) -> Result<Answer, Failure> {
    let plan = files::read_plan(&a.plan)?;
    files::check_outputs(&[&a.plan], &[a.output.as_ref()])?;
    let program = meshwright::lower(&plan).map_err(|e| Failure::in_file(&a.plan.display().to_string(), e))?;
    if let Some(path) = &a.output {
        files::write(path, &program.to_string())?;
        output::note(a.quiet, &format!("written: {}", path.display()));
    }
    match (a.json, &a.output) {
        (true, _) => output::json(&View {
            roles: program.roles.len(),
            instructions: program.instructions(),
            planned_peak_bytes: program.planned_peaks(),
        }),
        (false, None) => output::say(&program.to_string()),
        (false, Some(_)) => {
            let mut rows =
                vec![["stage", "instructions", "buffers", "planned peak"].map(String::from).to_vec()];
            rows.extend(program.roles.iter().enumerate().map(|(k, r)| {
                vec![
                    k.to_string(),
                    r.instructions.len().to_string(),
                    r.buffers.len().to_string(),
                    r.arena.to_string(),
                ]
            }));
            output::say(&output::table(&rows));
        }
    }
    Ok(Answer::Yes)
}
