//! Decoders that differ from Llama in a norm, a pattern or a factor: OLMo 1 to 3, StableLM, StarCoder2, Granite, SmolLM3,
//! EXAONE 4, GLM-4-0414, Nemotron. Each function is one family's forward pass in facts.

use super::common::{Basics, DEFAULTS, Defaults, rotary_of};
use super::decoder::{Decoder, Embed, Layer, Place};
use super::keys::{Keys, show};
use super::mixer::{Attention, Mixer, QkNorm};
use super::mlp::{Dense, Mlp};
use crate::ZooError;
use meshwright_ir::NormKind;
use meshwright_ir::NormKind::{Layer as LayerNorm, Rms};

/// OLMo 1 (Groeneveld et al. 2024): norms without parameters.
pub(crate) fn olmo(keys: &Keys<'_>) -> Result<Decoder, ZooError> {
    let b = Basics::read(keys, Defaults { eps: 1e-5, ..DEFAULTS })?;
    if let Some(clip) = keys.optional_positive(&["clip_qkv"])? {
        keys.assume(format!("queries, keys and values are not clipped, although clip_qkv = {clip}"));
    }
    let attention = Attention { bias: b.attention_bias(false)?, ..b.rotary_attention()? };
    let layer =
        Layer::new(NormKind::LayerPlain, b.eps, Mixer::Attention(attention), Mlp::Dense(b.dense(true)?));
    Ok(b.decoder("olmo", NormKind::LayerPlain, b.alike(layer)))
}

/// OLMo 2 (2025): norms on each branch's output, queries and keys normalised over all heads.
pub(crate) fn olmo2(keys: &Keys<'_>) -> Result<Decoder, ZooError> {
    olmo_later(keys, "olmo2", false)
}

/// OLMo 3: three of four layers see a window.
pub(crate) fn olmo3(keys: &Keys<'_>) -> Result<Decoder, ZooError> {
    olmo_later(keys, "olmo3", true)
}

fn olmo_later(keys: &Keys<'_>, family: &'static str, windowed: bool) -> Result<Decoder, ZooError> {
    let b = Basics::read(keys, Defaults { eps: 1e-5, theta: 500_000.0, ..DEFAULTS })?;
    let bias = b.attention_bias(false)?;
    let mlp = b.dense(true)?;
    let window = if windowed { keys.dim_or_null("sliding_window", 4096)? } else { None };
    let sliding = if windowed { b.sliding(|k| (k + 1) % 4 != 0)? } else { vec![false; b.layers as usize] };
    let attention = |kind| -> Result<Attention, ZooError> {
        let rotary = Some(rotary_of(keys, Some(kind), b.head_dim, b.defaults.theta, b.defaults.partial)?);
        Ok(Attention { bias, qk_norm: Some(QkNorm::Whole(Rms)), rotary, ..b.attention() })
    };
    let (near, far) = (attention("sliding_attention")?, attention("full_attention")?);
    let layers = sliding.into_iter().map(|sliding| {
        let attention = if sliding { Attention { window, ..near.clone() } } else { far.clone() };
        let place = Place::Inside;
        Layer { place, ..Layer::new(Rms, b.eps, Mixer::Attention(attention), Mlp::Dense(mlp.clone())) }
    });
    Ok(b.decoder(family, Rms, layers.collect()))
}

/// StableLM (Bellagente et al. 2024): layer norms, a quarter of each head turns; the 12B has both branches side by side.
pub(crate) fn stablelm(keys: &Keys<'_>) -> Result<Decoder, ZooError> {
    let defaults = Defaults { kv_heads: Some(32), eps: 1e-5, partial: 0.25, ..DEFAULTS };
    let b = Basics::read(keys, defaults)?;
    let qkv = keys.flag_or("use_qkv_bias", false)?;
    let normed = keys.flag_or("qk_layernorm", false)?;
    let qk_norm = normed.then_some(QkNorm::Own(NormKind::LayerScale));
    let attention = Attention { bias: [qkv, qkv, qkv, false], qk_norm, ..b.rotary_attention()? };
    let side_by_side = keys.flag_or("use_parallel_residual", false)?;
    let layer = Layer {
        place: if side_by_side { Place::Parallel } else { Place::Before },
        ..Layer::new(LayerNorm, b.eps, Mixer::Attention(attention), Mlp::Dense(b.dense(true)?))
    };
    Ok(b.decoder("stablelm", LayerNorm, b.alike(layer)))
}

