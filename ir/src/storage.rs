//! How one parameter's state is stored: whole on every replica, or split among data axes in equal contiguous pieces of the
//! local (tensor-sharded) tensor, flat, major axis first. Optimizer moments and masters are split wherever anything is;
//! the gradient and the compute copy on request. ZeRO stages 1 to 3 (Rajbhandari et al. 2020), FSDP (Zhao et al. 2023) and
//! its hybrid with replicas are points of this one choice, made parameter by parameter.

use crate::{Axis, AxisSet, Mesh, StateSharding};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// How one parameter's state is stored.
///
/// | over | weight | gradient | known as |
/// |---|---|---|---|
/// | `-` | no | no | plain data parallelism |
/// | data axes | no | no | ZeRO-1 |
/// | data axes | no | yes | ZeRO-2: every micro-batch's gradient is reduce-scattered into the piece |
/// | data axes | yes | yes | ZeRO-3, FSDP; with further data axes that only replicate, HSDP |
/// | data axes | yes | no | ZeRO-3 that holds whole gradients until the last micro-batch |
///
/// ZeRO-2 that holds whole gradients until the last micro-batch holds and moves what ZeRO-1 does, so it has no row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Storage {
    /// Axes among which moments and master are split; none when every replica holds all of them.
    pub over: AxisSet,
    /// Whether the compute copy is split too, and gathered before use.
    pub weight: bool,
    /// Whether the gradient is split too: summed into the piece micro-batch by micro-batch.
    pub gradient: bool,
}

impl Storage {
    /// Every replica holds everything.
    pub const WHOLE: Storage = Storage { over: AxisSet::EMPTY, weight: false, gradient: false };

    /// Optimizer state split among `over`: ZeRO-1.
    pub const fn states(over: AxisSet) -> Self {
        Storage { over, weight: false, gradient: false }
    }
    /// Everything split among `over`: FSDP.
    pub const fn everything(over: AxisSet) -> Self {
        Storage { over, weight: true, gradient: true }
    }
    /// What a coarse word asks of every parameter on a mesh.
    pub fn of_word(word: StateSharding, mesh: &Mesh) -> Self {
        let data = mesh.active().iter().filter(|a| AxisSet::DATA.contains(*a)).collect();
        let fsdp = mesh.active().iter().filter(|a| *a == Axis::Fsdp).collect();
        match word {
            StateSharding::None => Storage::WHOLE,
            StateSharding::Zero1 => Storage::states(data),
            StateSharding::Zero2 => Storage { gradient: mesh.size(data) > 1, ..Storage::states(data) },
            StateSharding::Zero3 if mesh.size(fsdp) > 1 => Storage::everything(fsdp),
            StateSharding::Zero3 => Storage::WHOLE,
        }
    }
    /// The least word that allows it.
    pub fn needs(self) -> StateSharding {
        match self {
            Storage { weight: true, .. } => StateSharding::Zero3,
            Storage { gradient: true, .. } => StateSharding::Zero2,
            _ if self.is_split() => StateSharding::Zero1,
            _ => StateSharding::None,
        }
    }
    /// Whether anything is split.
    pub fn is_split(self) -> bool {
        !self.over.is_empty()
    }
    /// How many pieces.
    pub fn pieces(self, mesh: &Mesh) -> u64 {
        u64::from(mesh.size(self.over))
    }
    /// Axes among which the compute copy is split.
    pub fn of_weight(self) -> AxisSet {
        if self.weight { self.over } else { AxisSet::EMPTY }
    }
    /// Axes among which the gradient is split.
    pub fn of_gradient(self) -> AxisSet {
        if self.gradient { self.over } else { AxisSet::EMPTY }
    }
}

impl fmt::Display for Storage {
    /// `-`, `dp`, `dp+g`, `fsdp+w+g`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (w, g) = (if self.weight { "+w" } else { "" }, if self.gradient { "+g" } else { "" });
        f.pad(&format!("{}{w}{g}", self.over))
    }
}

impl FromStr for Storage {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        let (rest, gradient) = s.strip_suffix("+g").map_or((s, false), |r| (r, true));
        let (rest, weight) = rest.strip_suffix("+w").map_or((rest, false), |r| (r, true));
        let storage = Storage { over: rest.parse()?, weight, gradient };
        match storage.is_split() || storage == Storage::WHOLE {
            true => Ok(storage),
            false => Err(format!("`{s}` splits a weight or a gradient among no axes")),
        }
    }
}

/// When split weights are gathered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gathering {
    /// Whether a block's whole weights are let go when another block's turn comes, and gathered anew for its next pass.
    /// Otherwise they are gathered once a step and kept until its end.
    pub reshard_after_forward: bool,
    /// How many turns ahead of its use a gather is listed.
    pub prefetch: u8,
}

impl Default for Gathering {
    /// As PyTorch's FSDP does: let go after forward, one gather ahead.
    fn default() -> Self {
        Self { reshard_after_forward: true, prefetch: 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_storage_reads_as_it_is_written() {
        for text in ["-", "dp", "dp+g", "fsdp+w", "fsdp+w+g", "dp.fsdp+w+g"] {
            assert_eq!(text.parse::<Storage>().unwrap().to_string(), text);
        }
        assert!("-+g".parse::<Storage>().is_err() && "fsdp+g+w".parse::<Storage>().is_err());
    }
}
