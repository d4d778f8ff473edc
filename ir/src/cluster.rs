//! A cluster: devices behind levels of interconnect. Symmetric clusters are stored as levels and never listed rank by
//! rank; [`Cluster::graph`] draws a small one as a graph. Every number may name its source in `sources`.

use crate::{Bandwidth, Bytes, DType, FlopRate, Invalid, Time};
use petgraph::graph::UnGraph;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Kind of processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeviceKind {
    /// A graphics processor or other accelerator: one rank each.
    Gpu,
    /// A neural processor (Ascend).
    Npu,
    /// The cores of a host: several ranks may share them.
    Cpu,
}

/// Classes of kernels that share an efficiency curve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkClass {
    /// Matrix products; x is FLOP, the fraction is of peak compute.
    Matmul,
    /// Attention core, forward; x is FLOP, the fraction is of peak compute.
    Attention,
    /// Attention core, backward; likewise.
    AttentionBackward,
    /// Memory-bound kernels of all kinds; x is bytes, the fraction is of memory bandwidth.
    Memory,
    /// Normalisation; x is bytes.
    Norm,
    /// Activation functions and gates; x is bytes.
    Activation,
    /// Rotary embedding; x is bytes.
    Rope,
    /// Table lookups; x is bytes.
    Embedding,
    /// Softmax and loss over the vocabulary; x is bytes.
    Loss,
    /// Optimizer step; x is bytes.
    Optimizer,
}

/// Piecewise-linear efficiency over log(x), flat outside its points: achieved / peak.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Curve {
    /// Which kernels.
    pub class: WorkClass,
    /// `(x, efficiency)` in rising x.
    pub points: Vec<(f64, f64)>,
}

impl Curve {
    /// Efficiency at `x`.
    pub fn at(&self, x: f64) -> f64 {
        let k = self.points.partition_point(|p| p.0 <= x);
        if k == 0 {
            return self.points[0].1;
        }
        if k == self.points.len() {
            return self.points[k - 1].1;
        }
        let ((x0, y0), (x1, y1)) = (self.points[k - 1], self.points[k]);
        y0 + (y1 - y0) * (x.ln() - x0.ln()) / (x1.ln() - x0.ln())
    }
}

/// What the host's own work costs where a framework issues every op from an interpreter. All zero where it is unknown, or
/// where kernels were measured together with their launch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// To issue one op of a framework: interpreter, autograd, launches of its kernels.
    #[serde(default)]
    pub dispatch: Time,
    /// Until a collective moves its first byte: launch on every rank, handshakes, skew.
    #[serde(default)]
    pub collective: Time,
    /// Once per step: data, learning rate, scaling, logging, gaps.
    #[serde(default)]
    pub step: Time,
}

impl Host {
    /// Whether nothing is known of the host.
    pub fn is_unknown(&self) -> bool {
        *self == Self::default()
    }
}

/// One kind of device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Device {
    /// What a person calls it.
    pub name: String,
    /// Kind of processor.
    pub kind: DeviceKind,
    /// Memory a rank's allocations come from.
    pub memory: Bytes,
    /// Memory the runtime takes before the first tensor: context, communicator buffers.
    pub reserved: Bytes,
    /// Peak rate of dense matrix products by element type. A CPU's is that of one core.
    pub peak: BTreeMap<DType, FlopRate>,
    /// Peak memory bandwidth of the device. A CPU's is that of all its cores together.
    pub memory_bandwidth: Bandwidth,
    /// What one core draws alone, where several share the bandwidth.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core_bandwidth: Option<Bandwidth>,
    /// Cores that ranks share; 1 for an accelerator.
    pub cores: u32,
    /// Host time to launch one kernel.
    pub launch: Time,
    /// Work of the host beside the launches.
    #[serde(default, skip_serializing_if = "Host::is_unknown")]
    pub host: Host,
    /// Efficiency by class of kernel; a class without one uses `memory` or 1.
    #[serde(default)]
    pub curves: Vec<Curve>,
    /// US dollars per device and hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price_per_hour: Option<f64>,
    /// Watts under load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watts: Option<f64>,
}

/// One level of interconnect, inner first: `size` units of the level below share it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Level {
    /// `nvlink`, `infiniband`, `memory`.
    pub name: String,
    /// How many units of the level below (devices, for the first) one group at this level joins.
    pub size: u32,
    /// Each way, per device below it.
    pub bandwidth: Bandwidth,
    /// One message, end to end.
    pub latency: Time,
    /// Share of the bandwidth that large collectives reach.
    pub efficiency: f64,
}

