//! Latent attention and what usually comes with it: DeepSeek V2 to V3.2, Kimi K2, GLM-5, MiniCPM3. Dense layers come first,
//! then experts with shared ones; layers that predict further tokens are not part of the main model.

use super::common::{Basics, DEFAULTS, Defaults, HEADS, even_heads, rotary};
use super::decoder::{Decoder, Layer};
use super::experts::{note_buffers, routed};
use super::keys::Keys;
use super::latent::Latent;
use super::mixer::Mixer;
use super::mlp::{Dense, Experts, Mlp};
use crate::ZooError;
use meshwright_ir::NormKind::Rms;
use meshwright_ir::RouteKind;

/// What the classes assume of a latent attention and its experts.
struct Ranks {
    family: &'static str,
    q_rank: u64,
    kv_rank: u64,
    nope: u64,
    rotary: u64,
    value: Option<u64>,
    experts: u64,
    top_k: Option<u64>,
    shared: u64,
    dense_first: u64,
    route: RouteKind,
    /// Heads, features and chosen keys of an indexer.
    indexer: Option<(u64, u64, u64)>,
}

const V3: Ranks = Ranks {
    family: "deepseek_v3",
    q_rank: 1536,
    kv_rank: 512,
    nope: 128,
    rotary: 64,
    value: Some(128),
    experts: 256,
    top_k: Some(8),
    shared: 1,
    dense_first: 3,
    route: RouteKind::Sigmoid,
    indexer: None,
};

/// DeepSeek V2 and V2-Lite (2024), whose `q_lora_rank` is null.
pub(crate) fn deepseek_v2(keys: &Keys<'_>) -> Result<Decoder, ZooError> {
    let ranks = Ranks {
        family: "deepseek_v2",
        experts: 64,
        top_k: None,
        shared: 2,
        dense_first: 0,
        route: RouteKind::Softmax,
        ..V3
    };
    ranks.decoder(keys)
}
/// DeepSeek V3 and R1 (2024).
pub(crate) fn deepseek_v3(keys: &Keys<'_>) -> Result<Decoder, ZooError> {
    V3.decoder(keys)
}
/// Kimi K2 (Moonshot AI 2025): DeepSeek V3 by its own name.
pub(crate) fn kimi_k2(keys: &Keys<'_>) -> Result<Decoder, ZooError> {
    Ranks { family: "kimi_k2", ..V3 }.decoder(keys)
}
/// DeepSeek V3.2 (2025): an indexer chooses which keys are attended.
pub(crate) fn deepseek_v32(keys: &Keys<'_>) -> Result<Decoder, ZooError> {
    Ranks { family: "deepseek_v32", indexer: Some((64, 128, 2048)), ..V3 }.decoder(keys)
}
/// GLM-5 (2026): the same with its own sizes.
pub(crate) fn glm_moe_dsa(keys: &Keys<'_>) -> Result<Decoder, ZooError> {
    let ranks = Ranks {
        family: "glm_moe_dsa",
        q_rank: 2048,
        nope: 192,
        value: Some(256),
        indexer: Some((32, 128, 2048)),
        ..V3
    };
    ranks.decoder(keys)
}

/// MiniCPM3 (2024): latent attention and a dense MLP, with factors on the embedding, each branch and the logits.
pub(crate) fn minicpm3(keys: &Keys<'_>) -> Result<Decoder, ZooError> {
    let ranks = Ranks { q_rank: 768, kv_rank: 256, nope: 64, rotary: 32, value: None, ..V3 };
    let b = Basics::with_heads(keys, Defaults { tied: true, ..DEFAULTS }, own_heads)?;
    let bias = keys.flag_or("mlp_bias", false)?;
    let mlp = Dense { bias: [bias; 2], ..b.dense(true)? };
    let depth = keys.positive_or("scale_depth", 1.4)? / f64::from(b.layers).sqrt();
    let layer = Layer {
        residual: Some(depth),
        ..Layer::new(Rms, b.eps, Mixer::Latent(ranks.latent(&b)?), Mlp::Dense(mlp))
    };
    let mut decoder = b.decoder("minicpm3", Rms, b.alike(layer));
    decoder.embed.scale = Some(keys.positive_or("scale_emb", 12.0)?);
    decoder.head.scale = Some(keys.positive_or("dim_model_base", 256.0)? / b.hidden as f64);
    Ok(decoder)
}

