//! Seconds from a job to its best plan, the best few simulated and ranked: a large job on a cluster, and the quick start
//! on a machine whose profile is a fixture, so that runs compare.
#![allow(missing_docs)]

use criterion::{Criterion, criterion_group, criterion_main};
use std::hint::black_box;

#[allow(dead_code)]
mod support;

fn plan(criterion: &mut Criterion) {
    let profile = meshwright_zoo::host_profile(&support::file("benches/support/localhost.toml"));
    let jobs = [
        ("llama3-70b on 64 nodes of h100-sxm", support::llama3_70b()),
        ("gpt-nano on localhost", support::quickstart(profile.expect("a profile"), 4, "")),
    ];
    let mut group = criterion.benchmark_group("plan");
    for (name, job) in &jobs {
        group.bench_function(*name, |b| b.iter(|| support::plan(black_box(job))));
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(10);
    targets = plan
}
criterion_main!(benches);
