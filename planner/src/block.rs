//! One block class as a pairwise problem: a node per op, whose strategies are `algebra::strategies`; an edge per value
//! with one reader, priced by converting the value forward and its gradient back; a node of its own per value with
//! several readers, whose strategies are the layouts wanted and given, so that a copy is made once and gradients that
//! arrive alike are summed before they are converted. No parallelism is named here: those that papers name are what is
//! cheapest. The invariant: the cost of a choice is the price of `algebra::expand`'s list for it, and its memory the
//! expansion's frame, parameters aside.

use crate::pricing::{Prices, as_price};
use crate::problem::{Choices, Edge, FORBIDDEN, Outcome, Problem, evaluate};
use crate::solve::solve;
use crate::work::{NodeWork, Scene, Shard, Step};
use meshwright_algebra::{
    ALIGNMENT, Converter, Expr, OpLayouts, Shapes, Slot, class_plan, layouts, signature, strategies,
};
use meshwright_ir::program::Pass;
use meshwright_ir::{
    Axis, AxisSet, BlockClass, ClassPlan, DType, Layout, Mesh, Op, Strategy, Training, Value,
};

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
    layouts: Vec<Vec<OpLayouts>>,
    work: Vec<Vec<NodeWork>>,
    /// Per problem node (ops, then values): time and kept bytes of each strategy.
    time: Vec<Vec<u64>>,
    kept: Vec<Vec<u64>>,
    edges: Vec<Edge>,
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

/// A reader of a value: per strategy the layout it wants and the layout of the gradient it gives.
struct Reader {
    /// Node; `nodes.len()` for the block's output.
    node: usize,
    /// Distinct (wanted, given).
    sides: Vec<(Layout, Layout)>,
    /// Which of them each strategy has.
    side_of: Vec<usize>,
    gives: bool,
    keeps: bool,
}

