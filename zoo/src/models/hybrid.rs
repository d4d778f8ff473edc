//! Decoders that run recurrences along the sequence, alone or between attention layers: Mamba 1 and 2, Jamba, Nemotron-H,
//! Qwen3-Next and Qwen 3.5.

use super::common::{Basics, DEFAULTS, Defaults, HIDDEN, LAYERS};
use super::decoder::{Decoder, Embed, Head, Layer, Place};
use super::experts::{routed, sparse_layers};
use super::keys::{Keys, show};
use super::mixer::{Attention, Mixer, QkNorm};
use super::mlp::{Dense, Experts, Mlp};
use super::recurrence::{Kind, Recurrence};
use crate::ZooError;
use meshwright_ir::NormKind::Rms;
use meshwright_ir::{Real, RouteKind};

/// The rank of Mamba's steps: a number, or `auto` for a sixteenth of the width, rounded up.
fn step_rank(keys: &Keys<'_>, name: &'static str, hidden: u64) -> Result<u64, ZooError> {
    match keys.get(&[name]) {
        None => Ok(hidden.div_ceil(16)),
        Some((_, v)) if v.as_str() == Some("auto") => Ok(hidden.div_ceil(16)),
        Some(_) => keys.dim(&[name]),
    }
}

/// A mixer without a feed-forward part.
fn alone(mixer: Mixer, eps: Real) -> Layer {
    Layer { place: Place::Before, norm: Rms, eps, mixer: Some(mixer), cross: None, mlp: None, residual: None }
}

/// Mamba (Gu and Dao 2023).
pub(crate) fn mamba(keys: &Keys<'_>) -> Result<Decoder, ZooError> {
    let (hidden, layers) = (keys.dim(&HIDDEN)?, keys.layers(&LAYERS)?);
    let inner = match keys.optional_dim(&["intermediate_size"])? {
        Some(n) => n,
        None => keys.dim_or(&["expand"], 2)?.saturating_mul(hidden),
    };
    let kind = Kind::Selective {
        inner,
        state: keys.dim_or(&["state_size"], 16)?,
        rank: step_rank(keys, "time_step_rank", hidden)?,
        normed: false,
    };
    stack(keys, "mamba", kind, hidden, layers, true)
}

/// Mamba 2 (Dao and Gu 2024).
pub(crate) fn mamba2(keys: &Keys<'_>) -> Result<Decoder, ZooError> {
    let (hidden, layers) = (keys.dim(&HIDDEN)?, keys.layers(&LAYERS)?);
    let heads = keys.dim_or(&["num_heads"], 128)?;
    let head_dim = keys.dim_or(&["head_dim"], 64)?;
    let inner = keys.dim_or(&["expand"], 2)?.saturating_mul(hidden);
    if heads.checked_mul(head_dim) != Some(inner) {
        let fix = format!("make heads x head_dim the inner width, expand x hidden_size ({inner})");
        return Err(keys.error("num_heads", format!("{heads} of {head_dim} features"), fix));
    }
    let groups = keys.dim_or(&["n_groups"], 8)?;
    let state = keys.dim_or(&["state_size"], 128)?;
    divides(keys, "n_groups", groups, heads)?;
    stack(keys, "mamba2", Kind::Ssd { heads, head_dim, state, groups, norm_groups: 1 }, hidden, layers, false)
}

fn divides(keys: &Keys<'_>, name: &str, groups: u64, heads: u64) -> Result<(), ZooError> {
    match heads % groups {
        0 => Ok(()),
        _ => Err(keys.error(name, groups.to_string(), format!("write a divisor of the {heads} heads"))),
    }
}

fn stack(
    keys: &Keys<'_>,
    family: &'static str,
    kind: Kind,
    hidden: u64,
    layers: u32,
    tied: bool,
) -> Result<Decoder, ZooError> {
    let eps = Real(keys.positive_or("layer_norm_epsilon", 1e-5)?);
    let recurrence = Recurrence {
        kind,
        kernel: keys.dim_or(&["conv_kernel"], 4)?,
        conv_bias: keys.flag_or("use_conv_bias", true)?,
        bias: keys.flag_or("use_bias", false)?,
        eps,
    };
    let layer = alone(Mixer::Recurrence(recurrence), eps);
    Ok(Decoder {
        family,
        hidden,
        vocab: keys.dim(&["vocab_size"])?,
        max_sequence: None,
        std: keys.positive_or("initializer_range", 0.1)?,
        eps,
        embed: Embed::default(),
        layers: vec![layer; layers as usize],
        head: Head::new(Rms, keys.flag_or("tie_word_embeddings", tied)?),
        towers: vec![],
    })
}

