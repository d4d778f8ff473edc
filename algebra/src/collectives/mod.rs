//! Collective algorithms as chunk schedules: rounds of transfers over positions `0..n` of a group, as data that cost
//! models count, communicators execute and [`check`] proves. The invariant: for every algorithm in [`ALGORITHMS`], each
//! chunk ends with each rank's contribution exactly once wherever the collective promises it, and the schedule's rounds
//! and volume are those of its closed form (alpha-beta model: Thakur, Rabenseifner and Gropp 2005).

mod check;
mod direct;
mod ring;
mod tree;

pub use check::check;

use meshwright_ir::program::CollectiveKind;
use meshwright_ir::{Algorithm, Bytes};

/// One chunk on its way. Transfers of a round read what their senders held when the round began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Transfer {
    /// Position of the sender in the group.
    pub from: u32,
    /// Position of the receiver in the group.
    pub to: u32,
    /// Which chunk. In an all_to_all chunk `f·n + t` is the piece of position `f` meant for position `t`.
    pub chunk: u32,
    /// Added to what the receiver holds of the chunk, instead of replacing it.
    pub reduce: bool,
}

/// Transfers that run at once.
pub type Round = Vec<Transfer>;

/// What a schedule costs in the alpha-beta model, without walking it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClosedForm {
    /// Rounds: one latency each.
    pub rounds: u32,
    /// Chunks through the busiest port, summed over the rounds.
    pub moved: u32,
    /// Into how many equal chunks one rank's tensor is cut.
    pub chunks: u32,
}

impl ClosedForm {
    /// Bytes through the busiest port for a tensor of `payload` bytes on one rank, rounded up.
    pub fn volume(&self, payload: Bytes) -> Bytes {
        let scaled = u128::from(payload.get()) * u128::from(self.moved);
        let bytes = scaled.div_ceil(u128::from(self.chunks));
        Bytes(u64::try_from(bytes).expect("a collective moves less than 2^64 bytes"))
    }
}

/// One algorithm: how chunks move and what that costs. Both answer `None` for a kind the algorithm has no schedule of.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// The name plans and programs use.
    pub algorithm: Algorithm,
    schedule: fn(CollectiveKind, u32) -> Option<Vec<Round>>,
    closed_form: fn(CollectiveKind, u32) -> Option<ClosedForm>,
}

/// Every algorithm.
pub const ALGORITHMS: [Entry; 3] = [
    Entry { algorithm: Algorithm::Ring, schedule: ring::schedule, closed_form: ring::closed_form },
    Entry { algorithm: Algorithm::Tree, schedule: tree::schedule, closed_form: tree::closed_form },
    Entry { algorithm: Algorithm::Direct, schedule: direct::schedule, closed_form: direct::closed_form },
];

fn entry(algorithm: Algorithm) -> &'static Entry {
    let found = ALGORITHMS.iter().find(|e| e.algorithm == algorithm);
    found.expect("ALGORITHMS lists every algorithm")
}

/// Chunk schedule of a collective over `n` ≥ 1 ranks, in group positions; `None` where the algorithm has none for the
/// kind. One rank needs no rounds.
pub fn schedule(kind: CollectiveKind, algorithm: Algorithm, n: u32) -> Option<Vec<Round>> {
    (entry(algorithm).schedule)(kind, n)
}

/// Rounds and volume of [`schedule`] in constant time; `None` in the same cases.
pub fn closed_form(kind: CollectiveKind, algorithm: Algorithm, n: u32) -> Option<ClosedForm> {
    (entry(algorithm).closed_form)(kind, n)
}

/// The algorithm that moves a collective when `wanted` is asked for: itself where it has a schedule, else ring (as NCCL
/// does for gathers and scatters), else direct (all_to_all).
pub fn effective(kind: CollectiveKind, wanted: Algorithm) -> Algorithm {
    let has = |a: &Algorithm| closed_form(kind, *a, 2).is_some();
    let found = [wanted, Algorithm::Ring, Algorithm::Direct].into_iter().find(has);
    found.expect("every kind has a ring or a direct schedule")
}

/// Chunks that cut one rank's tensor of a kind into the pieces a schedule names.
pub fn chunks(kind: CollectiveKind, algorithm: Algorithm, n: u32) -> Option<u32> {
    closed_form(kind, algorithm, n).map(|f| f.chunks)
}

/// Bytes through the busiest port of a schedule run round by round: in each round, the most that any one rank sends or
/// receives of a tensor of `payload` bytes cut into `chunks`; summed, then rounded up.
pub fn bytes_on_wire_per_rank(rounds: &[Round], chunks: u32, payload: Bytes) -> Bytes {
    let moved = rounds.iter().map(|r| busiest(r)).sum();
    ClosedForm { rounds: rounds.len() as u32, moved, chunks }.volume(payload)
}

