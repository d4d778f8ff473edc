//! Whole searches on fixture models and clusters.

use crate::fixtures::{self, GPT2_XL, LLAMA_8B, LLAMA_70B, Sizes, TINY};
use expect_test::expect;
use meshwright_algebra::schedules::{in_flight, order};
use meshwright_algebra::{BlockCode, Shapes, StageShape, expand, stage_memory};
use meshwright_cost_models::CostModel;
use meshwright_ir::{Algorithm, Axis, Bytes, Job, Model, Objective, Plan, SearchReport};
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
fn seventy_billion_on_512_in_seconds() {
    let job = fixtures::job(fixtures::llama(LLAMA_70B), fixtures::h100(64), 8192, 1024, "");
    let start = std::time::Instant::now();
    let (plans, report) = found(&job);
    assert!(start.elapsed().as_secs_f64() < 6.0, "{:?}", start.elapsed());
    assert!(report.solved < 3000, "{} block problems", report.solved);
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
            let what = |p: &Plan| (p.mesh, p.micro_batch, p.schedule, p.sequence_parallel());
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
    let batch = plan.micro_batch * u64::from(mesh.degree(Axis::Dp));
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
    let whole = [batch, job.training.sequence, hidden];
    let boundary_elements = plan.boundary.local(&whole, mesh).unwrap().iter().product();
    let (blocks, stages) = (job.model.blocks(), plan.stages.len() as u32);
    let peak = |(s, stage): (usize, &meshwright_ir::StagePlan)| {
        let tasks = order(plan.schedule, s as u32, stages, plan.micro_batches as u32);
        let shape = StageShape {
            stage: (s as u32, stages),
            in_flight: in_flight(&tasks),
            micro_batches: plan.micro_batches,
            boundary_elements,
            precision: job.training.precision,
            optimizer: job.training.optimizer,
        };
        let run = &blocks[stage.first as usize..][..stage.blocks as usize];
        stage_memory(&job.model, &codes, run, &shape).peak + job.cluster.device.reserved
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
        let (plans, report) = pool.install(|| found(&small()));
        format!("{plans:?} {report:?}")
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
        pp=1 dp=4 fsdp=1 cp=1 tp=4
        the best of 60 plans that fit, of 230 points of the space
        step 1.86 s: kernels 1.65 s (89 %), exposed communication 162 ms (9 %), bubble 0 ps (0 %), gradients 12.5 ms (1 %), update 35.4 ms (2 %)
        peak memory 76.0 GiB of 76.1 GiB, on stage 0
        no plan of this space simulates faster than 1.37 s: this one is within 35.4 % of that
        tp 4 → 2, pp 1 → 2, micro-batch 4 → 1: step +2.0 %, kernels +3.1 %, communication -6.8 %, bubble +5.6 %, gradients -0.2 %, update +0.3 %, memory -3.56 GiB
        tp 4 → 2, pp 1 → 2, micro-batch 4 → 2, sp true → false: step +2.3 %, kernels -1.9 %, communication -5.9 %, bubble +11.0 %, gradients -0.3 %, update -0.6 %, memory -15.4 GiB
        sp true → false: step +3.5 %, kernels +2.7 %, communication +1.4 %, update -0.6 %, memory -8.72 GiB
        tp 4 → 2, dp 4 → 8, micro-batch 4 → 8: step -4.3 %, kernels -5.8 %, communication +0.8 %, gradients +0.1 %, update +0.6 %, memory +85.4 GiB: does not fit (memory: stage 0 needs 161 GiB of 76.1 GiB at micro-batch 8)
        tp 4 → 2, dp 4 → 8, micro-batch 4 → 8, sp true → false: step -2.7 %, kernels -5.0 %, communication +1.6 %, gradients +0.1 %, update +0.6 %, memory +89.8 GiB: does not fit (memory: stage 0 needs 166 GiB of 76.1 GiB at micro-batch 8)
        tp 4 → 1, pp 1 → 2, dp 4 → 8, micro-batch 4 → 1, sp true → false: step -2.4 %, kernels -4.8 %, communication -8.7 %, bubble +10.3 %, gradients +0.1 %, update +0.7 %, memory +15.6 GiB: does not fit (memory: stage 0 needs 91.6 GiB of 76.1 GiB at micro-batch 1)
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
        global batch 12 does not divide by dp 8
        heads: 6 key heads do not divide by tp 4
        heads: 6 key heads do not divide by tp 8
        pinned microbatch<=2
        pinned schedule=1f1b
        sequence 63 does not divide by tp 2
        stages: 6 blocks do not fill pp 8
    "#]]
    .assert_eq(&(reasons.join("\n") + "\n"));
}

#[test]
fn nothing_fits_until_as_many_nodes_as_said() {
    let model = || fixtures::llama(LLAMA_70B);
    let (why, change) = refused(&fixtures::job(model(), fixtures::h100(1), 4096, 64, ""));
    expect![[r#"
        none of 156 points of the space fits
        closest: tp=8 pp=1 dp=1 micro-batch 1: memory: stage 0 needs 162 GiB of 76.1 GiB at micro-batch 1
        memory: 156 points
        use 3 nodes instead of 1 (24 ranks, tp=4 pp=6 dp=1 micro-batch 1); or give each rank 85.5 GiB more memory (tp=8 pp=1 dp=1 micro-batch 1)
    "#]]
    .assert_eq(&format!("{}\n{change}\n", why.join("\n")));
    let words: Vec<&str> = change.split_whitespace().collect();
    let nodes: u32 = words[1].parse().unwrap();
    found(&fixtures::job(model(), fixtures::h100(nodes), 4096, 64, ""));
    refused(&fixtures::job(model(), fixtures::h100(nodes - 1), 4096, 64, ""));
}

#[test]
fn a_pin_in_the_way_is_named() {
    let job = fixtures::job(fixtures::llama(LLAMA_8B), fixtures::h100(2), 4096, 64, "tp=1,pp=1");
    let (_, change) = refused(&job);
    assert!(change.starts_with("drop the pin tp=1,pp=1: tp="), "{change}");
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
