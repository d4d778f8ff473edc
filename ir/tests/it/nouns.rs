//! The nouns as text and as checked values: what round-trips, what parses, and what each check says of a bad field.

use meshwright_ir::{
    ActivationKind, AttentionCore, AxisSet, Bandwidth, BlockClass, BlockRun, Bytes, Cluster, Curve, DType,
    Device, DeviceKind, FlopRate, IdSource, InputKind, Invalid, Layout, Level, Mesh, Model, Node, NormKind,
    Op, Pin, Real, RouteKind, ScanKind, ScoreBias, Scores, Tie, Time, Value, WorkClass,
};
use std::collections::BTreeMap;

#[test]
fn every_op_survives_its_text() {
    let kinds = [ActivationKind::Gelu, ActivationKind::GeluTanh, ActivationKind::Silu, ActivationKind::Relu];
    let mut ops = vec![
        Op::Embedding { rows: 100, width: 32, index: IdSource::Tokens },
        Op::Embedding { rows: 8, width: 32, index: IdSource::Positions },
        Op::Linear { input: 64, output: 256, input_grain: 1, output_grain: 16 },
        Op::Bias { width: 256, grain: 16 },
        Op::Norm { kind: NormKind::Layer, width: 32, groups: 1, eps: Real(1e-5) },
        Op::Norm { kind: NormKind::Rms, width: 8, groups: 4, eps: Real(f64::MIN_POSITIVE) },
        Op::Rope { heads: 4, head_dim: 8, theta: Real(500_000.0), turned: None },
        Op::attention(4, 2, 8, true, None),
        Op::attention(4, 4, 8, false, Some(4096)),
        Op::Rope { heads: 4, head_dim: 8, theta: Real(1e4), turned: Some(4) },
        Op::Attention {
            heads: 4,
            kv_heads: 4,
            head_dim: 8,
            causal: true,
            window: None,
            scores: Scores { softcap: Some(Real(50.0)), bias: ScoreBias::Relative { buckets: 32 } },
            core: AttentionCore::Fused,
            dropout: None,
        },
        Op::LatentAttention { heads: 4, nope: 8, rotary: 4, value: 6, top: None },
        Op::LatentAttention { heads: 4, nope: 8, rotary: 4, value: 6, top: Some(64) },
        Op::Index { heads: 4, head_dim: 8, top: 64 },
        Op::Scale { width: 64, factor: Real(0.5) },
        Op::Spread { width: 64 },
        Op::Gain { width: 64, grain: 8 },
        Op::Route { experts: 8, top_k: 2, kind: RouteKind::Sigmoid },
        Op::Dispatch { width: 64, experts: 8, top_k: 2 },
        Op::ExpertLinear { experts: 8, top_k: 2, input: 64, output: 96 },
        Op::ExpertBias { experts: 8, top_k: 2, width: 96 },
        Op::Combine { width: 64, experts: 8, top_k: 2 },
        Op::Conv { width: 64, kernel: 4 },
        Op::Scan { kind: ScanKind::Ssd, heads: 4, head_dim: 16, state: 32, groups: 2 },
        Op::Input { width: 588, kind: InputKind::Patches },
        Op::Add { width: u64::MAX },
        Op::CrossEntropy { vocab: 100 },
    ];
    ops.extend(kinds.map(|kind| Op::Activation { kind, width: 64 }));
    ops.extend(kinds.map(|kind| Op::Gate { kind, width: 64 }));
    for op in ops {
        assert_eq!(op.to_string().parse::<Op>().as_ref(), Ok(&op), "{op}");
    }
}

#[test]
fn what_is_no_op() {
    for (text, message) in [
        ("", "`` is no op"),
        ("linear", "`linear` is no op"),
        ("convolution[width=3]", "`convolution` is no op"),
        ("add[]", "op add lacks `width`"),
        ("add[width=-1]", "op add: `width` is no number"),
        ("rope[heads=1 head_dim=2 theta=inf]", "op rope: `theta` is not finite"),
        (
            "norm[kind=batch width=1 groups=1 eps=1e-5]",
            "`batch` is none of layer, layer-scale, layer-plain, rms, rms-plain",
        ),
    ] {
        assert_eq!(text.parse::<Op>(), Err(message.to_string()));
    }
}

