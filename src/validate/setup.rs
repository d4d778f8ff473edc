//! From a row to a job with nothing left to choose: the model of its shape, the cluster of its device and network, and a
//! pin for every degree. A row that asks for what is not built, or that does not say enough, becomes a reason instead.

use super::framework::{Framework, framework, slug};
use super::shape;
use super::table::Row;
use meshwright_ir::{
    Bytes, Cluster, Curve, DType, FlopRate, Job, Model, Objective, Op, Optimizer, Pin, Precision, Recompute,
    Run, Search, Source, Training, WorkClass,
};
use meshwright_zoo::{cluster_for, hash};
use std::num::NonZeroU64;

/// A row that can be predicted.
#[derive(Debug, Clone)]
pub struct Setup {
    /// The row's name.
    pub id: String,
    /// Where the row comes from, as the table names it.
    pub source: String,
    /// Devices, network and framework: rows that share it share constants.
    pub cluster: String,
    /// What the framework does by itself.
    pub framework: Framework,
    /// The job, all degrees pinned. Memory is not limited: the run is known to have fitted.
    pub job: Job,
    /// The cluster before anything that depends on the model: what constants are put into.
    pub preset: Cluster,
    /// Features of a head, where attention writes its scores to memory.
    pub unfused: Option<u64>,
    /// Micro-batches per step and replica.
    pub micro_batches: u64,
    /// Sequences per micro-batch and replica.
    pub micro_batch: u64,
    /// Data-, tensor- and pipeline-parallel degrees.
    pub degrees: [u64; 3],
    /// What each layer recomputes.
    pub recompute: Recompute,
    /// Model FLOPs are counted with this much more where backward runs forward again.
    pub recomputed: bool,
    /// Measured step time in seconds.
    pub measured_s: f64,
    /// Measured memory of the fullest device.
    pub measured_memory: Option<Bytes>,
    /// What the row left open.
    pub assumed: Vec<String>,
}

/// The row's job, or why it is skipped.
pub fn setup(row: &Row) -> Result<Setup, String> {
    if row.text("notes").starts_with("CONSISTENCY:") {
        return Err("the row's own figures contradict each other".into());
    }
    not_built(row)?;
    let mut assumed = vec![];
    let need = |column: &str| row.count(column).ok_or_else(|| format!("no {column}"));
    let measured_s = row.number("iter_time_s").ok_or("no iter_time_s")?;
    let (devices, tp, pp) = (need("n_gpus")?, need("tp")?, need("pp")?);
    let dp = need("dp")?;
    if dp.checked_mul(tp).and_then(|n| n.checked_mul(pp)) != Some(devices) {
        return Err(format!("dp {dp} x tp {tp} x pp {pp} are not {devices} devices"));
    }
    let global_batch = need("global_batch")?;
    let micro_batch = need("micro_batch")?;
    if !global_batch.is_multiple_of(dp * micro_batch) {
        return Err(format!("batch {global_batch} is no multiple of dp {dp} x micro-batch {micro_batch}"));
    }
    let name = row.text("framework");
    let (mut framework, known) = framework(name);
    if !known {
        assumed.push(format!("`{name}` overlaps what it can"));
    }
    let (model, of_model) = shape::model(row, &framework, tp)?;
    assumed.extend(of_model);
    let precision = precision(row, &mut assumed)?;
    framework.manner.narrow_gradients = precision == Precision::Fp16;
    let mut cluster = cluster(row, devices, &mut assumed)?;
    cluster.name = format!("{}/{}", cluster.name, slug(name));
    if row.text("precision") == "tf32" {
        let rate = cluster.device.peak.get(&DType::Bf16).map(|r| r.get() / 2.0);
        let rate = rate.and_then(|r| FlopRate::try_from(r).ok()).ok_or("no tf32 on this device")?;
        cluster.device.peak.insert(DType::F32, rate);
    }
    let unfused = (row.text("flash_attention") == "n").then(|| head_dim(&model)).flatten();
    let preset = cluster.clone();
    let cluster = with_attention(cluster, unfused, precision.compute());
    let recompute = recompute(row, &mut assumed)?;
    let sequence_parallel = flag(row, "sp", &mut assumed);
    let zero =
        row.text("zero_stage_or_fsdp").ends_with('1') || flag(row, "distributed_optimizer", &mut vec![]);
    let pins = format!(
        "dp={dp},tp={tp},pp={pp},microbatch={micro_batch},schedule=1f1b,sp={},zero={},recompute={recompute}",
        sequence_parallel && tp > 1,
        u8::from(zero && dp > 1),
    );
    let sequence = need("seq_len")?;
    let cluster_name = cluster.name.clone();
    let job = Job {
        model_source: Source { name: model.name.clone(), hash: hash(&model) },
        cluster_source: Source { name: cluster_name.clone(), hash: hash(&cluster) },
        model,
        cluster,
        training: Training {
            sequence,
            global_batch,
            precision,
            optimizer: Optimizer::Adamw,
            learning_rate: 1e-4,
            warmup: 0,
            weight_decay: 0.1,
            clip: 1.0,
            seed: 0,
        },
        search: Search {
            objective: Objective::Time,
            pins: Pin::parse_list(&pins).map_err(|e| e.to_string())?,
            ranks: u32::try_from(devices).map_err(|e| e.to_string())?,
            top: 1,
            work_limit: 0,
        },
        run: Run::default(),
    };
    job.check().map_err(|e| e.to_string())?;
    Ok(Setup {
        id: row.id().to_string(),
        source: origin(row.text("source")),
        cluster: cluster_name,
        framework,
        job,
        preset,
        unfused,
        micro_batches: global_batch / dp / micro_batch,
        micro_batch,
        degrees: [dp, tp, pp],
        recompute,
        recomputed: recompute == Recompute::Full,
        measured_s,
        measured_memory: row.number("memory_gb").map(|gb| Bytes((gb * 1e9) as u64)),
        assumed,
    })
}