/// One reader's part in a choice for a value.
struct Part<'a> {
    wanted: &'a Layout,
    given: &'a Layout,
    gives: bool,
    keeps: bool,
    is_output: bool,
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

    fn readers(&self, value: Value, live: &[bool]) -> Vec<Reader> {
        let class = self.spec.class;
        let reader = |(node, operand): (u32, u32)| {
            let (k, o) = (node as usize, operand as usize);
            let all: Vec<(Layout, Layout)> =
                self.layouts[k].iter().map(|l| (l.inputs[o].clone(), l.input_gradients[o].clone())).collect();
            let op = &class.nodes[k].op;
            Reader {
                node: k,
                gives: live[k],
                keeps: live[k] && reads_back(op, Slot::Input(o as u8)),
                ..distinct(all)
            }
        };
        let mut readers: Vec<Reader> = class.consumers(value).into_iter().map(reader).collect();
        let last = class.nodes.len() - 1;
        if value == Value::Node(last as u32) && !class.ends_in_loss() {
            let boundary = self.spec.boundary.clone();
            let side = distinct(vec![(boundary.clone(), boundary)]);
            readers.push(Reader { node: last + 1, gives: true, keeps: false, ..side });
        }
        readers
    }

    /// Prices a value's conversions: on its producer, on an edge, or on a node of its own.
    fn add_value(&mut self, value: Value, live: &[bool], prices: &Prices<'_>, converter: &mut Converter<'_>) {
        let readers = self.readers(value, live);
        let output = self.spec.class.nodes.len();
        let (producer, made, keeps) = match value {
            Value::Input => {
                (None, distinct(vec![(self.spec.boundary.clone(), self.spec.boundary.clone())]), false)
            }
            Value::Node(k) => {
                let all = &self.layouts[k as usize];
                let sides = all.iter().map(|l| (l.output.clone(), l.output_gradient.clone())).collect();
                let op = &self.spec.class.nodes[k as usize].op;
                (Some(k as usize), distinct(sides), live[k as usize] && reads_back(op, Slot::Output))
            }
        };
        let shape = self.shape(value);
        let mut cost = |made: &(Layout, Layout), parts: &[Part<'_>], keeps: bool| {
            self.value_cost(value, &shape, made, parts, keeps, prices, converter)
        };
        match (&readers[..], producer) {
            ([], _) => {}
            ([only], Some(p)) if only.node == output => {
                let costs: Vec<_> =
                    made.sides.iter().map(|m| cost(m, &[only.part(0, output)], keeps)).collect();
                for (s, side) in made.side_of.iter().enumerate() {
                    let (time, kept) = costs[*side];
                    self.time[p][s] = add(self.time[p][s], time);
                    self.kept[p][s] += kept;
                }
            }
            ([only], None) => {
                let costs: Vec<_> = (0..only.sides.len())
                    .map(|x| cost(&made.sides[0], &[only.part(x, output)], false))
                    .collect();
                for (s, side) in only.side_of.iter().enumerate() {
                    let (time, kept) = costs[*side];
                    self.time[only.node][s] = add(self.time[only.node][s], time);
                    self.kept[only.node][s] += kept;
                }
            }
            ([only], Some(p)) if !(keeps && only.keeps) => {
                let table: Vec<Vec<(u64, u64)>> = made
                    .sides
                    .iter()
                    .map(|m| (0..only.sides.len()).map(|x| cost(m, &[only.part(x, output)], keeps)).collect())
                    .collect();
                let cells = made.side_of.iter().flat_map(|m| only.side_of.iter().map(move |x| (*m, *x)));
                let matrix = cells.map(|(m, x)| table[m][x].0).collect();
                // What is kept depends on one end alone: the value itself on its producer, the copy on its reader.
                match keeps {
                    true => {
                        made.side_of.iter().enumerate().for_each(|(s, m)| self.kept[p][s] += table[*m][0].1)
                    }
                    false => {
                        let add = |(s, x): (usize, &usize)| self.kept[only.node][s] += table[0][*x].1;
                        only.side_of.iter().enumerate().for_each(add);
                    }
                }
                self.edges.push(Edge { from: p as u32, to: only.node as u32, cost: matrix });
            }
            (several, producer) => {
                let tuples = tuples(made.sides.len(), several);
                let costs: Vec<(u64, u64)> = tuples
                    .iter()
                    .map(|t| {
                        let parts: Vec<_> =
                            several.iter().zip(&t[1..]).map(|(r, side)| r.part(*side, output)).collect();
                        cost(&made.sides[t[0]], &parts, keeps)
                    })
                    .collect();
                let own = self.time.len() as u32;
                self.time.push(costs.iter().map(|c| c.0).collect());
                self.kept.push(costs.iter().map(|c| c.1).collect());
                let mut tie = |at: usize, node: usize, side_of: &[usize]| {
                    let agree = tuples.iter().flat_map(|t| side_of.iter().map(move |s| t[at] == *s));
                    let cost = agree.map(|yes| if yes { 0 } else { FORBIDDEN }).collect();
                    self.edges.push(Edge { from: own, to: node as u32, cost });
                };
                if let Some(p) = producer {
                    tie(0, p, &made.side_of);
                }
                for (r, reader) in several.iter().enumerate().filter(|(_, reader)| reader.node < output) {
                    tie(r + 1, reader.node, &reader.side_of);
                }
            }
        }
    }

    fn shape(&self, value: Value) -> Vec<u64> {
        match value {
            Value::Input => vec![self.spec.shapes.batch, self.spec.shapes.sequence, self.spec.hidden],
            Value::Node(k) => {
                let expr = Expr::of(&self.spec.class.nodes[k as usize].op);
                self.spec.shapes.shape(&expr, &expr.output)
            }
        }
    }

    /// Time of a value's copies, gradient sums and gradient conversions; bytes of it that are kept for backward.
    #[allow(clippy::too_many_arguments)]
    fn value_cost(
        &self,
        value: Value,
        shape: &[u64],
        (made, needed): &(Layout, Layout),
        parts: &[Part<'_>],
        producer_keeps: bool,
        prices: &Prices<'_>,
        converter: &mut Converter<'_>,
    ) -> (u64, u64) {
        let (mesh, dtype) = (&self.spec.mesh, self.spec.dtype);
        let local = |l: &Layout| l.local(shape, mesh).map_or(0, |s| s.iter().product::<u64>());
        let mut convert = |from: &Layout, to: &Layout| match converter.path(from, to, shape) {
            Some((steps, _)) => prices.steps(from, &steps, shape, mesh, dtype),
            None => FORBIDDEN,
        };
        let sum = |elements: u64| prices.kernel(&meshwright_ir::program::Kernel::Add { elements, dtype });
        let mut copies: Vec<&Layout> = vec![];
        let mut gradients: Vec<&Layout> = vec![];
        let mut time = 0;
        for part in parts {
            if !copies.contains(&part.wanted) {
                copies.push(part.wanted);
                time = add(time, convert(made, part.wanted));
            }
            match (part.gives, gradients.contains(&part.given)) {
                (false, _) => {}
                (true, true) => time = add(time, sum(local(part.given))),
                (true, false) => {
                    time = add(time, convert(part.given, needed));
                    if !gradients.is_empty() {
                        time = add(time, sum(local(needed)));
                    }
                    gradients.push(part.given);
                }
            }
        }
        let is_output = |l: &Layout| parts.iter().any(|p| p.is_output && p.wanted == l);
        let elsewhere = |l: &Layout| is_output(l) || (value == Value::Input && l == made);
        let mut held: Vec<&Layout> = parts.iter().filter(|p| p.keeps).map(|p| p.wanted).collect();
        held.extend(producer_keeps.then_some(made));
        held.sort();
        held.dedup();
        let bytes = |l: &&Layout| dtype.bytes(local(l)).align(ALIGNMENT).get();
        (time, held.iter().filter(|l| !elsewhere(l)).map(bytes).sum())
    }

    /// The problem for a step: parameters pay for their synchronisation and update, shared among its micro-batches, and
    /// hold their states; `only` keeps a node's parameter to one layout.
    pub(crate) fn problem(&self, load: &Load<'_>, only: Option<(usize, &ParamLayout)>) -> Problem {
        let node = |k: usize| {
            let mut choices = Choices { cost: self.time[k].clone(), memory: vec![0; self.time[k].len()] };
            for s in 0..choices.cost.len() {
                choices.memory[s] = self.kept[k][s] * load.in_flight;
                let Some(work) = self.work.get(k).map(|w| &w[s]) else { continue };
                for shard in self.owned(k, work, load.shares_ties) {
                    let time = load.step.time(shard, load.prices) / load.micro_batches;
                    choices.cost[s] = add(choices.cost[s], time);
                    choices.memory[s] += load.step.bytes(shard);
                }
                if only.is_some_and(|(node, layout)| node == k && self.param_layout(k, s) != *layout) {
                    choices.cost[s] = FORBIDDEN;
                }
            }
            choices
        };
        Problem { nodes: (0..self.time.len()).map(node).collect(), edges: self.edges.clone(), budget: None }
    }

    /// The problem without the parameters' share.
    fn bare(&self) -> Problem {
        let node = |cost: &Vec<u64>| Choices { cost: cost.clone(), memory: vec![0; cost.len()] };
        Problem { nodes: self.time.iter().map(node).collect(), edges: self.edges.clone(), budget: None }
    }

    /// Parameters that this block pays for.
    fn owned<'b>(&self, node: usize, work: &'b NodeWork, shares_ties: bool) -> &'b [Shard] {
        let tied = shares_ties && self.spec.class.nodes[node].tied.is_some();
        &work.params[usize::from(tied)..]
    }

    /// Layout of a node's first parameter under a strategy.
    pub(crate) fn param_layout(&self, node: usize, strategy: usize) -> ParamLayout {
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

    /// The class's plan under these strategies.
    pub(crate) fn plan(&self, strategies: Vec<Strategy>, prices: &Prices<'_>) -> ClassPlan {
        let spec = &self.spec;
        let price = prices.search_price(spec.shapes.batch / pieces(&spec.mesh), spec.dtype);
        let mut converter = Converter::new(spec.mesh, as_price(&price));
        class_plan(spec.class, strategies, &spec.shapes, spec.hidden, &spec.boundary, &mut converter)
            .expect("a solved problem converts every value")
    }
}

