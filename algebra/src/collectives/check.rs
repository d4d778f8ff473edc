//! Proof of a chunk schedule by symbolic execution: each rank's copy of each chunk is a multiset of contributions, a
//! reducing transfer adds multisets, a copying one replaces. Correct means exactly one of each contribution, everywhere
//! the collective promises the chunk.

use super::Round;
use meshwright_ir::program::CollectiveKind;

/// How often each rank's contribution is in a copy of a chunk; empty where nothing is held.
type Held = Vec<u8>;

/// Runs `rounds` over `n` ranks and checks where contributions end. The error names the chunk, the rank and what is there.
pub fn check(kind: CollectiveKind, n: u32, chunks: u32, rounds: &[Round]) -> Result<(), String> {
    let pieces = if kind == CollectiveKind::AllToAll { n * n } else { chunks };
    let mut state = start(kind, n, pieces);
    for (k, round) in rounds.iter().enumerate() {
        let before = state.clone();
        for t in round {
            if t.from >= n || t.to >= n || t.chunk >= pieces || t.from == t.to {
                return Err(format!("round {k}: {t:?} names no rank or chunk, or is to itself"));
            }
            let sent = &before[t.from as usize][t.chunk as usize];
            if sent.iter().all(|c| *c == 0) {
                return Err(format!("round {k}: rank {} sends chunk {} without holding it", t.from, t.chunk));
            }
            let held = &mut state[t.to as usize][t.chunk as usize];
            match t.reduce {
                true => held.iter_mut().zip(sent).for_each(|(h, s)| *h = h.saturating_add(*s)),
                false => held.clone_from(sent),
            }
        }
    }
    for rank in 0..n {
        for chunk in 0..pieces {
            let promised = promise(kind, n, rank, chunk);
            let held = &state[rank as usize][chunk as usize];
            if promised.as_ref().is_some_and(|p| p != held) {
                return Err(format!("rank {rank} ends with {held:?} of chunk {chunk}, not {promised:?}"));
            }
        }
    }
    Ok(())
}

/// What each rank holds of each chunk before the first round.
fn start(kind: CollectiveKind, n: u32, pieces: u32) -> Vec<Vec<Held>> {
    let holds = |rank: u32, chunk: u32| match kind {
        CollectiveKind::AllReduceSum | CollectiveKind::AllReduceMax | CollectiveKind::ReduceScatter => true,
        CollectiveKind::AllGather => chunk == rank,
        CollectiveKind::AllToAll => chunk / n == rank,
    };
    let own = |rank, chunk| (0..n).map(|r| u8::from(r == rank && holds(rank, chunk))).collect();
    (0..n).map(|rank| (0..pieces).map(|chunk| own(rank, chunk)).collect()).collect()
}

/// What `rank` must end with of `chunk`; `None` where anything may lie.
fn promise(kind: CollectiveKind, n: u32, rank: u32, chunk: u32) -> Option<Held> {
    let all = || vec![1; n as usize];
    let only = |source: u32| (0..n).map(|r| u8::from(r == source)).collect();
    match kind {
        CollectiveKind::AllReduceSum | CollectiveKind::AllReduceMax => Some(all()),
        CollectiveKind::ReduceScatter => (chunk == rank).then(all),
        CollectiveKind::AllGather => Some(only(chunk)),
        CollectiveKind::AllToAll => (chunk % n == rank).then(|| only(chunk / n)),
    }
}
