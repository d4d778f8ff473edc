//! A problem under exact reduction: vertices with costs and what they hold over memory rows, at most one edge between two,
//! and the record of what was taken out. The invariant: a best choice for what is left extends, by [`Net::extend`], to a
//! best choice for the whole, and costs [`Net::constant`] less.

use super::instance::{Instance, RULED_OUT};
use super::matrix::{Id, Matrix, NEVER, Store, plus};
use super::rows::{Item, rows};
use std::collections::{BTreeMap, HashMap};

/// A node that is left.
#[derive(Debug, Clone, Default)]
pub(crate) struct Vertex {
    /// The instance's strategy behind each of its own.
    pub(crate) label: Vec<u32>,
    pub(crate) cost: Vec<i64>,
    pub(crate) items: Vec<Item>,
    /// Matrix towards each neighbour: rows are this vertex's strategies. The neighbour holds the flipped one.
    pub(crate) near: BTreeMap<u32, Id>,
    pub(crate) alive: bool,
}

impl Vertex {
    pub(crate) fn width(&self) -> usize {
        self.cost.len()
    }
}

/// A node that was taken out: its strategy is a function of up to two others'.
#[derive(Debug, Clone)]
struct Gone {
    node: u32,
    on: Vec<u32>,
    /// By the instance's strategies of `on`, the last one fastest.
    strategy: Vec<u32>,
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct Net {
    pub(crate) vertices: Vec<Vertex>,
    pub(crate) store: Store,
    /// Strategies per node of the instance.
    widths: Vec<usize>,
    /// Cost that every choice pays.
    pub(crate) constant: i128,
    /// What every choice holds, per row.
    pub(crate) held: Vec<i64>,
    /// Which of the first rows each row is.
    pub(crate) row: Vec<u32>,
    /// What may be held, per row.
    pub(crate) limit: i64,
    gone: Vec<Gone>,
}

/// Why there is no choice.
pub(crate) type Infeasible = String;

impl Net {
    /// The whole instance: parallel edges added up, loops moved into their nodes, only the rows that matter.
    pub(crate) fn new(instance: &Instance) -> Self {
        let alive_intervals: Vec<(u64, u64)> = instance
            .nodes
            .iter()
            .map(|n| if instance.limit.is_some() { (n.from, n.until) } else { (0, 0) })
            .collect();
        let (count, own) = rows(&alive_intervals);
        let limit = instance.limit.map_or(i64::MAX / 2, |l| l.min(i64::MAX as u64 / 2) as i64);
        let put = |c: u64| if c >= RULED_OUT { NEVER } else { c as i64 };
        let vertices = instance.nodes.iter().zip(own).map(|(n, (from, until))| {
            let held: Vec<i64> = n.usages.iter().map(|u| (*u).min(limit as u64 + 1) as i64).collect();
            let over = |k: usize| from < until && held[k] > limit;
            Vertex {
                label: (0..n.costs.len() as u32).collect(),
                cost: n
                    .costs
                    .iter()
                    .enumerate()
                    .map(|(k, c)| if over(k) { NEVER } else { put(*c) })
                    .collect(),
                items: if from < until { vec![Item { from, until, held }] } else { vec![] },
                near: BTreeMap::new(),
                alive: true,
            }
        });
        let mut net = Self {
            vertices: vertices.collect(),
            widths: instance.nodes.iter().map(|n| n.costs.len()).collect(),
            held: vec![0; count],
            row: (0..count as u32).collect(),
            limit,
            ..Self::default()
        };
        let mut ids: HashMap<(u32, usize), Id> = HashMap::new();
        for edge in &instance.edges {
            let (rows, columns) = (net.widths[edge.from as usize], net.widths[edge.to as usize]);
            let cells = &instance.matrices[edge.matrix as usize];
            let store = &mut net.store;
            let id = *ids
                .entry((edge.matrix, rows))
                .or_insert_with(|| store.put(Matrix::of(rows, columns, |p, q| put(cells[p * columns + q]))));
            net.join(edge.from, edge.to, id);
        }
        net
    }

    /// Adds a matrix between two vertices, rows those of `u`.
    pub(crate) fn join(&mut self, u: u32, v: u32, id: Id) {
        if u == v {
            let m = self.store.get(id);
            let vertex = &mut self.vertices[u as usize];
            vertex.cost.iter_mut().enumerate().for_each(|(p, c)| *c = plus(*c, m.at(p, p)));
            return;
        }
        let id = match self.vertices[u as usize].near.get(&v) {
            Some(old) => self.store.sum(*old, id),
            None => id,
        };
        self.set(u, v, id);
    }

    /// Puts a matrix in the place of whatever joins two vertices.
    pub(crate) fn set(&mut self, u: u32, v: u32, id: Id) {
        let flipped = self.store.flipped(id);
        self.vertices[u as usize].near.insert(v, id);
        self.vertices[v as usize].near.insert(u, flipped);
    }

    /// Removes what joins two vertices.
    pub(crate) fn cut(&mut self, u: u32, v: u32) {
        self.vertices[u as usize].near.remove(&v);
        self.vertices[v as usize].near.remove(&u);
    }

