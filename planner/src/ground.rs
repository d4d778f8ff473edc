//! What a search stands on: prices on every mesh, floors of every shape, families built when first asked for. The
//! invariant: everything here is a pure function of the job, so sharing it between threads changes nothing.

use crate::bounds::{Floor, floors, holdings, shared_floor, states_floor, step_floor};
use crate::candidate::Scenario;
use crate::family::{Family, Key};
use crate::pricing::Prices;
use crate::space::Point;
use crate::work::data_axes;
use meshwright_cost_models::CostModel;
use meshwright_ir::{Axis, Bytes, Job, Mesh, Objective, Plan, Storage, Time};
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

/// Prices and floors of a set of points.
pub(crate) struct Ground<'a> {
    pub(crate) job: &'a Job,
    /// Class of every block.
    pub(crate) blocks: Vec<u32>,
    /// Bytes a rank's arena may take.
    pub(crate) limit: Bytes,
    /// Prices within tensor-parallel groups, by degree.
    local: BTreeMap<u32, Prices<'a>>,
    /// Prices on whole meshes.
    whole: BTreeMap<Mesh, Prices<'a>>,
    floors: BTreeMap<(u32, u64), Vec<Floor>>,
    /// What parameters take, by tensor-parallel degree, how they are stored, and in how many pieces.
    holdings: BTreeMap<(u32, Storage, u64), Vec<Floor>>,
    /// Cores that ranks share, where they do.
    cores: Option<u64>,
}

impl<'a> Ground<'a> {
    /// Prices and floors for these points.
    pub(crate) fn new(job: &'a Job, model: &'a CostModel, points: &[Point]) -> Self {
        let payload = payload(job);
        let meshes: BTreeSet<Mesh> = points.iter().map(|p| p.mesh).collect();
        let whole = meshes.iter().map(|m| (*m, Prices::new(model, *m, &payload))).collect();
        let degrees: BTreeMap<u32, u32> = meshes.iter().map(|m| (m.degree(Axis::Tp), m.ranks())).collect();
        // Every group of tensor-parallel peers of the world, whatever the other degrees.
        let groups = |(tp, ranks): (&u32, &u32)| {
            let mesh = Mesh::new([(Axis::Dp, ranks / tp), (Axis::Tp, *tp)]).expect("degrees of a mesh");
            (*tp, Prices::new(model, mesh, &payload))
        };
        let local = degrees.iter().map(groups).collect();
        let shapes: BTreeSet<(u32, u64)> =
            points.iter().map(|p| (p.degree(Axis::Tp), p.micro_batch)).collect();
        let shapes: Vec<(u32, u64)> = shapes.into_iter().collect();
        let each = |shape: &(u32, u64)| (*shape, floors(job, model, shape.0, shape.1));
        let floors: Vec<_> = shapes.par_iter().map(each).collect();
        let held: BTreeSet<(u32, Storage, u64)> = points.iter().map(held).collect();
        let holdings = held.into_iter().map(|h| (h, holdings(job, model, h.0, h.1, h.2))).collect();
        Self {
            job,
            blocks: job.model.blocks(),
            limit: model.memory_limit(),
            local,
            whole,
            floors: floors.into_iter().collect(),
            holdings,
            cores: cores(job, model),
        }
    }

    fn chain(&self, point: &Point) -> Vec<Floor> {
        let floors = &self.floors[&(point.degree(Axis::Tp), point.micro_batch)];
        let holdings = &self.holdings[&held(point)];
        let each: Vec<Floor> = floors.iter().zip(holdings).map(|(f, h)| f.with(h)).collect();
        self.blocks.iter().map(|c| each[*c as usize]).collect()
    }

    /// Least simulated step time of any plan at a point, in picoseconds.
    pub(crate) fn bound(&self, point: &Point) -> u64 {
        least(&self.chain(point), &point.mesh, point.micro_batches, self.cores)
    }

    /// Least bytes of parameter states on the fullest stage of any plan at a point.
    pub(crate) fn states(&self, point: &Point) -> Bytes {
        Bytes(states_floor(&self.chain(point), u64::from(point.degree(Axis::Pp))))
    }

