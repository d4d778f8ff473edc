//! GPT-2 (Radford et al. 2019): learned positions, layer norms before attention and MLP, biases everywhere, tied head.
//! Keys and defaults are those of transformers' `GPT2Config`; residual projections start with std / sqrt(2 L), as that
//! paper's section 2.3 has it and transformers does.

use super::block::{Block, Projection, head};
use super::keys::Keys;
use crate::ZooError;
use meshwright_ir::{
    AttentionCore, BlockClass, BlockRun, Dropout, IdSource, Model, NormKind, Op, Real, Value,
};

struct Shape {
    hidden: u64,
    heads: u64,
    inner: u64,
    vocab: u64,
    positions: u64,
    eps: Real,
    std: f64,
    residual_std: f64,
    core: AttentionCore,
    /// After the embeddings, after the softmax, after each of a layer's two residual projections.
    dropout: [Option<Dropout>; 4],
}

/// Builds the model from its config.
pub(crate) fn gpt2(name: &str, keys: &Keys<'_>) -> Result<Model, ZooError> {
    keys.refuse_if_set("add_cross_attention", "set it to false: only decoders without an encoder are read")?;
    let hidden = keys.dim(&["n_embd", "hidden_size"])?;
    let layers = keys.layers(&["n_layer", "num_hidden_layers"])?;
    let heads = keys.dim(&["n_head", "num_attention_heads"])?;
    if hidden % heads != 0 {
        let fix = format!("make n_embd ({hidden}) a multiple of it");
        return Err(keys.error("n_head", heads.to_string(), fix));
    }
    let std = keys.positive_or("initializer_range", 0.02)?;
    let shape = Shape {
        hidden,
        heads,
        inner: keys.optional_dim(&["n_inner"])?.unwrap_or(4 * hidden),
        vocab: keys.dim(&["vocab_size"])?,
        positions: keys.dim(&["n_positions", "max_position_embeddings", "n_ctx"])?,
        eps: Real(keys.positive_or("layer_norm_epsilon", 1e-5)?),
        std,
        residual_std: std / (2.0 * f64::from(layers)).sqrt(),
        core: keys.attention_core()?,
        dropout: [
            keys.dropout("embd_pdrop", 0)?,
            keys.dropout("attn_pdrop", 0)?,
            keys.dropout("resid_pdrop", 1)?,
            keys.dropout("resid_pdrop", 2)?,
        ],
    };
    let activation = keys.activation("activation_function", "gelu_new")?;
    let tied = keys.flag_or("tie_word_embeddings", true)?;
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
    Ok(Model {
        name: name.to_string(),
        family: "gpt2".to_string(),
        hidden,
        vocab: shape.vocab,
        max_sequence: Some(shape.positions),
        classes: vec![
            embed(&shape),
            layer(&shape, Op::Activation { kind: activation, width: shape.inner }),
            head(norm(&shape), hidden, shape.vocab, tied, std),
        ],
        runs: [1, layers, 1].into_iter().zip(0..).map(|(repeat, class)| BlockRun { class, repeat }).collect(),
        assumed: keys.assumed(),
    })
}

fn norm(s: &Shape) -> Op {
    Op::Norm { kind: NormKind::Layer, width: s.hidden, groups: 1, eps: s.eps }
}

fn embed(s: &Shape) -> BlockClass {
    let mut b = Block::new("embed", s.std);
    let table = |rows, index| Op::Embedding { rows, width: s.hidden, index };
    let tokens = b.add("tokens", table(s.vocab, IdSource::Tokens), []);
    let positions = b.add("positions", table(s.positions, IdSource::Positions), []);
    let x = b.add("sum", Op::Add { width: s.hidden }, [tokens, positions]);
    b.drop("sum", x, s.hidden, s.dropout[0]);
    b.finish()
}

fn layer(s: &Shape, activation: Op) -> BlockClass {
    let (h, d) = (s.hidden, s.hidden / s.heads);
    let mut b = Block::new("layer", s.std);
    let x = b.add("norm1", norm(s), [Value::Input]);
    let per_head = || Projection { output_grain: d, bias: true, ..Projection::new(h, h) };
    let q = b.project("q", x, per_head());
    let k = b.project("k", x, per_head());
    let v = b.project("v", x, per_head());
    let attention = Op::Attention {
        heads: s.heads,
        kv_heads: s.heads,
        head_dim: d,
        causal: true,
        window: None,
        core: s.core,
        dropout: s.dropout[1],
    };
    let x = b.add("attn", attention, [q, k, v]);
    let residual = Some(s.residual_std);
    let proj = Projection { input_grain: d, bias: true, std: residual, ..Projection::new(h, h) };
    let x = b.project("proj", x, proj);
    let x = b.drop("proj", x, h, s.dropout[2]);
    let skip = b.add("residual1", Op::Add { width: h }, [Value::Input, x]);
    let x = b.add("norm2", norm(s), [skip]);
    let x = b.project("up", x, Projection { bias: true, ..Projection::new(h, s.inner) });
    let x = b.add("act", activation, [x]);
    let x = b.project("down", x, Projection { bias: true, std: residual, ..Projection::new(s.inner, h) });
    let x = b.drop("down", x, h, s.dropout[3]);
    b.add("residual2", Op::Add { width: h }, [skip, x]);
    b.finish()
}
