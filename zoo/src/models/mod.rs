//! Models: Hugging Face `config.json`, a model TOML, or a preset name, to [`Model`]. The families are one table; a new
//! one is a file and a row. Whatever comes out has passed [`Model::check`], so its counts cannot overflow.

mod alibi;
mod block;
mod common;
mod decoder;
mod deepseek;
mod encoders;
mod experts;
mod families;
mod gemma;
mod gpt2;
mod gptj;
mod hybrid;
mod keys;
mod kin;
mod latent;
mod llama;
mod mixer;
mod mlp;
mod multimodal;
mod opt;
mod presets;
mod recurrence;
mod remote;
mod towers;

use crate::ZooError;
use crate::source::{locate, named, nearest, read};
use crate::toml_text::parse;
use decoder::Decoder;
use families::FAMILIES;
use keys::Keys;
use meshwright_ir::{Model, Source};
use presets::PRESETS;
use std::path::Path;

/// Every `model_type` that is read.
pub fn families() -> impl Iterator<Item = &'static str> {
    FAMILIES.iter().map(|f| f.0)
}

/// Every preset's name.
pub fn model_presets() -> impl Iterator<Item = &'static str> {
    PRESETS.iter().map(|p| p.0)
}

/// The model called `source`: a preset, or the path (from `base_dir`, where relative) of a `config.json`, of the folder
/// that holds one, or of a model TOML.
pub fn model(source: &str, base_dir: &Path) -> Result<(Model, Source), ZooError> {
    let model = match PRESETS.iter().find(|p| p.0 == source) {
        Some((name, config)) => model_from_config(name, name, config)?,
        None => from_path(source, base_dir)?,
    };
    Ok((model.clone(), named(source, &model)))
}

fn from_path(source: &str, base_dir: &Path) -> Result<Model, ZooError> {
    let given = locate(source, base_dir);
    let path = if given.is_dir() { given.join("config.json") } else { given };
    let extension = path.extension().and_then(|e| e.to_str()).unwrap_or_default().to_ascii_lowercase();
    if extension == "onnx" {
        let fix = "export the model's config.json instead";
        return Err(ZooError::new(
            source,
            "model.source",
            "an ONNX file: reading ONNX is not built yet",
            fix,
        ));
    }
    if source.is_empty() || !path.exists() {
        let near =
            nearest(source, model_presets()).map(|n| format!("did you mean `{n}`? ")).unwrap_or_default();
        let known: Vec<_> = model_presets().collect();
        let fix = format!("{near}name a config.json, a model TOML, or a preset: {}", known.join(", "));
        return Err(ZooError::new(source, "model.source", "no such file and no such preset", fix));
    }
    let text = read(&path, source, "model.source")?;
    match extension.as_str() {
        "toml" => model_from_toml(source, &text),
        _ => model_from_config(source, &title(&path), &text),
    }
}

/// What a person would call the model of a file: its stem, or its folder where the stem is only `config`.
fn title(path: &Path) -> String {
    let word = |part: Option<&std::ffi::OsStr>| {
        part.map(|p| p.to_string_lossy().chars().take(80).collect::<String>())
    };
    match word(path.file_stem()) {
        Some(stem) if stem != "config" => stem,
        _ => word(path.parent().and_then(Path::file_name)).unwrap_or_else(|| "model".to_string()),
    }
}

/// The model `name` that the Hugging Face config `text`, the content of `file`, describes.
pub fn model_from_config(file: &str, name: &str, text: &str) -> Result<Model, ZooError> {
    let keys = Keys::parse(file, text)?;
    let known = || format!("{} families are read: see docs/models.md", families().count());
    let kind = match keys.word("model_type")? {
        Some(word) => word,
        None => return Err(keys.error("model_type", "missing", format!("add it; {}", known()))),
    };
    let decoder = match FAMILIES.iter().find(|f| f.0 == kind) {
        Some((_, family)) => family(&keys)?,
        None => kindred(&keys, kind, file, text)?.ok_or_else(|| {
            let near = nearest(kind, families()).map(|n| format!("did you mean `{n}`? ")).unwrap_or_default();
            let fix = format!("{near}{}; or describe the model in a TOML", known());
            keys.error("model_type", format!("`{kind}`, which is not built yet"), fix)
        })?,
    };
    let model = decoder.model(name, &keys)?;
    model.check().map_err(|e| ZooError::invalid(keys.file(), e))?;
    Ok(model)
}

/// Families whose layout others copy under names of their own.
const LAYOUTS: [&str; 6] = ["llama", "qwen3", "mixtral", "qwen3_moe", "deepseek_v3", "gpt_neox"];

/// An unknown `model_type` as a known family: that of the class that `architectures` names, or the first whose reader
/// knows every key of the file that could matter. None if neither is so.
fn kindred(keys: &Keys<'_>, kind: &str, file: &str, text: &str) -> Result<Option<Decoder>, ZooError> {
    let plain = |word: &str| word.replace(['_', '-'], "").to_ascii_lowercase();
    let class = keys.list("architectures")?.and_then(|a| a.first()).and_then(|a| a.as_str());
    let class = class.and_then(|c| c.strip_suffix("ForCausalLM")).map(plain);
    if let Some((name, family)) = FAMILIES.iter().find(|f| Some(plain(f.0)) == class) {
        keys.assume(format!("`{kind}` is read as {name}, the class that architectures names"));
        return family(keys).map(Some);
    }
    for layout in LAYOUTS {
        let Some((name, family)) = FAMILIES.iter().find(|f| f.0 == layout) else { continue };
        // Apart from the user's own keys, so that what a wrong guess assumes is forgotten.
        let trial = Keys::parse(file, text)?;
        let proved = family(&trial).is_ok() && trial.has("hidden_act") && trial.unread().is_empty();
        if proved {
            keys.assume(format!("`{kind}` is read as {name}: every key of the file is one of that family"));
            return family(keys).map(Some);
        }
    }
    Ok(None)
}

/// The model that the TOML `text`, the content of `file`, spells out op by op.
pub fn model_from_toml(file: &str, text: &str) -> Result<Model, ZooError> {
    let model: Model = parse(file, text)?;
    model.check().map_err(|e| ZooError::invalid(file, e))?;
    Ok(model)
}
