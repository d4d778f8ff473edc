//! Breakdown of a trace made by hand: every instant of the step goes to one of four parts.

use expect_test::expect;
use meshwright_ir::trace::{MemoryPoint, Span, Trace, TraceSource};
use meshwright_ir::{Bytes, ErrorByKind, KindError, Program, Time};

const PROGRAM: &str = "meshwright-program 1
mesh pp=2
step tokens=1 micro_batches=1
stream compute
stream collective pp
stream link +1
stream link -1
kernel add f32 n=1
collective all-reduce pp stages=* n=1 f32 ring
exchange +1 send=1 receive=- f32
exchange -1 send=- receive=1 f32
role 0 arena=0 loss=- norm=-
k0 s0 mb=0 b=0 r=- w=- a=-
x0 s2 mb=0 b=0 r=- w=- a=-
c0 s1 mb=0 b=0 r=- w=- a=-
role 1 arena=0 loss=- norm=-
x1 s3 mb=0 b=0 r=- w=- a=-
k0 s0 mb=0 b=0 r=- w=- a=-
c0 s1 mb=0 b=0 r=- w=- a=-
k0 s0 mb=0 b=0 r=- w=- a=-
";

/// `spans`: rank, instruction, start, end.
fn trace(step: u64, spans: &[(u32, u32, u64, u64)]) -> Trace {
    let span = |&(rank, instruction, start, end): &(u32, u32, u64, u64)| Span {
        rank,
        instruction,
        start: Time(start),
        end: Time(end),
    };
    Trace {
        version: 1,
        source: TraceSource::Measured,
        ranks: vec![0, 1],
        step_time: Time(step),
        spans: spans.iter().map(span).collect(),
        memory: [(0, 0, 7), (0, 5, 9), (0, 8, 3), (1, 0, 4)]
            .map(|(rank, time, bytes)| MemoryPoint { rank, time: Time(time), bytes: Bytes(bytes) })
            .to_vec(),
    }
}

fn table(trace: &Trace) -> String {
    let program: Program = PROGRAM.parse().unwrap();
    let row = |b: &meshwright_ir::trace::RankBreakdown| {
        assert_eq!(b.compute + b.exposed_collective + b.pipeline + b.idle, trace.step_time);
        format!(
            "rank {}: compute {} collective {} pipeline {} idle {}\n",
            b.rank, b.compute.0, b.exposed_collective.0, b.pipeline.0, b.idle.0
        )
    };
    trace.breakdown(&program).iter().map(row).collect()
}

#[test]
fn parts_add_up_to_the_step() {
    // Rank 0: kernel 0-10, message 10-30 with the collective over it from 20 to 40, then nothing until 50.
    // Rank 1: waits for the message, computes 30-45 while the collective runs 30-40, idles 2, computes 47-50.
    let spans = [
        (0, 0, 0, 10),
        (0, 1, 10, 30),
        (0, 2, 20, 40),
        (1, 0, 0, 30),
        (1, 1, 30, 45),
        (1, 2, 30, 40),
        (1, 3, 47, 50),
    ];
    let trace = trace(50, &spans);
    expect![[r#"
        rank 0: compute 10 collective 0 pipeline 30 idle 10
        rank 1: compute 18 collective 0 pipeline 30 idle 2
    "#]]
    .assert_eq(&table(&trace));
    let kinds = trace.by_kind(&PROGRAM.parse().unwrap());
    let kinds: Vec<_> = kinds.iter().map(|(name, time, n)| format!("{name}: {} in {n}", time.0)).collect();
    assert_eq!(kinds, ["add gradients: 28 in 3", "all-reduce pp: 30 in 2", "exchange pp: 50 in 2"]);
    assert_eq!(trace.peaks(), [Bytes(9), Bytes(4)]);
}

#[test]
fn an_empty_trace_is_idle() {
    expect![[r#"
        rank 0: compute 0 collective 0 pipeline 0 idle 50
        rank 1: compute 0 collective 0 pipeline 0 idle 50
    "#]]
    .assert_eq(&table(&trace(50, &[])));
}

/// Two steps of two ranks, the second slower in its kernels and later with its collective.
fn compared() -> ErrorByKind {
    let program: Program = PROGRAM.parse().unwrap();
    let predicted = trace(
        100,
        &[
            (0, 0, 0, 40),
            (0, 1, 30, 60),
            (0, 2, 60, 90),
            (1, 0, 0, 60),
            (1, 1, 60, 80),
            (1, 2, 60, 90),
            (1, 3, 85, 95),
        ],
    );
    let measured = trace(
        130,
        &[
            (0, 0, 0, 55),
            (0, 1, 55, 70),
            (0, 2, 70, 130),
            (1, 0, 0, 70),
            (1, 1, 70, 90),
            (1, 2, 90, 130),
            (1, 3, 90, 100),
        ],
    );
    ErrorByKind::of(&program, &predicted, &measured).unwrap()
}

#[test]
fn contributions_add_up_to_the_error() {
    let errors = compared();
    assert_eq!(errors.ranks, 2);
    let sum: f64 = errors.kinds.iter().map(|k| k.contribution_s).sum();
    assert!((sum - (100e-12 - 130e-12)).abs() < 1e-18, "{sum}");
    let sizes: Vec<f64> = errors.kinds.iter().map(|k| k.contribution_s.abs()).collect();
    assert!(sizes.is_sorted_by(|a, b| a >= b));
    let row = |k: &KindError| {
        let ps = |s: f64| (s * 1e13).round() / 10.0;
        let (of, each) = (k.of_step_s, k.each_s);
        format!(
            "{}: {} of the step, {} -> {}; each of {} {} -> {}\n",
            k.kind,
            ps(k.contribution_s),
            ps(of.0),
            ps(of.1),
            k.instructions,
            ps(each.0),
            ps(each.1)
        )
    };
    expect![[r#"
        all-reduce pp: -27.5 of the step, 17.5 -> 45; each of 2 30 -> 50
        add gradients: -7.5 of the step, 35 -> 42.5; each of 3 23.3 -> 28.3
        idle: 7.5 of the step, 7.5 -> 0; each of 0 7.5 -> 0
        exchange pp: -2.5 of the step, 40 -> 42.5; each of 2 45 -> 42.5
    "#]]
    .assert_eq(&errors.kinds.iter().map(row).collect::<String>());
}

#[test]
fn a_trace_is_read_as_it_was_written() {
    let mut written = trace(100, &[(0, 0, 0, 10), (0, 1, 10, 30), (1, 2, 5, 5), (1, 0, 7, 90)]);
    let point = |(rank, time, bytes)| MemoryPoint { rank, time: Time(time), bytes: Bytes(bytes) };
    written.memory = [(0, 0, 64), (0, 9, 32), (1, 4, 1)].map(point).to_vec();
    let text = serde_json::to_string(&written).unwrap();
    expect![[r#"{"version":1,"source":"measured","ranks":[0,1],"step_time":100,"spans":[[0,[0,0,10,1,10,20]],[1,[2,5,0,0,2,83]]],"memory":[[0,[0,64,9,32]],[1,[4,1]]]}"#]]
        .assert_eq(&text);
    assert_eq!(serde_json::from_str::<Trace>(&text).unwrap(), written);
    for (sound, broken) in
        [("2,83]", "2]"), ("[2,5,0", "[2,18446744073709551615,1"), ("[2,5,0", "[4294967296,5,0")]
    {
        assert!(text.contains(sound));
        assert!(serde_json::from_str::<Trace>(&text.replace(sound, broken)).is_err(), "{broken}");
    }
}