#[test]
fn pins_parse() {
    let shown = |text: &str| match Pin::parse_list(text) {
        Ok(pins) => {
            let pin = |p: &Pin| format!("{:?} {:?} {}", p.key, p.comparison, p.value);
            pins.iter().map(pin).collect::<Vec<_>>().join("; ")
        }
        Err(e) => format!("{}: {}", e.field, e.found),
    };
    for (text, want) in [
        ("", ""),
        ("tp=8", "Tp Equal 8"),
        (" tp = 8 , pp<=4,", "Tp Equal 8; Pp AtMost 4"),
        ("dp>=2,dp!=3", "Dp AtLeast 2; Dp NotEqual 3"),
        ("sp=true,sp!=false", "Sp Equal 1; Sp NotEqual 0"),
        ("schedule=1f1b,schedule!=gpipe", "Schedule Equal 1; Schedule NotEqual 0"),
        ("microbatch=1", "Microbatch Equal 1"),
        ("tp", "search.pin: `tp`"),
        ("tp=", "search.pin: `tp=`"),
        ("tp==8", "search.pin: `tp==8`"),
        ("tp<8", "search.pin: `tp<8`"),
        ("tp=-1", "search.pin: `tp=-1`"),
        ("tp=eight", "search.pin: `tp=eight`"),
        ("tp=99999999999999999999", "search.pin: `tp=99999999999999999999`"),
        ("ep=2", "search.pin: `ep=2`, which is not built yet"),
        ("schedule=2", "search.pin: `schedule=2`"),
        ("tp=8,pp", "search.pin: `pp`"),
    ] {
        assert_eq!(shown(text), want, "{text}");
    }
    let pin: Pin = "pp<=4".parse().unwrap();
    assert!(pin.allows(4) && !pin.allows(5));
}

#[test]
fn layouts_change_one_axis_at_a_time() {
    let layout = |text: &str| text.parse::<Layout>().unwrap();
    let tp = meshwright_ir::Axis::Tp;
    assert_eq!(Layout::replicated(3).sharded(2, tp).to_string(), "(-,-,tp)");
    assert_eq!(layout("(dp,-,-)").partial_over(tp).to_string(), "(dp,-,-)+tp");
    assert_eq!(layout("(dp,-,tp)").cleared(tp), layout("(dp,-,-)"));
    assert_eq!(layout("(dp,-)+tp").cleared(tp), layout("(dp,-)"));
    let active: AxisSet = "dp.tp".parse().unwrap();
    for (layout, dual) in
        [("(dp,-)+tp", "(dp,-)"), ("(dp,-)", "(dp,-)+tp"), ("(-)", "(-)+dp.tp"), ("(dp.tp)", "(dp.tp)")]
    {
        assert_eq!(layout.parse::<Layout>().unwrap().dual(active).to_string(), dual, "{layout}");
    }
    let mesh: Mesh = "dp=2 fsdp=3 tp=4".parse().unwrap();
    assert_eq!(layout("(dp.fsdp,tp)").local(&[12, 8], &mesh), Ok(vec![2, 2]));
}

/// A cluster of 2 nodes with 8 devices each.
fn cluster() -> Cluster {
    let rate = |x| Bandwidth::try_from(x).unwrap();
    let level = |name: &str, size, bandwidth| Level {
        name: name.into(),
        size,
        bandwidth: rate(bandwidth),
        latency: Time::micros(5),
        efficiency: 0.8,
    };
    Cluster {
        name: "test".into(),
        device: Device {
            name: "device".into(),
            kind: DeviceKind::Gpu,
            memory: Bytes::gib(80),
            reserved: Bytes::gib(2),
            peak: BTreeMap::from([(DType::F32, FlopRate::try_from(1e13).unwrap())]),
            memory_bandwidth: rate(2e12),
            core_bandwidth: None,
            cores: 1,
            launch: Time::micros(4),
            host: meshwright_ir::Host::default(),
            curves: vec![Curve { class: WorkClass::Matmul, points: vec![(1e8, 0.1), (1e10, 0.5)] }],
            price_per_hour: None,
            watts: None,
        },
        levels: vec![level("inner", 8, 4e11), level("outer", 2, 5e10)],
        devices_per_node: 8,
        ranks_per_device: 1,
        sources: BTreeMap::new(),
    }
}

fn refused(result: Result<(), Invalid>) -> String {
    result.map_or_else(|e| format!("{}: {}", e.field, e.found), |()| "sound".to_string())
}

