//! What to simulate, and when one rank per stage may stand for all of it. The invariant: representatives are used only
//! where every rank of a stage provably sees the same times, so the choice never changes a result.

use meshwright_ir::{Axis, Cluster, Program};
use std::collections::BTreeMap;

/// Which ranks are simulated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Ranks {
    /// Every rank of the world.
    #[default]
    All,
    /// The first rank of each stage.
    Representatives,
}

/// A run's arguments.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Options {
    /// Which ranks to simulate. Representatives become all where the cluster is not [`symmetric`] or a rank is slow.
    pub ranks: Ranks,
    /// Stragglers: rank → factor on the time of its kernels.
    pub slow: BTreeMap<u32, f64>,
}

/// Worlds up to this size are simulated whole: a trace of every rank is still small enough to look at.
const WHOLE: u32 = 64;

impl Options {
    /// Every rank of a small world or of shared devices, one per stage of a large symmetric one.
    pub fn auto(program: &Program, cluster: &Cluster) -> Self {
        let large = program.mesh.ranks() > WHOLE;
        let ranks = if large && symmetric(program, cluster) { Ranks::Representatives } else { Ranks::All };
        Self { ranks, slow: BTreeMap::new() }
    }

    /// The ranks simulated after all.
    pub(crate) fn legal(&self, program: &Program, cluster: &Cluster) -> Ranks {
        let folded = self.slow.is_empty() && symmetric(program, cluster);
        if folded { self.ranks } else { Ranks::All }
    }
}

/// Whether all ranks of a stage see the same times. That holds when no device is shared between ranks and rank numbers
/// are digits of one mixed radix in which both the mesh's axes and the cluster's levels begin at digit boundaries: then
/// the level between two ranks depends on the digits in which they differ only, so all groups of a kind lie alike.
pub fn symmetric(program: &Program, cluster: &Cluster) -> bool {
    let mesh = &program.mesh;
    let shared = cluster.ranks_per_device > 1;
    let boundaries = Axis::ALL.into_iter().map(|a| mesh.stride(a) * mesh.degree(a));
    let nests = |span: u32| boundaries.clone().all(|b| b.is_multiple_of(span) || span.is_multiple_of(b));
    let spans = (0..cluster.levels.len()).map(|k| cluster.span(k));
    !shared && spans.filter(|s| *s < mesh.ranks()).all(nests)
}