/// A cluster of equal nodes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cluster {
    /// Preset or file name.
    pub name: String,
    /// The device in every slot.
    pub device: Device,
    /// Interconnect, innermost first. The product of sizes is the number of devices.
    pub levels: Vec<Level>,
    /// Devices per node.
    pub devices_per_node: u32,
    /// How many ranks share one device; 1 unless a CPU's cores are shared.
    #[serde(default = "one")]
    pub ranks_per_device: u32,
    /// Where each number comes from.
    #[serde(default)]
    pub sources: BTreeMap<String, String>,
}

fn one() -> u32 {
    1
}

/// A vertex of the drawn cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Vertex {
    /// Device number.
    Device(u32),
    /// Switch of a level: `(level, group)`.
    Switch(u32, u32),
}

/// Devices and switches joined by links of a level.
pub type ClusterGraph = UnGraph<Vertex, u32>;

impl Cluster {
    /// Devices in all.
    pub fn devices(&self) -> u32 {
        self.levels.iter().map(|l| l.size).product()
    }
    /// Nodes in all.
    pub fn nodes(&self) -> u32 {
        self.devices().div_ceil(self.devices_per_node)
    }
    /// Ranks the cluster holds.
    pub fn ranks(&self) -> u32 {
        self.devices() * self.ranks_per_device
    }
    /// The device of a rank.
    pub fn device_of(&self, rank: u32) -> u32 {
        rank / self.ranks_per_device
    }
    /// Devices under one group of level `k`.
    pub fn span(&self, k: usize) -> u32 {
        self.levels[..=k].iter().map(|l| l.size).product()
    }
    /// The outermost level that traffic between two ranks crosses.
    pub fn level_between(&self, a: u32, b: u32) -> usize {
        let (a, b) = (self.device_of(a), self.device_of(b));
        (0..self.levels.len())
            .find(|k| a / self.span(*k) == b / self.span(*k))
            .unwrap_or(self.levels.len().saturating_sub(1))
    }
    /// Memory one rank may use: its share of the device, less what the runtime reserves.
    pub fn memory_per_rank(&self) -> Bytes {
        (self.device.memory / u64::from(self.ranks_per_device)).saturating_sub(self.device.reserved)
    }
    /// The cluster as a graph of devices and switches: for drawing and for connectivity of small clusters.
    pub fn graph(&self) -> ClusterGraph {
        let mut graph = ClusterGraph::default();
        let mut below: Vec<_> = (0..self.devices()).map(|d| graph.add_node(Vertex::Device(d))).collect();
        for (k, level) in self.levels.iter().enumerate() {
            let groups = below.chunks(level.size as usize).map(<[_]>::to_vec).collect::<Vec<_>>();
            below = groups
                .iter()
                .enumerate()
                .map(|(g, members)| {
                    let switch = graph.add_node(Vertex::Switch(k as u32, g as u32));
                    members.iter().for_each(|m| {
                        graph.add_edge(*m, switch, k as u32);
                    });
                    switch
                })
                .collect();
        }
        graph
    }

    /// Orders of magnitude that are believable, so that no duration made of them overflows: rates from 1 MB/s or
    /// MFLOP/s to 1 EB/s or ZFLOP/s, latencies up to 0.1 s, memory up to 1 EiB.
    fn check_scales(&self) -> Result<(), Invalid> {
        let device = &self.device;
        let mut rates: Vec<(String, f64, f64)> =
            device.peak.iter().map(|(d, r)| (format!("device.peak.{d}"), r.get(), 1e21)).collect();
        rates.push(("device.memory_bandwidth".into(), device.memory_bandwidth.get(), 1e18));
        rates.extend(device.core_bandwidth.map(|b| ("device.core_bandwidth".to_string(), b.get(), 1e18)));
        rates.extend(
            self.levels.iter().map(|l| (format!("levels.{}.bandwidth", l.name), l.bandwidth.get(), 1e18)),
        );
        if let Some((field, x, top)) = rates.into_iter().find(|(_, x, top)| !(1e6..=*top).contains(x)) {
            let fix = format!("write a rate per second from 1e6 to {top:e}");
            return Err(Invalid::new(format!("cluster.{field}"), format!("{x:e}"), fix));
        }
        let mut times = vec![
            ("device.launch".to_string(), device.launch),
            ("device.host.dispatch".to_string(), device.host.dispatch),
            ("device.host.collective".to_string(), device.host.collective),
            ("device.host.step".to_string(), device.host.step),
        ];
        times.extend(self.levels.iter().map(|l| (format!("levels.{}.latency", l.name), l.latency)));
        if let Some((field, time)) = times.into_iter().find(|(_, t)| t.get() > 100_000_000_000) {
            let fix = "write picoseconds: at most 1e11";
            return Err(Invalid::new(format!("cluster.{field}"), time.get().to_string(), fix));
        }
        if device.memory.get() > 1 << 60 {
            return Err(Invalid::new(
                "cluster.device.memory",
                device.memory.to_string(),
                "write bytes: at most 1 EiB",
            ));
        }
        Ok(())
    }

