//! Mixtures of experts on grouped-query attention: Mixtral, Qwen 2 and 3 MoE, OLMoE, Phi-3.5-MoE, Granite MoE, DBRX, gpt-oss,
//! MiniMax M2, Llama 4, GLM-4.5. Which layers have experts, what routes, and what every token visits besides differ.

use super::common::{Basics, DEFAULTS, Defaults, HEADS, even_heads, rotary};
use super::decoder::{Decoder, Head, Layer};
use super::keys::Keys;
use super::kin::{granite_of, no_rope};
use super::llama::{Kin, LLAMA, MISTRAL, QWEN2, QWEN3, Windowed};
use super::mixer::{Attention, Mixer, QkNorm};
use super::mlp::{Dense, Experts, Mlp};
use crate::ZooError;
use meshwright_ir::NormKind::{self, Layer as LayerNorm, Rms};
use meshwright_ir::{ActivationKind, RouteKind, ScoreBias, Scores};

/// Experts, how many a token visits, and their width by the usual keys.
pub(super) fn routed(
    b: &Basics<'_, '_>,
    inner: &[&'static str],
    experts: u64,
    top_k: u64,
) -> Result<Experts, ZooError> {
    let keys = b.keys;
    let experts = keys.dim_or(&["num_local_experts", "num_experts", "n_routed_experts"], experts)?;
    let top_k = keys.dim_or(&["num_experts_per_tok", "top_k_experts", "experts_per_token"], top_k)?;
    if top_k > experts {
        let fix = format!("write at most the number of experts ({experts})");
        return Err(keys.error("num_experts_per_tok", top_k.to_string(), fix));
    }
    Ok(Experts::new(experts, top_k, keys.dim(inner)?, b.activation()?))
}

/// Notes the correction biases of a router, which no gradient reaches.
pub(super) fn note_buffers(keys: &Keys<'_>, layers: u64, experts: u64) {
    let n = layers.saturating_mul(experts);
    keys.assume(format!("{n} correction biases of routers are buffers, not counted as parameters"));
}

/// The same layer throughout.
fn alike(kin: &Kin, b: &Basics<'_, '_>, norm: NormKind, experts: Experts) -> Result<Decoder, ZooError> {
    let attention = kin.attention(b)?;
    let layers = kin.windows(b.keys, b.layers)?.into_iter().map(|window| {
        let attention = Attention { window, ..attention.clone() };
        Layer::new(norm, b.eps, Mixer::Attention(attention), Mlp::Experts(experts.clone()))
    });
    Ok(b.decoder(kin.family, norm, layers.collect()))
}

/// Mixtral (Jiang et al. 2024).
pub(crate) fn mixtral(keys: &Keys<'_>) -> Result<Decoder, ZooError> {
    let defaults = Defaults { kv_heads: Some(8), eps: 1e-5, theta: 1e6, ..DEFAULTS };
    let kin = Kin { family: "mixtral", defaults, windowed: Windowed::IfSet(None), ..MISTRAL };
    let b = Basics::read(keys, defaults)?;
    let experts = routed(&b, &["intermediate_size"], 8, 2)?;
    alike(&kin, &b, Rms, experts)
}

/// OLMoE (Muennighoff et al. 2024): queries and keys normalised over all heads.
pub(crate) fn olmoe(keys: &Keys<'_>) -> Result<Decoder, ZooError> {
    let defaults = Defaults { eps: 1e-5, ..DEFAULTS };
    let kin = Kin { family: "olmoe", defaults, qk_norm: Some(QkNorm::Whole(Rms)), ..LLAMA };
    let b = Basics::read(keys, defaults)?;
    let experts = routed(&b, &["intermediate_size"], 64, 8)?;
    alike(&kin, &b, Rms, experts)
}

/// Phi-3.5-MoE (2024): layer norms, biases by two keys.
pub(crate) fn phimoe(keys: &Keys<'_>) -> Result<Decoder, ZooError> {
    let defaults = Defaults { kv_heads: Some(8), eps: 1e-5, theta: 1e6, ..DEFAULTS };
    let kin = Kin { family: "phimoe", defaults, windowed: Windowed::IfSet(None), ..LLAMA };
    let b = Basics::read(keys, defaults)?;
    let experts = routed(&b, &["intermediate_size"], 16, 2)?;
    let mut decoder = alike(&kin, &b, LayerNorm, experts)?;
    decoder.head.bias = keys.flag_or("lm_head_bias", false)?;
    Ok(decoder)
}

/// Granite MoE (IBM 2024).
pub(crate) fn granitemoe(keys: &Keys<'_>) -> Result<Decoder, ZooError> {
    let b = Basics::read(keys, DEFAULTS)?;
    let experts = routed(&b, &["intermediate_size"], 8, 2)?;
    granite_of(keys, &b, "granitemoe", Mlp::Experts(experts))
}

/// Qwen 1.5 and 2 MoE: a shared expert behind a gate.
pub(crate) fn qwen2_moe(keys: &Keys<'_>) -> Result<Decoder, ZooError> {
    let defaults = Defaults { kv_heads: Some(16), ..DEFAULTS };
    let b = Basics::read(keys, defaults)?;
    let bias = keys.flag_or("qkv_bias", true)?;
    let kin = Kin { family: "qwen2_moe", defaults, qkv_bias: bias, ..QWEN2 };
    let experts = routed(&b, &["moe_intermediate_size"], 60, 4)?;
    let inner = keys.dim_or(&["shared_expert_intermediate_size"], 5632)?;
    let shared = Some(Dense::new(inner, experts.kind, true));
    sparse(&kin, &b, Experts { shared, shared_gate: true, ..experts })
}

/// Qwen3 MoE.
pub(crate) fn qwen3_moe(keys: &Keys<'_>) -> Result<Decoder, ZooError> {
    let defaults = Defaults { kv_heads: Some(4), ..DEFAULTS };
    let kin = Kin { family: "qwen3_moe", defaults, ..QWEN3 };
    let b = Basics::read(keys, defaults)?;
    let experts = routed(&b, &["moe_intermediate_size"], 128, 8)?;
    sparse(&kin, &b, experts)
}

/// Qwen's pattern: experts in every `decoder_sparse_step`-th layer but those of `mlp_only_layers`.
pub(super) fn sparse_layers(keys: &Keys<'_>, layers: u32) -> Result<Vec<bool>, ZooError> {
    let step = keys.dim_or(&["decoder_sparse_step"], 1)?;
    let dense = keys.positions("mlp_only_layers")?.unwrap_or_default();
    Ok((0..u64::from(layers)).map(|k| (k + 1) % step == 0 && !dense.contains(&k)).collect())
}

fn sparse(kin: &Kin, b: &Basics<'_, '_>, experts: Experts) -> Result<Decoder, ZooError> {
    let attention = kin.attention(b)?;
    let windows = kin.windows(b.keys, b.layers)?;
    let routes = sparse_layers(b.keys, b.layers)?;
    let dense = match routes.iter().all(|r| *r) {
        true => None,
        false => Some(b.dense(true)?),
    };
    let layers = windows.into_iter().zip(routes).map(|(window, routes)| {
        let mlp = match &dense {
            Some(dense) if !routes => Mlp::Dense(dense.clone()),
            _ => Mlp::Experts(experts.clone()),
        };
        Layer::new(Rms, b.eps, Mixer::Attention(Attention { window, ..attention.clone() }), mlp)
    });
    Ok(b.decoder(kin.family, Rms, layers.collect()))
}

/// DBRX (Databricks 2024): norms without shift; its sizes stand in two objects.
pub(crate) fn dbrx(keys: &Keys<'_>) -> Result<Decoder, ZooError> {
    let empty = |name| keys.within(name, serde_json::Map::new());
    let attn = keys.nested("attn_config")?.unwrap_or_else(|| empty("attn_config"));
    let ffn = keys.nested("ffn_config")?.unwrap_or_else(|| empty("ffn_config"));
    let b = Basics::with_heads(keys, Defaults { eps: 1e-5, ..DEFAULTS }, |keys, _, hidden| {
        let heads = keys.dim(&HEADS)?;
        Ok((heads, attn.dim_or(&["kv_n_heads"], 1)?, even_heads(keys, hidden, heads)?))
    })?;
    let kind = match ffn.get(&["ffn_act_fn"]) {
        Some((_, serde_json::Value::Object(f))) => {
            ffn.within("ffn_act_fn", f.clone()).activation("name", "silu")?
        }
        _ => ffn.activation("ffn_act_fn", "silu")?,
    };
    let (experts, top_k) = (ffn.dim_or(&["moe_num_experts"], 4)?, ffn.dim_or(&["moe_top_k"], 1)?);
    if top_k > experts {
        let fix = format!("write at most the number of experts ({experts})");
        return Err(ffn.error("moe_top_k", top_k.to_string(), fix));
    }
    let experts = Experts::new(experts, top_k, ffn.dim_or(&["ffn_hidden_size"], 3584)?, kind);
    let theta = attn.optional_positive(&["rope_theta"])?.unwrap_or(10_000.0);
    let turning = Some(rotary(keys, b.head_dim, theta, 1.0)?);
    let attention = Attention { rotary: turning, ..b.attention() };
    let norm = NormKind::LayerScale;
    let layer = Layer::new(norm, b.eps, Mixer::Attention(attention), Mlp::Experts(experts));
    Ok(b.decoder("dbrx", norm, b.alike(layer)))
}

/// gpt-oss (OpenAI 2025): sinks in the softmax, biases throughout, every other layer sees a window.
pub(crate) fn gpt_oss(keys: &Keys<'_>) -> Result<Decoder, ZooError> {
    let defaults =
        Defaults { kv_heads: Some(8), head_dim: Some(64), eps: 1e-5, theta: 150_000.0, ..DEFAULTS };
    let b = Basics::read(keys, defaults)?;
    // x σ(1.702 x) gates; the published kernel also clamps at 7 and adds 1 to what is gated.
    keys.assume("gate x·σ(1.702 x) without the clamp, and without the 1 added to what it gates");
    let experts = Experts {
        kind: ActivationKind::QuickGelu,
        router_bias: true,
        expert_bias: true,
        ..routed(&b, &["intermediate_size"], 128, 4)?
    };
    let scores = Scores { softcap: None, bias: ScoreBias::Sinks };
    let attention = Attention { bias: b.attention_bias(true)?, scores, ..b.rotary_attention()? };
    let window = keys.dim_or_null("sliding_window", 128)?;
    let layers = b.sliding(|k| k % 2 == 0)?.into_iter().map(|sliding| {
        let attention = Attention { window: window.filter(|_| sliding), ..attention.clone() };
        Layer::new(Rms, b.eps, Mixer::Attention(attention), Mlp::Experts(experts.clone()))
    });
    Ok(b.decoder("gpt_oss", Rms, layers.collect()))
}

/// MiniMax M2 (2025): sigmoid routes, queries and keys normalised over all heads.
pub(crate) fn minimax_m2(keys: &Keys<'_>) -> Result<Decoder, ZooError> {
    let defaults = Defaults { kv_heads: Some(8), head_dim: Some(128), theta: 5_000_000.0, ..DEFAULTS };
    let kin = Kin {
        family: "minimax_m2",
        defaults,
        attention_bias: None,
        qk_norm: Some(QkNorm::Whole(Rms)),
        ..LLAMA
    };
    let b = Basics::read(keys, defaults)?;
    let experts = routed(&b, &["intermediate_size"], 256, 8)?;
    note_buffers(keys, u64::from(b.layers), experts.experts);
    alike(&kin, &b, Rms, Experts { route: RouteKind::Sigmoid, ..experts })
}

/// GLM-4.5 (2025): dense layers first, a shared expert, sigmoid routes.
pub(crate) fn glm4_moe(keys: &Keys<'_>) -> Result<Decoder, ZooError> {
    let defaults = Defaults { kv_heads: Some(8), eps: 1e-5, partial: 0.5, ..DEFAULTS };
    let normed = keys.flag_or("use_qk_norm", false)?;
    let qk_norm = normed.then_some(QkNorm::Shared(Rms));
    let kin = Kin { family: "glm4_moe", defaults, qk_norm, out_bias: false, ..LLAMA };
    let b = Basics::read(keys, defaults)?;
    let attention = Mixer::Attention(kin.attention(&b)?);
    let layers = super::deepseek::layers(&b, attention, 1, 128, Some(8), 1, RouteKind::Sigmoid)?;
    Ok(b.decoder(kin.family, Rms, layers))
}

/// Llama 4, the decoder alone (Meta 2025): one expert and a shared one, chunks instead of windows, every fourth layer
/// without positions; queries and keys normalised after they turn.
pub(crate) fn llama4_text(keys: &Keys<'_>) -> Result<Decoder, ZooError> {
    let defaults =
        Defaults { kv_heads: Some(8), head_dim: Some(128), eps: 1e-5, theta: 500_000.0, ..DEFAULTS };
    let b = Basics::read(keys, defaults)?;
    let attention = Attention { bias: b.attention_bias(false)?, ..b.rotary_attention()? };
    let experts = routed(&b, &["intermediate_size"], 16, 1)?;
    let shared = Some(Dense::new(experts.inner, experts.kind, true));
    let experts = Experts { route: RouteKind::Sigmoid, shared, ..experts };
    let dense = Dense::new(keys.dim_or(&["intermediate_size_mlp"], 16_384)?, experts.kind, true);
    let step = keys.dim_or(&["interleave_moe_layer_step"], 1)?;
    let listed = keys.positions("moe_layers")?;
    let routes = |k: u64| match &listed {
        Some(layers) => layers.contains(&k),
        None => (k + 1).is_multiple_of(step),
    };
    let qk_norm = keys.flag_or("use_qk_norm", true)?.then_some(QkNorm::AfterPositions);
    let chunk = keys.dim_or_null("attention_chunk_size", 8192)?;
    if let Some(chunk) = chunk {
        keys.assume(format!("windows of {chunk} tokens in place of chunks of as many"));
    }
    let layers = no_rope(keys, b.layers, 4)?.into_iter().zip(0..).map(|(turns, k)| {
        let attention = match turns {
            true => Attention { qk_norm, window: chunk, ..attention.clone() },
            false => Attention { rotary: None, ..attention.clone() },
        };
        let mlp = if routes(k) { Mlp::Experts(experts.clone()) } else { Mlp::Dense(dense.clone()) };
        Layer::new(Rms, b.eps, Mixer::Attention(attention), mlp)
    });
    let decoder = b.decoder("llama4_text", Rms, layers.collect());
    let head = Head::new(Rms, b.tied);
    Ok(Decoder { head, ..decoder })
}
