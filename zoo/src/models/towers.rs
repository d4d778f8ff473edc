//! Chains beside the chain: image towers in the manner of CLIP, SigLIP, Qwen-VL and Llama 4, and the projectors that lead
//! from them to the decoder. A patch's pixels are one row, so the convolution that embeds it is a matrix.

use super::block::{Block, Projection};
use super::decoder::{Layer, norm, stack};
use super::keys::Keys;
use super::mixer::{Attention, Mixer};
use super::mlp::{Dense, Mlp};
use crate::ZooError;
use meshwright_ir::NormKind::{self, Layer as LayerNorm};
use meshwright_ir::{ActivationKind, BlockClass, BlockRun, IdSource, InputKind, Op, Real, Tower, Value};

/// Standard deviation of a tower's matrices, as its classes have it.
const STD: f64 = 0.02;

/// A block built in one go.
pub(super) fn block(name: &str, build: impl FnOnce(&mut Block)) -> BlockClass {
    let mut b = Block::new(name, STD);
    build(&mut b);
    b.finish()
}

/// First block, layers, last block as a tower.
pub(super) fn tower(
    keys: &Keys<'_>,
    name: &str,
    hidden: u64,
    tokens: Option<u64>,
    first: BlockClass,
    layers: &[Layer],
    last: Option<BlockClass>,
) -> Result<Tower, ZooError> {
    let (middle, runs) = stack(layers, hidden, STD, 1, keys)?;
    let mut tower = Tower { name: name.to_string(), hidden, tokens, classes: vec![first], runs: vec![] };
    tower.runs.push(BlockRun { class: 0, repeat: 1 });
    tower.runs.extend(runs);
    tower.classes.extend(middle);
    if let Some(last) = last {
        tower.runs.push(BlockRun { class: tower.classes.len() as u32, repeat: 1 });
        tower.classes.push(last);
    }
    Ok(tower)
}

/// A tower of one block that starts from what another hands in.
pub(super) fn bridge(name: &str, input: u64, output: u64, build: impl FnOnce(&mut Block, Value)) -> Tower {
    let first = block("bridge", |b| {
        let x = b.add("memory", Op::Input { width: input, kind: InputKind::Memory }, []);
        build(b, x);
    });
    let runs = vec![BlockRun { class: 0, repeat: 1 }];
    Tower { name: name.to_string(), hidden: output, tokens: None, classes: vec![first], runs }
}

/// A size that may be written once for both sides.
pub(super) fn side(keys: &Keys<'_>, name: &'static str, default: u64) -> Result<u64, ZooError> {
    match keys.get(&[name]) {
        Some((_, serde_json::Value::Array(items))) if items.len() == 2 && items[0] == items[1] => {
            match items[0].as_u64().filter(|n| (1..=1 << 20).contains(n)) {
                Some(n) => Ok(n),
                None => Err(keys.error(name, "a list", "write a whole number above 0")),
            }
        }
        _ => keys.dim_or(&[name], default),
    }
}

/// Patches of an image, and the pixels of one.
pub(super) fn patches(keys: &Keys<'_>, defaults: (u64, u64)) -> Result<(u64, u64), ZooError> {
    let (image, patch) = (side(keys, "image_size", defaults.0)?, side(keys, "patch_size", defaults.1)?);
    let across = (image / patch).max(1);
    let channels = keys.dim_or(&["num_channels"], 3)?;
    Ok((across.saturating_mul(across), channels.saturating_mul(patch).saturating_mul(patch)))
}

/// Plain layers of a vision transformer: bidirectional attention with biases, an MLP without a gate.
pub(super) fn plain_layers(
    keys: &Keys<'_>,
    count: u32,
    hidden: u64,
    heads: u64,
    mlp: Dense,
    eps: f64,
    qkv_bias: bool,
) -> Result<Vec<Layer>, ZooError> {
    let head_dim = super::common::even_heads(keys, hidden, heads)?;
    let attention = Attention {
        causal: false,
        bias: [qkv_bias, qkv_bias, qkv_bias, true],
        ..Attention::new(heads, heads, head_dim)
    };
    let layer = Layer::new(LayerNorm, Real(eps), Mixer::Attention(attention), Mlp::Dense(mlp));
    Ok(vec![layer; count as usize])
}

