//! Llama (Touvron et al. 2023) and its kin: RMS norms, grouped-query attention with rotary positions, a gated MLP. What
//! sets the kin apart is one row of facts each ([`Kin`]); defaults are those of transformers' `LlamaConfig`,
//! `MistralConfig`, `Qwen2Config` and `Qwen3Config`. Rotary positions have no table, so no sequence is too long.

use super::block::{Block, Projection, head};
use super::keys::{Keys, show};
use crate::ZooError;
use meshwright_ir::{
    ActivationKind, AttentionCore, BlockClass, BlockRun, Dropout, IdSource, Model, NormKind, Op, Real, Value,
};
use serde_json::Value as Json;

/// When the family's attention is windowed.
#[derive(Clone, Copy)]
enum Windowed {
    /// Never.
    No,
    /// Wherever `sliding_window` is a number, with a class default.
    IfSet(u64),
    /// Only if `use_sliding_window` is true, and then from layer `max_window_layers` on.
    IfSwitched,
}

/// Facts of one family that its config file need not state.
struct Kin {
    family: &'static str,
    /// q, k and v have biases though no key says so.
    qkv_bias: bool,
    /// `attention_bias` and `mlp_bias` are keys of the family.
    attention_bias: bool,
    mlp_bias: bool,
    /// Queries and keys are normalised per head.
    head_norm: bool,
    windowed: Windowed,
    /// Key heads when the key is absent; none: as many as heads.
    kv_heads: Option<u64>,
    /// Features per head when the key is absent; none: hidden / heads.
    head_dim: Option<u64>,
}

const LLAMA: Kin = Kin {
    family: "llama",
    qkv_bias: false,
    attention_bias: true,
    mlp_bias: true,
    head_norm: false,
    windowed: Windowed::No,
    kv_heads: None,
    head_dim: None,
};

/// Llama 1 to 3 and models that declare themselves as such.
pub(crate) fn llama(name: &str, keys: &Keys<'_>) -> Result<Model, ZooError> {
    LLAMA.model(name, keys)
}

/// Mistral (Jiang et al. 2023): sliding-window attention in its first version.
pub(crate) fn mistral(name: &str, keys: &Keys<'_>) -> Result<Model, ZooError> {
    Kin {
        family: "mistral",
        attention_bias: false,
        mlp_bias: false,
        windowed: Windowed::IfSet(4096),
        kv_heads: Some(8),
        ..LLAMA
    }
    .model(name, keys)
}

/// Qwen2 and Qwen2.5: biases on q, k and v.
pub(crate) fn qwen2(name: &str, keys: &Keys<'_>) -> Result<Model, ZooError> {
    Kin {
        family: "qwen2",
        qkv_bias: true,
        attention_bias: false,
        mlp_bias: false,
        windowed: Windowed::IfSwitched,
        kv_heads: Some(32),
        ..LLAMA
    }
    .model(name, keys)
}

/// Qwen3: norms on each head's queries and keys.
pub(crate) fn qwen3(name: &str, keys: &Keys<'_>) -> Result<Model, ZooError> {
    Kin {
        family: "qwen3",
        mlp_bias: false,
        head_norm: true,
        windowed: Windowed::IfSwitched,
        kv_heads: Some(32),
        head_dim: Some(128),
        ..LLAMA
    }
    .model(name, keys)
}

struct Shape {
    hidden: u64,
    heads: u64,
    kv_heads: u64,
    head_dim: u64,
    inner: u64,
    gate: ActivationKind,
    qkv_bias: bool,
    proj_bias: bool,
    mlp_bias: bool,
    head_norm: bool,
    eps: Real,
    theta: Real,
    std: f64,
    core: AttentionCore,
    /// Of the softmax.
    dropout: Option<Dropout>,
}

