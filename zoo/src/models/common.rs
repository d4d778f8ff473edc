//! What nearly every family reads alike: widths, heads, rotary positions, windows. Each number is looked up by all its
//! spellings; what the file leaves out takes the default of the family's class in transformers.

use super::decoder::{Decoder, Embed, Head, Layer};
use super::keys::{Keys, show};
use super::mixer::{Attention, Rotary};
use super::mlp::Dense;
use crate::ZooError;
use meshwright_ir::{AttentionCore, Dropout, NormKind, Real};
use serde_json::Value as Json;

/// What a family's class assumes where its file is silent.
#[derive(Clone, Copy)]
pub(crate) struct Defaults {
    /// Key heads; none: as many as heads.
    pub(crate) kv_heads: Option<u64>,
    /// Features per head; none: width / heads.
    pub(crate) head_dim: Option<u64>,
    pub(crate) tied: bool,
    pub(crate) eps: f64,
    pub(crate) std: f64,
    pub(crate) theta: f64,
    /// Share of a head's features that turn.
    pub(crate) partial: f64,
    pub(crate) activation: &'static str,
}

/// Those of `LlamaConfig`.
pub(crate) const DEFAULTS: Defaults = Defaults {
    kv_heads: None,
    head_dim: None,
    tied: false,
    eps: 1e-6,
    std: 0.02,
    theta: 10_000.0,
    partial: 1.0,
    activation: "silu",
};

/// Spellings.
pub(crate) const HIDDEN: [&str; 4] = ["hidden_size", "n_embd", "d_model", "n_embed"];
pub(crate) const LAYERS: [&str; 4] = ["num_hidden_layers", "n_layer", "n_layers", "num_layers"];
pub(crate) const HEADS: [&str; 4] = ["num_attention_heads", "n_head", "n_heads", "num_heads"];
const KV_HEADS: [&str; 3] = ["num_key_value_heads", "num_kv_heads", "kv_n_heads"];
const HEAD_DIM: [&str; 3] = ["head_dim", "kv_channels", "attention_head_dim"];
const EPS: [&str; 5] = ["rms_norm_eps", "layer_norm_epsilon", "layer_norm_eps", "norm_epsilon", "norm_eps"];
const ACTIVATION: [&str; 5] =
    ["hidden_act", "hidden_activation", "activation_function", "activation", "mlp_hidden_act"];

/// Sizes that every decoder has.
pub(crate) struct Basics<'k, 'a> {
    pub(crate) keys: &'k Keys<'a>,
    pub(crate) defaults: Defaults,
    pub(crate) hidden: u64,
    pub(crate) layers: u32,
    pub(crate) vocab: u64,
    pub(crate) heads: u64,
    pub(crate) kv_heads: u64,
    pub(crate) head_dim: u64,
    pub(crate) tied: bool,
    pub(crate) eps: Real,
    pub(crate) std: f64,
    /// What attention keeps of its scores, and drops of its softmax.
    pub(crate) core: AttentionCore,
    pub(crate) dropout: Option<Dropout>,
}