/// Pixels to rows, with a class token and positions where the model has them; perhaps a norm.
pub(super) fn patch_block(
    name: &str,
    pixels: u64,
    hidden: u64,
    bias: bool,
    class: bool,
    positions: Option<u64>,
    last: Option<(NormKind, f64)>,
) -> BlockClass {
    block(name, |b| {
        let x = b.add("patches", Op::Input { width: pixels, kind: InputKind::Patches }, []);
        let mut x = b.project("embed", x, Projection { bias, ..Projection::new(pixels, hidden) });
        let table = |rows, index| Op::Embedding { rows, width: hidden, index };
        let parts = [
            class.then_some(("class", 1, IdSource::Segments)),
            positions.map(|rows| ("positions", rows, IdSource::Positions)),
        ];
        for (name, rows, index) in parts.into_iter().flatten() {
            let y = b.add(name, table(rows, index), []);
            x = b.add(&format!("{name}.sum"), Op::Add { width: hidden }, [x, y]);
        }
        if let Some((kind, eps)) = last {
            b.add("norm", norm(kind, hidden, Real(eps)), [x]);
        }
    })
}

/// A block that only normalises.
fn normed(hidden: u64, eps: f64) -> BlockClass {
    block("last", |b| {
        b.add("norm", norm(LayerNorm, hidden, Real(eps)), [Value::Input]);
    })
}

/// The vision transformer of CLIP.
pub(super) fn clip(keys: &Keys<'_>) -> Result<(Tower, u64), ZooError> {
    vision(keys, (224, 32), "quick_gelu", 1e-5, true)
}

/// The vision transformer of SigLIP, without its pooling head.
pub(super) fn siglip(keys: &Keys<'_>) -> Result<(Tower, u64), ZooError> {
    vision(keys, (224, 16), "gelu_pytorch_tanh", 1e-6, false)
}

fn vision(
    keys: &Keys<'_>,
    sizes: (u64, u64),
    activation: &str,
    eps: f64,
    clip: bool,
) -> Result<(Tower, u64), ZooError> {
    let hidden = keys.dim_or(&["hidden_size"], 768)?;
    let count = keys.dim_or(&["num_hidden_layers"], 12)?;
    let count = if count > 0 { keys.layers_of("num_hidden_layers", count)? } else { 1 };
    let heads = keys.dim_or(&["num_attention_heads"], 12)?;
    let eps = keys.positive_or("layer_norm_eps", eps)?;
    let inner = keys.dim_or(&["intermediate_size"], 3072)?;
    let mlp =
        Dense { bias: [true; 2], ..Dense::new(inner, keys.activation("hidden_act", activation)?, false) };
    let (tokens, pixels) = patches(keys, sizes)?;
    let tokens = tokens + u64::from(clip);
    let before = clip.then_some((LayerNorm, eps));
    let first = patch_block("patches", pixels, hidden, !clip, clip, Some(tokens), before);
    let layers = plain_layers(keys, count, hidden, heads, mlp, eps, true)?;
    let tower = tower(keys, "vision", hidden, Some(tokens), first, &layers, Some(normed(hidden, eps)))?;
    Ok((tower, hidden))
}