#[test]
fn clusters_are_checked() {
    type Edit = fn(&mut Cluster);
    let cases: [(Edit, &str); 20] = [
        (|_| (), "sound"),
        (|c| c.levels.clear(), "cluster.levels: no level, or one of size 0"),
        (|c| c.levels[1].size = 0, "cluster.levels: no level, or one of size 0"),
        (|c| c.levels[1].size = 1 << 22, "cluster.levels: more than 16,777,216 devices"),
        (|c| c.levels[1].size = u32::MAX, "cluster.levels: more than 16,777,216 devices"),
        (|c| c.devices_per_node = 0, "cluster: zero devices per node, ranks per device or cores"),
        (|c| c.device.cores = 0, "cluster: zero devices per node, ranks per device or cores"),
        (|c| c.ranks_per_device = u32::MAX, "cluster.ranks_per_device: 4294967295"),
        (|c| c.device.peak.clear(), "cluster.device.peak: no compute rate"),
        (|c| c.device.reserved = c.device.memory, "cluster.device.memory: 80.0 GiB"),
        (|c| c.device.memory = Bytes(u64::MAX), "cluster.device.memory: 16384 PiB"),
        (|c| c.device.launch = Time(u64::MAX), "cluster.device.launch: 18446744073709551615"),
        (|c| c.levels[0].latency = Time(u64::MAX), "cluster.levels.inner.latency: 18446744073709551615"),
        (
            |c| c.levels[1].bandwidth = Bandwidth::try_from(1e-300).unwrap(),
            "cluster.levels.outer.bandwidth: 1e-300",
        ),
        (|c| c.levels[0].efficiency = 1.5, "cluster.levels.inner.efficiency: 1.5"),
        (|c| c.levels[0].efficiency = f64::NAN, "cluster.levels.inner.efficiency: NaN"),
        (
            |c| c.device.curves[0].points.clear(),
            "cluster.device.curves.matmul: points that do not rise, or out of range",
        ),
        (
            |c| c.device.curves[0].points[1].0 = 1e8,
            "cluster.device.curves.matmul: points that do not rise, or out of range",
        ),
        (
            |c| c.device.curves[0].points[1].1 = 1e300,
            "cluster.device.curves.matmul: points that do not rise, or out of range",
        ),
        (|c| c.device.watts = Some(f64::INFINITY), "cluster.device.watts: inf"),
    ];
    for (edit, want) in cases {
        let mut cluster = cluster();
        edit(&mut cluster);
        assert_eq!(refused(cluster.check()), want);
    }
}

#[test]
fn clusters_know_their_levels() {
    let cluster = cluster();
    assert_eq!((cluster.devices(), cluster.nodes(), cluster.span(0)), (16, 2, 8));
    assert_eq!(
        (cluster.level_between(3, 3), cluster.level_between(0, 7), cluster.level_between(7, 8)),
        (0, 0, 1)
    );
    let graph = cluster.graph();
    assert_eq!((graph.node_count(), graph.edge_count()), (16 + 2 + 1, 16 + 2));
    let curve = &cluster.device.curves[0];
    assert_eq!((curve.at(1.0), curve.at(1e12)), (0.1, 0.5));
    assert!((curve.at(1e9) - 0.3).abs() < 1e-12);
}

/// An embedding, one layer twice, and a tied head.
fn model() -> Model {
    let node = |name: &str, op, inputs: &[Value]| Node {
        name: name.into(),
        op,
        inputs: inputs.to_vec(),
        init: None,
        tied: None,
    };
    let table = |rows, index| Op::Embedding { rows, width: 8, index };
    let linear = |output| Op::Linear { input: 8, output, input_grain: 1, output_grain: 4 };
    let core = Op::attention(2, 2, 4, true, None);
    let class = |name: &str, nodes| BlockClass { name: name.into(), nodes };
    let at = Value::Node;
    let mut head = vec![
        node("logits", Op::Linear { input: 8, output: 10, input_grain: 1, output_grain: 1 }, &[Value::Input]),
        node("loss", Op::CrossEntropy { vocab: 10 }, &[at(0)]),
    ];
    head[0].tied = Some(Tie { class: "embed".into(), node: "tokens".into() });
    Model {
        name: "test".into(),
        family: "test".into(),
        hidden: 8,
        vocab: 10,
        max_sequence: Some(16),
        classes: vec![
            class(
                "embed",
                vec![
                    node("tokens", table(10, IdSource::Tokens), &[]),
                    node("positions", table(16, IdSource::Positions), &[]),
                    node("sum", Op::Add { width: 8 }, &[at(0), at(1)]),
                ],
            ),
            class(
                "layer",
                vec![
                    node("q", linear(8), &[Value::Input]),
                    node("attn", core, &[at(0), at(0), at(0)]),
                    node("residual", Op::Add { width: 8 }, &[Value::Input, at(1)]),
                ],
            ),
            class("head", head),
        ],
        runs: [1, 2, 1].into_iter().zip(0..).map(|(repeat, class)| BlockRun { class, repeat }).collect(),
        towers: vec![],
        assumed: vec![],
    }
}

