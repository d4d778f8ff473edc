//! A cluster and two families of models, by size. The numbers of the cluster are those of an H100 SXM data sheet with a
//! matmul efficiency in the range that users measure; they are a fixture, not a preset.

use meshwright_ir::{
    ActivationKind, Bandwidth, BlockClass, BlockRun, Bytes, Cluster, Curve, DType, Device, DeviceKind,
    FlopRate, IdSource, Job, Level, Model, Node, NormKind, Objective, Op, Optimizer, Precision, Real, Run,
    Search, Source, Tie, Time, Training, Value, WorkClass,
};
use std::collections::BTreeMap;

pub(crate) fn h100(nodes: u32) -> Cluster {
    let rate = |x| Bandwidth::try_from(x).unwrap();
    let level = |name: &str, size, bandwidth, latency, efficiency| Level {
        name: name.into(),
        size,
        bandwidth: rate(bandwidth),
        latency: Time::micros(latency),
        efficiency,
    };
    let curve = |class, points: &[(f64, f64)]| Curve { class, points: points.to_vec() };
    Cluster {
        name: "h100 fixture".into(),
        device: Device {
            name: "H100".into(),
            kind: DeviceKind::Gpu,
            memory: Bytes::gib(80),
            reserved: Bytes::gib(2),
            peak: BTreeMap::from([(DType::Bf16, FlopRate::try_from(989.4e12).unwrap())]),
            memory_bandwidth: rate(3.35e12),
            core_bandwidth: None,
            cores: 1,
            launch: Time::micros(4),
            host: meshwright_ir::Host::default(),
            curves: vec![
                curve(WorkClass::Matmul, &[(1e8, 0.02), (1.5e10, 0.42), (1.5e12, 0.70)]),
                curve(WorkClass::Attention, &[(1e8, 0.02), (1e12, 0.40)]),
                curve(WorkClass::AttentionBackward, &[(1e8, 0.02), (1e12, 0.32)]),
                curve(WorkClass::Memory, &[(1e5, 0.3), (1e8, 0.9)]),
            ],
            price_per_hour: None,
            watts: None,
        },
        levels: vec![level("nvlink", 8, 450e9, 2, 0.8), level("infiniband", nodes, 50e9, 5, 0.9)],
        devices_per_node: 8,
        ranks_per_device: 1,
        sources: BTreeMap::new(),
    }
}

/// Ops of a block, appended one by one.
pub(crate) struct Block(Vec<Node>);

impl Block {
    pub(crate) fn new() -> Self {
        Self(vec![])
    }
    pub(crate) fn add(&mut self, name: &str, op: Op, inputs: &[Value]) -> Value {
        self.0.push(Node { name: name.into(), op, inputs: inputs.to_vec(), init: None, tied: None });
        Value::Node(self.0.len() as u32 - 1)
    }
    pub(crate) fn linear(&mut self, name: &str, x: Value, sizes: [u64; 2], grains: [u64; 2]) -> Value {
        let op =
            Op::Linear { input: sizes[0], output: sizes[1], input_grain: grains[0], output_grain: grains[1] };
        self.add(name, op, &[x])
    }
    pub(crate) fn finish(self, name: &str) -> BlockClass {
        BlockClass { name: name.into(), nodes: self.0 }
    }
}

/// Sizes of a decoder.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) hidden: u64,
    pub(crate) heads: u64,
    pub(crate) kv_heads: u64,
    pub(crate) inner: u64,
    pub(crate) layers: u32,
    pub(crate) vocab: u64,
}

fn norm(kind: NormKind, width: u64) -> Op {
    Op::Norm { kind, width, groups: 1, eps: Real(1e-5) }
}

/// RMS norm, rotary positions, grouped-query attention, gated MLP, untied head.
pub(crate) fn llama(s: Sizes) -> Model {
    let d = s.hidden / s.heads;
    let (h, kv) = (s.hidden, s.kv_heads * d);
    let mut b = Block::new();
    let x = Value::Input;
    let n = b.add("norm1", norm(NormKind::Rms, h), &[x]);
    let q = b.linear("q", n, [h, h], [1, d]);
    let k = b.linear("k", n, [h, kv], [1, d]);
    let v = b.linear("v", n, [h, kv], [1, d]);
    let rope = |heads| Op::Rope { heads, head_dim: d, theta: Real(500_000.0), turned: None };
    let q = b.add("rope_q", rope(s.heads), &[q]);
    let k = b.add("rope_k", rope(s.kv_heads), &[k]);
    let core = Op::attention(s.heads, s.kv_heads, d, true, None);
    let a = b.add("attention", core, &[q, k, v]);
    let o = b.linear("proj", a, [h, h], [d, 1]);
    let x = b.add("add1", Op::Add { width: h }, &[x, o]);
    let n = b.add("norm2", norm(NormKind::Rms, h), &[x]);
    let gate = b.linear("gate", n, [h, s.inner], [1, 1]);
    let up = b.linear("up", n, [h, s.inner], [1, 1]);
    let g = b.add("glu", Op::Gate { kind: ActivationKind::Silu, width: s.inner }, &[gate, up]);
    let down = b.linear("down", g, [s.inner, h], [1, 1]);
    b.add("add2", Op::Add { width: h }, &[x, down]);
    let mut embed = Block::new();
    embed.add("tokens", Op::Embedding { rows: s.vocab, width: h, index: IdSource::Tokens }, &[]);
    chain("llama", s, embed, b, norm(NormKind::Rms, h), None)
}

