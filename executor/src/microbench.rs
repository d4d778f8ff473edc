//! Times the kernels and the thread communicators on this machine, a few seconds in all. The one file of the
//! executor's compute that reads a clock. Invariant: a sample's time is the median of several runs after one
//! that warms up, so one interruption does not move it; kernels run on one thread unless the sample says
//! otherwise.

use std::hint::black_box;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use crate::comm::{Communicator, Link, Poison, Reduce, threads};
use crate::init::fill_normal;
use crate::kernels::activation::{self, Activation, gate};
use crate::kernels::attention::{self, Attention, Mask};
use crate::kernels::linear::{self, Linear};
use crate::kernels::norm::{self, Kind, Norm};
use crate::kernels::optimizer::{self, AdamW};
use crate::kernels::rope::{self, Rope};
use crate::kernels::{bias, cross_entropy, elementwise, embedding};

/// Which part of training a sample times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// From inputs to outputs.
    Forward,
    /// The gradient of the input.
    BackwardInput,
    /// The gradient of the weights, accumulated.
    BackwardWeight,
    /// The gradients of all inputs in one kernel.
    Backward,
    /// No part of a pass of a layer: optimizer, copies, communication.
    Other,
}

/// One measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The kernel, or the operation of a communicator.
    pub name: &'static str,
    /// Which of its passes.
    pub pass: Pass,
    /// Its sizes, as text.
    pub shape: String,
    /// Floating-point operations on one thread, by the usual count; an exponential counts as one.
    pub flops: f64,
    /// Bytes that one thread must read and write at least; the payload, for communication.
    pub bytes: f64,
    /// Median time of one call, in seconds.
    pub seconds: f64,
    /// Threads that run it at the same time.
    pub threads: usize,
}

/// Everything below, in a fixed order.
pub fn measure() -> Vec<Sample> {
    [matmuls(), attentions(), elementwise_kernels(), copies(), all_reduces(), vec![hand_off()]].concat()
}

/// The three passes of [`linear`] from small to large.
pub fn matmuls() -> Vec<Sample> {
    let shapes = [
        (16, 64, 64),
        (64, 64, 64),
        (128, 128, 128),
        (64, 512, 512),
        (256, 256, 256),
        (1024, 256, 256),
        (512, 512, 512),
        (1024, 256, 1024),
    ];
    shapes.iter().flat_map(|&(rows, inputs, outputs)| matmul(Linear { rows, inputs, outputs })).collect()
}

fn matmul(l: Linear) -> [Sample; 3] {
    let (x, w, dy) = (noise(l.rows * l.inputs), noise(l.inputs * l.outputs), noise(l.rows * l.outputs));
    let (mut dx, mut dw, mut y) = (x.clone(), w.clone(), dy.clone());
    let shape = format!("{}x{}x{}", l.rows, l.inputs, l.outputs);
    let once = x.len() + w.len() + y.len();
    let sample = |pass, elements, seconds| kernel("linear", pass, &shape, l.flops(), elements, seconds);
    [
        sample(Pass::Forward, once, time(|| linear::forward(&l, &x, &w, &mut y))),
        sample(Pass::BackwardInput, once, time(|| linear::backward_input(&l, &dy, &w, &mut dx))),
        sample(
            Pass::BackwardWeight,
            once + w.len(),
            time(|| linear::backward_weight(&l, &dy, &x, &mut dw, false)),
        ),
    ]
}

/// Both passes of causal [`attention`].
pub fn attentions() -> Vec<Sample> {
    let shapes = [(4, 64, 4, 32), (4, 128, 4, 64), (2, 256, 8, 32), (1, 512, 4, 64), (1, 1024, 4, 64)];
    shapes
        .iter()
        .flat_map(|&(batch, sequence, heads, head_dim)| attend(batch, sequence, heads, head_dim))
        .collect()
}

fn attend(batch: usize, sequence: usize, heads: usize, head_dim: usize) -> [Sample; 2] {
    let a = Attention {
        batch,
        queries: sequence,
        keys: sequence,
        first_query: 0,
        heads,
        kv_heads: heads,
        head_dim,
        scale: 1.0 / (head_dim as f32).sqrt(),
        mask: Mask::Causal,
        window: None,
        dropping: None,
    };
    let n = batch * sequence * heads * head_dim;
    let (q, k, v, dy) = (noise(n), noise(n), noise(n), noise(n));
    let (mut y, mut dq, mut dk, mut dv) = (noise(n), noise(n), noise(n), noise(n));
    let mut lse = noise(batch * heads * sequence);
    let mut workspace = noise(attention::workspace(&a));
    let forward = time(|| attention::forward(&a, &q, &k, &v, &mut y, &mut lse, &mut workspace));
    let backward = time(|| {
        attention::backward(&a, &dy, &q, &k, &v, &y, &lse, &mut dq, &mut dk, &mut dv, &mut workspace);
    });
    let shape = format!("batch {batch}, sequence {sequence}, heads {heads}, head_dim {head_dim}, causal");
    [
        kernel("attention", Pass::Forward, &shape, a.flops(), 4 * n, forward),
        kernel("attention", Pass::Backward, &shape, 2.5 * a.flops(), 8 * n, backward),
    ]
}

