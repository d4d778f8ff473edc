//! What the planner promises of its plans, against lowering and simulation: no plan simulates faster than its bound or
//! than the bound of the whole space, and planned peaks are those of the program, to the byte.

use crate::plans;
use meshwright_cost_models::CostModel;
use meshwright_ir::{
    Cluster, Job, Model, Optimizer, Pin, Plan, Precision, Recompute, Run, Schedule, Search, Source,
    StagePlan, StateSharding, Training,
};
use meshwright_planner::{Verdict, lower_bound, search};
use meshwright_simulator::{Options, simulate};

pub(crate) fn job(
    model: Model,
    cluster: Cluster,
    sequence: u64,
    global_batch: u64,
    precision: Precision,
    pins: &str,
) -> Job {
    let source = Source { name: "test".into(), hash: String::new() };
    let job = Job {
        model_source: source.clone(),
        model,
        cluster_source: source,
        search: Search {
            objective: Default::default(),
            pins: Pin::parse_list(pins).unwrap(),
            ranks: cluster.ranks(),
            top: 3,
            work_limit: 0,
        },
        cluster,
        training: Training {
            sequence,
            global_batch,
            precision,
            optimizer: Optimizer::Adamw,
            learning_rate: 1e-3,
            warmup: 0,
            weight_decay: 0.1,
            clip: 1.0,
            seed: 1,
        },
        run: Run::default(),
    };
    job.check().unwrap();
    job
}

/// Lowers and simulates a plan; its step time in seconds. Its peaks must be those predicted.
pub(crate) fn simulated(plan: &Plan) -> f64 {
    let peaks = meshwright_lowering::planned_peaks(plan).unwrap();
    let reserved = plan.job.cluster.device.reserved;
    let predicted: Vec<_> =
        plan.prediction.peak_memory_bytes.iter().map(|p| p.saturating_sub(reserved)).collect();
    assert_eq!(peaks, predicted, "{}", plan.mesh);
    let program = meshwright_lowering::lower(plan).unwrap().check().unwrap();
    let options = Options::auto(&program);
    simulate(&program, &CostModel::new(&plan.job.cluster), &options).step_time.seconds()
}

/// A node of small GPUs: so many bytes each.
fn gpus(ranks: u32, memory: u64) -> Cluster {
    let mut cluster = plans::cluster(ranks);
    cluster.device.memory = meshwright_ir::Bytes(memory);
    cluster
}

/// A host whose cores ranks share.
pub(crate) fn host(ranks: u32, cores: u32, memory: u64) -> Cluster {
    let text = format!(
        r#"
        name = "host"
        devices_per_node = 1
        ranks_per_device = {ranks}
        levels = [{{ name = "memory", size = 1, bandwidth = 4e9, latency = 2000000, efficiency = 1.0 }}]
        [device]
        name = "host"
        kind = "cpu"
        memory = {memory}
        reserved = 1000000
        memory_bandwidth = 2e10
        core_bandwidth = 1.2e10
        cores = {cores}
        launch = 1000000
        peak = {{ f32 = 5e10 }}
        "#
    );
    meshwright_zoo::cluster_from_toml("host.toml", &text, None).unwrap()
}

/// Deterministic pseudo-random choice.
struct Random(u64);

impl Random {
    fn of<T: Clone>(&mut self, all: &[T]) -> T {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        all[(self.0 >> 33) as usize % all.len()].clone()
    }
}

const PINS: [&str; 12] = [
    "",
    "",
    "zero=1",
    "zero=0",
    "recompute=full",
    "recompute=selective",
    "recompute<=selective",
    "pp>=2",
    "pp>=2,zero=1,recompute=full",
    "tp>=2",
    "schedule=gpipe,microbatch=1",
    "dp>=2,recompute!=none",
];

#[test]
fn no_plan_simulates_faster_than_its_bound() {
    let mut random = Random(3);
    let (mut plans_seen, mut refused, mut split, mut mixed) = (0, 0, 0, 0);
    for case in 0..200 {
        let layers = random.of(&[1, 2, 3, 5]);
        let model = if random.of(&[true, false]) { plans::gpt(layers) } else { plans::qwen(layers) };
        let ranks = random.of(&[1, 2, 4, 8]);
        let shared = random.of(&[true, false]);
        let memory = random.of(&[1_200_000, 1_600_000, 2_400_000, 80_000_000]);
        let cluster = match shared {
            true => host(ranks, random.of(&[1, 2, 3]), memory * u64::from(ranks)),
            false => gpus(ranks, memory),
        };
        let precision = if shared { Precision::Fp32 } else { random.of(&[Precision::Fp32, Precision::Bf16]) };
        let pins = random.of(&PINS);
        let batch = random.of(&[4, 8, 16]);
        let job = job(model, cluster, 16, batch, precision, pins);
        let Verdict::Plans { plans, .. } = search(&job, &|_| ()) else {
            refused += 1;
            continue;
        };
        for plan in &plans {
            let (step, p) = (simulated(plan), &plan.prediction);
            let what = format!("case {case}: {} {pins} {}", job.model.name, plan.mesh);
            assert!(step >= p.step_time_band_s.0, "{what}: {step} s under {} s", p.step_time_band_s.0);
            assert!(step >= p.lower_bound_s, "{what}: {step} s under {} s", p.lower_bound_s);
            split += u32::from(plan.state_sharding == StateSharding::Zero1);
            let levels: std::collections::BTreeSet<_> = plan.recompute.iter().collect();
            mixed += u32::from(levels.len() > 1);
        }
        plans_seen += plans.len();
    }
    assert!(plans_seen > 200 && refused < 150, "{plans_seen} plans, {refused} jobs refused");
    assert!(split > 20 && mixed > 20, "{split} with split states, {mixed} that recompute in part");
}

