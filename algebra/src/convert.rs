//! Conversions between layouts: one collective (or a local slice) per step, and the cheapest sequence of steps under a
//! price the caller supplies (Dijkstra, memoised). Because prices are shortest paths, going through a third layout is
//! never cheaper: the triangle inequality holds by construction.

use meshwright_ir::{Axis, Layout, Mesh, Step};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// The layout after one step, or `None` where the step does not apply.
pub fn apply(step: Step, layout: &Layout) -> Option<Layout> {
    let minor = |axis: Axis, dim: u8| layout.axes(dim as usize).last() == Some(&axis);
    let replicates = |axis: Axis| layout.dim_of(axis).is_none() && !layout.partial().contains(axis);
    let exists = |dim: u8| (dim as usize) < layout.rank();
    let cut = |axis: Axis, dim: u8| layout.clone().cleared(axis).sharded(dim as usize, axis);
    match step {
        Step::AllGather { axis, dim } => {
            (exists(dim) && minor(axis, dim)).then(|| layout.clone().cleared(axis))
        }
        Step::AllReduce { axis } => layout.partial().contains(axis).then(|| layout.clone().cleared(axis)),
        Step::ReduceScatter { axis, dim } => {
            (exists(dim) && layout.partial().contains(axis)).then(|| cut(axis, dim))
        }
        Step::AllToAll { axis, from, to } => {
            (exists(from) && exists(to) && from != to && minor(axis, from)).then(|| cut(axis, to))
        }
        Step::Slice { axis, dim } => (exists(dim) && replicates(axis)).then(|| cut(axis, dim)),
    }
}

/// Elements of the larger side of a step on one rank: gathered, or before scattering. The layouts must divide `shape`.
pub fn step_elements(step: Step, from: &Layout, shape: &[u64], mesh: &Mesh) -> u64 {
    let local = |l: &Layout| l.local(shape, mesh).map_or(0, |s| s.iter().product());
    local(from).max(apply(step, from).map_or(0, |to| local(&to)))
}

/// A price: what a step on that many elements costs, in any unit that adds up.
pub type Price<'a> = dyn Fn(Step, u64) -> u64 + 'a;

/// Steps and their price, where there is a way.
type Route = Option<(Vec<Step>, u64)>;

/// Finds cheapest conversions on one mesh and remembers them.
pub struct Converter<'a> {
    mesh: Mesh,
    price: &'a Price<'a>,
    known: BTreeMap<(Layout, Layout, Vec<u64>), Route>,
}

impl<'a> Converter<'a> {
    /// A converter under a price.
    pub fn new(mesh: Mesh, price: &'a Price<'a>) -> Self {
        Self { mesh, price, known: BTreeMap::new() }
    }

    /// The cheapest steps from one layout of a tensor to another and their price; fewest steps among equals. `None` when
    /// no sequence leads there (nothing becomes partial, and pieces must be equal).
    pub fn path(&mut self, from: &Layout, to: &Layout, shape: &[u64]) -> Route {
        let key = (from.clone(), to.clone(), shape.to_vec());
        if let Some(known) = self.known.get(&key) {
            return known.clone();
        }
        let found = self.search(from, to, shape);
        self.known.insert(key, found.clone());
        found
    }

    fn search(&self, from: &Layout, to: &Layout, shape: &[u64]) -> Route {
        let mut best: BTreeMap<Layout, (u64, u32)> = BTreeMap::from([(from.clone(), (0, 0))]);
        let mut came: BTreeMap<Layout, (Layout, Step)> = BTreeMap::new();
        let mut heap = BinaryHeap::from([Reverse((0u64, 0u32, from.clone()))]);
        while let Some(Reverse((cost, steps, here))) = heap.pop() {
            if here == *to {
                return Some((trace_back(&came, from, to), cost));
            }
            if best.get(&here) != Some(&(cost, steps)) {
                continue;
            }
            for (step, next) in self.neighbours(&here, shape) {
                let reached =
                    (cost + (self.price)(step, step_elements(step, &here, shape, &self.mesh)), steps + 1);
                if best.get(&next).is_none_or(|old| reached < *old) {
                    best.insert(next.clone(), reached);
                    came.insert(next.clone(), (here.clone(), step));
                    heap.push(Reverse((reached.0, reached.1, next)));
                }
            }
        }
        None
    }

    fn neighbours(&self, here: &Layout, shape: &[u64]) -> Vec<(Step, Layout)> {
        let dims = 0..here.rank() as u8;
        let mut steps = Vec::new();
        for axis in self.mesh.active().without(Axis::Pp).iter() {
            if here.partial().contains(axis) {
                steps.push(Step::AllReduce { axis });
                steps.extend(dims.clone().map(|dim| Step::ReduceScatter { axis, dim }));
            } else if let Some(from) = here.dim_of(axis).map(|d| d as u8) {
                steps.push(Step::AllGather { axis, dim: from });
                steps.extend(dims.clone().map(|to| Step::AllToAll { axis, from, to }));
            } else {
                steps.extend(dims.clone().map(|dim| Step::Slice { axis, dim }));
            }
        }
        let legal =
            |step: Step| apply(step, here).filter(|l| l.local(shape, &self.mesh).is_ok()).map(|l| (step, l));
        steps.into_iter().filter_map(legal).collect()
    }
}

fn trace_back(came: &BTreeMap<Layout, (Layout, Step)>, from: &Layout, to: &Layout) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut at = to;
    while at != from {
        let (before, step) = &came[at];
        steps.push(*step);
        at = before;
    }
    steps.reverse();
    steps
}
