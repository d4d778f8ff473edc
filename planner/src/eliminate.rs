//! Exact reductions of a pairwise problem (variable elimination; Bertelè and Brioschi 1972): parallel edges merge,
//! forbidden pairs propagate, dominated strategies go, nodes with at most two neighbours are folded into what they cost
//! their neighbours. Graphs of treewidth two, which most blocks are, vanish. The invariant: a cheapest choice for what is
//! left extends, by [`Graph::extend`], to a cheapest choice for the whole.

use crate::problem::{FORBIDDEN, Problem};
use std::collections::{BTreeMap, BTreeSet};

/// A weight that is never chosen.
pub(crate) const NEVER: u128 = u128::MAX;

/// How costs and bytes weigh; weights add up and the least total wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Weigh {
    /// Cost first, bytes among equal costs.
    CostThenMemory,
    /// Bytes first, cost among equal bytes.
    MemoryThenCost,
    /// So many times the cost plus so many times the bytes: a Lagrangian with multiplier `memory / cost`.
    Sum {
        /// Factor of the cost.
        cost: u64,
        /// Factor of the bytes.
        memory: u64,
    },
}

impl Weigh {
    /// Weight of a cost and bytes.
    pub(crate) fn of(self, cost: u64, memory: u64) -> u128 {
        let (c, m) = (u128::from(cost), u128::from(memory));
        match self {
            _ if cost == FORBIDDEN => NEVER,
            Weigh::CostThenMemory => c << 64 | m,
            Weigh::MemoryThenCost => m << 64 | c,
            Weigh::Sum { cost, memory } => c * u128::from(cost) + m * u128::from(memory),
        }
    }
}

fn add(a: u128, b: u128) -> u128 {
    a.saturating_add(b)
}

/// A node folded away: its best strategy for every pair of strategies of up to two neighbours.
#[derive(Debug, Clone)]
struct Folded {
    node: usize,
    neighbours: Vec<usize>,
    best: Vec<u32>,
}

/// A problem under reduction. Strategies keep their original positions; `active` lists those still allowed.
#[derive(Debug, Clone)]
pub(crate) struct Graph {
    pub(crate) active: Vec<Vec<u32>>,
    pub(crate) weight: Vec<Vec<u128>>,
    memory: Vec<Vec<u64>>,
    width: Vec<usize>,
    pub(crate) alive: Vec<bool>,
    edges: BTreeMap<(usize, usize), Vec<u128>>,
    near: Vec<BTreeSet<usize>>,
    folded: Vec<Folded>,
    /// Whether only nodes whose bytes do not depend on the choice may be folded.
    rigid: bool,
}

impl Graph {
    /// The problem under a weighing. With `rigid`, reductions stay exact under the memory row as well.
    pub(crate) fn new(problem: &Problem, weigh: Weigh, rigid: bool) -> Self {
        let n = problem.nodes.len();
        let weight: Vec<Vec<u128>> = problem
            .nodes
            .iter()
            .map(|node| node.cost.iter().zip(&node.memory).map(|(c, m)| weigh.of(*c, *m)).collect())
            .collect();
        let mut graph = Self {
            active: weight.iter().map(|w| (0..w.len() as u32).collect()).collect(),
            width: weight.iter().map(Vec::len).collect(),
            weight,
            memory: problem.nodes.iter().map(|node| node.memory.clone()).collect(),
            alive: vec![true; n],
            edges: BTreeMap::new(),
            near: vec![BTreeSet::new(); n],
            folded: vec![],
            rigid,
        };
        for edge in &problem.edges {
            let (from, to) = (edge.from as usize, edge.to as usize);
            let (rows, columns) = (graph.width[from], graph.width[to]);
            let at = |p: usize, q: usize| weigh.of(edge.cost[p * columns + q], 0);
            match from.cmp(&to) {
                std::cmp::Ordering::Equal => {
                    (0..rows).for_each(|p| graph.weight[from][p] = add(graph.weight[from][p], at(p, p)));
                }
                std::cmp::Ordering::Less => {
                    let matrix = (0..rows * columns).map(|k| at(k / columns, k % columns)).collect();
                    graph.join(from, to, matrix);
                }
                std::cmp::Ordering::Greater => {
                    let matrix = (0..rows * columns).map(|k| at(k % rows, k / rows)).collect();
                    graph.join(to, from, matrix);
                }
            }
        }
        graph
    }

    /// Adds a matrix between `a` < `b`.
    fn join(&mut self, a: usize, b: usize, matrix: Vec<u128>) {
        self.near[a].insert(b);
        self.near[b].insert(a);
        match self.edges.get_mut(&(a, b)) {
            Some(old) => old.iter_mut().zip(matrix).for_each(|(o, m)| *o = add(*o, m)),
            None => {
                self.edges.insert((a, b), matrix);
            }
        }
    }

    /// What the edge between two nodes adds.
    pub(crate) fn between(&self, a: usize, p: u32, b: usize, q: u32) -> u128 {
        match a < b {
            true => self.edges[&(a, b)][p as usize * self.width[b] + q as usize],
            false => self.edges[&(b, a)][q as usize * self.width[a] + p as usize],
        }
    }

