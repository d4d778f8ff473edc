//! All block classes of a model on one tensor-parallel degree, micro-batch and boundary: what every plan with these has in
//! common. Data parallelism changes only the price of synchronising parameters, so all degrees above one share a family.
//! The invariant: a choice gives a tied parameter one layout, summed over the same axes, in both of its blocks.

use crate::block::{Block, Load, ParamLayout, Spec};
use crate::eliminate::Weigh;
use crate::pricing::Prices;
use crate::problem::{Outcome, Problem, Solution};
use crate::solve::{relaxed, solve};
use crate::space::levels;
use crate::work::data_axes;
use meshwright_algebra::{BlockCode, Scope, Shapes, expand, recompute};
use meshwright_ir::{Axis, AxisSet, ClassPlan, Job, Layout, Mesh, Recompute, Strategy};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// What a family's block problems depend on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) tp: u32,
    /// Whether there is more than one replica.
    pub(crate) replicated: bool,
    pub(crate) micro_batch: u64,
    /// Whether the tensor between blocks is cut along the sequence.
    pub(crate) sequence_parallel: bool,
}

/// A class under chosen strategies, expanded and priced at every level of recomputation worth taking.
#[derive(Debug)]
pub(crate) struct Expanded {
    pub(crate) plan: ClassPlan,
    /// By rising time: each holds less than those before it, in frames or in workspace.
    pub(crate) versions: Vec<Level>,
}

impl Expanded {
    /// Its parameters, at every level the same.
    pub(crate) fn params(&self) -> &[Scope] {
        &self.versions[0].code.params
    }
}

/// A class at one level of recomputation.
#[derive(Debug)]
pub(crate) struct Level {
    pub(crate) level: Recompute,
    pub(crate) code: BlockCode,
    /// Of one micro-batch, collectives beside kernels where data allows.
    pub(crate) forward: u64,
    pub(crate) backward: u64,
    /// Kernels alone, both passes.
    pub(crate) compute: u64,
    /// Kernels and collectives in turn, both passes.
    pub(crate) in_turn: u64,
}

/// By class, strategies, and the data axes that they are spread over.
type Memo = Mutex<BTreeMap<(usize, Vec<Strategy>, AxisSet), Arc<Expanded>>>;

/// The blocks, built once.
#[derive(Debug)]
pub(crate) struct Family<'a> {
    prices: &'a Prices<'a>,
    key: Key,
    blocks: Vec<Block<'a>>,
    expanded: Memo,
    /// `(owner, tied)`, each a class and a node.
    ties: Vec<[(usize, usize); 2]>,
    repeats: Vec<u64>,
    /// Levels of recomputation that blocks may take.
    levels: Vec<Recompute>,
    /// Elements of the tensor between blocks on one rank.
    pub(crate) boundary_elements: u64,
}

impl<'a> Family<'a> {
    /// Builds the blocks. `prices` are those of the tensor-parallel groups. `None` when the boundary does not divide.
    pub(crate) fn new(job: &'a Job, key: Key, prices: &'a Prices<'a>) -> Option<Self> {
        let dp = if key.replicated { 2 } else { 1 };
        let mesh = Mesh::new([(Axis::Dp, dp), (Axis::Tp, key.tp)]).expect("degrees of a small mesh");
        let shapes = Shapes { batch: key.micro_batch * u64::from(dp), sequence: job.training.sequence };
        let boundary = boundary(data_axes(&mesh), key.sequence_parallel);
        let shape = [shapes.batch, shapes.sequence, job.model.hidden];
        let boundary_elements = boundary.local(&shape, &mesh).ok()?.iter().product();
        let block = |class| {
            let spec = Spec {
                class,
                mesh,
                shapes,
                hidden: job.model.hidden,
                boundary: boundary.clone(),
                dtype: job.training.precision.compute(),
            };
            Block::new(spec, prices)
        };
        let blocks: Vec<Block<'a>> = job.model.classes.iter().map(block).collect::<Option<_>>()?;
        let mut ties = vec![];
        for (c, class) in job.model.classes.iter().enumerate() {
            for (n, node) in class.nodes.iter().enumerate() {
                if let Some((oc, on)) = node.tied.as_ref().and_then(|t| job.model.tied_to(t)) {
                    ties.push([(oc as usize, on as usize), (c, n)]);
                }
            }
        }
        let of_class = |c: usize| {
            job.model.runs.iter().filter(|r| r.class as usize == c).map(|r| u64::from(r.repeat)).sum()
        };
        let repeats = (0..blocks.len()).map(of_class).collect();
        let levels = levels(job);
        Some(Self {
            prices,
            key,
            blocks,
            expanded: Memo::default(),
            ties,
            repeats,
            levels,
            boundary_elements,
        })
    }

