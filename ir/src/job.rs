//! A job is what is asked: model, cluster, training, search limits. [`JobFile`] is how its user writes it; [`Job`] is the
//! same with every file read and every default filled in, so that a plan that embeds it needs nothing beside it.

use crate::{Cluster, Invalid, Model, Pin, Precision};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// `[model]` of a job file.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobModel {
    /// Preset name, or path of a `config.json` or model TOML.
    pub source: Option<String>,
}

/// `[cluster]` of a job file.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobCluster {
    /// Preset name, or path of a cluster TOML.
    pub source: Option<String>,
    /// Nodes to use.
    pub nodes: Option<u32>,
    /// Calibrated constants (TOML) that override the cluster's.
    pub constants: Option<String>,
}

/// `[training]` of a job file.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobTraining {
    /// Tokens per sample.
    pub sequence: Option<u64>,
    /// Samples per step.
    pub global_batch: Option<u64>,
    /// Precision recipe.
    pub precision: Option<Precision>,
    /// Optimizer.
    pub optimizer: Option<Optimizer>,
    /// Peak learning rate.
    pub learning_rate: Option<f64>,
    /// Steps of linear warm-up.
    pub warmup: Option<u64>,
    /// Decoupled weight decay.
    pub weight_decay: Option<f64>,
    /// Largest global gradient norm; 0 switches clipping off.
    pub clip: Option<f64>,
    /// Seed of parameters and data order.
    pub seed: Option<u64>,
}

/// `[search]` of a job file.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobSearch {
    /// What to minimise.
    pub objective: Option<Objective>,
    /// Pinned or bounded choices, `tp=8,pp<=4`.
    pub pin: Option<String>,
    /// Engine whose rules apply.
    pub target: Option<String>,
    /// Ranks to use.
    pub ranks: Option<u32>,
    /// How many plans to simulate and list.
    pub top: Option<u32>,
    /// Upper bound on search work, in its own units.
    pub work_limit: Option<u64>,
}

/// `[run]` of a job file.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobRun {
    /// Text file or folder of training data.
    pub data: Option<String>,
    /// Steps to train.
    pub steps: Option<u64>,
    /// Backend, `cpu` or `cuda`.
    pub backend: Option<String>,
}

/// A job as its user writes it. Every key has a command-line flag of the same name.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobFile {
    /// What is trained.
    #[serde(default)]
    pub model: JobModel,
    /// On what.
    #[serde(default)]
    pub cluster: JobCluster,
    /// How.
    #[serde(default)]
    pub training: JobTraining,
    /// What the search may choose.
    #[serde(default)]
    pub search: JobSearch,
    /// What a real run does.
    #[serde(default)]
    pub run: JobRun,
}

/// What the search minimises.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Objective {
    /// Step time.
    #[default]
    Time,
    /// Dollars per step.
    Cost,
    /// Joules per step.
    Energy,
    /// Peak memory.
    Memory,
}

/// The update rule.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Optimizer {
    /// AdamW (Loshchilov and Hutter 2019): two fp32 moments per parameter.
    #[default]
    Adamw,
    /// Plain stochastic gradient descent: no state.
    Sgd,
}

impl Optimizer {
    /// fp32 values of state per parameter, master weights not counted.
    pub fn states(self) -> u64 {
        match self {
            Optimizer::Adamw => 2,
            Optimizer::Sgd => 0,
        }
    }
}

impl fmt::Display for Optimizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Optimizer::Adamw => "adamw",
            Optimizer::Sgd => "sgd",
        })
    }
}
impl FromStr for Optimizer {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        match s {
            "adamw" => Ok(Optimizer::Adamw),
            "sgd" => Ok(Optimizer::Sgd),
            _ => Err(format!("`{s}` is no optimizer (adamw, sgd)")),
        }
    }
}

/// Where a noun came from, so that a plan can say so and repeat it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// As the user named it.
    pub name: String,
    /// FNV-1a of the resolved noun's canonical form, in hex.
    pub hash: String,
}

/// `training`, resolved.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Training {
    /// Tokens per sample.
    pub sequence: u64,
    /// Samples per step.
    pub global_batch: u64,
    /// Precision recipe.
    pub precision: Precision,
    /// Update rule.
    pub optimizer: Optimizer,
    /// Peak learning rate.
    pub learning_rate: f64,
    /// Steps of linear warm-up from zero.
    pub warmup: u64,
    /// Decoupled weight decay, on matrices.
    pub weight_decay: f64,
    /// Largest global gradient norm; 0 is off.
    pub clip: f64,
    /// Seed of parameters and data order.
    pub seed: u64,
}

/// `search`, resolved.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Search {
    /// What to minimise.
    pub objective: Objective,
    /// Pins.
    pub pins: Vec<Pin>,
    /// World size to plan for.
    pub ranks: u32,
    /// Plans to simulate and list.
    pub top: u32,
    /// Bound on search work; 0 is none.
    pub work_limit: u64,
}

/// `run`, resolved.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// Training data, if any was named.
    pub data: Option<String>,
    /// Steps to train.
    pub steps: u64,
    /// Backend.
    pub backend: String,
}

/// A resolved job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// Where the model came from.
    pub model_source: Source,
    /// The model.
    pub model: Model,
    /// Where the cluster came from.
    pub cluster_source: Source,
    /// The cluster.
    pub cluster: Cluster,
    /// Training.
    pub training: Training,
    /// Search.
    pub search: Search,
    /// Run.
    pub run: Run,
}

impl Job {
    /// Checks what no single part can: positions, world size, batch.
    pub fn check(&self) -> Result<(), Invalid> {
        self.model.check()?;
        self.cluster.check()?;
        let bad = |field: &str, found: String, fix: String| Err(Invalid::new(field, found, fix));
        let t = &self.training;
        if t.sequence == 0 || t.global_batch == 0 {
            return bad(
                "training",
                format!("sequence {} and global_batch {}", t.sequence, t.global_batch),
                "write 1 or more".into(),
            );
        }
        if let Some(max) = self.model.max_sequence.filter(|m| t.sequence > *m) {
            return bad(
                "training.sequence",
                t.sequence.to_string(),
                format!("{} has positions for {max} tokens: write at most that", self.model.name),
            );
        }
        if t.sequence > 1 << 24 || t.global_batch > 1 << 24 {
            return bad(
                "training",
                format!("sequence {} and global_batch {}", t.sequence, t.global_batch),
                "write at most 16,777,216 of each".into(),
            );
        }
        for (field, x) in
            [("learning_rate", t.learning_rate), ("weight_decay", t.weight_decay), ("clip", t.clip)]
        {
            if !x.is_finite() || x < 0.0 {
                return bad(
                    &format!("training.{field}"),
                    x.to_string(),
                    "write a finite number, 0 or more".into(),
                );
            }
        }
        if self.search.ranks == 0 {
            return bad("search.ranks", "0".into(), "use at least one rank".into());
        }
        if self.search.ranks > self.cluster.ranks() {
            return bad(
                "search.ranks",
                self.search.ranks.to_string(),
                format!("the cluster holds {}: add nodes or use fewer ranks", self.cluster.ranks()),
            );
        }
        Ok(())
    }
}
