//! The ops a model is made of: what they are and which parameters they own, never how they are sharded or how long they
//! take. Widths are those of the whole tensor; batch and sequence belong to the job. No match over `Op` has a wildcard arm.

use crate::Invalid;
use serde::{Deserialize, Serialize};

mod kind;
mod params;
mod text;

pub use kind::{
    ActivationKind, AttentionCore, Dropout, IdSource, InputKind, NormKind, Real, RouteKind, ScanKind,
    ScoreBias, Scores,
};
pub use params::{Init, ParamSpec};

/// Largest dim or width that is believed; products of two of them are formed in 128 bits.
const LARGEST_DIM: u64 = 1 << 32;

/// One op. Activations are `[batch, sequence, width]` row-major unless said otherwise.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "op")]
pub enum Op {
    /// Row lookup: ids `[b,s]` · table `[rows,width]` → `[b,s,width]`.
    Embedding {
        /// Rows of the table (vocabulary, or positions).
        rows: u64,
        /// Width of a row.
        width: u64,
        /// What indexes it.
        index: IdSource,
    },
    /// `y[b,s,o] = x[b,s,i] · w[o,i]`. No bias: a row-parallel bias belongs after the reduction, so it is an op of its own.
    Linear {
        /// Input features.
        input: u64,
        /// Output features.
        output: u64,
        /// Input features that must stay together (a head).
        input_grain: u64,
        /// Output features that must stay together.
        output_grain: u64,
    },
    /// `y = x + b[width]`.
    Bias {
        /// Features.
        width: u64,
        /// Features that must stay together.
        grain: u64,
    },
    /// Normalisation of each group of `width` features; `groups` groups share one gamma (q/k norm per head).
    Norm {
        /// Which one.
        kind: NormKind,
        /// Features in one group.
        width: u64,
        /// Groups per token.
        groups: u64,
        /// Added to the variance.
        eps: Real,
    },
    /// Rotary position embedding on each head, half-split convention (Su et al. 2021; Hugging Face Llama).
    Rope {
        /// Heads.
        heads: u64,
        /// Features per head.
        head_dim: u64,
        /// Base of the frequencies.
        theta: Real,
        /// Leading features of each head that turn; all of them unless said otherwise.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        turned: Option<u64>,
    },
    /// Scaled dot-product attention core: q `[b,s,heads·d]`, k and v `[b,s,kv_heads·d]` → `[b,s,heads·d]`, never
    /// storing the scores (Dao et al. 2022); keeps the log-sum-exp `[b,heads,s]`.
    Attention {
        /// Query heads.
        heads: u64,
        /// Key and value heads; divides `heads`.
        kv_heads: u64,
        /// Features per head.
        head_dim: u64,
        /// Whether a token sees only itself and earlier ones.
        causal: bool,
        /// Sliding window in tokens, if any.
        window: Option<u64>,
        /// What happens to the scores beyond 1/√d.
        #[serde(default, skip_serializing_if = "Scores::is_plain")]
        scores: Scores,
        /// What is kept of the scores.
        #[serde(default, skip_serializing_if = "AttentionCore::is_fused")]
        core: AttentionCore,
        /// Dropout of the softmax's output, if any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        dropout: Option<Dropout>,
    },
    /// Elementwise dropout; keeps its mask, a byte for each element.
    Dropout {
        /// Features.
        width: u64,
        /// What is dropped.
        dropout: Dropout,
    },
    /// Multi-head latent attention core (DeepSeek-AI 2024): q `[b,s,heads·(rotary+nope)]`, keys and values
    /// `[b,s,heads·(nope+value)]`, one rotary key `[b,s,rotary]` for all heads → `[b,s,heads·value]`. With `top`, also the
    /// keys that an [`Op::Index`] chose.
    LatentAttention {
        /// Heads.
        heads: u64,
        /// Features of a head's query and key without positions.
        nope: u64,
        /// Features of a head's query, and of the shared key, that turn.
        rotary: u64,
        /// Features of a head's value.
        value: u64,
        /// Keys that a query attends to, where an indexer chooses them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        top: Option<u64>,
    },
    /// Elementwise function.
    Activation {
        /// Which one.
        kind: ActivationKind,
        /// Features.
        width: u64,
    },
    /// `y = f(gate) · up` (Shazeer 2020).
    Gate {
        /// Which function gates.
        kind: ActivationKind,
        /// Features.
        width: u64,
    },
    /// Chooses the `top` keys that each query attends to (DeepSeek-V3.2): q `[b,s,heads·head_dim]`, one key `[b,s,head_dim]`
    /// and a weight per head `[b,s,heads]` → the choice `[b,s,top]`. Its own loss, against what attention sees, trains it.
    Index {
        /// Heads of its own.
        heads: u64,
        /// Features per head.
        head_dim: u64,
        /// Keys chosen.
        top: u64,
    },
    /// `y = factor · x`.
    Scale {
        /// Features.
        width: u64,
        /// The factor.
        factor: Real,
    },
    /// `y = σ(gate) · x` with one gate `[b,s,1]` for all features.
    Spread {
        /// Features.
        width: u64,
    },
    /// `y = x · w[width]`, feature by feature.
    Gain {
        /// Features.
        width: u64,
        /// Features that must stay together.
        grain: u64,
    },
    /// Router of a mixture of experts: logits `[b,s,experts]` → the weights of the `top_k` chosen, zero for the others.
    Route {
        /// Experts.
        experts: u64,
        /// Experts a token visits.
        top_k: u64,
        /// From logits to weights.
        kind: RouteKind,
    },
    /// Copies each token to the experts of its route: `[b,s,width]` and routes `[b,s,experts]` → `[b,s,experts · room]`,
    /// in which an expert has room for its even share of the copies (Lepikhin et al. 2020, without dropping).
    Dispatch {
        /// Features of a token.
        width: u64,
        /// Experts.
        experts: u64,
        /// Experts a token visits.
        top_k: u64,
    },
    /// One matrix per expert on the tokens it received: `w[experts, output, input]`.
    ExpertLinear {
        /// Experts.
        experts: u64,
        /// Experts a token visits.
        top_k: u64,
        /// Input features.
        input: u64,
        /// Output features.
        output: u64,
    },
    /// One bias per expert on the tokens it received: `b[experts, width]`.
    ExpertBias {
        /// Experts.
        experts: u64,
        /// Experts a token visits.
        top_k: u64,
        /// Features.
        width: u64,
    },
    /// The inverse of [`Op::Dispatch`]: the sum over a token's experts, each times its weight.
    Combine {
        /// Features of a token.
        width: u64,
        /// Experts.
        experts: u64,
        /// Experts a token visits.
        top_k: u64,
    },
    /// Causal convolution along the sequence, each feature for itself: `w[width, kernel]`.
    Conv {
        /// Features.
        width: u64,
        /// Taps.
        kernel: u64,
    },
    /// Recurrence along the sequence. Selective and SSD read x `[heads·head_dim]`, steps `[heads]`, and B and C
    /// `[groups·state]`; the delta rule reads q and k `[groups·state]`, v `[heads·head_dim]`, and beta and decay `[heads]`.
    Scan {
        /// Which one.
        kind: ScanKind,
        /// Heads (channels, where `head_dim` is 1).
        heads: u64,
        /// Features per head.
        head_dim: u64,
        /// Size of the state behind each feature.
        state: u64,
        /// Groups of heads that share what reads and writes the state; divides `heads`.
        groups: u64,
    },
    /// What comes from beside the chain: `[b,s,width]`.
    Input {
        /// Features.
        width: u64,
        /// Where from.
        kind: InputKind,
    },
    /// Residual addition of two tensors.
    Add {
        /// Features.
        width: u64,
    },
    /// Mean over the global batch of −log softmax(logits)\[target\], vocabulary-parallel capable.
    CrossEntropy {
        /// Vocabulary.
        vocab: u64,
    },
}