/// Jamba (Lieber et al. 2024): one attention layer among Mamba layers, experts in every other layer.
pub(crate) fn jamba(keys: &Keys<'_>) -> Result<Decoder, ZooError> {
    let b = Basics::read(keys, Defaults { kv_heads: Some(8), ..DEFAULTS })?;
    let recurrence = Recurrence {
        kind: Kind::Selective {
            inner: keys.dim_or(&["mamba_expand"], 2)?.saturating_mul(b.hidden),
            state: keys.dim_or(&["mamba_d_state"], 16)?,
            rank: step_rank(keys, "mamba_dt_rank", b.hidden)?,
            normed: true,
        },
        kernel: keys.dim_or(&["mamba_d_conv"], 4)?,
        conv_bias: keys.flag_or("mamba_conv_bias", true)?,
        bias: keys.flag_or("mamba_proj_bias", false)?,
        eps: b.eps,
    };
    let experts = routed(&b, &["intermediate_size"], 16, 2)?;
    let dense = b.dense(true)?;
    let every = |period, offset, defaults: (u64, u64)| -> Result<(u64, u64), ZooError> {
        Ok((keys.dim_or(&[period], defaults.0)?, keys.count_or(&[offset], defaults.1)?))
    };
    let attends = every("attn_layer_period", "attn_layer_offset", (8, 4))?;
    let routes = every("expert_layer_period", "expert_layer_offset", (2, 1))?;
    let layers = (0..u64::from(b.layers)).map(|k| {
        let mixer = match k % attends.0 == attends.1 {
            true => Mixer::Attention(b.attention()),
            false => Mixer::Recurrence(recurrence.clone()),
        };
        let mlp = match k % routes.0 == routes.1 && experts.experts > 1 {
            true => Mlp::Experts(experts.clone()),
            false => Mlp::Dense(dense.clone()),
        };
        Layer::new(Rms, b.eps, mixer, mlp)
    });
    Ok(b.decoder("jamba", Rms, layers.collect()))
}

/// Nemotron-H and Nemotron 3 (NVIDIA 2025): each layer is one thing, by the letters of `hybrid_override_pattern`: M Mamba 2,
/// `*` attention, `-` MLP, E experts.
pub(crate) fn nemotron_h(keys: &Keys<'_>) -> Result<Decoder, ZooError> {
    let kinds = block_kinds(keys)?;
    let defaults =
        Defaults { kv_heads: Some(8), head_dim: Some(128), eps: 1e-5, activation: "relu2", ..DEFAULTS };
    let b = Basics::read(keys, defaults)?;
    if b.layers as usize != kinds.len() {
        let fix = format!("make it the length of the pattern, {}", kinds.len());
        return Err(keys.error("num_hidden_layers", b.layers.to_string(), fix));
    }
    let heads = keys.dim_or(&["mamba_num_heads"], 128)?;
    let groups = keys.dim_or(&["n_groups"], 8)?;
    divides(keys, "n_groups", groups, heads)?;
    let head_dim = keys.dim_or(&["mamba_head_dim"], 64)?;
    let recurrence = Recurrence {
        kind: Kind::Ssd {
            heads,
            head_dim,
            state: keys.dim_or(&["ssm_state_size"], 128)?,
            groups,
            norm_groups: groups,
        },
        kernel: keys.dim_or(&["conv_kernel"], 4)?,
        conv_bias: keys.flag_or("use_conv_bias", true)?,
        bias: keys.flag_or("use_bias", false)?,
        eps: b.eps,
    };
    let attention = Attention { bias: b.attention_bias(false)?, ..b.attention() };
    let bias = [keys.flag_or("mlp_bias", false)?; 2];
    let kind = b.activation()?;
    let mlp = |mlp| Layer {
        place: Place::Before,
        norm: Rms,
        eps: b.eps,
        mixer: None,
        cross: None,
        mlp: Some(mlp),
        residual: None,
    };
    let layer = |kind_of: &BlockKind| -> Result<Layer, ZooError> {
        Ok(match kind_of {
            BlockKind::Mamba => alone(Mixer::Recurrence(recurrence.clone()), b.eps),
            BlockKind::Attention => alone(Mixer::Attention(attention.clone()), b.eps),
            BlockKind::Mlp => {
                let inner = keys.dim(&["intermediate_size"])?;
                mlp(Mlp::Dense(Dense { bias, ..Dense::new(inner, kind, false) }))
            }
            BlockKind::Experts => {
                let experts = routed(&b, &["moe_intermediate_size"], 8, 2)?;
                let inner = keys.dim_or(&["moe_shared_expert_intermediate_size"], 7688)?;
                let shared = keys.count_or(&["n_shared_experts"], 1)?;
                let shared = (shared > 0).then(|| Dense { bias, ..Dense::new(inner, kind, false) });
                mlp(Mlp::Experts(Experts { gated: false, route: RouteKind::Sigmoid, shared, ..experts }))
            }
        })
    };
    let layers = kinds.iter().map(layer).collect::<Result<_, _>>()?;
    Ok(b.decoder("nemotron_h", Rms, layers))
}

enum BlockKind {
    Mamba,
    Attention,
    Mlp,
    Experts,
}

