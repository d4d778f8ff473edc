//! The pairwise choice problem under every block (`notes/planning.md` 2.1): each node takes one strategy and pays for it,
//! each edge pays for the pair of strategies at its ends, and at most one row bounds the memory of all choices together.
//! The invariant: a solution counts only for what [`evaluate`] says of it, which knows nothing of any solver.

/// The cost of what may not be chosen.
pub const FORBIDDEN: u64 = u64::MAX;

/// Strategies of one node: what each costs and holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Choices {
    /// Cost per strategy, in picoseconds; [`FORBIDDEN`] rules one out.
    pub cost: Vec<u64>,
    /// Bytes held per strategy.
    pub memory: Vec<u64>,
}

/// What pairs of strategies cost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edge {
    /// One node.
    pub from: u32,
    /// The other.
    pub to: u32,
    /// Row-major, `[strategy of from][strategy of to]`, in picoseconds; [`FORBIDDEN`] rules a pair out.
    pub cost: Vec<u64>,
}

/// Which strategy for each node is cheapest, within the budget? Among equal costs less memory is better.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Problem {
    /// The nodes.
    pub nodes: Vec<Choices>,
    /// The edges; several may join the same nodes.
    pub edges: Vec<Edge>,
    /// Bound on the sum of the chosen strategies' bytes.
    pub budget: Option<u64>,
}

/// One strategy per node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Solution {
    /// Position of the chosen strategy, per node.
    pub choice: Vec<u32>,
    /// Total cost.
    pub cost: u64,
    /// Total bytes.
    pub memory: u64,
}

/// What came of solving a problem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing is cheaper.
    Optimal(Solution),
    /// Within the budget; nothing is cheaper by more than the gap.
    Feasible {
        /// The best choice found.
        solution: Solution,
        /// Its cost less a certified lower bound.
        gap: u64,
    },
    /// No choice is allowed, or none is within the budget.
    Infeasible {
        /// Which, in words.
        why: String,
    },
    /// Too large for the solver at hand; nothing is proved.
    Stopped {
        /// The best choice found, if any.
        best: Option<Solution>,
    },
}

impl Outcome {
    /// The best choice found, and its gap where one is known.
    pub fn best(&self) -> Option<(&Solution, Option<u64>)> {
        match self {
            Outcome::Optimal(solution) => Some((solution, Some(0))),
            Outcome::Feasible { solution, gap } => Some((solution, Some(*gap))),
            Outcome::Infeasible { .. } => None,
            Outcome::Stopped { best } => best.as_ref().map(|s| (s, None)),
        }
    }
}

/// Cost of a choice: `None` where it has the wrong shape, takes something forbidden or exceeds the budget.
pub fn evaluate(problem: &Problem, choice: &[u32]) -> Option<u64> {
    if choice.len() != problem.nodes.len() {
        return None;
    }
    let allowed = |cost: Option<&u64>| cost.copied().filter(|c| *c != FORBIDDEN);
    let mut total = 0u64;
    for (node, k) in problem.nodes.iter().zip(choice) {
        total = total.checked_add(allowed(node.cost.get(*k as usize))?)?;
    }
    for edge in &problem.edges {
        let (p, q) = (choice[edge.from as usize] as usize, choice[edge.to as usize] as usize);
        let width = problem.nodes[edge.to as usize].cost.len();
        total = total.checked_add(allowed(edge.cost.get(p * width + q))?)?;
    }
    let within = problem.budget.is_none_or(|budget| memory(problem, choice) <= budget);
    within.then_some(total)
}

/// Bytes of a choice.
pub fn memory(problem: &Problem, choice: &[u32]) -> u64 {
    problem.nodes.iter().zip(choice).map(|(n, k)| n.memory[*k as usize]).sum()
}

impl Problem {
    /// The choice with what it costs and holds; `None` where it is not allowed.
    pub fn solution(&self, choice: Vec<u32>) -> Option<Solution> {
        let cost = evaluate(self, &choice)?;
        let memory = memory(self, &choice);
        Some(Solution { choice, cost, memory })
    }
}
