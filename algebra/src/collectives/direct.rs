//! Every rank reads from every peer: what ranks of one address space, or behind one switch, do. A reduce_scatter and an
//! all_gather take one round each; an all_to_all exchanges with one peer per round (pairwise exchange, Thakur et al. 2005).

use super::{ClosedForm, Round, Transfer};
use meshwright_ir::program::CollectiveKind;

/// The rounds, for every kind.
pub(super) fn schedule(kind: CollectiveKind, n: u32) -> Option<Vec<Round>> {
    if n == 1 {
        return Some(Vec::new());
    }
    // Position `to` takes its own chunk from everyone; then position `from` hands its chunk to everyone.
    let scatter = || all_pairs(n, |_, to| to, true);
    let gather = || all_pairs(n, |from, _| from, false);
    Some(match kind {
        CollectiveKind::AllReduceSum | CollectiveKind::AllReduceMax => vec![scatter(), gather()],
        CollectiveKind::ReduceScatter => vec![scatter()],
        CollectiveKind::AllGather => vec![gather()],
        CollectiveKind::AllToAll => (1..n).map(|k| shift(n, k)).collect(),
    })
}

/// The ring's volume in one round a phase; pairwise all_to_all in n-1.
pub(super) fn closed_form(kind: CollectiveKind, n: u32) -> Option<ClosedForm> {
    let several = u32::from(n > 1);
    let (rounds, moved) = match kind {
        CollectiveKind::AllReduceSum | CollectiveKind::AllReduceMax => (2 * several, 2 * (n - 1)),
        CollectiveKind::ReduceScatter | CollectiveKind::AllGather => (several, n - 1),
        CollectiveKind::AllToAll => (n - 1, n - 1),
    };
    Some(ClosedForm { rounds, moved, chunks: n })
}

fn all_pairs(n: u32, chunk: impl Fn(u32, u32) -> u32, reduce: bool) -> Round {
    let pairs = (0..n).flat_map(|from| (0..n).map(move |to| (from, to))).filter(|(from, to)| from != to);
    pairs.map(|(from, to)| Transfer { from, to, chunk: chunk(from, to), reduce }).collect()
}

/// Everyone to the peer `k` positions on.
fn shift(n: u32, k: u32) -> Round {
    let transfer = |r: u32| Transfer { from: r, to: (r + k) % n, chunk: r * n + (r + k) % n, reduce: false };
    (0..n).map(transfer).collect()
}