/// StarCoder2 (Lozhkov et al. 2024): layer norms, a plain MLP, biases everywhere.
pub(crate) fn starcoder2(keys: &Keys<'_>) -> Result<Decoder, ZooError> {
    let defaults = Defaults {
        kv_heads: Some(2),
        tied: true,
        eps: 1e-5,
        std: 0.018_042,
        activation: "gelu_pytorch_tanh",
        ..DEFAULTS
    };
    let b = Basics::read(keys, defaults)?;
    let bias = keys.flag_or("use_bias", true)?;
    let window = keys.optional_dim(&["sliding_window"])?;
    let attention = Attention { bias: [bias; 4], window, ..b.rotary_attention()? };
    let mlp = Dense { bias: [bias; 2], ..b.dense(false)? };
    let layer = Layer::new(LayerNorm, b.eps, Mixer::Attention(attention), Mlp::Dense(mlp));
    Ok(b.decoder("starcoder2", LayerNorm, b.alike(layer)))
}

/// Granite (IBM 2024): factors on the embedding, the scores, each branch and the logits.
pub(crate) fn granite(keys: &Keys<'_>) -> Result<Decoder, ZooError> {
    let b = Basics::read(keys, DEFAULTS)?;
    let bias = keys.flag_or("mlp_bias", false)?;
    let mlp = Dense { bias: [bias; 2], ..b.dense(true)? };
    granite_of(keys, &b, "granite", Mlp::Dense(mlp))
}

/// Granite's factors round any feed-forward part.
pub(super) fn granite_of(
    keys: &Keys<'_>,
    b: &Basics<'_, '_>,
    family: &'static str,
    mlp: Mlp,
) -> Result<Decoder, ZooError> {
    let factor = |name| keys.positive_or(name, 1.0);
    let scale = Some(factor("attention_multiplier")?);
    let attention = Attention { bias: b.attention_bias(false)?, scale, ..b.rotary_attention()? };
    let besides_one = |x: f64| Some(x).filter(|x| *x != 1.0);
    let layer = Layer {
        residual: besides_one(factor("residual_multiplier")?),
        ..Layer::new(Rms, b.eps, Mixer::Attention(attention), mlp)
    };
    let mut decoder = b.decoder(family, Rms, b.alike(layer));
    decoder.embed.scale = besides_one(factor("embedding_multiplier")?);
    decoder.head.scale = besides_one(factor("logits_scaling")?.recip());
    Ok(decoder)
}

/// SmolLM3: every fourth layer has no positions.
pub(crate) fn smollm3(keys: &Keys<'_>) -> Result<Decoder, ZooError> {
    let defaults = Defaults { kv_heads: Some(4), tied: true, theta: 2_000_000.0, ..DEFAULTS };
    let b = Basics::read(keys, defaults)?;
    let attention = Attention { bias: b.attention_bias(false)?, ..b.rotary_attention()? };
    let bias = keys.flag_or("mlp_bias", false)?;
    let mlp = Dense { bias: [bias; 2], ..b.dense(true)? };
    let window = match keys.flag_or("use_sliding_window", false)? {
        true => keys.optional_dim(&["sliding_window"])?,
        false => None,
    };
    let turning = no_rope(keys, b.layers, 4)?;
    let layers = turning.into_iter().map(|turns| {
        let rotary = attention.rotary.filter(|_| turns);
        let window = window.filter(|_| turns);
        let attention = Attention { rotary, window, ..attention.clone() };
        Layer::new(Rms, b.eps, Mixer::Attention(attention), Mlp::Dense(mlp.clone()))
    });
    Ok(b.decoder("smollm3", Rms, layers.collect()))
}

/// Which layers turn: `no_rope_layers` has a 1 for those that do, else all but every `interval`-th.
pub(super) fn no_rope(keys: &Keys<'_>, layers: u32, interval: u64) -> Result<Vec<bool>, ZooError> {
    let flag = |v: &serde_json::Value| match v.as_u64() {
        Some(n @ (0 | 1)) => Ok(n == 1),
        _ => Err(keys.error("no_rope_layers", show(v), "write 0 or 1 for each layer")),
    };
    match keys.list("no_rope_layers")? {
        // An empty list is what the library writes for "by the interval".
        Some(items) if items.len() >= layers as usize => items[..layers as usize].iter().map(flag).collect(),
        Some([]) | None => {
            let interval = keys.dim_or(&["no_rope_layer_interval"], interval)?;
            Ok((1..=u64::from(layers)).map(|k| k % interval != 0).collect())
        }
        Some(items) => {
            let fix = format!("write 0 or 1 for each of {layers} layers");
            Err(keys.error("no_rope_layers", format!("a list of {}", items.len()), fix))
        }
    }
}

