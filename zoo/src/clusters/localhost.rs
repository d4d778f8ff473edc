//! The machine at hand as a cluster: one CPU whose cores the ranks share. A pure function of what was measured, tolerant
//! of samples that are missing: each has a stated stand-in, and `sources` says which numbers were not measured.
//!
//! A sample's `flops` and `bytes` are those of one thread's run; `threads` threads ran it at the same time, so the
//! machine did `threads` times as much in `seconds`.

use meshwright_ir::{
    Bandwidth, Bytes, Cluster, Curve, DType, Device, DeviceKind, FlopRate, HostProfile, Level, ProfileSample,
    Time, WorkClass,
};
use std::collections::BTreeMap;

/// What a class of kernels is measured in, and by which samples.
enum Unit {
    /// x is FLOP, y the fraction of one core's peak.
    Flops,
    /// x is bytes, y the fraction of one core's copy bandwidth; above 1 while the caches hold the data.
    Bytes,
}

/// Sample names of each class.
const CLASSES: [(WorkClass, Unit, &[&str]); 10] = [
    (WorkClass::Matmul, Unit::Flops, &["matmul"]),
    (WorkClass::Attention, Unit::Flops, &["attention", "attention forward"]),
    (WorkClass::AttentionBackward, Unit::Flops, &["attention backward"]),
    (WorkClass::Memory, Unit::Bytes, &["add", "bias"]),
    (WorkClass::Norm, Unit::Bytes, &["norm", "norm backward"]),
    (WorkClass::Activation, Unit::Bytes, &["activation", "activation backward", "gate", "gate backward"]),
    (WorkClass::Rope, Unit::Bytes, &["rope", "rope backward"]),
    (WorkClass::Embedding, Unit::Bytes, &["embedding", "embedding backward"]),
    (WorkClass::Loss, Unit::Bytes, &["cross-entropy", "cross-entropy backward"]),
    (WorkClass::Optimizer, Unit::Bytes, &["adamw", "sgd"]),
];

/// Stand-ins for what was not measured. All are guesses for a laptop core of the 2020s.
const GUESSED_PEAK: f64 = 20e9;
const GUESSED_CORE_BANDWIDTH: f64 = 8e9;
const GUESSED_HANDOFF: f64 = 10e-6;
/// Share of a hand-off between threads that one kernel costs on average. A guess: a rank's compute thread walks its own
/// kernels without a hand-off and pays one only where it waits for communication, about once in ten kernels.
const HANDOFFS_PER_KERNEL: f64 = 0.1;
/// Memory of one rank that no tensor uses: stacks, code, packing buffers of matrix products. A guess.
const RESERVED: Bytes = Bytes(64 << 20);
/// The least memory that is believed of a machine.
const LEAST_MEMORY: Bytes = Bytes(1 << 30);