/// The kernels whose time is that of reading and writing, on `[rows, 256]` that fit the caches and that do
/// not.
pub fn elementwise_kernels() -> Vec<Sample> {
    [64, 1024, 16 * 1024].iter().flat_map(|rows| stream_kernels(*rows, 256)).collect()
}

fn stream_kernels(rows: usize, width: usize) -> Vec<Sample> {
    let n = rows * width;
    let (x, u, dy) = (noise(n), noise(n), noise(n));
    let (mut y, mut z) = (noise(n), noise(n));
    let (g, mut dg, mut db) = (noise(width), noise(width), noise(width));
    let ids: Vec<u32> = (0..rows).map(|r| (r * 97 % 256) as u32).collect();
    let (table, mut dtable) = (noise(256 * width), noise(256 * width));
    let (mut loss, mut workspace) = (noise(rows), noise(3 * rows));
    let (mut m, mut v) = (noise(n), vec![0.5; n]);
    let norm = Norm { kind: Kind::Layer, width, epsilon: 1e-5 };
    let rms = Norm { kind: Kind::Rms, ..norm };
    let rope = Rope {
        sequence: rows.min(1024),
        heads: 4,
        head_dim: width / 4,
        turned: width / 4,
        theta: 1e4,
        first_position: 0,
    };
    let adamw = AdamW { rate: 1e-3, beta1: 0.9, beta2: 0.95, epsilon: 1e-8, decay: 0.1 };
    let shard = embedding::Shard { offset: 0, width };
    let shape = format!("{rows}x{width}");
    let mut samples = Vec::new();
    let mut add = |name, pass, flops: usize, elements: usize, seconds: f64| {
        samples.push(kernel(name, pass, &shape, (flops * n) as f64, elements * n, seconds));
    };
    use Pass::{Backward, BackwardInput, BackwardWeight, Forward, Other};
    add("layer_norm", Forward, 7, 2, time(|| norm::forward(&norm, &x, &g, Some(&g), &mut y)));
    add("layer_norm", BackwardInput, 12, 3, time(|| norm::backward_input(&norm, &dy, &x, &g, &mut y)));
    add("layer_norm", BackwardWeight, 8, 2, {
        time(|| norm::backward_weight(&norm, &dy, &x, &mut dg, Some(&mut db), false))
    });
    add("rms_norm", Forward, 4, 2, time(|| norm::forward(&rms, &x, &g, None, &mut y)));
    add("rms_norm", BackwardInput, 9, 3, time(|| norm::backward_input(&rms, &dy, &x, &g, &mut y)));
    add("gelu", Forward, 9, 2, time(|| activation::forward(Activation::Gelu, &x, &mut y)));
    add("gelu", Backward, 17, 3, time(|| activation::backward(Activation::Gelu, &dy, &x, &mut y)));
    add("silu_gate", Forward, 5, 3, time(|| gate::forward(Activation::Silu, &x, &u, &mut y)));
    add("silu_gate", Backward, 10, 5, {
        time(|| gate::backward(Activation::Silu, &dy, &x, &u, &mut y, &mut z))
    });
    add("relu", Forward, 1, 2, time(|| activation::forward(Activation::Relu, &x, &mut y)));
    add("add", Forward, 1, 3, time(|| elementwise::add(&x, &u, &mut y)));
    add("bias", Forward, 1, 2, time(|| bias::forward(&x, &g, &mut y)));
    add("bias", BackwardWeight, 1, 1, time(|| bias::backward_weight(&dy, &mut dg, false)));
    add("rope", Forward, 3, 2, time(|| rope::forward(&rope, &x, &mut y)));
    add("embedding", Forward, 0, 2, time(|| embedding::forward(&shard, &table, &ids, &mut y)));
    add("embedding", BackwardWeight, 1, 3, {
        time(|| embedding::backward(&shard, &dy, &ids, &mut dtable, false))
    });
    add("cross_entropy", Backward, 9, 2, {
        time(|| {
            black_box(cross_entropy::fused(width, &x, &ids, 1.0, &mut loss, &mut y, &mut workspace));
        })
    });
    add("adamw", Other, 13, 7, time(|| optimizer::adamw(&adamw, 2, 1.0, &mut z, &dy, &mut m, &mut v)));
    add("sum_squares", Other, 2, 1, {
        time(|| {
            black_box(optimizer::sum_squares(&x));
        })
    });
    samples
}

/// Copying 32 MiB, far beyond the caches of one core: one thread alone, then all at a time.
pub fn copies() -> Vec<Sample> {
    let all = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
    let mut counts = vec![1, all];
    counts.dedup();
    counts.into_iter().map(copy_on).collect()
}

