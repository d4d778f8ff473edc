//! Small jobs against brute force over the space that the planner states, by the same closed form:
//! - meshes dp·tp·pp over all ranks, micro-batches that divide a replica's batch, both schedules, the tensor between blocks
//!   cut along the sequence or not, optimizer state split among replicas or not: every point that no rule rejects;
//! - strategies: where the fastest answer of the block solver fits whole, that; else every answer to a price per byte, up to
//!   the first that fits whole (all on the lower hull of bytes and cost, found here by halving between neighbours until none
//!   is between), and the one that holds least; where not even that one fits, the one of least states;
//! - stages: every cut of the chain into contiguous runs of at least one block;
//! - recomputation: every level of every block between embedding and head by itself; where weights or gradients are split,
//!   whose moves hide behind one block's backward rather than another's, those of a stage that recompute most come first;
//! - split state: each of the point's ways to keep it, with small parameters whole where that takes less time.
//!
//! A plan counts if `stage_memory` of each of its stages is within the limit. The answer is the least closed form.

use crate::candidate::Scenario;
use crate::chain::{Chain, Fit};
use crate::closed_form::{StageTime, step};
use crate::eliminate::Weigh;
use crate::family::{Chosen, Instance};
use crate::ground::{Families, Ground};
use crate::random::Random;
use crate::search::Search;
use crate::space::{Point, enumerate};
use fixtures::Sizes;
use meshwright_algebra::{StageBlock, stage_memory};
use meshwright_cost_models::CostModel;
use meshwright_ir::{Axis, Bytes, Job, Precision};
use std::collections::{BTreeMap, BTreeSet};

#[allow(dead_code)]
#[path = "../tests/planner/fixtures.rs"]
mod fixtures;

#[test]
fn the_chosen_plan_is_the_best_of_all() {
    let mut r = Random(9);
    let (mut tight, mut none, mut mixed, mut piped) = (0, 0, 0, 0);
    for case in 0..300 {
        let mut job = random(&mut r);
        // Memory between what the fastest plan would take and what is too little for any.
        let fastest = found(&job).expect("memory is ample");
        let reserved = job.cluster.device.reserved;
        if r.below(4) > 0 {
            let share = 40 + r.below(60);
            job.cluster.device.memory = Bytes(fastest.1.get() * share / 100) + reserved;
            tight += 1;
        }
        let brute = brute_force(&job);
        let chosen = found(&job);
        let what =
            format!("case {case}: {} {:?} on {}", job.model.name, job.search, job.cluster.device.memory);
        assert_eq!(chosen.as_ref().map(|c| c.0), brute, "{what}");
        none += u32::from(brute.is_none());
        mixed += u32::from(chosen.as_ref().is_some_and(|c| c.2));
        piped += u32::from(chosen.as_ref().is_some_and(|c| c.3.degree(Axis::Pp) > 1));
    }
    let seen =
        format!("{tight} tight, {none} of which fit nothing, {mixed} that recompute, {piped} pipelines");
    assert!(tight > 200 && (1..100).contains(&none) && mixed > 30 && piped > 30, "{seen}");
}

