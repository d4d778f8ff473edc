//! Whether a model can be what it says: believable sizes, names that are found again, ops that fit each other, blocks that
//! follow each other. What passes can be counted without overflow.

use super::{BlockClass, BlockRun, Model, Node, Tie, Value};
use crate::{IdSource, Invalid, Op, ParamSpec};
use std::collections::BTreeSet;

/// Most blocks in a chain that are believed.
const MOST_BLOCKS: u64 = 200_000;
/// Most parameters that are believed: a quadrillion, a thousand times the largest model published.
const MOST_PARAMS: u64 = 1_000_000_000_000_000;

impl Model {
    /// Sizes that are believable, so that no count made of them overflows: dims and widths as [`Op`] believes them, at
    /// most [`MOST_BLOCKS`] blocks, at most [`MOST_PARAMS`] parameters.
    fn check_sizes(&self) -> Result<(), Invalid> {
        let (mut blocks, mut params) = (0u64, 0u128);
        for (place, _, classes, runs) in self.chains() {
            for class in classes {
                for node in &class.nodes {
                    node.op.check_sizes().map_err(|e| {
                        Invalid::new(
                            format!("{place}.{}.{}.{}", class.name, node.name, e.field),
                            e.found,
                            e.fix,
                        )
                    })?;
                }
            }
            blocks += runs.iter().map(|r| u64::from(r.repeat)).sum::<u64>();
            // Each dim is at most 2^32 and so is a product of two of three, so one parameter fits 65 bits and their sum
            // over all blocks fits u128.
            let class_params = |c: &BlockClass| -> u128 {
                let elements = |p: &ParamSpec| p.shape.iter().map(|d| u128::from(*d)).product::<u128>();
                let own = |n: &Node| {
                    n.params().iter().skip(usize::from(n.tied.is_some())).map(elements).sum::<u128>()
                };
                c.nodes.iter().map(own).sum()
            };
            params += runs
                .iter()
                .map(|r| u128::from(r.repeat) * class_params(&classes[r.class as usize]))
                .sum::<u128>();
        }
        if blocks > MOST_BLOCKS {
            return Err(Invalid::new(
                "model.runs",
                format!("{blocks} blocks"),
                "repeat fewer blocks: at most 200,000",
            ));
        }
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
        unique("model.towers".into(), self.towers.iter().map(|t| t.name.as_str()).collect())?;
        for (place, _, classes, _) in self.chains() {
            unique(format!("{place}.classes"), classes.iter().map(|c| c.name.as_str()).collect())?;
            for class in classes {
                unique(
                    format!("{place}.{}", class.name),
                    class.nodes.iter().map(|n| n.name.as_str()).collect(),
                )?;
                let mut sites = BTreeSet::new();
                let twice = |n: &&Node| n.op.dropout().is_some_and(|d| !sites.insert(d.site));
                if let Some(node) = class.nodes.iter().find(twice) {
                    let field = format!("{place}.{}.{}", class.name, node.name);
                    let fix = "number the dropouts of a block apart, or they drop alike";
                    return Err(Invalid::new(field, "a dropout site that is taken", fix));
                }
            }
        }
        Ok(())
    }

