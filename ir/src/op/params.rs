//! What an op learns: the parameters it owns, their shapes and how they start.

use super::{Dropout, NormKind, Op, Real, ScanKind, ScoreBias};
use serde::{Deserialize, Serialize};

/// How a parameter starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Init {
    /// Gaussian with mean zero.
    Normal {
        /// Standard deviation.
        std: Real,
    },
    /// All ones.
    Ones,
    /// All zeros.
    Zeros,
}

/// One parameter of an op.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParamSpec {
    /// Name within the op.
    pub name: &'static str,
    /// Whole shape.
    pub shape: Vec<u64>,
    /// How it starts unless the node says otherwise.
    pub init: Init,
    /// Whether weight decay applies (matrices yes; norms and biases no).
    pub decays: bool,
}

impl ParamSpec {
    /// Number of elements.
    pub fn elements(&self) -> u64 {
        self.shape.iter().product()
    }
}

/// The customary standard deviation of weights (GPT-2, BERT, Llama configurations: `initializer_range`).
const WEIGHT_STD: Real = Real(0.02);

impl Op {
    /// Parameters the op owns.
    pub fn params(&self) -> Vec<ParamSpec> {
        let normal = Init::Normal { std: WEIGHT_STD };
        let matrix = |name, shape| ParamSpec { name, shape, init: normal, decays: true };
        let vector = |name, width, init| ParamSpec { name, shape: vec![width], init, decays: false };
        match self {
            Op::Embedding { rows, width, .. } => vec![matrix("table", vec![*rows, *width])],
            Op::Linear { input, output, .. } => vec![matrix("weight", vec![*output, *input])],
            Op::Bias { width, .. } => vec![vector("bias", *width, Init::Zeros)],
            Op::Norm { kind: NormKind::Layer, width, .. } => {
                vec![vector("gamma", *width, Init::Ones), vector("beta", *width, Init::Zeros)]
            }
            Op::Norm { kind: NormKind::Rms | NormKind::LayerScale, width, .. } => {
                vec![vector("gamma", *width, Init::Ones)]
            }
            Op::Norm { kind: NormKind::RmsPlain | NormKind::LayerPlain, .. } => vec![],
            Op::Attention { heads, scores, .. } => match scores.bias {
                ScoreBias::None | ScoreBias::Alibi => vec![],
                ScoreBias::Sinks => vec![vector("sinks", *heads, Init::Zeros)],
                ScoreBias::Relative { buckets } => vec![matrix("distances", vec![buckets, *heads])],
            },
            Op::Gain { width, .. } => vec![vector("gain", *width, Init::Ones)],
            Op::ExpertLinear { experts, input, output, .. } => {
                vec![matrix("weight", vec![*experts, *output, *input])]
            }
            Op::ExpertBias { experts, width, .. } => vec![ParamSpec {
                name: "bias",
                shape: vec![*experts, *width],
                init: Init::Zeros,
                decays: false,
            }],
            Op::Conv { width, kernel } => vec![matrix("taps", vec![*width, *kernel])],
            // `decay` is the logarithm of the decay rate, which so starts at 1.
            Op::Scan { kind, heads, state, .. } => {
                let skip = || vector("skip", *heads, Init::Ones);
                match kind {
                    ScanKind::Selective => vec![
                        ParamSpec {
                            name: "decay",
                            shape: vec![*heads, *state],
                            init: Init::Zeros,
                            decays: false,
                        },
                        skip(),
                    ],
                    ScanKind::Ssd => vec![vector("decay", *heads, Init::Zeros), skip()],
                    ScanKind::Delta => vec![vector("decay", *heads, Init::Zeros)],
                }
            }
            Op::Rope { .. }
            | Op::LatentAttention { .. }
            | Op::Index { .. }
            | Op::Activation { .. }
            | Op::Gate { .. }
            | Op::Scale { .. }
            | Op::Spread { .. }
            | Op::Route { .. }
            | Op::Dispatch { .. }
            | Op::Combine { .. }
            | Op::Input { .. }
            | Op::Dropout { .. }
            | Op::Add { .. }
            | Op::CrossEntropy { .. } => vec![],
        }
    }

    /// `(experts, top_k)` where the op's parameters are one set per expert, of which a token uses `top_k`.
    pub fn routed(&self) -> Option<(u64, u64)> {
        match self {
            Op::ExpertLinear { experts, top_k, .. } | Op::ExpertBias { experts, top_k, .. } => {
                Some((*experts, *top_k))
            }
            Op::Embedding { .. }
            | Op::Linear { .. }
            | Op::Bias { .. }
            | Op::Norm { .. }
            | Op::Rope { .. }
            | Op::Attention { .. }
            | Op::LatentAttention { .. }
            | Op::Index { .. }
            | Op::Activation { .. }
            | Op::Gate { .. }
            | Op::Scale { .. }
            | Op::Spread { .. }
            | Op::Gain { .. }
            | Op::Route { .. }
            | Op::Dispatch { .. }
            | Op::Combine { .. }
            | Op::Conv { .. }
            | Op::Scan { .. }
            | Op::Input { .. }
            | Op::Dropout { .. }
            | Op::Add { .. }
            | Op::CrossEntropy { .. } => None,
        }
    }

    /// What the op drops at random, if anything.
    pub fn dropout(&self) -> Option<Dropout> {
        match self {
            Op::Attention { dropout, .. } => *dropout,
            Op::Dropout { dropout, .. } => Some(*dropout),
            Op::Embedding { .. }
            | Op::Linear { .. }
            | Op::Bias { .. }
            | Op::Norm { .. }
            | Op::Rope { .. }
            | Op::LatentAttention { .. }
            | Op::Index { .. }
            | Op::Activation { .. }
            | Op::Gate { .. }
            | Op::Scale { .. }
            | Op::Spread { .. }
            | Op::Gain { .. }
            | Op::Route { .. }
            | Op::Dispatch { .. }
            | Op::ExpertLinear { .. }
            | Op::ExpertBias { .. }
            | Op::Combine { .. }
            | Op::Conv { .. }
            | Op::Scan { .. }
            | Op::Input { .. }
            | Op::Add { .. }
            | Op::CrossEntropy { .. } => None,
        }
    }
}
