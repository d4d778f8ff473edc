//! Prices of kernels, collectives and conversions on one mesh, in picoseconds, from the cost model. A group of ranks is
//! priced by the costliest group of its axes; ranks that share a device take turns on its cores. The invariant: a price
//! depends on nothing but its arguments, so prices may be remembered and shared.

use meshwright_algebra::{BlockAction, BlockCode, BlockInstruction, Price, accumulates, apply};
use meshwright_cost_models::CostModel;
use meshwright_ir::program::{CollectiveKind, Kernel};
use meshwright_ir::{Algorithm, Axis, AxisSet, Bytes, DType, DeviceKind, Layout, Mesh, Step};
use std::collections::BTreeMap;
use std::sync::Mutex;

/// Most groups of an axis set that are compared to find the costliest; beyond these they repeat (an assumption that holds
/// when nodes are smaller than this many groups).
const GROUPS_COMPARED: usize = 64;

/// Size of the message that decides which group of an axis set is costliest.
const PROBE: Bytes = Bytes(1 << 20);

type Known<K, V> = Mutex<BTreeMap<K, V>>;

/// Prices on one mesh.
#[derive(Debug)]
pub struct Prices<'a> {
    model: &'a CostModel,
    mesh: Mesh,
    algorithms: BTreeMap<Axis, Algorithm>,
    groups: Known<AxisSet, Vec<u32>>,
    collectives: Known<(CollectiveKind, AxisSet, Bytes), u64>,
}

impl<'a> Prices<'a> {
    /// Prices on `mesh`. `payload` says how large a typical message on each axis is; the algorithm that moves it fastest
    /// is the axis's. Ranks of one host move chunks directly, as they do when a plan is run.
    pub fn new(model: &'a CostModel, mesh: Mesh, payload: &BTreeMap<Axis, Bytes>) -> Self {
        let mut prices = Self {
            model,
            mesh,
            algorithms: BTreeMap::new(),
            groups: Known::default(),
            collectives: Known::default(),
        };
        for axis in mesh.active().iter() {
            let size = payload.get(&axis).copied().unwrap_or(PROBE);
            let algorithm = prices.best_algorithm(axis, size);
            prices.algorithms.insert(axis, algorithm);
        }
        prices
    }

    fn best_algorithm(&self, axis: Axis, size: Bytes) -> Algorithm {
        let ranks = self.group(AxisSet::of(axis));
        let cluster = self.model.cluster();
        let node = |r: &u32| cluster.device_of(*r) / cluster.devices_per_node;
        let one_node = ranks.iter().all(|r| node(r) == node(&ranks[0]));
        if cluster.device.kind == DeviceKind::Cpu && one_node {
            return Algorithm::Direct;
        }
        let time = |a: &Algorithm| self.model.collective(CollectiveKind::AllReduceSum, *a, size, &ranks);
        let best = [Algorithm::Ring, Algorithm::Tree].into_iter().min_by_key(time);
        best.unwrap_or(Algorithm::Ring)
    }

    /// The mesh priced.
    pub fn mesh(&self) -> &Mesh {
        &self.mesh
    }

    /// Algorithm per axis with more than one rank.
    pub fn algorithms(&self) -> &BTreeMap<Axis, Algorithm> {
        &self.algorithms
    }

    /// The group over `axes` whose all_reduce takes longest; the first of equals.
    fn group(&self, axes: AxisSet) -> Vec<u32> {
        let mut known = self.groups.lock().expect("no pricing panics");
        let find = || {
            let bases = (0..self.mesh.ranks()).filter(|r| self.mesh.index_in(*r, axes) == 0);
            let groups = bases.take(GROUPS_COMPARED).map(|r| self.mesh.group(r, axes));
            let time =
                |g: &Vec<u32>| self.model.collective(CollectiveKind::AllReduceSum, Algorithm::Ring, PROBE, g);
            let costliest = groups.map(|g| (std::cmp::Reverse(time(&g)), g)).min();
            costliest.expect("a mesh has a rank").1
        };
        known.entry(axes).or_insert_with(find).clone()
    }

