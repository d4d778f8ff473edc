//! What to simulate.

use meshwright_ir::Program;
use std::collections::BTreeMap;

/// Which ranks are simulated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Ranks {
    /// Every rank of the world.
    #[default]
    All,
    /// The first rank of each class of those that see the same times: one per stage, where nothing breaks symmetry.
    Representatives,
}

/// A run's arguments.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Options {
    /// Which ranks to simulate. The choice never changes a time.
    pub ranks: Ranks,
    /// Stragglers: rank → factor on the time of its kernels. A slow host or stage is all of its ranks.
    pub slow: BTreeMap<u32, f64>,
}

/// Largest world that is simulated whole, and the most instructions of one that is: more than a person looks at. The
/// second is a guess, some 30 MB of trace file.
const WHOLE: (u32, u64) = (64, 1 << 18);

impl Options {
    /// Every rank of a small step, representatives of a large one.
    pub fn auto(program: &Program) -> Self {
        let world = program.mesh.ranks();
        let all = program.instructions() * (u64::from(world) / program.roles.len() as u64);
        let ranks = if world <= WHOLE.0 && all <= WHOLE.1 { Ranks::All } else { Ranks::Representatives };
        Self { ranks, slow: BTreeMap::new() }
    }
}