/// Layer norm, learned positions, biases, GELU, tied head.
pub(crate) fn gpt2(s: Sizes, positions: u64) -> Model {
    let (h, d) = (s.hidden, s.hidden / s.heads);
    let mut b = Block::new();
    let x = Value::Input;
    let n = b.add("ln1", norm(NormKind::Layer, h), &[x]);
    let mut head = |name: &str| {
        let y = b.linear(name, n, [h, h], [1, d]);
        b.add(&format!("{name}.bias"), Op::Bias { width: h, grain: d }, &[y])
    };
    let (q, k, v) = (head("q"), head("k"), head("v"));
    let core = Op::attention(s.heads, s.heads, d, true, None);
    let a = b.add("attention", core, &[q, k, v]);
    let o = b.linear("proj", a, [h, h], [d, 1]);
    let o = b.add("proj.bias", Op::Bias { width: h, grain: 1 }, &[o]);
    let x = b.add("add1", Op::Add { width: h }, &[x, o]);
    let n = b.add("ln2", norm(NormKind::Layer, h), &[x]);
    let up = b.linear("up", n, [h, s.inner], [1, 1]);
    let up = b.add("up.bias", Op::Bias { width: s.inner, grain: 1 }, &[up]);
    let g = b.add("gelu", Op::Activation { kind: ActivationKind::GeluTanh, width: s.inner }, &[up]);
    let down = b.linear("down", g, [s.inner, h], [1, 1]);
    let down = b.add("down.bias", Op::Bias { width: h, grain: 1 }, &[down]);
    b.add("add2", Op::Add { width: h }, &[x, down]);
    let mut embed = Block::new();
    let t = embed.add("tokens", Op::Embedding { rows: s.vocab, width: h, index: IdSource::Tokens }, &[]);
    let table = Op::Embedding { rows: positions, width: h, index: IdSource::Positions };
    let p = embed.add("positions", table, &[]);
    embed.add("sum", Op::Add { width: h }, &[t, p]);
    let tie = Tie { class: "embed".into(), node: "tokens".into() };
    let mut model = chain("gpt2", s, embed, b, norm(NormKind::Layer, h), Some(tie));
    model.max_sequence = Some(positions);
    model
}

fn chain(family: &str, s: Sizes, embed: Block, layer: Block, norm: Op, tied: Option<Tie>) -> Model {
    let mut head = Block::new();
    let n = head.add("norm", norm, &[Value::Input]);
    let logits = head.linear("logits", n, [s.hidden, s.vocab], [1, 1]);
    head.add("loss", Op::CrossEntropy { vocab: s.vocab }, &[logits]);
    let mut classes = vec![embed.finish("embed"), layer.finish("layer"), head.finish("head")];
    classes[2].nodes[1].tied = tied;
    Model {
        name: family.into(),
        family: family.into(),
        hidden: s.hidden,
        vocab: s.vocab,
        max_sequence: None,
        classes,
        runs: [(0, 1), (1, s.layers), (2, 1)].map(|(class, repeat)| BlockRun { class, repeat }).into(),
        towers: vec![],
        assumed: vec![],
    }
}

pub(crate) const LLAMA_8B: Sizes =
    Sizes { hidden: 4096, heads: 32, kv_heads: 8, inner: 14336, layers: 32, vocab: 128_256 };
pub(crate) const LLAMA_70B: Sizes =
    Sizes { hidden: 8192, heads: 64, kv_heads: 8, inner: 28672, layers: 80, vocab: 128_256 };
pub(crate) const GPT2_XL: Sizes =
    Sizes { hidden: 1600, heads: 16, kv_heads: 16, inner: 6400, layers: 48, vocab: 50_304 };
pub(crate) const TINY: Sizes = Sizes { hidden: 64, heads: 4, kv_heads: 4, inner: 256, layers: 4, vocab: 512 };

pub(crate) fn training(sequence: u64, global_batch: u64) -> Training {
    Training {
        sequence,
        global_batch,
        precision: Precision::Bf16,
        optimizer: Optimizer::Adamw,
        learning_rate: 1e-4,
        warmup: 0,
        weight_decay: 0.1,
        clip: 1.0,
        seed: 0,
    }
}

pub(crate) fn job(model: Model, cluster: Cluster, sequence: u64, global_batch: u64, pins: &str) -> Job {
    let source = Source { name: "fixture".into(), hash: String::new() };
    let ranks = cluster.ranks();
    let search = Search {
        objective: Objective::Time,
        pins: meshwright_ir::Pin::parse_list(pins).unwrap(),
        ranks,
        top: 5,
        work_limit: 0,
    };
    let job = Job {
        model_source: source.clone(),
        model,
        cluster_source: source,
        cluster,
        training: training(sequence, global_batch),
        search,
        run: Run::default(),
    };
    job.check().unwrap();
    job
}

/// One host whose cores and memory bandwidth `ranks` ranks share.
pub(crate) fn host(ranks: u32, cores: u32) -> Cluster {
    let mut cluster = h100(1);
    let rate = |x| Bandwidth::try_from(x).unwrap();
    cluster.device = Device {
        name: "host".into(),
        kind: DeviceKind::Cpu,
        memory: Bytes::gib(16),
        reserved: Bytes(1 << 28),
        peak: BTreeMap::from([(DType::F32, FlopRate::try_from(5e10).unwrap())]),
        memory_bandwidth: rate(2e10),
        core_bandwidth: Some(rate(1.2e10)),
        cores,
        launch: Time::micros(1),
        host: meshwright_ir::Host::default(),
        curves: vec![],
        ..cluster.device
    };
    cluster.levels.truncate(1);
    cluster.levels[0] =
        Level { name: "memory".into(), size: 1, bandwidth: rate(1e10), ..cluster.levels[0].clone() };
    cluster.devices_per_node = 1;
    cluster.ranks_per_device = ranks;
    cluster
}
