//! A job file, the overrides of the command line, and the resolved [`Job`]: every file read, every default filled in.
//! The same job file, base folder and host profile resolve to the same job on every machine.

use crate::clusters::{self, LOCALHOST, apply_constants, cluster};
use crate::source::{JOB, locate, named, read};
use crate::toml_text::parse;
use crate::{ZooError, localhost, model};
use meshwright_ir::{
    Cluster, DType, DeviceKind, HostProfile, Job, JobCluster, JobFile, JobModel, JobRun, JobSearch,
    JobTraining, Pin, Precision, Run, Search, Source, Training,
};
use std::path::Path;

/// Peak learning rate where the job names none: that of small GPT-class models (Brown et al. 2020, table 2.1, 125 M).
const LEARNING_RATE: f64 = 6e-4;
/// Steps of linear warm-up where the job names none: a tenth of the default run, enough for AdamW's second moment to
/// settle at its usual decay. A guess.
const WARMUP: u64 = 10;
/// Decoupled weight decay and gradient norm where the job names none (Brown et al. 2020, appendix B).
const WEIGHT_DECAY: f64 = 0.1;
const CLIP: f64 = 1.0;
/// Steps of a run, and plans simulated and listed, where the job names none.
const STEPS: u64 = 100;
const TOP: u32 = 5;
/// Most ranks on this machine where the job names none: enough for every axis of a mesh, few enough to plan at once.
const LOCAL_RANKS: u32 = 8;
/// Most ranks that may share this machine: each is several threads.
const MOST_LOCAL_RANKS: u32 = 1024;

/// Reads the job file at `path`; `name` is how its user calls it. Paths in it are left as they stand: hand the file's
/// folder to [`resolve`].
pub fn job_file(path: &Path, name: &str) -> Result<JobFile, ZooError> {
    job_from_toml(name, &read(path, name, JOB)?)
}

/// The job that `text`, the content of `file`, asks for.
pub fn job_from_toml(file: &str, text: &str) -> Result<JobFile, ZooError> {
    parse(file, text)
}

/// `base` with every key that `over` sets: flags over a file.
pub fn merge(base: JobFile, over: JobFile) -> JobFile {
    let (b, o) = (base, over);
    JobFile {
        model: JobModel { source: o.model.source.or(b.model.source) },
        cluster: JobCluster {
            source: o.cluster.source.or(b.cluster.source),
            nodes: o.cluster.nodes.or(b.cluster.nodes),
            constants: o.cluster.constants.or(b.cluster.constants),
        },
        training: JobTraining {
            sequence: o.training.sequence.or(b.training.sequence),
            global_batch: o.training.global_batch.or(b.training.global_batch),
            precision: o.training.precision.or(b.training.precision),
            optimizer: o.training.optimizer.or(b.training.optimizer),
            learning_rate: o.training.learning_rate.or(b.training.learning_rate),
            warmup: o.training.warmup.or(b.training.warmup),
            weight_decay: o.training.weight_decay.or(b.training.weight_decay),
            clip: o.training.clip.or(b.training.clip),
            seed: o.training.seed.or(b.training.seed),
        },
        search: JobSearch {
            objective: o.search.objective.or(b.search.objective),
            pin: o.search.pin.or(b.search.pin),
            target: o.search.target.or(b.search.target),
            ranks: o.search.ranks.or(b.search.ranks),
            top: o.search.top.or(b.search.top),
            work_limit: o.search.work_limit.or(b.search.work_limit),
        },
        run: JobRun {
            data: o.run.data.or(b.run.data),
            steps: o.run.steps.or(b.run.steps),
            backend: o.run.backend.or(b.run.backend),
        },
    }
}

