//! A plan: every choice for one job. Strategies say which index of each op a mesh axis cuts; conversions say how tensors
//! pass between the layouts that follow; the rest is stages, schedule and algorithms. Lowering replays it and chooses
//! nothing. A plan embeds its job, so a plan file alone can be simulated, changed and run.

use crate::{Axis, AxisSet, Bytes, Gathering, Invalid, Job, Layout, Mesh, Storage};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// For one op: the index that each mesh axis cuts (a position in [`crate::Op::indices`]); an axis that is absent cuts none.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Strategy(pub BTreeMap<Axis, u8>);

impl Strategy {
    /// Axes that cut index `k`, major first.
    pub fn axes_on(&self, k: u8) -> Vec<Axis> {
        self.0.iter().filter(|(_, i)| **i == k).map(|(a, _)| *a).collect()
    }
    /// The index that `axis` cuts.
    pub fn index(&self, axis: Axis) -> Option<u8> {
        self.0.get(&axis).copied()
    }
    /// `dp:b tp:o`, or `-`.
    pub fn describe(&self, indices: &[&str]) -> String {
        let parts: Vec<_> = self.0.iter().map(|(a, k)| format!("{a}:{}", indices[*k as usize])).collect();
        if parts.is_empty() { "-".into() } else { parts.join(" ") }
    }
}

/// One step of a conversion; the bytes each moves follow from the layout it starts from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// Shard(dim) → Replicate on the dim's minor-most axis.
    AllGather {
        /// Along which axis.
        axis: Axis,
        /// Which dim becomes whole.
        dim: u8,
    },
    /// Partial → Replicate.
    AllReduce {
        /// Along which axis.
        axis: Axis,
    },
    /// Partial → Shard(dim).
    ReduceScatter {
        /// Along which axis.
        axis: Axis,
        /// Which dim is cut.
        dim: u8,
    },
    /// Shard(from) → Shard(to).
    AllToAll {
        /// Along which axis.
        axis: Axis,
        /// Which dim becomes whole.
        from: u8,
        /// Which dim is cut.
        to: u8,
    },
    /// Replicate → Shard(dim): keep the own piece.
    Slice {
        /// Along which axis.
        axis: Axis,
        /// Which dim is cut.
        dim: u8,
    },
}

/// A layout of a value that some consumers want, and how to make it from the produced one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Copy {
    /// The layout made.
    pub layout: Layout,
    /// Steps from the produced layout; empty when it is the produced layout.
    pub steps: Vec<Step>,
}

/// Gradients that arrive in one layout are summed, then take these steps to the layout the producer needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GradientPath {
    /// The layout they arrive in.
    pub layout: Layout,
    /// Steps to [`ValuePlan::gradient`].
    pub steps: Vec<Step>,
}

/// Which copy an operand reads, and which gradient path its gradient takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Use {
    /// Consumer: node position and operand; the block's own output is `(nodes.len(), 0)`.
    pub node: u32,
    /// Operand of that node.
    pub operand: u32,
    /// Index into [`ValuePlan::copies`].
    pub copy: u32,
    /// Index into [`ValuePlan::gradients`].
    pub gradient: u32,
}

/// Conversions of one value (the block input, or a node's output): each needed layout is made once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ValuePlan {
    /// Layout as produced.
    pub produced: Layout,
    /// Layout its gradient must have.
    pub gradient: Layout,
    /// Layouts made of it.
    pub copies: Vec<Copy>,
    /// Paths of its gradients.
    pub gradients: Vec<GradientPath>,
    /// Who reads what, in node order.
    pub uses: Vec<Use>,
}

/// Choices for one block class.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClassPlan {
    /// One strategy per node.
    pub strategies: Vec<Strategy>,
    /// The block input's conversions, if it has one.
    pub input: Option<ValuePlan>,
    /// Each node's output's conversions.
    pub outputs: Vec<ValuePlan>,
    /// How each parameter is stored, in node order.
    pub storage: Vec<Storage>,
}

/// A pipeline stage: a run of blocks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StagePlan {
    /// First block.
    pub first: u32,
    /// Number of blocks.
    pub blocks: u32,
}

