//! A model: blocks of ops in a chain, each distinct block stored once. Within a block, nodes form a DAG in topological
//! order with one output each; the block's input and its last node's output are `[batch, sequence, width]` tensors that
//! join it to its neighbours. The first block reads tokens, the last ends in the loss.

mod check;

use crate::{Init, Op, ParamSpec};
use petgraph::graph::{DiGraph, NodeIndex};
use serde::{Deserialize, Serialize};

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

/// Blocks beside the chain that hand in what its [`Op::Input`]s read: an encoder, a vision tower. Their widths are their
/// own, and the tokens they see are not those of the chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tower {
    /// What it is: `encoder`, `vision`.
    pub name: String,
    /// Width of the tensor between its blocks.
    pub hidden: u64,
    /// Tokens that one sample gives it, where the source says so.
    pub tokens: Option<u64>,
    /// Distinct blocks.
    pub classes: Vec<BlockClass>,
    /// Its chain, in order.
    pub runs: Vec<BlockRun>,
}

impl Tower {
    /// All its parameters, tied ones left out.
    pub fn params(&self) -> u64 {
        self.runs.iter().map(|r| u64::from(r.repeat) * self.classes[r.class as usize].params()).sum()
    }
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
    /// Chains beside the chain.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub towers: Vec<Tower>,
    /// What the reader assumed because the source did not say.
    #[serde(default)]
    pub assumed: Vec<String>,
}

/// Parameters of a node that a token does not meet, if `top_k` of its `experts` see the token.
fn idle(node: &Node, routed: Option<(u64, u64)>) -> u64 {
    let own = || node.params().iter().map(ParamSpec::elements).sum::<u64>();
    routed.map_or(0, |(experts, top_k)| own() / experts * (experts - top_k))
}

/// Every chain's classes with the word that leads to them, and its runs.
type Chains<'a> = Vec<(String, u64, &'a [BlockClass], &'a [BlockRun])>;

impl Model {
    /// The chain and the towers: where, width, classes, runs.
    fn chains(&self) -> Chains<'_> {
        let towers =
            self.towers.iter().map(|t| (format!("model.{}", t.name), t.hidden, &t.classes[..], &t.runs[..]));
        std::iter::once(("model".to_string(), self.hidden, &self.classes[..], &self.runs[..]))
            .chain(towers)
            .collect()
    }
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
    /// All parameters, tied ones once, those of towers included.
    pub fn params(&self) -> u64 {
        self.sum(BlockClass::params)
    }
    /// Parameters that one token meets: of its experts, those it visits.
    pub fn active_params(&self) -> u64 {
        self.params() - self.sum(|c| c.nodes.iter().map(|n| idle(n, n.op.routed())).sum())
    }
    /// Parameters of experts that tokens are routed to.
    pub fn routed_params(&self) -> u64 {
        self.sum(|c| c.nodes.iter().map(|n| idle(n, n.op.routed().map(|(experts, _)| (experts, 0)))).sum())
    }
    /// What `of` gives for a class, summed over every block of the chain and of the towers.
    fn sum(&self, of: impl Fn(&BlockClass) -> u64) -> u64 {
        let chain = |runs: &[BlockRun], classes: &[BlockClass]| -> u64 {
            runs.iter().map(|r| u64::from(r.repeat) * of(&classes[r.class as usize])).sum()
        };
        let towers: u64 = self.towers.iter().map(|t| chain(&t.runs, &t.classes)).sum();
        chain(&self.runs, &self.classes) + towers
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
}