/// Fills in everything. Relative paths start at `base_dir` (the job file's folder; empty for the working directory).
/// `host` measures this machine, and is called only when the cluster is `localhost`, with the ranks that will share it
/// if the job says how many. Errors name the file `job`; [`ZooError::in_file`] puts the job file's own name there.
pub fn resolve(
    job: JobFile,
    base_dir: &Path,
    host: impl FnOnce(Option<u32>) -> Result<HostProfile, ZooError>,
) -> Result<Job, ZooError> {
    let required = |source: Option<String>, key: &str, flag: &str, example: &str| {
        source.filter(|s| !s.is_empty()).ok_or_else(|| missing(key, flag, example))
    };
    let model_name = required(job.model.source, "model.source", "--model", "\"gpt-nano\"")?;
    let cluster_name = required(job.cluster.source.clone(), "cluster.source", "--cluster", "\"localhost\"")?;
    let sequence = job.training.sequence.ok_or_else(|| missing("training.sequence", "--sequence", "1024"))?;
    let global_batch =
        job.training.global_batch.ok_or_else(|| missing("training.global_batch", "--global-batch", "64"))?;
    let run = run(job.run, base_dir)?;
    target(job.search.target.as_deref())?;
    let pins = Pin::parse_list(job.search.pin.as_deref().unwrap_or_default());
    let pins = pins.map_err(|e| ZooError::invalid("job", e))?;
    let (model, model_source) = model(&model_name, base_dir)?;
    if let Some(tower) = model.towers.first() {
        let found =
            format!("{} has a tower (`{}`), which is counted but not yet planned", model.name, tower.name);
        return Err(ZooError::new(
            "job",
            "model.source",
            found,
            "name a decoder without an encoder or images",
        ));
    }
    let (cluster, cluster_source) =
        resolve_cluster(&cluster_name, &job.cluster, job.search.ranks, base_dir, host)?;
    let search = Search {
        objective: job.search.objective.unwrap_or_default(),
        pins,
        ranks: job.search.ranks.unwrap_or(cluster.ranks()),
        top: at_least_one("search.top", job.search.top, TOP)?,
        work_limit: job.search.work_limit.unwrap_or(0),
    };
    let training = Training {
        sequence,
        global_batch,
        precision: precision(job.training.precision, &cluster)?,
        optimizer: job.training.optimizer.unwrap_or_default(),
        learning_rate: job.training.learning_rate.unwrap_or(LEARNING_RATE),
        warmup: job.training.warmup.unwrap_or(WARMUP),
        weight_decay: job.training.weight_decay.unwrap_or(WEIGHT_DECAY),
        clip: job.training.clip.unwrap_or(CLIP),
        seed: job.training.seed.unwrap_or(0),
    };
    let job = Job { model_source, model, cluster_source, cluster, training, search, run };
    job.check().map_err(|e| ZooError::invalid("job", e))?;
    Ok(job)
}

fn missing(key: &str, flag: &str, example: &str) -> ZooError {
    let (table, name) = key.split_once('.').unwrap_or(("", key));
    ZooError::new(
        "job",
        key,
        "missing",
        format!("write `{name} = {example}` under [{table}], or pass {flag}"),
    )
}

fn at_least_one<T: From<u8> + PartialOrd + Copy>(
    key: &str,
    given: Option<T>,
    default: T,
) -> Result<T, ZooError> {
    match given {
        Some(n) if n < T::from(1) => Err(ZooError::new("job", key, "0", "write 1 or more")),
        Some(n) => Ok(n),
        None => Ok(default),
    }
}

fn run(run: JobRun, base_dir: &Path) -> Result<Run, ZooError> {
    let backend = run.backend.unwrap_or_else(|| "cpu".to_string());
    if !["cpu", "cuda"].contains(&backend.as_str()) {
        return Err(ZooError::new("job", "run.backend", format!("`{backend}`"), "write cpu or cuda"));
    }
    let data =
        run.data.filter(|d| !d.is_empty()).map(|d| locate(&d, base_dir).to_string_lossy().into_owned());
    Ok(Run { data, steps: at_least_one("run.steps", run.steps, STEPS)?, backend })
}