    /// Edges left, smaller node first.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (usize, usize)> {
        self.edges.keys().copied()
    }

    /// Bytes of a strategy.
    pub(crate) fn bytes(&self, node: usize, strategy: u32) -> u64 {
        self.memory[node][strategy as usize]
    }

    /// Reduces until nothing changes. `Err` names a node that has no strategy left.
    pub(crate) fn reduce(&mut self) -> Result<(), usize> {
        loop {
            self.propagate()?;
            let mut changed = self.fold_all();
            if self.alive.iter().any(|a| *a) {
                changed |= self.drop_dominated();
            }
            if !changed {
                return Ok(());
            }
        }
    }

    /// Drops strategies that no strategy of some neighbour goes with.
    fn propagate(&mut self) -> Result<(), usize> {
        let mut queue: BTreeSet<usize> = (0..self.alive.len()).filter(|k| self.alive[*k]).collect();
        while let Some(a) = queue.pop_first() {
            let possible = |p: &u32| {
                self.weight[a][*p as usize] != NEVER
                    && self.near[a]
                        .iter()
                        .all(|b| self.active[*b].iter().any(|q| self.between(a, *p, *b, *q) != NEVER))
            };
            let left: Vec<u32> = self.active[a].iter().copied().filter(possible).collect();
            if left.is_empty() {
                return Err(a);
            }
            if left.len() < self.active[a].len() {
                self.active[a] = left;
                queue.extend(&self.near[a]);
            }
        }
        Ok(())
    }

    /// Folds nodes with at most two neighbours, fewest neighbours first.
    fn fold_all(&mut self) -> bool {
        let mut changed = false;
        let foldable = |g: &Self, k: usize| {
            let first = g.active[k].first().map(|p| g.bytes(k, *p));
            let fixed = g.active[k].iter().all(|p| Some(g.bytes(k, *p)) == first);
            g.alive[k] && g.near[k].len() <= 2 && (!g.rigid || fixed)
        };
        while let Some(k) =
            (0..self.alive.len()).filter(|k| foldable(self, *k)).min_by_key(|k| (self.near[*k].len(), *k))
        {
            self.fold(k);
            changed = true;
        }
        changed
    }

    fn fold(&mut self, k: usize) {
        let neighbours: Vec<usize> = self.near[k].iter().copied().collect();
        let least = |costs: &mut dyn Iterator<Item = (u128, u32)>| {
            costs.min().unwrap_or((NEVER, self.active[k].first().copied().unwrap_or(0)))
        };
        let own = |p: u32| self.weight[k][p as usize];
        let mut best = Vec::new();
        match neighbours[..] {
            [] => best.push(least(&mut self.active[k].iter().map(|p| (own(*p), *p)))),
            [a] => {
                for q in 0..self.width[a] as u32 {
                    let costs = self.active[k].iter().map(|p| (add(own(*p), self.between(k, *p, a, q)), *p));
                    best.push(least(&mut { costs }));
                }
            }
            [a, b] => {
                let (to_a, to_b) = (self.lines(k, a), self.lines(k, b));
                let m = self.active[k].len();
                for q in 0..self.width[a] {
                    let with_q: Vec<u128> =
                        (0..m).map(|x| add(own(self.active[k][x]), to_a[q * m + x])).collect();
                    for r in 0..self.width[b] {
                        let costs = (0..m).map(|x| (add(with_q[x], to_b[r * m + x]), self.active[k][x]));
                        best.push(least(&mut { costs }));
                    }
                }
            }
            _ => unreachable!("only nodes with at most two neighbours are folded"),
        }
        let message: Vec<u128> = best.iter().map(|x| x.0).collect();
        let best = best.into_iter().map(|x| x.1).collect();
        self.remove(k, &neighbours);
        match neighbours[..] {
            [a] => self.weight[a].iter_mut().zip(message).for_each(|(w, m)| *w = add(*w, m)),
            [a, b] => self.join(a, b, message),
            _ => {}
        }
        self.folded.push(Folded { node: k, neighbours, best });
    }

    /// The edge to `a`, for each of its strategies a run over the active strategies of `k`.
    fn lines(&self, k: usize, a: usize) -> Vec<u128> {
        let over = |q| self.active[k].iter().map(move |p| self.between(k, *p, a, q));
        (0..self.width[a] as u32).flat_map(over).collect()
    }

    fn remove(&mut self, k: usize, neighbours: &[usize]) {
        self.alive[k] = false;
        for a in neighbours {
            self.edges.remove(&(k.min(*a), k.max(*a)));
            self.near[*a].remove(&k);
        }
        self.near[k].clear();
    }

    /// Drops every strategy that another is no worse than, whatever the neighbours do.
    fn drop_dominated(&mut self) -> bool {
        let mut changed = false;
        for k in (0..self.alive.len()).filter(|k| self.alive[*k]).collect::<Vec<_>>() {
            let mut kept: Vec<u32> = Vec::new();
            for p in self.active[k].clone() {
                if !kept.iter().any(|q| self.no_worse(k, *q, p)) {
                    kept.retain(|q| !self.no_worse(k, p, *q));
                    kept.push(p);
                }
            }
            kept.sort_unstable();
            changed |= kept.len() < self.active[k].len();
            self.active[k] = kept;
        }
        changed
    }

    fn no_worse(&self, k: usize, a: u32, b: u32) -> bool {
        self.weight[k][a as usize] <= self.weight[k][b as usize]
            && (!self.rigid || self.bytes(k, a) <= self.bytes(k, b))
            && self.near[k].iter().all(|n| {
                self.active[*n].iter().all(|q| self.between(k, a, *n, *q) <= self.between(k, b, *n, *q))
            })
    }

    /// Fills in the folded nodes of a choice that is made for those left.
    pub(crate) fn extend(&self, choice: &mut [u32]) {
        for Folded { node, neighbours, best } in self.folded.iter().rev() {
            let at = match neighbours[..] {
                [] => 0,
                [a] => choice[a] as usize,
                [a, b] => choice[a] as usize * self.width[b] + choice[b] as usize,
                _ => unreachable!("only nodes with at most two neighbours are folded"),
            };
            choice[*node] = best[at];
        }
    }
}
