//! What a step asks of the interconnect, as a document between who counts it and who draws it.

use crate::{Algorithm, AxisSet, Bytes, Time};
use serde::{Deserialize, Serialize};

/// Load on one level of interconnect, on the stage that loads it most.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LevelLoad {
    /// Name of the level.
    pub level: String,
    /// Bytes that a device sends over it in a step, mean over the devices of a group.
    pub bytes: Bytes,
    /// Share of the step that moving them takes at the bandwidth large transfers reach; above 1 the step could not hold.
    pub busy: f64,
}

/// What runs along some axes of the mesh in a step, on the stage where it takes longest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AxisLoad {
    /// The axes.
    pub axes: AxisSet,
    /// Levels it crosses, innermost first.
    pub levels: Vec<String>,
    /// How collectives move; absent for messages between stages.
    pub algorithm: Option<Algorithm>,
    /// Collectives or messages of one rank.
    pub count: u64,
    /// Bytes that one rank sends.
    pub bytes: Bytes,
    /// Time they take once everyone has arrived, overlapped or not.
    pub time: Time,
    /// That time over the step time.
    pub share: f64,
}

/// What a step asks of the interconnect.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// Every level of the cluster, innermost first.
    pub levels: Vec<LevelLoad>,
    /// Axes along which anything runs, in the mesh's order.
    pub axes: Vec<AxisLoad>,
}
