//! `run`: train for real, from a plan or straight from a job.

use super::job::JobArguments;
use super::{Answer, output, plan, progress, step_views, views};
use clap::{Args, ValueEnum};
use meshwright::{Failure, Ran, files};
use meshwright_ir::program::Checked;
use meshwright_ir::{Job, Plan, Precision};
use std::path::{Path, PathBuf};

#[derive(Args)]
#[command(allow_negative_numbers = true)]
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
    files::check_outputs(&a.job.inputs(), &[a.trace.as_ref()])?;
    let Some(plan) = planned(&a)? else { return Ok(Answer::No) };
    let program = meshwright::lower(&plan)?;
    let ran = train(&plan, &program, a.quiet)?;
    if let (Some(path), Some(trace)) = (&a.trace, &ran.outcome.trace) {
        files::write_trace(path, &program, trace)?;
        output::note(a.quiet, &format!("written: {}", path.display()));
    }
    if a.json {
        output::json(&step_views::run_view(&plan, &program, &ran));
    } else {
        output::say(&step_views::run_text(&plan, &program, &ran));
    }
    Ok(Answer::Yes)
}

/// The plan in the file, or the plan of the job in the file; flags override what a run may change.
fn planned(a: &Arguments) -> Result<Option<Plan>, Failure> {
    let file = match &a.job.job {
        Some(path) => Some((path, files::read(path)?)),
        None => None,
    };
    // A plan is JSON; no TOML begins with a brace.
    let Some((path, text)) = file.filter(|(_, text)| text.trim_start().starts_with('{')) else {
        let job = a.job.resolve(a.quiet)?;
        ready(&job)?;
        return Ok(plan::search(&job, a.quiet, a.json)?.map(|(plan, _)| plan));
    };
    let mut plan = files::plan_from(&path.display().to_string(), &text)?;
    a.job.override_run(&mut plan)?;
    ready(&plan.job)?;
    Ok(Some(plan))
}

/// Refuses, before any work is done, what this machine cannot train.
pub(crate) fn ready(job: &Job) -> Result<(), Failure> {
    if job.run.backend != "cpu" {
        let message = format!("run.backend: `{}` is not built yet", job.run.backend);
        return Err(Failure::new(message, "write backend = \"cpu\", or pass --backend cpu"));
    }
    if job.training.precision == Precision::Fp8 {
        let message = "training.precision: the cpu backend runs fp32, bf16 and fp16, this is fp8";
        return Err(Failure::new(message, "plan with precision = \"bf16\", or pass --precision bf16"));
    }
    if job.run.data.is_none() {
        let fix = "write `data = \"a text file or folder\"` under [run], or pass --data";
        return Err(Failure::new("run.data: missing", fix));
    }
    Ok(())
}

/// Trains a plan on this machine.
pub(crate) fn train(plan: &Plan, program: &Checked, quiet: bool) -> Result<Ran, Failure> {
    let run = &plan.job.run;
    let data = run.data.as_deref().unwrap_or_default();
    let bar = progress::bar(run.steps, "training", quiet);
    let outcome = meshwright::run(plan, program, Path::new(data), run.steps, &|_, loss, seconds| {
        bar.set_message(format!("loss {loss:.3}, {}", views::seconds(seconds)));
        bar.inc(1);
    });
    bar.finish_and_clear();
    outcome
}
