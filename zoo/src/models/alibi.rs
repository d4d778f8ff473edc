//! Families whose positions are slopes on the scores (Press et al. 2021) always or by a switch: BLOOM (Workshop 2022), MPT
//! (MosaicML 2023), Falcon (Almazrouei et al. 2023).

use super::common::{Basics, DEFAULTS, Defaults, HEADS, even_heads};
use super::decoder::{Decoder, Embed, Layer, Place};
use super::keys::Keys;
use super::mixer::{Attention, Mixer, alibi};
use super::mlp::{Dense, Mlp};
use crate::ZooError;
use meshwright_ir::{ActivationKind, NormKind};

/// BLOOM: a norm on the embedding, biases everywhere, an MLP of four times the width.
pub(crate) fn bloom(keys: &Keys<'_>) -> Result<Decoder, ZooError> {
    let b = Basics::read(keys, Defaults { tied: true, eps: 1e-5, ..DEFAULTS })?;
    let inner = keys.optional_dim(&["n_inner", "ffn_hidden_size"])?.unwrap_or(4 * b.hidden);
    if keys.flag("apply_residual_connection_post_layernorm")? == Some(true) {
        keys.assume("residuals from before the norms, although apply_residual_connection_post_layernorm");
    }
    let attention = Attention { bias: [true; 4], scores: alibi(), ..b.attention() };
    let mlp = Dense { bias: [true; 2], ..Dense::new(inner, ActivationKind::GeluTanh, false) };
    let layer = Layer::new(NormKind::Layer, b.eps, Mixer::Attention(attention), Mlp::Dense(mlp));
    let decoder = b.decoder("bloom", NormKind::Layer, b.alike(layer));
    let embed = Embed { norm: Some(NormKind::Layer), ..Embed::default() };
    Ok(Decoder { embed, ..decoder })
}

/// MPT: no biases, norms included; transformers builds it with slopes whatever `alibi` says.
pub(crate) fn mpt(keys: &Keys<'_>) -> Result<Decoder, ZooError> {
    let b = Basics::read(keys, Defaults { tied: true, eps: 1e-5, ..DEFAULTS })?;
    let inner = keys.count_or(&["expansion_ratio"], 4)?.max(1).saturating_mul(b.hidden);
    let attention = Attention { scores: alibi(), ..b.attention() };
    let scale = match keys.nested("attn_config")? {
        Some(nested) => nested.optional_positive(&["softmax_scale"])?,
        None => None,
    };
    let attention = Attention { scale, ..attention };
    let mlp = Dense::new(inner, ActivationKind::Gelu, false);
    let layer = Layer::new(NormKind::LayerScale, b.eps, Mixer::Attention(attention), Mlp::Dense(mlp));
    Ok(b.decoder("mpt", NormKind::LayerScale, b.alike(layer)))
}

/// Falcon: one key head (7B) or few (40B on, whose two branches have a norm each).
pub(crate) fn falcon(keys: &Keys<'_>) -> Result<Decoder, ZooError> {
    let defaults = Defaults { tied: true, eps: 1e-5, activation: "gelu", ..DEFAULTS };
    let new = keys.flag_or("new_decoder_architecture", false)?;
    let b = Basics::with_heads(keys, defaults, |keys, _, hidden| {
        let heads = keys.dim(&HEADS)?;
        let kv_heads = match (new, keys.flag_or("multi_query", true)?) {
            (true, _) => keys.dim_or(&["num_kv_heads", "n_head_kv"], heads)?,
            (false, true) => 1,
            (false, false) => heads,
        };
        Ok((heads, kv_heads, even_heads(keys, hidden, heads)?))
    })?;
    let bias = keys.flag_or("bias", false)?;
    let attention = match keys.flag_or("alibi", false)? {
        true => Attention { scores: alibi(), ..b.attention() },
        false => b.rotary_attention()?,
    };
    let attention = Attention { bias: [bias; 4], ..attention };
    let inner = keys.optional_dim(&["ffn_hidden_size"])?.unwrap_or(4 * b.hidden);
    let mlp = Dense { bias: [bias; 2], ..Dense::new(inner, b.activation()?, false) };
    let norms = keys.count_or(&["num_ln_in_parallel_attn"], if new { 2 } else { 1 })?;
    let side_by_side = new || keys.flag_or("parallel_attn", true)?;
    let place = match (side_by_side, norms) {
        (true, 2) if new => Place::ParallelTwo,
        (true, _) => Place::Parallel,
        (false, _) => Place::Before,
    };
    let layer =
        Layer { place, ..Layer::new(NormKind::Layer, b.eps, Mixer::Attention(attention), Mlp::Dense(mlp)) };
    Ok(b.decoder("falcon", NormKind::Layer, b.alike(layer)))
}