/// Heads without key groups; features per head are those of the ranks.
fn own_heads(keys: &Keys<'_>, _: &Defaults, _: u64) -> Result<(u64, u64, u64), ZooError> {
    let heads = keys.dim(&HEADS)?;
    Ok((heads, heads, 1))
}

impl Ranks {
    fn decoder(&self, keys: &Keys<'_>) -> Result<Decoder, ZooError> {
        let b = Basics::with_heads(keys, DEFAULTS, own_heads)?;
        let mixer = Mixer::Latent(self.latent(&b)?);
        let layers = layers(&b, mixer, self.dense_first, self.experts, self.top_k, self.shared, self.route)?;
        Ok(b.decoder(self.family, Rms, layers))
    }

    fn latent(&self, b: &Basics<'_, '_>) -> Result<Latent, ZooError> {
        let keys = b.keys;
        let value = match self.value {
            Some(value) => value,
            None => even_heads(keys, b.hidden, b.heads)?,
        };
        let turning = keys.dim_or(&["qk_rope_head_dim"], self.rotary)?;
        let latent = Latent {
            heads: b.heads,
            q_rank: keys.dim_or_null("q_lora_rank", self.q_rank)?,
            kv_rank: keys.dim_or(&["kv_lora_rank"], self.kv_rank)?,
            nope: keys.dim_or(&["qk_nope_head_dim"], self.nope)?,
            rotary: turning,
            value: keys.dim_or(&["v_head_dim"], value)?,
            bias: keys.flag_or("attention_bias", false)?,
            eps: b.eps,
            theta: rotary(keys, turning, b.defaults.theta, 1.0)?.theta,
            indexer: match self.indexer {
                None => None,
                Some((heads, features, top)) => Some((
                    keys.dim_or(&["index_n_heads"], heads)?,
                    keys.dim_or(&["index_head_dim"], features)?,
                    keys.dim_or(&["index_topk"], top)?,
                )),
            },
        };
        let (qk, kv) = (latent.nope + latent.rotary, latent.nope + latent.value);
        let widest = b.heads.saturating_mul(qk.max(kv));
        if widest > 1 << 32 {
            let fix = "lower one of the two: their product is the width of the queries";
            return Err(keys.error("num_attention_heads", format!("{} of {qk} features", b.heads), fix));
        }
        Ok(latent)
    }
}

/// Layers of one mixer: dense ones first, then experts with shared ones.
pub(super) fn layers(
    b: &Basics<'_, '_>,
    mixer: Mixer,
    dense_first: u64,
    experts: u64,
    top_k: Option<u64>,
    shared: u64,
    route: RouteKind,
) -> Result<Vec<Layer>, ZooError> {
    let keys = b.keys;
    if let (None, None) = (top_k, keys.optional_dim(&["num_experts_per_tok"])?) {
        return Err(keys.error("num_experts_per_tok", "missing", "write how many experts a token visits"));
    }
    let experts = routed(b, &["moe_intermediate_size"], experts, top_k.unwrap_or(1))?;
    let shared = match keys.is_null("n_shared_experts") {
        true => 0,
        false => keys.count_or(&["n_shared_experts"], shared)?,
    };
    let inner = shared.saturating_mul(experts.inner);
    let experts =
        Experts { route, shared: (shared > 0).then(|| Dense::new(inner, experts.kind, true)), ..experts };
    let first = match keys.is_null("first_k_dense_replace") {
        true => 0,
        false => keys.count_or(&["first_k_dense_replace"], dense_first)?,
    };
    let known = [("sparse", true), ("dense", false)];
    let routes: Vec<bool> = match keys.kinds("mlp_layer_types", b.layers, &known)? {
        Some(kinds) => kinds,
        None => (0..u64::from(b.layers)).map(|k| k >= first).collect(),
    };
    let sparse = routes.iter().filter(|r| **r).count() as u64;
    if route == RouteKind::Sigmoid {
        note_buffers(keys, sparse, experts.experts);
    }
    if keys.get(&["num_nextn_predict_layers"]).is_some_and(|(_, v)| v.as_u64() != Some(0)) {
        keys.assume("no layers that predict further tokens (num_nextn_predict_layers)");
    }
    let dense = match routes.iter().all(|r| *r) {
        true => None,
        false => Some(b.dense(true)?),
    };
    let layer = |routes: bool| {
        let mlp = match &dense {
            Some(dense) if !routes => Mlp::Dense(dense.clone()),
            _ => Mlp::Experts(experts.clone()),
        };
        Layer::new(Rms, b.eps, mixer.clone(), mlp)
    };
    Ok(routes.into_iter().map(layer).collect())
}
