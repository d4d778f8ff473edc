//! Documents that pass between crates without a cycle: what a measurement of a machine found.

use crate::{Bytes, Flops};
use serde::{Deserialize, Serialize};

/// One timed kernel or link.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProfileSample {
    /// What was timed (`matmul`, `norm`, `all_reduce`, …).
    pub name: String,
    /// Work of one run.
    pub flops: Flops,
    /// Bytes moved by one run.
    pub bytes: Bytes,
    /// Threads that ran it at once.
    pub threads: u32,
    /// Median seconds of one run.
    pub seconds: f64,
}

/// What was measured of this machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostProfile {
    /// Processor as the system names it.
    pub processor: String,
    /// Logical cores available to the process.
    pub cores: u32,
    /// Memory of the machine.
    pub memory: Bytes,
    /// The samples.
    pub samples: Vec<ProfileSample>,
}
