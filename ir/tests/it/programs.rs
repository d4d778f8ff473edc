//! Arbitrary programs: every variant of every part, in no sensible order. The text form must carry them; the checker must
//! refuse them without falling over.

use meshwright_ir::program::{
    Action, Buffer, BufferClass, CodeBuilder, Collective, CollectiveKind, Exchange, IdKind, Kernel, OpKernel,
    Parameter, Pass, Program, Stream,
};
use meshwright_ir::{
    ActivationKind, Algorithm, AttentionCore, Axis, AxisSet, Bytes, DType, Dropout, IdSource, Init,
    InputKind, Layout, Mesh, NormKind, Op, Optimizer, Real, RouteKind, ScanKind, ScoreBias, Scores, Storage,
};

/// A deterministic source of choices.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % sides
    }
    pub(crate) fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.roll(from.len() as u64) as usize].clone()
    }
    fn flag(&mut self) -> bool {
        self.roll(2) == 0
    }
    /// Mostly small, sometimes as large as the text form takes.
    fn size(&mut self) -> u64 {
        let large = self.roll(8) == 0;
        if large { 1 << self.roll(51) } else { self.roll(65) }
    }
    /// Three of these make a tensor.
    fn dim(&mut self) -> u64 {
        self.roll(1 << 16)
    }
    /// Any number of these make a kernel that could run.
    fn small(&mut self) -> u64 {
        1 + self.roll(256)
    }
    fn real(&mut self) -> Real {
        Real(self.roll(1 << 31) as f64 / 1e4 + 1e-12)
    }
    fn axes(&mut self) -> AxisSet {
        Axis::ALL.into_iter().filter(|_| self.flag()).collect()
    }
    fn list(&mut self, below: u64) -> Vec<u32> {
        (0..self.roll(4)).map(|_| self.roll(below) as u32).collect()
    }
    fn maybe<T>(&mut self, make: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.flag().then(|| make(self))
    }
    fn text(&mut self) -> String {
        let alphabet = ['a', 'Z', '0', '.', '%', ';', ' ', '\n', '\u{a0}', 'é', '=', '#', '-'];
        (0..self.roll(6)).map(|_| self.pick(&alphabet)).collect()
    }
}

const DTYPES: [DType; 5] = [DType::F32, DType::Bf16, DType::F16, DType::I32, DType::U8];

fn dropout(d: &mut Dice) -> Dropout {
    Dropout { rate: d.pick(&[Real(0.1), Real(0.5)]), site: d.small() as u32 }
}

const SCORE_BIASES: [ScoreBias; 4] =
    [ScoreBias::None, ScoreBias::Alibi, ScoreBias::Sinks, ScoreBias::Relative { buckets: 7 }];

