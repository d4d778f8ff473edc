//! The cluster that a table of measured runs means: a device by the name a vendor or a paper gives it, nodes of so many,
//! and a network in words (`8x200Gb HDR IB`, `800 Gb/s per node`). Devices are presets; of the network its words give the
//! bandwidth, and its technology what the preset of that technology says. The invariant: nothing here depends on who
//! measured, only on what device and network are called.

use super::{PRESETS, cluster_from_toml};
use crate::toml_text::parse;
use meshwright_ir::{Bandwidth, Cluster, Time};
use serde::Deserialize;
use std::collections::BTreeMap;

/// Starts of device names and the preset that has them; the longest that fits counts.
const DEVICES: [(&str, &str); 22] = [
    ("A100", "a100-sxm-80"),
    ("A100-SXM4-40GB", "a100-sxm-40"),
    ("A100-40GB", "a100-sxm-40"),
    ("A10G", "a10g"),
    ("L4", "l4"),
    ("V100", "v100-sxm-32"),
    ("V100-16GB", "v100-sxm-16"),
    ("H100", "h100-sxm"),
    ("H100-96GB", "h100-hbm2e-500w"),
    ("H200", "h200-sxm"),
    ("H800", "h800-sxm"),
    ("B200", "b200-sxm"),
    ("GB200", "gb200-nvl72"),
    ("MI300X", "mi300x"),
    ("Ascend 910B", "ascend-910b"),
    ("910B", "ascend-910b"),
    ("Tesla V100", "v100-sxm-32"),
    ("NVIDIA A100", "a100-sxm-80"),
    ("NVIDIA H100", "h100-sxm"),
    ("NVIDIA H200", "h200-sxm"),
    ("NVIDIA B200", "b200-sxm"),
    ("NVIDIA L4", "l4"),
];

/// Technologies of networks, by a word in lower case that names them; the first found counts.
const TECHNOLOGIES: [(&str, &str); 5] = [
    ("omni-path", "omni-path"),
    ("roce", "roce"),
    ("rdma", "roce"),
    ("efa", "efa"),
    ("ethernet", "ethernet"),
];

/// What a technology reaches.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Technology {
    latency: Time,
    efficiency: f64,
    sources: BTreeMap<String, String>,
}

/// Every technology.
const NETWORKS: &str = include_str!("../../clusters/networks.toml");

/// The cluster of `nodes` nodes with `per_node` devices called `device` behind `network`, and what was assumed. `Err` says
/// which part is unknown.
pub fn cluster_for(
    device: &str,
    network: &str,
    nodes: u32,
    per_node: u32,
) -> Result<(Cluster, Vec<String>), String> {
    let device = device.trim();
    let fitting = DEVICES.iter().filter(|(start, _)| device.starts_with(start));
    let preset = fitting.max_by_key(|(start, _)| start.len()).map(|(_, preset)| *preset);
    let known = preset.and_then(|p| PRESETS.iter().find(|(name, _)| *name == p));
    let (name, text) = known.ok_or_else(|| format!("no preset for the device `{device}`"))?;
    let mut cluster = cluster_from_toml(name, text, None).map_err(|e| e.to_string())?;
    let mut assumed = vec![];
    if per_node != cluster.devices_per_node {
        let within = cluster.levels.len() - 1;
        if within != 1 {
            return Err(format!("nodes of {per_node} `{device}`"));
        }
        cluster.levels[0].size = per_node;
        cluster.devices_per_node = per_node;
    }
    let last = cluster.levels.len() - 1;
    cluster.levels[last].size = nodes;
    if nodes > 1 {
        match behind(&mut cluster, network, per_node)? {
            Some(word) => cluster.name = format!("{name}/{word}"),
            None => assumed.push(format!("the network of the preset {name}")),
        }
    }
    cluster.check().map_err(|e| e.to_string())?;
    Ok((cluster, assumed))
}

/// Gives the outermost level the network that these words describe, and returns a short name of it; `None` if they say
/// nothing of its bandwidth.
fn behind(cluster: &mut Cluster, words: &str, per_node: u32) -> Result<Option<String>, String> {
    let Some(per_device) = per_device(words, per_node) else { return Ok(None) };
    let lower = words.to_lowercase();
    let named = TECHNOLOGIES.iter().find(|(word, _)| lower.contains(word));
    let technology = named.map_or("infiniband", |(_, t)| t);
    let all: BTreeMap<String, Technology> = parse("networks.toml", NETWORKS).map_err(|e| e.to_string())?;
    let reached = all.get(technology).ok_or_else(|| format!("no network `{technology}`"))?;
    let level = cluster.levels.last_mut().expect("a checked cluster has levels");
    // A host reaches no more than it does behind its preset's own adapters: its buses and switches are the same.
    let host = level.bandwidth.get() * level.efficiency;
    let efficiency = reached.efficiency.min(host / per_device);
    level.name = technology.to_string();
    level.bandwidth = Bandwidth::try_from(per_device).map_err(|e| e.to_string())?;
    level.latency = reached.latency;
    level.efficiency = efficiency;
    for (key, source) in &reached.sources {
        cluster.sources.insert(format!("levels.{technology}.{key}"), source.clone());
    }
    cluster.sources.insert(format!("levels.{technology}.bandwidth"), format!("as the table says: {words}"));
    let gbits = (per_device * 8e-9 * f64::from(per_node)).round();
    Ok(Some(format!("{technology}-{gbits}g")))
}

/// Bytes per second and device in `8x400Gb`, `800 Gb/s per node`, `400 Gb/s RDMA per GPU`.
fn per_device(words: &str, per_node: u32) -> Option<f64> {
    let at = words.find("Gb")?;
    let before = words[..at].trim_end();
    let start = before.rfind(|c: char| !c.is_ascii_digit() && c != '.').map_or(0, |k| k + 1);
    let rate: f64 = before[start..].parse().ok().filter(|r: &f64| *r > 0.0)?;
    let factor = before[..start].strip_suffix('x').map(|rest| {
        let digits = rest.rfind(|c: char| !c.is_ascii_digit()).map_or(0, |k| k + 1);
        rest[digits..].parse::<f64>().unwrap_or(1.0)
    });
    let bytes = rate * 1e9 / 8.0;
    let each = words.contains("per GPU") || words.contains("per device");
    Some(if each { bytes } else { bytes * factor.unwrap_or(1.0) / f64::from(per_node) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_in_words() {
        for (words, per_node, expected) in [
            ("8x200Gb HDR IB", 8, Some(25e9)),
            ("DGX H100 class, 8x400Gb IB (not restated)", 8, Some(50e9)),
            ("800 Gb/s per node (per the repo configs)", 8, Some(12.5e9)),
            ("1600 Gb/s RoCE per node", 8, Some(25e9)),
            ("400 Gb/s RDMA per GPU", 8, Some(50e9)),
            ("Omni-Path 4x100Gb per node", 8, Some(6.25e9)),
            ("50Gb Ethernet", 8, Some(0.78125e9)),
            ("NVL72 domain", 4, None),
        ] {
            assert_eq!(per_device(words, per_node), expected, "{words}");
        }
    }

    #[test]
    fn a_device_is_found_by_its_longest_name() {
        let name = |device| cluster_for(device, "8x200Gb HDR IB", 2, 8).map(|c| c.0.device.name);
        assert_eq!(name("A100-40GB").unwrap(), "A100-SXM4-40GB");
        assert_eq!(name("A100-80GB-SXM").unwrap(), "A100-SXM4-80GB");
        assert!(name("TPU v5p").unwrap_err().contains("TPU v5p"));
    }
}