fn block_kinds(keys: &Keys<'_>) -> Result<Vec<BlockKind>, ZooError> {
    if let Some(items) = keys.list("layers_block_type")? {
        let kind = |v: &serde_json::Value| match v.as_str() {
            Some("mamba" | "linear_attention") => Ok(BlockKind::Mamba),
            Some("attention" | "full_attention") => Ok(BlockKind::Attention),
            Some("mlp") => Ok(BlockKind::Mlp),
            Some("moe") => Ok(BlockKind::Experts),
            _ => Err(keys.error("layers_block_type", show(v), "use mamba, attention, mlp or moe")),
        };
        return items.iter().map(kind).collect();
    }
    let Some(word) = keys.word("hybrid_override_pattern")? else {
        let fix = "write a letter for each layer: M, *, - or E";
        return Err(keys.error("hybrid_override_pattern", "missing", fix));
    };
    let kind = |c: char| match c {
        'M' => Ok(BlockKind::Mamba),
        '*' => Ok(BlockKind::Attention),
        '-' => Ok(BlockKind::Mlp),
        'E' => Ok(BlockKind::Experts),
        c => Err(keys.error("hybrid_override_pattern", format!("the letter `{c}`"), "use M, *, - and E")),
    };
    word.chars().map(kind).collect()
}

/// Qwen3-Next (2025): three of four layers run the gated delta rule; attention is gated; experts as in Qwen2 MoE.
pub(crate) fn qwen3_next(keys: &Keys<'_>) -> Result<Decoder, ZooError> {
    qwen_hybrid(keys, "qwen3_next", Some((512, 10)))
}
/// Qwen 3.5 MoE, the decoder alone.
pub(crate) fn qwen3_5_moe_text(keys: &Keys<'_>) -> Result<Decoder, ZooError> {
    qwen_hybrid(keys, "qwen3_5_moe_text", Some((256, 8)))
}
/// Qwen 3.5, the decoder alone.
pub(crate) fn qwen3_5_text(keys: &Keys<'_>) -> Result<Decoder, ZooError> {
    qwen_hybrid(keys, "qwen3_5_text", None)
}

fn qwen_hybrid(keys: &Keys<'_>, family: &'static str, moe: Option<(u64, u64)>) -> Result<Decoder, ZooError> {
    let kv_heads = if moe.is_some() { 2 } else { 4 };
    let defaults = Defaults { kv_heads: Some(kv_heads), head_dim: Some(256), partial: 0.25, ..DEFAULTS };
    let b = Basics::read(keys, defaults)?;
    let attention = Attention {
        bias: b.attention_bias(false)?,
        qk_norm: Some(QkNorm::Shared(Rms)),
        gated: true,
        ..b.rotary_attention()?
    };
    let key_heads = keys.dim_or(&["linear_num_key_heads"], 16)?;
    let value_heads = keys.dim_or(&["linear_num_value_heads"], if moe.is_some() { 32 } else { 48 })?;
    divides(keys, "linear_num_key_heads", key_heads, value_heads)?;
    let recurrence = Recurrence {
        kind: Kind::Delta {
            key_heads,
            key_dim: keys.dim_or(&["linear_key_head_dim"], 128)?,
            value_heads,
            value_dim: keys.dim_or(&["linear_value_head_dim"], 128)?,
        },
        kernel: keys.dim_or(&["linear_conv_kernel_dim"], 4)?,
        conv_bias: false,
        bias: false,
        eps: b.eps,
    };
    let experts = match moe {
        None => None,
        Some((experts, top_k)) => {
            let experts = routed(&b, &["moe_intermediate_size"], experts, top_k)?;
            let inner = keys.dim_or(&["shared_expert_intermediate_size"], 512)?;
            let shared = Some(Dense::new(inner, experts.kind, true));
            Some(Experts { shared, shared_gate: true, ..experts })
        }
    };
    let routes = match &experts {
        Some(_) => sparse_layers(keys, b.layers)?,
        None => vec![false; b.layers as usize],
    };
    let dense = if routes.iter().all(|r| *r) { None } else { Some(b.dense(true)?) };
    let interval = keys.dim_or(&["full_attention_interval"], 4)?;
    let known = [("linear_attention", false), ("full_attention", true)];
    let attends = match keys.kinds("layer_types", b.layers, &known)? {
        Some(kinds) => kinds,
        None => (1..=u64::from(b.layers)).map(|k| k % interval == 0).collect(),
    };
    let layers = attends.into_iter().zip(routes).map(|(attends, routes)| {
        let mixer = match attends {
            true => Mixer::Attention(attention.clone()),
            false => Mixer::Recurrence(recurrence.clone()),
        };
        let mlp = match (&experts, &dense) {
            (Some(experts), _) if routes => Mlp::Experts(experts.clone()),
            (_, Some(dense)) => Mlp::Dense(dense.clone()),
            (Some(experts), None) => Mlp::Experts(experts.clone()),
            (None, None) => unreachable!("a model without experts has a dense part"),
        };
        Layer::new(Rms, b.eps, mixer, mlp)
    });
    Ok(b.decoder(family, Rms, layers.collect()))
}
