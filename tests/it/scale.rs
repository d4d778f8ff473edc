//! Large jobs end to end: searched, lowered and simulated, in seconds.

use crate::bounds::{job, simulated};
use meshwright_cost_models::CostModel;
use meshwright_ir::{Axis, Cluster, Job, Model, Plan, Precision, Recompute, StateSharding};
use meshwright_planner::{Verdict, search};
use meshwright_simulator::{Options, Partition, Ranks, simulate, step_time};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

fn preset(model: &str, cluster: &str, nodes: u32, sequence: u64, batch: u64, pins: &str) -> Job {
    let model: Model = meshwright_zoo::model(model, Path::new("")).unwrap().0;
    let cluster: Cluster = meshwright_zoo::cluster(cluster, Some(nodes), Path::new("")).unwrap().0;
    job(model, cluster, sequence, batch, Precision::Bf16, pins)
}

fn found(job: &Job) -> Vec<Plan> {
    match search(job, &|_| ()) {
        Verdict::Plans { plans, .. } => plans,
        Verdict::NoFit { why, smallest_change, .. } => panic!("no fit: {why:?}; {smallest_change}"),
    }
}

/// Searches, lowers and simulates; prints what took how long.
#[allow(clippy::print_stdout)]
fn timed(job: &Job, what: &str) -> Plan {
    let start = Instant::now();
    let plan = found(job).swap_remove(0);
    let searched = start.elapsed().as_secs_f64();
    let program = meshwright_lowering::lower(&plan).unwrap().check().unwrap();
    let options = Options { ranks: Ranks::Representatives, ..Options::default() };
    let cost = CostModel::new(&job.cluster);
    let mut folded = f64::INFINITY;
    for _ in 0..5 {
        let start = Instant::now();
        simulate(&program, &cost, &options);
        folded = folded.min(start.elapsed().as_secs_f64());
    }
    let trace = simulate(&program, &cost, &options);
    let p = &plan.prediction;
    println!(
        "{what}: {} micro-batch {} x {} {} recompute {}; step {:.3} s (closed form {:.3}, bound {:.3}); planned in {searched:.2} s, \
         {} instructions simulated in {:.1} ms",
        plan.mesh,
        plan.micro_batch,
        plan.micro_batches,
        plan.state_sharding,
        plan.recompute_summary(),
        trace.step_time.seconds(),
        p.closed_form_s,
        p.lower_bound_s,
        program.roles.iter().map(|r| r.instructions.len()).sum::<usize>(),
        1e3 * folded
    );
    assert!(trace.step_time.seconds() >= p.lower_bound_s);
    simulated(&plan);
    plan
}

#[test]
fn seventy_billion_on_64_at_8192_needs_less_than_everything() {
    let job = preset("llama3-70b", "h100-sxm", 8, 8192, 128, "");
    let plan = timed(&job, "llama3-70b on 64 H100");
    assert!(
        plan.state_sharding == StateSharding::Zero1 || plan.recompute.iter().any(|l| *l != Recompute::None)
    );
}

/// The closed form that ranks plans, against the simulation of the very plan: with whole state, and with state split within
/// a node, across nodes, and with replicas of that.
#[test]
#[allow(clippy::print_stdout)]
fn closed_forms_of_sharded_plans_are_near_their_simulation() {
    let mut worst: f64 = 0.0;
    for (model, nodes, sequence, batch, pins) in [
        ("llama3-8b", 1, 8192, 64, "zero=3"),
        ("llama3-8b", 2, 4096, 64, "fsdp=16,microbatch=1"),
        ("llama3-8b", 2, 4096, 128, "zero=2,dp=16,microbatch=2"),
        ("llama3-8b", 4, 8192, 64, "fsdp=16,tp=2"),
        ("llama3-8b", 4, 2048, 512, "fsdp>=8,pp=2"),
        ("gpt2-124m", 1, 1024, 64, "fsdp=8"),
        ("qwen3-0.6b", 8, 1024, 256, "fsdp=64,microbatch=1"),
        ("llama3-70b", 8, 8192, 64, "zero=3"),
        ("llama3-70b", 8, 8192, 128, "fsdp=4,pp=2"),
        ("llama3-70b", 16, 8192, 256, "fsdp=16,tp=8"),
    ] {
        let job = preset(model, "h100-sxm", nodes, sequence, batch, pins);
        for plan in found(&job).into_iter().take(1) {
            let p = plan.prediction.closed_form_s;
            let step = simulated(&plan);
            let off = 100.0 * (p / step - 1.0);
            println!(
                "{model} on {nodes} nodes, {pins}: {} x {} {} {:?}: closed form {p:.3} s, simulated {step:.3} s: {off:+.1} %",
                plan.mesh, plan.micro_batches, plan.state_sharding, plan.gathering
            );
            worst = worst.max(off.abs());
        }
    }
    assert!(worst < 5.0, "a closed form is off by {worst:.1} %");
}

#[test]
fn gpt3_on_1024_a100() {
    timed(&preset("gpt3-175b", "a100-sxm-80", 128, 2048, 1536, ""), "gpt3-175b on 1,024 A100");
}

#[test]
fn four_hundred_billion_on_16384() {
    let job = preset("llama3.1-405b", "h100-sxm", 2048, 8192, 2048, "");
    let plan = timed(&job, "llama3.1-405b on 16,384 H100");
    assert_eq!(plan.state_sharding, StateSharding::Zero3);
    // A slow rank tells the others of each stage apart by the axes along which they differ from it.
    let program = meshwright_lowering::lower(&plan).unwrap().check().unwrap();
    let options = Options { ranks: Ranks::Representatives, slow: BTreeMap::from([(9000, 1.3)]) };
    let cost = CostModel::new(&job.cluster);
    let classes = Partition::of(&program, &cost, &options).classes().len() as u32;
    let axes = plan.mesh.active().without(Axis::Pp).iter().count() as u32;
    assert_eq!(classes, (1 << axes) * plan.mesh.degree(Axis::Pp));
    let slow = step_time(&program, &cost, &options).seconds();
    let even = step_time(&program, &cost, &Options { slow: BTreeMap::new(), ..options }).seconds();
    assert!(even < slow && slow < 1.3 * even, "{even} s, {slow} s with a slow rank");
    // The layout that its authors trained with (Llama 3, table 4): a program of usual size.
    let job = preset("llama3.1-405b", "h100-sxm", 2048, 8192, 2048, "tp=8,pp=16");
    timed(&job, "llama3.1-405b on 16,384 H100, tp=8 pp=16");
}
