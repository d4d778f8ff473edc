//! Models with an encoder: BERT and RoBERTa (Devlin et al. 2018, Liu et al. 2019), ViT (Dosovitskiy et al. 2020), and
//! T5 (Raffel et al. 2019) and Whisper (Radford et al. 2022), whose encoders are towers that the decoder looks into.

use super::block::Projection;
use super::common::{Basics, DEFAULTS, Defaults, HEADS};
use super::decoder::{Decoder, Embed, Head, Layer, Place, norm};
use super::keys::Keys;
use super::mixer::{Attention, Mixer};
use super::mlp::{Dense, Mlp};
use super::towers::{block, patch_block, patches, plain_layers, tower};
use crate::ZooError;
use meshwright_ir::NormKind::{Layer as LayerNorm, Rms};
use meshwright_ir::{ActivationKind, IdSource, InputKind, Op, Real, ScoreBias, Scores, Value};

/// BERT: norms after the sums; the head is the one that `architectures` names.
pub(crate) fn bert(keys: &Keys<'_>) -> Result<Decoder, ZooError> {
    masked(keys, "bert", 0, 2)
}
/// RoBERTa and XLM-RoBERTa: the same with positions from row 2.
pub(crate) fn roberta(keys: &Keys<'_>) -> Result<Decoder, ZooError> {
    masked(keys, "roberta", 2, 1)
}

fn masked(keys: &Keys<'_>, family: &'static str, offset: u64, segments: u64) -> Result<Decoder, ZooError> {
    keys.refuse_if_set("add_cross_attention", "set it to false: only encoders alone are read")?;
    let b = Basics::read(keys, Defaults { tied: true, eps: 1e-12, activation: "gelu", ..DEFAULTS })?;
    let attention =
        Attention { bias: [true; 4], causal: keys.flag("is_decoder")?.unwrap_or(false), ..b.attention() };
    let mlp = Dense { bias: [true; 2], ..b.dense(false)? };
    let kind = mlp.kind;
    let layer = Layer {
        place: Place::After,
        ..Layer::new(LayerNorm, b.eps, Mixer::Attention(attention), Mlp::Dense(mlp))
    };
    let positions = keys.dim_or(&["max_position_embeddings"], 512)?;
    let embed = Embed {
        positions: Some(positions),
        segments: Some(keys.dim_or(&["type_vocab_size"], segments)?),
        norm: Some(LayerNorm),
        ..Embed::default()
    };
    let named = keys.list("architectures")?.and_then(|a| a.first()).and_then(|a| a.as_str());
    let bare = Head { norm: None, ..Head::new(LayerNorm, true) };
    let head = match named {
        Some(name) if !name.ends_with("MaskedLM") && !name.ends_with("LMHeadModel") => {
            keys.assume(format!("{name} with its pooler on every token, trained against the token table"));
            Head { transform: Some(ActivationKind::Tanh), ..bare }
        }
        _ => {
            Head { transform: Some(kind), transform_norm: Some(LayerNorm), tied: b.tied, bias: true, ..bare }
        }
    };
    let max_sequence = Some(positions.saturating_sub(offset).max(1));
    let decoder = b.decoder(family, LayerNorm, b.alike(layer));
    Ok(Decoder { max_sequence, embed, head, ..decoder })
}

/// ViT for classification, which reads the class off every patch here.
pub(crate) fn vit(keys: &Keys<'_>) -> Result<Decoder, ZooError> {
    let hidden = keys.dim(&["hidden_size"])?;
    let count = keys.layers(&["num_hidden_layers"])?;
    let heads = keys.dim(&HEADS)?;
    let eps = keys.positive_or("layer_norm_eps", 1e-12)?;
    let inner = keys.dim(&["intermediate_size"])?;
    let mlp = Dense { bias: [true; 2], ..Dense::new(inner, keys.activation("hidden_act", "gelu")?, false) };
    let (tokens, pixels) = patches(keys, (224, 16))?;
    let bias = keys.flag_or("qkv_bias", true)?;
    let layers = plain_layers(keys, count, hidden, heads, mlp, eps, bias)?;
    // The class count is the length of id2label; a file without either has two (transformers).
    let labels = match keys.get(&["id2label"]) {
        Some((_, serde_json::Value::Object(map))) if !map.is_empty() => map.len() as u64,
        _ => keys.dim_or(&["num_labels"], 2)?,
    };
    keys.assume("the class is read off every patch, not off the class token alone");
    let first = patch_block("embed", pixels, hidden, true, true, Some(tokens + 1), None);
    Ok(Decoder {
        family: "vit",
        hidden,
        vocab: labels,
        max_sequence: Some(tokens + 1),
        std: keys.positive_or("initializer_range", 0.02)?,
        eps: Real(eps),
        embed: Embed { block: Some(first), ..Embed::default() },
        layers,
        head: Head { bias: true, ..Head::new(LayerNorm, false) },
        towers: vec![],
    })
}

