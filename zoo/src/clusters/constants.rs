//! Calibrated constants: a TOML whose tables are cluster names and whose keys replace that cluster's own. A cluster
//! that the file does not name keeps its numbers; a level or class that a table does not name keeps its own too.

use crate::ZooError;
use crate::source::read as read_file;
use crate::toml_text::parse;
use meshwright_ir::{Bandwidth, Bytes, Cluster, Curve, Time};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// What replaces one cluster's constants.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Constants {
    /// Of the device.
    #[serde(default)]
    pub device: DeviceConstants,
    /// Of the interconnect, by the level's name.
    #[serde(default)]
    pub levels: BTreeMap<String, LevelConstants>,
}

/// What replaces a device's constants.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceConstants {
    /// Memory the runtime takes, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserved: Option<Bytes>,
    /// Time to launch one kernel, in picoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launch: Option<Time>,
    /// Host time to dispatch one op, in picoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dispatch: Option<Time>,
    /// Time until a collective moves its first byte, in picoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collective: Option<Time>,
    /// Host time once per step, in picoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<Time>,
    /// Curves; each replaces the one of its class.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub curves: Vec<Curve>,
}

/// What replaces a level's constants.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LevelConstants {
    /// Each way, per device, in bytes per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<Bandwidth>,
    /// One message, in picoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Time>,
    /// Share of the bandwidth that large collectives reach.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub efficiency: Option<f64>,
}

/// Reads a file of constants; `name` is how its user calls it.
pub fn read(path: &Path, name: &str) -> Result<BTreeMap<String, Constants>, ZooError> {
    read_text(name, &read_file(path, name, "cluster.constants")?)
}

/// The constants that `text`, the content of `file`, gives by cluster name.
pub fn read_text(file: &str, text: &str) -> Result<BTreeMap<String, Constants>, ZooError> {
    parse(file, text)
}

/// The cluster with the constants that `file` gives for its name; checked again.
pub fn apply(
    mut cluster: Cluster,
    file: &str,
    constants: &BTreeMap<String, Constants>,
) -> Result<Cluster, ZooError> {
    let Some(own) = constants.get(&cluster.name) else { return Ok(cluster) };
    let device = &mut cluster.device;
    device.reserved = own.device.reserved.unwrap_or(device.reserved);
    device.launch = own.device.launch.unwrap_or(device.launch);
    device.host.dispatch = own.device.dispatch.unwrap_or(device.host.dispatch);
    device.host.collective = own.device.collective.unwrap_or(device.host.collective);
    device.host.step = own.device.step.unwrap_or(device.host.step);
    for curve in &own.device.curves {
        device.curves.retain(|c| c.class != curve.class);
        device.curves.push(curve.clone());
    }
    for (name, new) in &own.levels {
        let Some(level) = cluster.levels.iter_mut().find(|l| l.name == *name) else {
            let known: Vec<_> = cluster.levels.iter().map(|l| l.name.as_str()).collect();
            let fix = format!("name a level of the cluster: {}", known.join(", "));
            return Err(ZooError::new(file, format!("{}.levels.{name}", cluster.name), "no such level", fix));
        };
        level.bandwidth = new.bandwidth.unwrap_or(level.bandwidth);
        level.latency = new.latency.unwrap_or(level.latency);
        level.efficiency = new.efficiency.unwrap_or(level.efficiency);
    }
    cluster.sources.insert("constants".to_string(), format!("{file}, which overrides what is said here"));
    cluster.check().map_err(|e| ZooError::invalid(file, e))?;
    Ok(cluster)
}