fn random(r: &mut Random) -> Job {
    let heads = r.of(&[2, 4]);
    let sizes = Sizes {
        hidden: 16 * heads,
        heads,
        kv_heads: heads,
        inner: r.of(&[32, 64, 96]),
        layers: r.of(&[1, 1, 1, 2, 2, 3]),
        vocab: r.of(&[32, 64, 256]),
    };
    let sequence = r.of(&[16, 32]);
    let model = if r.below(2) == 0 { fixtures::llama(sizes) } else { fixtures::gpt2(sizes, sequence) };
    let mut cluster = fixtures::h100(1);
    let ranks = r.of(&[2, 2, 2, 4, 4, 4, 4, 8]);
    cluster.devices_per_node = ranks;
    cluster.levels.truncate(1);
    cluster.levels[0].size = ranks;
    // From where kernels take most of the time to where messages and sums of gradients do.
    let slower = r.of(&[1.0, 30.0, 300.0]);
    cluster.levels[0].bandwidth = meshwright_ir::Bandwidth::try_from(4.5e11 / slower).unwrap();
    cluster.levels[0].latency = meshwright_ir::Time(r.of(&[1_000, 2_000_000]));
    cluster.device.launch = meshwright_ir::Time(r.of(&[10_000, 1_000_000]));
    cluster.device.reserved = Bytes(1 << 20);
    let pins = r.of(&[
        "",
        "pp>=2",
        "pp>=2,tp=1",
        "tp=1",
        "schedule=1f1b,recompute!=selective",
        "microbatch=1",
        "zero=0",
    ]);
    let batch = r.of(&[4, 8]).max(u64::from(ranks));
    let mut job = fixtures::job(model, cluster, sequence, batch, pins);
    job.search.top = r.of(&[1, 3]);
    if r.below(2) == 0 {
        job.training.precision = Precision::Fp32;
        job.cluster
            .device
            .peak
            .insert(meshwright_ir::DType::F32, meshwright_ir::FlopRate::try_from(6e13).unwrap());
    }
    job
}

/// Of the plan that the search ranks first: step, peak, whether it recomputes, mesh.
fn found(job: &Job) -> Option<(u64, Bytes, bool, meshwright_ir::Mesh)> {
    let model = CostModel::new(&job.cluster);
    let points = enumerate(job, job.search.ranks);
    let allowed: Vec<Point> = points.iter().filter(|(_, why)| why.is_none()).map(|(p, _)| *p).collect();
    let ground = Ground::new(job, &model, &allowed);
    let families = Families::new(&ground, &allowed);
    let mut search = Search::new(&ground, points);
    search.explore(&families, &|_| ());
    let first = search.entries[*search.ranking().first()?].fits()?;
    let recomputes = first.recompute.iter().any(|l| *l != meshwright_ir::Recompute::None);
    Some((first.time.step, first.peak(), recomputes, first.point.mesh))
}

fn brute_force(job: &Job) -> Option<u64> {
    let model = CostModel::new(&job.cluster);
    let points = enumerate(job, job.search.ranks);
    let allowed: Vec<Point> = points.into_iter().filter(|(_, why)| why.is_none()).map(|(p, _)| p).collect();
    let ground = Ground::new(job, &model, &allowed);
    let families = Families::new(&ground, &allowed);
    let of = |point: &Point| {
        let scene = ground.scenario(*point, families.of(point)?);
        let frames = scene.frames();
        let chains = chains(&scene, &frames);
        chains.iter().filter_map(|chain| every_cut(chain)).min()
    };
    allowed.iter().filter_map(of).min()
}

/// Chains of all strategies of a point.
fn chains<'s, 'a>(scene: &'s Scenario<'a>, frames: &'s [u64]) -> Vec<Chain<'s, 'a>> {
    let instance = scene.family.instance(scene.load(frames));
    let fits = |c: &Chosen, fit| scene.variant(&instance, c.clone(), frames).fits(fit);
    let (Some(fast), Some(small)) =
        (instance.choose(Weigh::CostThenMemory).0, instance.choose(Weigh::MemoryThenCost).0)
    else {
        return vec![];
    };
    let mut all = vec![fast.clone()];
    if !fits(&fast, Fit::Plain) {
        halves(&instance, &fast, &small, &mut all);
        all.push(small.clone());
        let whole = all.iter().position(|c| fits(c, Fit::Plain));
        if let Some(whole) = whole {
            all.truncate(whole + 1);
            all.push(small.clone());
        }
        if !fits(&small, Fit::Recomputing) {
            all = [fast].into_iter().chain(scene.lean(frames).0).collect();
        }
    }
    all.into_iter().flat_map(|c| scene.variant(&instance, c, frames).chains).collect()
}