impl Op {
    /// Fused attention without dropout.
    pub fn attention(heads: u64, kv_heads: u64, head_dim: u64, causal: bool, window: Option<u64>) -> Self {
        let (scores, core) = (Scores::default(), AttentionCore::Fused);
        Op::Attention { heads, kv_heads, head_dim, causal, window, scores, core, dropout: None }
    }

    /// The op's name.
    pub fn name(&self) -> &'static str {
        match self {
            Op::Embedding { .. } => "embedding",
            Op::Linear { .. } => "linear",
            Op::Bias { .. } => "bias",
            Op::Norm { .. } => "norm",
            Op::Rope { .. } => "rope",
            Op::Attention { .. } => "attention",
            Op::Activation { .. } => "activation",
            Op::Gate { .. } => "gate",
            Op::LatentAttention { .. } => "latent-attention",
            Op::Index { .. } => "index",
            Op::Scale { .. } => "scale",
            Op::Spread { .. } => "spread",
            Op::Gain { .. } => "gain",
            Op::Route { .. } => "route",
            Op::Dispatch { .. } => "dispatch",
            Op::ExpertLinear { .. } => "expert-linear",
            Op::ExpertBias { .. } => "expert-bias",
            Op::Combine { .. } => "combine",
            Op::Conv { .. } => "conv",
            Op::Scan { .. } => "scan",
            Op::Input { .. } => "input",
            Op::Dropout { .. } => "dropout",
            Op::Add { .. } => "add",
            Op::CrossEntropy { .. } => "cross-entropy",
        }
    }

    /// Names of the op's indices, in the order that strategies and kernel extents use: b batch, s sequence, i/o input and
    /// output features, v vocabulary or table rows, e features, h (groups of) heads, x experts.
    pub fn indices(&self) -> &'static [&'static str] {
        match self {
            Op::Embedding { .. } => &["b", "s", "v", "e"],
            Op::Linear { .. } => &["b", "s", "i", "o"],
            Op::Bias { .. }
            | Op::Norm { .. }
            | Op::Rope { .. }
            | Op::Activation { .. }
            | Op::Gate { .. }
            | Op::Scale { .. }
            | Op::Spread { .. }
            | Op::Gain { .. }
            | Op::Route { .. }
            | Op::Conv { .. }
            | Op::Input { .. }
            | Op::Dropout { .. }
            | Op::Add { .. } => &["b", "s", "e"],
            Op::Attention { .. } | Op::LatentAttention { .. } | Op::Index { .. } | Op::Scan { .. } => {
                &["b", "s", "h"]
            }
            Op::Dispatch { .. } | Op::ExpertLinear { .. } | Op::ExpertBias { .. } | Op::Combine { .. } => {
                &["b", "s", "x"]
            }
            Op::CrossEntropy { .. } => &["b", "s", "v"],
        }
    }

    /// Sizes by the name of their field, those of whole heads included: what must be at least 1 and not absurd.
    fn dims(&self) -> Vec<(&'static str, u64)> {
        match self {
            Op::Embedding { rows, width, .. } => vec![("rows", *rows), ("width", *width)],
            Op::Linear { input, output, input_grain, output_grain } => vec![
                ("input", *input),
                ("output", *output),
                ("input_grain", *input_grain),
                ("output_grain", *output_grain),
            ],
            Op::Bias { width, grain } => vec![("width", *width), ("grain", *grain)],
            Op::Norm { width, groups, .. } => {
                vec![
                    ("width", *width),
                    ("groups", *groups),
                    ("width x groups", width.saturating_mul(*groups)),
                ]
            }
            Op::Rope { heads, head_dim, turned, .. } => vec![
                ("heads", *heads),
                ("head_dim", *head_dim),
                ("turned", turned.unwrap_or(1)),
                ("heads x head_dim", heads.saturating_mul(*head_dim)),
            ],
            Op::Attention { heads, kv_heads, head_dim, window, scores, .. } => vec![
                (
                    "buckets",
                    match scores.bias {
                        ScoreBias::Relative { buckets } => buckets,
                        ScoreBias::None | ScoreBias::Alibi | ScoreBias::Sinks => 1,
                    },
                ),
                ("heads", *heads),
                ("kv_heads", *kv_heads),
                ("head_dim", *head_dim),
                ("window", window.unwrap_or(1)),
                ("heads x head_dim", heads.saturating_mul(*head_dim)),
                ("kv_heads x head_dim", kv_heads.saturating_mul(*head_dim)),
            ],
            Op::LatentAttention { heads, nope, rotary, value, top } => vec![
                ("heads", *heads),
                ("nope", *nope),
                ("rotary", *rotary),
                ("value", *value),
                ("top", top.unwrap_or(1)),
                ("heads x query", heads.saturating_mul(nope.saturating_add(*rotary))),
                ("heads x key and value", heads.saturating_mul(nope.saturating_add(*value))),
            ],
            Op::Activation { width, .. }
            | Op::Gate { width, .. }
            | Op::Scale { width, .. }
            | Op::Spread { width }
            | Op::Input { width, .. }
            | Op::Dropout { width, .. }
            | Op::Add { width } => vec![("width", *width)],
            Op::Index { heads, head_dim, top } => vec![
                ("heads", *heads),
                ("head_dim", *head_dim),
                ("top", *top),
                ("heads x head_dim", heads.saturating_mul(*head_dim)),
            ],
            Op::Gain { width, grain } => vec![("width", *width), ("grain", *grain)],
            Op::Conv { width, kernel } => vec![("width", *width), ("kernel", *kernel)],
            Op::Route { experts, top_k, .. } => vec![("experts", *experts), ("top_k", *top_k)],
            Op::Dispatch { width, experts, top_k }
            | Op::Combine { width, experts, top_k }
            | Op::ExpertBias { experts, top_k, width } => {
                [routed_dims(*experts, *top_k, *width), vec![("width", *width)]].concat()
            }
            Op::ExpertLinear { experts, top_k, input, output } => [
                routed_dims(*experts, *top_k, *input),
                routed_dims(*experts, *top_k, *output),
                vec![
                    ("input", *input),
                    ("output", *output),
                    ("experts x output", experts.saturating_mul(*output)),
                ],
            ]
            .concat(),
            Op::Scan { heads, head_dim, state, groups, .. } => vec![
                ("heads", *heads),
                ("head_dim", *head_dim),
                ("state", *state),
                ("groups", *groups),
                ("heads x head_dim", heads.saturating_mul(*head_dim)),
                ("groups x state", groups.saturating_mul(*state)),
                ("heads x state", heads.saturating_mul(*state)),
            ],
            Op::CrossEntropy { vocab } => vec![("vocab", *vocab)],
        }
    }

    /// Real numbers by the name of their field: all must be finite and above 0.
    fn reals(&self) -> Vec<(&'static str, f64)> {
        let rate = self.dropout().map(|d| ("rate", d.rate.0));
        let own = match self {
            Op::Norm { eps, .. } => Some(("eps", eps.0)),
            Op::Rope { theta, .. } => Some(("theta", theta.0)),
            Op::Scale { factor, .. } => Some(("factor", factor.0)),
            Op::Attention { scores, .. } => scores.softcap.map(|c| ("softcap", c.0)),
            Op::Embedding { .. }
            | Op::Linear { .. }
            | Op::Bias { .. }
            | Op::LatentAttention { .. }
            | Op::Index { .. }
            | Op::Spread { .. }
            | Op::Activation { .. }
            | Op::Gate { .. }
            | Op::Gain { .. }
            | Op::Route { .. }
            | Op::Dispatch { .. }
            | Op::ExpertLinear { .. }
            | Op::ExpertBias { .. }
            | Op::Combine { .. }
            | Op::Conv { .. }
            | Op::Scan { .. }
            | Op::Input { .. }
            | Op::Dropout { .. }
            | Op::Add { .. }
            | Op::CrossEntropy { .. } => None,
        };
        own.into_iter().chain(rate).collect()
    }

    /// Sizes of which no count overflows: dims and widths from 1 to 2^32, and reals above 0.
    pub(crate) fn check_sizes(&self) -> Result<(), Invalid> {
        if let Some((key, n)) = self.dims().into_iter().find(|(_, n)| !(1..=LARGEST_DIM).contains(n)) {
            return Err(Invalid::new(key, n.to_string(), "write a whole number from 1 to 4,294,967,296"));
        }
        if let Some(d) = self.dropout().filter(|d| d.rate.0 >= 1.0) {
            return Err(Invalid::new("rate", d.rate.to_string(), "write a number above 0 and under 1"));
        }
        match self.reals().into_iter().find(|(_, x)| !(x.is_finite() && *x > 0.0)) {
            Some((key, x)) => Err(Invalid::new(key, x.to_string(), "write a finite number above 0")),
            None => Ok(()),
        }
    }

    /// How many tensors the op reads from other nodes.
    pub fn arity(&self) -> usize {
        match self {
            Op::Embedding { .. } | Op::Input { .. } => 0,
            Op::Linear { .. }
            | Op::Bias { .. }
            | Op::Norm { .. }
            | Op::Rope { .. }
            | Op::Activation { .. }
            | Op::Scale { .. }
            | Op::Gain { .. }
            | Op::Route { .. }
            | Op::ExpertLinear { .. }
            | Op::ExpertBias { .. }
            | Op::Conv { .. }
            | Op::Dropout { .. }
            | Op::CrossEntropy { .. } => 1,
            Op::Gate { .. }
            | Op::Spread { .. }
            | Op::Add { .. }
            | Op::Dispatch { .. }
            | Op::Combine { .. } => 2,
            Op::Attention { .. } | Op::LatentAttention { top: None, .. } | Op::Index { .. } => 3,
            Op::LatentAttention { top: Some(_), .. } => 4,
            Op::Scan { kind: ScanKind::Selective | ScanKind::Ssd, .. } => 4,
            Op::Scan { kind: ScanKind::Delta, .. } => 5,
        }
    }

    /// Features of the op's output per token; 0 when it is a scalar loss.
    pub fn output_width(&self) -> u64 {
        match self {
            Op::Embedding { width, .. }
            | Op::Bias { width, .. }
            | Op::Activation { width, .. }
            | Op::Gate { width, .. }
            | Op::Scale { width, .. }
            | Op::Spread { width }
            | Op::Gain { width, .. }
            | Op::Conv { width, .. }
            | Op::Input { width, .. }
            | Op::Combine { width, .. }
            | Op::Dropout { width, .. }
            | Op::Add { width } => *width,
            Op::Linear { output, .. } => *output,
            Op::Route { experts, .. } => *experts,
            Op::Dispatch { width, experts, top_k } | Op::ExpertBias { experts, top_k, width } => {
                experts * room(*experts, *top_k, *width)
            }
            Op::ExpertLinear { experts, top_k, output, .. } => experts * room(*experts, *top_k, *output),
            Op::Norm { width, groups, .. } => width * groups,
            Op::Rope { heads, head_dim, .. }
            | Op::Attention { heads, head_dim, .. }
            | Op::Scan { heads, head_dim, .. } => heads * head_dim,
            Op::LatentAttention { heads, value, .. } => heads * value,
            Op::Index { top, .. } => *top,
            Op::CrossEntropy { .. } => 0,
        }
    }

    /// Features the op wants of input `k`.
    pub fn input_width(&self, k: usize) -> u64 {
        match self {
            Op::Embedding { .. } | Op::Input { .. } => 0,
            Op::Linear { input, .. } => *input,
            Op::Spread { width } => {
                if k == 0 {
                    1
                } else {
                    *width
                }
            }
            Op::Attention { kv_heads, head_dim, .. } if k > 0 => kv_heads * head_dim,
            Op::LatentAttention { heads, nope, rotary, value, top } => match k {
                0 => heads * (nope + rotary),
                1 => heads * (nope + value),
                2 => *rotary,
                _ => top.unwrap_or(0),
            },
            Op::Index { heads, head_dim, .. } => match k {
                0 => heads * head_dim,
                1 => *head_dim,
                _ => *heads,
            },
            Op::Dispatch { width, experts, .. } => {
                if k == 0 {
                    *width
                } else {
                    *experts
                }
            }
            Op::Combine { width, experts, top_k } => match k {
                0 => experts * room(*experts, *top_k, *width),
                _ => *experts,
            },
            Op::ExpertLinear { experts, top_k, input, .. } => experts * room(*experts, *top_k, *input),
            Op::Scan { kind, heads, head_dim, state, groups } => match (kind, k) {
                (ScanKind::Selective | ScanKind::Ssd, 0) | (ScanKind::Delta, 2) => heads * head_dim,
                (ScanKind::Selective | ScanKind::Ssd, 1) => *heads,
                (ScanKind::Selective | ScanKind::Ssd, _) | (ScanKind::Delta, 0 | 1) => groups * state,
                (ScanKind::Delta, _) => *heads,
            },
            Op::CrossEntropy { vocab } => *vocab,
            Op::Attention { .. }
            | Op::Bias { .. }
            | Op::Norm { .. }
            | Op::Rope { .. }
            | Op::Activation { .. }
            | Op::Gate { .. }
            | Op::Scale { .. }
            | Op::Gain { .. }
            | Op::Route { .. }
            | Op::ExpertBias { .. }
            | Op::Conv { .. }
            | Op::Dropout { .. }
            | Op::Add { .. } => self.output_width(),
        }
    }
}

/// Features that a token keeps for each expert when `top_k` copies of `width` features spread evenly over `experts`,
/// rounded up to whole ones: what a dispatched tensor holds per token is `experts` times this.
pub fn room(experts: u64, top_k: u64, width: u64) -> u64 {
    (top_k * width).div_ceil(experts)
}

/// Sizes of a dispatched tensor, for the check that they are believable.
fn routed_dims(experts: u64, top_k: u64, width: u64) -> Vec<(&'static str, u64)> {
    let share = top_k.saturating_mul(width).div_ceil(experts.max(1));
    vec![
        ("experts", experts),
        ("top_k", top_k),
        ("top_k x width", top_k.saturating_mul(width)),
        ("dispatched width", experts.saturating_mul(share)),
    ]
}
