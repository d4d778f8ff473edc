//! Llama (Touvron et al. 2023) and its nearest kin: RMS norms before each branch, grouped-query attention with rotary
//! positions, a gated MLP. What sets the kin apart is a few facts each ([`Kin`]). Rotary positions have no table, so no
//! sequence is too long.

use super::common::{Basics, DEFAULTS, Defaults, whole};
use super::decoder::{Decoder, Layer};
use super::keys::Keys;
use super::mixer::{Attention, Mixer, QkNorm};
use super::mlp::{Dense, Mlp};
use crate::ZooError;
use meshwright_ir::NormKind::Rms;

/// When the family's attention is windowed.
#[derive(Clone, Copy)]
pub(super) enum Windowed {
    /// Never.
    No,
    /// Wherever `sliding_window` is a number, with a class default.
    IfSet(Option<u64>),
    /// Only if `use_sliding_window` is true, and then in the layers that `layer_types` says, or from `max_window_layers` on.
    IfSwitched,
}

/// Facts of one family that its config file need not state.
pub(super) struct Kin {
    pub(super) family: &'static str,
    pub(super) defaults: Defaults,
    /// q, k and v have biases though no key says so.
    pub(super) qkv_bias: bool,
    /// `attention_bias` and `mlp_bias` are keys of the family; the former covers the output or not.
    pub(super) attention_bias: Option<bool>,
    pub(super) out_bias: bool,
    pub(super) mlp_bias: bool,
    pub(super) qk_norm: Option<QkNorm>,
    pub(super) windowed: Windowed,
}

pub(super) const LLAMA: Kin = Kin {
    family: "llama",
    defaults: DEFAULTS,
    qkv_bias: false,
    attention_bias: Some(false),
    out_bias: true,
    mlp_bias: true,
    qk_norm: None,
    windowed: Windowed::No,
};

/// Mistral (Jiang et al. 2023): sliding-window attention in its first version.
pub(super) const MISTRAL: Kin = Kin {
    family: "mistral",
    defaults: Defaults { kv_heads: Some(8), ..DEFAULTS },
    attention_bias: None,
    mlp_bias: false,
    windowed: Windowed::IfSet(Some(4096)),
    ..LLAMA
};

/// Qwen2 and Qwen2.5: biases on q, k and v.
pub(super) const QWEN2: Kin = Kin {
    family: "qwen2",
    defaults: Defaults { kv_heads: Some(32), ..DEFAULTS },
    qkv_bias: true,
    attention_bias: None,
    mlp_bias: false,
    windowed: Windowed::IfSwitched,
    ..LLAMA
};

/// Qwen3: norms on each head's queries and keys.
pub(super) const QWEN3: Kin = Kin {
    family: "qwen3",
    defaults: Defaults { kv_heads: Some(32), head_dim: Some(128), ..DEFAULTS },
    mlp_bias: false,
    qk_norm: Some(QkNorm::Shared(Rms)),
    windowed: Windowed::IfSwitched,
    ..LLAMA
};

/// Phi-3 and Phi-4: Llama with fused matrices and an optional window.
const PHI3: Kin = Kin {
    family: "phi3",
    defaults: Defaults { eps: 1e-5, ..DEFAULTS },
    attention_bias: None,
    mlp_bias: false,
    windowed: Windowed::IfSet(None),
    ..LLAMA
};

/// GLM-4 as transformers reads it: biases on q, k and v, half of each head turns.
const GLM: Kin = Kin {
    family: "glm",
    defaults: Defaults { kv_heads: Some(2), head_dim: Some(128), partial: 0.5, eps: 1.5625e-7, ..DEFAULTS },
    attention_bias: Some(true),
    out_bias: false,
    mlp_bias: false,
    ..LLAMA
};

/// Helium (Kyutai 2025).
const HELIUM: Kin = Kin {
    family: "helium",
    defaults: Defaults { kv_heads: Some(20), head_dim: Some(128), eps: 1e-8, theta: 100_000.0, ..DEFAULTS },
    out_bias: false,
    ..LLAMA
};