    /// Prices on a point's mesh.
    pub(crate) fn prices(&self, point: &Point) -> &Prices<'a> {
        &self.whole[&point.mesh]
    }

    /// What solving a point takes.
    pub(crate) fn scenario<'g>(&'g self, point: Point, family: &'g Family<'g>) -> Scenario<'g> {
        Scenario {
            job: self.job,
            point,
            family,
            prices: self.prices(&point),
            limit: self.limit,
            blocks: &self.blocks,
            smallest: self.job.search.objective == Objective::Memory,
            beat: u64::MAX,
        }
    }
}

/// No plan with this one's degrees and micro-batch simulates faster, whatever else it chooses.
pub fn lower_bound(plan: &Plan) -> Time {
    let (job, mesh) = (&plan.job, &plan.mesh);
    let (model, tp) = (CostModel::new(&job.cluster), mesh.degree(Axis::Tp));
    let floors = floors(job, &model, tp, plan.micro_batch);
    let storage = Storage::everything(data_axes(mesh));
    let holdings = holdings(job, &model, tp, storage, u64::from(mesh.replicas()));
    let each: Vec<Floor> = floors.iter().zip(&holdings).map(|(f, h)| f.with(h)).collect();
    let chain: Vec<Floor> = job.model.blocks().iter().map(|c| each[*c as usize]).collect();
    Time(least(&chain, mesh, plan.micro_batches, cores(job, &model)))
}

/// Least simulated step of a chain with these floors, on a cluster whose ranks may share cores.
fn least(chain: &[Floor], mesh: &Mesh, m: u64, cores: Option<u64>) -> u64 {
    let replicas = u64::from(mesh.replicas() * mesh.degree(Axis::Tp));
    let shared = cores.map_or(0, |cores| shared_floor(chain, replicas, m, cores));
    step_floor(chain, mesh.degree(Axis::Pp) as usize, m).max(shared)
}

/// Cores that ranks share, where they do.
fn cores(job: &Job, model: &CostModel) -> Option<u64> {
    let all = || u64::from(model.devices_used(job.search.ranks)) * u64::from(job.cluster.device.cores);
    model.shares_devices().then(all)
}

/// Typical messages: the tensor between blocks for one sample along tp, a block's gradients along data axes, a scalar
/// along pp.
fn payload(job: &Job) -> BTreeMap<Axis, Bytes> {
    let activation = job.training.precision.compute().bytes(job.training.sequence * job.model.hidden);
    let params = job.model.classes.iter().map(|c| c.params()).max().unwrap_or(0);
    let gradients = Bytes(4 * params);
    BTreeMap::from([
        (Axis::Tp, activation),
        (Axis::Dp, gradients),
        (Axis::Fsdp, gradients),
        (Axis::Pp, Bytes(4)),
    ])
}

/// Families by key, each built when first asked for.
pub(crate) struct Families<'g> {
    ground: &'g Ground<'g>,
    built: BTreeMap<Key, OnceLock<Option<Family<'g>>>>,
}

impl<'g> Families<'g> {
    /// Room for the families of these points.
    pub(crate) fn new(ground: &'g Ground<'g>, points: &[Point]) -> Self {
        Self { ground, built: points.iter().map(|p| (key(p), OnceLock::new())).collect() }
    }

    /// A point's family. `None` when the tensor between blocks does not divide.
    pub(crate) fn of(&self, point: &Point) -> Option<&Family<'g>> {
        let key = key(point);
        let build = || Family::new(self.ground.job, key, &self.ground.local[&key.tp]);
        self.built[&key].get_or_init(build).as_ref()
    }
}

/// What a point's parameters take depends on this.
fn held(point: &Point) -> (u32, Storage, u64) {
    let storage = point.storage();
    (point.degree(Axis::Tp), storage, storage.pieces(&point.mesh))
}

fn key(point: &Point) -> Key {
    Key {
        tp: point.degree(Axis::Tp),
        replicated: point.replicas() > 1,
        micro_batch: point.micro_batch,
        sequence_parallel: point.sequence_parallel,
    }
}
