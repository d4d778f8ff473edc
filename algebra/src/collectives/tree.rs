//! Up and down a binomial tree (Thakur, Rabenseifner and Gropp 2005): an all_reduce in 2⌈log₂ n⌉ rounds, each moving the
//! whole tensor, unpipelined. Fewest rounds, most volume: for small tensors. Gathers and scatters have no such schedule.

use super::{ClosedForm, Round, Transfer};
use meshwright_ir::program::CollectiveKind;

/// Partial sums climb to position 0, then the sum descends the same edges.
pub(super) fn schedule(kind: CollectiveKind, n: u32) -> Option<Vec<Round>> {
    closed_form(kind, n)?;
    let up: Vec<Round> = (0..depth(n)).map(|level| edges(n, level)).collect();
    let down = up.iter().rev().map(|round| round.iter().map(reversed).collect());
    Some(up.iter().cloned().chain(down).collect())
}

/// Twice the depth, the whole tensor each time.
pub(super) fn closed_form(kind: CollectiveKind, n: u32) -> Option<ClosedForm> {
    match kind {
        CollectiveKind::AllReduceSum | CollectiveKind::AllReduceMax => {
            Some(ClosedForm { rounds: 2 * depth(n), moved: 2 * depth(n), chunks: 1 })
        }
        CollectiveKind::AllGather | CollectiveKind::ReduceScatter | CollectiveKind::AllToAll => None,
    }
}

/// ⌈log₂ n⌉.
fn depth(n: u32) -> u32 {
    n.next_power_of_two().ilog2()
}

/// Children at distance 2^level send to their parents.
fn edges(n: u32, level: u32) -> Round {
    let distance = 1 << level;
    let children = (distance..n).step_by(2 * distance as usize);
    children.map(|r| Transfer { from: r, to: r - distance, chunk: 0, reduce: true }).collect()
}

fn reversed(t: &Transfer) -> Transfer {
    Transfer { from: t.to, to: t.from, chunk: t.chunk, reduce: false }
}