/// Plans that no search would choose: strategies, storages, levels of recomputation and cuts drawn at random, on tiny
/// models and machines from where launches take the time to where bytes do.
#[test]
fn no_random_plan_simulates_faster_than_its_bound() {
    let mut random = Random(17);
    let models = [plans::gpt(1), plans::gpt(2), plans::qwen(1), plans::qwen(2)];
    let mut split = 0;
    let (mut seen, mut nearest) = (0, f64::INFINITY);
    for case in 0..PLANS {
        let Some(plan) = drawn(&mut random, &models) else { continue };
        let program = meshwright_lowering::lower(&plan).unwrap().check().unwrap();
        let cost = CostModel::new(&plan.job.cluster);
        let options = Options::auto(&program);
        let step = simulate(&program, &cost, &options).step_time;
        let bound = lower_bound(&plan);
        let what = format!("plan {case}: {} {} {}", plan.job.model.name, plan.mesh, plan.schedule);
        assert!(step >= bound, "{what}: {step} under {bound}: {plan:?}");
        seen += 1;
        nearest = nearest.min(step.get() as f64 / bound.get() as f64);
        split += u32::from(plan.state_sharding != StateSharding::None);
    }
    assert!(
        seen >= 10_000 && split > 2_000 && nearest < 1.5,
        "{seen} plans, {split} split, nearest {nearest:.2}"
    );
}

/// Plans drawn; a few have no conversion between their layouts.
const PLANS: u32 = 10_500;

fn drawn(random: &mut Random, models: &[Model]) -> Option<Plan> {
    let model = random.of(models);
    let (dp, fsdp, tp, pp) = random.of(&[
        (1, 1, 1, 1),
        (2, 1, 1, 1),
        (1, 1, 2, 1),
        (1, 1, 1, 2),
        (2, 1, 2, 1),
        (1, 2, 1, 1),
        (2, 2, 1, 1),
        (1, 2, 1, 2),
        (1, 1, 2, 2),
        (1, 1, 4, 1),
        (2, 1, 1, 3),
    ]);
    let (micro_batch, m) = (random.of(&[1, 1, 2]), random.of(&[1, 2, 3, 4]));
    let shape = plans::Shape {
        model,
        dp,
        fsdp,
        tp,
        pp,
        sp: random.of(&[true, false]),
        micro_batch,
        global_batch: u64::from(dp * fsdp) * micro_batch * m,
        sequence: random.of(&[4, 16]),
        schedule: random.of(Schedule::ALL),
    };
    let mut plan = plans::plan(&shape, &mut |_, _, legal| random.of(&(0..legal.len()).collect::<Vec<_>>()))?;
    crate::sharding::drawn(&mut plan, |n| random.of(&(0..n).collect::<Vec<_>>()));
    let model = &plan.job.model;
    let blocks = model.blocks();
    for (level, class) in plan.recompute.iter_mut().zip(&blocks) {
        let class = &model.classes[*class as usize];
        if class.has_input() && !class.ends_in_loss() {
            *level = random.of(Recompute::ALL);
        }
    }
    // Any cut into stages of at least one block.
    let mut cuts: Vec<u32> = (1..blocks.len() as u32).collect();
    while cuts.len() as u32 >= pp {
        let k = random.of(&(0..cuts.len()).collect::<Vec<_>>());
        cuts.remove(k);
    }
    let ends = cuts.iter().copied().chain([blocks.len() as u32]);
    let stage = |(first, end): (u32, u32)| StagePlan { first, blocks: end - first };
    plan.stages = [0].into_iter().chain(cuts.iter().copied()).zip(ends).map(stage).collect();
    let ranks = plan.mesh.ranks();
    plan.job.cluster = match random.of(&[true, false]) {
        true => host(ranks, random.of(&[1, 2, 3]), 80_000_000 * u64::from(ranks)),
        false => gpus(ranks, 80_000_000_000),
    };
    plan.job.cluster.device.launch = meshwright_ir::Time(random.of(&[0, 10_000, 5_000_000]));
    plan.job.cluster.levels[0].latency = meshwright_ir::Time(random.of(&[0, 1_000_000]));
    plan.job.training.clip = random.of(&[0.0, 1.0]);
    if plan.job.cluster.device.peak.contains_key(&meshwright_ir::DType::Bf16) {
        plan.job.training.precision = random.of(&[Precision::Fp32, Precision::Bf16]);
    }
    Some(plan)
}

/// Four ranks on two cores: the bound counts what all of them compute.
#[test]
#[allow(clippy::print_stdout)]
fn the_bound_of_a_crowded_host_is_near() {
    let model = meshwright_zoo::model("gpt-nano", std::path::Path::new("")).unwrap().0;
    let job = job(model, host(4, 2, 8_000_000_000), 128, 16, Precision::Fp32, "");
    let Verdict::Plans { plans, .. } = search(&job, &|_| ()) else { panic!("gpt-nano fits") };
    let step = plans.iter().map(simulated).fold(f64::INFINITY, f64::min);
    let bound = plans[0].prediction.lower_bound_s;
    println!("gpt-nano on 4 ranks of 2 cores: bound {bound:.4} s, simulated {step:.4} s");
    assert!(bound <= step && bound >= 0.85 * step, "bound {bound} s, simulated {step} s");
}
