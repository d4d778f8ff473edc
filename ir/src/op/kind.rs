//! What ops are told apart by beside their sizes: kinds with a name each, and reals compared by their bits.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A float that is part of an op's identity: compared and hashed by its bits, never NaN.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Real(pub f64);

impl PartialEq for Real {
    fn eq(&self, o: &Self) -> bool {
        self.0.to_bits() == o.0.to_bits()
    }
}
impl Eq for Real {}
impl PartialOrd for Real {
    fn partial_cmp(&self, o: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(o))
    }
}
impl Ord for Real {
    fn cmp(&self, o: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&o.0)
    }
}
impl std::hash::Hash for Real {
    fn hash<H: std::hash::Hasher>(&self, h: &mut H) {
        self.0.to_bits().hash(h)
    }
}
impl fmt::Display for Real {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

macro_rules! named_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum $name { $($(#[$vdoc])* $variant),* }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { f.pad(match self { $($name::$variant => $text),* }) }
        }
        impl FromStr for $name {
            type Err = String;
            fn from_str(s: &str) -> Result<Self, String> {
                match s { $($text => Ok($name::$variant),)* _ => Err(format!("`{s}` is none of {}", [$($text),*].join(", "))) }
            }
        }
    };
}

named_enum!(
    /// What an embedding is looked up by.
    IdSource {
        /// Token ids from the data.
        Tokens = "tokens",
        /// The position in the sequence.
        Positions = "positions",
        /// The segment a token belongs to (BERT).
        Segments = "segments",
    }
);
named_enum!(
    /// Which normalisation.
    NormKind {
        /// Mean and variance, scale and shift (Ba et al. 2016).
        Layer = "layer",
        /// Mean and variance, scale only.
        LayerScale = "layer-scale",
        /// Mean and variance, no parameters (OLMo 1).
        LayerPlain = "layer-plain",
        /// Root mean square, scale only (Zhang and Sennrich 2019).
        Rms = "rms",
        /// Root mean square, no parameters.
        RmsPlain = "rms-plain",
    }
);
named_enum!(
    /// Which activation function.
    ActivationKind {
        /// x Φ(x), exact.
        Gelu = "gelu",
        /// GELU by its tanh approximation (GPT-2).
        GeluTanh = "gelu-tanh",
        /// x σ(x).
        Silu = "silu",
        /// max(x, 0).
        Relu = "relu",
        /// max(x, 0)² (So et al. 2021).
        Relu2 = "relu2",
        /// x σ(1.702 x) (CLIP).
        QuickGelu = "quick-gelu",
        /// tanh x.
        Tanh = "tanh",
        /// σ(x), which gates the output of some attentions.
        Sigmoid = "sigmoid",
    }
);

named_enum!(
    /// How a router turns logits into the weights of the chosen experts.
    RouteKind {
        /// Softmax.
        Softmax = "softmax",
        /// Sigmoid, each expert for itself.
        Sigmoid = "sigmoid",
    }
);
named_enum!(
    /// Which recurrence runs along the sequence.
    ScanKind {
        /// Selective state space, a decay for every channel and state (Gu and Dao 2023).
        Selective = "selective",
        /// State-space duality, a decay for every head (Dao and Gu 2024).
        Ssd = "ssd",
        /// Gated delta rule (Yang et al. 2024).
        Delta = "delta",
    }
);
named_enum!(
    /// What a tower hands in beside tokens.
    InputKind {
        /// Pixels of an image's patches.
        Patches = "patches",
        /// Frames of sound.
        Frames = "frames",
        /// The encoder's output.
        Memory = "memory",
    }
);

named_enum!(
    /// What attention keeps of its scores for backward.
    #[derive(Default)]
    AttentionCore {
        /// Nothing but their log-sum-exp: they are made again block by block (Dao et al. 2022).
        #[default]
        Fused = "fused",
        /// All of them, as a core of separate kernels does: the softmax, and with dropout its mask and its output
        /// (Korthikanti et al. 2022, section 4.1; `eager` in transformers).
        Eager = "eager",
    }
);

impl AttentionCore {
    /// Whether scores are never stored.
    pub fn is_fused(&self) -> bool {
        *self == AttentionCore::Fused
    }
}

/// Random zeroing of elements, the others scaled by 1 / (1 - rate). Which ones is a pure function of the run's seed, the
/// step, the block, the site and the element's place in the global batch, so it does not depend on the layout and comes
/// out the same when it is computed again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dropout {
    /// Share that is zeroed, in (0, 1).
    pub rate: Real,
    /// Tells the sites of one block apart.
    pub site: u32,
}

/// What attention adds to its scores, or its softmax to its sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ScoreBias {
    /// Nothing.
    #[default]
    None,
    /// A slope of each head times the distance (Press et al. 2021).
    Alibi,
    /// A learned logit of each head that takes probability and gives no value (gpt-oss).
    Sinks,
    /// A learned table `[buckets, heads]` of distances (Raffel et al. 2019).
    Relative {
        /// Buckets of distances.
        buckets: u64,
    },
}

impl fmt::Display for ScoreBias {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ScoreBias::None => f.write_str("none"),
            ScoreBias::Alibi => f.write_str("alibi"),
            ScoreBias::Sinks => f.write_str("sinks"),
            ScoreBias::Relative { buckets } => write!(f, "relative:{buckets}"),
        }
    }
}
impl FromStr for ScoreBias {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        let relative = |n: &str| n.parse().map(|buckets| ScoreBias::Relative { buckets }).ok();
        match s {
            "none" => Some(ScoreBias::None),
            "alibi" => Some(ScoreBias::Alibi),
            "sinks" => Some(ScoreBias::Sinks),
            other => other.strip_prefix("relative:").and_then(relative),
        }
        .ok_or_else(|| format!("`{s}` is none of none, alibi, sinks, relative:N"))
    }
}

/// What attention does to its scores before and in the softmax, beyond 1/√d.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scores {
    /// c·tanh(score/c) with this c (Gemma 2).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub softcap: Option<Real>,
    /// What is added.
    #[serde(default)]
    pub bias: ScoreBias,
}

impl Scores {
    /// Whether nothing is done to them.
    pub fn is_plain(&self) -> bool {
        *self == Self::default()
    }
}