/// EXAONE 4 (LG 2025): norms on each branch's output, per-head norms, windows in a pattern; without any, all layers turn.
pub(crate) fn exaone4(keys: &Keys<'_>) -> Result<Decoder, ZooError> {
    let b = Basics::read(keys, Defaults { kv_heads: Some(32), eps: 1e-5, ..DEFAULTS })?;
    let attention = Attention { qk_norm: Some(QkNorm::Shared(Rms)), ..b.rotary_attention()? };
    let mlp = b.dense(true)?;
    let window = keys.dim_or_null("sliding_window", 4096)?;
    let last = u64::from(b.layers) - 1;
    let sliding = match (window, keys.get(&["sliding_window_pattern"])) {
        (None, _) => vec![false; b.layers as usize],
        (Some(_), Some((key, serde_json::Value::String(word)))) if !word.is_empty() => {
            if word.chars().any(|c| c != 'L' && c != 'G') {
                return Err(keys.error(key, format!("`{word}`"), "write letters L and G, or a number"));
            }
            let letters = word.as_bytes();
            b.sliding(|k| letters[(k % letters.len() as u64) as usize] == b'L' && k != last)?
        }
        (Some(_), _) => {
            let period = keys.dim_or(&["sliding_window_pattern"], 4)?;
            b.sliding(|k| (k + 1) % period != 0 && k != last)?
        }
    };
    let layers = sliding.into_iter().map(|sliding| {
        let rotary = attention.rotary.filter(|_| sliding || window.is_none());
        let attention = Attention { rotary, window: window.filter(|_| sliding), ..attention.clone() };
        let place = Place::Inside;
        Layer { place, ..Layer::new(Rms, b.eps, Mixer::Attention(attention), Mlp::Dense(mlp.clone())) }
    });
    Ok(b.decoder("exaone4", Rms, layers.collect()))
}

/// GLM-4-0414: GLM-4 with norms after each branch as well.
pub(crate) fn glm4(keys: &Keys<'_>) -> Result<Decoder, ZooError> {
    let defaults =
        Defaults { kv_heads: Some(2), head_dim: Some(128), partial: 0.5, eps: 1.5625e-7, ..DEFAULTS };
    let b = Basics::read(keys, defaults)?;
    let qkv = keys.flag_or("attention_bias", true)?;
    let attention = Attention { bias: [qkv, qkv, qkv, false], ..b.rotary_attention()? };
    let layer = Layer {
        place: Place::Around,
        ..Layer::new(Rms, b.eps, Mixer::Attention(attention), Mlp::Dense(b.dense(true)?))
    };
    Ok(b.decoder("glm4", Rms, b.alike(layer)))
}

/// Nemotron 3 and 4 (Parmar et al. 2024): layer norms whose stored scale is one less, squared ReLU, no gate.
pub(crate) fn nemotron(keys: &Keys<'_>) -> Result<Decoder, ZooError> {
    let defaults = Defaults { eps: 1e-5, std: 0.0134, partial: 0.5, activation: "relu2", ..DEFAULTS };
    let b = Basics::read(keys, defaults)?;
    let attention = Attention { bias: b.attention_bias(false)?, ..b.rotary_attention()? };
    let bias = keys.flag_or("mlp_bias", false)?;
    let mlp = Dense { bias: [bias; 2], ..b.dense(false)? };
    let layer = Layer::new(LayerNorm, b.eps, Mixer::Attention(attention), Mlp::Dense(mlp));
    Ok(b.decoder("nemotron", LayerNorm, b.alike(layer)))
}

/// Cohere Command R (2024): one norm without shift for both branches, a factor on the logits.
pub(crate) fn cohere(keys: &Keys<'_>) -> Result<Decoder, ZooError> {
    cohere_of(keys, "cohere", false)
}

/// Cohere Command R7B and A (2024): three of four layers see a window; only those have positions.
pub(crate) fn cohere2(keys: &Keys<'_>) -> Result<Decoder, ZooError> {
    cohere_of(keys, "cohere2", true)
}

fn cohere_of(keys: &Keys<'_>, family: &'static str, windowed: bool) -> Result<Decoder, ZooError> {
    let norm = NormKind::LayerScale;
    let defaults = Defaults { tied: true, eps: 1e-5, theta: 500_000.0, ..DEFAULTS };
    let b = Basics::read(keys, defaults)?;
    let normed = !windowed && keys.flag_or("use_qk_norm", false)?;
    let qk_norm = normed.then_some(QkNorm::Own(norm));
    let attention = Attention { bias: b.attention_bias(false)?, qk_norm, ..b.rotary_attention()? };
    let mlp = b.dense(true)?;
    let sliding = match windowed {
        true => {
            let period = keys.dim_or(&["sliding_window_pattern"], 4)?;
            b.sliding(|k| (k + 1) % period != 0)?
        }
        false => vec![false; b.layers as usize],
    };
    let window = if windowed { keys.dim_or_null("sliding_window", 4096)? } else { None };
    let layers = sliding.into_iter().map(|sliding| {
        let rotary = attention.rotary.filter(|_| sliding || !windowed);
        let attention = Attention { rotary, window: window.filter(|_| sliding), ..attention.clone() };
        let place = Place::Parallel;
        Layer { place, ..Layer::new(norm, b.eps, Mixer::Attention(attention), Mlp::Dense(mlp.clone())) }
    });
    let mut decoder = b.decoder(family, norm, layers.collect());
    decoder.head.scale = Some(keys.positive_or("logit_scale", 0.0625)?);
    decoder.embed = Embed::default();
    Ok(decoder)
}
