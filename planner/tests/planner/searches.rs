//! Whole searches on fixture models and clusters.

use crate::fixtures::{self, GPT2_XL, LLAMA_8B, LLAMA_70B, Sizes, TINY};
use expect_test::expect;
use meshwright_algebra::schedules::{in_flight, order};
use meshwright_algebra::{BlockCode, Shapes, StageBlock, StageShape, expand, recompute, stage_memory};
use meshwright_cost_models::CostModel;
use meshwright_ir::{Algorithm, Bytes, Job, Model, Objective, Plan, Recompute, SearchReport, StateSharding};
use meshwright_planner::{Verdict, search};

fn found(job: &Job) -> (Vec<Plan>, SearchReport) {
    match search(job, &|_| ()) {
        Verdict::Plans { plans, report } => (plans, report),
        Verdict::NoFit { why, smallest_change, .. } => panic!("no fit: {why:?}; {smallest_change}"),
    }
}

fn refused(job: &Job) -> (Vec<String>, String) {
    match search(job, &|_| ()) {
        Verdict::Plans { plans, .. } => panic!("a plan fits: {}", plans[0].mesh),
        Verdict::NoFit { why, smallest_change, .. } => (why, smallest_change),
    }
}

fn small() -> Job {
    fixtures::job(fixtures::llama(LLAMA_8B), fixtures::h100(2), 4096, 64, "")
}

#[test]
fn seventy_billion_on_512_takes_few_block_problems() {
    let job = fixtures::job(fixtures::llama(LLAMA_70B), fixtures::h100(64), 8192, 1024, "");
    let (plans, report) = found(&job);
    assert!(report.solved < 6000, "{} block problems", report.solved);
    assert_eq!(plans.len(), 5);
    sound(&job, &plans, &report);
}

#[test]
fn searches_of_many_shapes_are_sound() {
    let odd = Sizes { heads: 6, kv_heads: 6, hidden: 384, inner: 1000, layers: 5, vocab: 50_257 };
    for (model, nodes, sequence, batch, pins) in [
        (fixtures::llama(LLAMA_8B), 2, 4096, 64, ""),
        (fixtures::llama(LLAMA_8B), 3, 2048, 48, "pp>=2"),
        (fixtures::gpt2(GPT2_XL, 1024), 1, 1024, 32, ""),
        (fixtures::gpt2(GPT2_XL, 1024), 1, 1024, 32, "pp=4,dp=1"),
        (fixtures::gpt2(odd, 100), 3, 99, 36, ""),
        (fixtures::gpt2(TINY, 64), 1, 64, 8, "tp=2,pp=2,schedule=gpipe"),
        (fixtures::llama(TINY), 1, 64, 8, "sp=true"),
    ] {
        let job = fixtures::job(model, fixtures::h100(nodes), sequence, batch, pins);
        let (plans, report) = found(&job);
        sound(&job, &plans, &report);
    }
}

/// What must hold of every plan and report.
fn sound(job: &Job, plans: &[Plan], report: &SearchReport) {
    let limit = CostModel::new(&job.cluster).memory_limit() + job.cluster.device.reserved;
    for (k, plan) in plans.iter().enumerate() {
        plan.check().unwrap();
        assert_eq!(plan.mesh.ranks(), job.search.ranks);
        let p = &plan.prediction;
        assert_eq!(p.memory_limit_bytes, limit);
        assert!(p.peak_memory_bytes.iter().all(|b| *b <= limit));
        assert_eq!(p.peak_memory_bytes, peaks(plan), "{}", plan.mesh);
        assert!(p.lower_bound_s <= p.step_time_band_s.0 && p.step_time_band_s.0 <= p.step_time_s);
        assert!(p.step_time_s <= p.step_time_band_s.1);
        assert!(plans[..k].iter().all(|q| {
            let what =
                |p: &Plan| (p.mesh, p.micro_batch, p.schedule, p.sequence_parallel(), p.state_sharding);
            what(q) != what(plan) && q.prediction.step_time_s <= p.step_time_s
        }));
        ties_agree(&job.model, plan);
    }
    assert_eq!(report.candidates as usize, report.points.len());
    for point in &report.points {
        assert!(point.rejected.is_some() || point.closed_form_s.is_some());
        assert!(point.closed_form_s.is_none_or(|s| s >= plans[0].prediction.lower_bound_s));
    }
    assert!(report.surrogate_gap_s >= 0.0);
}

