//! GPT-J (Wang and Komatsuzaki 2021) and GPT-NeoX (Black et al. 2022): attention and MLP side by side, partial rotary
//! positions, layer norms, a plain MLP. Also Phi 1 to 2 (Li et al. 2023) and Persimmon, which are laid out alike.

use super::common::{Basics, DEFAULTS, Defaults};
use super::decoder::{Decoder, Layer, Place};
use super::keys::Keys;
use super::mixer::{Attention, Mixer, QkNorm};
use super::mlp::{Dense, Mlp};
use crate::ZooError;
use meshwright_ir::NormKind::Layer as LayerNorm;

/// GPT-J: one norm for both branches, no bias in attention, one on the logits.
pub(crate) fn gptj(keys: &Keys<'_>) -> Result<Decoder, ZooError> {
    let b = Basics::read(keys, Defaults { eps: 1e-5, activation: "gelu_new", ..DEFAULTS })?;
    let inner = keys.optional_dim(&["n_inner"])?.unwrap_or(4 * b.hidden);
    let mlp = Dense { bias: [true; 2], ..Dense::new(inner, b.activation()?, false) };
    let attention = b.rotary_attention()?;
    let layer = Layer {
        place: Place::Parallel,
        ..Layer::new(LayerNorm, b.eps, Mixer::Attention(attention), Mlp::Dense(mlp))
    };
    let mut decoder = b.decoder("gptj", LayerNorm, b.alike(layer));
    decoder.head.bias = true;
    Ok(decoder)
}

/// GPT-NeoX: a norm for each branch, biases everywhere but on the logits.
pub(crate) fn gpt_neox(keys: &Keys<'_>) -> Result<Decoder, ZooError> {
    let defaults = Defaults { eps: 1e-5, activation: "gelu", partial: 0.25, ..DEFAULTS };
    let b = Basics::read(keys, defaults)?;
    let attention = Attention { bias: b.attention_bias(true)?, ..b.rotary_attention()? };
    let mlp = Dense { bias: [true; 2], ..b.dense(false)? };
    let parallel = keys.flag_or("use_parallel_residual", true)?;
    let place = if parallel { Place::ParallelTwo } else { Place::Before };
    let layer = Layer { place, ..Layer::new(LayerNorm, b.eps, Mixer::Attention(attention), Mlp::Dense(mlp)) };
    Ok(b.decoder("gpt_neox", LayerNorm, b.alike(layer)))
}

/// Phi 1, 1.5 and 2: one norm for both branches, biases everywhere, the logits' included.
pub(crate) fn phi(keys: &Keys<'_>) -> Result<Decoder, ZooError> {
    let defaults = Defaults { eps: 1e-5, activation: "gelu_new", partial: 0.5, ..DEFAULTS };
    let b = Basics::read(keys, defaults)?;
    let normed = keys.flag_or("qk_layernorm", false)?;
    let qk_norm = normed.then_some(QkNorm::Shared(LayerNorm));
    let attention = Attention { bias: [true; 4], qk_norm, ..b.rotary_attention()? };
    let mlp = Dense { bias: [true; 2], ..b.dense(false)? };
    let layer = Layer {
        place: Place::Parallel,
        ..Layer::new(LayerNorm, b.eps, Mixer::Attention(attention), Mlp::Dense(mlp))
    };
    let mut decoder = b.decoder("phi", LayerNorm, b.alike(layer));
    decoder.head.bias = true;
    Ok(decoder)
}

/// Persimmon: norms before each branch, norms of queries and keys, squared ReLU.
pub(crate) fn persimmon(keys: &Keys<'_>) -> Result<Decoder, ZooError> {
    let defaults = Defaults { eps: 1e-5, activation: "relu2", partial: 0.5, ..DEFAULTS };
    let b = Basics::read(keys, defaults)?;
    let qk_norm = keys.flag_or("qk_layernorm", true)?.then_some(QkNorm::Shared(LayerNorm));
    let attention = Attention { bias: [true; 4], qk_norm, ..b.rotary_attention()? };
    let mlp = Dense { bias: [true; 2], ..b.dense(false)? };
    let layer = Layer::new(LayerNorm, b.eps, Mixer::Attention(attention), Mlp::Dense(mlp));
    Ok(b.decoder("persimmon", LayerNorm, b.alike(layer)))
}
