//! `run`: train for real, from a plan or straight from a job.

use super::job::JobArguments;
use super::{Answer, output, plan, progress, views};
use clap::{Args, ValueEnum};
use meshwright::{Failure, Ran, files};
use meshwright_ir::Plan;
use meshwright_ir::program::Checked;
use std::path::{Path, PathBuf};

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    job: JobArguments,
    /// How ranks talk.
    #[arg(long, value_enum, default_value = "threads")]
    comm: Comm,
    /// Write the measured trace here (opens in Perfetto).
    #[arg(long)]
    trace: Option<PathBuf>,
    /// Not built yet.
    #[arg(long, hide = true)]
    checkpoint: Option<PathBuf>,
    /// Not built yet.
    #[arg(long, hide = true)]
    resume: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    /// No progress.
    #[arg(short, long)]
    quiet: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Comm {
    /// Threads of this process.
    Threads,
    /// Processes over MPI (not built yet).
    Mpi,
    /// GPUs over NCCL (not built yet).
    Nccl,
}

pub(crate) fn command(a: Arguments) -> Result<Answer, Failure> {
    if a.checkpoint.is_some() || a.resume {
        return Err(Failure::new("--checkpoint and --resume are not built yet", "leave them out"));
    }
    match a.comm {
        Comm::Threads => {}
        Comm::Mpi => {
            return Err(Failure::new("--comm mpi is not built yet", "leave it out, or write --comm threads"));
        }
        Comm::Nccl => {
            return Err(Failure::new(
                "--comm nccl is not built yet",
                "leave it out, or write --comm threads",
            ));
        }
    }
    let Some(plan) = planned(&a)? else { return Ok(Answer::No) };
    let program = meshwright::lower(&plan)?;
    let ran = train(&plan, &program, a.quiet)?;
    if let (Some(path), Some(trace)) = (&a.trace, &ran.outcome.trace) {
        files::write(path, &files::trace_document(&program, trace))?;
        output::note(a.quiet, &format!("written: {}", path.display()));
    }
    if a.json {
        output::json(&views::run_view(&plan, &program, &ran));
    } else {
        output::say(&views::run_text(&plan, &program, &ran));
    }
    Ok(Answer::Yes)
}

/// The plan in the file, or the plan of the job in the file; flags override what a run may change.
fn planned(a: &Arguments) -> Result<Option<Plan>, Failure> {
    let path = a.job.job.as_ref().filter(|p| p.extension().is_some_and(|e| e == "json"));
    let Some(path) = path else {
        let job = a.job.resolve(a.quiet)?;
        return Ok(plan::search(&job, a.quiet, a.json)?.map(|(plan, _)| plan));
    };
    let mut plan = files::read_plan(path)?;
    a.job.override_run(&mut plan)?;
    Ok(Some(plan))
}

/// Trains a plan on this machine.
pub(crate) fn train(plan: &Plan, program: &Checked, quiet: bool) -> Result<Ran, Failure> {
    let run = &plan.job.run;
    if run.backend != "cpu" {
        return Err(Failure::new(
            format!("backend `{}` is not built yet", run.backend),
            "write backend = \"cpu\"",
        ));
    }
    if views::needs_fp32(plan) {
        let found = plan.job.training.precision;
        return Err(Failure::new(
            format!("training.precision: the cpu backend runs fp32, the plan is in {found}"),
            "plan with precision = \"fp32\"",
        ));
    }
    let data = run.data.as_deref().ok_or_else(|| {
        Failure::new(
            "run.data: missing",
            "write `data = \"a text file or folder\"` under [run], or pass --data",
        )
    })?;
    let bar = progress::bar(run.steps, "training", quiet);
    let outcome = meshwright::run(plan, program, Path::new(data), run.steps, &|_, loss, seconds| {
        bar.set_message(format!("loss {loss:.3}, {}", views::seconds(seconds)));
        bar.inc(1);
    });
    bar.finish_and_clear();
    outcome
}
