//! The only place durations come from: compute, collectives, launches, device memory, money and energy. Counts come from
//! `algebra`, numbers from the `Cluster`, and [`CostModel`] turns the first into the second's time. The invariant: every
//! cost is a pure function of cluster and counts, and more work never takes less time.

mod compute;
mod device;
mod host;
mod network;
mod slowest;

pub use compute::KernelCost;
pub use device::DeviceTerms;
pub use host::{dispatches, dispatching, once_per_step};
pub use network::TransferCost;
pub use slowest::{LONGEST_STEP_S, Slowest};

use meshwright_ir::Cluster;
use std::sync::Arc;

/// Prices work on one cluster. Cheap to clone; shared freely between threads.
#[derive(Debug, Clone)]
pub struct CostModel {
    cluster: Arc<Cluster>,
}

impl CostModel {
    /// A model of `cluster`. Panics when the cluster does not pass [`Cluster::check`], which who read it has run.
    pub fn new(cluster: &Cluster) -> Self {
        let checked = cluster.check();
        assert!(checked.is_ok(), "a cost model of an unchecked cluster: {checked:?}");
        Self { cluster: Arc::new(cluster.clone()) }
    }

    /// The cluster priced.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }
}
