//! A model: blocks of ops in a chain, each distinct block stored once. Within a block, nodes form a DAG in topological
//! order with one output each; the block's input and its last node's output are `[batch, sequence, width]` tensors that
//! join it to its neighbours. The first block reads tokens, the last ends in the loss.

use crate::{IdSource, Init, Invalid, Op, ParamSpec};
use petgraph::graph::{DiGraph, NodeIndex};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Most blocks in a chain that are believed.
const MOST_BLOCKS: u64 = 200_000;
/// Most parameters that are believed: a quadrillion, a thousand times the largest model published.
const MOST_PARAMS: u64 = 1_000_000_000_000_000;

/// A tensor inside a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Value {
    /// What the previous block hands over.
    Input,
    /// The output of a node, by position.
    Node(u32),
}

/// A parameter that is the same as one of another block: tied embeddings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tie {
    /// Class of the owning block (which occurs once).
    pub class: String,
    /// Node in it whose first parameter is shared.
    pub node: String,
}

/// One op in its place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// Name, unique in the block.
    pub name: String,
    /// What it computes.
    pub op: Op,
    /// Tensors it reads, in the op's order.
    #[serde(default)]
    pub inputs: Vec<Value>,
    /// Start of its first parameter, where it is not the op's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub init: Option<Init>,
    /// Set when its first parameter is another node's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tied: Option<Tie>,
}

impl Node {
    /// Parameters with the node's own start applied.
    pub fn params(&self) -> Vec<ParamSpec> {
        let mut params = self.op.params();
        if let (Some(init), Some(first)) = (self.init, params.first_mut()) {
            first.init = init;
        }
        params
    }
}

/// A distinct block: nodes in topological order, the last one's output is the block's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlockClass {
    /// Name of the class (`embed`, `layer`, `head`).
    pub name: String,
    /// The ops.
    pub nodes: Vec<Node>,
}

impl BlockClass {
    /// The block as a graph: weights are node positions, edges run from producer to consumer and carry the operand.
    pub fn graph(&self) -> DiGraph<u32, u32> {
        let mut graph = DiGraph::with_capacity(self.nodes.len(), self.nodes.len());
        for k in 0..self.nodes.len() {
            graph.add_node(k as u32);
        }
        for (k, node) in self.nodes.iter().enumerate() {
            for (operand, value) in node.inputs.iter().enumerate() {
                if let Value::Node(p) = value {
                    graph.add_edge(NodeIndex::new(*p as usize), NodeIndex::new(k), operand as u32);
                }
            }
        }
        graph
    }
    /// Every `(node, operand)` that reads `value`.
    pub fn consumers(&self, value: Value) -> Vec<(u32, u32)> {
        let reads = |(k, n): (usize, &Node)| -> Vec<(u32, u32)> {
            n.inputs
                .iter()
                .enumerate()
                .filter(|(_, v)| **v == value)
                .map(|(o, _)| (k as u32, o as u32))
                .collect()
        };
        self.nodes.iter().enumerate().flat_map(reads).collect()
    }
    /// Whether the block reads what the previous one hands over.
    pub fn has_input(&self) -> bool {
        self.nodes.iter().any(|n| n.inputs.contains(&Value::Input))
    }
    /// Whether the block ends in the loss.
    pub fn ends_in_loss(&self) -> bool {
        matches!(self.nodes.last(), Some(Node { op: Op::CrossEntropy { .. }, .. }))
    }
    /// Parameters of one instance, tied ones left out.
    pub fn params(&self) -> u64 {
        let own = |n: &Node| {
            n.params().iter().skip(usize::from(n.tied.is_some())).map(ParamSpec::elements).sum::<u64>()
        };
        self.nodes.iter().map(own).sum()
    }
}

/// A class and how often it repeats in the chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlockRun {
    /// Index into [`Model::classes`].
    pub class: u32,
    /// Consecutive instances.
    pub repeat: u32,
}

/// A model as a chain of blocks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// What a person calls it.
    pub name: String,
    /// Architecture family (`gpt2`, `llama`, `qwen3`, …).
    pub family: String,
    /// Width of the tensor between blocks.
    pub hidden: u64,
    /// Token ids are below this.
    pub vocab: u64,
    /// Longest sequence the model has positions for, if it has a limit.
    pub max_sequence: Option<u64>,
    /// Distinct blocks.
    pub classes: Vec<BlockClass>,
    /// The chain, in order.
    pub runs: Vec<BlockRun>,
    /// What the reader assumed because the source did not say.
    #[serde(default)]
    pub assumed: Vec<String>,
}

