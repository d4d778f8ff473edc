//! Costs against closed forms, and properties that no cluster may break.

use meshwright_algebra::Work;
use meshwright_algebra::collectives::{ALGORITHMS, closed_form, effective};
use meshwright_cost_models::CostModel;
use meshwright_ir::program::{CollectiveKind, Kernel, OpKernel, Pass};
use meshwright_ir::{
    Algorithm, AxisSet, Bandwidth, Bytes, Cluster, Curve, DType, Device, DeviceKind, FlopRate, Flops, Level,
    Op, Time, WorkClass,
};
use proptest::prelude::*;
use std::collections::BTreeMap;

const KINDS: [CollectiveKind; 5] = [
    CollectiveKind::AllReduceSum,
    CollectiveKind::AllReduceMax,
    CollectiveKind::AllGather,
    CollectiveKind::ReduceScatter,
    CollectiveKind::AllToAll,
];

fn bandwidth(x: f64) -> Bandwidth {
    Bandwidth::try_from(x).unwrap()
}

fn level(name: &str, size: u32, gb: f64, micros: u64, efficiency: f64) -> Level {
    Level {
        name: name.into(),
        size,
        bandwidth: bandwidth(gb * 1e9),
        latency: Time::micros(micros),
        efficiency,
    }
}

/// Round numbers of an 8-GPU node behind InfiniBand.
fn gpus(levels: Vec<Level>) -> Cluster {
    let rate = |x| FlopRate::try_from(x).unwrap();
    Cluster {
        name: "test".into(),
        device: Device {
            name: "gpu".into(),
            kind: DeviceKind::Gpu,
            memory: Bytes::gib(80),
            reserved: Bytes::gib(2),
            peak: BTreeMap::from([(DType::F32, rate(50e12)), (DType::Bf16, rate(1000e12))]),
            memory_bandwidth: bandwidth(3e12),
            core_bandwidth: None,
            cores: 1,
            launch: Time::micros(5),
            host: meshwright_ir::Host::default(),
            curves: vec![Curve { class: WorkClass::Matmul, points: vec![(1e9, 0.25), (1e11, 0.75)] }],
            price_per_hour: Some(3.6),
            watts: Some(700.0),
        },
        devices_per_node: levels[0].size,
        levels,
        ranks_per_device: 1,
        sources: BTreeMap::new(),
    }
}

fn two_levels() -> Cluster {
    gpus(vec![level("nvlink", 8, 400.0, 3, 0.75), level("infiniband", 8, 50.0, 10, 0.5)])
}

fn host(ranks: u32, cores: u32) -> Cluster {
    let mut cluster = gpus(vec![level("memory", 1, 10.0, 2, 1.0)]);
    cluster.ranks_per_device = ranks;
    cluster.device.kind = DeviceKind::Cpu;
    cluster.device.cores = cores;
    cluster.device.memory_bandwidth = bandwidth(40e9);
    cluster.device.core_bandwidth = Some(bandwidth(12e9));
    cluster
}

fn linear(b: u64, s: u64, i: u64, o: u64, dtype: DType) -> Kernel {
    Kernel::Op(OpKernel {
        op: Op::Linear { input: i, output: o, input_grain: 1, output_grain: 1 },
        pass: Pass::Forward,
        extents: vec![b, s, i, o],
        axes: vec![AxisSet::EMPTY; 4],
        accumulate: false,
        dtype,
    })
}

#[test]
fn ring_all_reduce_in_a_node_is_the_textbook_formula() {
    let cost = CostModel::new(&two_levels());
    let time =
        cost.collective(CollectiveKind::AllReduceSum, Algorithm::Ring, Bytes(8_000_000), &[0, 1, 2, 3]);
    // 2·3 rounds of 3 µs, and 2·3/4 of 8 MB at 400·0.75 GB/s.
    assert_eq!(time, Time::micros(18) + Time::from_seconds(12e6 / 300e9));
}

