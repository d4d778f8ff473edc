//! Exact reductions, repeated until none applies: arc consistency against ruled-out pairs and against memory, edges that are
//! sums of their ends, followers (a node whose strategy its neighbour's fixes), dead ends (Goldstein 1994: a strategy that
//! another beats whatever the neighbours do, in cost and in every memory row), leaves pruned to the strategies on each
//! neighbour's Pareto front, and nodes of two neighbours that hold nothing. The invariant: one of the best choices stays.

use super::matrix::{Id, Matrix, NEVER, plus};
use super::net::{Infeasible, Net};
use super::rows::Least;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Largest table of strategy against strategy of one edge that dead ends are looked for with (a guess: milliseconds).
const LARGEST_TABLE: usize = 4_000_000;

/// How much a merged node's edges may grow, in cells, beyond what merging removes (a guess).
const GROWTH: usize = 64;

/// Reduces a net. `stop` is asked between rounds: what is left is always a valid net.
pub(crate) fn presolve(net: &mut Net, stop: &dyn Fn() -> bool) -> Result<(), Infeasible> {
    net.left().into_iter().for_each(|u| net.level(u));
    consistent(net)?;
    drop_slack_rows(net);
    loop {
        let before = size(net);
        separate(net);
        follow(net);
        prune_leaves(net);
        consistent(net)?;
        follow(net);
        if stop() {
            break;
        }
        dead_ends(net);
        consistent(net)?;
        separate(net);
        follow(net);
        bridges(net);
        drop_slack_rows(net);
        if size(net) == before || stop() {
            break;
        }
    }
    for v in net.left() {
        let vertex = &net.vertices[v as usize];
        if vertex.near.is_empty() && vertex.items.is_empty() {
            net.settle(v);
        }
    }
    Ok(())
}

/// Vertices, strategies, joined pairs and rows left.
fn size(net: &Net) -> (usize, usize, usize, usize) {
    let left = net.left();
    let of =
        |f: &dyn Fn(&super::net::Vertex) -> usize| left.iter().map(|v| f(&net.vertices[*v as usize])).sum();
    (left.len(), of(&|v| v.width()), of(&|v| v.near.len()), net.held.len())
}

/// Drops strategies that no strategy of some neighbour goes with, or that break a memory row with everyone else at their
/// least, until none is left to drop.
fn consistent(net: &mut Net) -> Result<(), Infeasible> {
    let mut open: Vec<Vec<bool>> =
        net.vertices.iter().map(|v| v.cost.iter().map(|c| *c < NEVER).collect()).collect();
    let slack: Vec<i64> = net.held.iter().map(|h| net.limit - h).collect();
    if let Some((row, slack)) = slack.iter().enumerate().find(|(_, s)| **s < 0) {
        return Err(format!(
            "memory row {row} holds at least {} more than the limit of {}",
            -slack, net.limit
        ));
    }
    let slack = (!slack.is_empty()).then(|| Least::new(slack));
    let mut queue: BTreeSet<u32> = net.left().into_iter().collect();
    for u in net.left() {
        let vertex = &net.vertices[u as usize];
        for item in &vertex.items {
            let room = slack.as_ref().map_or(i64::MAX, |s| s.over(item.from, item.until));
            open[u as usize].iter_mut().zip(&item.held).for_each(|(o, h)| *o &= *h <= room);
        }
    }
    while let Some(u) = queue.pop_first() {
        let vertex = &net.vertices[u as usize];
        if !open[u as usize].contains(&true) {
            return Err(format!("node {u} has no strategy that its neighbours and the memory limit go with"));
        }
        for (v, id) in &vertex.near {
            let m = net.store.get(*id);
            let mut goes = vec![false; m.columns];
            for (p, row) in m.cells.chunks(m.columns).enumerate().filter(|(p, _)| open[u as usize][*p]) {
                let _ = p;
                row.iter().zip(&mut goes).for_each(|(c, g)| *g |= *c < NEVER);
            }
            let mut changed = false;
            for (o, g) in open[*v as usize].iter_mut().zip(goes) {
                changed |= *o && !g;
                *o &= g;
            }
            if changed {
                queue.insert(*v);
            }
        }
    }
    let list = |open: &[bool]| (0..open.len() as u32).filter(|k| open[*k as usize]).collect::<Vec<u32>>();
    let kept: BTreeMap<u32, Vec<u32>> = net
        .left()
        .into_iter()
        .filter(|u| open[*u as usize].contains(&false))
        .map(|u| (u, list(&open[u as usize])))
        .collect();
    net.keep(&kept);
    Ok(())
}