    /// Time of a kernel on one rank when every rank computes, launch included.
    pub fn kernel(&self, kernel: &Kernel) -> u64 {
        let cost = self.model.kernel(kernel);
        if !self.model.shares_devices() {
            return cost.time.get();
        }
        let cluster = self.model.cluster();
        let ranks = self.mesh.ranks();
        let neighbours = u64::from(ranks.min(cluster.ranks_per_device));
        let cores = scaled(cost.time.get(), self.model.crowding(ranks));
        cores.max(cluster.device.memory_bandwidth.time(cost.bytes * neighbours).get())
    }

    /// Time of a collective over `axes` once all have arrived. `elements` is the whole tensor on one rank.
    pub fn collective(&self, kind: CollectiveKind, axes: AxisSet, elements: u64, dtype: DType) -> u64 {
        let bytes = dtype.bytes(elements);
        let key = (kind, axes, bytes);
        if let Some(known) = self.collectives.lock().expect("no pricing panics").get(&key) {
            return *known;
        }
        let major = axes.iter().find(|a| self.mesh.degree(*a) > 1);
        let algorithm = major.and_then(|a| self.algorithms.get(&a)).copied().unwrap_or(Algorithm::Ring);
        let cost = self.model.collective_cost(kind, algorithm, bytes, &self.group(axes));
        let crowding = if self.model.shares_devices() { self.model.crowding(self.mesh.ranks()) } else { 1.0 };
        let time = cost.latency.get() + scaled(cost.work.get(), crowding);
        self.collectives.lock().expect("no pricing panics").insert(key, time);
        time
    }

    /// Time of a message from `rank` to the rank that lies in the same place of the next stage.
    pub fn hop(&self, elements: u64, dtype: DType, rank: u32) -> u64 {
        let next = rank + self.mesh.stride(Axis::Pp);
        self.model.exchange(dtype.bytes(elements), rank, next).get()
    }

    /// Time of an all_reduce between the ranks that lie in the same place of two stages.
    pub(crate) fn between_stages(&self, elements: u64, dtype: DType, stages: [u32; 2]) -> u64 {
        let ranks = stages.map(|s| s * self.mesh.stride(Axis::Pp));
        let algorithm = self.algorithms.get(&Axis::Pp).copied().unwrap_or(Algorithm::Ring);
        self.model.collective(CollectiveKind::AllReduceSum, algorithm, dtype.bytes(elements), &ranks).get()
    }

    /// Time of all steps of a conversion of a tensor of this whole shape, repacking included.
    pub fn steps(&self, from: &Layout, steps: &[Step], shape: &[u64], mesh: &Mesh, dtype: DType) -> u64 {
        let mut layout = from.clone();
        let mut total = 0;
        for step in steps {
            let next = apply(*step, &layout).expect("a found conversion applies");
            let local = |l: &Layout| l.local(shape, mesh).expect("a found conversion cuts evenly");
            let (before, after) = (local(&layout), local(&next));
            let elements = before.iter().product::<u64>().max(after.iter().product());
            let rows = |dim: u8| {
                let cut = before.iter().zip(&after).map(|(b, a)| b.min(a));
                cut.take(dim as usize).product::<u64>()
            };
            total += self.step(*step, elements, dtype, &|dim| rows(dim) > 1);
            layout = next;
        }
        total
    }

