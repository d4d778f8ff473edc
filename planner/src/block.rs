//! One block class as a pairwise problem: a node per op, whose strategies are `algebra::strategies`; an edge per value
//! with one reader, priced by converting the value forward and its gradient back; a node of its own per value with
//! several readers, whose strategies are the layouts wanted and given, so that a copy is made once and gradients that
//! arrive alike are summed before they are converted. No parallelism is named here: those that papers name are what is
//! cheapest. The invariant: the cost of a choice is the price of `algebra::expand`'s list for it, and its memory the
//! expansion's frame, parameters aside.

use crate::family::boundary;
use crate::pricing::{Prices, as_price};
use crate::problem::{Choices, Edge, FORBIDDEN, Problem};
use crate::work::{NodeWork, Scene, Shard, Step};
use meshwright_algebra::{Converter, OpLayouts, Shapes, class_plan, layouts, strategies};
use meshwright_ir::{Axis, AxisSet, BlockClass, ClassPlan, DType, Layout, Mesh, Strategy, Value};

/// A block class in its place: everything its problem depends on.
#[derive(Debug, Clone)]
pub struct Spec<'a> {
    /// The class.
    pub class: &'a BlockClass,
    /// Degrees; pp does not matter.
    pub mesh: Mesh,
    /// Sizes; the batch is that of one micro-batch of all replicas together.
    pub shapes: Shapes,
    /// Width of the tensor between blocks.
    pub hidden: u64,
    /// Its layout.
    pub boundary: Layout,
    /// Compute type.
    pub dtype: DType,
}

/// The problem of a block class, before the step's share of the parameters is added.
#[derive(Debug)]
pub(crate) struct Block<'a> {
    pub(crate) spec: Spec<'a>,
    strategies: Vec<Vec<Strategy>>,
    pub(crate) layouts: Vec<Vec<OpLayouts>>,
    work: Vec<Vec<NodeWork>>,
    /// Per problem node (ops, then values): time and kept bytes of each strategy.
    pub(crate) time: Vec<Vec<u64>>,
    pub(crate) kept: Vec<Vec<u64>>,
    pub(crate) edges: Vec<Edge>,
}

/// The layouts a parameter may have: its own and the axes its gradient is summed over.
pub(crate) type ParamLayout = (Layout, AxisSet);

/// How parameters and frames weigh in a problem.
#[derive(Clone, Copy)]
pub(crate) struct Load<'a> {
    /// What a step does to parameters.
    pub(crate) step: Step,
    /// Prices on the whole mesh.
    pub(crate) prices: &'a Prices<'a>,
    /// Micro-batches that share the step's work.
    pub(crate) micro_batches: u64,
    /// Frames held at once.
    pub(crate) in_flight: u64,
    /// Whether tied parameters are their owner's, on the same ranks.
    pub(crate) shares_ties: bool,
}

impl<'a> Block<'a> {
    /// Builds the problem. `None` when the boundary's layout does not cut its tensor evenly, or an op has no strategy.
    pub(crate) fn new(spec: Spec<'a>, prices: &Prices<'_>) -> Option<Self> {
        let class = spec.class;
        let boundary_shape = [spec.shapes.batch, spec.shapes.sequence, spec.hidden];
        spec.boundary.local(&boundary_shape, &spec.mesh).ok()?;
        let strategies: Vec<Vec<Strategy>> =
            class.nodes.iter().map(|n| strategies(&n.op, &spec.mesh, &spec.shapes)).collect();
        if strategies.iter().any(Vec::is_empty) {
            return None;
        }
        let layouts: Vec<Vec<OpLayouts>> = class
            .nodes
            .iter()
            .zip(&strategies)
            .map(|(n, all)| all.iter().map(|s| layouts(&n.op, s)).collect())
            .collect();
        let live = live(class);
        let scene = Scene { mesh: &spec.mesh, shapes: &spec.shapes, dtype: spec.dtype };
        let work: Vec<Vec<NodeWork>> = (0..class.nodes.len())
            .map(|k| {
                let each = strategies[k].iter().zip(&layouts[k]);
                each.map(|(s, l)| scene.work(&class.nodes[k], s, l, live[k], prices)).collect()
            })
            .collect();
        let time = work.iter().map(|w| w.iter().map(|x| x.time).collect()).collect();
        let kept = work.iter().map(|w| w.iter().map(|x| x.kept).collect()).collect();
        let mut block = Self { spec, strategies, layouts, work, time, kept, edges: vec![] };
        let batch = block.spec.shapes.batch / pieces(&block.spec.mesh);
        let price = prices.search_price(batch, block.spec.dtype);
        let mut converter = Converter::new(block.spec.mesh, as_price(&price));
        for value in (0..class.nodes.len() as u32).map(Value::Node).chain([Value::Input]) {
            block.add_value(value, &live, prices, &mut converter);
        }
        Some(block)
    }

