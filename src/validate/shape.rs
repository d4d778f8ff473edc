//! From the shape columns of a row to a model: layers, hidden size, heads, feed-forward width, vocabulary. Whether the
//! feed-forward part is gated and the head tied is what the parameter count says, where the row has one. What a row leaves
//! empty is filled in and said. The invariant: nothing looks at a model's name.

use super::framework::Framework;
use super::table::Row;
use meshwright_ir::Model;
use meshwright_zoo::model_from_config;
use serde_json::json;

/// GPT-2's vocabulary, which frameworks pad.
const VOCABULARY: u64 = 50257;
/// Features per head where a row names no heads: that of GPT-3's larger models (Brown et al. 2020, table 2.1).
const HEAD: u64 = 128;
/// Share of the parameters by which a count may miss and still decide.
const NEAR: f64 = 0.2;

/// The model of a row and what was assumed of it, or why there is none.
pub(crate) fn model(row: &Row, framework: &Framework, tp: u64) -> Result<(Model, Vec<String>), String> {
    let mut assumed = vec![];
    let need = |column: &str| row.count(column).ok_or_else(|| format!("no {column}"));
    let (layers, hidden) = (need("layers")?, need("hidden")?);
    let heads = match row.count("heads") {
        Some(heads) => heads,
        None => {
            let fits = |d: &u64| hidden.is_multiple_of(*d) && (hidden / d).is_multiple_of(tp);
            let head =
                [HEAD, 64, 96, 80, 32].into_iter().find(fits).ok_or("no heads, and hidden fits none")?;
            assumed.push(format!("heads = {} of {head}", hidden / head));
            hidden / head
        }
    };
    if !hidden.is_multiple_of(heads) {
        return Err(format!("hidden {hidden} is no multiple of {heads} heads"));
    }
    let kv_heads = row.count("kv_heads").unwrap_or_else(|| {
        assumed.push(format!("kv_heads = {heads}"));
        heads
    });
    let inner = row.count("ffn_hidden");
    let vocab = row.count("vocab").unwrap_or_else(|| {
        // Without tensor parallelism nothing forces padding.
        let multiple = if tp == 1 { 1 } else { framework.vocabulary_multiple * tp };
        let padded = VOCABULARY.div_ceil(multiple) * multiple;
        assumed.push(format!("vocab = {padded}: GPT-2's, padded to a multiple of {multiple}"));
        padded
    });
    let sequence = need("seq_len")?;
    let shape =
        Shape { layers, hidden, heads, kv_heads, inner: inner.unwrap_or(4 * hidden), vocab, sequence };
    if inner.is_none() {
        assumed.push(format!("ffn_hidden = {}", 4 * hidden));
    }
    let counted = row.number("params_b").map(|b| b * 1e9);
    let (gated, tied) = shape.nearest(counted);
    if counted.is_none() {
        let mlp = if gated { "gated" } else { "plain" };
        assumed.push(format!("a {mlp} feed-forward part, a {} head", if tied { "tied" } else { "separate" }));
    }
    if !gated && kv_heads != heads {
        assumed.push("the plain feed-forward part priced as a gated one of the same size".into());
    }
    let model = shape.model(gated, tied).map_err(|e| e.to_string())?;
    Ok((model, assumed))
}

struct Shape {
    layers: u64,
    hidden: u64,
    heads: u64,
    kv_heads: u64,
    inner: u64,
    vocab: u64,
    sequence: u64,
}

impl Shape {
    /// Parameters in matrices.
    fn parameters(&self, gated: bool, tied: bool) -> f64 {
        let (h, f, kv) = (self.hidden as f64, self.inner as f64, self.kv_heads as f64 / self.heads as f64);
        let layer = h * h * (2.0 + 2.0 * kv) + h * f * if gated { 3.0 } else { 2.0 };
        self.layers as f64 * layer + h * self.vocab as f64 * if tied { 1.0 } else { 2.0 }
    }

    /// Whether gated and whether tied, by the count; without one, gated if the width is not four times hidden.
    fn nearest(&self, counted: Option<f64>) -> (bool, bool) {
        let usual = self.inner != 4 * self.hidden;
        let all = [(usual, !usual), (usual, usual), (!usual, !usual), (!usual, usual)];
        let miss = |(gated, tied): &(bool, bool)| {
            counted.map_or(0.0, |n| (self.parameters(*gated, *tied) / n).ln().abs())
        };
        let best = all.into_iter().min_by(|a, b| miss(a).total_cmp(&miss(b))).unwrap_or(all[0]);
        if miss(&best) <= NEAR { best } else { all[0] }
    }

    fn model(&self, gated: bool, tied: bool) -> Result<Model, meshwright_zoo::ZooError> {
        let name = format!("{} layers of {}", self.layers, self.hidden);
        let config = if gated || self.kv_heads != self.heads {
            let inner = if gated { self.inner } else { self.inner * 2 / 3 };
            json!({
                "model_type": "llama", "hidden_size": self.hidden, "num_hidden_layers": self.layers,
                "num_attention_heads": self.heads, "num_key_value_heads": self.kv_heads,
                "intermediate_size": inner, "vocab_size": self.vocab,
                "max_position_embeddings": self.sequence, "tie_word_embeddings": tied,
            })
        } else {
            json!({
                "model_type": "gpt2", "n_embd": self.hidden, "n_layer": self.layers, "n_head": self.heads,
                "n_inner": self.inner, "vocab_size": self.vocab, "n_positions": self.sequence,
                "tie_word_embeddings": tied,
            })
        };
        model_from_config("the row", &name, &config.to_string())
    }
}
