//! GPT-2 (Radford et al. 2019) and its multi-query kin GPT-BigCode: learned positions, layer norms before attention and
//! MLP, biases everywhere, tied head. Residual projections start with std / sqrt(2 L), as that paper's section 2.3 has it
//! and transformers does.

use super::common::{Basics, DEFAULTS, Defaults, HEADS, even_heads};
use super::decoder::{Decoder, Embed, Layer};
use super::keys::Keys;
use super::mixer::{Attention, Mixer};
use super::mlp::{Dense, Mlp};
use crate::ZooError;
use meshwright_ir::NormKind;

const GPT2: Defaults = Defaults { tied: true, eps: 1e-5, activation: "gelu_new", ..DEFAULTS };

/// GPT-2.
pub(crate) fn gpt2(keys: &Keys<'_>) -> Result<Decoder, ZooError> {
    read(keys, "gpt2", GPT2, false)
}

/// GPT-BigCode (StarCoder): all heads share one key head unless the file says otherwise.
pub(crate) fn gpt_bigcode(keys: &Keys<'_>) -> Result<Decoder, ZooError> {
    read(keys, "gpt_bigcode", Defaults { activation: "gelu_pytorch_tanh", ..GPT2 }, true)
}

fn read(
    keys: &Keys<'_>,
    family: &'static str,
    defaults: Defaults,
    multi_query: bool,
) -> Result<Decoder, ZooError> {
    keys.refuse_if_set("add_cross_attention", "set it to false: only decoders without an encoder are read")?;
    let b = Basics::with_heads(keys, defaults, |keys, _, hidden| {
        let heads = keys.dim(&HEADS)?;
        let shared = multi_query && keys.flag_or("multi_query", true)?;
        Ok((heads, if shared { 1 } else { heads }, even_heads(keys, hidden, heads)?))
    })?;
    let inner = keys.optional_dim(&["n_inner"])?.unwrap_or(4 * b.hidden);
    let positions = keys.dim(&["n_positions", "max_position_embeddings", "n_ctx"])?;
    let kind = b.activation()?;
    for (key, usual) in [
        ("scale_attn_weights", true),
        ("scale_attn_by_inverse_layer_idx", false),
        ("reorder_and_upcast_attn", false),
    ] {
        if keys.flag(key)?.is_some_and(|set| set != usual) {
            keys.assume(format!("{key} = {usual}, although the file says {}", !usual));
        }
    }
    // The class's own default is 0.1 each. A file that does not speak of dropout is taken at its word.
    if keys.get(&["embd_pdrop", "attn_pdrop", "resid_pdrop"]).is_none() {
        keys.assume("no dropout: the file gives no embd_pdrop, attn_pdrop or resid_pdrop");
    }
    let out_std = Some(b.std / (2.0 * f64::from(b.layers)).sqrt());
    let attention =
        Attention { bias: [true; 4], out_std, out_dropout: keys.dropout("resid_pdrop", 1)?, ..b.attention() };
    let mlp = Dense {
        bias: [true; 2],
        out_std,
        dropout: keys.dropout("resid_pdrop", 2)?,
        ..Dense::new(inner, kind, false)
    };
    let layer = Layer::new(NormKind::Layer, b.eps, Mixer::Attention(attention), Mlp::Dense(mlp));
    let decoder = b.decoder(family, NormKind::Layer, b.alike(layer));
    let embed =
        Embed { positions: Some(positions), dropout: keys.dropout("embd_pdrop", 0)?, ..Embed::default() };
    Ok(Decoder { max_sequence: Some(positions), embed, ..decoder })
}
