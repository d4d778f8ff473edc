//! Instructions simulated per second: a deep pipeline with tensor and data parallelism, whole and by representatives,
//! and the same program on a shared host.
#![allow(missing_docs)]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use meshwright_cost_models::CostModel;
use meshwright_ir::Schedule;
use meshwright_simulator::{Options, Ranks, simulate};
use std::collections::BTreeMap;
use std::hint::black_box;
use support::{Pipeline, host, nodes};

#[allow(dead_code, unreachable_pub)]
#[path = "../tests/simulate/support.rs"]
mod support;

fn events(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("instructions");
    let pipeline = |mesh, layers| Pipeline {
        layers,
        ..Pipeline::new(mesh, Schedule::OneForwardOneBackward, 64, (20, 40))
    };
    let program = pipeline("pp=8 dp=2 tp=4", 24).program();
    let cost = CostModel::new(&nodes(8));
    for (name, ranks, each) in [("64 ranks", Ranks::All, 8), ("8 representatives", Ranks::Representatives, 1)]
    {
        group.throughput(Throughput::Elements(each * program.instructions()));
        let options = Options { ranks, slow: BTreeMap::new() };
        group.bench_function(name, |b| b.iter(|| simulate(black_box(&program), &cost, &options)));
    }
    let program = pipeline("pp=2 dp=2 tp=2", 12).program();
    let cost = CostModel::new(&host(8, 4, 40e6));
    group.throughput(Throughput::Elements(4 * program.instructions()));
    group.bench_function("shared host", |b| {
        b.iter(|| simulate(black_box(&program), &cost, &Options::default()));
    });
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(10);
    targets = events
}
criterion_main!(benches);