/// A source without its place within a document: the repository or paper and the document.
fn origin(source: &str) -> String {
    let words = source.split_whitespace().take(2).map(|w| w.trim_matches(['"', ',', ';']));
    words.filter(|w| !w.is_empty()).collect::<Vec<_>>().join(" ")
}

/// Bytes that an attention core of separate kernels moves for each score: products, scaled and masked softmax, dropout
/// with its mask. Counted in Megatron-LM's fused softmax path, forward and backward.
const SCORE_BYTES: [f64; 2] = [11.0, 19.0];

/// Features of a head.
fn head_dim(model: &Model) -> Option<u64> {
    model.classes.iter().flat_map(|c| &c.nodes).find_map(|n| match &n.op {
        Op::Attention { head_dim, .. } => Some(*head_dim),
        _ => None,
    })
}

/// The cluster with curves for an attention core that writes its scores to memory, of heads with so many features: bytes
/// and products, one after the other. To be replaced by an op of its own.
pub(crate) fn with_attention(mut cluster: Cluster, unfused: Option<u64>, dtype: DType) -> Cluster {
    let device = &mut cluster.device;
    let (Some(head), Some(peak)) = (unfused, device.peak.get(&dtype).map(|p| p.get())) else {
        return cluster;
    };
    let head = head as f64;
    let curve = |class: WorkClass| device.curves.iter().find(|c| c.class == class);
    let large = |class: WorkClass| curve(class).map_or(1.0, |c| c.at(1e12));
    let (matmul, memory) = (large(WorkClass::Matmul), large(WorkClass::Memory));
    for (class, bytes, products) in
        [(WorkClass::Attention, SCORE_BYTES[0], 2.0), (WorkClass::AttentionBackward, SCORE_BYTES[1], 4.0)]
    {
        // Causal work is counted as half of the square, and done whole; fused backward is counted as 5 products.
        let counted = if class == WorkClass::Attention { 2.0 } else { 5.0 } * head;
        let bytes = bytes / (device.memory_bandwidth.get() * memory);
        let seconds = bytes + 2.0 * products * head / (peak * matmul * HEADS);
        let efficiency = (counted / peak / seconds).clamp(1e-3, 1.0);
        device.curves.retain(|c| c.class != class);
        device.curves.push(Curve { class, points: vec![(1e8, efficiency * 0.5), (1e9, efficiency)] });
    }
    cluster
}

