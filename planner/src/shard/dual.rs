//! A lower bound by prices on memory and message passing: rows are relaxed with a price each, what is left is a pairwise
//! problem whose bound sequential tree-reweighted message passing raises (Kolmogorov 2006), and prices follow a subgradient
//! averaged over sweeps (Barahona and Anbil 2000). Trees that hang on cycles are folded exactly in every sweep. The invariant:
//! messages only move cost about, so any state gives a bound, and [`Dual::certify`] computes it in integers.

use super::core::{Core, Near};
use super::matrix::NEVER;

/// Prices and messages.
#[derive(Debug, Clone)]
pub(crate) struct Dual<'c> {
    core: &'c Core,
    /// Per row.
    pub(crate) prices: Vec<f64>,
    /// Per edge: to its first end, then to its second.
    message: Vec<[Vec<f64>; 2]>,
    /// Vertices in sweeping order: those on cycles, then trees from the root outwards.
    order: Vec<u32>,
    rank: Vec<u32>,
    /// How many of the order are on cycles.
    cyclic: usize,
    /// In how many equal shares a vertex on a cycle gives its cost to edges.
    shares: Vec<u32>,
    priced: Vec<f64>,
}

/// What a sweep found.
#[derive(Debug, Clone, Default)]
pub(crate) struct Swept {
    /// A bound for these prices, less what rounding may do to it.
    pub(crate) bound: f64,
    /// A choice that goes with the messages.
    pub(crate) choice: Vec<u32>,
}

impl<'c> Dual<'c> {
    pub(crate) fn new(core: &'c Core) -> Self {
        let n = core.count();
        let mut degree: Vec<usize> = core.near.iter().map(Vec::len).collect();
        let mut peeled = vec![false; n];
        let mut leaves: Vec<u32> = (0..n as u32).filter(|v| degree[*v as usize] <= 1).collect();
        let mut k = 0;
        while let Some(v) = leaves.get(k).copied() {
            k += 1;
            peeled[v as usize] = true;
            for near in &core.near[v as usize] {
                let far = near.to as usize;
                degree[far] -= 1;
                if degree[far] == 1 && !peeled[far] {
                    leaves.push(near.to);
                }
            }
        }
        let mut order: Vec<u32> = (0..n as u32).filter(|v| !peeled[*v as usize]).collect();
        let cyclic = order.len();
        // A vertex may be listed twice when its last edge goes; the first listing counts.
        let mut listed = vec![false; n];
        leaves.retain(|v| !std::mem::replace(&mut listed[*v as usize], true));
        order.extend(leaves.iter().rev());
        let mut rank = vec![0; n];
        order.iter().enumerate().for_each(|(k, v)| rank[*v as usize] = k as u32);
        let shares = (0..n).map(|v| {
            let on_cycle = |near: &&Near| !peeled[near.to as usize];
            let before = |near: &&Near| rank[near.to as usize] < rank[v];
            let (b, all) = (
                core.near[v].iter().filter(on_cycle).filter(before).count(),
                core.near[v].iter().filter(on_cycle).count(),
            );
            b.max(all - b).max(1) as u32
        });
        let shares = shares.collect();
        let zero = |v: u32| vec![0.0; core.width(v as usize)];
        let message = core.edges.iter().map(|(a, b)| [zero(*a), zero(*b)]).collect();
        Self {
            core,
            prices: vec![0.0; core.room.len()],
            message,
            order,
            rank,
            cyclic,
            shares,
            priced: vec![],
        }
    }

    /// Cost of a vertex under the prices and all messages to it.
    fn belief(&self, v: usize, into: &mut Vec<f64>) {
        into.clear();
        into.extend(&self.priced[self.core.start[v]..self.core.start[v + 1]]);
        for near in &self.core.near[v] {
            let message = &self.message[near.edge as usize][usize::from(!near.first)];
            into.iter_mut().zip(message).for_each(|(b, m)| *b += m);
        }
    }

