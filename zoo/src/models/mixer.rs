//! What mixes tokens in a layer, as facts and as graphs: attention in its variants, latent attention, recurrences.

use super::block::{Block, Projection};
use meshwright_ir::{AttentionCore, Dropout, InputKind, NormKind, Op, Real, ScoreBias, Scores, Value};

/// One of the mixers.
#[derive(Clone, PartialEq)]
pub(crate) enum Mixer {
    Attention(Attention),
    Latent(super::latent::Latent),
    Recurrence(super::recurrence::Recurrence),
    /// A matrix in place of attention.
    Linear,
}

impl Mixer {
    /// What a layer with it is called beside the model's first kind.
    pub(crate) fn word(&self, first: Option<&Mixer>) -> &'static str {
        match (self, first) {
            (Mixer::Attention(a), _) if a.memory.is_some() => "cross",
            (Mixer::Attention(a), Some(Mixer::Attention(f))) => match (a.window, f.window) {
                (Some(_), w) if w != a.window => "window",
                (None, Some(_)) => "global",
                _ => "attention",
            },
            (Mixer::Attention(_), _) => "attention",
            (Mixer::Latent(_), _) => "latent",
            (Mixer::Recurrence(_), _) => "recurrence",
            (Mixer::Linear, _) => "linear",
        }
    }
    /// Its graph on `x`, from the model's width to the model's width.
    pub(crate) fn build(&self, b: &mut Block, x: Value, hidden: u64) -> Value {
        match self {
            Mixer::Attention(a) => a.build(b, x, hidden, ""),
            Mixer::Latent(l) => l.build(b, x, hidden),
            Mixer::Recurrence(r) => r.build(b, x, hidden),
            Mixer::Linear => b.project("linear", x, Projection::new(hidden, hidden)),
        }
    }
}

/// Rotary positions.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct Rotary {
    pub(crate) theta: f64,
    /// Leading features of a head that turn; all of them if none.
    pub(crate) turned: Option<u64>,
}

/// What normalises queries and keys.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum QkNorm {
    /// One scale for all heads.
    Shared(NormKind),
    /// A scale for each head.
    Own(NormKind),
    /// All heads together.
    Whole(NormKind),
    /// Root mean square without scale, after positions (Llama 4).
    AfterPositions,
}

/// Attention and the projections round it.
#[derive(Clone, PartialEq)]
pub(crate) struct Attention {
    pub(crate) heads: u64,
    pub(crate) kv_heads: u64,
    pub(crate) head_dim: u64,
    pub(crate) causal: bool,
    pub(crate) window: Option<u64>,
    /// Biases of q, k, v and the output.
    pub(crate) bias: [bool; 4],
    pub(crate) qk_norm: Option<QkNorm>,
    /// Values normalised per head, without scale.
    pub(crate) v_norm: bool,
    /// Values are the keys before their norm: no matrix of their own.
    pub(crate) v_is_k: bool,
    pub(crate) eps: Real,
    pub(crate) rotary: Option<Rotary>,
    /// Multiplies the scores instead of 1/√d.
    pub(crate) scale: Option<f64>,
    pub(crate) scores: Scores,
    /// What is kept of the scores, and what is dropped of the softmax and of the output.
    pub(crate) core: AttentionCore,
    pub(crate) dropout: Option<Dropout>,
    pub(crate) out_dropout: Option<Dropout>,
    /// Set in all but the first layer of a stack that shares one table of distances: `(class, node)`.
    pub(crate) scores_tied: Option<(&'static str, &'static str)>,
    /// Output gated by a projection of the input.
    pub(crate) gated: bool,
    /// A norm of the heads' outputs before the projection.
    pub(crate) inner_norm: Option<NormKind>,
    /// Keys and values come from what a tower hands in, this wide.
    pub(crate) memory: Option<u64>,
    /// Standard deviation of the output matrix, where it is not the model's.
    pub(crate) out_std: Option<f64>,
}

impl Attention {
    /// Causal, unbiased, without positions.
    pub(crate) fn new(heads: u64, kv_heads: u64, head_dim: u64) -> Self {
        Self {
            heads,
            kv_heads,
            head_dim,
            causal: true,
            window: None,
            bias: [false; 4],
            qk_norm: None,
            v_norm: false,
            v_is_k: false,
            eps: Real(1e-6),
            rotary: None,
            scale: None,
            scores: Scores::default(),
            core: AttentionCore::Fused,
            dropout: None,
            out_dropout: None,
            scores_tied: None,
            gated: false,
            inner_norm: None,
            memory: None,
            out_std: None,
        }
    }