impl Reader {
    fn part(&self, side: usize, output: usize) -> Part<'_> {
        let (wanted, given) = &self.sides[side];
        Part { wanted, given, gives: self.gives, keeps: self.keeps, is_output: self.node == output }
    }
}

/// Groups strategies by what they ask of a value.
fn distinct(all: Vec<(Layout, Layout)>) -> Reader {
    let mut sides: Vec<(Layout, Layout)> = vec![];
    let mut side_of = vec![];
    for side in all {
        let known = sides.iter().position(|s| *s == side);
        side_of.push(known.unwrap_or_else(|| {
            sides.push(side);
            sides.len() - 1
        }));
    }
    Reader { node: usize::MAX, sides, side_of, gives: false, keeps: false }
}

/// Every way to pick the producer's side and each reader's.
fn tuples(made: usize, readers: &[Reader]) -> Vec<Vec<usize>> {
    let counts = std::iter::once(made).chain(readers.iter().map(|r| r.sides.len()));
    counts.fold(vec![vec![]], |all, n| {
        let longer = |t: &Vec<usize>| (0..n).map(|k| [&t[..], &[k]].concat()).collect::<Vec<_>>();
        all.iter().flat_map(longer).collect()
    })
}

/// Nodes whose output reaches the block's end.
fn live(class: &BlockClass) -> Vec<bool> {
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

/// Whether backward reads one of forward's tensors.
fn reads_back(op: &Op, slot: Slot) -> bool {
    let passes = [Pass::BackwardInput, Pass::BackwardWeight];
    passes.iter().filter_map(|p| signature(op, *p)).any(|s| s.reads.contains(&slot))
}

/// Pieces that data axes cut a batch into.
fn pieces(mesh: &Mesh) -> u64 {
    u64::from(mesh.degree(Axis::Dp) * mesh.degree(Axis::Fsdp))
}

fn add(a: u64, b: u64) -> u64 {
    a.saturating_add(b)
}

/// A block class solved by itself.
#[derive(Debug, Clone)]
pub struct BlockPlan {
    /// The choices.
    pub plan: ClassPlan,
    /// Kernels, collectives and conversions of one micro-batch, forward and backward, one after the other.
    pub time: u64,
    /// The parameters' share per micro-batch: gradient all_reduce, norm, update.
    pub parameters: u64,
    /// Parameter states and the frames in flight, in bytes.
    pub memory: u64,
    /// What the solver proved.
    pub outcome: Outcome,
}

/// Solves one block class by itself, `in_flight` frames and parameter states within `budget` bytes if one is given.
/// `prices` are those of the whole mesh. `Err` says why there is no plan.
pub fn plan_block(
    spec: Spec<'_>,
    training: &Training,
    prices: &Prices<'_>,
    micro_batches: u64,
    in_flight: u64,
    budget: Option<u64>,
) -> Result<BlockPlan, String> {
    let name = spec.class.name.clone();
    let uneven = || format!("{name}: the boundary {} does not cut evenly", spec.boundary);
    let block = Block::new(spec.clone(), prices).ok_or_else(uneven)?;
    let step = Step::of(training);
    let load = Load { step, prices, micro_batches, in_flight, shares_ties: false };
    let problem = Problem { budget, ..block.problem(&load, None) };
    let outcome = solve(&problem);
    let solution = match (&outcome, outcome.best()) {
        (_, Some((solution, _))) => solution.clone(),
        (Outcome::Infeasible { why }, None) => return Err(format!("{name}: {why}")),
        (_, None) => return Err(format!("{name}: the solver stopped without a choice")),
    };
    let time = evaluate(&block.bare(), &solution.choice).expect("an allowed choice");
    Ok(BlockPlan {
        plan: block.plan(block.chosen(&solution.choice), prices),
        time,
        parameters: solution.cost - time,
        memory: solution.memory,
        outcome,
    })
}
