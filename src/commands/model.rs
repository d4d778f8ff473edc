//! `model`: what a model is, counted.

use super::{Answer, output};
use clap::Args;
use meshwright::Failure;
use meshwright_algebra::{Convention, per_token};
use meshwright_ir::{BlockClass, BlockRun, Flops, Model, Node, Tower};
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
    /// Parameters of experts that tokens are routed to.
    routed_params: u64,
    /// Parameters of chains beside the decoder: an encoder, a vision tower.
    tower_params: u64,
    layers: u32,
    blocks: Vec<BlockView>,
    flops_per_token: FlopsView,
    /// Bytes that backward reads, in 16-bit activations, without recomputation.
    activation_bytes_per_token: u64,
    /// Elements of keys and values a token leaves in a cache, over all layers.
    kv_width: u64,
    assumed: Vec<String>,
}

#[derive(Serialize)]
struct BlockView {
    chain: String,
    name: String,
    params: u64,
    times: u32,
}

#[derive(Serialize)]
struct FlopsView {
    forward: u64,
    training: u64,
    convention: &'static str,
    sequence: u64,
    /// The same under other conventions.
    conventions: Vec<ConventionView>,
}

#[derive(Serialize)]
struct ConventionView {
    convention: &'static str,
    forward: u64,
    training: u64,
}

pub(crate) fn command(a: Arguments) -> Result<Answer, Failure> {
    let (model, _) = meshwright_zoo::model(&a.model, Path::new("")).map_err(Failure::from)?;
    let most = model.max_sequence.unwrap_or(u64::MAX);
    let sequence = a.sequence.unwrap_or(SEQUENCE.min(most));
    if sequence > most {
        let message = format!("--sequence {sequence}: {} has positions for {most} tokens", model.name);
        return Err(Failure::new(message, format!("write at most {most}")));
    }
    if !countable(&model, sequence) {
        let message =
            format!("--sequence {sequence}: {} has more FLOPs a token than 64 bits count", model.name);
        return Err(Failure::new(message, "lower the sequence, or a width of the model".to_string()));
    }
    let counts = per_token(&model, sequence);
    let Convention { name: convention, forward, training } = counts.conventions[0];
    let others = counts.conventions.iter().map(|c| ConventionView {
        convention: c.name,
        forward: c.forward,
        training: c.training,
    });
    let view = View {
        name: model.name.clone(),
        family: model.family.clone(),
        total_params: model.params(),
        active_params: model.active_params(),
        embedding_params: model.embedding_params(),
        routed_params: model.routed_params(),
        tower_params: model.towers.iter().map(Tower::params).sum(),
        layers: model.layers(),
        blocks: blocks(&model),
        flops_per_token: FlopsView { forward, training, convention, sequence, conventions: others.collect() },
        activation_bytes_per_token: counts.activation_bytes,
        kv_width: counts.kv_width,
        assumed: model.assumed.clone(),
    };
    match a.json {
        true => output::json(&view),
        false => output::say(&text(&view)),
    }
    Ok(Answer::Yes)
}

/// Whether the counts of a token fit 64 bits: no op costs more than 32 for each weight, and for each feature it reads or
/// writes, each key.
fn countable(model: &Model, sequence: u64) -> bool {
    let features = |class: &BlockClass| -> u128 {
        let node = |n: &Node| (0..n.op.arity()).map(|k| u128::from(n.op.input_width(k))).sum::<u128>();
        class.nodes.iter().map(|n| node(n) + u128::from(n.op.output_width())).sum()
    };
    let all: u128 =
        model.runs.iter().map(|r| u128::from(r.repeat) * features(&model.classes[r.class as usize])).sum();
    // A tied matrix is used without being owned: at most one more model.
    let most = 32 * (all * u128::from(sequence) + 2 * u128::from(model.params()));
    most <= u128::from(u64::MAX)
}

/// Every run of the chain and of the towers.
fn blocks(model: &Model) -> Vec<BlockView> {
    let view = |chain: &str, runs: &[BlockRun], classes: &[BlockClass]| -> Vec<BlockView> {
        let run = |r: &BlockRun| {
            let class = &classes[r.class as usize];
            let (chain, name) = (chain.to_string(), class.name.clone());
            BlockView { chain, name, params: class.params(), times: r.repeat }
        };
        runs.iter().map(run).collect()
    };
    let towers = model.towers.iter().flat_map(|t| view(&t.name, &t.runs, &t.classes));
    view("", &model.runs, &model.classes).into_iter().chain(towers).collect()
}

/// A table a person can read.
fn text(view: &View) -> String {
    let mut rows = vec![["block", "parameters", "times"].map(String::from).to_vec()];
    rows.extend(shortened(&view.blocks));
    rows.push(vec!["all".into(), digits(view.total_params), String::new()]);
    let parameters = |n: u64| format!("{} parameters", digits(n));
    let flops = &view.flops_per_token;
    let mut facts = vec![vec!["embedding".into(), parameters(view.embedding_params)]];
    if view.routed_params > 0 {
        facts.push(vec!["experts".into(), parameters(view.routed_params)]);
        facts.push(vec!["active".into(), parameters(view.active_params)]);
    }
    facts.push(vec![
        "activations".into(),
        format!("{} bytes a token, 16-bit, nothing recomputed", digits(view.activation_bytes_per_token)),
    ]);
    facts.push(vec!["keys, values".into(), format!("{} elements a token", digits(view.kv_width))]);
    let count = |c: &ConventionView| {
        let (forward, training) = (Flops(c.forward), Flops(c.training));
        vec![format!("{forward} forward, {training} training"), c.convention.to_string()]
    };
    let conventions: Vec<Vec<String>> = flops.conventions.iter().map(count).collect();
    let assumed: Vec<Vec<String>> =
        view.assumed.iter().map(|t| vec!["assumed".to_string(), t.clone()]).collect();
    format!(
        "{} ({})\n\n{}\n{}\nFLOPs a token at sequence {}\n{}{}",
        view.name,
        view.family,
        output::table(&rows),
        output::pairs(&facts),
        flops.sequence,
        output::pairs(&conventions),
        output::pairs(&assumed)
    )
}

/// Most rows of blocks in the table; a model whose layers alternate has a run for each.
const MOST_ROWS: usize = 24;

/// One row for each run, or where there are many, for each kind of block with all its times.
fn shortened(blocks: &[BlockView]) -> Vec<Vec<String>> {
    let mut kinds: Vec<(String, u64, u64)> = Vec::new();
    for b in blocks {
        let name = if b.chain.is_empty() { b.name.clone() } else { format!("{}: {}", b.chain, b.name) };
        match kinds.iter_mut().find(|k| k.0 == name && blocks.len() > MOST_ROWS) {
            Some(kind) => kind.2 += u64::from(b.times),
            None => kinds.push((name, b.params, u64::from(b.times))),
        }
    }
    kinds.into_iter().map(|(name, params, times)| vec![name, digits(params), times.to_string()]).collect()
}

/// `70,553,706,496`.
fn digits(n: u64) -> String {
    let text = n.to_string();
    let mut parts: Vec<&str> =
        text.as_bytes().rchunks(3).map(|c| std::str::from_utf8(c).unwrap_or("")).collect();
    parts.reverse();
    parts.join(",")
}
