//! `model`: what a model is, counted.

use super::{Answer, output};
use clap::Args;
use meshwright::Failure;
use meshwright_algebra::model_flops;
use serde::Serialize;
use std::path::Path;

/// Sequence that FLOPs are counted at, where none is asked for and the model has as many positions.
const SEQUENCE: u64 = 2048;

#[derive(Args)]
#[command(allow_negative_numbers = true)]
pub(crate) struct Arguments {
    /// A preset, a Hugging Face config.json, or a model TOML.
    model: String,
    /// Tokens per sample, for FLOPs.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=16_777_216))]
    sequence: Option<u64>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    /// No progress.
    #[arg(short, long)]
    quiet: bool,
}

#[derive(Serialize)]
struct View {
    name: String,
    family: String,
    total_params: u64,
    active_params: u64,
    embedding_params: u64,
    layers: u32,
    flops_per_token: FlopsView,
    assumed: Vec<String>,
}

#[derive(Serialize)]
struct FlopsView {
    forward: u64,
    training: u64,
    convention: &'static str,
    sequence: u64,
}

pub(crate) fn command(a: Arguments) -> Result<Answer, Failure> {
    let (model, _) = meshwright_zoo::model(&a.model, Path::new("")).map_err(Failure::from)?;
    let most = model.max_sequence.unwrap_or(u64::MAX);
    let sequence = a.sequence.unwrap_or(SEQUENCE.min(most));
    if sequence > most {
        let message = format!("--sequence {sequence}: {} has positions for {most} tokens", model.name);
        return Err(Failure::new(message, format!("write at most {most}")));
    }
    let (forward, training) = model_flops(&model, sequence);
    let convention =
        "2 per matrix weight used and token, dense attention; training is 3 x forward (PaLM appendix B)";
    // Every family of this slice is dense: all parameters are active.
    let view = View {
        name: model.name.clone(),
        family: model.family.clone(),
        total_params: model.params(),
        active_params: model.params(),
        embedding_params: model.embedding_params(),
        layers: model.layers(),
        flops_per_token: FlopsView { forward: forward.get(), training: training.get(), convention, sequence },
        assumed: model.assumed.clone(),
    };
    if a.json {
        output::json(&view);
        return Ok(Answer::Yes);
    }
    let mut rows = vec![["block", "parameters", "times"].map(String::from).to_vec()];
    rows.extend(model.runs.iter().map(|r| {
        let class = &model.classes[r.class as usize];
        vec![class.name.clone(), digits(class.params()), r.repeat.to_string()]
    }));
    rows.push(vec!["all".into(), digits(model.params()), String::new()]);
    let facts = [
        vec!["embedding".into(), format!("{} parameters", digits(view.embedding_params))],
        vec![
            "FLOPs a token".into(),
            format!("{forward} forward, {training} training, at sequence {sequence}"),
        ],
        vec!["convention".into(), convention.into()],
    ];
    let assumed: String = model.assumed.iter().map(|t| format!("  assumed: {t}\n")).collect();
    output::say(&format!(
        "{} ({})\n\n{}\n{}{assumed}",
        model.name,
        model.family,
        output::table(&rows),
        output::pairs(&facts)
    ));
    Ok(Answer::Yes)
}

/// `70,553,706,496`.
fn digits(n: u64) -> String {
    let text = n.to_string();
    let mut parts: Vec<&str> =
        text.as_bytes().rchunks(3).map(|c| std::str::from_utf8(c).unwrap_or("")).collect();
    parts.reverse();
    parts.join(",")
}