    /// The problem for a step: parameters pay for their synchronisation and update, shared among its micro-batches, and
    /// hold their states. `tied` tells of nodes whose parameter another block shares.
    pub(crate) fn problem(&self, load: &Load<'_>, tied: &dyn Fn(usize) -> bool) -> Problem {
        let node = |k: usize| {
            let mut choices = Choices { cost: self.time[k].clone(), memory: vec![0; self.time[k].len()] };
            for s in 0..choices.cost.len() {
                choices.memory[s] = self.kept[k][s] * load.in_flight;
                let Some(work) = self.work.get(k).map(|w| &w[s]) else { continue };
                // Copies on two stages are summed after the replicas, so their states stay whole.
                let step = if tied(k) && !load.shares_ties { load.step.whole() } else { load.step };
                for shard in self.owned(k, work, load.shares_ties) {
                    let time = step.time(shard, load.prices) / load.micro_batches;
                    choices.cost[s] = add(choices.cost[s], time);
                    choices.memory[s] += step.bytes(shard);
                }
            }
            choices
        };
        Problem { nodes: (0..self.time.len()).map(node).collect(), edges: self.edges.clone(), budget: None }
    }

    /// Forbids every strategy of a node under which its first parameter lies otherwise.
    pub(crate) fn restrict(&self, problem: &mut Problem, node: usize, layout: &ParamLayout) {
        for (s, cost) in problem.nodes[node].cost.iter_mut().enumerate() {
            if self.param_layout(node, s) != *layout {
                *cost = FORBIDDEN;
            }
        }
    }

    /// The problem without the parameters' share.
    pub(crate) fn bare(&self) -> Problem {
        let node = |cost: &Vec<u64>| Choices { cost: cost.clone(), memory: vec![0; cost.len()] };
        Problem { nodes: self.time.iter().map(node).collect(), edges: self.edges.clone(), budget: None }
    }

    /// Parameters that this block pays for.
    fn owned<'b>(&self, node: usize, work: &'b NodeWork, shares_ties: bool) -> &'b [Shard] {
        let tied = shares_ties && self.spec.class.nodes[node].tied.is_some();
        &work.params[usize::from(tied)..]
    }

    /// Layout of a node's first parameter under a strategy.
    fn param_layout(&self, node: usize, strategy: usize) -> ParamLayout {
        let layouts = &self.layouts[node][strategy];
        (layouts.params[0].clone(), layouts.param_gradients[0].partial())
    }

    /// Every layout that a node's first parameter may have, in order of strategies.
    pub(crate) fn param_layouts(&self, node: usize) -> Vec<ParamLayout> {
        let mut found: Vec<ParamLayout> = vec![];
        for s in 0..self.strategies[node].len() {
            let layout = self.param_layout(node, s);
            if !found.contains(&layout) {
                found.push(layout);
            }
        }
        found
    }

    /// The strategies of a choice.
    pub(crate) fn chosen(&self, choice: &[u32]) -> Vec<Strategy> {
        self.strategies.iter().zip(choice).map(|(all, k)| all[*k as usize].clone()).collect()
    }

    /// The same place on these data axes, two ranks of each of which stand for any number.
    pub(crate) fn spread(&self, data: AxisSet, sequence_parallel: bool) -> Spec<'a> {
        let spec = &self.spec;
        let degrees = data.iter().map(|a| (a, 2)).chain([(Axis::Tp, spec.mesh.degree(Axis::Tp))]);
        let mesh = Mesh::new(degrees).expect("degrees of a small mesh");
        let each = spec.shapes.batch / pieces(&spec.mesh);
        let shapes = Shapes { batch: each * pieces(&mesh), ..spec.shapes };
        Spec { mesh, shapes, boundary: boundary(data, sequence_parallel), ..spec.clone() }
    }
}

impl Spec<'_> {
    /// The class's plan in this place under these strategies.
    pub(crate) fn plan(&self, strategies: Vec<Strategy>, prices: &Prices<'_>) -> ClassPlan {
        let price = prices.search_price(self.shapes.batch / pieces(&self.mesh), self.dtype);
        let mut converter = Converter::new(self.mesh, as_price(&price));
        class_plan(self.class, strategies, &self.shapes, self.hidden, &self.boundary, &mut converter)
            .expect("a solved problem converts every value")
    }
}

/// Nodes whose output reaches the block's end.
pub(crate) fn live(class: &BlockClass) -> Vec<bool> {
    let n = class.nodes.len();
    let mut live = vec![false; n];
    live[n - 1] = true;
    for k in (0..n).rev().filter(|k| class.nodes[*k].inputs.iter().any(|v| matches!(v, Value::Node(_)))) {
        for value in &class.nodes[k].inputs {
            if let (Value::Node(p), true) = (value, live[k]) {
                live[*p as usize] = true;
            }
        }
    }
    live
}

/// Pieces that data axes cut a batch into.
fn pieces(mesh: &Mesh) -> u64 {
    u64::from(mesh.replicas())
}

pub(crate) fn add(a: u64, b: u64) -> u64 {
    a.saturating_add(b)
}