/// Arena of every stage from the plan alone, on its own mesh.
fn peaks(plan: &Plan) -> Vec<Bytes> {
    let (job, mesh) = (&plan.job, &plan.mesh);
    let batch = plan.micro_batch * u64::from(mesh.replicas());
    let shapes = Shapes { batch, sequence: job.training.sequence };
    let dtype = job.training.precision.compute();
    let hidden = job.model.hidden;
    let codes: Vec<BlockCode> = job
        .model
        .classes
        .iter()
        .zip(&plan.classes)
        .map(|(class, choices)| expand(class, choices, mesh, &shapes, hidden, &plan.boundary, dtype))
        .collect();
    let blocks = job.model.blocks();
    let levelled = |(c, l): (&u32, &meshwright_ir::Recompute)| (*c, recompute(&codes[*c as usize], *l));
    let chain: Vec<(u32, BlockCode)> = blocks.iter().zip(&plan.recompute).map(levelled).collect();
    let whole = [batch, job.training.sequence, hidden];
    let boundary_elements = plan.boundary.local(&whole, mesh).unwrap().iter().product();
    let stages = plan.stages.len() as u32;
    let peak = |(s, stage): (usize, &meshwright_ir::StagePlan)| {
        let tasks = order(plan.schedule, s as u32, stages, plan.micro_batches as u32);
        let shape = StageShape {
            stage: (s as u32, stages),
            in_flight: in_flight(&tasks),
            micro_batches: plan.micro_batches,
            boundary_elements,
            precision: job.training.precision,
            optimizer: job.training.optimizer,
            mesh: *mesh,
            gathering: plan.gathering,
            bucket: plan.bucket,
        };
        let run = &chain[stage.first as usize..][..stage.blocks as usize];
        let block =
            |(class, code)| StageBlock { class, code, storage: &plan.classes[class as usize].storage };
        let run: Vec<StageBlock<'_>> = run.iter().map(|(class, code)| block((*class, code))).collect();
        stage_memory(&job.model, &run, &shape).peak + job.cluster.device.reserved
    };
    plan.stages.iter().enumerate().map(peak).collect()
}

/// A tied parameter lies and is summed alike in both of its blocks.
fn ties_agree(model: &Model, plan: &Plan) {
    let layout = |class: usize, node: usize| {
        let op = &model.classes[class].nodes[node].op;
        let l = meshwright_algebra::layouts(op, &plan.classes[class].strategies[node]);
        (l.params[0].clone(), l.param_gradients[0].partial())
    };
    for (c, class) in model.classes.iter().enumerate() {
        for (n, node) in class.nodes.iter().enumerate() {
            if let Some((oc, on)) = node.tied.as_ref().and_then(|t| model.tied_to(t)) {
                assert_eq!(layout(oc as usize, on as usize), layout(c, n));
            }
        }
    }
}

#[test]
fn one_thread_and_two_find_the_same() {
    let in_pool = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let recomputing = fixtures::job(fixtures::llama(LLAMA_8B), fixtures::h100(1), 8192, 64, "pp>=2");
        let both = pool.install(|| [small(), recomputing].map(|job| found(&job)));
        format!("{both:?}")
    };
    assert!(in_pool(1) == in_pool(2));
}

#[test]
fn progress_only_moves_forward() {
    let told = std::cell::RefCell::new(vec![]);
    search(&small(), &|p| told.borrow_mut().push(p));
    let told = told.into_inner();
    assert!(told.len() > 2 && told.windows(2).all(|w| w[0].done <= w[1].done && w[0].solved <= w[1].solved));
    let last = told.last().unwrap();
    assert!(last.done == last.points && last.best_s.unwrap() >= last.lower_bound_s);
}

