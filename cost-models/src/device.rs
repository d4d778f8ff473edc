//! What the device itself adds: memory that tensors cannot have, cores that ranks share, money and energy of a step.

use crate::CostModel;
use meshwright_ir::{Bytes, DeviceKind, Time};

/// Share of a rank's memory kept free for allocator slack: rounding of sizes, fragmentation, library workspaces. A guess:
/// 5 %; users of Megatron and Calculon report that plans at 97–99 % of memory fail to run.
const SLACK_PERCENT: u64 = 5;

/// Seconds in an hour, for prices.
const HOUR: f64 = 3600.0;

/// Memory of one rank that no tensor of a plan may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceTerms {
    /// Context and communicator buffers, as the cluster states them.
    pub reserved: Bytes,
    /// Headroom for the allocator.
    pub slack: Bytes,
}

impl CostModel {
    /// What one rank loses before its first tensor.
    pub fn device_terms(&self) -> DeviceTerms {
        let usable = self.cluster().memory_per_rank();
        DeviceTerms { reserved: self.cluster().device.reserved, slack: usable * SLACK_PERCENT / 100 }
    }

    /// Largest arena a plan may ask for on one rank: its share of the device less [`Self::device_terms`].
    pub fn memory_limit(&self) -> Bytes {
        self.cluster().memory_per_rank().saturating_sub(self.device_terms().slack)
    }

    /// Whether ranks share the cores and the memory bandwidth of one device, so that a kernel's time depends on what
    /// others run.
    pub fn shares_devices(&self) -> bool {
        let cluster = self.cluster();
        cluster.device.kind == DeviceKind::Cpu && cluster.ranks_per_device > 1
    }

    /// How many ranks one core serves on the fullest device when ranks `0..ranks_used` work: at least 1. Kernels of
    /// ranks that all compute take this many times as long.
    pub fn crowding(&self, ranks_used: u32) -> f64 {
        let on_device = ranks_used.min(self.cluster().ranks_per_device);
        match self.cluster().device.kind {
            DeviceKind::Cpu => (f64::from(on_device) / f64::from(self.cluster().device.cores)).max(1.0),
            DeviceKind::Gpu | DeviceKind::Npu => 1.0,
        }
    }

    /// Devices that ranks `0..ranks_used` occupy.
    pub fn devices_used(&self, ranks_used: u32) -> u32 {
        ranks_used.div_ceil(self.cluster().ranks_per_device)
    }

    /// US dollars of one step; `None` where the cluster states no price.
    pub fn dollars(&self, step: Time, ranks_used: u32) -> Option<f64> {
        let price = self.cluster().device.price_per_hour?;
        Some(price * f64::from(self.devices_used(ranks_used)) * step.seconds() / HOUR)
    }

    /// Joules of one step, every device drawing its stated watts throughout; `None` where the cluster states none.
    pub fn joules(&self, step: Time, ranks_used: u32) -> Option<f64> {
        let watts = self.cluster().device.watts?;
        Some(watts * f64::from(self.devices_used(ranks_used)) * step.seconds())
    }
}