/// Most chunks that one rank sends or receives in a round.
fn busiest(round: &[Transfer]) -> u32 {
    let most = |mut ranks: Vec<u32>| {
        ranks.sort_unstable();
        ranks.chunk_by(|a, b| a == b).map(<[u32]>::len).max().unwrap_or(0) as u32
    };
    most(round.iter().map(|t| t.from).collect()).max(most(round.iter().map(|t| t.to).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: [CollectiveKind; 5] = [
        CollectiveKind::AllReduceSum,
        CollectiveKind::AllReduceMax,
        CollectiveKind::AllGather,
        CollectiveKind::ReduceScatter,
        CollectiveKind::AllToAll,
    ];

    /// Every schedule in the table for every kind and size.
    fn all() -> impl Iterator<Item = (CollectiveKind, Algorithm, u32, Vec<Round>)> {
        KINDS.into_iter().flat_map(|kind| {
            ALGORITHMS.iter().flat_map(move |e| {
                (1..=17).filter_map(move |n| Some((kind, e.algorithm, n, schedule(kind, e.algorithm, n)?)))
            })
        })
    }

    #[test]
    fn every_contribution_ends_where_it_should_exactly_once() {
        let mut schedules = 0;
        for (kind, algorithm, n, rounds) in all() {
            let chunks = chunks(kind, algorithm, n).unwrap();
            check(kind, n, chunks, &rounds).unwrap_or_else(|e| panic!("{kind} {algorithm} over {n}: {e}"));
            schedules += 1;
        }
        // Ring and direct: all-reduce (two kinds), all-gather, reduce-scatter; tree: all-reduce; direct: all-to-all.
        assert_eq!(schedules, 17 * (4 + 2 + 5));
    }

    #[test]
    fn closed_forms_agree_with_the_schedules() {
        for (kind, algorithm, n, rounds) in all() {
            let form = closed_form(kind, algorithm, n).unwrap();
            assert_eq!(form.rounds as usize, rounds.len(), "{kind} {algorithm} over {n}");
            let payload = Bytes(1_000_003);
            assert_eq!(bytes_on_wire_per_rank(&rounds, form.chunks, payload), form.volume(payload));
        }
    }

    #[test]
    fn volumes_are_the_textbook_ones() {
        let moved = |kind, algorithm, n| {
            let f = closed_form(kind, algorithm, n).unwrap();
            (f.rounds, f.moved, f.chunks)
        };
        for n in 2..=17 {
            assert_eq!(
                moved(CollectiveKind::AllReduceSum, Algorithm::Ring, n),
                (2 * (n - 1), 2 * (n - 1), n)
            );
            assert_eq!(moved(CollectiveKind::AllGather, Algorithm::Ring, n), (n - 1, n - 1, n));
            assert_eq!(moved(CollectiveKind::ReduceScatter, Algorithm::Ring, n), (n - 1, n - 1, n));
            assert_eq!(moved(CollectiveKind::AllReduceSum, Algorithm::Direct, n), (2, 2 * (n - 1), n));
            assert_eq!(moved(CollectiveKind::AllGather, Algorithm::Direct, n), (1, n - 1, n));
            assert_eq!(moved(CollectiveKind::AllToAll, Algorithm::Direct, n), (n - 1, n - 1, n));
            let depth = n.next_power_of_two().ilog2();
            assert_eq!(moved(CollectiveKind::AllReduceSum, Algorithm::Tree, n), (2 * depth, 2 * depth, 1));
        }
    }

    #[test]
    fn what_an_algorithm_lacks_another_runs() {
        assert_eq!(effective(CollectiveKind::AllGather, Algorithm::Tree), Algorithm::Ring);
        assert_eq!(effective(CollectiveKind::AllToAll, Algorithm::Tree), Algorithm::Direct);
        assert_eq!(effective(CollectiveKind::AllReduceMax, Algorithm::Tree), Algorithm::Tree);
    }

    #[test]
    fn the_checker_finds_planted_faults() {
        let kind = CollectiveKind::AllReduceSum;
        let good = schedule(kind, Algorithm::Ring, 4).unwrap();
        let mut lost = good.clone();
        lost[2].pop();
        assert!(check(kind, 4, 4, &lost).is_err());
        let mut twice = good.clone();
        let again = twice[0].clone();
        twice.insert(1, again);
        assert!(check(kind, 4, 4, &twice).is_err());
        let mut astray = good;
        astray[0][0].to = 9;
        assert!(check(kind, 4, 4, &astray).is_err());
    }
}