#[test]
fn a_ring_across_nodes_counts_hops_by_level_and_ports_by_members() {
    let cost = CostModel::new(&two_levels());
    let ring = |ranks: &[u32]| {
        cost.collective_cost(CollectiveKind::AllGather, Algorithm::Ring, Bytes(16_000_000), ranks)
    };
    // Two whole nodes: 15 of 16 hops, two of them outer; eight NICs of 25 GB/s carry less than NVLink's 300.
    let all: Vec<u32> = (0..16).collect();
    assert_eq!(ring(&all).latency, Time::micros(13 * 3 + 2 * 10));
    assert_eq!(ring(&all).work, Time::from_seconds(15e6 / 200e9));
    // One member per node: one NIC each, every hop outer.
    assert_eq!(ring(&[0, 8, 16, 24]).latency, Time::micros(30));
    assert_eq!(ring(&[0, 8, 16, 24]).work, Time::from_seconds(12e6 / 25e9));
    // Order of naming does not matter.
    assert_eq!(ring(&[24, 0, 16, 8]), ring(&[0, 8, 16, 24]));
}

#[test]
fn direct_uses_both_levels_at_once() {
    let cost = CostModel::new(&two_levels());
    let all: Vec<u32> = (0..16).collect();
    let found = cost.collective_cost(CollectiveKind::AllToAll, Algorithm::Direct, Bytes(16_000_000), &all);
    // One megabyte to each of 7 peers inside and 8 outside.
    assert_eq!(found.work, Time::from_seconds(8e6 / 25e9));
    assert_eq!(found.latency, Time::micros(7 * 3 + 8 * 10));
    assert_eq!(found.bytes, Bytes(2 * 15_000_000));
}

#[test]
fn on_one_level_every_algorithm_costs_its_rounds_and_volume() {
    let cost = CostModel::new(&gpus(vec![level("switch", 32, 100.0, 7, 0.5)]));
    for kind in KINDS {
        for entry in ALGORITHMS {
            for n in 1..=17u32 {
                let ranks: Vec<u32> = (0..n).collect();
                let bytes = Bytes(u64::from(n) * 1_000_000);
                let form = closed_form(kind, effective(kind, entry.algorithm), n).unwrap();
                let expected = Time::micros(7) * u64::from(form.rounds)
                    + Time::from_seconds(form.volume(bytes).f64() / 50e9);
                let found = cost.collective(kind, entry.algorithm, bytes, &ranks);
                assert!(found.get().abs_diff(expected.get()) <= 1, "{kind} {} over {n}", entry.algorithm);
            }
        }
    }
}

#[test]
fn a_tree_beats_a_ring_on_small_tensors_only() {
    let cost = CostModel::new(&two_levels());
    let all: Vec<u32> = (0..64).collect();
    let time = |a, b| cost.collective(CollectiveKind::AllReduceSum, a, Bytes(b), &all);
    assert!(time(Algorithm::Tree, 1024) < time(Algorithm::Ring, 1024));
    assert!(time(Algorithm::Tree, 1 << 30) > time(Algorithm::Ring, 1 << 30));
}

#[test]
fn messages_cost_their_level() {
    let cost = CostModel::new(&two_levels());
    assert_eq!(cost.exchange(Bytes(3_000_000), 0, 1), Time::micros(3) + Time::micros(10));
    assert_eq!(cost.exchange(Bytes(3_000_000), 0, 8), Time::micros(10) + Time::micros(120));
}