impl<'k, 'a> Basics<'k, 'a> {
    /// Reads them.
    pub(crate) fn read(keys: &'k Keys<'a>, defaults: Defaults) -> Result<Self, ZooError> {
        Self::with_heads(keys, defaults, |keys, defaults, hidden| heads(keys, defaults, hidden))
    }
    /// Reads them; `(heads, kv_heads, head_dim)` by the family's own rule.
    pub(crate) fn with_heads(
        keys: &'k Keys<'a>,
        defaults: Defaults,
        heads: impl FnOnce(&Keys<'a>, &Defaults, u64) -> Result<(u64, u64, u64), ZooError>,
    ) -> Result<Self, ZooError> {
        let hidden = keys.dim(&HIDDEN)?;
        let layers = keys.layers(&LAYERS)?;
        let vocab = keys.dim(&["vocab_size", "padded_vocab_size"])?;
        let (heads, kv_heads, head_dim) = heads(keys, &defaults, hidden)?;
        fits(keys, heads, kv_heads, head_dim)?;
        let dropout = match keys.dropout("attention_dropout", 0)? {
            Some(dropout) => Some(dropout),
            None => keys.dropout("attn_pdrop", 0)?,
        };
        Ok(Self {
            keys,
            defaults,
            hidden,
            layers,
            vocab,
            heads,
            kv_heads,
            head_dim,
            tied: keys.flag_or("tie_word_embeddings", defaults.tied)?,
            eps: Real(keys.positive_of(&EPS, defaults.eps)?),
            std: keys.positive_or("initializer_range", defaults.std)?,
            core: keys.attention_core()?,
            dropout,
        })
    }

    /// Attention with these heads, unbiased and without positions.
    pub(crate) fn attention(&self) -> Attention {
        let (eps, core, dropout) = (self.eps, self.core, self.dropout);
        Attention { eps, core, dropout, ..Attention::new(self.heads, self.kv_heads, self.head_dim) }
    }
    /// Attention with these heads and rotary positions.
    pub(crate) fn rotary_attention(&self) -> Result<Attention, ZooError> {
        let d = &self.defaults;
        let rotary = Some(rotary(self.keys, self.head_dim, d.theta, d.partial)?);
        Ok(Attention { rotary, ..self.attention() })
    }
    /// A feed-forward part with the width and function that the keys give.
    pub(crate) fn dense(&self, gated: bool) -> Result<Dense, ZooError> {
        let inner = self.keys.dim(&["intermediate_size", "ffn_hidden_size", "ffn_dim"])?;
        Ok(Dense::new(inner, self.activation()?, gated))
    }
    /// The activation function that the keys name.
    pub(crate) fn activation(&self) -> Result<meshwright_ir::ActivationKind, ZooError> {
        self.keys.activation_of(&ACTIVATION, self.defaults.activation)
    }
    /// The decoder of these layers. Dropout outside attention is noted, where the family's own file does not place it.
    pub(crate) fn decoder(&self, family: &'static str, norm: NormKind, layers: Vec<Layer>) -> Decoder {
        let elsewhere = ["hidden_dropout", "hidden_dropout_prob", "attention_probs_dropout_prob", "dropout"];
        self.keys.note_dropout(&elsewhere);
        Decoder {
            family,
            hidden: self.hidden,
            vocab: self.vocab,
            max_sequence: None,
            std: self.std,
            eps: self.eps,
            embed: Embed::default(),
            layers,
            head: Head::new(norm, self.tied),
            towers: vec![],
        }
    }
    /// The same layer throughout.
    pub(crate) fn alike(&self, layer: Layer) -> Vec<Layer> {
        vec![layer; self.layers as usize]
    }
    /// A switch that sets the biases of q, k, v and the output alike.
    pub(crate) fn attention_bias(&self, default: bool) -> Result<[bool; 4], ZooError> {
        Ok([self.keys.flag_or("attention_bias", default)?; 4])
    }
    /// Which layers attend through a window: those that `layer_types` calls sliding, else those that `otherwise` picks.
    pub(crate) fn sliding(&self, otherwise: impl Fn(u64) -> bool) -> Result<Vec<bool>, ZooError> {
        let known = [
            ("sliding_attention", true),
            ("chunked_attention", true),
            ("full_attention", false),
            ("attention", false),
        ];
        Ok(match self.keys.kinds("layer_types", self.layers, &known)? {
            Some(kinds) => kinds,
            None => (0..u64::from(self.layers)).map(otherwise).collect(),
        })
    }
}

/// Heads, key heads and features per head by their usual keys.
pub(crate) fn heads(keys: &Keys<'_>, d: &Defaults, hidden: u64) -> Result<(u64, u64, u64), ZooError> {
    let heads = keys.dim(&HEADS)?;
    let kv_heads = match (keys.optional_dim(&KV_HEADS)?, d.kv_heads) {
        (Some(n), _) => n,
        (None, Some(default)) if !keys.is_null("num_key_value_heads") => keys.dim_or(&KV_HEADS, default)?,
        (None, _) => keys.dim_or(&KV_HEADS, heads)?,
    };
    let head_dim = match (keys.optional_dim(&HEAD_DIM)?, d.head_dim) {
        (Some(n), _) => n,
        (None, Some(default)) if !keys.is_null("head_dim") => keys.dim_or(&HEAD_DIM, default)?,
        (None, _) => even_heads(keys, hidden, heads)?,
    };
    Ok((heads, kv_heads, head_dim))
}

/// Features per head where heads share the width evenly.
pub(crate) fn even_heads(keys: &Keys<'_>, hidden: u64, heads: u64) -> Result<u64, ZooError> {
    if hidden.is_multiple_of(heads) {
        return Ok(hidden / heads);
    }
    let width = keys.get(&HIDDEN).map_or("hidden_size", |(key, _)| key);
    let also = if width == "hidden_size" { ", or write head_dim" } else { "" };
    let key = keys.get(&HEADS).map_or("num_attention_heads", |(key, _)| key);
    let fix = format!("make {width} ({hidden}) a multiple of it{also}");
    Err(keys.error(key, heads.to_string(), fix))
}

/// Whether heads divide among key heads and their widths are believable.
pub(crate) fn fits(keys: &Keys<'_>, heads: u64, kv_heads: u64, head_dim: u64) -> Result<(), ZooError> {
    let key = keys.get(&HEADS).map_or("num_attention_heads", |(key, _)| key);
    if !heads.is_multiple_of(kv_heads) {
        let given = keys.get(&KV_HEADS).map_or("num_key_value_heads", |(key, _)| key);
        let fix = format!("write a divisor of {key} ({heads})");
        return Err(keys.error(given, kv_heads.to_string(), fix));
    }
    if heads.checked_mul(head_dim).is_none_or(|w| w > 1 << 32) {
        let fix = "lower one of the two: their product is the width of the queries";
        return Err(keys.error(key, format!("{heads} of {head_dim} features"), fix));
    }
    Ok(())
}

/// Rotary positions: base and share of a head by keys of their own, or within `rope_parameters` since transformers 5.
pub(crate) fn rotary(keys: &Keys<'_>, head_dim: u64, theta: f64, partial: f64) -> Result<Rotary, ZooError> {
    rotary_of(keys, None, head_dim, theta, partial)
}

/// Rotary positions of one kind of layer, where `rope_parameters` has an object for each kind.
pub(crate) fn rotary_of(
    keys: &Keys<'_>,
    kind: Option<&'static str>,
    head_dim: u64,
    theta: f64,
    partial: f64,
) -> Result<Rotary, ZooError> {
    // Scaling of the frequencies changes numbers, not work: it is left out and noted.
    for name in ["rope_scaling", "rope_parameters"] {
        let kind = |v: &Json| v.get("rope_type").or(v.get("type")).and_then(Json::as_str).map(str::to_string);
        if let Some(kind) = keys.get(&[name]).and_then(|(_, v)| kind(v)).filter(|k| k != "default") {
            keys.assume(format!("unscaled rotary frequencies, although {name} asks for {kind}"));
        }
    }
    let nested = match keys.get(&["rope_parameters"]) {
        Some((_, Json::Object(object))) => {
            let inner = kind.and_then(|k| object.get(k)).and_then(Json::as_object).unwrap_or(object);
            Some(keys.within("rope_parameters", inner.clone()))
        }
        _ => None,
    };
    let thetas = ["rope_theta", "rotary_emb_base"];
    let own = keys.optional_positive(&thetas)?;
    let within = nested.as_ref().map(|n| n.optional_positive(&["rope_theta"])).transpose()?.flatten();
    let theta = match own.or(within) {
        Some(theta) => theta,
        None => keys.positive_of(&thetas, theta)?,
    };
    let shares = ["partial_rotary_factor", "rotary_pct", "rope_pct"];
    let within = match &nested {
        Some(n) => n.share_or(&["partial_rotary_factor"], partial)?,
        None => partial,
    };
    let share = keys.share_or(&shares, within)?;
    let turned = match keys.optional_dim(&["rotary_dim"])? {
        Some(n) if n <= head_dim => n,
        Some(n) => {
            return Err(keys.error("rotary_dim", n.to_string(), format!("write at most {head_dim}")));
        }
        None => (head_dim as f64 * share) as u64,
    };
    if turned % 2 != 0 || turned == 0 {
        let (key, found) = match turned == head_dim {
            true => ("head_dim", turned.to_string()),
            false => ("partial_rotary_factor", format!("{turned} of {head_dim} features turn")),
        };
        return Err(keys.error(key, found, "make it even: rotary positions turn features in pairs"));
    }
    Ok(Rotary { theta, turned: Some(turned) })
}

/// A whole number from 0 by its key, where 0 and absence differ.
pub(crate) fn whole(keys: &Keys<'_>, name: &'static str) -> Result<Option<u64>, ZooError> {
    let number = |(key, value): (&'static str, &Json)| {
        value.as_u64().ok_or_else(|| keys.error(key, show(value), "write a whole number, 0 or more"))
    };
    keys.get(&[name]).map(number).transpose()
}
