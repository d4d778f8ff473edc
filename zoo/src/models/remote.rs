//! Families whose code ships with their weights instead of in transformers: InternLM, Baichuan, XVERSE, Qwen 1, ChatGLM,
//! Phi-3-small, DeciLM. Their structure is that of the modelling files published beside the weights.

use super::common::{Basics, DEFAULTS, Defaults, HEADS, even_heads};
use super::decoder::{Decoder, Layer};
use super::keys::{Keys, show};
use super::mixer::{Attention, Mixer, alibi};
use super::mlp::{Dense, Mlp};
use crate::ZooError;
use meshwright_ir::NormKind::{Layer as LayerNorm, Rms};
use meshwright_ir::{ActivationKind, NormKind};
use serde_json::Value as Json;

/// A Llama layout throughout, with the given biases of q, k, v and the output.
fn llama_like(b: &Basics<'_, '_>, family: &'static str, attention: Attention) -> Result<Decoder, ZooError> {
    let layer = Layer::new(Rms, b.eps, Mixer::Attention(attention), Mlp::Dense(b.dense(true)?));
    Ok(b.decoder(family, Rms, b.alike(layer)))
}

/// InternLM 1: biases on all four matrices of attention.
pub(crate) fn internlm(keys: &Keys<'_>) -> Result<Decoder, ZooError> {
    let b = Basics::read(keys, DEFAULTS)?;
    let bias = [keys.flag_or("bias", true)?; 4];
    llama_like(&b, "internlm", Attention { bias, ..b.rotary_attention()? })
}

/// InternLM 2: the same with a fused matrix and key groups.
pub(crate) fn internlm2(keys: &Keys<'_>) -> Result<Decoder, ZooError> {
    let b = Basics::read(keys, DEFAULTS)?;
    let bias = [keys.flag_or("bias", true)?; 4];
    llama_like(&b, "internlm2", Attention { bias, ..b.rotary_attention()? })
}

/// Baichuan 1 and 2: the 7B turns heads, the 13B, whose file names no longest position, slopes scores.
pub(crate) fn baichuan(keys: &Keys<'_>) -> Result<Decoder, ZooError> {
    let b = Basics::read(keys, DEFAULTS)?;
    let attention = match keys.has("max_position_embeddings") {
        true => b.rotary_attention()?,
        false => {
            keys.assume("slopes on the scores, since there is no max_position_embeddings");
            Attention { scores: alibi(), ..b.attention() }
        }
    };
    llama_like(&b, "baichuan", attention)
}

/// XVERSE.
pub(crate) fn xverse(keys: &Keys<'_>) -> Result<Decoder, ZooError> {
    let b = Basics::read(keys, DEFAULTS)?;
    llama_like(&b, "xverse", b.rotary_attention()?)
}

/// Qwen 1: `intermediate_size` counts gate and up together; q, k and v have biases.
pub(crate) fn qwen(keys: &Keys<'_>) -> Result<Decoder, ZooError> {
    let b = Basics::read(keys, DEFAULTS)?;
    let out = !keys.flag_or("no_bias", true)?;
    let attention = Attention { bias: [true, true, true, out], ..b.rotary_attention()? };
    let both = keys.dim(&["intermediate_size"])?;
    let mlp = Dense { bias: [out; 2], ..Dense::new((both / 2).max(1), ActivationKind::Silu, true) };
    let layer = Layer::new(Rms, b.eps, Mixer::Attention(attention), Mlp::Dense(mlp));
    Ok(b.decoder("qwen", Rms, b.alike(layer)))
}

/// ChatGLM 2, 3 and GLM-4: half of each head turns, `padded_vocab_size` rows, gated MLP.
pub(crate) fn chatglm(keys: &Keys<'_>) -> Result<Decoder, ZooError> {
    let defaults = Defaults { eps: 1e-5, partial: 0.5, ..DEFAULTS };
    let b = Basics::with_heads(keys, defaults, |keys, _, hidden| {
        let heads = keys.dim(&HEADS)?;
        let kv_heads = match keys.flag_or("multi_query_attention", false)? {
            true => keys.dim_or(&["multi_query_group_num"], 1)?,
            false => heads,
        };
        let head_dim = match keys.optional_dim(&["kv_channels"])? {
            Some(n) => n,
            None => even_heads(keys, hidden, heads)?,
        };
        Ok((heads, kv_heads, head_dim))
    })?;
    let linear = keys.flag_or("add_bias_linear", false)?;
    let qkv = linear || keys.flag_or("add_qkv_bias", false)?;
    let norm = if keys.flag_or("rmsnorm", true)? { Rms } else { LayerNorm };
    let attention = Attention { bias: [qkv, qkv, qkv, linear], ..b.rotary_attention()? };
    let inner = keys.dim(&["ffn_hidden_size"])?;
    let mlp = Dense { bias: [linear; 2], ..Dense::new(inner, ActivationKind::Silu, true) };
    let layer = Layer::new(norm, b.eps, Mixer::Attention(attention), Mlp::Dense(mlp));
    let mut decoder = b.decoder("chatglm", norm, b.alike(layer));
    if !keys.flag_or("post_layer_norm", true)? {
        decoder.head.norm = None;
    }
    Ok(decoder)
}

