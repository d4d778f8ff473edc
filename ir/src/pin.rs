//! Pins: choices that a job fixes or bounds, `tp=8,pp<=4`. A pin compares one choice with one value; several hold together.

use crate::Invalid;
use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// A choice that a pin may fix or bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PinKey {
    /// Data-parallel degree.
    Dp,
    /// Tensor-parallel degree.
    Tp,
    /// Pipeline stages.
    Pp,
    /// Sequence parallelism: 1 or 0 (`true`, `false`).
    Sp,
    /// Sequences per micro-batch and replica.
    Microbatch,
    /// Pipeline schedule: 0 gpipe, 1 1f1b.
    Schedule,
    /// Stage of ZeRO: 0 to 3. Stage 3 is what a degree of `fsdp` above one is.
    Zero,
    /// Ranks that split weights among them.
    Fsdp,
    /// What backward recomputes in every block but embedding and head: 0 none, 1 gathers, 2 selective, 3 full.
    Recompute,
}

/// How a pin compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Comparison {
    /// `=`
    #[serde(rename = "=")]
    Equal,
    /// `!=`
    #[serde(rename = "!=")]
    NotEqual,
    /// `<=`
    #[serde(rename = "<=")]
    AtMost,
    /// `>=`
    #[serde(rename = ">=")]
    AtLeast,
}

/// One pinned or bounded choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pin {
    /// Which choice.
    pub key: PinKey,
    /// How it compares.
    pub comparison: Comparison,
    /// With what.
    pub value: u64,
}

impl Pin {
    /// Whether a value of the pinned choice is allowed.
    pub fn allows(&self, value: u64) -> bool {
        match self.comparison {
            Comparison::Equal => value == self.value,
            Comparison::NotEqual => value != self.value,
            Comparison::AtMost => value <= self.value,
            Comparison::AtLeast => value >= self.value,
        }
    }
    /// Parses `tp=8,pp<=4,sp=false,schedule=1f1b,zero=1,recompute<=selective`.
    pub fn parse_list(text: &str) -> Result<Vec<Pin>, Invalid> {
        text.split(',').map(str::trim).filter(|p| !p.is_empty()).map(str::parse).collect()
    }
}

impl FromStr for Pin {
    type Err = Invalid;
    fn from_str(s: &str) -> Result<Self, Invalid> {
        let bad = |found: &str| {
            Invalid::new(
                "search.pin",
                format!("`{found}`"),
                "write dp, fsdp, tp, pp, sp, microbatch, schedule, zero (0 to 3) or recompute (none, gathers, selective or full) with =, !=, <= or >= and a value, as in `tp=8,pp<=4`",
            )
        };
        let at = s.find(['=', '!', '<', '>']).ok_or_else(|| bad(s))?;
        let (key, rest) = s.split_at(at);
        let (comparison, value) = [
            ("!=", Comparison::NotEqual),
            ("<=", Comparison::AtMost),
            (">=", Comparison::AtLeast),
            ("=", Comparison::Equal),
        ]
        .into_iter()
        .find_map(|(sign, c)| rest.strip_prefix(sign).map(|v| (c, v.trim())))
        .ok_or_else(|| bad(s))?;
        let key = match key.trim() {
            "dp" => PinKey::Dp,
            "tp" => PinKey::Tp,
            "pp" => PinKey::Pp,
            "sp" => PinKey::Sp,
            "microbatch" => PinKey::Microbatch,
            "schedule" => PinKey::Schedule,
            "zero" => PinKey::Zero,
            "recompute" => PinKey::Recompute,
            "fsdp" => PinKey::Fsdp,
            "cp" | "ep" | "etp" | "vpp" => {
                let fix = "pin dp, fsdp, tp, pp, sp, zero, recompute, microbatch or schedule";
                return Err(Invalid::new("search.pin", format!("`{s}`, which is not built yet"), fix));
            }
            _ => return Err(bad(s)),
        };
        let value = match (key, value) {
            (PinKey::Sp, "true") => 1,
            (PinKey::Sp, "false") => 0,
            (PinKey::Schedule, "gpipe") => 0,
            (PinKey::Schedule, "1f1b") => 1,
            (PinKey::Recompute, "none") => 0,
            (PinKey::Recompute, "gathers") => 1,
            (PinKey::Recompute, "selective") => 2,
            (PinKey::Recompute, "full") => 3,
            (PinKey::Zero, "0" | "1" | "2" | "3") => value.parse().map_err(|_| bad(s))?,
            (PinKey::Sp, "0" | "1") => u64::from(value == "1"),
            (PinKey::Schedule | PinKey::Sp | PinKey::Zero | PinKey::Recompute, _) => return Err(bad(s)),
            (_, number) => number.parse().map_err(|_| bad(s))?,
        };
        Ok(Pin { key, comparison, value })
    }
}