/// T5 and its gated version 1.1: one table of distances for each stack, kept in its first layer; no factor on the scores.
pub(crate) fn t5(keys: &Keys<'_>) -> Result<Decoder, ZooError> {
    let hidden = keys.dim(&["d_model", "hidden_size"])?;
    let vocab = keys.dim(&["vocab_size"])?;
    let encoders = keys.layers(&["num_layers", "num_hidden_layers"])?;
    let decoders = match keys.optional_dim(&["num_decoder_layers"])? {
        Some(n) => keys.layers_of("num_decoder_layers", n)?,
        None => encoders,
    };
    let (heads, head_dim) = (keys.dim(&["num_heads", "num_attention_heads"])?, keys.dim_or(&["d_kv"], 64)?);
    super::common::fits(keys, heads, heads, head_dim)?;
    let eps = Real(keys.positive_or("layer_norm_epsilon", 1e-6)?);
    let buckets = keys.dim_or(&["relative_attention_num_buckets"], 32)?;
    let word = keys.word("feed_forward_proj")?.unwrap_or("relu");
    let (gated, kind) = match word {
        "relu" => (false, ActivationKind::Relu),
        "gelu" => (false, ActivationKind::Gelu),
        "gated-gelu" => (true, ActivationKind::GeluTanh),
        "gated-silu" => (true, ActivationKind::Silu),
        "gated-relu" => (true, ActivationKind::Relu),
        other => {
            let fix = "use relu, gelu, gated-gelu, gated-silu or gated-relu";
            return Err(keys.error("feed_forward_proj", format!("`{other}`"), fix));
        }
    };
    keys.note_dropout(&["dropout_rate"]);
    let mlp = Dense::new(keys.dim(&["d_ff"])?, kind, gated);
    let plain = Attention { scale: Some(1.0), eps, ..Attention::new(heads, heads, head_dim) };
    let layer = |k: u32, causal, cross: Option<Attention>| {
        let scores = Scores { softcap: None, bias: ScoreBias::Relative { buckets } };
        let scores_tied = (k > 0).then_some(("layer", "attn"));
        let own = Attention { causal, scores, scores_tied, ..plain.clone() };
        let layer = Layer::new(Rms, eps, Mixer::Attention(own), Mlp::Dense(mlp.clone()));
        Layer { cross, ..layer }
    };
    let read = block("read", |b| {
        b.add("tokens", Op::Embedding { rows: vocab, width: hidden, index: IdSource::Tokens }, []);
        b.tie_last("embed", "tokens");
    });
    let last = block("last", |b| {
        b.add("norm", norm(Rms, hidden, eps), [Value::Input]);
    });
    let encoder: Vec<Layer> = (0..encoders).map(|k| layer(k, false, None)).collect();
    let encoder = tower(keys, "encoder", hidden, None, read, &encoder, Some(last))?;
    let cross = Attention { causal: false, memory: Some(hidden), ..plain.clone() };
    // transformers ties T5 whatever the file says; what a false there changes is the factor on the logits.
    let scaled = keys.flag_or("tie_word_embeddings", true)?;
    if !scaled {
        keys.assume("a tied head, although tie_word_embeddings = false: transformers always ties T5");
    }
    let scale = scaled.then_some((hidden as f64).sqrt().recip());
    Ok(Decoder {
        family: "t5",
        hidden,
        vocab,
        max_sequence: None,
        std: 0.05,
        eps,
        embed: Embed::default(),
        layers: (0..decoders).map(|k| layer(k, true, Some(cross.clone()))).collect(),
        head: Head { scale, ..Head::new(Rms, true) },
        towers: vec![encoder],
    })
}