/// The engines of the contract: planning for Meshwright's own executor is what is built.
fn target(target: Option<&str>) -> Result<(), ZooError> {
    let promised = ["megatron", "mindspeed", "torchtitan", "deepspeed", "nanotron", "accelerate"];
    match target {
        None | Some("any" | "meshwright") => Ok(()),
        Some(other) => {
            let built = if promised.contains(&other) { ", which is not built yet" } else { "" };
            Err(ZooError::new("job", "search.target", format!("`{other}`{built}"), "write any or meshwright"))
        }
    }
}

/// The cluster called `name` with the nodes and constants that a job asks for; `localhost` for `ranks` ranks, measured by
/// `host`. Relative paths start at `base_dir`. Errors of the request itself name the file `job`.
pub fn resolve_cluster(
    name: &str,
    asked: &JobCluster,
    ranks: Option<u32>,
    base_dir: &Path,
    host: impl FnOnce(Option<u32>) -> Result<HostProfile, ZooError>,
) -> Result<(Cluster, Source), ZooError> {
    let resolved = match name {
        LOCALHOST => this_machine(asked.nodes, ranks, host)?,
        _ => cluster(name, asked.nodes, base_dir)?.0,
    };
    let resolved = match &asked.constants {
        None => resolved,
        Some(file) => apply_constants(resolved, file, &clusters::constants(&locate(file, base_dir), file)?)?,
    };
    let source = named(name, &resolved);
    Ok((resolved, source))
}

fn this_machine(
    nodes: Option<u32>,
    ranks: Option<u32>,
    host: impl FnOnce(Option<u32>) -> Result<HostProfile, ZooError>,
) -> Result<Cluster, ZooError> {
    if let Some(nodes) = nodes.filter(|n| *n != 1) {
        let fix = "leave it out: localhost is this one machine";
        return Err(ZooError::new("job", "cluster.nodes", nodes.to_string(), fix));
    }
    if let Some(ranks) = ranks.filter(|r| !(1..=MOST_LOCAL_RANKS).contains(r)) {
        let fix = format!("share this machine among 1 to {MOST_LOCAL_RANKS} ranks");
        return Err(ZooError::new("job", "search.ranks", ranks.to_string(), fix));
    }
    let profile = host(ranks)?;
    // A power of two, so that the axes of a mesh have something to divide.
    let usual = 1 << profile.cores.clamp(1, LOCAL_RANKS).ilog2();
    let cluster = localhost(&profile, ranks.unwrap_or(usual));
    cluster.check().map_err(|e| ZooError::invalid(LOCALHOST, e))?;
    Ok(cluster)
}

/// bf16 where the device has it, unless the job says otherwise; a precision without a compute rate cannot be planned.
fn precision(asked: Option<Precision>, cluster: &Cluster) -> Result<Precision, ZooError> {
    let peak = &cluster.device.peak;
    let usual = if peak.contains_key(&DType::Bf16) { Precision::Bf16 } else { Precision::Fp32 };
    let precision = asked.unwrap_or(usual);
    // A CPU computes 16-bit tensors in fp32, at fp32's rate.
    let widens = cluster.device.kind == DeviceKind::Cpu;
    let has =
        |d: &DType| peak.contains_key(d) || (widens && d.width() == 2 && peak.contains_key(&DType::F32));
    let lacking = [precision.matmul(), precision.compute()].into_iter().find(|d| !has(d));
    match lacking {
        None => Ok(precision),
        Some(dtype) => {
            let whole = |p: &Precision| has(&p.matmul()) && has(&p.compute());
            let all = [Precision::Fp32, Precision::Fp16, Precision::Bf16, Precision::Fp8];
            let known: Vec<_> = all.iter().filter(|p| whole(p)).map(Precision::to_string).collect();
            let found = format!("{precision}, but {} gives no {dtype} rate", cluster.name);
            let fix = format!("use {}, or add device.peak.{dtype}", known.join(" or "));
            Err(ZooError::new("job", "training.precision", found, fix))
        }
    }
}