    /// Checks the numbers that types cannot: sizes, efficiencies, curves.
    pub fn check(&self) -> Result<(), Invalid> {
        let bad = |field: String, found: String, fix: &str| Err(Invalid::new(field, found, fix));
        if self.levels.is_empty() || self.levels.iter().any(|l| l.size == 0) {
            return bad(
                "cluster.levels".into(),
                "no level, or one of size 0".into(),
                "give at least one level with a size of 1 or more",
            );
        }
        let devices =
            self.levels.iter().try_fold(1u32, |n, l| n.checked_mul(l.size)).filter(|n| *n <= 1 << 24);
        if devices.is_none() {
            return bad(
                "cluster.levels".into(),
                "more than 16,777,216 devices".into(),
                "lower a level's size",
            );
        }
        if self.devices_per_node == 0 || self.ranks_per_device == 0 || self.device.cores == 0 {
            return bad(
                "cluster".into(),
                "zero devices per node, ranks per device or cores".into(),
                "write 1 or more",
            );
        }
        if !self.devices().is_multiple_of(self.devices_per_node) {
            let found = format!("{} of {} devices", self.devices_per_node, self.devices());
            return bad(
                "cluster.devices_per_node".into(),
                found,
                "write a divisor of the product of all sizes",
            );
        }
        let shown = |name: &str| (1..=100).contains(&name.len()) && !name.chars().any(char::is_control);
        let names = [("name", &self.name), ("device.name", &self.device.name)];
        let levels = self.levels.iter().map(|l| ("levels.name", &l.name));
        if let Some((field, name)) = names.into_iter().chain(levels).find(|(_, n)| !shown(n)) {
            let found = format!("{} bytes: `{}`", name.len(), name.chars().take(40).collect::<String>());
            return bad(format!("cluster.{field}"), found, "write 1 to 100 bytes without control characters");
        }
        if self.device.peak.is_empty() {
            return bad(
                "cluster.device.peak".into(),
                "no compute rate".into(),
                "give the peak rate of at least one element type",
            );
        }
        if self.device.memory <= self.device.reserved {
            return bad(
                "cluster.device.memory".into(),
                self.device.memory.to_string(),
                "give more memory than `reserved`",
            );
        }
        let ranks = devices.and_then(|n| n.checked_mul(self.ranks_per_device)).filter(|n| *n <= 1 << 24);
        if ranks.is_none() {
            return bad(
                "cluster.ranks_per_device".into(),
                self.ranks_per_device.to_string(),
                "lower it: at most 16,777,216 ranks in all",
            );
        }
        self.check_scales()?;
        for level in &self.levels {
            if !(level.efficiency > 0.0 && level.efficiency <= 1.0) {
                return bad(
                    format!("cluster.levels.{}.efficiency", level.name),
                    level.efficiency.to_string(),
                    "write a share above 0, at most 1",
                );
            }
        }
        for curve in &self.device.curves {
            let field = format!("cluster.device.curves.{:?}", curve.class).to_lowercase();
            let rising = curve.points.windows(2).all(|w| w[0].0 < w[1].0);
            let sound =
                curve.points.iter().all(|(x, y)| x.is_finite() && *x > 0.0 && (1e-9..=1e3).contains(y));
            if curve.points.is_empty() || !rising || !sound {
                return bad(
                    field,
                    "points that do not rise, or out of range".into(),
                    "list (x, efficiency) in rising x above 0, efficiencies from 1e-9 to 1000",
                );
            }
        }
        for (field, x) in [("price_per_hour", self.device.price_per_hour), ("watts", self.device.watts)] {
            if x.is_some_and(|x| !x.is_finite() || x < 0.0) {
                return bad(
                    format!("cluster.device.{field}"),
                    x.unwrap_or_default().to_string(),
                    "write a finite number, 0 or more",
                );
            }
        }
        Ok(())
    }
}