macro_rules! word_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum $name { $($(#[$vdoc])* #[serde(rename = $text)] $variant),* }
        impl $name {
            /// Every variant, in declaration order.
            pub const ALL: &'static [$name] = &[$($name::$variant),*];
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { f.pad(match self { $($name::$variant => $text),* }) }
        }
        impl FromStr for $name {
            type Err = String;
            fn from_str(s: &str) -> Result<Self, String> {
                match s { $($text => Ok($name::$variant),)* _ => Err(format!("`{s}` is none of {}", [$($text),*].join(", "))) }
            }
        }
    };
}

word_enum!(
    /// Order of micro-batches through the pipeline.
    Schedule {
        /// All forwards, then all backwards (Huang et al. 2019).
        Gpipe = "gpipe",
        /// One forward, one backward after warm-up (Narayanan et al. 2021).
        OneForwardOneBackward = "1f1b",
    }
);
word_enum!(
    /// What backward recomputes instead of keeping.
    Recompute {
        /// Nothing: every tensor that backward needs is kept.
        None = "none",
        /// Conversions: what an all_gather makes, such as the whole input of a column-parallel product under sequence
        /// parallelism. Its pieces are kept, as Megatron-LM does without any flag.
        Gathers = "gathers",
        /// Those, and the attention core.
        Selective = "selective",
        /// Everything but the block's input.
        Full = "full",
    }
);
word_enum!(
    /// Which training state is split among data-parallel replicas (Rajbhandari et al. 2020): for a person and for pins, the
    /// most that any parameter's [`Storage`] splits.
    StateSharding {
        /// None: every replica holds all of it.
        None = "none",
        /// Optimizer state and master weights: ZeRO stage 1.
        Zero1 = "zero-1",
        /// Gradients too: ZeRO stage 2.
        Zero2 = "zero-2",
        /// Weights too, over the axis `fsdp`: ZeRO stage 3, FSDP.
        Zero3 = "zero-3",
    }
);
word_enum!(
    /// How a collective moves its chunks.
    Algorithm {
        /// Around a ring: bandwidth-optimal (Patarasuk and Yuan 2009).
        Ring = "ring",
        /// Up and down a binary tree: latency-optimal.
        Tree = "tree",
        /// Each rank reads its chunk from every peer: shared memory.
        Direct = "direct",
    }
);

impl Recompute {
    /// What a list of blocks recomputes, for a person: `none`, or `full in 12 of 34 blocks`.
    pub fn summary(levels: &[Self]) -> String {
        let of = |level: Self| levels.iter().filter(|l| **l == level).count();
        let part = |level| format!("{level} in {} of {} blocks", of(level), levels.len());
        let used = Self::ALL.iter().copied().filter(|l| *l != Self::None && of(*l) > 0);
        let parts: Vec<String> = used.map(part).collect();
        if parts.is_empty() { "none".into() } else { parts.join(", ") }
    }
}

/// What the models say of a plan. Times in seconds, sizes in bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prediction {
    /// Simulated step time; the planner's closed form until the plan has been simulated.
    pub step_time_s: f64,
    /// Band that the step time should fall in.
    pub step_time_band_s: (f64, f64),
    /// What the band rests on.
    pub basis: String,
    /// The planner's closed form.
    pub closed_form_s: f64,
    /// Peak of one rank of each stage, runtime reserve included.
    pub peak_memory_bytes: Vec<Bytes>,
    /// What a rank may use.
    pub memory_limit_bytes: Bytes,
    /// No plan of the searched space is faster in simulation.
    pub lower_bound_s: f64,
}

