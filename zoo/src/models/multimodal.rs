//! Decoders that see: LLaVA, Gemma 3, Qwen2-VL, Llama 4. The decoder is that of its own family, read from `text_config` with
//! its class's sizes where the file leaves them out, as files written by transformers do; images come in through towers.

use super::block::Projection;
use super::common::Defaults;
use super::decoder::{Decoder, norm};
use super::experts::llama4_text;
use super::families::FAMILIES;
use super::gemma::gemma3_text;
use super::keys::Keys;
use super::llama::{Kin, QWEN2};
use super::towers::{bridge, clip, llama4_vision, qwen2_vision, siglip};
use crate::ZooError;
use crate::source::nearest;
use meshwright_ir::NormKind::Rms;
use meshwright_ir::Op;

/// Sizes of `LlamaConfig`, and of the others' text classes: what a nested object that leaves them out means.
const LLAMA: &[(&str, u64)] = &[
    ("vocab_size", 32_000),
    ("hidden_size", 4096),
    ("intermediate_size", 11_008),
    ("num_hidden_layers", 32),
    ("num_attention_heads", 32),
];
const MISTRAL: &[(&str, u64)] = &[
    ("vocab_size", 32_000),
    ("hidden_size", 4096),
    ("intermediate_size", 14_336),
    ("num_hidden_layers", 32),
    ("num_attention_heads", 32),
];
const QWEN: &[(&str, u64)] = &[
    ("vocab_size", 151_936),
    ("hidden_size", 4096),
    ("intermediate_size", 22_016),
    ("num_hidden_layers", 32),
    ("num_attention_heads", 32),
];
const GEMMA3: &[(&str, u64)] = &[
    ("vocab_size", 262_208),
    ("hidden_size", 2304),
    ("intermediate_size", 9216),
    ("num_hidden_layers", 26),
    ("num_attention_heads", 8),
];
const LLAMA4: &[(&str, u64)] = &[
    ("vocab_size", 202_048),
    ("hidden_size", 5120),
    ("intermediate_size", 8192),
    ("num_hidden_layers", 48),
    ("num_attention_heads", 40),
];

/// An object of the file, or an empty one.
fn part<'a>(keys: &Keys<'a>, name: &'static str) -> Result<Keys<'a>, ZooError> {
    Ok(match keys.nested(name)? {
        Some(part) => part,
        None => {
            keys.assume(format!("no {name}: its sizes are those of the family's class"));
            keys.within(name, serde_json::Map::new())
        }
    })
}

/// The decoder of `text_config`, tied if the outer object says so, that adds up tokens and what the towers hand in.
fn seeing(outer: &Keys<'_>, mut decoder: Decoder, family: &'static str) -> Result<Decoder, ZooError> {
    if let Some(tied) = outer.flag("tie_word_embeddings")? {
        decoder.head.tied = tied;
    }
    decoder.family = family;
    decoder.embed.images = true;
    Ok(decoder)
}

/// LLaVA 1.5 (Liu et al. 2023): CLIP, two matrices, any decoder.
pub(crate) fn llava(keys: &Keys<'_>) -> Result<Decoder, ZooError> {
    let text = part(keys, "text_config")?;
    let kind = text.word("model_type")?.unwrap_or("llama").to_string();
    let sizes = match kind.as_str() {
        "mistral" => MISTRAL,
        "qwen2" | "qwen3" => QWEN,
        _ => LLAMA,
    };
    let Some((_, family)) = FAMILIES.iter().find(|f| f.0 == kind) else {
        let near = nearest(&kind, FAMILIES.iter().map(|f| f.0));
        let fix = near.map_or("name a family that is read".into(), |n| format!("did you mean `{n}`?"));
        return Err(text.error("model_type", format!("`{kind}`, which is not built yet"), fix));
    };
    let mut decoder = seeing(keys, family(&text.with_sizes(sizes))?, "llava")?;
    let vision = part(keys, "vision_config")?;
    let (tower, width) = match vision.word("model_type")? {
        Some("siglip_vision_model") => siglip(&vision)?,
        _ => clip(&vision)?,
    };
    let (kind, h) = (keys.activation("projector_hidden_act", "gelu")?, decoder.hidden);
    let bias = keys.flag("multimodal_projector_bias")?.unwrap_or(true);
    let projector = bridge("projector", width, h, |b, x| {
        let x = b.project("up", x, Projection { bias, ..Projection::new(width, h) });
        let x = b.add("act", Op::Activation { kind, width: h }, [x]);
        b.project("down", x, Projection { bias, ..Projection::new(h, h) });
    });
    decoder.towers = vec![tower, projector];
    Ok(decoder)
}

/// Gemma 3 with SigLIP.
pub(crate) fn gemma3(keys: &Keys<'_>) -> Result<Decoder, ZooError> {
    let text = part(keys, "text_config")?.with_sizes(GEMMA3);
    let mut decoder = seeing(keys, gemma3_text(&text)?, "gemma3")?;
    let vision = part(keys, "vision_config")?;
    if vision.flag("vision_use_head")?.unwrap_or(false) {
        keys.assume("no pooling head on the vision tower: its patches are read, not their pool");
    }
    let (tower, width) = siglip(&vision)?;
    let (h, eps) = (decoder.hidden, decoder.eps);
    let projector = bridge("projector", width, h, |b, x| {
        let x = b.add("norm", norm(Rms, width, eps), [x]);
        b.project("linear", x, Projection::new(width, h));
    });
    decoder.towers = vec![tower, projector];
    Ok(decoder)
}

/// Qwen2-VL (Wang et al. 2024), whose decoder's keys stand at the top, or in `text_config`.
pub(crate) fn qwen2_vl(keys: &Keys<'_>) -> Result<Decoder, ZooError> {
    let defaults = Defaults { kv_heads: Some(8), eps: 1e-5, ..super::common::DEFAULTS };
    let kin = Kin { family: "qwen2_vl", defaults, ..QWEN2 };
    let decoder = match keys.nested("text_config")? {
        Some(text) => kin.decoder(&text)?,
        None => kin.decoder(keys)?,
    };
    let mut decoder = seeing(keys, decoder, "qwen2_vl")?;
    decoder.towers = qwen2_vision(&part(keys, "vision_config")?)?;
    Ok(decoder)
}

/// Llama 4 with its vision tower.
pub(crate) fn llama4(keys: &Keys<'_>) -> Result<Decoder, ZooError> {
    let text = part(keys, "text_config")?.with_sizes(LLAMA4);
    let mut decoder = seeing(keys, llama4_text(&text)?, "llama4")?;
    decoder.towers = llama4_vision(&part(keys, "vision_config")?, decoder.hidden)?;
    Ok(decoder)
}