fn op(d: &mut Dice) -> Op {
    let activation =
        [ActivationKind::Gelu, ActivationKind::GeluTanh, ActivationKind::Silu, ActivationKind::Relu];
    let [small, experts, top_k, width] = [d.small(), d.small(), d.small(), d.small()];
    match d.roll(24) {
        23 => Op::CrossEntropy { vocab: d.small() },
        22 => Op::Spread { width },
        21 => Op::Index { heads: small, head_dim: width, top: top_k },
        10 => Op::LatentAttention {
            heads: small,
            nope: d.small(),
            rotary: d.small(),
            value: d.small(),
            top: d.maybe(|d| d.small()),
        },
        11 => Op::Scale { width, factor: d.real() },
        12 => Op::Gain { width, grain: small },
        13 => Op::Route { experts, top_k, kind: d.pick(&[RouteKind::Softmax, RouteKind::Sigmoid]) },
        14 => Op::Dispatch { width, experts, top_k },
        15 => Op::ExpertLinear { experts, top_k, input: width, output: small },
        16 => Op::ExpertBias { experts, top_k, width },
        17 => Op::Combine { width, experts, top_k },
        18 => Op::Conv { width, kernel: small },
        19 => Op::Scan {
            kind: d.pick(&[ScanKind::Selective, ScanKind::Ssd, ScanKind::Delta]),
            heads: experts,
            head_dim: small,
            state: width,
            groups: top_k,
        },
        20 => Op::Input { width, kind: d.pick(&[InputKind::Patches, InputKind::Frames, InputKind::Memory]) },
        0 => Op::Embedding {
            rows: d.small(),
            width: d.small(),
            index: d.pick(&[IdSource::Tokens, IdSource::Positions]),
        },
        1 => Op::Linear {
            input: d.small(),
            output: d.small(),
            input_grain: d.small(),
            output_grain: d.small(),
        },
        2 => Op::Bias { width: d.small(), grain: d.small() },
        3 => Op::Norm {
            kind: d.pick(&[NormKind::Layer, NormKind::Rms]),
            width: d.small(),
            groups: d.small(),
            eps: d.real(),
        },
        4 => Op::Rope {
            heads: d.small(),
            head_dim: d.small(),
            theta: d.real(),
            turned: d.maybe(|d| d.small()),
        },
        5 => Op::Attention {
            heads: d.small(),
            kv_heads: d.small(),
            head_dim: d.small(),
            causal: d.flag(),
            window: d.maybe(|d| d.small()),
            scores: Scores { softcap: d.maybe(|d| d.real()), bias: d.pick(&SCORE_BIASES) },
            core: d.pick(&[AttentionCore::Fused, AttentionCore::Eager]),
            dropout: d.maybe(dropout),
        },
        6 => Op::Activation { kind: d.pick(&activation), width: d.small() },
        7 => Op::Gate { kind: d.pick(&activation), width: d.small() },
        8 => Op::Add { width: d.small() },
        9 => Op::Dropout { width: d.small(), dropout: dropout(d) },
        _ => Op::CrossEntropy { vocab: d.small() },
    }
}

fn kernel(d: &mut Dice) -> Kernel {
    let dtype = d.pick(&DTYPES);
    match d.roll(8) {
        0 => {
            let op = op(d);
            let extents = op.indices().iter().map(|_| d.small()).collect();
            let axes = op.indices().iter().map(|_| d.axes()).collect();
            let pass =
                d.pick(&[Pass::Max, Pass::Sum, Pass::Forward, Pass::BackwardInput, Pass::BackwardWeight]);
            Kernel::Op(OpKernel { op, pass, extents, axes, accumulate: d.flag(), dtype })
        }
        1 => Kernel::Add { elements: d.size(), dtype },
        2 => Kernel::Slice { axes: d.axes(), outer: d.dim(), piece: d.dim(), inner: d.dim(), dtype },
        3 => Kernel::Pack { outer: d.dim(), parts: d.dim(), inner: d.dim(), dtype },
        4 => Kernel::Unpack { outer: d.dim(), parts: d.dim(), inner: d.dim(), dtype },
        5 => Kernel::Load {
            what: d.pick(&[IdKind::Tokens, IdKind::Targets]),
            batch: d.dim(),
            sequence: d.dim(),
            batch_axes: d.axes(),
            sequence_axes: d.axes(),
        },
        6 => Kernel::SumSquares {
            elements: d.size(),
            replicas: d.dim(),
            accumulate: d.flag(),
            piece: d.axes(),
        },
        _ => Kernel::Update {
            optimizer: d.pick(&[Optimizer::Adamw, Optimizer::Sgd]),
            elements: d.size(),
            dtype,
            decays: d.flag(),
            piece: d.axes(),
        },
    }
}

fn collective(d: &mut Dice, stages: u64) -> Collective {
    let kinds = [
        CollectiveKind::AllReduceSum,
        CollectiveKind::AllReduceMax,
        CollectiveKind::AllGather,
        CollectiveKind::ReduceScatter,
        CollectiveKind::AllToAll,
    ];
    Collective {
        kind: d.pick(&kinds),
        axes: d.axes(),
        stages: d.maybe(|d| d.list(stages)),
        elements: d.size(),
        dtype: d.pick(&DTYPES),
        algorithm: d.pick(&[Algorithm::Ring, Algorithm::Tree, Algorithm::Direct]),
    }
}

