//! OPT (Zhang et al. 2022): learned positions that start at row 2, ReLU, biases, tied head. The 350M model keeps its token
//! table at half the width and puts norms after the sums, with none at the end.

use super::common::{Basics, DEFAULTS, Defaults};
use super::decoder::{Decoder, Embed, Head, Layer, Place};
use super::keys::Keys;
use super::mixer::{Attention, Mixer};
use super::mlp::{Dense, Mlp};
use crate::ZooError;
use meshwright_ir::NormKind;

/// Rows of the position table before that of position 0 (transformers' `OPTLearnedPositionalEmbedding`).
const OFFSET: u64 = 2;

pub(crate) fn opt(keys: &Keys<'_>) -> Result<Decoder, ZooError> {
    let b = Basics::read(keys, Defaults { tied: true, eps: 1e-5, activation: "relu", ..DEFAULTS })?;
    let bias = keys.flag("enable_bias")?.unwrap_or(true);
    let affine = keys.flag("layer_norm_elementwise_affine")?.unwrap_or(true);
    let before = keys.flag_or("do_layer_norm_before", true)?;
    let last = before && !keys.flag("_remove_final_layer_norm")?.unwrap_or(false);
    let norm = if affine { NormKind::Layer } else { NormKind::LayerPlain };
    let attention = Attention { bias: [bias; 4], ..b.attention() };
    let mlp = Dense { bias: [bias; 2], ..b.dense(false)? };
    let layer = Layer {
        place: if before { Place::Before } else { Place::After },
        ..Layer::new(norm, b.eps, Mixer::Attention(attention), Mlp::Dense(mlp))
    };
    let positions = keys.dim(&["max_position_embeddings"])?;
    let width = keys.optional_dim(&["word_embed_proj_dim"])?.filter(|w| *w != b.hidden);
    let decoder = b.decoder("opt", norm, b.alike(layer));
    let head = Head { norm: last.then_some(norm), ..Head::new(norm, b.tied) };
    let embed = Embed { positions: Some(positions + OFFSET), width, ..Embed::default() };
    Ok(Decoder { max_sequence: Some(positions), embed, head, ..decoder })
}
