//! Instructions per second along the spine, on the best plan for Llama-3-70B on 512 GPUs: lowering the plan, checking the
//! program, and simulating it by one rank of each role and rank by rank.
#![allow(missing_docs)]

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;

#[allow(dead_code)]
mod support;

fn spine(criterion: &mut Criterion) {
    let plan = support::plan(&support::llama3_70b());
    let lower = || meshwright_lowering::lower(black_box(&plan)).expect("a plan lowers");
    let program = lower();
    let checked = program.clone().check().expect("a plan's program is right");
    let cluster = &plan.job.cluster;
    let listed = program.instructions();
    let executed = (0..plan.mesh.ranks()).map(|r| program.code_of(r).instructions.len() as u64).sum();

    let mut group = criterion.benchmark_group("spine");
    group.throughput(Throughput::Elements(listed));
    group.bench_function("lower", |b| b.iter(lower));
    group.bench_function("check", |b| {
        b.iter_batched(|| program.clone(), |p| p.check().is_ok(), BatchSize::LargeInput);
    });
    group.bench_function("simulate, one rank of each role", |b| {
        b.iter(|| meshwright::simulate(black_box(&checked), cluster, false));
    });
    group.throughput(Throughput::Elements(executed));
    group.bench_function("simulate, every rank", |b| {
        b.iter(|| meshwright::simulate(black_box(&checked), cluster, true));
    });
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(10);
    targets = spine
}
criterion_main!(benches);
