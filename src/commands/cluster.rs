//! `cluster`: what a cluster is.

use super::{Answer, output, views};
use clap::Args;
use meshwright::{Failure, files, host};
use meshwright_ir::{Cluster, JobCluster, Time};
use meshwright_zoo::ZooError;
use serde::Serialize;
use std::path::{Path, PathBuf};

#[derive(Args)]
#[command(allow_negative_numbers = true)]
pub(crate) struct Arguments {
    /// A preset, `localhost`, or a cluster TOML.
    cluster: String,
    /// Nodes of it.
    #[arg(long)]
    nodes: Option<u32>,
    /// Ranks that share `localhost`.
    #[arg(long)]
    ranks: Option<u32>,
    /// Import from another tool's output (not built yet).
    #[arg(long, num_args = 2, value_names = ["KIND", "FILE"])]
    from: Option<Vec<String>>,
    /// Write it as TOML.
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
    devices: u32,
    nodes: u32,
    device: String,
    levels: Vec<LevelView>,
    warnings: Vec<String>,
}

#[derive(Serialize)]
struct LevelView {
    name: String,
    size: u32,
    /// Bytes per second.
    bandwidth: f64,
    /// Seconds.
    latency: f64,
}

/// A cluster by name; `localhost` is measured for `ranks` ranks.
pub(crate) fn named(
    source: &str,
    nodes: Option<u32>,
    ranks: Option<u32>,
    quiet: bool,
) -> Result<Cluster, Failure> {
    let asked = JobCluster { nodes, ..JobCluster::default() };
    let host = |_: Option<u32>| Ok(host::profile(false, &|t| output::note(quiet, t)));
    let found = meshwright_zoo::resolve_cluster(source, &asked, ranks, Path::new(""), host);
    let named = |e: ZooError| if e.file == "job" { e.in_file("command line") } else { e };
    found.map(|(cluster, _)| cluster).map_err(|e| Failure::from(named(e)))
}

pub(crate) fn command(a: Arguments) -> Result<Answer, Failure> {
    if let Some(from) = a.from {
        return Err(Failure::new(
            format!("cluster --from {} is not built yet", from[0]),
            "write the cluster as TOML; `meshwright cluster h100-sxm -o c.toml` gives a start",
        ));
    }
    if a.ranks.is_some() && a.cluster != "localhost" {
        return Err(Failure::new(
            format!("--ranks: only localhost is shared by ranks, {} is not", a.cluster),
            "leave it out",
        ));
    }
    files::check_outputs(&[Path::new(&a.cluster)], &[a.output.as_ref()])?;
    let cluster = named(&a.cluster, a.nodes, a.ranks, a.quiet)?;
    if let Some(path) = &a.output {
        let text = toml::to_string(&cluster)
            .map_err(|e| Failure::new(format!("{}: {e}", cluster.name), "report this as a bug"))?;
        files::write(path, &text)?;
        output::note(a.quiet, &format!("written: {}", path.display()));
    }
    let guesses = cluster.sources.iter().filter(|(_, s)| s.contains("guess"));
    let guesses: Vec<Vec<String>> = guesses.map(|(field, s)| vec![field.clone(), s.clone()]).collect();
    let warnings: Vec<String> = guesses.iter().map(|g| g.join(": ")).collect();
    let level = |l: &meshwright_ir::Level| LevelView {
        name: l.name.clone(),
        size: l.size,
        bandwidth: l.bandwidth.get(),
        latency: l.latency.seconds(),
    };
    if a.json {
        let levels = cluster.levels.iter().map(level).collect();
        output::json(&View {
            devices: cluster.devices(),
            nodes: cluster.nodes(),
            device: cluster.device.name.clone(),
            levels,
            warnings,
        });
        return Ok(Answer::Yes);
    }
    let d = &cluster.device;
    let peaks: Vec<String> = d.peak.iter().map(|(t, r)| format!("{r} {t}")).collect();
    let mut facts = vec![
        vec!["memory".into(), format!("{} a device, {} reserved by the runtime", d.memory, d.reserved)],
        vec![
            "devices".into(),
            format!(
                "{} x {} on {}",
                cluster.devices(),
                d.name,
                views::count(u64::from(cluster.nodes()), "node")
            ),
        ],
        vec!["compute".into(), peaks.join(", ")],
        vec!["memory bandwidth".into(), d.memory_bandwidth.to_string()],
        vec!["launch".into(), d.launch.to_string()],
    ];
    let mut rows = vec![["level", "size", "bandwidth", "latency"].map(String::from).to_vec()];
    rows.extend(cluster.levels.iter().map(|l| {
        vec![l.name.clone(), l.size.to_string(), l.bandwidth.to_string(), Time(l.latency.0).to_string()]
    }));
    if cluster.ranks_per_device > 1 {
        facts.push(vec!["ranks".into(), format!("{} share each device", cluster.ranks_per_device)]);
    }
    let mut text = format!("{}\n\n{}\n{}", cluster.name, output::pairs(&facts), output::table(&rows));
    if !guesses.is_empty() {
        text += &format!("\nnot measured:\n{}", output::pairs(&guesses));
    }
    output::say(&text);
    Ok(Answer::Yes)
}