/// Moves edges that are sums of two terms into their ends.
fn separate(net: &mut Net) {
    for u in net.left() {
        let near: Vec<(u32, Id)> =
            net.vertices[u as usize].near.iter().filter(|(v, _)| u < **v).map(|(v, id)| (*v, *id)).collect();
        for (v, id) in near {
            let Some((rows, columns)) = net.store.separable(id) else { continue };
            net.cut(u, v);
            for (end, terms) in [(u, rows), (v, columns)] {
                net.vertices[end as usize].cost.iter_mut().zip(terms).for_each(|(c, t)| *c = plus(*c, t));
                net.level(end);
            }
        }
        let vertex = &net.vertices[u as usize];
        if vertex.near.is_empty() && vertex.items.is_empty() {
            net.settle(u);
        }
    }
}

/// Merges followers into their leaders where that does not blow their edges up.
fn follow(net: &mut Net) {
    let mut queue: BTreeSet<u32> = net.left().into_iter().collect();
    while let Some(v) = queue.pop_first() {
        let vertex = &net.vertices[v as usize];
        if !vertex.alive {
            continue;
        }
        let degree = vertex.near.len();
        let width = vertex.width();
        let ends: Vec<(u32, Id)> = vertex.near.iter().map(|(u, id)| (*u, *id)).collect();
        let others: usize = ends.iter().map(|(w, _)| net.vertices[*w as usize].width()).sum();
        let mut leader = None;
        for (u, id) in ends {
            let towards = net.store.flipped(id);
            let Some(of) = net.store.function(towards) else { continue };
            let far = &net.vertices[u as usize];
            let grown = far.width().saturating_sub(width) * (others - far.width());
            let cheap = grown <= far.width() * width + GROWTH;
            // Of two that follow each other the one with fewer neighbours goes.
            if degree == 1 || (cheap && (far.width() > width || degree <= far.near.len())) {
                leader = Some((u, of));
                break;
            }
        }
        if let Some((u, of)) = leader {
            queue.extend(vertex.near.keys().copied());
            net.follow(u, v, &of);
            queue.insert(u);
            queue.extend(net.vertices[u as usize].near.keys().copied().take(64));
        }
    }
}

/// Of a node with one neighbour, rules out with each of the neighbour's strategies what costs and holds no less than another.
fn prune_leaves(net: &mut Net) {
    for v in net.left() {
        let vertex = &net.vertices[v as usize];
        if vertex.near.len() != 1 {
            continue;
        }
        let (u, id) = vertex.near.iter().next().map(|(u, id)| (*u, *id)).expect("one neighbour");
        let m = net.store.get(id);
        let width = vertex.width();
        let no_more = |a: usize, b: usize| vertex.items.iter().all(|i| i.held[a] <= i.held[b]);
        let lighter: Vec<bool> = (0..width * width).map(|k| no_more(k / width, k % width)).collect();
        let mut cells = m.cells.clone();
        for p in 0..m.columns {
            let cost: Vec<i64> = (0..width).map(|k| plus(vertex.cost[k], m.at(k, p))).collect();
            for b in 0..width {
                let beats = |a: usize| {
                    let tie = cost[a] == cost[b] && lighter[b * width + a];
                    cost[a] <= cost[b] && lighter[a * width + b] && (!tie || a < b)
                };
                if cost[b] < NEVER && (0..width).any(|a| a != b && beats(a)) {
                    cells[b * m.columns + p] = NEVER;
                }
            }
        }
        if cells != m.cells {
            let pruned = Matrix { rows: m.rows, columns: m.columns, cells };
            let id = net.store.put(pruned);
            net.set(v, u, id);
        }
    }
}

