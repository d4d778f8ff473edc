//! A model: blocks of ops in a chain, each distinct block stored once. Within a block, nodes form a DAG in topological
//! order with one output each; the block's input and its last node's output are `[batch, sequence, width]` tensors that
//! join it to its neighbours. The first block reads tokens, the last ends in the loss.

use crate::{Init, Invalid, Op, ParamSpec};
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

    /// Checks the chain: topological order, arities and widths, one loss at the end, ties that exist and fit.
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
        for class in &self.classes {
            for (k, node) in class.nodes.iter().enumerate() {
                let field = format!("model.{}.{}", class.name, node.name);
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
                if let Op::Attention { heads, kv_heads, .. } = node.op
                    && (kv_heads == 0 || heads % kv_heads != 0)
                {
                    return bad(
                        field,
                        format!("{heads} heads over {kv_heads} key heads"),
                        "make the heads a multiple of the key heads",
                    );
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