/// Phi-3-small: layer norms, biases everywhere, gated GELU, tied; every other layer's block-sparse pattern is read as full.
pub(crate) fn phi3small(keys: &Keys<'_>) -> Result<Decoder, ZooError> {
    let b = Basics::read(keys, Defaults { tied: true, eps: 1e-5, theta: 1e6, ..DEFAULTS })?;
    if keys.get(&["blocksparse_block_size", "dense_attention_every_n_layers"]).is_some() {
        keys.assume("attention without block sparsity: every layer sees all earlier tokens");
    }
    let inner = keys.dim(&["ff_intermediate_size", "intermediate_size"])?;
    let attention = Attention { bias: [true; 4], ..b.rotary_attention()? };
    let mlp = Dense { bias: [true; 2], ..Dense::new(inner, ActivationKind::QuickGelu, true) };
    let layer = Layer::new(LayerNorm, b.eps, Mixer::Attention(attention), Mlp::Dense(mlp));
    Ok(b.decoder("phi3small", LayerNorm, b.alike(layer)))
}

/// DeciLM and Llama-Nemotron (Bercovich et al. 2025): a Llama pruned block by block, as `block_configs` says: key groups
/// and MLP width of their own, parts replaced by one matrix or left out.
pub(crate) fn decilm(keys: &Keys<'_>) -> Result<Decoder, ZooError> {
    let b = Basics::with_heads(keys, Defaults { eps: 1e-5, ..DEFAULTS }, |keys, _, hidden| {
        let heads = keys.dim(&HEADS)?;
        Ok((heads, heads, even_heads(keys, hidden, heads)?))
    })?;
    let attention = Attention { bias: b.attention_bias(false)?, ..b.rotary_attention()? };
    let bias = keys.flag_or("mlp_bias", false)?;
    let kind = b.activation()?;
    let Some(blocks) = keys.list("block_configs")? else {
        let fix = "write `block_configs`, an object for each layer";
        return Err(keys.error("block_configs", "missing", fix));
    };
    if blocks.len() != b.layers as usize {
        let fix = format!("write one object for each of {} layers", b.layers);
        return Err(keys.error("block_configs", format!("a list of {}", blocks.len()), fix));
    }
    let mut layers = Vec::with_capacity(blocks.len());
    for block in blocks {
        let Json::Object(block) = block else {
            return Err(keys.error("block_configs", show(block), "write an object for each layer"));
        };
        let block = keys.within("block_configs", block.clone());
        let part = |name| -> Result<Keys<'_>, ZooError> {
            Ok(match block.nested(name)? {
                Some(part) => part,
                None => block.within(name, serde_json::Map::new()),
            })
        };
        let (a, f) = (part("attention")?, part("ffn")?);
        let is = |keys: &Keys<'_>, name| Ok::<_, ZooError>(keys.flag(name)?.unwrap_or(false));
        let mixer = match (is(&a, "no_op")?, is(&a, "replace_with_linear")?) {
            (true, _) => None,
            (false, true) => Some(Mixer::Linear),
            (false, false) => {
                let group = a.dim(&["n_heads_in_group"])?;
                if !b.heads.is_multiple_of(group) {
                    let fix = format!("write a divisor of num_attention_heads ({})", b.heads);
                    return Err(a.error("n_heads_in_group", group.to_string(), fix));
                }
                Some(Mixer::Attention(Attention { kv_heads: b.heads / group, ..attention.clone() }))
            }
        };
        let mlp = match (is(&f, "no_op")?, is(&f, "replace_with_linear")?) {
            (true, _) => None,
            (false, true) => Some(Mlp::Linear),
            (false, false) => {
                let Some(times) = f.optional_positive(&["ffn_mult"])? else {
                    return Err(f.error("ffn_mult", "missing", "write a number above 0"));
                };
                // Two thirds of `times` widths, rounded up to 256 (DeciLM's modelling file).
                let inner =
                    ((2.0 * times * b.hidden as f64 / 3.0) as u64).clamp(1, 1 << 40).next_multiple_of(256);
                Some(Mlp::Dense(Dense { bias: [bias; 2], ..Dense::new(inner, kind, true) }))
            }
        };
        layers.push(Layer {
            place: super::decoder::Place::Before,
            norm: NormKind::Rms,
            eps: b.eps,
            mixer,
            cross: None,
            mlp,
            residual: None,
        });
    }
    Ok(b.decoder("nemotron-nas", Rms, layers))
}
