//! Gemma 1 to 3 (Google 2024, 2025): the embedding scaled by √width, gated GELU, heads wider than width / heads; from
//! Gemma 2 four norms a layer and windows in a pattern, there with capped scores and logits. The stored scale of a norm is
//! one less than what multiplies; trained from its start that is the same function, so it is the plain norm here.

use super::common::{Basics, DEFAULTS, Defaults, rotary_of};
use super::decoder::{Decoder, Layer, Place};
use super::keys::Keys;
use super::mixer::{Attention, Mixer, QkNorm};
use super::mlp::Mlp;
use crate::ZooError;
use meshwright_ir::NormKind::Rms;
use meshwright_ir::{Real, ScoreBias, Scores};

pub(super) const GEMMA: Defaults =
    Defaults { head_dim: Some(256), tied: true, activation: "gelu_pytorch_tanh", ..DEFAULTS };

/// Gemma 1.
pub(crate) fn gemma(keys: &Keys<'_>) -> Result<Decoder, ZooError> {
    let b = Basics::read(keys, Defaults { kv_heads: Some(16), ..GEMMA })?;
    let attention = Attention { bias: b.attention_bias(false)?, ..b.rotary_attention()? };
    let layer = Layer::new(Rms, b.eps, Mixer::Attention(attention), Mlp::Dense(b.dense(true)?));
    let mut decoder = b.decoder("gemma", Rms, b.alike(layer));
    decoder.embed.scale = Some((b.hidden as f64).sqrt());
    Ok(decoder)
}

/// Gemma 2: every other layer sees a window.
pub(crate) fn gemma2(keys: &Keys<'_>) -> Result<Decoder, ZooError> {
    let caps = [Some(50.0), Some(30.0)];
    later(keys, "gemma2", caps, None, |_| Ok(2))
}

/// Gemma 3, the decoder alone: five of six layers see a window, queries and keys are normalised.
pub(crate) fn gemma3_text(keys: &Keys<'_>) -> Result<Decoder, ZooError> {
    let qk_norm = Some(QkNorm::Shared(Rms));
    later(keys, "gemma3_text", [None, None], qk_norm, |keys| {
        keys.dim_or(&["sliding_window_pattern", "_sliding_window_pattern"], 6)
    })
}

/// A cap that the family has unless the file says null.
fn cap(keys: &Keys<'_>, name: &'static str, default: Option<f64>) -> Result<Option<f64>, ZooError> {
    match (keys.optional_positive(&[name])?, default) {
        (None, Some(default)) if !keys.is_null(name) => keys.positive_or(name, default).map(Some),
        (given, _) => Ok(given),
    }
}

fn later(
    keys: &Keys<'_>,
    family: &'static str,
    caps: [Option<f64>; 2],
    qk_norm: Option<QkNorm>,
    period: impl FnOnce(&Keys<'_>) -> Result<u64, ZooError>,
) -> Result<Decoder, ZooError> {
    let b = Basics::read(keys, Defaults { kv_heads: Some(4), ..GEMMA })?;
    let softcap = cap(keys, "attn_logit_softcapping", caps[0])?.map(Real);
    let scalar = keys.positive_or("query_pre_attn_scalar", 256.0)?;
    let attention = Attention {
        bias: b.attention_bias(false)?,
        qk_norm,
        scale: Some(scalar.sqrt().recip()),
        scores: Scores { softcap, bias: ScoreBias::None },
        ..b.attention()
    };
    let global = if family == "gemma2" { 10_000.0 } else { 1_000_000.0 };
    let local = keys.optional_positive(&["rope_local_base_freq"])?;
    let far = Some(rotary_of(keys, Some("full_attention"), b.head_dim, global, 1.0)?);
    let near = match (family, local) {
        ("gemma2", _) => far,
        (_, Some(theta)) => far.map(|r| super::mixer::Rotary { theta, ..r }),
        (_, None) => far.map(|r| super::mixer::Rotary { theta: 10_000.0, ..r }),
    };
    let period = period(keys)?;
    let sliding = b.sliding(|k| (k + 1) % period != 0)?;
    let window = keys.dim_or_null("sliding_window", 4096)?;
    let mlp = b.dense(true)?;
    let layers = sliding.into_iter().map(|sliding| {
        let (rotary, window) = if sliding { (near, window) } else { (far, None) };
        let attention = Attention { rotary, window, ..attention.clone() };
        let place = Place::Around;
        Layer { place, ..Layer::new(Rms, b.eps, Mixer::Attention(attention), Mlp::Dense(mlp.clone())) }
    });
    let mut decoder = b.decoder(family, Rms, layers.collect());
    decoder.embed.scale = Some((b.hidden as f64).sqrt());
    decoder.head.softcap = cap(keys, "final_logit_softcapping", caps[1])?;
    Ok(decoder)
}