    /// The classes' problems under a plan's load.
    pub(crate) fn instance<'f>(&'f self, load: Load<'f>) -> Instance<'f, 'a> {
        let tied = |c: usize, n: usize| self.ties.iter().flatten().any(|t| *t == (c, n));
        let problem = |(c, block): (usize, &Block<'_>)| block.problem(&load, &|n| tied(c, n));
        Instance { family: self, problems: self.blocks.iter().enumerate().map(problem).collect() }
    }

    /// A class under a choice, with its batch cut by these data axes: those of the point, for which the problem's one stands.
    pub(crate) fn expanded(&self, class: usize, choice: &[u32], data: AxisSet) -> Arc<Expanded> {
        let block = &self.blocks[class];
        let key = (class, block.chosen(choice), data);
        if let Some(known) = self.expanded.lock().expect("no expansion panics").get(&key) {
            return known.clone();
        }
        let strategies = key.1.iter().map(|s| spread(s, data)).collect();
        let ops = block.spec.class;
        let spec = block.spread(data, self.key.sequence_parallel);
        let plan = spec.plan(strategies, self.prices);
        let code = expand(ops, &plan, &spec.mesh, &spec.shapes, spec.hidden, &spec.boundary, spec.dtype);
        let recomputes = ops.has_input() && !ops.ends_in_loss();
        let levels = if recomputes { &self.levels[..] } else { &[Recompute::None] };
        let made = Arc::new(Expanded { plan, versions: versions(self.prices, &code, levels) });
        self.expanded.lock().expect("no expansion panics").entry(key).or_insert(made).clone()
    }
}

/// A strategy whose one data axis is these instead.
fn spread(strategy: &Strategy, data: AxisSet) -> Strategy {
    let of = |(axis, index): (&Axis, &u8)| {
        let axes = if *axis == Axis::Dp { data } else { AxisSet::of(*axis) };
        let index = *index;
        axes.iter().map(move |a| (a, index)).collect::<Vec<_>>()
    };
    Strategy(strategy.0.iter().flat_map(of).collect())
}

/// A block at each of these levels, by rising time, without those that another beats in time, frame and workspace.
fn versions(p: &Prices<'_>, code: &BlockCode, levels: &[Recompute]) -> Vec<Level> {
    let at = |level: &Recompute| {
        let code = recompute(code, *level);
        Level {
            level: *level,
            forward: p.overlapped(&code, &code.forward),
            backward: p.overlapped(&code, &code.backward),
            compute: p.compute(&code.forward) + p.compute(&code.backward),
            in_turn: p.in_turn(&code.forward) + p.in_turn(&code.backward),
            code,
        }
    };
    let mut all: Vec<Level> = levels.iter().map(at).collect();
    all.sort_by_key(|v| (v.forward + v.backward, v.level));
    let mut kept: Vec<Level> = vec![];
    for v in all {
        let beats = |u: &Level| u.code.frame <= v.code.frame && u.code.workspace <= v.code.workspace;
        if !kept.iter().any(beats) {
            kept.push(v);
        }
    }
    kept
}

/// Layout of the tensor between blocks: batch over data axes, and the sequence over the tensor axis or not.
pub(crate) fn boundary(data: AxisSet, sequence_parallel: bool) -> Layout {
    let batch = data.iter().fold(Layout::replicated(3), |layout, axis| layout.sharded(0, axis));
    if sequence_parallel { batch.sharded(1, Axis::Tp) } else { batch }
}

/// The problems of all classes for one plan.
pub(crate) struct Instance<'f, 'a> {
    family: &'f Family<'a>,
    problems: Vec<Problem>,
}

/// A choice for every class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chosen {
    /// Per class.
    pub(crate) solutions: Vec<Solution>,
    /// Over all blocks of the chain, per micro-batch.
    pub(crate) cost: u64,
    /// Over all blocks of the chain.
    pub(crate) memory: u64,
}

