//! Upper bounds of durations on a cluster, in floats, whatever kernel, algorithm or place: for whoever must know, before
//! any duration is made, that their sum can be counted. The invariant: no price of [`crate::CostModel`] is above them.

use meshwright_ir::{Bytes, Cluster};

/// Longest step that is counted, in seconds: 2^62 ps are 53 days, a quarter of what 64 bits hold.
pub const LONGEST_STEP_S: f64 = (1u64 << 62) as f64 * 1e-12;

/// The slowest that a cluster does anything. Rates per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Slowest {
    /// Operations, at the least efficient size.
    pub flops: f64,
    /// Bytes through memory, likewise.
    pub memory: f64,
    /// Bytes over a link, at the level with the least.
    link: f64,
    /// Seconds of a message, at the level with the most.
    latency: f64,
    /// Seconds until a collective begins.
    start: f64,
    /// Seconds to launch a kernel.
    pub launch: f64,
    /// How many ranks may wait for one device.
    pub crowding: f64,
}

impl Slowest {
    /// Of a checked cluster.
    pub fn of(cluster: &Cluster) -> Self {
        let device = &cluster.device;
        let least = |of: &mut dyn Iterator<Item = f64>| of.fold(f64::INFINITY, f64::min);
        let efficiency = least(&mut device.curves.iter().flat_map(|c| &c.points).map(|p| p.1)).min(1.0);
        let core = device.core_bandwidth.map_or(f64::INFINITY, |b| b.get());
        Self {
            flops: efficiency * least(&mut device.peak.values().map(|r| r.get())),
            memory: efficiency * core.min(device.memory_bandwidth.get()),
            link: least(&mut cluster.levels.iter().map(|l| l.bandwidth.get() * l.efficiency)),
            latency: cluster.levels.iter().map(|l| l.latency.seconds()).fold(0.0, f64::max),
            start: device.host.collective.seconds(),
            launch: device.launch.seconds(),
            crowding: f64::from(cluster.ranks_per_device),
        }
    }

    /// Seconds of a transfer among `ranks` by the slowest algorithm: twice round a ring in latency, up and down a tree in
    /// bytes.
    pub fn transfer(&self, bytes: f64, ranks: f64) -> f64 {
        self.start + 2.0 * ranks * self.latency + 2.0 * (ranks.log2() + 1.0) * bytes / self.link
    }

    /// Seconds of a message.
    pub fn message(&self, bytes: Bytes) -> f64 {
        self.transfer(bytes.f64(), 1.0)
    }
}
