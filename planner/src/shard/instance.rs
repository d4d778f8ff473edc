//! An *iopddl* problem (`docs/iopddl.md`): every node takes one strategy, every edge pays for the pair at its ends, and at
//! every time the strategies of the nodes alive then must fit the limit. The invariant: a choice counts only for what
//! [`evaluate`] says of it, which knows nothing of any solver.

use crate::problem::{FORBIDDEN, Problem};
use std::collections::HashMap;

/// Costs from here on rule a strategy or a pair out: the contest's files write 10^18.
pub const RULED_OUT: u64 = 1_000_000_000_000_000_000;

/// When a node is alive, and what its strategies cost and hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Node {
    /// Alive from this time on.
    pub from: u64,
    /// No longer alive at this time; a node that ends before it starts is never alive.
    pub until: u64,
    /// Cost per strategy.
    pub costs: Vec<u64>,
    /// What each strategy holds while the node is alive.
    pub usages: Vec<u64>,
}

/// Two nodes and the matrix they pay by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    /// One node: the matrix's rows.
    pub from: u32,
    /// The other: its columns.
    pub to: u32,
    /// Position in [`Instance::matrices`].
    pub matrix: u32,
}

/// A problem. Matrices that are alike are stored once: real files repeat a thousand of them fifty-fold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Instance {
    /// Its name.
    pub name: String,
    /// The nodes.
    pub nodes: Vec<Node>,
    /// The edges; several may join the same nodes, or one node with itself.
    pub edges: Vec<Link>,
    /// Distinct cost matrices, row-major.
    pub matrices: Vec<Vec<u64>>,
    /// What may be held at any time; `None` where nothing bounds it.
    pub limit: Option<u64>,
}

/// What a choice amounts to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Score {
    /// Sum of all costs, ruled-out ones as they are written.
    pub cost: u128,
    /// How many of those costs are [`RULED_OUT`].
    pub ruled_out: usize,
    /// The most that is held at any time.
    pub peak: u128,
    /// Whether nothing is ruled out and the peak is within the limit.
    pub feasible: bool,
}

/// Score of a choice; `None` where it has the wrong shape.
pub fn evaluate(instance: &Instance, choice: &[u32]) -> Option<Score> {
    if choice.len() != instance.nodes.len() {
        return None;
    }
    let (mut cost, mut ruled_out) = (0u128, 0);
    let mut pay = |c: u64| {
        cost += u128::from(c);
        ruled_out += usize::from(c >= RULED_OUT);
    };
    let mut changes: Vec<(u64, i128)> = Vec::with_capacity(2 * choice.len());
    for (node, k) in instance.nodes.iter().zip(choice) {
        pay(*node.costs.get(*k as usize)?);
        let held = i128::from(*node.usages.get(*k as usize)?);
        if node.from < node.until {
            changes.extend([(node.from, held), (node.until, -held)]);
        }
    }
    for edge in &instance.edges {
        let (p, q) = (choice[edge.from as usize] as usize, choice[edge.to as usize] as usize);
        let width = instance.nodes[edge.to as usize].costs.len();
        pay(*instance.matrices[edge.matrix as usize].get(p * width + q)?);
    }
    // What is freed at a time is freed before anything is taken: the negative changes sort first.
    changes.sort_unstable();
    let (mut held, mut peak) = (0i128, 0i128);
    for (_, change) in changes {
        held += change;
        peak = peak.max(held);
    }
    let peak = peak as u128;
    let fits = instance.limit.is_none_or(|limit| peak <= u128::from(limit));
    Some(Score { cost, ruled_out, peak, feasible: fits && ruled_out == 0 })
}

impl Instance {
    /// A planner's problem in this form: every node is alive at the one time there is.
    pub fn of(name: &str, problem: &Problem) -> Self {
        let put = |c: u64| if c == FORBIDDEN { RULED_OUT } else { c };
        let nodes = problem.nodes.iter().map(|n| Node {
            from: 0,
            until: 1,
            costs: n.cost.iter().map(|c| put(*c)).collect(),
            usages: n.memory.clone(),
        });
        let mut instance =
            Self { name: name.into(), nodes: nodes.collect(), limit: problem.budget, ..Self::default() };
        let mut known: HashMap<Vec<u64>, u32> = HashMap::new();
        for edge in &problem.edges {
            let matrix: Vec<u64> = edge.cost.iter().map(|c| put(*c)).collect();
            let next = instance.matrices.len() as u32;
            let id = *known.entry(matrix).or_insert_with_key(|m| {
                instance.matrices.push(m.clone());
                next
            });
            instance.edges.push(Link { from: edge.from, to: edge.to, matrix: id });
        }
        instance
    }

    /// The instance as the contest's JSON, one line. Without a limit, what everything together can hold stands for it.
    pub fn to_json(&self) -> String {
        let list = |of: &mut dyn Iterator<Item = String>| of.collect::<Vec<_>>().join(",");
        let numbers = |v: &[u64]| format!("[{}]", list(&mut v.iter().map(u64::to_string)));
        let most = |n: &Node| n.usages.iter().copied().max().unwrap_or(0);
        let limit = self
            .limit
            .unwrap_or_else(|| self.nodes.iter().map(most).fold(0, u64::saturating_add).min(i64::MAX as u64));
        let name: String = self
            .name
            .chars()
            .map(|c| if c.is_ascii_graphic() && c != '"' && c != '\\' { c } else { ' ' })
            .collect();
        format!(
            "{{\"problem\":{{\"name\":\"{name}\",\"nodes\":{{\"intervals\":[{}],\"costs\":[{}],\"usages\":[{}]}},\"edges\":{{\"nodes\":[{}],\"costs\":[{}]}},\"usage_limit\":{limit}}}}}\n",
            list(&mut self.nodes.iter().map(|n| format!("[{},{}]", n.from, n.until))),
            list(&mut self.nodes.iter().map(|n| numbers(&n.costs))),
            list(&mut self.nodes.iter().map(|n| numbers(&n.usages))),
            list(&mut self.edges.iter().map(|e| format!("[{},{}]", e.from, e.to))),
            list(&mut self.edges.iter().map(|e| numbers(&self.matrices[e.matrix as usize]))),
        )
    }
}
