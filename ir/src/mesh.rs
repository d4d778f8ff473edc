//! The device mesh: a product of named atomic axes. Ranks are numbered row-major over the axes in [`Axis::ALL`], so
//! tensor-parallel peers are neighbours and pipeline stages are furthest apart (the order Megatron calls tp-cp-dp-pp).

use crate::Invalid;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// One atomic axis of the mesh, major to minor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Axis {
    /// Pipeline stages.
    Pp,
    /// Data parallel replicas.
    Dp,
    /// Data parallel with sharded storage.
    Fsdp,
    /// Context parallel: the sequence inside attention.
    Cp,
    /// Tensor parallel.
    Tp,
}

impl Axis {
    /// Every axis, major first: the order of rank numbering.
    pub const ALL: [Axis; 5] = [Axis::Pp, Axis::Dp, Axis::Fsdp, Axis::Cp, Axis::Tp];

    /// The field's name for the axis.
    pub fn name(self) -> &'static str {
        match self {
            Axis::Pp => "pp",
            Axis::Dp => "dp",
            Axis::Fsdp => "fsdp",
            Axis::Cp => "cp",
            Axis::Tp => "tp",
        }
    }
}

impl fmt::Display for Axis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
impl FromStr for Axis {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        Axis::ALL
            .into_iter()
            .find(|a| a.name() == s)
            .ok_or_else(|| format!("`{s}` is no mesh axis (pp, dp, fsdp, cp, tp)"))
    }
}

/// A set of axes: the group of ranks that differ only in these coordinates.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Vec<Axis>", into = "Vec<Axis>")]
pub struct AxisSet(u8);

impl AxisSet {
    /// No axis: every rank alone.
    pub const EMPTY: AxisSet = AxisSet(0);
    /// The data axes: ranks that differ in these see other samples.
    pub const DATA: AxisSet = AxisSet(1 << Axis::Dp as u8 | 1 << Axis::Fsdp as u8);

    /// The set of one axis.
    pub const fn of(axis: Axis) -> Self {
        AxisSet(1 << axis as u8)
    }
    /// Whether `axis` is in the set.
    pub fn contains(self, axis: Axis) -> bool {
        self.0 & (1 << axis as u8) != 0
    }
    /// The set with `axis` added.
    #[must_use]
    pub fn with(self, axis: Axis) -> Self {
        AxisSet(self.0 | 1 << axis as u8)
    }
    /// The set with `axis` removed.
    #[must_use]
    pub fn without(self, axis: Axis) -> Self {
        AxisSet(self.0 & !(1 << axis as u8))
    }
    /// The set without those of another.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        AxisSet(self.0 & !other.0)
    }
    /// Whether every axis of this set is in the other.
    pub fn is_subset(self, other: Self) -> bool {
        self.minus(other).is_empty()
    }
    /// Axes in either set.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        AxisSet(self.0 | other.0)
    }
    /// Whether no axis is in the set.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
    /// The axes, major first.
    pub fn iter(self) -> impl Iterator<Item = Axis> {
        Axis::ALL.into_iter().filter(move |a| self.contains(*a))
    }
    /// Every set of some of these axes, the empty one aside: smaller ones first, then by their major axes.
    pub fn subsets(self) -> Vec<AxisSet> {
        let mut found: Vec<AxisSet> = (1..=self.0).map(AxisSet).filter(|s| s.is_subset(self)).collect();
        found.sort_by_key(|s| (s.0.count_ones(), s.iter().collect::<Vec<_>>()));
        found
    }
}

impl FromIterator<Axis> for AxisSet {
    fn from_iter<I: IntoIterator<Item = Axis>>(it: I) -> Self {
        it.into_iter().fold(AxisSet::EMPTY, AxisSet::with)
    }
}
impl From<Vec<Axis>> for AxisSet {
    fn from(v: Vec<Axis>) -> Self {
        v.into_iter().collect()
    }
}
impl From<AxisSet> for Vec<Axis> {
    fn from(s: AxisSet) -> Self {
        s.iter().collect()
    }
}
impl fmt::Display for AxisSet {
    /// `dp.tp`, or `-` when empty.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.iter().map(Axis::name).collect();
        f.pad(&if names.is_empty() { "-".to_string() } else { names.join(".") })
    }
}
impl FromStr for AxisSet {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        if s == "-" { Ok(Self::EMPTY) } else { s.split('.').map(str::parse).collect() }
    }
}

/// A rank's position on each axis, indexed by `Axis as usize`.
pub type Coords = [u32; 5];

