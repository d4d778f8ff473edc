//! What presolve leaves, laid out for sweeping: strategies of all vertices in one array, matrices as floats beside integers.
//! The invariant: vertex by vertex and edge by edge it is the net it was made of, and the integers decide.

use super::matrix::{Id, NEVER};
use super::net::Net;
use super::rows::Item;
use std::collections::HashMap;

/// One end's view of an edge.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Near {
    pub(crate) to: u32,
    /// Position of the edge.
    pub(crate) edge: u32,
    /// Whether this end is the edge's first.
    pub(crate) first: bool,
    /// Matrix with this end's strategies as rows, in [`Core::tables`].
    pub(crate) table: u32,
    /// The same with the other end's strategies as rows.
    pub(crate) back: u32,
}

/// A matrix.
#[derive(Debug, Clone)]
pub(crate) struct Table {
    pub(crate) columns: usize,
    pub(crate) cells: Vec<i64>,
    /// The same, infinite where ruled out.
    pub(crate) floats: Vec<f64>,
}

impl Table {
    pub(crate) fn row(&self, p: usize) -> &[i64] {
        &self.cells[p * self.columns..(p + 1) * self.columns]
    }
    pub(crate) fn float_row(&self, p: usize) -> &[f64] {
        &self.floats[p * self.columns..(p + 1) * self.columns]
    }
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct Core {
    /// The net's vertex behind each.
    pub(crate) vertex: Vec<u32>,
    /// Where each vertex's strategies start; one more than there are vertices.
    pub(crate) start: Vec<usize>,
    pub(crate) cost: Vec<i64>,
    pub(crate) items: Vec<Vec<Item>>,
    pub(crate) near: Vec<Vec<Near>>,
    /// Ends of each edge.
    pub(crate) edges: Vec<(u32, u32)>,
    pub(crate) tables: Vec<Table>,
    /// What may be held beyond what every choice holds, per row.
    pub(crate) room: Vec<i64>,
}

impl Core {
    pub(crate) fn new(net: &Net) -> Self {
        let vertex = net.left();
        let position: HashMap<u32, u32> = vertex.iter().enumerate().map(|(k, v)| (*v, k as u32)).collect();
        let mut core = Self {
            start: vec![0],
            room: net.held.iter().map(|h| net.limit - h).collect(),
            ..Self::default()
        };
        let mut known: HashMap<Id, u32> = HashMap::new();
        let mut table = |core: &mut Self, id: Id| {
            *known.entry(id).or_insert_with(|| {
                let m = net.store.get(id);
                let float = |c: &i64| if *c >= NEVER { f64::INFINITY } else { *c as f64 };
                let floats = m.cells.iter().map(float).collect();
                core.tables.push(Table { columns: m.columns, cells: m.cells.clone(), floats });
                core.tables.len() as u32 - 1
            })
        };
        for (k, v) in vertex.iter().enumerate() {
            let from = &net.vertices[*v as usize];
            core.cost.extend(&from.cost);
            core.start.push(core.cost.len());
            core.items.push(from.items.clone());
            let mut near = Vec::with_capacity(from.near.len());
            for (w, id) in &from.near {
                let back = net.vertices[*w as usize].near[v];
                let (table, back) = (table(&mut core, *id), table(&mut core, back));
                let to = position[w];
                let first = (k as u32) < to;
                let edge = if first {
                    core.edges.push((k as u32, to));
                    core.edges.len() as u32 - 1
                } else {
                    let far = &core.near[to as usize];
                    far.iter()
                        .find(|n: &&Near| n.to == k as u32)
                        .expect("edges are known from both ends")
                        .edge
                };
                near.push(Near { to, edge, first, table, back });
            }
            core.near.push(near);
        }
        core.vertex = vertex;
        core
    }

    pub(crate) fn count(&self) -> usize {
        self.vertex.len()
    }

    pub(crate) fn width(&self, v: usize) -> usize {
        self.start[v + 1] - self.start[v]
    }

    /// Costs of a vertex.
    pub(crate) fn costs(&self, v: usize) -> &[i64] {
        &self.cost[self.start[v]..self.start[v + 1]]
    }

    /// Cost of a choice, `None` where it takes a pair that is ruled out.
    pub(crate) fn cost_of(&self, choice: &[u32]) -> Option<i128> {
        let mut total = 0i128;
        for v in 0..self.count() {
            total += i128::from(self.costs(v)[choice[v] as usize]);
            for near in self.near[v].iter().filter(|n| n.first) {
                let c = self.tables[near.table as usize].row(choice[v] as usize)
                    [choice[near.to as usize] as usize];
                if c >= NEVER {
                    return None;
                }
                total += i128::from(c);
            }
        }
        Some(total)
    }

    /// What a choice holds, per row.
    pub(crate) fn held(&self, choice: &[u32]) -> Vec<i64> {
        let mut change = vec![0i64; self.room.len() + 1];
        for (items, k) in self.items.iter().zip(choice) {
            for item in items {
                change[item.from as usize] += item.held[*k as usize];
                change[item.until as usize] -= item.held[*k as usize];
            }
        }
        let mut sum = 0;
        change.truncate(self.room.len());
        change.iter_mut().for_each(|c| {
            sum += *c;
            *c = sum;
        });
        change
    }

    /// Cost of each strategy plus what it holds at a price per row.
    pub(crate) fn priced(&self, prices: &[f64]) -> Vec<f64> {
        let mut sums = Vec::with_capacity(prices.len() + 1);
        let mut sum = 0.0;
        sums.push(0.0);
        sums.extend(prices.iter().map(|p| {
            sum += p;
            sum
        }));
        let mut priced: Vec<f64> = self.cost.iter().map(|c| *c as f64).collect();
        for v in 0..self.count() {
            let own = &mut priced[self.start[v]..self.start[v + 1]];
            for item in &self.items[v] {
                let price = sums[item.until as usize] - sums[item.from as usize];
                if price > 0.0 {
                    own.iter_mut().zip(&item.held).for_each(|(c, h)| *c += price * *h as f64);
                }
            }
        }
        priced
    }
}
