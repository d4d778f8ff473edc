//! Clusters: a preset or a TOML file to [`Cluster`], and a measured host to the cluster its cores make. A preset is a
//! TOML file like a user's own; its `[sources]` names the origin of every number. What comes out has passed its check.

mod constants;
mod localhost;
mod named;

pub use constants::{
    Constants, DeviceConstants, LevelConstants, apply as apply_constants, read as constants,
    read_text as constants_from_toml,
};
pub use localhost::localhost;
pub use named::cluster_for;

use crate::ZooError;
use crate::source::{locate, named, nearest, read};
use crate::toml_text::parse;
use meshwright_ir::{Cluster, HostProfile, Invalid, Source};
use std::path::Path;

/// The name that stands for the machine at hand: measured, not read.
pub(crate) const LOCALHOST: &str = "localhost";

/// Name and text of every preset.
const PRESETS: [(&str, &str); 14] = [
    ("a100-sxm-40", include_str!("../../clusters/a100-sxm-40.toml")),
    ("a100-sxm-80", include_str!("../../clusters/a100-sxm-80.toml")),
    ("a10g", include_str!("../../clusters/a10g.toml")),
    ("ascend-910b", include_str!("../../clusters/ascend-910b.toml")),
    ("b200-sxm", include_str!("../../clusters/b200-sxm.toml")),
    ("gb200-nvl72", include_str!("../../clusters/gb200-nvl72.toml")),
    ("h100-hbm2e-500w", include_str!("../../clusters/h100-hbm2e-500w.toml")),
    ("h100-sxm", include_str!("../../clusters/h100-sxm.toml")),
    ("h200-sxm", include_str!("../../clusters/h200-sxm.toml")),
    ("h800-sxm", include_str!("../../clusters/h800-sxm.toml")),
    ("l4", include_str!("../../clusters/l4.toml")),
    ("mi300x", include_str!("../../clusters/mi300x.toml")),
    ("v100-sxm-16", include_str!("../../clusters/v100-sxm-16.toml")),
    ("v100-sxm-32", include_str!("../../clusters/v100-sxm-32.toml")),
];

/// Every preset's name, `localhost` not among them.
pub fn cluster_presets() -> impl Iterator<Item = &'static str> {
    PRESETS.iter().map(|p| p.0)
}

/// The cluster called `source`: a preset, or the path (from `base_dir`, where relative) of a cluster TOML. `nodes`, if
/// given, replaces the number of nodes that the file states; a preset has one node.
pub fn cluster(source: &str, nodes: Option<u32>, base_dir: &Path) -> Result<(Cluster, Source), ZooError> {
    let cluster = match PRESETS.iter().find(|p| p.0 == source) {
        Some((name, text)) => cluster_from_toml(name, text, nodes)?,
        None => {
            let path = locate(source, base_dir);
            if source == LOCALHOST || source.is_empty() || !path.is_file() {
                return Err(unknown(source));
            }
            cluster_from_toml(source, &read(&path, source, "cluster.source")?, nodes)?
        }
    };
    let source = named(source, &cluster);
    Ok((cluster, source))
}

fn unknown(source: &str) -> ZooError {
    if source == LOCALHOST {
        let fix = "profile the machine first and build the cluster from that";
        return ZooError::new(source, "cluster.source", "this machine, which is measured and not read", fix);
    }
    let known: Vec<_> = cluster_presets().chain([LOCALHOST]).collect();
    let near =
        nearest(source, known.iter().copied()).map(|n| format!("did you mean `{n}`? ")).unwrap_or_default();
    let fix = format!("{near}name a cluster TOML, or one of {}", known.join(", "));
    ZooError::new(source, "cluster.source", "no such file and no such preset", fix)
}

/// The cluster that `text`, the content of `file`, describes.
pub fn cluster_from_toml(file: &str, text: &str, nodes: Option<u32>) -> Result<Cluster, ZooError> {
    let mut cluster: Cluster = parse(file, text)?;
    cluster.check().map_err(|e| ZooError::invalid(file, e))?;
    if let Some(nodes) = nodes {
        resize(&mut cluster, nodes).map_err(|e| ZooError::invalid(file, e))?;
        cluster.check().map_err(|e| {
            let fix = format!("use fewer: that is {}", e.found);
            ZooError::new(file, "cluster.nodes", nodes.to_string(), fix)
        })?;
    }
    Ok(cluster)
}

/// Gives the outermost level the size that makes `nodes` nodes. Refuses zero, more than one of a lone machine, and a
/// number that groups of the last level cannot make up.
pub fn resize(cluster: &mut Cluster, nodes: u32) -> Result<(), Invalid> {
    let bad = |fix: String| Err(Invalid::new("cluster.nodes", nodes.to_string(), fix));
    if nodes == 0 {
        return bad("use at least one node".into());
    }
    if nodes == cluster.nodes() {
        return Ok(());
    }
    let inner: u32 = cluster.levels.iter().rev().skip(1).map(|l| l.size).product();
    if !inner.is_multiple_of(cluster.devices_per_node) {
        return bad(format!(
            "`{}` is one machine: leave `nodes` out, or give it a level above its {} devices per node",
            cluster.name, cluster.devices_per_node
        ));
    }
    let per_group = inner / cluster.devices_per_node;
    if !nodes.is_multiple_of(per_group) {
        return bad(format!("write a multiple of {per_group}, the nodes under one group of the last level"));
    }
    if let Some(outer) = cluster.levels.last_mut() {
        outer.size = nodes / per_group;
    }
    Ok(())
}

/// What an earlier measurement of this machine wrote to `path`.
pub fn host_profile(path: &Path) -> Result<HostProfile, ZooError> {
    let name = path.to_string_lossy();
    parse(&name, &read(path, &name, "profile")?)
}
