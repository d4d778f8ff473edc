//! One file per subcommand. A command turns flags into values, calls the façade, and prints either tables or, with
//! `--json`, exactly one object on stdout. Progress and messages go to stderr.

mod auto;
mod cluster;
mod job;
mod lower;
mod model;
mod output;
mod plan;
mod progress;
mod report;
mod run;
mod shard;
mod simulate;
mod step_views;
mod validate;
mod views;
mod whatif;

use clap::{Parser, Subcommand};
use meshwright::Failure;
use std::process::ExitCode;

/// Plans, simulates and runs distributed deep-learning training.
#[derive(Parser)]
#[command(name = "meshwright", version, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Plan, simulate, run and report a job in one go: the quick start.
    Auto(auto::Arguments),
    /// Find the fastest plan that fits.
    Plan(plan::Arguments),
    /// Write the program of a plan as text.
    Lower(lower::Arguments),
    /// Simulate one step of a plan or program.
    Simulate(simulate::Arguments),
    /// Train for real.
    Run(run::Arguments),
    /// Write an HTML report of a plan and its traces.
    Report(report::Arguments),
    /// Say what a model is.
    Model(model::Arguments),
    /// Say what a cluster is.
    Cluster(cluster::Arguments),
    /// Say what a plan would do if something were otherwise.
    Whatif(whatif::Arguments),
    /// Predict measured runs and say how near.
    Validate(validate::Arguments),
    /// Solve an iopddl sharding problem.
    Shard(shard::Arguments),
    /// Not built yet.
    #[command(hide = true)]
    Profile(NotBuilt),
    /// Not built yet.
    #[command(hide = true)]
    Check(NotBuilt),
    /// Not built yet.
    #[command(hide = true)]
    Export(NotBuilt),
}

/// Whatever a command that does not exist yet was given.
#[derive(clap::Args)]
struct NotBuilt {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<String>,
}

/// What a command answered.
pub(crate) enum Answer {
    /// Done.
    Yes,
    /// The answer is no.
    No,
}

pub(crate) fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(e) => return usage(&e),
    };
    let answer = match arguments.command {
        Command::Auto(a) => auto::command(a),
        Command::Plan(a) => plan::command(a),
        Command::Lower(a) => lower::command(a),
        Command::Simulate(a) => simulate::command(a),
        Command::Run(a) => run::command(a),
        Command::Report(a) => report::command(a),
        Command::Model(a) => model::command(a),
        Command::Cluster(a) => cluster::command(a),
        Command::Whatif(a) => whatif::command(a),
        Command::Profile(a) => not_built("profile", &a),
        Command::Check(a) => not_built("check", &a),
        Command::Export(a) => not_built("export", &a),
        Command::Validate(a) => validate::command(a),
        Command::Shard(a) => shard::command(a),
    };
    match answer {
        Ok(Answer::Yes) => ExitCode::SUCCESS,
        Ok(Answer::No) => ExitCode::from(1),
        Err(failure) => {
            output::failure(failure);
            ExitCode::from(2)
        }
    }
}

/// Help and version are answers; the rest is bad usage.
fn usage(e: &clap::Error) -> ExitCode {
    let text = e.render().to_string();
    if !e.use_stderr() {
        let _ = e.print();
        return ExitCode::SUCCESS;
    }
    let text = text.trim_end();
    match text.strip_prefix("error: ").map(|t| t.split_once("\n\n").unwrap_or((t, ""))) {
        Some((message, fix)) => output::failure(Failure::new(message, fix.trim())),
        // No subcommand: the help says more than any message.
        None => output::note(false, text),
    }
    ExitCode::from(2)
}

fn not_built(command: &str, arguments: &NotBuilt) -> Result<Answer, Failure> {
    let given = if arguments.rest.is_empty() {
        String::new()
    } else {
        format!(" (given: {})", arguments.rest.join(" "))
    };
    Err(Failure::new(
        format!("`meshwright {command}` is not built yet{given}"),
        "see `meshwright --help` for what is",
    ))
}
