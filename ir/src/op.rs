//! The ops a model is made of: what they are and which parameters they own, never how they are sharded or how long they
//! take. Widths are those of the whole tensor; batch and sequence belong to the job. No match over `Op` has a wildcard arm.

use crate::Invalid;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Largest dim or width that is believed; products of two of them are formed in 128 bits.
const LARGEST_DIM: u64 = 1 << 32;

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
    }
);
named_enum!(
    /// Which normalisation.
    NormKind {
        /// Mean and variance, scale and shift (Ba et al. 2016).
        Layer = "layer",
        /// Root mean square, scale only (Zhang and Sennrich 2019).
        Rms = "rms",
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
        /// What is kept of the scores.
        #[serde(default, skip_serializing_if = "is_fused")]
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

fn is_fused(core: &AttentionCore) -> bool {
    *core == AttentionCore::Fused
}

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
    /// Fused attention without dropout.
    pub fn attention(heads: u64, kv_heads: u64, head_dim: u64, causal: bool, window: Option<u64>) -> Self {
        let core = AttentionCore::Fused;
        Op::Attention { heads, kv_heads, head_dim, causal, window, core, dropout: None }
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
            | Op::Activation { .. }
            | Op::Gate { .. }
            | Op::Add { .. }
            | Op::CrossEntropy { .. } => None,
        }
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
            Op::Dropout { .. } => "dropout",
            Op::Activation { .. } => "activation",
            Op::Gate { .. } => "gate",
            Op::Add { .. } => "add",
            Op::CrossEntropy { .. } => "cross-entropy",
        }
    }

    /// Names of the op's indices, in the order that strategies and kernel extents use: b batch, s sequence, i/o input and
    /// output features, v vocabulary or table rows, e features, h groups of heads that share a key head.
    pub fn indices(&self) -> &'static [&'static str] {
        match self {
            Op::Embedding { .. } => &["b", "s", "v", "e"],
            Op::Linear { .. } => &["b", "s", "i", "o"],
            Op::Bias { .. }
            | Op::Norm { .. }
            | Op::Rope { .. }
            | Op::Activation { .. }
            | Op::Gate { .. }
            | Op::Dropout { .. }
            | Op::Add { .. } => &["b", "s", "e"],
            Op::Attention { .. } => &["b", "s", "h"],
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
            Op::Rope { heads, head_dim, .. } => vec![
                ("heads", *heads),
                ("head_dim", *head_dim),
                ("heads x head_dim", heads.saturating_mul(*head_dim)),
            ],
            Op::Attention { heads, kv_heads, head_dim, window, .. } => vec![
                ("heads", *heads),
                ("kv_heads", *kv_heads),
                ("head_dim", *head_dim),
                ("window", window.unwrap_or(1)),
                ("heads x head_dim", heads.saturating_mul(*head_dim)),
                ("kv_heads x head_dim", kv_heads.saturating_mul(*head_dim)),
            ],
            Op::Activation { width, .. }
            | Op::Gate { width, .. }
            | Op::Dropout { width, .. }
            | Op::Add { width } => vec![("width", *width)],
            Op::CrossEntropy { vocab } => vec![("vocab", *vocab)],
        }
    }

    /// Real numbers by the name of their field: all must be finite and above 0.
    fn reals(&self) -> Option<(&'static str, f64)> {
        match self {
            Op::Norm { eps, .. } => Some(("eps", eps.0)),
            Op::Rope { theta, .. } => Some(("theta", theta.0)),
            Op::Attention { .. } | Op::Dropout { .. } => self.dropout().map(|d| ("rate", d.rate.0)),
            Op::Embedding { .. }
            | Op::Linear { .. }
            | Op::Bias { .. }
            | Op::Activation { .. }
            | Op::Gate { .. }
            | Op::Add { .. }
            | Op::CrossEntropy { .. } => None,
        }
    }

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
            Op::Norm { kind: NormKind::Rms, width, .. } => vec![vector("gamma", *width, Init::Ones)],
            Op::Rope { .. }
            | Op::Attention { .. }
            | Op::Dropout { .. }
            | Op::Activation { .. }
            | Op::Gate { .. }
            | Op::Add { .. }
            | Op::CrossEntropy { .. } => vec![],
        }
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
            Op::Embedding { .. } => 0,
            Op::Linear { .. }
            | Op::Bias { .. }
            | Op::Norm { .. }
            | Op::Rope { .. }
            | Op::Activation { .. }
            | Op::Dropout { .. }
            | Op::CrossEntropy { .. } => 1,
            Op::Gate { .. } | Op::Add { .. } => 2,
            Op::Attention { .. } => 3,
        }
    }

    /// Features of the op's output per token; 0 when it is a scalar loss.
    pub fn output_width(&self) -> u64 {
        match self {
            Op::Embedding { width, .. }
            | Op::Bias { width, .. }
            | Op::Activation { width, .. }
            | Op::Gate { width, .. }
            | Op::Dropout { width, .. }
            | Op::Add { width } => *width,
            Op::Linear { output, .. } => *output,
            Op::Norm { width, groups, .. } => width * groups,
            Op::Rope { heads, head_dim, .. } | Op::Attention { heads, head_dim, .. } => heads * head_dim,
            Op::CrossEntropy { .. } => 0,
        }
    }

    /// Features the op wants of input `k`.
    pub fn input_width(&self, k: usize) -> u64 {
        match self {
            Op::Embedding { .. } => 0,
            Op::Linear { input, .. } => *input,
            Op::Attention { kv_heads, head_dim, .. } if k > 0 => kv_heads * head_dim,
            Op::CrossEntropy { vocab } => *vocab,
            Op::Attention { .. }
            | Op::Bias { .. }
            | Op::Norm { .. }
            | Op::Rope { .. }
            | Op::Dropout { .. }
            | Op::Activation { .. }
            | Op::Gate { .. }
            | Op::Add { .. } => self.output_width(),
        }
    }
}