/// The cluster that `ranks` ranks sharing this host's cores make.
pub fn localhost(profile: &HostProfile, ranks: u32) -> Cluster {
    let ranks = ranks.clamp(1, 1 << 16);
    let samples = Samples { all: &profile.samples, ranks };
    let mut sources = BTreeMap::new();
    let mut noted = |field: &str, measured: Option<f64>, from: &str, guess: f64| {
        let source = match measured {
            Some(_) => format!("measured here: {from}"),
            None => format!("a guess: no sample for {from}"),
        };
        sources.insert(field.to_string(), source);
        measured.unwrap_or(guess)
    };
    let peak = noted("device.peak.f32", samples.peak(), "fastest matmul of one thread", GUESSED_PEAK);
    let core = noted(
        "device.core_bandwidth",
        samples.copy_bandwidth(u32::min),
        "largest copy of one thread",
        GUESSED_CORE_BANDWIDTH,
    );
    let all = noted(
        "device.memory_bandwidth",
        samples.copy_bandwidth(u32::max),
        "largest copy of all threads",
        core,
    );
    let handoff = noted("device.launch", samples.handoff(), "a tenth of a thread hand-off", GUESSED_HANDOFF);
    let link = samples.all_reduce_line();
    let latency =
        noted("levels.memory.latency", link.map(|l| l.0), "line through all_reduce samples", handoff);
    let bandwidth =
        noted("levels.memory.bandwidth", link.map(|l| l.1), "line through all_reduce samples", core / 3.0);
    let curve = |(class, unit, names): &(WorkClass, Unit, &[&str])| {
        let points = match unit {
            Unit::Flops => samples.points(names, |s| s.flops.get() as f64, peak, true),
            Unit::Bytes => samples.points(names, |s| s.bytes.f64(), core, false),
        };
        (!points.is_empty()).then_some(Curve { class: *class, points })
    };
    let memory = profile.memory.max(LEAST_MEMORY).min(Bytes(1 << 60));
    sources.insert("device.reserved".into(), "a guess: 64 MiB per rank".into());
    Cluster {
        name: "localhost".to_string(),
        device: Device {
            name: profile.processor.clone(),
            kind: DeviceKind::Cpu,
            memory,
            reserved: RESERVED.min(memory / (8 * u64::from(ranks))),
            peak: BTreeMap::from([(DType::F32, flop_rate(peak))]),
            memory_bandwidth: byte_rate(all.max(core)),
            core_bandwidth: Some(byte_rate(core)),
            cores: profile.cores.max(1),
            launch: duration(handoff * HANDOFFS_PER_KERNEL),
            host: meshwright_ir::Host::default(),
            curves: CLASSES.iter().filter_map(curve).collect(),
            price_per_hour: None,
            watts: None,
        },
        levels: vec![Level {
            name: "memory".to_string(),
            size: 1,
            bandwidth: byte_rate(bandwidth),
            latency: duration(latency),
            efficiency: 1.0,
        }],
        devices_per_node: 1,
        ranks_per_device: ranks,
        sources,
    }
}

fn flop_rate(x: f64) -> FlopRate {
    FlopRate::try_from(x.clamp(1e6, 1e21)).expect("clamped to a rate")
}
fn byte_rate(x: f64) -> Bandwidth {
    Bandwidth::try_from(x.clamp(1e6, 1e18)).expect("clamped to a rate")
}
fn duration(seconds: f64) -> Time {
    Time::from_seconds(seconds.clamp(1e-9, 1.0))
}

struct Samples<'a> {
    all: &'a [ProfileSample],
    ranks: u32,
}