/// A plan for one job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Version of this document: 1.
    pub version: u32,
    /// The resolved job.
    pub job: Job,
    /// Degrees.
    pub mesh: Mesh,
    /// Sequences per micro-batch and replica.
    pub micro_batch: u64,
    /// Micro-batches per step and replica.
    pub micro_batches: u64,
    /// Pipeline schedule.
    pub schedule: Schedule,
    /// Stages in order; they cover the chain.
    pub stages: Vec<StagePlan>,
    /// Layout of the tensor between blocks.
    pub boundary: Layout,
    /// Choices per block class, in the model's order.
    pub classes: Vec<ClassPlan>,
    /// What backward recomputes, per block of the chain.
    pub recompute: Vec<Recompute>,
    /// Which state replicas split, in a word.
    pub state_sharding: StateSharding,
    /// When split weights are gathered.
    pub gathering: Gathering,
    /// Gradients that are summed at the end of the step, over the same axes and stored alike, share a collective until it
    /// holds this many bytes; 0 for one per block.
    pub bucket: Bytes,
    /// Algorithm of collectives on each axis with more than one rank.
    pub algorithms: BTreeMap<Axis, Algorithm>,
    /// Predictions.
    pub prediction: Prediction,
    /// The runners-up and what was rejected.
    pub search: SearchReport,
    /// Why this one won, for a person.
    pub why: Vec<String>,
}

/// A runner-up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Alternative {
    /// Its degrees.
    pub mesh: Mesh,
    /// Whether its norms are sequence-parallel.
    pub sequence_parallel: bool,
    /// Sequences per micro-batch and replica.
    pub micro_batch: u64,
    /// Schedule.
    pub schedule: Schedule,
    /// Which state replicas split.
    pub state_sharding: StateSharding,
    /// Simulated step time.
    pub step_time_s: f64,
    /// Largest peak over stages.
    pub peak_memory_bytes: Bytes,
}

/// One point of the search space and what became of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Candidate {
    /// Degrees.
    pub mesh: Mesh,
    /// Sequences per micro-batch and replica.
    pub micro_batch: u64,
    /// Schedule.
    pub schedule: Schedule,
    /// Which state replicas split.
    pub state_sharding: StateSharding,
    /// Whether its norms are sequence-parallel.
    #[serde(default)]
    pub sequence_parallel: bool,
    /// Closed-form step time where it was solved.
    pub closed_form_s: Option<f64>,
    /// Closed-form peak where it was solved.
    pub peak_memory_bytes: Option<Bytes>,
    /// Least simulated step time, where it was bounded but not solved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound_s: Option<f64>,
    /// What parameters and their states alone take of a rank, runtime reserve included, where it was not solved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub states_bytes: Option<Bytes>,
    /// Why it was rejected; absent when it was feasible.
    pub rejected: Option<String>,
}

/// What the search did.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SearchReport {
    /// Points enumerated.
    pub candidates: u64,
    /// Points cut by a bound or a rule.
    pub pruned: u64,
    /// Block problems solved.
    pub solved: u64,
    /// Plans simulated.
    pub simulated: u64,
    /// Objective of the block problem minus its certified bound, in seconds per micro-batch.
    pub surrogate_gap_s: f64,
    /// The runners-up, best first.
    pub alternatives: Vec<Alternative>,
    /// Every point with its fate, in enumeration order.
    pub points: Vec<Candidate>,
}