    /// Time of one step on so many elements; `strided` tells whether pieces along a dim lie apart in memory.
    fn step(&self, step: Step, elements: u64, dtype: DType, strided: &dyn Fn(u8) -> bool) -> u64 {
        let repack = |dim: u8| match strided(dim) {
            true => self.kernel(&Kernel::Pack { outer: 1, parts: 1, inner: elements, dtype }),
            false => 0,
        };
        // On a mesh whose data axes are one, that one stands for each.
        let on_mesh = |axis| if axis == Axis::Fsdp && self.mesh.degree(axis) == 1 { Axis::Dp } else { axis };
        let move_all = |kind, axis| self.collective(kind, AxisSet::of(on_mesh(axis)), elements, dtype);
        match step {
            Step::AllReduce { axis } => move_all(CollectiveKind::AllReduceSum, axis),
            Step::AllGather { axis, dim } => move_all(CollectiveKind::AllGather, axis) + repack(dim),
            Step::ReduceScatter { axis, dim } => move_all(CollectiveKind::ReduceScatter, axis) + repack(dim),
            Step::AllToAll { axis, from, to } => {
                move_all(CollectiveKind::AllToAll, axis) + repack(from) + repack(to)
            }
            Step::Slice { axis, .. } => self.kernel(&Kernel::Slice {
                axes: AxisSet::of(axis),
                outer: 1,
                piece: elements / u64::from(self.mesh.degree(axis)),
                inner: 1,
                dtype,
            }),
        }
    }

    /// The price that conversions are searched under, for tensors `[batch, sequence, width]` of which one rank holds
    /// `batch` samples: only pieces of the first dim, and of the second in a batch of one, lie together.
    pub fn search_price(&self, batch: u64, dtype: DType) -> impl Fn(Step, u64) -> u64 + '_ {
        move |step, elements| self.step(step, elements, dtype, &|dim| dim > 1 || (dim == 1 && batch > 1))
    }

    /// Time of a list of instructions run one after the other.
    pub fn in_turn(&self, instructions: &[BlockInstruction]) -> u64 {
        instructions.iter().map(|i| self.action(&i.action)).sum()
    }

    /// Time of the kernels of a list.
    pub fn compute(&self, instructions: &[BlockInstruction]) -> u64 {
        let kernels = instructions.iter().filter(|i| matches!(i.action, BlockAction::Kernel(_)));
        kernels.map(|i| self.action(&i.action)).sum()
    }

    /// Time of a list when kernels and collectives run on streams of their own and wait only for what they touch.
    pub fn overlapped(&self, code: &BlockCode, instructions: &[BlockInstruction]) -> u64 {
        let mut free: BTreeMap<Option<AxisSet>, u64> = BTreeMap::new();
        let (mut written, mut read) = (vec![0u64; code.tensors.len()], vec![0u64; code.tensors.len()]);
        for i in instructions {
            let stream = match &i.action {
                BlockAction::Kernel(_) => None,
                BlockAction::Collective { axes, .. } => Some(*axes),
            };
            let touched = i.reads.iter().map(|t| written[*t as usize]);
            let rewritten = i.writes.iter().map(|t| written[*t as usize].max(read[*t as usize]));
            let start = touched.chain(rewritten).fold(free.get(&stream).copied().unwrap_or(0), u64::max);
            let end = start + self.action(&i.action);
            free.insert(stream, end);
            i.reads.iter().for_each(|t| read[*t as usize] = read[*t as usize].max(end));
            i.writes.iter().for_each(|t| written[*t as usize] = end);
        }
        free.into_values().max().unwrap_or(0)
    }

    /// Kernels that accumulate are priced as doing so, as they do from the second micro-batch on.
    fn action(&self, action: &BlockAction) -> u64 {
        match action {
            BlockAction::Kernel(kernel) => self.kernel(&accumulating(kernel)),
            BlockAction::Collective { kind, axes, elements, dtype } => {
                self.collective(*kind, *axes, *elements, *dtype)
            }
        }
    }
}

/// The kernel told to accumulate, if it can.
pub(crate) fn accumulating(kernel: &Kernel) -> Kernel {
    let mut kernel = kernel.clone();
    if accumulates(&kernel)
        && let Kernel::Op(op) = &mut kernel
    {
        op.accumulate = true;
    }
    kernel
}

/// A time some times over, rounded up.
fn scaled(time: u64, factor: f64) -> u64 {
    if factor == 1.0 { time } else { (time as f64 * factor).ceil() as u64 }
}

/// What a [`meshwright_algebra::Converter`] takes.
pub(crate) fn as_price<'a>(price: &'a (impl Fn(Step, u64) -> u64 + 'a)) -> &'a Price<'a> {
    price
}
