//! The least bound on the step over all cuts: a dynamic programme over stages, last to first, whose states are where a
//! stage begins and whose values are [`Label`]s, of which those nowhere larger than another survive. What cannot undercut
//! the best known step is dropped. Where a state has too many labels, neighbours are rounded down to what lies under both,
//! so the bound stays certified while the cut found may be above it. The invariant: the bound holds for every cut.

use super::pipeline::{Label, Part};
use super::{Run, Stages};
use std::collections::{BTreeMap, BTreeSet};

/// Most labels of a state: a guess at where more would cost time and change nothing.
const MOST_LABELS: usize = 24;

/// What the dynamic programme found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    /// No cut has a closed form under this.
    pub(crate) bound: u64,
    /// A cut whose own bound is that, or with rounding near it: runs from the first stage to the last.
    pub(crate) cut: Option<Vec<Run>>,
    /// Whether nothing was rounded.
    pub(crate) exact: bool,
}

/// A label, the part that it begins with, and where it came from among the labels of the next stage.
#[derive(Debug, Clone, Copy)]
struct Node {
    label: Label,
    part: usize,
    /// End of the stage's run, and position among the labels there.
    from: (usize, usize),
}

/// The least bound of all cuts whose bound is under `upper`; `upper` itself where there is none.
pub(crate) fn least(problem: &Stages<'_>, upper: u64) -> Found {
    let (layers, exact) = layers(problem, upper, &mut |_| ());
    let last = layers.last().and_then(|layer| layer.get(&0)).cloned().unwrap_or_default();
    let Some((at, node)) = last.iter().enumerate().min_by_key(|(_, n)| n.label.step()) else {
        return Found { bound: upper, cut: None, exact };
    };
    let bound = node.label.step();
    let (mut cut, mut at, mut first) = (vec![], at, 0);
    for layer in layers.iter().rev() {
        let node = &layer[&first][at];
        cut.push((first, node.part));
        (first, at) = node.from;
    }
    Found { bound, cut: Some(cut), exact }
}

/// Every part of a stage, as `(stage, first, end, part)`, that some cut under `upper` may take.
pub(crate) fn survivors(problem: &Stages<'_>, upper: u64) -> Vec<[usize; 4]> {
    let mut all: BTreeSet<[usize; 4]> = BTreeSet::new();
    layers(problem, upper, &mut |arc| {
        all.insert(arc);
    });
    // What begins where no earlier stage ends is no part of a whole cut.
    let mut ends = BTreeSet::from([(0, 0)]);
    let reached = |arc: &[usize; 4]| {
        let [stage, first, end, _] = *arc;
        let reached = ends.contains(&(stage, first));
        if reached {
            ends.insert((stage + 1, end));
        }
        reached
    };
    all.into_iter().filter(reached).collect()
}

type Layers = Vec<BTreeMap<usize, Vec<Node>>>;

/// Labels of every stage, last stage first, by the block it begins with; and whether none was rounded.
fn layers(problem: &Stages<'_>, upper: u64, seen: &mut dyn FnMut([usize; 4])) -> (Layers, bool) {
    let (p, n) = (problem.pipeline.stages(), problem.blocks.len());
    let rest = Rest::of(problem);
    let mut exact = true;
    let mut layers: Layers = vec![];
    let start = BTreeMap::from([(n, vec![])]);
    for stage in (0..p).rev() {
        let after = layers.last().unwrap_or(&start);
        let mut layer: BTreeMap<usize, Vec<Node>> = BTreeMap::new();
        for (end, labels) in after {
            let labels: Vec<Option<&Label>> = match stage + 1 == p {
                true => vec![None],
                false => labels.iter().map(|n| Some(&n.label)).collect(),
            };
            for first in problem.firsts(stage, *end) {
                let parts = (problem.parts)(stage, first, *end);
                let mut any = false;
                for (k, part) in parts.iter().enumerate() {
                    any |= rest.alone(problem, stage, first, part) < upper;
                    let mut survives = false;
                    for (l, after) in labels.iter().enumerate() {
                        let label = problem.pipeline.before(stage, part, *after);
                        if rest.least(problem, stage, first, &label) < upper {
                            survives = true;
                            layer.entry(first).or_default().push(Node { label, part: k, from: (*end, l) });
                        }
                    }
                    if survives {
                        seen([stage, first, *end, k]);
                    }
                }
                // More blocks fit no better, and take no less.
                if !any {
                    break;
                }
            }
        }
        for nodes in layer.values_mut() {
            exact &= thin(nodes);
        }
        layers.push(layer);
    }
    (layers, exact)
}

/// Keeps the labels that no other covers, and rounds them down in pairs until they are few; whether none was rounded.
fn thin(nodes: &mut Vec<Node>) -> bool {
    nodes.sort_by_key(|n| n.label);
    let mut kept: Vec<Node> = vec![];
    for node in nodes.drain(..) {
        if !kept.iter().any(|k| k.label.covers(&node.label)) {
            kept.push(node);
        }
    }
    let exact = kept.len() <= MOST_LABELS;
    while kept.len() > MOST_LABELS {
        let halves = kept.chunks(2).map(|pair| {
            let label = pair.iter().fold(pair[0].label, |l, n| l.under(&n.label));
            Node { label, ..pair[0] }
        });
        kept = halves.collect();
    }
    *nodes = kept;
    exact
}

/// What the stages before a run take at least.
pub(super) struct Rest {
    /// Forward, both passes, and the largest block, of the blocks before each.
    forward: Vec<u64>,
    both: Vec<u64>,
    largest: Vec<u64>,
    /// Messages of the stages before each.
    hops: Vec<u64>,
}

impl Rest {
    pub(super) fn of(problem: &Stages<'_>) -> Self {
        let mut rest = Self { forward: vec![0], both: vec![0], largest: vec![0], hops: vec![0] };
        let push = |to: &mut Vec<u64>, more: &dyn Fn(u64) -> u64| to.push(more(to[to.len() - 1]));
        for (f, b) in problem.blocks {
            push(&mut rest.forward, &|x| x + f);
            push(&mut rest.both, &|x| x + f + b);
            push(&mut rest.largest, &|x| x.max(f + b));
        }
        for hop in problem.pipeline.hop {
            push(&mut rest.hops, &|x| x + hop);
        }
        rest
    }

    /// Least step of a cut with this label from `first` on.
    pub(super) fn least(&self, problem: &Stages<'_>, stage: usize, first: usize, label: &Label) -> u64 {
        let hops = self.hops[stage];
        let down = label.done + self.forward[first] + hops;
        let up = label.ends + self.both[first] + 2 * hops;
        down.max(up).max(self.slowest(problem, stage, first)) + label.update
    }

    /// Least step of a cut with this part, whatever follows.
    pub(super) fn alone(&self, problem: &Stages<'_>, stage: usize, first: usize, part: &Part) -> u64 {
        let work = problem.pipeline.micro_batches * (part.forward + part.backward);
        work + self.both[first] + 2 * self.hops[stage]
    }

    /// Least time of the slowest of the stages before.
    fn slowest(&self, problem: &Stages<'_>, stage: usize, first: usize) -> u64 {
        let even = if stage > 0 { self.both[first].div_ceil(stage as u64) } else { 0 };
        problem.pipeline.micro_batches * even.max(self.largest[first])
    }
}