impl Instance<'_, '_> {
    /// The best choice under a weighing, and how many block problems that took.
    pub(crate) fn choose(&self, weigh: Weigh) -> (Option<Chosen>, u64) {
        let family = self.family;
        let mut solved = 0;
        let mut best: Option<(u128, Vec<Solution>)> = None;
        let in_tie = |c: usize| family.ties.iter().flatten().any(|(class, _)| *class == c);
        let mut alone: Vec<Option<Solution>> = vec![None; self.problems.len()];
        for c in (0..self.problems.len()).filter(|c| !in_tie(*c)) {
            solved += 1;
            match relaxed(&self.problems[c], weigh) {
                Ok(solution) => alone[c] = Some(solution),
                Err(_) => return (None, solved),
            }
        }
        for layouts in self.tie_layouts() {
            let with = |c: usize| {
                let mut problem = self.problems[c].clone();
                for (tie, layout) in family.ties.iter().zip(&layouts) {
                    for (_, node) in tie.iter().filter(|(class, _)| *class == c) {
                        family.blocks[c].restrict(&mut problem, *node, layout);
                    }
                }
                relaxed(&problem, weigh).ok()
            };
            let mut all = Vec::with_capacity(alone.len());
            for (c, known) in alone.iter().enumerate() {
                solved += u64::from(known.is_none());
                all.extend(known.clone().or_else(|| with(c)));
            }
            if all.len() < alone.len() {
                continue;
            }
            let (cost, memory) = self.totals(&all);
            let weight = weigh.of(cost, memory);
            if best.as_ref().is_none_or(|(least, _)| weight < *least) {
                best = Some((weight, all));
            }
        }
        (best.map(|(_, solutions)| self.chosen(solutions)), solved)
    }

    /// Every combination of layouts that tied parameters may have in both of their blocks.
    fn tie_layouts(&self) -> Vec<Vec<ParamLayout>> {
        self.family.ties.iter().fold(vec![vec![]], |all, [owner, tied]| {
            let of = |(class, node): &(usize, usize)| self.family.blocks[*class].param_layouts(*node);
            let other = of(tied);
            let common: Vec<ParamLayout> = of(owner).into_iter().filter(|l| other.contains(l)).collect();
            all.iter()
                .flat_map(|known: &Vec<ParamLayout>| {
                    common.iter().map(move |l| [&known[..], std::slice::from_ref(l)].concat())
                })
                .collect()
        })
    }

    fn totals(&self, solutions: &[Solution]) -> (u64, u64) {
        let each = || solutions.iter().zip(&self.family.repeats);
        (each().map(|(s, n)| s.cost * n).sum(), each().map(|(s, n)| s.memory * n).sum())
    }

    fn chosen(&self, solutions: Vec<Solution>) -> Chosen {
        let (cost, memory) = self.totals(&solutions);
        Chosen { solutions, cost, memory }
    }

    /// Solves the most repeated class again, to proof, with `spare` more bytes than the choice gives it; the choice with
    /// what came of it, and the gap that is left. Classes with tied parameters stay as they are.
    pub(crate) fn tighten(&self, chosen: &Chosen, spare: u64) -> (Chosen, u64) {
        let repeats = &self.family.repeats;
        let Some(c) = (0..repeats.len()).max_by_key(|c| (repeats[*c], std::cmp::Reverse(*c))) else {
            return (chosen.clone(), 0);
        };
        if self.family.ties.iter().flatten().any(|(class, _)| *class == c) {
            return (chosen.clone(), 0);
        }
        let old = &chosen.solutions[c];
        let problem = Problem { budget: Some(old.memory + spare), ..self.problems[c].clone() };
        let (found, gap) = match solve(&problem) {
            Outcome::Optimal(found) => (found, 0),
            Outcome::Feasible { solution, gap } => (solution, gap),
            Outcome::Infeasible { .. } | Outcome::Stopped { .. } => (old.clone(), 0),
        };
        if found.cost >= old.cost {
            return (chosen.clone(), gap);
        }
        let mut solutions = chosen.solutions.clone();
        solutions[c] = found;
        (self.chosen(solutions), gap)
    }

    /// The expansions of a choice on these data axes, by class.
    pub(crate) fn expanded(&self, chosen: &Chosen, data: AxisSet) -> Vec<Arc<Expanded>> {
        chosen.solutions.iter().enumerate().map(|(c, s)| self.family.expanded(c, &s.choice, data)).collect()
    }
}
