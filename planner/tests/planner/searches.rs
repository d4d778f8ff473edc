//! Whole searches on fixture models and clusters.

use crate::fixtures::{self, GPT2_XL, LLAMA_8B, LLAMA_70B, TINY};
use meshwright_ir::{Axis, Job, Objective, Plan};
use meshwright_planner::{Verdict, search};

fn plans(job: &Job) -> Vec<Plan> {
    match search(job, &|_| ()) {
        Verdict::Plans { plans, .. } => plans,
        Verdict::NoFit { why, smallest_change, .. } => panic!("no fit: {why:?}; {smallest_change}"),
    }
}

#[test]
fn seventy_billion_on_512_in_seconds() {
    let job = fixtures::job(fixtures::llama(LLAMA_70B), fixtures::h100(64), 8192, 1024, "");
    let start = std::time::Instant::now();
    let found = plans(&job);
    let seconds = start.elapsed().as_secs_f64();
    for p in &found {
        println!(
            "{} mb {} {} sp {} {:.3} s",
            p.mesh,
            p.micro_batch,
            p.schedule,
            p.sequence_parallel(),
            p.prediction.closed_form_s
        );
        for w in &p.why {
            println!("   {w}");
        }
    }
    let r = &found[0].search;
    println!(
        "{} points, {} pruned, {} solved, gap {} in {seconds:.2} s",
        r.candidates, r.pruned, r.solved, r.surrogate_gap_s
    );
    for p in &r.points {
        println!(
            "{} mb {} {} {:?} {:?} {:?}",
            p.mesh, p.micro_batch, p.schedule, p.closed_form_s, p.peak_memory_bytes, p.rejected
        );
    }
}