impl Plan {
    /// Tokens per step.
    pub fn tokens(&self) -> u64 {
        self.job.training.sequence * self.job.training.global_batch
    }
    /// What backward recomputes, for a person: `none`, or `full in 12 of 34 blocks`.
    pub fn recompute_summary(&self) -> String {
        Recompute::summary(&self.recompute)
    }
    /// Whether any norm is cut along the sequence by the tensor axis.
    pub fn sequence_parallel(&self) -> bool {
        self.boundary.dim_of(Axis::Tp) == Some(1)
    }
    /// Checks what lowering relies on: shape of the lists, stages that cover the chain, degrees against the job.
    pub fn check(&self) -> Result<(), Invalid> {
        let bad = |field: &str, found: String, fix: &str| Err(Invalid::new(field, found, fix));
        if self.version != 1 {
            return bad(
                "plan.version",
                self.version.to_string(),
                "plan again with this version, which reads version 1",
            );
        }
        self.job.check()?;
        if self.mesh.ranks() > self.job.cluster.ranks() {
            return bad("plan.mesh", self.mesh.to_string(), "the cluster holds fewer ranks: plan again");
        }
        let replicas = u64::from(self.mesh.replicas());
        let batch = replicas.checked_mul(self.micro_batch).and_then(|b| b.checked_mul(self.micro_batches));
        if batch != Some(self.job.training.global_batch) {
            return bad(
                "plan.micro_batches",
                format!("{replicas} x {} x {}", self.micro_batch, self.micro_batches),
                "dp x fsdp x micro_batch x micro_batches must be the global batch",
            );
        }
        let blocks = self.job.model.blocks().len() as u32;
        let covered = self
            .stages
            .iter()
            .try_fold(0u32, |next, s| next.checked_add(s.blocks).filter(|_| s.first == next && s.blocks > 0));
        if covered != Some(blocks) || self.stages.len() as u32 != self.mesh.degree(Axis::Pp) {
            return bad(
                "plan.stages",
                format!("{} stages", self.stages.len()),
                "list one run of blocks per pipeline stage, covering the chain in order",
            );
        }
        if self.recompute.len() != blocks as usize {
            let fix = "give one level for each block of the chain";
            return bad("plan.recompute", format!("{} levels", self.recompute.len()), fix);
        }
        if self.mesh.degree(Axis::Cp) > 1 {
            let fix = "use dp, fsdp, tp and pp: the axis cp is not built yet";
            return bad("plan.mesh", self.mesh.to_string(), fix);
        }
        if self.classes.len() != self.job.model.classes.len() {
            return bad(
                "plan.classes",
                self.classes.len().to_string(),
                "give choices for each block class of the model",
            );
        }
        for (plan, class) in self.classes.iter().zip(&self.job.model.classes) {
            if plan.strategies.len() != class.nodes.len()
                || plan.outputs.len() != class.nodes.len()
                || plan.input.is_some() != class.has_input()
            {
                return bad(
                    &format!("plan.classes.{}", class.name),
                    "lists of the wrong length".into(),
                    "give one strategy and one output per node, and an input where the block has one",
                );
            }
            for (strategy, node) in plan.strategies.iter().zip(&class.nodes) {
                if strategy.0.values().any(|k| *k as usize >= node.op.indices().len()) {
                    return bad(
                        &format!("plan.classes.{}.{}", class.name, node.name),
                        "an index the op does not have".into(),
                        "cut one of the op's indices",
                    );
                }
            }
        }
        self.check_storage()
    }

    /// Every parameter is stored in one of the ways that [`Storage`] lists, and the coarse word says the most of them.
    fn check_storage(&self) -> Result<(), Invalid> {
        let word = self.state_sharding;
        let sharded = self.mesh.degree(Axis::Fsdp) > 1;
        if (word == StateSharding::Zero3) != sharded {
            let found = format!("{word} on {}", self.mesh);
            let fix =
                "weights are split over the axis fsdp: write zero-3 if it has several ranks, and only then";
            return Err(Invalid::new("plan.state_sharding", found, fix));
        }
        for (plan, class) in self.classes.iter().zip(&self.job.model.classes) {
            let field = format!("plan.classes.{}.storage", class.name);
            let owned = |(k, node): (usize, &crate::Node)| {
                node.params().iter().map(|p| (k, format!("{}.{}", node.name, p.name))).collect::<Vec<_>>()
            };
            let params: Vec<(usize, String)> = class.nodes.iter().enumerate().flat_map(owned).collect();
            if params.len() != plan.storage.len() {
                let found = format!("{} of {} parameters", plan.storage.len(), params.len());
                return Err(Invalid::new(
                    field,
                    found,
                    "say of each parameter of the block how it is stored",
                ));
            }
            for (n, (storage, (node, name))) in plan.storage.iter().zip(&params).enumerate() {
                let beside = n.checked_sub(1).filter(|k| params[*k].0 == *node).map(|k| plan.storage[k]);
                let fix = if !storage.over.is_subset(AxisSet::DATA) {
                    "split state among dp and fsdp only"
                } else if !storage.is_split() && *storage != Storage::WHOLE {
                    "split a weight or a gradient among some axes, or keep it whole"
                } else if storage.needs() > word {
                    "name the most that any parameter splits in plan.state_sharding"
                } else if beside.is_some_and(|b| b.gradient != storage.gradient) {
                    "split the gradients of all parameters of an op or of none: one kernel makes them"
                } else {
                    continue;
                };
                let found = format!("{storage} under {word}");
                return Err(Invalid::new(format!("{field}.{name}"), found, fix));
            }
        }
        Ok(())
    }
}