impl fmt::Display for Op {
    /// `linear[input=64 output=256 input_grain=1 output_grain=16]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[", self.name())?;
        match self {
            Op::Embedding { rows, width, index } => write!(f, "rows={rows} width={width} index={index}")?,
            Op::Linear { input, output, input_grain, output_grain } => write!(
                f,
                "input={input} output={output} input_grain={input_grain} output_grain={output_grain}"
            )?,
            Op::Bias { width, grain } => write!(f, "width={width} grain={grain}")?,
            Op::Norm { kind, width, groups, eps } => {
                write!(f, "kind={kind} width={width} groups={groups} eps={eps}")?
            }
            Op::Rope { heads, head_dim, theta } => {
                write!(f, "heads={heads} head_dim={head_dim} theta={theta}")?
            }
            Op::Attention { heads, kv_heads, head_dim, causal, window, core, dropout } => {
                write!(
                    f,
                    "heads={heads} kv_heads={kv_heads} head_dim={head_dim} causal={causal} window={}",
                    window.unwrap_or(0)
                )?;
                if !is_fused(core) {
                    write!(f, " core={core}")?;
                }
                if let Some(Dropout { rate, site }) = dropout {
                    write!(f, " rate={rate} site={site}")?;
                }
            }
            Op::Dropout { width, dropout: Dropout { rate, site } } => {
                write!(f, "width={width} rate={rate} site={site}")?
            }
            Op::Activation { kind, width } | Op::Gate { kind, width } => {
                write!(f, "kind={kind} width={width}")?
            }
            Op::Add { width } => write!(f, "width={width}")?,
            Op::CrossEntropy { vocab } => write!(f, "vocab={vocab}")?,
        }
        f.write_str("]")
    }
}

impl FromStr for Op {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        let (name, rest) =
            s.strip_suffix(']').and_then(|r| r.split_once('[')).ok_or_else(|| format!("`{s}` is no op"))?;
        let pairs: Vec<(&str, &str)> = rest.split_whitespace().filter_map(|w| w.split_once('=')).collect();
        let text = |key: &str| {
            pairs.iter().find(|p| p.0 == key).map(|p| p.1).ok_or_else(|| format!("op {name} lacks `{key}`"))
        };
        let number = |key: &str| -> Result<u64, String> {
            text(key)?.parse().map_err(|_| format!("op {name}: `{key}` is no number"))
        };
        let real = |key: &str| -> Result<Real, String> {
            let x: f64 = text(key)?.parse().map_err(|_| format!("op {name}: `{key}` is no number"))?;
            if x.is_finite() { Ok(Real(x)) } else { Err(format!("op {name}: `{key}` is not finite")) }
        };
        let given = |key: &str| pairs.iter().any(|p| p.0 == key);
        let dropout = || -> Result<Dropout, String> {
            let site = text("site")?.parse().map_err(|_| format!("op {name}: `site` is no number"))?;
            Ok(Dropout { rate: real("rate")?, site })
        };
        Ok(match name {
            "embedding" => Op::Embedding {
                rows: number("rows")?,
                width: number("width")?,
                index: text("index")?.parse()?,
            },
            "linear" => Op::Linear {
                input: number("input")?,
                output: number("output")?,
                input_grain: number("input_grain")?,
                output_grain: number("output_grain")?,
            },
            "bias" => Op::Bias { width: number("width")?, grain: number("grain")? },
            "norm" => Op::Norm {
                kind: text("kind")?.parse()?,
                width: number("width")?,
                groups: number("groups")?,
                eps: real("eps")?,
            },
            "rope" => {
                Op::Rope { heads: number("heads")?, head_dim: number("head_dim")?, theta: real("theta")? }
            }
            "attention" => Op::Attention {
                heads: number("heads")?,
                kv_heads: number("kv_heads")?,
                head_dim: number("head_dim")?,
                causal: text("causal")? == "true",
                window: Some(number("window")?).filter(|w| *w > 0),
                core: if given("core") { text("core")?.parse()? } else { AttentionCore::Fused },
                dropout: if given("rate") { Some(dropout()?) } else { None },
            },
            "dropout" => Op::Dropout { width: number("width")?, dropout: dropout()? },
            "activation" => Op::Activation { kind: text("kind")?.parse()?, width: number("width")? },
            "gate" => Op::Gate { kind: text("kind")?.parse()?, width: number("width")? },
            "add" => Op::Add { width: number("width")? },
            "cross-entropy" => Op::CrossEntropy { vocab: number("vocab")? },
            _ => return Err(format!("`{name}` is no op")),
        })
    }
}