#[test]
fn matmuls_follow_the_curve_and_their_own_peak() {
    let cost = CostModel::new(&two_levels());
    // 2·10^10 FLOP: log-halfway between the points is 0.5 at 10^10; here 0.25 + 0.5·log(20)/log(100).
    let efficiency = 0.25 + 0.5 * 20f64.ln() / 100f64.ln();
    let time = |dtype| cost.kernel(&linear(1, 10_000, 1000, 1000, dtype)).time;
    let expected = |peak: f64| Time::micros(5) + Time::from_seconds(2e10 / efficiency / peak);
    assert_eq!(time(DType::Bf16), expected(1000e12));
    assert_eq!(time(DType::F32), expected(50e12));
    // No fp16 peak: its twin's of the same width. No fp8 peak: the nearest wider one.
    assert_eq!(cost.peak(DType::F16), cost.peak(DType::Bf16));
    assert_eq!(cost.peak(DType::F8), cost.peak(DType::Bf16));
    // A thin product is bound by its bytes.
    let thin = cost.kernel(&linear(1, 1, 10_000, 10_000, DType::Bf16));
    assert!(thin.time > Time::micros(5) + bandwidth(3e12).time(Bytes(200_000_000)));
}

#[test]
fn everything_else_moves_bytes() {
    let mut cluster = two_levels();
    let add = Kernel::Add { elements: 1_000_000, dtype: DType::F32 };
    let time = |c: &Cluster| CostModel::new(c).kernel(&add).time;
    assert_eq!(time(&cluster), Time::micros(5) + Time::micros(4));
    cluster.device.curves.push(Curve { class: WorkClass::Memory, points: vec![(1.0, 0.5)] });
    assert_eq!(time(&cluster), Time::micros(5) + Time::micros(8));
}

#[test]
fn a_host_is_shared() {
    let cost = CostModel::new(&host(4, 2));
    assert!(cost.shares_devices() && !CostModel::new(&two_levels()).shares_devices());
    assert_eq!((cost.crowding(1), cost.crowding(2), cost.crowding(4)), (1.0, 1.0, 2.0));
    assert_eq!(cost.rank_bandwidth(), bandwidth(12e9));
    let found = cost.collective_cost(
        CollectiveKind::AllReduceSum,
        Algorithm::Direct,
        Bytes(4_000_000),
        &[0, 1, 2, 3],
    );
    assert_eq!((found.latency, found.work), (Time::micros(4), Time::micros(600)));
    assert_eq!(found.bytes, Bytes(12_000_000));
    // A quarter of 80 GiB each, less the reserve, less 5 %.
    assert_eq!(cost.memory_limit(), Bytes(Bytes::gib(18).get() - Bytes::gib(18).get() / 20));
}

#[test]
fn money_and_energy_follow_devices() {
    let cost = CostModel::new(&two_levels());
    let step = Time::from_seconds(2.0);
    assert!((cost.dollars(step, 8).unwrap() - 0.016).abs() < 1e-12);
    assert!((cost.joules(step, 8).unwrap() - 11_200.0).abs() < 1e-9);
    let mut free = two_levels();
    (free.device.price_per_hour, free.device.watts) = (None, None);
    assert_eq!(CostModel::new(&free).dollars(step, 8).or(CostModel::new(&free).joules(step, 8)), None);
}

/// Any curve: rising x, efficiencies in any order.
fn curves() -> impl Strategy<Value = Vec<(f64, f64)>> {
    prop::collection::vec((0.1f64..3.0, 0.01f64..1.0), 1..6).prop_map(|steps| {
        let rise = |x: &mut f64, (step, y): (f64, f64)| {
            *x += step;
            Some((10f64.powf(*x), y))
        };
        steps.into_iter().scan(2.0, rise).collect()
    })
}

fn groups() -> impl Strategy<Value = Vec<u32>> {
    prop::collection::btree_set(0u32..64, 1..20).prop_map(|s| s.into_iter().collect())
}