fn storage(d: &mut Dice) -> Storage {
    let over = d.axes();
    let split = !over.is_empty();
    Storage { over, weight: split && d.flag(), gradient: split && d.flag() }
}

fn parameter(d: &mut Dice) -> Parameter {
    let shape: Vec<u64> = (0..d.roll(4)).map(|_| d.dim()).collect();
    let axis = d.pick(&Axis::ALL);
    let mut layout = Layout::replicated(shape.len());
    if !shape.is_empty() && d.flag() {
        layout = layout.sharded(d.roll(shape.len() as u64) as usize, axis);
    }
    let start = Init::Normal { std: d.real() };
    Parameter {
        name: d.text(),
        shape,
        layout,
        init: d.pick(&[start, Init::Ones, Init::Zeros]),
        decays: d.flag(),
        storage: storage(d),
        weight: d.roll(8) as u32,
        master: d.maybe(|d| d.roll(8) as u32),
        gradient: d.roll(8) as u32,
        moments: d.list(8),
    }
}

/// A program drawn from `seed`.
pub(crate) fn arbitrary(seed: u64) -> Program {
    let d = &mut Dice(seed);
    let stages = 1 + d.roll(3);
    let degrees = Axis::ALL.map(|a| (a, if a == Axis::Pp { stages as u32 } else { 1 + d.roll(3) as u32 }));
    let streams = (0..1 + d.roll(4)).map(|_| match d.roll(3) {
        0 => Stream::Compute,
        1 => Stream::Collective(d.axes()),
        _ => Stream::Link(d.roll(5) as i32 - 2),
    });
    let streams: Vec<_> = streams.collect();
    let exchange = |d: &mut Dice| Exchange {
        peer: d.roll(5) as i32 - 2,
        send: d.maybe(Dice::size),
        receive: d.maybe(Dice::size),
        dtype: d.pick(&DTYPES),
    };
    let roles = (0..stages).map(|_| {
        let mut builder = CodeBuilder::default();
        for _ in 0..d.roll(9) {
            builder.buffer(Buffer {
                name: d.roll(4) as u32,
                dtype: d.pick(&DTYPES),
                elements: d.size(),
                offset: Bytes(64 * d.size()),
                class: d.pick(&BufferClass::ALL),
            });
        }
        for k in 0..d.roll(12) {
            let action = match d.roll(3) {
                0 => Action::Compute(d.roll(3) as u32),
                1 => Action::Collective(d.roll(3) as u32),
                _ => Action::Exchange(d.roll(3) as u32),
            };
            let (stream, micro_batch, block) = (d.roll(5) as u8, d.roll(3) as u16, d.roll(9) as u16);
            let (reads, writes, after) = (d.list(9), d.list(9), d.list(k + 1));
            builder.push(action, stream, micro_batch, block, &reads, &writes, &after);
        }
        builder.code.parameters = (0..d.roll(3)).map(|_| parameter(d)).collect();
        builder.code.arena = Bytes(256 * d.size());
        builder.code.loss = d.maybe(|d| d.roll(9) as u32);
        builder.code.norm = d.maybe(|d| d.roll(9) as u32);
        builder.code
    });
    let roles = roles.collect();
    Program {
        mesh: Mesh::new(degrees).unwrap(),
        tokens: d.size(),
        micro_batches: 1 + d.roll(3) as u32,
        streams,
        kernels: (0..d.roll(4)).map(|_| kernel(d)).collect(),
        collectives: (0..d.roll(4)).map(|_| collective(d, stages)).collect(),
        exchanges: (0..d.roll(4)).map(|_| exchange(d)).collect(),
        names: (0..d.roll(5)).map(|_| d.text()).collect(),
        roles,
    }
}