impl Model {
    /// Class index of every block, in chain order.
    pub fn blocks(&self) -> Vec<u32> {
        self.runs.iter().flat_map(|r| std::iter::repeat_n(r.class, r.repeat as usize)).collect()
    }
    /// Name of block `k`: its class, numbered where the class repeats (`layer.3`).
    pub fn block_name(&self, k: u32) -> String {
        let blocks = self.blocks();
        let class = blocks[k as usize];
        let name = &self.classes[class as usize].name;
        match blocks.iter().filter(|c| **c == class).count() {
            1 => name.clone(),
            _ => format!("{name}.{}", blocks[..k as usize].iter().filter(|c| **c == class).count()),
        }
    }
    /// Number of repeated layers: instances of the class that occurs most.
    pub fn layers(&self) -> u32 {
        self.runs.iter().map(|r| r.repeat).max().unwrap_or(0)
    }
    /// All parameters, tied ones once.
    pub fn params(&self) -> u64 {
        self.runs.iter().map(|r| u64::from(r.repeat) * self.classes[r.class as usize].params()).sum()
    }
    /// Parameters of token and position tables, tied ones once.
    pub fn embedding_params(&self) -> u64 {
        let tables = |c: &BlockClass| -> u64 {
            c.nodes
                .iter()
                .filter(|n| matches!(n.op, Op::Embedding { .. }))
                .flat_map(Node::params)
                .map(|p| p.elements())
                .sum()
        };
        self.runs.iter().map(|r| u64::from(r.repeat) * tables(&self.classes[r.class as usize])).sum()
    }
    /// The node whose first parameter `tie` names: `(class, node)`.
    pub fn tied_to(&self, tie: &Tie) -> Option<(u32, u32)> {
        let class = self.classes.iter().position(|c| c.name == tie.class)?;
        let node = self.classes[class].nodes.iter().position(|n| n.name == tie.node)?;
        Some((class as u32, node as u32))
    }

    /// Sizes that are believable, so that no count made of them overflows: dims and widths as [`Op`] believes them, at
    /// most [`MOST_BLOCKS`] blocks, at most [`MOST_PARAMS`] parameters.
    fn check_sizes(&self) -> Result<(), Invalid> {
        for class in &self.classes {
            for node in &class.nodes {
                node.op.check_sizes().map_err(|e| {
                    Invalid::new(format!("model.{}.{}.{}", class.name, node.name, e.field), e.found, e.fix)
                })?;
            }
        }
        let blocks: u64 = self.runs.iter().map(|r| u64::from(r.repeat)).sum();
        if blocks > MOST_BLOCKS {
            return Err(Invalid::new(
                "model.runs",
                format!("{blocks} blocks"),
                "repeat fewer blocks: at most 200,000",
            ));
        }
        // Each dim is at most 2^32, so one parameter fits 65 bits and their sum over all blocks fits u128.
        let class_params = |c: &BlockClass| -> u128 {
            let elements = |p: &ParamSpec| p.shape.iter().map(|d| u128::from(*d)).product::<u128>();
            let own =
                |n: &Node| n.params().iter().skip(usize::from(n.tied.is_some())).map(elements).sum::<u128>();
            c.nodes.iter().map(own).sum()
        };
        let params: u128 = self
            .runs
            .iter()
            .map(|r| u128::from(r.repeat) * class_params(&self.classes[r.class as usize]))
            .sum();
        if params > u128::from(MOST_PARAMS) {
            return Err(Invalid::new(
                "model",
                format!("{params} parameters"),
                "lower a width or the number of layers: at most 1,000,000,000,000,000 parameters",
            ));
        }
        Ok(())
    }

