//! Communication by the alpha-beta model (Hockney 1994; Thakur, Rabenseifner and Gropp 2005) over the levels of a
//! cluster: rounds and volume are those of `algebra::collectives`, latency is that of the level each hop crosses, and
//! bandwidth is per device at every level, so a group with several members in a node has as many ways out of it. The
//! invariant: cost depends only on kind, algorithm, size and where the ranks lie, and never falls with size.

use crate::CostModel;
use meshwright_algebra::collectives::{closed_form, effective};
use meshwright_ir::program::CollectiveKind;
use meshwright_ir::{Algorithm, Bytes, Time};

/// What a collective or a message costs one rank once all have arrived. On an accelerator both parts are time on the
/// wire; on a host whose cores ranks share, `work` needs a core and `bytes` of its memory bandwidth.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TransferCost {
    /// Rounds of latency: nobody's core is busy.
    pub latency: Time,
    /// Moving and reducing bytes.
    pub work: Time,
    /// Bytes through memory during `work`: each byte moved is read once and written once.
    pub bytes: Bytes,
}

impl TransferCost {
    /// From the last arrival to completion, running alone.
    pub fn time(&self) -> Time {
        self.latency + self.work
    }
}

impl CostModel {
    /// Time of a collective from the last arrival on. `bytes` is the whole tensor on one rank (gathered, or before
    /// scattering); `ranks` the group, in any order. One rank: zero. A kind the algorithm has no schedule of runs as
    /// `algebra::collectives::effective` says.
    pub fn collective(
        &self,
        kind: CollectiveKind,
        algorithm: Algorithm,
        bytes: Bytes,
        ranks: &[u32],
    ) -> Time {
        self.collective_cost(kind, algorithm, bytes, ranks).time()
    }

    /// [`Self::collective`] in its parts.
    pub fn collective_cost(
        &self,
        kind: CollectiveKind,
        algorithm: Algorithm,
        bytes: Bytes,
        ranks: &[u32],
    ) -> TransferCost {
        let n = ranks.len() as u32;
        if n <= 1 {
            return TransferCost::default();
        }
        let mut ranks = ranks.to_vec();
        ranks.sort_unstable();
        let algorithm = effective(kind, algorithm);
        let form = closed_form(kind, algorithm, n).expect("an effective algorithm has a closed form");
        let (latency, seconds) = match algorithm {
            Algorithm::Ring => {
                let phases = u64::from(form.rounds / (n - 1));
                (self.ring_latency(&ranks) * phases, form.volume(bytes).f64() / self.ring_bandwidth(&ranks))
            }
            Algorithm::Tree => self.tree(&ranks, bytes),
            Algorithm::Direct => {
                // Each peer gets the same share of what a rank moves; levels are separate wires and run at once.
                let volume = form.volume(bytes).f64();
                let at =
                    |k: usize, peers: u32| volume * f64::from(peers) / f64::from(n - 1) / self.bandwidth(k);
                let peers = self.peers(&ranks);
                let seconds = peers.iter().enumerate().map(|(k, p)| at(k, *p)).fold(0.0, f64::max);
                (self.direct_latency(kind, &peers, form.rounds), seconds)
            }
        };
        let latency = latency + self.cluster().device.host.collective;
        TransferCost { latency, work: Time::from_seconds(seconds), bytes: form.volume(bytes) * 2 }
    }

    /// Time of one message from both ends' arrival on.
    pub fn exchange(&self, bytes: Bytes, from_rank: u32, to_rank: u32) -> Time {
        self.exchange_cost(bytes, from_rank, to_rank).time()
    }

    /// [`Self::exchange`] in its parts; the work is the receiver's.
    pub fn exchange_cost(&self, bytes: Bytes, from_rank: u32, to_rank: u32) -> TransferCost {
        let level = self.cluster().level_between(from_rank, to_rank);
        let seconds = bytes.f64() / self.bandwidth(level);
        let latency = self.cluster().levels[level].latency;
        TransferCost { latency, work: Time::from_seconds(seconds), bytes: bytes * 2 }
    }