impl Kin {
    fn model(&self, name: &str, keys: &Keys<'_>) -> Result<Model, ZooError> {
        let hidden = keys.dim(&["hidden_size", "n_embd", "d_model"])?;
        let layers = keys.layers(&["num_hidden_layers", "num_layers", "n_layer"])?;
        let vocab = keys.dim(&["vocab_size"])?;
        let (heads, kv_heads, head_dim) = self.heads(keys, hidden)?;
        let attention_bias = self.attention_bias && keys.flag_or("attention_bias", false)?;
        let shape = Shape {
            hidden,
            heads,
            kv_heads,
            head_dim,
            inner: keys.dim(&["intermediate_size"])?,
            gate: keys.activation("hidden_act", "silu")?,
            qkv_bias: self.qkv_bias || attention_bias,
            proj_bias: attention_bias,
            mlp_bias: self.mlp_bias && keys.flag_or("mlp_bias", false)?,
            head_norm: self.head_norm,
            eps: Real(keys.positive_or("rms_norm_eps", 1e-6)?),
            theta: Real(theta(keys)?),
            std: keys.positive_or("initializer_range", 0.02)?,
            core: keys.attention_core()?,
            dropout: keys.dropout("attention_dropout", 0)?,
        };
        let tied = keys.flag_or("tie_word_embeddings", false)?;
        let windows = self.windows(keys, layers)?;
        let (layer_classes, layer_runs) = shape.layers(&windows);
        let classes = [
            vec![shape.embed(vocab)],
            layer_classes,
            vec![head(shape.norm(), hidden, vocab, tied, shape.std)],
        ];
        let last = classes[1].len() as u32 + 1;
        let ends = [BlockRun { class: 0, repeat: 1 }, BlockRun { class: last, repeat: 1 }];
        Ok(Model {
            name: name.to_string(),
            family: self.family.to_string(),
            hidden,
            vocab,
            max_sequence: None,
            classes: classes.concat(),
            runs: [&ends[..1], &layer_runs, &ends[1..]].concat(),
            assumed: keys.assumed(),
        })
    }

    /// Heads, key heads and features per head.
    fn heads(&self, keys: &Keys<'_>, hidden: u64) -> Result<(u64, u64, u64), ZooError> {
        let heads = keys.dim(&["num_attention_heads", "n_head"])?;
        let kv_heads = match (keys.optional_dim(&["num_key_value_heads"])?, self.kv_heads) {
            (Some(n), _) => n,
            (None, Some(default)) if !keys.is_null("num_key_value_heads") => {
                keys.dim_or(&["num_key_value_heads"], default)?
            }
            (None, _) => keys.dim_or(&["num_key_value_heads"], heads)?,
        };
        if heads % kv_heads != 0 {
            let fix = format!("write a divisor of num_attention_heads ({heads})");
            return Err(keys.error("num_key_value_heads", kv_heads.to_string(), fix));
        }
        let head_dim = match (keys.optional_dim(&["head_dim"])?, self.head_dim) {
            (Some(n), _) => n,
            (None, Some(default)) if !keys.is_null("head_dim") => keys.dim_or(&["head_dim"], default)?,
            (None, _) if hidden.is_multiple_of(heads) => hidden / heads,
            (None, _) => {
                let fix = format!("make hidden_size ({hidden}) a multiple of it, or write head_dim");
                return Err(keys.error("num_attention_heads", heads.to_string(), fix));
            }
        };
        if head_dim % 2 != 0 {
            let fix = "make it even: rotary positions turn features in pairs";
            return Err(keys.error("head_dim", head_dim.to_string(), fix));
        }
        if heads.checked_mul(head_dim).is_none_or(|w| w > 1 << 32) {
            let fix = "lower one of the two: their product is the width of the queries";
            return Err(keys.error("num_attention_heads", format!("{heads} of {head_dim} features"), fix));
        }
        Ok((heads, kv_heads, head_dim))
    }

    /// The attention window of every layer.
    fn windows(&self, keys: &Keys<'_>, layers: u32) -> Result<Vec<Option<u64>>, ZooError> {
        let all = |window| vec![window; layers as usize];
        Ok(match self.windowed {
            Windowed::No => all(None),
            Windowed::IfSet(_) if keys.is_null("sliding_window") => all(None),
            Windowed::IfSet(default) => all(Some(keys.dim_or(&["sliding_window"], default)?)),
            Windowed::IfSwitched if !keys.flag("use_sliding_window")?.unwrap_or(false) => all(None),
            Windowed::IfSwitched => {
                let window = keys.dim_or(&["sliding_window"], 4096)?;
                // 0 is a legal value here: every layer is windowed.
                let from = match keys.get(&["max_window_layers"]) {
                    None => keys.dim_or(&["max_window_layers"], 28)?,
                    Some((key, value)) => value
                        .as_u64()
                        .ok_or_else(|| keys.error(key, show(value), "write a whole number, 0 or more"))?,
                };
                (0..u64::from(layers)).map(|k| (k >= from).then_some(window)).collect()
            }
        })
    }
}

