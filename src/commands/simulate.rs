//! `simulate`: one step of a plan or a program in the event simulator.

use super::{Answer, output, step_views};
use clap::{Args, ValueEnum};
use meshwright::{Failure, files};
use std::path::PathBuf;
use std::time::Instant;

#[derive(Args)]
#[command(allow_negative_numbers = true)]
pub(crate) struct Arguments {
    /// Plan (JSON) or program (text).
    input: PathBuf,
    /// How links are modelled.
    #[arg(long, value_enum, default_value = "analytic")]
    network: Network,
    /// Write the predicted trace here (opens in Perfetto): of one rank of each stage where there are many, of every rank
    /// with --unfold.
    #[arg(long)]
    trace: Option<PathBuf>,
    /// Simulate every rank, also where one of each stage stands for all.
    #[arg(long)]
    unfold: bool,
    /// For a program: the cluster it runs on.
    #[arg(long)]
    cluster: Option<String>,
    /// For a program: nodes of that cluster.
    #[arg(long)]
    nodes: Option<u32>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    /// No progress.
    #[arg(short, long)]
    quiet: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Network {
    /// Each transfer alone, by latency and bandwidth.
    Analytic,
    /// Transfers share links (not built yet).
    Flow,
}

pub(crate) fn command(a: Arguments) -> Result<Answer, Failure> {
    if matches!(a.network, Network::Flow) {
        return Err(Failure::new(
            "--network flow is not built yet",
            "leave it out, or write --network analytic",
        ));
    }
    let file = a.input.display().to_string();
    let text = files::read(&a.input)?;
    files::check_outputs(&[&a.input], &[a.trace.as_ref()])?;
    let (plan, program, cluster) = if files::is_program(&text) {
        let program = files::program_from(&file, &text)?;
        let source = a.cluster.as_deref().ok_or_else(|| {
            Failure::new(
                format!("{file} is a program, which names no cluster"),
                "pass --cluster (and --nodes), or give a plan instead",
            )
        })?;
        let ranks = (source == "localhost").then(|| program.mesh.ranks());
        let cluster = super::cluster::named(source, a.nodes, ranks, a.quiet)?;
        (None, program, cluster)
    } else {
        if a.cluster.is_some() || a.nodes.is_some() {
            return Err(Failure::new(
                format!("{file} is a plan, which embeds its cluster"),
                "leave out --cluster and --nodes, or plan anew for the other cluster",
            ));
        }
        let plan = files::plan_from(&file, &text)?;
        let program = meshwright::lower(&plan).map_err(|e| Failure::in_file(&file, e))?;
        let cluster = plan.job.cluster.clone();
        (Some(plan), program, cluster)
    };
    if program.mesh.ranks() > cluster.ranks() {
        let message = format!(
            "{file} needs {} ranks and {} holds {}",
            program.mesh.ranks(),
            cluster.name,
            cluster.ranks()
        );
        return Err(Failure::new(message, "use more nodes"));
    }
    let began = Instant::now();
    let simulated = meshwright::simulate(&program, &cluster, a.unfold)?;
    let took = began.elapsed().as_secs_f64();
    if let Some(path) = &a.trace {
        files::write_trace(path, &program, &simulated.trace)?;
        output::note(a.quiet, &format!("written: {}", path.display()));
    }
    if a.json {
        output::json(&step_views::simulate_view(&program, plan.as_ref(), &cluster, &simulated, took));
    } else {
        output::say(&step_views::simulate_text(&program, &cluster, &simulated));
    }
    Ok(Answer::Yes)
}