    /// Bytes per second that large transfers reach at a level, each way and per device.
    fn bandwidth(&self, level: usize) -> f64 {
        let level = &self.cluster().levels[level];
        level.bandwidth.get() * level.efficiency
    }

    /// A chunk makes n-1 of the ring's n hops, neighbours in rank order; the slowest skips the cheapest hop.
    fn ring_latency(&self, ranks: &[u32]) -> Time {
        let next = ranks.iter().skip(1).chain(&ranks[..1]);
        let hop = |(a, b): (&u32, &u32)| self.cluster().levels[self.cluster().level_between(*a, *b)].latency;
        let hops: Vec<Time> = ranks.iter().zip(next).map(hop).collect();
        hops.iter().sum::<Time>() - hops.iter().copied().min().unwrap_or_default()
    }

    /// Rate at which every rank passes chunks on. A level is crossed once per unit below it, by as many parallel rings
    /// as the unit has members, each through its own port; the narrowest crossing decides.
    fn ring_bandwidth(&self, ranks: &[u32]) -> f64 {
        let crossing = |k: usize| {
            let below = self.members(ranks, k);
            let here = self.members(ranks, k + 1);
            (below.len() > here.len()).then(|| {
                let ports = if k == 0 { 1 } else { below.into_iter().min().unwrap_or(1) };
                self.bandwidth(k) * f64::from(ports)
            })
        };
        let slowest = (0..self.cluster().levels.len()).filter_map(crossing).fold(f64::INFINITY, f64::min);
        if slowest.is_finite() { slowest } else { self.bandwidth(0) }
    }

    /// Binomial tree: at distance 2^j the costliest edge decides; the whole tensor goes up and comes down.
    fn tree(&self, ranks: &[u32], bytes: Bytes) -> (Time, f64) {
        let n = ranks.len();
        let (mut latency, mut seconds, mut distance) = (Time::ZERO, 0.0, 1);
        while distance < n {
            let children = (distance..n).step_by(2 * distance);
            let level = |r: usize| self.cluster().level_between(ranks[r], ranks[r - distance]);
            let levels: Vec<usize> = children.map(level).collect();
            latency += levels.iter().map(|k| self.cluster().levels[*k].latency).max().unwrap_or_default() * 2;
            seconds += levels.iter().map(|k| 2.0 * bytes.f64() / self.bandwidth(*k)).fold(0.0, f64::max);
            distance *= 2;
        }
        (latency, seconds)
    }

    /// One latency a round: of the outermost level where everyone is reached at once, of each peer's level in turn in
    /// an all_to_all, which meets peers one by one.
    fn direct_latency(&self, kind: CollectiveKind, peers: &[u32], rounds: u32) -> Time {
        let met = self.cluster().levels.iter().zip(peers).filter(|(_, p)| **p > 0);
        match kind {
            CollectiveKind::AllToAll => met.map(|(level, p)| level.latency * u64::from(*p)).sum(),
            CollectiveKind::AllReduceSum
            | CollectiveKind::AllReduceMax
            | CollectiveKind::AllGather
            | CollectiveKind::ReduceScatter => {
                met.map(|(level, _)| level.latency).max().unwrap_or_default() * u64::from(rounds)
            }
        }
    }

    /// For each level, how many peers the rank with most of them has at just that distance.
    fn peers(&self, ranks: &[u32]) -> Vec<u32> {
        let of_rank = |k: usize| -> Vec<u32> {
            let units = self.members(ranks, k);
            units.into_iter().flat_map(|m| std::iter::repeat_n(m, m as usize)).collect()
        };
        let most = |k: usize| of_rank(k + 1).iter().zip(of_rank(k)).map(|(here, below)| here - below).max();
        (0..self.cluster().levels.len()).map(|k| most(k).unwrap_or(0)).collect()
    }

    /// Members of the group in each unit just below level `k` (`k` = 0: each rank for itself), in rank order.
    fn members(&self, ranks: &[u32], k: usize) -> Vec<u32> {
        let cluster = self.cluster();
        let unit = |r: &u32| match k {
            0 => *r,
            k => cluster.device_of(*r) / cluster.span(k - 1),
        };
        ranks.chunk_by(|a, b| unit(a) == unit(b)).map(|c| c.len() as u32).collect()
    }
}