/// Base of the rotary frequencies: a key of its own, or within `rope_parameters` since transformers 5. Scaling of the
/// frequencies changes numbers, not work: it is left out and noted.
fn theta(keys: &Keys<'_>) -> Result<f64, ZooError> {
    for name in ["rope_scaling", "rope_parameters"] {
        let kind = |v: &Json| v.get("rope_type").or(v.get("type")).and_then(Json::as_str).map(str::to_string);
        if let Some(kind) = keys.get(&[name]).and_then(|(_, v)| kind(v)).filter(|k| k != "default") {
            keys.assume(format!("unscaled rotary frequencies, although {name} asks for {kind}"));
        }
    }
    let nested = keys.get(&["rope_parameters"]).and_then(|(_, v)| v.get("rope_theta"));
    match (keys.get(&["rope_theta"]), nested) {
        (None, Some(value)) => keys.positive("rope_parameters.rope_theta", value),
        _ => keys.positive_or("rope_theta", 10_000.0),
    }
}

impl Shape {
    fn norm(&self) -> Op {
        Op::Norm { kind: NormKind::Rms, width: self.hidden, groups: 1, eps: self.eps }
    }

    fn embed(&self, vocab: u64) -> BlockClass {
        let mut b = Block::new("embed", self.std);
        b.add("tokens", Op::Embedding { rows: vocab, width: self.hidden, index: IdSource::Tokens }, []);
        b.finish()
    }

    /// One class per distinct window (`layer`, and `layer.window` where only some layers have one), and their runs.
    fn layers(&self, windows: &[Option<u64>]) -> (Vec<BlockClass>, Vec<BlockRun>) {
        let mut distinct: Vec<Option<u64>> = Vec::new();
        let mut runs: Vec<BlockRun> = Vec::new();
        for window in windows {
            let class = distinct.iter().position(|w| w == window).unwrap_or_else(|| {
                distinct.push(*window);
                distinct.len() - 1
            }) as u32
                + 1;
            match runs.last_mut() {
                Some(run) if run.class == class => run.repeat += 1,
                _ => runs.push(BlockRun { class, repeat: 1 }),
            }
        }
        let name = |k: usize| if k == 0 { "layer" } else { "layer.window" };
        (distinct.iter().enumerate().map(|(k, w)| self.layer(name(k), *w)).collect(), runs)
    }

    fn layer(&self, name: &str, window: Option<u64>) -> BlockClass {
        let (h, d) = (self.hidden, self.head_dim);
        let (q_width, kv_width) = (self.heads * d, self.kv_heads * d);
        let mut b = Block::new(name, self.std);
        let x = b.add("norm1", self.norm(), [Value::Input]);
        let per_head =
            |output| Projection { output_grain: d, bias: self.qkv_bias, ..Projection::new(h, output) };
        let q = b.project("q", x, per_head(q_width));
        let k = b.project("k", x, per_head(kv_width));
        let v = b.project("v", x, per_head(kv_width));
        let q = self.rotated(&mut b, "q", q, self.heads);
        let k = self.rotated(&mut b, "k", k, self.kv_heads);
        let attention = Op::Attention {
            heads: self.heads,
            kv_heads: self.kv_heads,
            head_dim: d,
            causal: true,
            window,
            core: self.core,
            dropout: self.dropout,
        };
        let x = b.add("attn", attention, [q, k, v]);
        let proj = Projection { input_grain: d, bias: self.proj_bias, ..Projection::new(q_width, h) };
        let x = b.project("proj", x, proj);
        let skip = b.add("residual1", Op::Add { width: h }, [Value::Input, x]);
        let x = b.add("norm2", self.norm(), [skip]);
        let wide = || Projection { bias: self.mlp_bias, ..Projection::new(h, self.inner) };
        let gate = b.project("gate", x, wide());
        let up = b.project("up", x, wide());
        let gated = Op::Gate { kind: self.gate, width: self.inner };
        let x = b.add(&self.gate.to_string(), gated, [gate, up]);
        let x = b.project("down", x, Projection { bias: self.mlp_bias, ..Projection::new(self.inner, h) });
        b.add("residual2", Op::Add { width: h }, [skip, x]);
        b.finish()
    }

    /// Queries or keys, normalised per head where the family does, then rotated.
    fn rotated(&self, b: &mut Block, name: &str, x: Value, heads: u64) -> Value {
        let d = self.head_dim;
        let norm = Op::Norm { kind: NormKind::Rms, width: d, groups: heads, eps: self.eps };
        let x = if self.head_norm { b.add(&format!("{name}.norm"), norm, [x]) } else { x };
        b.add(&format!("{name}.rope"), Op::Rope { heads, head_dim: d, theta: self.theta }, [x])
    }
}