/// Llama 1 to 3 and models that declare themselves as such.
pub(crate) fn llama(keys: &Keys<'_>) -> Result<Decoder, ZooError> {
    LLAMA.decoder(keys)
}
/// Mistral.
pub(crate) fn mistral(keys: &Keys<'_>) -> Result<Decoder, ZooError> {
    MISTRAL.decoder(keys)
}
/// Qwen2 and Qwen2.5.
pub(crate) fn qwen2(keys: &Keys<'_>) -> Result<Decoder, ZooError> {
    QWEN2.decoder(keys)
}
/// Qwen3.
pub(crate) fn qwen3(keys: &Keys<'_>) -> Result<Decoder, ZooError> {
    QWEN3.decoder(keys)
}
/// Phi-3 and Phi-4.
pub(crate) fn phi3(keys: &Keys<'_>) -> Result<Decoder, ZooError> {
    PHI3.decoder(keys)
}
/// GLM-4 in transformers' layout.
pub(crate) fn glm(keys: &Keys<'_>) -> Result<Decoder, ZooError> {
    GLM.decoder(keys)
}
/// Helium.
pub(crate) fn helium(keys: &Keys<'_>) -> Result<Decoder, ZooError> {
    HELIUM.decoder(keys)
}
/// EXAONE 3 (LG 2024): Llama by other spellings.
pub(crate) fn exaone(keys: &Keys<'_>) -> Result<Decoder, ZooError> {
    Kin { family: "exaone", ..LLAMA }.decoder(keys)
}

impl Kin {
    /// The whole decoder.
    pub(super) fn decoder(&self, keys: &Keys<'_>) -> Result<Decoder, ZooError> {
        let b = Basics::read(keys, self.defaults)?;
        let attention = self.attention(&b)?;
        let mlp = self.dense(&b)?;
        let layers = self.windows(keys, b.layers)?.into_iter().map(|window| {
            let attention = Attention { window, ..attention.clone() };
            Layer::new(Rms, b.eps, Mixer::Attention(attention), Mlp::Dense(mlp.clone()))
        });
        Ok(b.decoder(self.family, Rms, layers.collect()))
    }

    /// Its feed-forward part.
    pub(super) fn dense(&self, b: &Basics<'_, '_>) -> Result<Dense, ZooError> {
        let bias = self.mlp_bias && b.keys.flag_or("mlp_bias", false)?;
        Ok(Dense { bias: [bias; 2], ..b.dense(true)? })
    }

    /// Its attention, without a window.
    pub(super) fn attention(&self, b: &Basics<'_, '_>) -> Result<Attention, ZooError> {
        let keyed = match self.attention_bias {
            Some(default) => b.keys.flag_or("attention_bias", default)?,
            None => false,
        };
        let qkv = self.qkv_bias || keyed;
        let bias = [qkv, qkv, qkv, keyed && self.out_bias];
        Ok(Attention { bias, qk_norm: self.qk_norm, ..b.rotary_attention()? })
    }

    /// The attention window of every layer.
    pub(super) fn windows(&self, keys: &Keys<'_>, layers: u32) -> Result<Vec<Option<u64>>, ZooError> {
        let all = |window| vec![window; layers as usize];
        Ok(match self.windowed {
            Windowed::No => all(None),
            Windowed::IfSet(_) if keys.is_null("sliding_window") => all(None),
            Windowed::IfSet(None) => all(keys.optional_dim(&["sliding_window"])?),
            Windowed::IfSet(Some(default)) => all(Some(keys.dim_or(&["sliding_window"], default)?)),
            Windowed::IfSwitched if !keys.flag("use_sliding_window")?.unwrap_or(false) => all(None),
            Windowed::IfSwitched => {
                let window = keys.dim_or(&["sliding_window"], 4096)?;
                let known = [("sliding_attention", true), ("full_attention", false)];
                match keys.kinds("layer_types", layers, &known)? {
                    Some(kinds) => kinds.into_iter().map(|sliding| sliding.then_some(window)).collect(),
                    None => {
                        // 0 is a legal value here: every layer is windowed.
                        let from = match whole(keys, "max_window_layers")? {
                            None => keys.dim_or(&["max_window_layers"], 28)?,
                            Some(n) => n,
                        };
                        (0..u64::from(layers)).map(|k| (k >= from).then_some(window)).collect()
                    }
                }
            }
        })
    }
}