    /// Sends along an edge what its far end would pay; returns the least, which is taken off.
    fn send(&mut self, near: Near, belief: &[f64], share: f64, reach: &mut Vec<f64>) -> f64 {
        let table = &self.core.tables[near.table as usize];
        let (back, to) = (usize::from(!near.first), usize::from(near.first));
        let [first, second] = &mut self.message[near.edge as usize];
        let (own, far) = if to == 1 { (first, second) } else { (second, first) };
        debug_assert!(back != to);
        reach.clear();
        reach.resize(table.columns, f64::INFINITY);
        for (p, (b, m)) in belief.iter().zip(own.iter()).enumerate() {
            let a = share * b - m;
            for (r, c) in reach.iter_mut().zip(table.float_row(p)) {
                let sum = a + c;
                *r = if sum < *r { sum } else { *r };
            }
        }
        let least = reach.iter().copied().fold(f64::INFINITY, |a, b| if b < a { b } else { a });
        far.iter_mut().zip(reach.iter()).for_each(|(f, r)| *f = r - least);
        least
    }

    /// One sweep backwards, which gives the bound, and one forwards, which gives a choice; `None` if stopped on the way.
    pub(crate) fn sweep(&mut self, stop: &dyn Fn() -> bool) -> Option<Swept> {
        self.priced = self.core.priced(&self.prices);
        let n = self.core.count();
        let (mut belief, mut reach) = (Vec::new(), Vec::new());
        let mut bound = 0.0;
        for k in (0..n).rev() {
            if k % 256 == 0 && stop() {
                return None;
            }
            let v = self.order[k] as usize;
            self.belief(v, &mut belief);
            let least = belief.iter().copied().fold(f64::INFINITY, |a, b| if b < a { b } else { a });
            bound += least;
            belief.iter_mut().for_each(|b| *b -= least);
            let share = if k < self.cyclic { 1.0 / f64::from(self.shares[v]) } else { 1.0 };
            for e in 0..self.core.near[v].len() {
                let near = self.core.near[v][e];
                if self.rank[near.to as usize] < k as u32 {
                    bound += self.send(near, &belief, share, &mut reach);
                }
            }
        }
        let mut choice = vec![0u32; n];
        for k in 0..n {
            let v = self.order[k] as usize;
            self.belief(v, &mut belief);
            let mut own = belief.clone();
            for near in &self.core.near[v] {
                if self.rank[near.to as usize] < k as u32 {
                    // What the earlier end really took, in the place of its message.
                    let message = &self.message[near.edge as usize][usize::from(!near.first)];
                    let table = &self.core.tables[near.table as usize];
                    let q = choice[near.to as usize] as usize;
                    for (p, (o, m)) in own.iter_mut().zip(message).enumerate() {
                        *o += table.float_row(p)[q] - m;
                    }
                }
            }
            let best = (0..own.len()).min_by(|a, b| own[*a].total_cmp(&own[*b]));
            choice[v] = best.expect("a vertex has a strategy") as u32;
            if k < self.cyclic {
                for e in 0..self.core.near[v].len() {
                    let near = self.core.near[v][e];
                    let far = self.rank[near.to as usize];
                    if far > k as u32 && (far as usize) < self.cyclic {
                        self.send(near, &belief, 1.0 / f64::from(self.shares[v]), &mut reach);
                    }
                }
            }
        }
        let paid: f64 = self.prices.iter().zip(&self.core.room).map(|(p, r)| p * *r as f64).sum();
        Some(Swept { bound: bound - paid, choice })
    }