/// Choices between two on the hull, in order.
fn halves(instance: &Instance<'_, '_>, over: &Chosen, under: &Chosen, all: &mut Vec<Chosen>) {
    if over.memory <= under.memory || under.cost <= over.cost {
        return;
    }
    let weigh = Weigh::Sum { cost: over.memory - under.memory, memory: under.cost - over.cost };
    let found = instance.choose(weigh).0.expect("others are possible");
    if weigh.of(found.cost, found.memory) < weigh.of(over.cost, over.memory) {
        halves(instance, over, &found, all);
        all.push(found.clone());
        halves(instance, &found, under, all);
    }
}

/// Least closed form of all cuts of a chain that fit, each block at any level.
fn every_cut(chain: &Chain<'_, '_>) -> Option<u64> {
    let scene = chain.scene();
    let (n, p) = (scene.blocks.len(), scene.point.degree(Axis::Pp) as usize);
    let hop = crate::cut::hops(scene);
    // Each run's different times, over every assignment of levels that fits.
    let mut runs: BTreeMap<(usize, usize, usize), Vec<StageTime>> = BTreeMap::new();
    for stage in 0..p {
        for (first, end) in (0..n).flat_map(|f| (f + 1..=n).map(move |e| (f, e))) {
            if (first == 0) == (stage == 0) && (end == n) == (stage + 1 == p) {
                runs.insert((stage, first, end), times(chain, stage, first, end));
            }
        }
    }
    let mut search = Every { runs, blocks: n, chain, hop, times: vec![], best: None };
    search.stage(0, p);
    search.best
}

struct Every<'c> {
    runs: BTreeMap<(usize, usize, usize), Vec<StageTime>>,
    blocks: usize,
    chain: &'c Chain<'c, 'c>,
    hop: Vec<u64>,
    times: Vec<StageTime>,
    best: Option<u64>,
}

impl Every<'_> {
    fn stage(&mut self, first: usize, stages: usize) {
        let at = self.times.len();
        if at == stages {
            let point = &self.chain.scene().point;
            let clips = self.chain.scene().job.training.clip > 0.0;
            let time = step(&self.times, &self.hop, point.schedule, point.micro_batches as u32, clips).step;
            self.best = Some(self.best.map_or(time, |b| b.min(time)));
            return;
        }
        for end in first + 1..=self.blocks {
            let ways = self.runs.get(&(at, first, end)).cloned().unwrap_or_default();
            for time in ways {
                self.times.push(time);
                self.stage(end, stages);
                self.times.pop();
            }
        }
    }
}

fn times(chain: &Chain<'_, '_>, stage: usize, first: usize, end: usize) -> Vec<StageTime> {
    let scene = chain.scene();
    let mut versions: Vec<Vec<usize>> = vec![vec![]];
    for class in &scene.blocks[first..end] {
        let levels = 0..chain.classes[*class as usize].versions.len();
        versions =
            versions.iter().flat_map(|v| levels.clone().map(move |l| [&v[..], &[l]].concat())).collect();
    }
    if (first..end).any(|k| chain.moves(k).gather > 0 || chain.moves(k).scatter > 0) {
        let blocks = &scene.blocks[first..end];
        let falls = |v: &Vec<usize>| {
            let mut pairs = (0..v.len()).flat_map(|j| (0..j).map(move |i| (i, j)));
            pairs.all(|(i, j)| blocks[i] != blocks[j] || v[i] >= v[j])
        };
        versions.retain(falls);
    }
    let mut seen = BTreeSet::new();
    let mut all = vec![];
    for v in versions {
        let block = |(k, l): (usize, &usize)| {
            let (class, code) = (scene.blocks[k], &chain.level(k, *l).code);
            StageBlock { class, code, storage: &chain.storage[class as usize] }
        };
        let codes: Vec<StageBlock<'_>> = (first..end).zip(&v).map(block).collect();
        if stage_memory(&scene.job.model, &codes, &chain.shape(stage)).peak <= scene.limit {
            let time = chain.time_of(stage, first, end, &v);
            if seen.insert((time.backward.clone(), time.forward)) {
                all.push(time);
            }
        }
    }
    all
}