proptest! {
    #[test]
    fn more_work_never_takes_less_time(
        points in curves(), class in 0usize..4, a in 1u64..1 << 45, b in 1u64..1 << 45,
    ) {
        let class = [WorkClass::Matmul, WorkClass::AttentionBackward, WorkClass::Memory, WorkClass::Norm][class];
        let mut cluster = two_levels();
        cluster.device.curves = vec![Curve { class, points }];
        let cost = CostModel::new(&cluster);
        let time = |n: u64| {
            cost.work(&Work { class, flops: Flops(n), bytes: Bytes(n / 7), dtype: DType::Bf16 }).time
        };
        prop_assert!(time(a.min(b)) <= time(a.max(b)));
    }

    #[test]
    fn collectives_never_gain_from_bytes_nor_lose_from_bandwidth(
        ranks in groups(), kind in 0usize..5, algorithm in 0usize..3, a in 0u64..1 << 40, b in 0u64..1 << 40,
        faster in 0usize..2, factor in 1.0f64..8.0,
    ) {
        let (kind, algorithm) = (KINDS[kind], ALGORITHMS[algorithm].algorithm);
        let slow = CostModel::new(&two_levels());
        let mut better = two_levels();
        better.levels[faster].bandwidth = bandwidth(better.levels[faster].bandwidth.get() * factor);
        let time = |c: &CostModel, n| c.collective(kind, algorithm, Bytes(n), &ranks);
        prop_assert!(time(&slow, a.min(b)) <= time(&slow, a.max(b)));
        prop_assert!(time(&CostModel::new(&better), a) <= time(&slow, a));
        prop_assert_eq!(time(&slow, a) == Time::ZERO, ranks.len() == 1);
    }

    #[test]
    fn curves_stay_between_their_points(points in curves(), x in 1.0f64..1e18) {
        let (low, high) = points.iter().fold((1.0f64, 0.0f64), |(l, h), p| (l.min(p.1), h.max(p.1)));
        let y = Curve { class: WorkClass::Memory, points }.at(x);
        prop_assert!(low - 1e-12 <= y && y <= high + 1e-12);
    }
}

/// The test cluster with an interpreter that takes 50 us an op.
fn eager() -> Cluster {
    let mut cluster = two_levels();
    cluster.device.host.dispatch = Time::micros(50);
    cluster.device.host.step = Time::micros(700);
    cluster
}

#[test]
fn an_empty_kernel_costs_its_dispatches() {
    use meshwright_cost_models::{dispatching, once_per_step};
    let model = CostModel::new(&eager());
    assert_eq!(model.kernel(&dispatching(6)).time, Time::micros(300));
    assert_eq!(model.kernel(&once_per_step()).time, Time::micros(700));
    assert_eq!(model.kernel(&dispatching(6)).bytes, Bytes::ZERO);
}

proptest! {
    #[test]
    fn aligned_products_gain_nothing_from_shrinking(m in 1u64..64, n in 1u64..512, k in 1u64..512, more in 1u64..64) {
        let model = CostModel::new(&two_levels());
        let time = |m: u64, n: u64, k: u64| model.kernel(&linear(1, 8 * m, 8 * k, 8 * n, DType::Bf16)).time;
        prop_assert!(time(m + more, n, k) >= time(m, n, k));
        prop_assert!(time(m, n + more, k) >= time(m, n, k));
        prop_assert!(time(m, n, k + more) >= time(m, n, k));
    }

    #[test]
    fn faster_parts_are_never_slower(m in 1u64..512, n in 1u64..1024, k in 1u64..1024, factor in 1.0f64..8.0) {
        let slow = two_levels();
        let mut fast = slow.clone();
        fast.device.peak.values_mut().for_each(|p| *p = p.scaled(factor));
        fast.device.memory_bandwidth = fast.device.memory_bandwidth.scaled(factor);
        fast.levels.iter_mut().for_each(|l| l.bandwidth = l.bandwidth.scaled(factor));
        let (slow, fast) = (CostModel::new(&slow), CostModel::new(&fast));
        let kernel = linear(1, m, k, n, DType::Bf16);
        prop_assert!(fast.kernel(&kernel).time <= slow.kernel(&kernel).time);
        prop_assert!(fast.exchange(Bytes(m * n), 0, 9) <= slow.exchange(Bytes(m * n), 0, 9));
    }
}
