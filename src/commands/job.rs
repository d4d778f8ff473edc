//! The job's flags: every key of a job file has one of the same name that overrides it.

use super::output;
use clap::{Args, value_parser};
use meshwright::{Failure, host};
use meshwright_ir::{
    Job, JobCluster, JobFile, JobModel, JobRun, JobSearch, JobTraining, Objective, Optimizer, Plan, Precision,
};
use std::path::{Path, PathBuf};

#[derive(Args, Default)]
pub(crate) struct JobArguments {
    /// Job file (TOML).
    pub(crate) job: Option<PathBuf>,
    /// Model: a preset, a Hugging Face config.json, or a model TOML.
    #[arg(long)]
    model: Option<String>,
    /// Cluster: a preset, `localhost`, or a cluster TOML.
    #[arg(long)]
    cluster: Option<String>,
    /// Nodes of the cluster to use.
    #[arg(long)]
    nodes: Option<u32>,
    /// Calibrated constants (TOML).
    #[arg(long)]
    constants: Option<String>,
    /// Tokens per sample.
    #[arg(long)]
    sequence: Option<u64>,
    /// Samples per step.
    #[arg(long)]
    global_batch: Option<u64>,
    /// fp32, fp16, bf16 or fp8.
    #[arg(long, value_parser = precision)]
    precision: Option<Precision>,
    /// adamw or sgd.
    #[arg(long, value_parser = optimizer)]
    optimizer: Option<Optimizer>,
    /// Learning rate after warm-up.
    #[arg(long)]
    learning_rate: Option<f64>,
    /// Steps of linear warm-up.
    #[arg(long)]
    warmup: Option<u64>,
    /// Decoupled weight decay.
    #[arg(long)]
    weight_decay: Option<f64>,
    /// Largest global gradient norm; 0 switches clipping off.
    #[arg(long)]
    clip: Option<f64>,
    /// Seed of parameters and data order.
    #[arg(long)]
    seed: Option<u64>,
    /// time, cost, energy or memory.
    #[arg(long, value_parser = objective)]
    objective: Option<Objective>,
    /// Pinned or bounded choices, as in `tp=8,pp<=4,sp=true,microbatch=1,schedule=1f1b,zero=1,recompute=full`.
    #[arg(long)]
    pin: Option<String>,
    /// Engine whose rules apply.
    #[arg(long)]
    target: Option<String>,
    /// Ranks to use.
    #[arg(long)]
    ranks: Option<u32>,
    /// Plans to simulate and list.
    #[arg(long)]
    top: Option<u32>,
    /// Bound on search work, in block problems; 0 is none.
    #[arg(long)]
    work_limit: Option<u64>,
    /// Text file or folder of training data.
    #[arg(long)]
    data: Option<String>,
    /// Steps to train.
    #[arg(long, value_parser = value_parser!(u64).range(1..))]
    pub(crate) steps: Option<u64>,
    /// cpu or cuda.
    #[arg(long)]
    backend: Option<String>,
    /// Measure this machine again.
    #[arg(long)]
    fresh: bool,
}

fn named<T: serde::de::DeserializeOwned>(word: &str, all: &str) -> Result<T, String> {
    serde_json::from_value(serde_json::Value::String(word.into())).map_err(|_| format!("write one of {all}"))
}
fn precision(word: &str) -> Result<Precision, String> {
    named(word, "fp32, fp16, bf16, fp8")
}
fn optimizer(word: &str) -> Result<Optimizer, String> {
    match word {
        "lars" | "lamb" => Err("not built yet: write adamw or sgd".into()),
        _ => named(word, "adamw, sgd"),
    }
}
fn objective(word: &str) -> Result<Objective, String> {
    named(word, "time, cost, energy, memory")
}

impl JobArguments {
    /// The files that the job is read from, so far as flags name them.
    pub(crate) fn inputs(&self) -> Vec<&Path> {
        let named = [&self.model, &self.cluster, &self.constants, &self.data];
        self.job.as_deref().into_iter().chain(named.into_iter().flatten().map(Path::new)).collect()
    }

    /// The resolved job, files read and this machine measured if the job is for it.
    pub(crate) fn resolve(&self, quiet: bool) -> Result<Job, Failure> {
        let (base, folder, name) = match &self.job {
            Some(path) => {
                let name = path.display().to_string();
                let base = meshwright_zoo::job_file(path, &name).map_err(Failure::from)?;
                (base, path.parent().unwrap_or(Path::new("")).to_path_buf(), name)
            }
            None => (JobFile::default(), PathBuf::new(), "command line".to_string()),
        };
        let merged = meshwright_zoo::merge(base, self.overrides());
        let host = |_: Option<u32>| Ok(host::profile(self.fresh, &|text| output::note(quiet, text)));
        let resolved = meshwright_zoo::resolve(merged, &folder, host);
        resolved.map_err(|e| Failure::from(if e.file == "job" { e.in_file(&name) } else { e }))
    }

    /// The flags as a job file. A path in a flag starts at the working directory, one in the file at the file's folder.
    fn overrides(&self) -> JobFile {
        let located = |word: &Option<String>| {
            word.as_ref().map(|w| match self.job.is_some() && Path::new(w).exists() {
                true => std::path::absolute(w).map_or(w.clone(), |p| p.display().to_string()),
                false => w.clone(),
            })
        };
        JobFile {
            model: JobModel { source: located(&self.model) },
            cluster: JobCluster {
                source: located(&self.cluster),
                nodes: self.nodes,
                constants: located(&self.constants),
            },
            training: JobTraining {
                sequence: self.sequence,
                global_batch: self.global_batch,
                precision: self.precision,
                optimizer: self.optimizer,
                learning_rate: self.learning_rate,
                warmup: self.warmup,
                weight_decay: self.weight_decay,
                clip: self.clip,
                seed: self.seed,
            },
            search: JobSearch {
                objective: self.objective,
                pin: self.pin.clone(),
                target: self.target.clone(),
                ranks: self.ranks,
                top: self.top,
                work_limit: self.work_limit,
            },
            run: JobRun { data: located(&self.data), steps: self.steps, backend: self.backend.clone() },
        }
    }

    /// Overrides what a finished plan still lets a run choose; refuses flags that would need planning again.
    pub(crate) fn override_run(&self, plan: &mut Plan) -> Result<(), Failure> {
        let mut rest = self.overrides();
        let run = std::mem::take(&mut rest.run);
        if rest != JobFile::default() {
            return Err(Failure::new(
                "a plan embeds its job: only --data, --steps and --backend can be changed",
                "plan again with the other flags",
            ));
        }
        let target = &mut plan.job.run;
        target.data = run.data.or(target.data.take());
        target.steps = run.steps.unwrap_or(target.steps);
        target.backend = run.backend.unwrap_or(std::mem::take(&mut target.backend));
        Ok(())
    }
}