/// For one matrix: by how much row a can cost more than row b, whatever the column.
fn excess(m: &Matrix) -> Vec<i64> {
    let row = |p: usize| &m.cells[p * m.columns..(p + 1) * m.columns];
    let most = |a: usize, b: usize| {
        let differences = row(a).iter().zip(row(b)).filter(|(_, y)| **y < NEVER);
        let of = |(x, y): (&i64, &i64)| if *x >= NEVER { NEVER } else { x - y };
        differences.map(of).max().unwrap_or(-NEVER)
    };
    (0..m.rows * m.rows).map(|k| most(k / m.rows, k % m.rows)).collect()
}

/// Drops strategies that another of the same node beats.
fn dead_ends(net: &mut Net) {
    let mut tables: HashMap<Id, Vec<i64>> = HashMap::new();
    let mut kept = BTreeMap::new();
    for u in net.left() {
        let vertex = &net.vertices[u as usize];
        let width = vertex.width();
        let widest = vertex.near.values().map(|id| net.store.get(*id).columns).max().unwrap_or(1);
        if width < 2 || width * width * widest > LARGEST_TABLE {
            continue;
        }
        // By how much a can cost more than b.
        let mut more: Vec<i64> = (0..width * width)
            .map(|k| vertex.cost[k / width].saturating_sub(vertex.cost[k % width]))
            .collect();
        for id in vertex.near.values() {
            let table = tables.entry(*id).or_insert_with(|| excess(net.store.get(*id)));
            for (sum, e) in more.iter_mut().zip(table) {
                *sum = if *sum >= NEVER || *e >= NEVER { NEVER } else { sum.saturating_add(*e) };
            }
        }
        for item in &vertex.items {
            for (k, sum) in more.iter_mut().enumerate() {
                if item.held[k / width] > item.held[k % width] {
                    *sum = NEVER;
                }
            }
        }
        let mut open = vec![true; width];
        for b in 0..width {
            // Only what is still there may beat, so two that are alike do not both go.
            open[b] = !(0..width).any(|a| a != b && open[a] && more[a * width + b] <= 0);
        }
        if open.contains(&false) {
            kept.insert(u, (0..width as u32).filter(|k| open[*k as usize]).collect());
        }
    }
    // Neighbours lose strategies at once: that only removes columns, which never makes a dead end one no more.
    net.keep(&kept);
}

/// Folds nodes of two neighbours that hold nothing where the new edge is no larger than the two it replaces.
fn bridges(net: &mut Net) {
    let mut queue: BTreeSet<u32> = net.left().into_iter().collect();
    while let Some(v) = queue.pop_first() {
        let vertex = &net.vertices[v as usize];
        if !vertex.alive || !vertex.items.is_empty() || vertex.near.len() != 2 {
            continue;
        }
        let ends: Vec<u32> = vertex.near.keys().copied().collect();
        let [a, b] = [ends[0], ends[1]].map(|e| net.vertices[e as usize].width());
        let there = net.vertices[ends[0] as usize].near.contains_key(&ends[1]);
        if there || a * b <= (a + b) * vertex.width() + GROWTH {
            net.bridge(v);
            queue.extend(ends);
        }
    }
}

/// Forgets rows that no choice can break, or no choice without breaking one that is kept, and with them what is held over
/// those only.
fn drop_slack_rows(net: &mut Net) {
    let binding = binding_rows(net);
    keep_rows(net, &binding);
    let kept = undominated_rows(net);
    keep_rows(net, &kept);
}

/// Rows that the largest strategies together would break.
fn binding_rows(net: &Net) -> Vec<bool> {
    let mut most: Vec<i64> = vec![0; net.held.len() + 1];
    for v in &net.vertices {
        for item in &v.items {
            let high = item.held.iter().copied().max().unwrap_or(0);
            most[item.from as usize] += high;
            most[item.until as usize] -= high;
        }
    }
    let mut sum = 0i64;
    let binds = |(held, change): (&i64, &i64)| {
        sum += change;
        held + sum > net.limit
    };
    net.held.iter().zip(&most).map(binds).collect()
}