fn copy_on(threads: usize) -> Sample {
    const ELEMENTS: usize = 8 << 20;
    let seconds = together((0..threads).collect(), 7, |_| {
        let (from, mut to) = (vec![1.0f32; ELEMENTS], vec![0.0f32; ELEMENTS]);
        move || elementwise::copy(black_box(&from), black_box(&mut to))
    });
    let shape = format!("{ELEMENTS} elements a thread");
    let bytes = (2 * 4 * ELEMENTS) as f64;
    Sample { name: "copy", pass: Pass::Other, shape, flops: 0.0, bytes, seconds, threads }
}

/// all_reduce between 2 and 4 threads at 4 B, 64 KiB and 4 MiB; `bytes` is the payload of one rank.
pub fn all_reduces() -> Vec<Sample> {
    let cases = [2, 4].iter().flat_map(|n| [4, 64 << 10, 4 << 20].iter().map(move |bytes| (*n, *bytes)));
    cases.map(|(n, bytes)| all_reduce_on(n, bytes)).collect()
}

fn all_reduce_on(threads: usize, bytes: usize) -> Sample {
    let runs = if bytes > 1 << 20 { 20 } else { 200 };
    let seconds = together(threads::group(threads, &Poison::new()), runs, |member| {
        let mut buffer = vec![0.0; bytes / 4];
        move || member.all_reduce(&mut buffer, Reduce::Sum).expect("all ranks reduce alike")
    });
    let (shape, flops) = (format!("{bytes} B"), (threads - 1) as f64 * (bytes / 4) as f64);
    Sample { name: "all_reduce", pass: Pass::Other, shape, flops, bytes: bytes as f64, seconds, threads }
}

/// One message of 4 B through a [`Link`] between two threads, half of a round trip.
pub fn hand_off() -> Sample {
    let (left, right) = threads::link(&Poison::new());
    let trip = together(vec![(left, true), (right, false)], 300, |(end, first)| {
        let mut word = [0.0f32];
        move || {
            let mut receive = || end.exchange(None, Some(&mut word)).expect("the peer sends one element");
            let send = || end.exchange(Some(&[1.0]), None).expect("the peer receives one element");
            if first {
                send();
                receive();
            } else {
                receive();
                send();
            }
        }
    });
    let (name, shape) = ("hand_off", String::from("4 B"));
    Sample { name, pass: Pass::Other, shape, flops: 0.0, bytes: 4.0, seconds: trip / 2.0, threads: 2 }
}

/// A sample of a kernel on one thread that moves `elements` f32 elements.
fn kernel(name: &'static str, pass: Pass, shape: &str, flops: f64, elements: usize, seconds: f64) -> Sample {
    Sample { name, pass, shape: shape.into(), flops, bytes: 4.0 * elements as f64, seconds, threads: 1 }
}

/// Median time of a call, in seconds. Short calls are timed in batches, so that the clock's own cost drops
/// out.
fn time(mut work: impl FnMut()) -> f64 {
    const RUNS: usize = 7;
    const RUN: Duration = Duration::from_micros(500);
    let began = Instant::now();
    work();
    let first = began.elapsed().max(Duration::from_nanos(50));
    let batch = (RUN.as_nanos() / first.as_nanos()).clamp(1, 10_000) as u32;
    median(RUNS, || {
        let began = Instant::now();
        (0..batch).for_each(|_| work());
        began.elapsed().as_secs_f64() / f64::from(batch)
    })
}

/// Median time of one of `runs` calls that threads make at the same time, one thread for each of `inputs`, as
/// the first thread sees it.
fn together<I: Send, W: FnMut()>(inputs: Vec<I>, runs: usize, prepare: impl Fn(I) -> W + Sync) -> f64 {
    let start = Barrier::new(inputs.len());
    std::thread::scope(|scope| {
        let (start, prepare) = (&start, &prepare);
        let thread = |input| {
            scope.spawn(move || {
                let mut work = prepare(input);
                work();
                start.wait();
                median(runs, || {
                    let began = Instant::now();
                    work();
                    began.elapsed().as_secs_f64()
                })
            })
        };
        let threads: Vec<_> = inputs.into_iter().map(thread).collect();
        let times: Vec<f64> =
            threads.into_iter().map(|t| t.join().expect("a kernel does not panic")).collect();
        times[0]
    })
}

fn median(runs: usize, run: impl FnMut() -> f64) -> f64 {
    let mut times: Vec<f64> = std::iter::repeat_with(run).take(runs).collect();
    times.sort_by(f64::total_cmp);
    times[runs / 2]
}

/// `n` normal numbers.
fn noise(n: usize) -> Vec<f32> {
    let mut xs = vec![0.0; n];
    let (table, rest) = xs.split_at_mut(n.min(4099));
    fill_normal(table, 1, "noise", 1.0, |i| i as u64);
    for chunk in rest.chunks_mut(table.len().max(1)) {
        chunk.copy_from_slice(&table[..chunk.len()]);
    }
    xs
}