    /// The graph; nodes are called after `prefix`.
    pub(crate) fn build(&self, b: &mut Block, x: Value, h: u64, prefix: &str) -> Value {
        let named = |what: &str| format!("{prefix}{what}");
        let d = self.head_dim;
        let (q_width, kv_width) = (self.heads * d, self.kv_heads * d);
        let per_head =
            |input, output, bias| Projection { output_grain: d, bias, ..Projection::new(input, output) };
        let q = b.project(&named("q"), x, per_head(h, q_width, self.bias[0]));
        let (from, width) = match self.memory {
            Some(width) => (b.add(&named("memory"), Op::Input { width, kind: InputKind::Memory }, []), width),
            None => (x, h),
        };
        let k = b.project(&named("k"), from, per_head(width, kv_width, self.bias[1]));
        let v = match self.v_is_k {
            true => k,
            false => b.project(&named("v"), from, per_head(width, kv_width, self.bias[2])),
        };
        let q = self.placed(b, &named("q"), q, self.heads);
        let k = self.placed(b, &named("k"), k, self.kv_heads);
        let v = match self.v_norm {
            true => b.add(&named("v.norm"), self.head_norm(NormKind::RmsPlain, self.kv_heads), [v]),
            false => v,
        };
        let q = match self.scale.map(|s| s * (d as f64).sqrt()) {
            Some(factor) if (factor - 1.0).abs() > 1e-12 => b.scale(&named("q.scale"), q, q_width, factor),
            _ => q,
        };
        let core = Op::Attention {
            heads: self.heads,
            kv_heads: self.kv_heads,
            head_dim: d,
            causal: self.causal,
            window: self.window,
            scores: self.scores,
            core: self.core,
            dropout: self.dropout,
        };
        let mut y = b.add(&named("attn"), core, [q, k, v]);
        if let Some((class, node)) = self.scores_tied {
            b.tie_last(class, node);
        }
        if let Some(kind) = self.inner_norm {
            y = b.add(&named("attn.norm"), super::decoder::norm(kind, q_width, self.eps), [y]);
        }
        if self.gated {
            let gate = b.project(&named("attn.gate"), x, per_head(h, q_width, self.bias[0]));
            let kind = meshwright_ir::ActivationKind::Sigmoid;
            y = b.add(&named("attn.gated"), Op::Gate { kind, width: q_width }, [gate, y]);
        }
        let out = Projection {
            input_grain: d,
            bias: self.bias[3],
            std: self.out_std,
            ..Projection::new(q_width, h)
        };
        let y = b.project(&named("proj"), y, out);
        b.drop(&named("proj"), y, h, self.out_dropout)
    }

    fn head_norm(&self, kind: NormKind, heads: u64) -> Op {
        Op::Norm { kind, width: self.head_dim, groups: heads, eps: self.eps }
    }

    /// Queries or keys, normalised and turned to their positions.
    fn placed(&self, b: &mut Block, name: &str, x: Value, heads: u64) -> Value {
        let (d, width) = (self.head_dim, heads * self.head_dim);
        let called = |what: &str| format!("{name}.{what}");
        let mut x = match self.qk_norm {
            None | Some(QkNorm::AfterPositions) => x,
            Some(QkNorm::Shared(kind)) => b.add(&called("norm"), self.head_norm(kind, heads), [x]),
            Some(QkNorm::Whole(kind)) => {
                b.add(&called("norm"), super::decoder::norm(kind, width, self.eps), [x])
            }
            Some(QkNorm::Own(kind)) => {
                let (plain, shift) = match kind {
                    NormKind::Layer => (NormKind::LayerPlain, true),
                    NormKind::LayerScale | NormKind::LayerPlain => (NormKind::LayerPlain, false),
                    NormKind::Rms | NormKind::RmsPlain => (NormKind::RmsPlain, false),
                };
                let x = b.add(&called("norm"), self.head_norm(plain, heads), [x]);
                let x = b.add(&called("gain"), Op::Gain { width, grain: d }, [x]);
                match shift {
                    true => b.add(&called("shift"), Op::Bias { width, grain: d }, [x]),
                    false => x,
                }
            }
        };
        if let Some(Rotary { theta, turned }) = self.rotary {
            let turned = turned.filter(|t| *t != d);
            x = b.add(&called("rope"), Op::Rope { heads, head_dim: d, theta: Real(theta), turned }, [x]);
        }
        match self.qk_norm {
            Some(QkNorm::AfterPositions) => {
                b.add(&called("norm"), self.head_norm(NormKind::RmsPlain, heads), [x])
            }
            _ => x,
        }
    }
}

/// Scores with a slope per head.
pub(crate) fn alibi() -> Scores {
    Scores { bias: ScoreBias::Alibi, ..Scores::default() }
}