#[test]
fn the_best_plan_says_why() {
    let (plans, _) = found(&small());
    expect![[r#"
        pp=1 dp=1 fsdp=16 cp=1 tp=1
        43 plans fit, of 644 points of the space
        closed form 1.47 s: kernels 1.45 s (98 %), exposed communication 7.77 ms (1 %), bubble 0 ps (0 %), gradients 7.69 ms (1 %), update 7.23 ms (0 %)
        peak memory 55.8 GiB of 76.1 GiB, on stage 0
        zero-3 splits weights, gradients and optimizer state among 16 replicas, which saves 119 GiB; weights are gathered for each pass, 2 ahead
        no plan of this space simulates faster than 1.37 s: this one takes 1.1 times that
        dp 1 → 2, fsdp 16 → 8: step +1.0 %, communication +0.2 %, gradients +0.4 %, update +0.4 %, memory +8.66 GiB
        micro-batch 2 → 4, recompute none → selective in 6 of 34 blocks, full in 8 of 34 blocks: step +1.6 %, kernels +1.9 %, communication -0.3 %, memory +20.3 GiB
        dp 1 → 16, fsdp 16 → 1, sharding zero-3 → zero-2: step +2.3 %, communication -0.3 %, update +2.5 %, memory +11.1 GiB
    "#]].assert_eq(&format!("{}\n{}\n", plans[0].mesh, plans[0].why.join("\n")));
}

#[test]
fn every_rejected_point_has_its_reason() {
    let s = Sizes { heads: 12, kv_heads: 6, ..TINY };
    let s = Sizes { hidden: 96, ..s };
    let job = fixtures::job(fixtures::llama(s), fixtures::h100(1), 63, 12, "microbatch<=2,schedule=1f1b");
    let (_, report) = found(&job);
    let mut reasons: Vec<String> = report.points.into_iter().filter_map(|p| p.rejected).collect();
    reasons.sort();
    reasons.dedup();
    reasons.retain(|r| !r.starts_with("bound: "));
    expect![[r#"
        batch: 12 samples do not divide among 8 replicas
        heads: 6 key heads do not divide by tp 4
        heads: 6 key heads do not divide by tp 8
        pinned microbatch<=2
        pinned schedule=1f1b
        sequence: 63 tokens do not divide by tp 2
        stages: 6 blocks do not fill pp 8
    "#]]
    .assert_eq(&(reasons.join("\n") + "\n"));
}

#[test]
fn nothing_fits_until_as_many_nodes_as_said() {
    let model = || fixtures::llama(LLAMA_70B);
    let (why, change) = refused(&fixtures::job(model(), fixtures::h100(1), 4096, 64, ""));
    expect![[r#"
        none of 372 points of the space fits
        closest: tp=8 pp=1 dp=1 micro-batch 1: memory: stage 0 needs 151 GiB of 76.1 GiB at micro-batch 1
        memory: 372 points
        use 3 nodes instead of 1 (24 ranks, tp=1 pp=3 dp=1 fsdp=8 micro-batch 1 zero-3); or give each rank 75.1 GiB more memory (tp=8 pp=1 dp=1 micro-batch 1)
    "#]]
    .assert_eq(&format!("{}\n{change}\n", why.join("\n")));
    let words: Vec<&str> = change.split_whitespace().collect();
    let nodes: u32 = words[1].parse().unwrap();
    found(&fixtures::job(model(), fixtures::h100(nodes), 4096, 64, ""));
    refused(&fixtures::job(model(), fixtures::h100(nodes - 1), 4096, 64, ""));
}

#[test]
fn a_pin_in_the_way_is_named() {
    let job = fixtures::job(
        fixtures::llama(LLAMA_8B),
        fixtures::h100(2),
        4096,
        64,
        "tp=1,pp=1,zero=0,recompute<=selective",
    );
    let (_, change) = refused(&job);
    assert!(change.starts_with("drop the pin tp=1: tp="), "{change}");
}

#[test]
fn recompute_and_zero_obey_their_pins() {
    for (pins, allowed) in [
        ("recompute=full,zero=1", vec![Recompute::Full]),
        ("recompute=selective", vec![Recompute::Selective]),
        ("recompute<=selective,zero=0", vec![Recompute::None, Recompute::Gathers, Recompute::Selective]),
        ("recompute!=none", vec![Recompute::Gathers, Recompute::Selective, Recompute::Full]),
    ] {
        let job = fixtures::job(fixtures::llama(LLAMA_8B), fixtures::h100(2), 4096, 64, pins);
        let (plans, report) = found(&job);
        sound(&job, &plans, &report);
        for plan in &plans {
            let (last, layers) = plan.recompute[1..].split_last().unwrap();
            assert!(layers.iter().all(|l| allowed.contains(l)), "{pins}: {}", plan.recompute_summary());
            assert_eq!((plan.recompute[0], *last), (Recompute::None, Recompute::None), "embedding and head");
            let zero = plan.state_sharding == StateSharding::Zero1;
            assert!(!(pins.ends_with("zero=1") && !zero || pins.ends_with("zero=0") && zero));
        }
    }
    let pins = "recompute>=full,recompute<=none";
    let (why, change) = refused(&fixtures::job(fixtures::llama(LLAMA_8B), fixtures::h100(2), 4096, 64, pins));
    assert!(why.iter().any(|w| w.starts_with("pinned recompute")), "{why:?}");
    assert!(change.starts_with("drop the pin recompute>=full: "), "{change}");
}

/// A plan that recomputes says for what; the faster levels are taken where they fit.
#[test]
fn memory_that_is_short_is_bought_with_the_least_time() {
    let job = |pins: &str| fixtures::job(fixtures::llama(LLAMA_8B), fixtures::h100(1), 8192, 64, pins);
    let shape = "tp=2,pp=4,dp=1,microbatch=4,sp=true,schedule=1f1b";
    let step = |pins: &str| found(&job(pins)).0.remove(0);
    let mixed = step(shape);
    for level in ["none", "full"] {
        let one = step(&format!("{shape},recompute={level}"));
        assert!(mixed.prediction.step_time_s < one.prediction.step_time_s, "{level}");
    }
    let levels: std::collections::BTreeSet<_> = mixed.recompute.iter().collect();
    assert!(levels.len() > 1, "{}", mixed.recompute_summary());
    let lines: Vec<&String> = mixed.why.iter().filter(|w| w.starts_with("recompute ")).collect();
    expect!["recompute full in 4 of 9 blocks saves 30.4 GiB on stage 0 for 9.8 % of time"]
        .assert_eq(lines[0]);
}

#[test]
fn the_memory_objective_finds_less_memory() {
    let peak = |p: &Plan| p.prediction.peak_memory_bytes.iter().copied().max();
    let (fast, _) = found(&small());
    let mut job = small();
    job.search.objective = Objective::Memory;
    let (lean, _) = found(&job);
    assert!(peak(&lean[0]) < peak(&fast[0]));
    assert!(lean[0].prediction.step_time_s >= fast[0].prediction.step_time_s);
}

#[test]
fn work_limits_stop_at_the_same_place() {
    let mut job = small();
    job.search.work_limit = 40;
    let (plans, report) = found(&job);
    assert!(report.solved >= 40);
    let untried = |r: &SearchReport| {
        r.points.iter().filter(|p| p.rejected.as_ref().is_some_and(|r| r.starts_with("not tried"))).count()
    };
    assert!(untried(&report) > 0);
    assert!(plans[0].prediction.step_time_s >= found(&small()).0[0].prediction.step_time_s);
}

#[test]
fn one_rank_has_a_plan_too() {
    let job = fixtures::job(fixtures::gpt2(TINY, 64), fixtures::host(1, 1), 64, 6, "");
    let (plans, report) = found(&job);
    sound(&job, &plans, &report);
    assert!(plans[0].algorithms.is_empty() && plans[0].boundary.to_string() == "(-,-,-)");
}

#[test]
fn ranks_of_one_host_share_its_cores() {
    let cluster = fixtures::host(4, 2);
    let job = fixtures::job(fixtures::gpt2(TINY, 64), cluster, 64, 16, "");
    let (plans, report) = found(&job);
    sound(&job, &plans, &report);
    assert!(plans.iter().all(|p| p.algorithms.values().all(|a| *a == Algorithm::Direct)));
}