/// What changes from one row to another: per vertex and strategy, with the most that any choice gains and loses by it.
#[derive(Default)]
struct Step {
    change: BTreeMap<u32, Vec<i64>>,
    gain: i64,
    loss: i64,
}

impl Step {
    fn add(&mut self, vertex: u32, change: impl ExactSizeIterator<Item = i64>) {
        let own = self.change.entry(vertex).or_insert_with(|| vec![0; change.len()]);
        let ends =
            |own: &[i64]| (own.iter().copied().max().unwrap_or(0), own.iter().copied().min().unwrap_or(0));
        let before = ends(own);
        own.iter_mut().zip(change).for_each(|(o, c)| *o += c);
        let after = ends(own);
        self.gain += after.0 - before.0;
        self.loss += before.1 - after.1;
    }

    fn join(mut self, mut other: Self) -> Self {
        if self.change.len() < other.change.len() {
            std::mem::swap(&mut self, &mut other);
        }
        other.change.into_iter().for_each(|(v, change)| self.add(v, change.into_iter()));
        self
    }
}

/// Of two rows, one may hold no more than the other whatever is chosen: then it need not be watched. Rows are compared
/// with the nearest that is kept.
fn undominated_rows(net: &Net) -> Vec<bool> {
    let rows = net.held.len();
    let mut steps: Vec<Step> = (0..rows).map(|_| Step::default()).collect();
    for (v, vertex) in net.vertices.iter().enumerate() {
        for item in &vertex.items {
            for (row, sign) in [(item.from as usize, 1), (item.until as usize, -1)] {
                if row > 0 && row < rows {
                    steps[row].add(v as u32, item.held.iter().map(|h| sign * h));
                }
            }
        }
    }
    // Rows kept so far, each with its step from the one before it.
    let mut kept: Vec<(usize, Step)> = Vec::new();
    // From the last row kept to the row at hand.
    let mut pending = Step::default();
    for (row, step) in steps.into_iter().enumerate() {
        pending = pending.join(step);
        let mut covered = false;
        while let Some((last, _)) = kept.last() {
            let base = net.held[row] - net.held[*last];
            if pending.gain + base <= 0 {
                covered = true;
                break;
            }
            if pending.loss - base > 0 {
                break;
            }
            let (_, before) = kept.pop().expect("there is a last");
            pending = before.join(pending);
        }
        if !covered {
            kept.push((row, std::mem::take(&mut pending)));
        }
    }
    let mut keep = vec![false; rows];
    kept.into_iter().for_each(|(row, _)| keep[row] = true);
    keep
}

/// Forgets the other rows.
fn keep_rows(net: &mut Net, kept: &[bool]) {
    let mut position: Vec<u32> = Vec::with_capacity(kept.len() + 1);
    let mut held = Vec::new();
    for (row, keep) in kept.iter().enumerate() {
        position.push(held.len() as u32);
        if *keep {
            held.push(net.held[row]);
        }
    }
    position.push(held.len() as u32);
    net.held = held;
    let mut keep = kept.iter();
    net.row.retain(|_| keep.next().copied().unwrap_or(false));
    for v in net.left() {
        for item in &mut net.vertices[v as usize].items {
            item.from = position[item.from as usize];
            item.until = position[item.until as usize];
        }
        merge_items(net, v);
    }
}

/// Adds up what a vertex holds over the same rows.
fn merge_items(net: &mut Net, v: u32) {
    let vertex = &mut net.vertices[v as usize];
    let mut merged: BTreeMap<(u32, u32), Vec<i64>> = BTreeMap::new();
    for item in vertex.items.drain(..).filter(|i| i.from < i.until) {
        match merged.get_mut(&(item.from, item.until)) {
            Some(held) => held.iter_mut().zip(item.held).for_each(|(a, b)| *a += b),
            None => {
                merged.insert((item.from, item.until), item.held);
            }
        }
    }
    vertex.items =
        merged.into_iter().map(|((from, until), held)| super::rows::Item { from, until, held }).collect();
    net.level(v);
}