impl Samples<'_> {
    /// Sound samples of the given names.
    fn of(&self, names: &[&str]) -> impl Iterator<Item = &ProfileSample> {
        let sound = |s: &&ProfileSample| s.seconds.is_finite() && s.seconds > 1e-12 && s.threads > 0;
        self.all.iter().filter(sound).filter(move |s| names.contains(&s.name.as_str()))
    }

    /// Fastest matrix product of one thread, in FLOP per second.
    fn peak(&self) -> Option<f64> {
        let rate = |s: &ProfileSample| s.flops.get() as f64 / s.seconds;
        let alone = self.of(&["matmul"]).filter(|s| s.threads == 1);
        alone.map(rate).filter(|r| *r > 0.0).max_by(f64::total_cmp)
    }

    /// Bandwidth of all threads together in the largest copy, for the thread count that `pick` prefers. The largest,
    /// because smaller ones stay in caches.
    fn copy_bandwidth(&self, pick: impl Fn(u32, u32) -> u32) -> Option<f64> {
        let threads = self.of(&["copy"]).map(|s| s.threads).reduce(pick)?;
        let largest = self.of(&["copy"]).filter(|s| s.threads == threads).max_by_key(|s| s.bytes)?;
        Some(f64::from(threads) * largest.bytes.f64() / largest.seconds).filter(|b| *b > 0.0)
    }

    fn handoff(&self) -> Option<f64> {
        self.of(&["handoff"]).map(|s| s.seconds).min_by(f64::total_cmp)
    }

    /// Points of a curve: `x` against the fraction of `full` reached. Compute-bound classes (`loaded`) use the samples
    /// that ran on the most threads up to the ranks that will run, because cores slow one another down through shared
    /// execution units and lower clocks; bytes use one thread, because shared bandwidth is modelled apart.
    fn points(
        &self,
        names: &[&str],
        x: impl Fn(&ProfileSample) -> f64,
        full: f64,
        loaded: bool,
    ) -> Vec<(f64, f64)> {
        let limit = if loaded { self.ranks } else { 1 };
        let known = || self.of(names).map(|s| s.threads);
        let Some(threads) = known().filter(|t| *t <= limit).max().or(known().min()) else {
            return Vec::new();
        };
        // Samples within a factor of two of x make one point, their geometric mean: forward and backward share a curve,
        // and interpolating between two nearly equal x would only draw noise.
        let mut buckets: BTreeMap<i64, Vec<(f64, f64)>> = BTreeMap::new();
        for s in self.of(names).filter(|s| s.threads == threads) {
            let (x, y) = (x(s), x(s) / s.seconds / full);
            if x >= 1.0 && y > 0.0 {
                buckets.entry(x.log2().floor() as i64).or_default().push((x, y.clamp(1e-6, 1e3)));
            }
        }
        let mean = |points: Vec<(f64, f64)>| match points[..] {
            [point] => point,
            _ => {
                let n = points.len() as f64;
                let (x, y) = points.iter().fold((0.0, 0.0), |sum, p| (sum.0 + p.0.ln(), sum.1 + p.1.ln()));
                ((x / n).exp(), (y / n).exp().clamp(1e-6, 1e3))
            }
        };
        buckets.into_values().map(mean).collect()
    }

    /// Latency of one message and bandwidth each way, from ring all-reduces of n ranks: seconds = 2(n−1) latency +
    /// 2(n−1)/n · bytes / bandwidth. Least squares on relative errors, so that small messages count as much as large.
    fn all_reduce_line(&self) -> Option<(f64, f64)> {
        let row = |s: &ProfileSample| {
            let ranks: u32 = s.name.strip_prefix("all_reduce ")?.trim().parse().ok()?;
            let sound = (2..=1 << 16).contains(&ranks)
                && s.seconds.is_finite()
                && s.seconds > 1e-12
                && s.bytes.get() > 0;
            let steps = f64::from(2 * (ranks.max(1) - 1));
            sound.then(|| (steps / s.seconds, steps / f64::from(ranks) * s.bytes.f64() / s.seconds))
        };
        let rows: Vec<(f64, f64)> = self.all.iter().filter_map(row).collect();
        // Normal equations of a·latency + b·pace = 1 for each row (a, b), with pace = 1 / bandwidth.
        let sum = |f: fn(&(f64, f64)) -> f64| rows.iter().map(f).sum::<f64>();
        let (aa, ab, bb) = (sum(|r| r.0 * r.0), sum(|r| r.0 * r.1), sum(|r| r.1 * r.1));
        let (a, b) = (sum(|r| r.0), sum(|r| r.1));
        if rows.is_empty() || aa <= 0.0 || bb <= 0.0 {
            return None;
        }
        let determinant = aa * bb - ab * ab;
        let free = (determinant > 1e-9 * aa * bb)
            .then(|| ((a * bb - b * ab) / determinant, (b * aa - a * ab) / determinant))
            .filter(|(latency, pace)| *latency >= 0.0 && *pace > 0.0);
        // One size only, or noise that makes a term negative: all of the time goes to bandwidth.
        let (latency, pace) = free.unwrap_or((0.0, b / bb));
        Some((latency, 1.0 / pace)).filter(|(l, w)| l.is_finite() && w.is_finite())
    }
}