    /// For every strategy, how much more than the bound any choice with it costs at least, straight after a whole sweep. On
    /// cycles a belief is the sum of what every chain through the vertex must pay (Kolmogorov 2006); a tree vertex pays its
    /// own cost and what its parent's beliefs ask for the best strategy beside it.
    pub(crate) fn reduced(&self) -> Vec<f64> {
        let core = self.core;
        let mut all = vec![0.0; core.cost.len()];
        let mut belief = Vec::new();
        for k in 0..core.count() {
            let v = self.order[k] as usize;
            self.belief(v, &mut belief);
            let up = core.near[v].iter().find(|n| k >= self.cyclic && self.rank[n.to as usize] < k as u32);
            if let Some(near) = up {
                let far = near.to as usize;
                let message = &self.message[near.edge as usize][usize::from(near.first)];
                let above = &all[core.start[far]..core.start[far + 1]];
                let table = &core.tables[near.table as usize];
                for (p, b) in belief.iter_mut().enumerate() {
                    let beside =
                        table.float_row(p).iter().zip(above).zip(message).map(|((c, a), m)| c + a - m);
                    *b += beside.fold(f64::INFINITY, f64::min);
                }
            }
            let least = belief.iter().copied().fold(f64::INFINITY, f64::min);
            let own = &mut all[core.start[v]..core.start[v + 1]];
            own.iter_mut().zip(&belief).for_each(|(o, b)| *o = b - least);
        }
        all
    }

    /// The bound that prices and messages, rounded to binary fractions, prove: a backward sweep in exact arithmetic. Every
    /// vertex gives its edges shares of its cost, every edge hands on what is certain; what stays behind adds up.
    pub(crate) fn certify(&self) -> i128 {
        const ONE: f64 = (1u64 << 40) as f64;
        let core = self.core;
        let fixed = |x: f64| (x * ONE) as i128;
        let mut sums = vec![0i128];
        let mut bound = 0i128;
        for (price, room) in self.prices.iter().zip(&core.room) {
            let price = fixed(*price);
            sums.push(sums[sums.len() - 1] + price);
            bound -= price * i128::from(*room);
        }
        let mut own: Vec<Vec<i128>> = Vec::with_capacity(core.count());
        for v in 0..core.count() {
            let mut cost: Vec<i128> = core.costs(v).iter().map(|c| i128::from(*c) << 40).collect();
            for item in &core.items[v] {
                let price = sums[item.until as usize] - sums[item.from as usize];
                cost.iter_mut().zip(&item.held).for_each(|(c, h)| *c += price * i128::from(*h));
            }
            for near in &core.near[v] {
                let message = &self.message[near.edge as usize][usize::from(!near.first)];
                cost.iter_mut().zip(message).for_each(|(c, m)| *c += fixed(*m));
            }
            own.push(cost);
        }
        for k in (0..core.count()).rev() {
            let v = self.order[k] as usize;
            let mut cost = std::mem::take(&mut own[v]);
            let shares = if k < self.cyclic { i128::from(self.shares[v]) } else { 1 };
            let given: Vec<i128> = cost.iter().map(|c| c.div_euclid(shares)).collect();
            for near in core.near[v].iter().filter(|n| self.rank[n.to as usize] < k as u32) {
                let [first, second] = &self.message[near.edge as usize];
                let (to_own, to_far) = if near.first { (first, second) } else { (second, first) };
                let far = &mut own[near.to as usize];
                let table = &core.tables[near.back as usize];
                for (q, (f, m)) in far.iter_mut().zip(to_far).enumerate() {
                    let pairs = table.row(q).iter().zip(&given).zip(to_own).filter(|((c, _), _)| **c < NEVER);
                    let sums = pairs.map(|((c, g), m)| (i128::from(*c) << 40) + g - fixed(*m));
                    *f += sums.min().expect("every strategy goes with some of each neighbour's") - fixed(*m);
                }
                cost.iter_mut().zip(&given).for_each(|(c, g)| *c -= g);
            }
            bound += cost.iter().min().expect("a vertex has a strategy");
        }
        // Costs are whole: what is over a whole number counts as the next.
        (bound + (1i128 << 40) - 1) >> 40
    }
}
