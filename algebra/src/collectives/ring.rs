//! Around a ring, neighbour to neighbour (Patarasuk and Yuan 2009): a reduce_scatter takes n-1 rounds, each moving 1/n
//! of the tensor over every hop at once; an all_gather likewise; an all_reduce is one after the other.

use super::{ClosedForm, Round, Transfer};
use meshwright_ir::program::CollectiveKind;

/// The rounds, for all kinds but all_to_all.
pub(super) fn schedule(kind: CollectiveKind, n: u32) -> Option<Vec<Round>> {
    match kind {
        CollectiveKind::AllReduceSum | CollectiveKind::AllReduceMax => {
            Some(scatter(n).chain(gather(n)).collect())
        }
        CollectiveKind::ReduceScatter => Some(scatter(n).collect()),
        CollectiveKind::AllGather => Some(gather(n).collect()),
        CollectiveKind::AllToAll => None,
    }
}

/// 2(n-1) or n-1 rounds of one chunk in n.
pub(super) fn closed_form(kind: CollectiveKind, n: u32) -> Option<ClosedForm> {
    let rounds = match kind {
        CollectiveKind::AllReduceSum | CollectiveKind::AllReduceMax => 2 * (n - 1),
        CollectiveKind::ReduceScatter | CollectiveKind::AllGather => n - 1,
        CollectiveKind::AllToAll => return None,
    };
    Some(ClosedForm { rounds, moved: rounds, chunks: n })
}

/// Each partial sum travels on, and ends whole at the position of its chunk.
fn scatter(n: u32) -> impl Iterator<Item = Round> {
    (0..n - 1).map(move |s| round(n, |r| (r + 2 * n - s - 1) % n, true))
}

/// Each whole chunk travels on from its position.
fn gather(n: u32) -> impl Iterator<Item = Round> {
    (0..n - 1).map(move |s| round(n, |r| (r + n - s) % n, false))
}

fn round(n: u32, chunk: impl Fn(u32) -> u32, reduce: bool) -> Round {
    (0..n).map(|r| Transfer { from: r, to: (r + 1) % n, chunk: chunk(r), reduce }).collect()
}