/// Whisper: an encoder of sound frames behind two convolutions, learned positions in both stacks, no bias on keys.
pub(crate) fn whisper(keys: &Keys<'_>) -> Result<Decoder, ZooError> {
    let hidden = keys.dim(&["d_model", "hidden_size"])?;
    let vocab = keys.dim(&["vocab_size"])?;
    let mels = keys.dim_or(&["num_mel_bins"], 80)?;
    let kind = keys.activation("activation_function", "gelu")?;
    let eps = Real(1e-5);
    let frames = keys.dim_or(&["max_source_positions"], 1500)?;
    let positions = keys.dim_or(&["max_target_positions"], 448)?;
    let side = |layers, heads, inner, causal| -> Result<(u32, Attention, Dense), ZooError> {
        let count = keys.dim_or(&[layers], 4)?;
        let heads = keys.dim_or(&[heads], 6)?;
        let head_dim = super::common::even_heads(keys, hidden, heads)?;
        let attention =
            Attention { causal, bias: [true, false, true, true], ..Attention::new(heads, heads, head_dim) };
        let mlp = Dense { bias: [true; 2], ..Dense::new(keys.dim_or(&[inner], 1536)?, kind, false) };
        Ok((keys.layers_of(layers, count)?, attention, mlp))
    };
    let layer = |attention, cross, mlp| Layer {
        cross,
        ..Layer::new(LayerNorm, eps, Mixer::Attention(attention), Mlp::Dense(mlp))
    };
    let (encoders, own, mlp) = side("encoder_layers", "encoder_attention_heads", "encoder_ffn_dim", false)?;
    let first = block("frames", |b| {
        let mut x = b.add("frames", Op::Input { width: mels, kind: InputKind::Frames }, []);
        for (k, input) in [(1, mels), (2, hidden)] {
            // Three taps, each a matrix on the frame before, at, or after; the second convolution keeps every other frame.
            let tap = |b: &mut super::block::Block, n: u32, x| {
                b.project(&format!("conv{k}.tap{n}"), x, Projection::new(input, hidden))
            };
            let taps = [1, 2, 3].map(|n| tap(b, n, x));
            let sum = b.add(&format!("conv{k}.sum1"), Op::Add { width: hidden }, [taps[0], taps[1]]);
            let sum = b.add(&format!("conv{k}.sum2"), Op::Add { width: hidden }, [sum, taps[2]]);
            let sum = b.add(&format!("conv{k}.bias"), Op::Bias { width: hidden, grain: 1 }, [sum]);
            let gelu = Op::Activation { kind: ActivationKind::Gelu, width: hidden };
            x = b.add(&format!("conv{k}.act"), gelu, [sum]);
        }
        let table = Op::Embedding { rows: frames, width: hidden, index: IdSource::Positions };
        let y = b.add("positions", table, []);
        b.add("sum", Op::Add { width: hidden }, [x, y]);
    });
    let last = block("last", |b| {
        b.add("norm", norm(LayerNorm, hidden, eps), [Value::Input]);
    });
    let layers = vec![layer(own, None, mlp); encoders as usize];
    let encoder = tower(keys, "encoder", hidden, Some(frames), first, &layers, Some(last))?;
    let (decoders, own, mlp) = side("decoder_layers", "decoder_attention_heads", "decoder_ffn_dim", true)?;
    let cross = Attention { causal: false, memory: Some(hidden), ..own.clone() };
    keys.note_dropout(&["dropout", "attention_dropout", "activation_dropout"]);
    Ok(Decoder {
        family: "whisper",
        hidden,
        vocab,
        max_sequence: Some(positions),
        std: keys.positive_or("init_std", 0.02)?,
        eps,
        embed: Embed { positions: Some(positions), ..Embed::default() },
        layers: vec![layer(own, Some(cross), mlp); decoders as usize],
        head: Head::new(LayerNorm, keys.flag_or("tie_word_embeddings", true)?),
        towers: vec![encoder],
    })
}
