//! How a tensor lies on the mesh (`DTensor` and GSPMD semantics): each axis either shards one dim, or leaves the tensor
//! partial (each rank holds an addend), or replicates it. Axes on one dim are ordered, major first.

use crate::{Axis, AxisSet, Mesh};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Sharding of each dim, and the axes over which ranks hold addends. An axis that appears nowhere replicates.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "LayoutDocument")]
pub struct Layout {
    dims: Vec<Vec<Axis>>,
    partial: AxisSet,
}

/// A layout as it is written, before anyone knows that no axis stands in it twice.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LayoutDocument {
    dims: Vec<Vec<Axis>>,
    partial: AxisSet,
}

impl TryFrom<LayoutDocument> for Layout {
    type Error = String;
    fn try_from(d: LayoutDocument) -> Result<Self, String> {
        let layout = Self { dims: d.dims, partial: d.partial };
        match layout.repeated() {
            Some(axis) => Err(format!("{layout} uses {axis} twice")),
            None => Ok(layout),
        }
    }
}

impl Layout {
    /// Every rank holds the whole tensor of `rank` dims.
    pub fn replicated(rank: usize) -> Self {
        Self { dims: vec![Vec::new(); rank], partial: AxisSet::EMPTY }
    }
    /// Builds a layout; an axis used twice is a broken invariant.
    pub fn new(dims: Vec<Vec<Axis>>, partial: AxisSet) -> Self {
        let layout = Self { dims, partial };
        assert_eq!(layout.repeated(), None, "an axis appears twice in {layout}");
        layout
    }
    /// An axis that stands in it twice.
    fn repeated(&self) -> Option<Axis> {
        let mut seen = self.partial;
        self.dims.iter().flatten().copied().find(|axis| {
            let twice = seen.contains(*axis);
            seen = seen.with(*axis);
            twice
        })
    }
    /// The layout with `axis` appended (as the minor-most) to the axes of `dim`.
    #[must_use]
    pub fn sharded(mut self, dim: usize, axis: Axis) -> Self {
        self.dims[dim].push(axis);
        Self::new(self.dims, self.partial)
    }
    /// The layout with ranks along `axis` holding addends.
    #[must_use]
    pub fn partial_over(self, axis: Axis) -> Self {
        let partial = self.partial.with(axis);
        Self::new(self.dims, partial)
    }
    /// The layout with `axis` replicating.
    #[must_use]
    pub fn cleared(mut self, axis: Axis) -> Self {
        self.dims.iter_mut().for_each(|d| d.retain(|a| *a != axis));
        self.partial = self.partial.without(axis);
        self
    }
    /// Number of dims.
    pub fn rank(&self) -> usize {
        self.dims.len()
    }
    /// Axes that shard `dim`, major first.
    pub fn axes(&self, dim: usize) -> &[Axis] {
        &self.dims[dim]
    }
    /// Axes over which ranks hold addends.
    pub fn partial(&self) -> AxisSet {
        self.partial
    }
    /// The dim that `axis` shards.
    pub fn dim_of(&self, axis: Axis) -> Option<usize> {
        self.dims.iter().position(|d| d.contains(&axis))
    }
    /// Into how many pieces `dim` is cut.
    pub fn pieces(&self, dim: usize, mesh: &Mesh) -> u64 {
        self.dims[dim].iter().map(|a| u64::from(mesh.degree(*a))).product()
    }
    /// Shape of one rank's piece, or the first dim that does not divide evenly.
    pub fn local(&self, shape: &[u64], mesh: &Mesh) -> Result<Vec<u64>, usize> {
        let piece = |(d, n): (usize, &u64)| {
            let pieces = self.pieces(d, mesh);
            if n % pieces == 0 { Ok(n / pieces) } else { Err(d) }
        };
        shape.iter().enumerate().map(piece).collect()
    }
    /// The layout a gradient arrives in or must have: partial and replicate swap, shards stay (dual layout).
    #[must_use]
    pub fn dual(&self, active: AxisSet) -> Self {
        let sharded: AxisSet = self.dims.iter().flatten().copied().collect();
        let partial = active.iter().filter(|a| !sharded.contains(*a) && !self.partial.contains(*a)).collect();
        Self { dims: self.dims.clone(), partial }
    }
}

impl fmt::Display for Layout {
    /// `(dp,tp,-)`; `(dp,-,-)+tp` when partial over tp; `(dp.fsdp,-)` for two axes on one dim.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dim = |d: &Vec<Axis>| match d.is_empty() {
            true => "-".to_string(),
            false => d.iter().map(|a| a.name()).collect::<Vec<_>>().join("."),
        };
        let dims: Vec<_> = self.dims.iter().map(dim).collect();
        let partial = if self.partial.is_empty() { String::new() } else { format!("+{}", self.partial) };
        f.pad(&format!("({}){partial}", dims.join(",")))
    }
}
impl FromStr for Layout {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        let (dims, partial) = s
            .strip_prefix('(')
            .and_then(|r| r.split_once(')'))
            .ok_or_else(|| format!("`{s}` is no layout"))?;
        let axes = |d: &str| -> Result<Vec<Axis>, String> {
            if d == "-" { Ok(vec![]) } else { d.split('.').map(str::parse).collect() }
        };
        let dims: Vec<Vec<Axis>> = match dims {
            "" => Vec::new(),
            text => text.split(',').map(axes).collect::<Result<_, _>>()?,
        };
        let partial = match partial.strip_prefix('+') {
            Some(p) => p.parse()?,
            None if partial.is_empty() => AxisSet::EMPTY,
            None => return Err(format!("`{s}` is no layout")),
        };
        LayoutDocument { dims, partial }.try_into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trips() {
        for text in ["(dp,tp,-)", "(dp,-,-)+tp", "(dp.fsdp,-)", "()", "(-)+dp.tp"] {
            assert_eq!(text.parse::<Layout>().unwrap().to_string(), text);
        }
        for bad in ["", "(dp", "(dp,dp)", "(dp)+dp", "(x)"] {
            assert!(bad.parse::<Layout>().is_err(), "{bad}");
        }
    }

    #[test]
    fn no_document_uses_an_axis_twice() {
        let read = serde_json::from_str::<Layout>;
        assert_eq!(read(r#"{"dims":[["dp"],["tp"]],"partial":[]}"#).unwrap().to_string(), "(dp,tp)");
        for bad in [r#"{"dims":[["dp"],["dp"]],"partial":[]}"#, r#"{"dims":[["dp"]],"partial":["dp"]}"#] {
            assert!(read(bad).unwrap_err().to_string().contains("uses dp twice"), "{bad}");
        }
    }

    #[test]
    fn pieces_must_be_even() {
        let mesh: Mesh = "dp=2 tp=3".parse().unwrap();
        let layout: Layout = "(dp,tp)".parse().unwrap();
        assert_eq!(layout.local(&[4, 6], &mesh), Ok(vec![2, 2]));
        assert_eq!(layout.local(&[4, 7], &mesh), Err(1));
    }
}