    /// Whether an op agrees with itself and the model (tables of towers are their own): `(does it, what was found, what to do)`.
    fn fits(&self, op: &Op, tower: bool) -> (bool, String, &'static str) {
        match op {
            Op::Embedding { rows, index: IdSource::Tokens, .. } => (
                *rows >= self.vocab,
                format!("{rows} rows"),
                "give the table a row for each of `vocab` tokens",
            ),
            Op::Embedding { rows, index: IdSource::Positions, .. } => (
                tower || self.max_sequence.is_some_and(|n| n <= *rows),
                format!("{rows} rows"),
                "give the model a `max_sequence` of at most that",
            ),
            Op::Embedding { index: IdSource::Segments, .. } => (true, String::new(), ""),
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
            Op::Rope { head_dim, turned, .. } => (
                turned.unwrap_or(*head_dim) % 2 == 0 && turned.is_none_or(|t| t <= *head_dim),
                match turned {
                    Some(t) => format!("{t} of {head_dim} features per head"),
                    None => format!("{head_dim} features per head"),
                },
                "make them even: rotary positions turn features in pairs",
            ),
            Op::LatentAttention { rotary, .. } => (
                rotary % 2 == 0,
                format!("{rotary} rotary features"),
                "make them even: rotary positions turn features in pairs",
            ),
            Op::Route { experts, top_k, .. }
            | Op::Dispatch { experts, top_k, .. }
            | Op::ExpertLinear { experts, top_k, .. }
            | Op::ExpertBias { experts, top_k, .. }
            | Op::Combine { experts, top_k, .. } => (
                top_k <= experts,
                format!("{top_k} of {experts} experts"),
                "let a token visit at most all experts",
            ),
            Op::Scan { heads, groups, .. } => (
                heads % groups == 0,
                format!("{heads} heads in {groups} groups"),
                "make the heads a multiple of the groups",
            ),
            Op::Gain { width, grain } => (
                width % grain == 0,
                format!("grain {grain} of {width}"),
                "write a grain that divides the width",
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
            | Op::Scale { .. }
            | Op::Index { .. }
            | Op::Spread { .. }
            | Op::Conv { .. }
            | Op::Input { .. }
            | Op::Dropout { .. }
            | Op::Add { .. } => (true, String::new(), ""),
        }
    }

    /// Checks names and sizes, then every chain: topological order, arities and widths, one loss at the end of the chain
    /// and none in a tower, ties that exist and fit.
    pub fn check(&self) -> Result<(), Invalid> {
        for (place, hidden, classes, runs) in self.chains() {
            if runs.iter().any(|r| r.class as usize >= classes.len() || r.repeat == 0) || runs.is_empty() {
                return Err(Invalid::new(
                    format!("{place}.runs"),
                    "an unknown class, or no repeats",
                    "name existing classes, each at least once",
                ));
            }
            if hidden == 0 {
                return Err(Invalid::new(format!("{place}.hidden"), "0", "write a whole number above 0"));
            }
        }
        self.check_names()?;
        self.check_sizes()?;
        for (place, hidden, classes, _) in self.chains() {
            for class in classes {
                for k in 0..class.nodes.len() {
                    self.check_node(&place, hidden, classes, class, k)?;
                }
            }
        }
        self.chains().into_iter().enumerate().try_for_each(|(k, (place, hidden, classes, runs))| {
            check_chain(&place, hidden, classes, runs, k > 0)
        })
    }

    fn check_node(
        &self,
        place: &str,
        hidden: u64,
        classes: &[BlockClass],
        class: &BlockClass,
        k: usize,
    ) -> Result<(), Invalid> {
        let node = &class.nodes[k];
        let bad = |found: String, fix: &str| {
            Err(Invalid::new(format!("{place}.{}.{}", class.name, node.name), found, fix))
        };
        let (fits, found, fix) = self.fits(&node.op, place != "model");
        if !fits {
            return bad(found, fix);
        }
        if node.inputs.len() != node.op.arity() {
            return bad(format!("{} inputs", node.inputs.len()), "give the op as many inputs as it reads");
        }
        for (operand, value) in node.inputs.iter().enumerate() {
            let width = match value {
                Value::Input => hidden,
                Value::Node(p) if (*p as usize) < k => class.nodes[*p as usize].op.output_width(),
                Value::Node(p) => {
                    return bad(format!("reads node {p}"), "list nodes so that each reads only earlier ones");
                }
            };
            if width != node.op.input_width(operand) {
                let fix = format!("it must be {} wide", node.op.input_width(operand));
                return bad(format!("input {operand} is {width} wide"), &fix);
            }
        }
        let Some(tie) = &node.tied else { return Ok(()) };
        let owner = find(classes, tie).or_else(|| find(&self.classes, tie)).map(Node::params);
        let size = |params: &[ParamSpec]| params.first().map(ParamSpec::elements);
        match owner.as_deref().and_then(size) {
            Some(elements) if Some(elements) == size(&node.params()) => Ok(()),
            _ => bad(
                format!("tied to {}.{}", tie.class, tie.node),
                "tie to a node whose first parameter has the same size",
            ),
        }
    }
}

/// The node that a tie names.
fn find<'a>(classes: &'a [BlockClass], tie: &Tie) -> Option<&'a Node> {
    classes.iter().find(|c| c.name == tie.class)?.nodes.iter().find(|n| n.name == tie.node)
}

/// A chain's order: a first block that reads no other, one loss at the end (none in a tower), one width between.
fn check_chain(
    place: &str,
    hidden: u64,
    classes: &[BlockClass],
    runs: &[BlockRun],
    tower: bool,
) -> Result<(), Invalid> {
    let blocks: Vec<u32> =
        runs.iter().flat_map(|r| std::iter::repeat_n(r.class, r.repeat as usize)).collect();
    let bad = |class: &BlockClass, found: &str, fix: &str| {
        Err(Invalid::new(format!("{place}.{}", class.name), found, fix))
    };
    for (k, class) in blocks.iter().map(|c| &classes[*c as usize]).enumerate() {
        let last = k + 1 == blocks.len();
        if class.ends_in_loss() != (last && !tower) || class.has_input() != (k > 0) {
            let fix = "read tokens in the first block and end the last in the loss";
            return bad(class, "out of place in the chain", fix);
        }
        let ends_wide = class.nodes.last().is_some_and(|n| n.op.output_width() == hidden);
        if !last && !ends_wide {
            let fix = "end every block but the last with the hidden width";
            return bad(class, "output is not `hidden` wide", fix);
        }
    }
    Ok(())
}