/// Qwen2-VL's vision transformer, and the merger that makes one row of a square of patches.
pub(super) fn qwen2_vision(keys: &Keys<'_>) -> Result<Vec<Tower>, ZooError> {
    let hidden = keys.dim_or(&["embed_dim"], 1280)?;
    let count = keys.dim_or(&["depth"], 32)?;
    let count = keys.layers_of("depth", count)?;
    let heads = keys.dim_or(&["num_heads"], 16)?;
    let inner = keys.dim_or(&["mlp_ratio"], 4)?.saturating_mul(hidden);
    let kind = keys.activation("hidden_act", "quick_gelu")?;
    let side_of = |name, default| side(keys, name, default);
    let (patch, frames) = (side_of("patch_size", 14)?, side_of("temporal_patch_size", 2)?);
    let channels = keys.dim_or(&["in_channels"], 3)?;
    let pixels = channels.saturating_mul(frames).saturating_mul(patch).saturating_mul(patch);
    let mlp = Dense { bias: [true; 2], ..Dense::new(inner, kind, false) };
    let mut layers = plain_layers(keys, count, hidden, heads, mlp, 1e-6, true)?;
    let head_dim = hidden / heads;
    if head_dim % 2 == 0 {
        for layer in &mut layers {
            if let Some(Mixer::Attention(a)) = &mut layer.mixer {
                a.rotary = Some(super::mixer::Rotary { theta: 10_000.0, turned: None });
            }
        }
    }
    let first = patch_block("patches", pixels, hidden, false, false, None, None);
    let vision = tower(keys, "vision", hidden, None, first, &layers, Some(normed(hidden, 1e-6)))?;
    let merge = keys.dim_or(&["spatial_merge_size"], 2)?;
    let wide = merge.saturating_mul(merge).saturating_mul(hidden);
    let output = keys.dim_or(&["hidden_size"], 3584)?;
    let merger = bridge("merger", wide, output, |b, x| {
        let biased = |input, output| Projection { bias: true, ..Projection::new(input, output) };
        let x = b.project("up", x, biased(wide, wide));
        let x = b.add("act", Op::Activation { kind: ActivationKind::Gelu, width: wide }, [x]);
        b.project("down", x, biased(wide, output));
    });
    Ok(vec![vision, merger])
}

/// Llama 4's vision transformer, its adapter and its projector to the decoder's width.
pub(super) fn llama4_vision(keys: &Keys<'_>, text: u64) -> Result<Vec<Tower>, ZooError> {
    let hidden = keys.dim_or(&["hidden_size"], 768)?;
    let count = keys.dim_or(&["num_hidden_layers"], 34)?;
    let count = keys.layers_of("num_hidden_layers", count)?;
    let heads = keys.dim_or(&["num_attention_heads"], 16)?;
    let inner = keys.dim_or(&["intermediate_size"], 5632)?;
    let kind = keys.activation("hidden_act", "gelu")?;
    let (tokens, pixels) = patches(keys, (448, 14))?;
    let mlp = Dense { bias: [true; 2], ..Dense::new(inner, kind, false) };
    let layers = plain_layers(keys, count, hidden, heads, mlp, 1e-5, true)?;
    let before = Some((LayerNorm, 1e-5));
    let first = patch_block("patches", pixels, hidden, false, true, Some(tokens + 1), before);
    let last = Some(normed(hidden, 1e-5));
    let vision = tower(keys, "vision", hidden, Some(tokens + 1), first, &layers, last)?;
    let into = keys.dim_or(&["projector_input_dim"], 4096)?;
    let out = keys.dim_or(&["projector_output_dim"], 4096)?;
    let adapter = bridge("adapter", inner, into, |b, x| {
        let x = b.project("up", x, Projection::new(inner, into));
        b.add("act", Op::Activation { kind: ActivationKind::Gelu, width: into }, [x]);
    });
    let adapted = bridge("adapted", out, out, |b, x| {
        let x = b.project("down", x, Projection::new(out, out));
        b.add("act", Op::Activation { kind: ActivationKind::Gelu, width: out }, [x]);
    });
    let seen = keys.dim_or(&["vision_output_dim"], 7680)?;
    let projector = bridge("projector", seen, text, |b, x| {
        b.project("linear", x, Projection::new(seen, text));
    });
    Ok(vec![vision, adapter, adapted, projector])
}