#[test]
fn models_are_counted() {
    let model = model();
    model.check().unwrap();
    assert_eq!((model.params(), model.embedding_params(), model.layers()), (80 + 128 + 2 * 64, 208, 2));
    assert_eq!(model.blocks(), [0, 1, 1, 2]);
    let names: Vec<_> = (0..4).map(|k| model.block_name(k)).collect();
    assert_eq!(names, ["embed", "layer.0", "layer.1", "head"]);
    let layer = &model.classes[1];
    assert_eq!((layer.consumers(Value::Input), layer.graph().edge_count()), (vec![(0, 0), (2, 0)], 4));
}

#[test]
fn models_are_checked() {
    type Edit = fn(&mut Model);
    let cases: [(Edit, &str); 26] = [
        (|_| (), "sound"),
        (|m| m.classes[0].name.clear(), "model.classes: the name ``"),
        (|m| m.classes[1].nodes[0].name = "q x".into(), "model.layer: the name `q x`"),
        (|m| m.classes[1].nodes[0].name = "attn".into(), "model.layer: the name `attn`"),
        (|m| m.runs.clear(), "model.runs: an unknown class, or no repeats"),
        (|m| m.runs[1].class = 3, "model.runs: an unknown class, or no repeats"),
        (|m| m.runs[1].repeat = 0, "model.runs: an unknown class, or no repeats"),
        (|m| m.runs[1].repeat = u32::MAX, "model.runs: 4294967297 blocks"),
        (|m| m.runs.swap(0, 1), "model.layer: out of place in the chain"),
        (|m| m.runs.truncate(2), "model.layer: out of place in the chain"),
        (|m| m.hidden = 9, "model.layer.q: input 0 is 9 wide"),
        (|m| m.vocab = 11, "model.embed.tokens: 10 rows"),
        (|m| m.max_sequence = Some(17), "model.embed.positions: 16 rows"),
        (|m| m.max_sequence = None, "model.embed.positions: 16 rows"),
        (|m| m.classes[1].nodes[0].inputs.clear(), "model.layer.q: 0 inputs"),
        (|m| m.classes[1].nodes[0].inputs[0] = Value::Node(0), "model.layer.q: reads node 0"),
        (|m| m.classes[1].nodes[0].inputs[0] = Value::Node(9), "model.layer.q: reads node 9"),
        (
            |m| {
                m.classes[1].nodes[0].op = Op::Linear { input: 8, output: 8, input_grain: 1, output_grain: 3 }
            },
            "model.layer.q: grains 1 and 3 of 8 and 8 features",
        ),
        (
            |m| {
                m.classes[1].nodes[0].op = Op::Linear { input: 8, output: 0, input_grain: 1, output_grain: 1 }
            },
            "model.layer.q.output: 0",
        ),
        (
            |m| {
                m.classes[1].nodes[0].op =
                    Op::Norm { kind: NormKind::Rms, width: 1 << 32, groups: 1 << 32, eps: Real(1e-5) }
            },
            "model.layer.q.width x groups: 18446744073709551615",
        ),
        (
            |m| {
                m.classes[1].nodes[0].op =
                    Op::Norm { kind: NormKind::Rms, width: 8, groups: 1, eps: Real(f64::NAN) }
            },
            "model.layer.q.eps: NaN",
        ),
        (
            |m| m.classes[1].nodes[0].op = Op::Rope { heads: 8, head_dim: 1, theta: Real(1e4), turned: None },
            "model.layer.q: 1 features per head",
        ),
        (
            |m| {
                m.classes[1].nodes[0].op =
                    Op::Linear { input: 1 << 32, output: 1 << 32, input_grain: 1, output_grain: 1 }
            },
            "model: 36893488147419103440 parameters",
        ),
        (
            |m| m.classes[1].nodes[1].op = Op::attention(3, 2, 4, true, None),
            "model.layer.attn: 3 heads over 2 key heads",
        ),
        (
            |m| m.classes[2].nodes[0].tied = Some(Tie { class: "embed".into(), node: "positions".into() }),
            "model.head.logits: tied to embed.positions",
        ),
        (
            |m| m.classes[2].nodes[0].tied = Some(Tie { class: "x".into(), node: "y".into() }),
            "model.head.logits: tied to x.y",
        ),
    ];
    for (edit, want) in cases {
        let mut model = model();
        edit(&mut model);
        assert_eq!(refused(model.check()), want);
    }
}