/// Efficiency of batched products of one head each against large ones: their inner dimension is a head's. A guess.
const HEADS: f64 = 0.5;

impl Setup {
    /// Puts other constants in place of the cluster's.
    pub(crate) fn reprice(&mut self, preset: Cluster) {
        let dtype = self.job.training.precision.compute();
        self.job.cluster = with_attention(preset.clone(), self.unfused, dtype);
        self.preset = preset;
    }
}

/// Refuses what the planner or lowering has not learnt.
fn not_built(row: &Row) -> Result<(), String> {
    let above_one = |column: &str| row.count(column).is_some_and(|n| n > 1);
    let experts = above_one("moe_experts");
    let sharding = row.text("zero_stage_or_fsdp");
    let replicas_split = !matches!(sharding, "" | "0" | "ZeRO-0" | "ZeRO-1" | "n");
    for (is, what) in [
        (experts, "mixtures of experts are not built yet".to_string()),
        (above_one("vpp"), format!("virtual stages (vpp {}) are not built yet", row.text("vpp"))),
        (above_one("cp"), format!("context parallelism (cp {}) is not built yet", row.text("cp"))),
        (replicas_split, format!("sharding of parameters (`{sharding}`) is not built yet")),
        (row.text("precision").starts_with("fp8"), "fp8 kernels are not priced yet".to_string()),
    ] {
        if is {
            return Err(what);
        }
    }
    Ok(())
}

fn precision(row: &Row, assumed: &mut Vec<String>) -> Result<Precision, String> {
    match row.text("precision") {
        "fp16" => Ok(Precision::Fp16),
        "bf16" => Ok(Precision::Bf16),
        "fp32" | "tf32" => Ok(Precision::Fp32),
        "" => {
            assumed.push("precision = fp16".into());
            Ok(Precision::Fp16)
        }
        other => Err(format!("precision `{other}` is not built yet")),
    }
}

fn recompute(row: &Row, assumed: &mut Vec<String>) -> Result<Recompute, String> {
    match row.text("recompute") {
        "" => {
            assumed.push("recompute = none".into());
            Ok(Recompute::None)
        }
        "none" | "n" => Ok(Recompute::None),
        "full" | "y" => Ok(Recompute::Full),
        text if text.starts_with("selective") => Ok(Recompute::Selective),
        other => Err(format!("recompute `{other}` is none, selective or full")),
    }
}

fn flag(row: &Row, column: &str, assumed: &mut Vec<String>) -> bool {
    match row.text(column) {
        "y" | "true" | "yes" => true,
        "" => {
            assumed.push(format!("{column} = n"));
            false
        }
        _ => false,
    }
}

/// The preset of the row's device behind the row's network, without a limit of memory.
fn cluster(row: &Row, devices: u64, assumed: &mut Vec<String>) -> Result<Cluster, String> {
    let per_node = match row.count("gpus_per_node") {
        Some(n) => n,
        None => {
            assumed.push("gpus_per_node = 8".into());
            8
        }
    };
    let nodes = devices.div_ceil(per_node);
    let sizes = (u32::try_from(nodes), u32::try_from(per_node));
    let (Ok(nodes), Ok(per_node)) = sizes else { return Err(format!("{devices} devices")) };
    let (cluster, said) = cluster_for(row.text("gpu"), row.text("inter_node_net"), nodes, per_node)?;
    assumed.extend(said);
    Ok(cluster)
}

/// What a row's memory is compared with: the planned peak and what the runtime takes.
pub(crate) fn memory(peak: Bytes, cluster: &Cluster) -> Bytes {
    peak + cluster.device.reserved
}

/// So much memory that no plan is refused for it.
pub(crate) const ENDLESS: NonZeroU64 = NonZeroU64::new(1 << 60).expect("not zero");