    /// Names that text forms and ties rely on: words of letters, digits, `.`, `_` and `-`, unique where they are looked up.
    fn check_names(&self) -> Result<(), Invalid> {
        let unique = |field: String, names: Vec<&str>| {
            let word =
                |n: &str| !n.is_empty() && n.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c));
            let fix = "give each a name of its own, of letters, digits, `.`, `_` and `-`";
            let mut seen = BTreeSet::new();
            match names.into_iter().find(|n| !word(n) || !seen.insert(*n)) {
                Some(name) => Err(Invalid::new(field, format!("the name `{name}`"), fix)),
                None => Ok(()),
            }
        };
        unique("model.classes".into(), self.classes.iter().map(|c| c.name.as_str()).collect())?;
        for class in &self.classes {
            unique(format!("model.{}", class.name), class.nodes.iter().map(|n| n.name.as_str()).collect())?;
            let mut sites = BTreeSet::new();
            let twice = |n: &&Node| n.op.dropout().is_some_and(|d| !sites.insert(d.site));
            if let Some(node) = class.nodes.iter().find(twice) {
                let field = format!("model.{}.{}", class.name, node.name);
                let fix = "number the dropouts of a block apart, or they drop alike";
                return Err(Invalid::new(field, "a dropout site that is taken", fix));
            }
        }
        Ok(())
    }

    /// Whether an op agrees with itself and the model: `(does it, what was found, what to do)`.
    fn fits(&self, op: &Op) -> (bool, String, &'static str) {
        match op {
            Op::Embedding { rows, index: IdSource::Tokens, .. } => (
                *rows >= self.vocab,
                format!("{rows} rows"),
                "give the table a row for each of `vocab` tokens",
            ),
            Op::Embedding { rows, index: IdSource::Positions, .. } => (
                self.max_sequence.is_some_and(|n| n <= *rows),
                format!("{rows} rows"),
                "give the model a `max_sequence` of at most that",
            ),
            Op::Linear { input, output, input_grain, output_grain } => (
                input % input_grain == 0 && output % output_grain == 0,
                format!("grains {input_grain} and {output_grain} of {input} and {output} features"),
                "write grains that divide the features",
            ),
            Op::Bias { width, grain } => (
                width % grain == 0,
                format!("grain {grain} of {width}"),
                "write a grain that divides the width",
            ),
            Op::Rope { head_dim, .. } => (
                head_dim % 2 == 0,
                format!("{head_dim} features per head"),
                "make them even: rotary positions turn features in pairs",
            ),
            Op::Attention { heads, kv_heads, .. } => (
                heads % kv_heads == 0,
                format!("{heads} heads over {kv_heads} key heads"),
                "make the heads a multiple of the key heads",
            ),
            Op::CrossEntropy { vocab } => (
                *vocab >= self.vocab,
                format!("{vocab} logits"),
                "give the loss a logit for each of `vocab` tokens",
            ),
            Op::Norm { .. }
            | Op::Activation { .. }
            | Op::Gate { .. }
            | Op::Dropout { .. }
            | Op::Add { .. } => (true, String::new(), ""),
        }
    }

    /// Checks names and sizes, then the chain: topological order, arities and widths, one loss at the end, ties that exist and fit.
    pub fn check(&self) -> Result<(), Invalid> {
        let bad = |field: String, found: String, fix: &str| Err(Invalid::new(field, found, fix));
        if self.runs.iter().any(|r| r.class as usize >= self.classes.len() || r.repeat == 0)
            || self.runs.is_empty()
        {
            return bad(
                "model.runs".into(),
                "an unknown class, or no repeats".into(),
                "name existing classes, each at least once",
            );
        }
        self.check_names()?;
        self.check_sizes()?;
        for class in &self.classes {
            for (k, node) in class.nodes.iter().enumerate() {
                let field = format!("model.{}.{}", class.name, node.name);
                let (fits, found, fix) = self.fits(&node.op);
                if !fits {
                    return bad(field, found, fix);
                }
                if node.inputs.len() != node.op.arity() {
                    return bad(
                        field,
                        format!("{} inputs", node.inputs.len()),
                        "give the op as many inputs as it reads",
                    );
                }
                for (operand, value) in node.inputs.iter().enumerate() {
                    let width = match value {
                        Value::Input => self.hidden,
                        Value::Node(p) if (*p as usize) < k => class.nodes[*p as usize].op.output_width(),
                        Value::Node(p) => {
                            return bad(
                                field,
                                format!("reads node {p}"),
                                "list nodes so that each reads only earlier ones",
                            );
                        }
                    };
                    if width != node.op.input_width(operand) {
                        return bad(
                            field,
                            format!("input {operand} is {width} wide"),
                            &format!("it must be {} wide", node.op.input_width(operand)),
                        );
                    }
                }
                if let Some(tie) = &node.tied {
                    let owner =
                        self.tied_to(tie).map(|(c, n)| self.classes[c as usize].nodes[n as usize].params());
                    if owner.and_then(|p| p.first().map(ParamSpec::elements))
                        != node.params().first().map(ParamSpec::elements)
                    {
                        return bad(
                            field,
                            format!("tied to {}.{}", tie.class, tie.node),
                            "tie to a node whose first parameter has the same size",
                        );
                    }
                }
            }
        }
        let blocks = self.blocks();
        let at = |k: usize| &self.classes[blocks[k] as usize];
        for k in 0..blocks.len() {
            let last = k + 1 == blocks.len();
            if at(k).ends_in_loss() != last || at(k).has_input() != (k > 0) {
                return bad(
                    format!("model.{}", at(k).name),
                    "out of place in the chain".into(),
                    "read tokens in the first block and end the last in the loss",
                );
            }
            if !last && at(k).nodes.last().is_none_or(|n| n.op.output_width() != self.hidden) {
                return bad(
                    format!("model.{}", at(k).name),
                    "output is not `hidden` wide".into(),
                    "end every block but the last with the hidden width",
                );
            }
        }
        Ok(())
    }
}