    /// Keeps only some strategies, per vertex that has a list.
    pub(crate) fn keep(&mut self, kept: &BTreeMap<u32, Vec<u32>>) {
        for (u, list) in kept {
            let vertex = &mut self.vertices[*u as usize];
            let pick = |from: &[i64]| list.iter().map(|k| from[*k as usize]).collect::<Vec<i64>>();
            vertex.cost = pick(&vertex.cost);
            vertex.label = list.iter().map(|k| vertex.label[*k as usize]).collect();
            vertex.items.iter_mut().for_each(|item| item.held = pick(&item.held));
            let near: Vec<(u32, Id)> = vertex.near.iter().map(|(v, id)| (*v, *id)).collect();
            for (v, id) in near {
                let id = self.store.pick_rows(id, list);
                self.set(*u, v, id);
            }
            self.level(*u);
        }
    }

    /// Moves what every strategy of a vertex holds into what every choice holds, and its least cost into the constant.
    pub(crate) fn level(&mut self, u: u32) {
        let vertex = &mut self.vertices[u as usize];
        for item in &mut vertex.items {
            let least = item.held.iter().copied().min().unwrap_or(0);
            if least > 0 {
                item.held.iter_mut().for_each(|h| *h -= least);
                self.held[item.from as usize..item.until as usize].iter_mut().for_each(|h| *h += least);
            }
        }
        vertex.items.retain(|item| item.from < item.until && item.held.iter().any(|h| *h > 0));
        let least = vertex.cost.iter().copied().min().unwrap_or(0);
        if least < NEVER && least != 0 {
            vertex.cost.iter_mut().filter(|c| **c < NEVER).for_each(|c| *c -= least);
            self.constant += i128::from(least);
        }
    }

    /// Takes `v` out, whose strategy is `of[p]` when `u` takes p: `u` pays, holds and is joined to what `v` was.
    pub(crate) fn follow(&mut self, u: u32, v: u32, of: &[u32]) {
        let follower = std::mem::take(&mut self.vertices[v as usize]);
        let mut strategy = vec![0; self.widths[u as usize]];
        let pair = self.vertices[u as usize].near[&v];
        let leader = &mut self.vertices[u as usize];
        leader.near.remove(&v);
        for (p, q) in of.iter().enumerate() {
            strategy[leader.label[p] as usize] = follower.label[*q as usize];
            let pays = plus(follower.cost[*q as usize], self.store.get(pair).at(p, *q as usize));
            leader.cost[p] = plus(leader.cost[p], pays);
        }
        for item in follower.items {
            let held: Vec<i64> = of.iter().map(|q| item.held[*q as usize]).collect();
            match leader.items.iter_mut().find(|i| (i.from, i.until) == (item.from, item.until)) {
                Some(own) => own.held.iter_mut().zip(held).for_each(|(a, b)| *a += b),
                None => leader.items.push(Item { held, ..item }),
            }
        }
        for (w, id) in follower.near {
            self.vertices[w as usize].near.remove(&v);
            if w != u {
                let id = self.store.pick_rows(id, of);
                self.join(u, w, id);
            }
        }
        self.gone.push(Gone { node: v, on: vec![u], strategy });
        self.level(u);
    }

    /// Takes out a vertex without neighbours that holds nothing.
    pub(crate) fn settle(&mut self, v: u32) {
        let vertex = std::mem::take(&mut self.vertices[v as usize]);
        let best = (0..vertex.width()).min_by_key(|k| vertex.cost[*k]).expect("a vertex has a strategy");
        self.constant += i128::from(vertex.cost[best]);
        self.gone.push(Gone { node: v, on: vec![], strategy: vec![vertex.label[best]] });
    }

    /// Takes out a vertex with two neighbours that holds nothing: they pay, as a pair, for its best strategy.
    pub(crate) fn bridge(&mut self, v: u32) {
        let vertex = std::mem::take(&mut self.vertices[v as usize]);
        let ends: Vec<(u32, Id)> = vertex.near.iter().map(|(u, id)| (*u, *id)).collect();
        let [(a, to_a), (b, to_b)] = ends[..] else { unreachable!("a bridge has two ends") };
        let (ma, mb) = (self.store.get(to_a), self.store.get(to_b));
        let (la, lb) = (&self.vertices[a as usize].label, &self.vertices[b as usize].label);
        let wide = self.widths[b as usize];
        let mut strategy = vec![0; self.widths[a as usize] * wide];
        let mut cells = Vec::with_capacity(la.len() * lb.len());
        for (p, x) in la.iter().enumerate() {
            let with: Vec<i64> = (0..vertex.width()).map(|k| plus(vertex.cost[k], ma.at(k, p))).collect();
            for (q, y) in lb.iter().enumerate() {
                let sums = with.iter().enumerate().map(|(k, c)| (plus(*c, mb.at(k, q)), k));
                let (cost, k) = sums.min().expect("a vertex has a strategy");
                cells.push(cost);
                strategy[*x as usize * wide + *y as usize] = vertex.label[k];
            }
        }
        let matrix = Matrix { rows: la.len(), columns: lb.len(), cells };
        self.vertices[a as usize].near.remove(&v);
        self.vertices[b as usize].near.remove(&v);
        let id = self.store.put(matrix);
        self.join(a, b, id);
        self.gone.push(Gone { node: v, on: vec![a, b], strategy });
    }

    /// Vertices that are left.
    pub(crate) fn left(&self) -> Vec<u32> {
        (0..self.vertices.len() as u32).filter(|v| self.vertices[*v as usize].alive).collect()
    }

    /// Fills in, in the instance's strategies, the nodes that were taken out.
    pub(crate) fn extend(&self, choice: &mut [u32]) {
        for Gone { node, on, strategy } in self.gone.iter().rev() {
            let at = on.iter().fold(0, |at, u| at * self.widths[*u as usize] + choice[*u as usize] as usize);
            choice[*node as usize] = strategy[at];
        }
    }
}