/// Degrees of every axis. Their product is the world size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "MeshDocument", into = "MeshDocument")]
pub struct Mesh {
    degrees: [u32; 5],
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct MeshDocument {
    pp: u32,
    dp: u32,
    fsdp: u32,
    cp: u32,
    tp: u32,
}

impl Mesh {
    /// A mesh of the given degrees; axes not named have degree 1. Refuses zero and a world above 2^24 ranks.
    pub fn new(degrees: impl IntoIterator<Item = (Axis, u32)>) -> Result<Self, Invalid> {
        let mut all = [1u32; 5];
        for (axis, degree) in degrees {
            if degree == 0 {
                return Err(Invalid::new(
                    format!("mesh.{axis}"),
                    "a degree of 0",
                    "write 1 for an axis that is not used",
                ));
            }
            all[axis as usize] = degree;
        }
        let world = all.iter().try_fold(1u32, |w, d| w.checked_mul(*d)).filter(|w| *w <= 1 << 24);
        match world {
            Some(_) => Ok(Self { degrees: all }),
            None => Err(Invalid::new("mesh", "more than 16,777,216 ranks", "lower one of the degrees")),
        }
    }
    /// One rank.
    pub fn single() -> Self {
        Self { degrees: [1; 5] }
    }
    /// How many ranks lie along `axis`.
    pub fn degree(&self, axis: Axis) -> u32 {
        self.degrees[axis as usize]
    }
    /// World size.
    pub fn ranks(&self) -> u32 {
        self.degrees.iter().product()
    }
    /// Size of a group over `axes`.
    pub fn size(&self, axes: AxisSet) -> u32 {
        axes.iter().map(|a| self.degree(a)).product()
    }
    /// How many ranks see different samples: the size of a group over the data axes.
    pub fn replicas(&self) -> u32 {
        self.size(AxisSet::DATA)
    }
    /// Axes with more than one rank.
    pub fn active(&self) -> AxisSet {
        Axis::ALL.into_iter().filter(|a| self.degree(*a) > 1).collect()
    }
    /// Distance in rank numbers between neighbours along `axis`.
    pub fn stride(&self, axis: Axis) -> u32 {
        self.degrees[axis as usize + 1..].iter().product()
    }
    /// Coordinates of `rank`.
    pub fn coords(&self, rank: u32) -> Coords {
        std::array::from_fn(|k| rank / self.degrees[k + 1..].iter().product::<u32>() % self.degrees[k])
    }
    /// The rank at `coords`.
    pub fn rank(&self, coords: Coords) -> u32 {
        (0..5).fold(0, |r, k| r * self.degrees[k] + coords[k])
    }
    /// The coordinate of `rank` along `axis`.
    pub fn coord(&self, rank: u32, axis: Axis) -> u32 {
        rank / self.stride(axis) % self.degree(axis)
    }
    /// Ranks of the group of `rank` over `axes`, in rank order.
    pub fn group(&self, rank: u32, axes: AxisSet) -> Vec<u32> {
        let base: u32 = axes.iter().map(|a| self.coord(rank, a) * self.stride(a)).sum();
        let mut ranks = vec![rank - base];
        for axis in axes.iter() {
            ranks = ranks
                .iter()
                .flat_map(|r| (0..self.degree(axis)).map(move |k| r + k * self.stride(axis)))
                .collect();
        }
        ranks
    }
    /// Position of `rank` in its group over `axes`: the shard it holds when a dim is split over them, major first.
    pub fn index_in(&self, rank: u32, axes: AxisSet) -> u32 {
        axes.iter().fold(0, |k, a| k * self.degree(a) + self.coord(rank, a))
    }
}

impl TryFrom<MeshDocument> for Mesh {
    type Error = Invalid;
    fn try_from(d: MeshDocument) -> Result<Self, Invalid> {
        Mesh::new([
            (Axis::Pp, d.pp),
            (Axis::Dp, d.dp),
            (Axis::Fsdp, d.fsdp),
            (Axis::Cp, d.cp),
            (Axis::Tp, d.tp),
        ])
    }
}
impl From<Mesh> for MeshDocument {
    fn from(m: Mesh) -> Self {
        let [pp, dp, fsdp, cp, tp] = m.degrees;
        Self { pp, dp, fsdp, cp, tp }
    }
}
impl fmt::Display for Mesh {
    /// `pp=2 dp=2 fsdp=1 cp=1 tp=8`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<_> = Axis::ALL.iter().map(|a| format!("{a}={}", self.degree(*a))).collect();
        f.pad(&parts.join(" "))
    }
}
impl FromStr for Mesh {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        let pair = |word: &str| -> Result<(Axis, u32), String> {
            let (axis, degree) = word.split_once('=').ok_or_else(|| format!("`{word}` is no axis=degree"))?;
            Ok((axis.parse()?, degree.parse().map_err(|_| format!("`{degree}` is no degree"))?))
        };
        Mesh::new(s.split_whitespace().map(pair).collect::<Result<Vec<_>, _>>()?).map_err(|e| e.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_and_groups() {
        let mesh: Mesh = "pp=2 dp=2 tp=3".parse().unwrap();
        assert_eq!(mesh.ranks(), 12);
        for rank in 0..12 {
            assert_eq!(mesh.rank(mesh.coords(rank)), rank);
        }
        assert_eq!(mesh.group(7, AxisSet::of(Axis::Tp)), [6, 7, 8]);
        assert_eq!(mesh.group(7, AxisSet::of(Axis::Dp)), [7, 10]);
        assert_eq!(mesh.group(7, [Axis::Pp, Axis::Tp].into_iter().collect()), [0, 1, 2, 6, 7, 8]);
        assert_eq!(mesh.index_in(11, [Axis::Dp, Axis::Tp].into_iter().collect()), 5);
        assert!("pp=0".parse::<Mesh>().is_err());
    }
}
