//! What a decoder is made of, as facts: an embedding, layers of a mixer and a feed-forward each, a head. A family's file
//! fills these in from its keys; the graph of ops follows from them here. Layers that are equal are one block class.

use super::block::{Block, Projection};
use super::keys::Keys;
use super::mixer::{Attention, Mixer};
use super::mlp::Mlp;
use crate::ZooError;
use meshwright_ir::{
    ActivationKind, BlockClass, BlockRun, Dropout, IdSource, InputKind, Model, NormKind, Op, Real, Tower,
    Value,
};

/// Most kinds of layers in one model that are believed; published ones have fewer than ten, block-wise pruned ones tens.
const MOST_KINDS: usize = 1024;

/// A model as a family's file describes it.
pub(crate) struct Decoder {
    pub(crate) family: &'static str,
    pub(crate) hidden: u64,
    pub(crate) vocab: u64,
    /// Rows of the position table, where there is one and it limits the sequence.
    pub(crate) max_sequence: Option<u64>,
    /// Standard deviation that matrices start with.
    pub(crate) std: f64,
    pub(crate) eps: Real,
    pub(crate) embed: Embed,
    pub(crate) layers: Vec<Layer>,
    pub(crate) head: Head,
    pub(crate) towers: Vec<Tower>,
}

/// From tokens to the first layer's input.
#[derive(Clone, Default)]
pub(crate) struct Embed {
    /// Width of the table where it is not the model's; a projection then follows.
    pub(crate) width: Option<u64>,
    /// Rows of a table of learned positions.
    pub(crate) positions: Option<u64>,
    /// Rows of a table of segments.
    pub(crate) segments: Option<u64>,
    /// A norm of the sum.
    pub(crate) norm: Option<NormKind>,
    /// Factor on the tokens' rows.
    pub(crate) scale: Option<f64>,
    /// What is dropped of the sum.
    pub(crate) dropout: Option<Dropout>,
    /// Towers hand in rows for some positions.
    pub(crate) images: bool,
    /// A first block of its own kind, in place of all that.
    pub(crate) block: Option<BlockClass>,
}

/// From the last layer's output to the loss.
#[derive(Clone)]
pub(crate) struct Head {
    pub(crate) norm: Option<NormKind>,
    /// A dense layer of the model's width with this activation, then a norm of `transform_norm`.
    pub(crate) transform: Option<ActivationKind>,
    pub(crate) transform_norm: Option<NormKind>,
    /// Whether the logits' matrix is the token table.
    pub(crate) tied: bool,
    pub(crate) bias: bool,
    /// Factor on the logits.
    pub(crate) scale: Option<f64>,
    /// c·tanh(logit/c).
    pub(crate) softcap: Option<f64>,
}

impl Head {
    /// A norm, and logits that are tied or not.
    pub(crate) fn new(norm: NormKind, tied: bool) -> Self {
        Self {
            norm: Some(norm),
            transform: None,
            transform_norm: None,
            tied,
            bias: false,
            scale: None,
            softcap: None,
        }
    }
}

/// Where a layer's norms stand.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// Before each branch.
    Before,
    /// After each residual sum (Vaswani et al. 2017).
    After,
    /// On each branch's output, before the sum (OLMo 2).
    Inside,
    /// Before and after each branch (Gemma 2).
    Around,
    /// One norm for both branches, which stand side by side.
    Parallel,
    /// A norm for each branch; both read the layer's input.
    ParallelTwo,
}

/// One layer.
#[derive(Clone, PartialEq)]
pub(crate) struct Layer {
    pub(crate) place: Place,
    pub(crate) norm: NormKind,
    pub(crate) eps: Real,
    pub(crate) mixer: Option<Mixer>,
    /// A second attention, into what a tower hands in.
    pub(crate) cross: Option<Attention>,
    pub(crate) mlp: Option<Mlp>,
    /// Factor on each branch before its sum.
    pub(crate) residual: Option<f64>,
}

/// A normalisation over one group.
pub(crate) fn norm(kind: NormKind, width: u64, eps: Real) -> Op {
    Op::Norm { kind, width, groups: 1, eps }
}

impl Decoder {
    /// The model of these facts.
    pub(crate) fn model(self, name: &str, keys: &Keys<'_>) -> Result<Model, ZooError> {
        let (layers, runs) = stack(&self.layers, self.hidden, self.std, 1, keys)?;
        let last = layers.len() as u32 + 1;
        let classes = [vec![self.embedding()], layers, vec![self.heading()]].concat();
        let ends = [BlockRun { class: 0, repeat: 1 }, BlockRun { class: last, repeat: 1 }];
        Ok(Model {
            name: name.to_string(),
            family: self.family.to_string(),
            hidden: self.hidden,
            vocab: self.vocab,
            max_sequence: self.max_sequence,
            classes,
            runs: [&ends[..1], &runs, &ends[1..]].concat(),
            towers: self.towers,
            assumed: keys.assumed(),
        })
    }

    fn embedding(&self) -> BlockClass {
        let (e, h) = (&self.embed, self.hidden);
        if let Some(block) = &e.block {
            return block.clone();
        }
        let mut b = Block::new("embed", self.std);
        let table = |rows, width, index| Op::Embedding { rows, width, index };
        let width = e.width.unwrap_or(h);
        let mut x = b.add("tokens", table(self.vocab, width, IdSource::Tokens), []);
        if let Some(factor) = e.scale {
            x = b.scale("scale", x, width, factor);
        }
        if e.width.is_some() {
            x = b.project("widen", x, Projection::new(width, h));
        }
        if e.images {
            let images = b.add("images", Op::Input { width: h, kind: InputKind::Memory }, []);
            x = b.add("sum.images", Op::Add { width: h }, [x, images]);
        }
        for (rows, name, index, sum) in [
            (e.positions, "positions", IdSource::Positions, "sum"),
            (e.segments, "segments", IdSource::Segments, "sum.segments"),
        ] {
            if let Some(rows) = rows {
                let y = b.add(name, table(rows, h, index), []);
                x = b.add(sum, Op::Add { width: h }, [x, y]);
            }
        }
        if let Some(kind) = e.norm {
            x = b.add("norm", norm(kind, h, self.eps), [x]);
        }
        b.drop("sum", x, h, e.dropout);
        b.finish()
    }

    fn heading(&self) -> BlockClass {
        let (head, h, vocab) = (&self.head, self.hidden, self.vocab);
        let mut b = Block::new("head", self.std);
        let mut x = Value::Input;
        if let Some(kind) = head.norm {
            x = b.add("norm", norm(kind, h, self.eps), [x]);
        }
        if let Some(kind) = head.transform {
            x = b.project("transform", x, Projection { bias: true, ..Projection::new(h, h) });
            x = b.add("act", Op::Activation { kind, width: h }, [x]);
        }
        if let Some(kind) = head.transform_norm {
            x = b.add("transform.norm", norm(kind, h, self.eps), [x]);
        }
        let width = self.embed.width.unwrap_or(h);
        if width != h || self.embed.width.is_some() {
            x = b.project("narrow", x, Projection::new(h, width));
        }
        x = b.project("logits", x, Projection::new(width, vocab));
        if head.tied {
            b.tie_last("embed", "tokens");
        }
        if head.bias {
            x = b.add("logits.bias", Op::Bias { width: vocab, grain: 1 }, [x]);
        }
        if let Some(factor) = head.scale {
            x = b.scale("logits.scale", x, vocab, factor);
        }
        if let Some(cap) = head.softcap {
            x = b.scale("logits.shrink", x, vocab, 1.0 / cap);
            x = b.add("logits.tanh", Op::Activation { kind: ActivationKind::Tanh, width: vocab }, [x]);
            x = b.scale("logits.cap", x, vocab, cap);
        }
        b.add("loss", Op::CrossEntropy { vocab }, [x]);
        b.finish()
    }
}

/// Block classes of a stack of layers, one for each kind, and the runs that name them from class `first` on.
pub(crate) fn stack(
    layers: &[Layer],
    hidden: u64,
    std: f64,
    first: u32,
    keys: &Keys<'_>,
) -> Result<(Vec<BlockClass>, Vec<BlockRun>), ZooError> {
    let mut kinds: Vec<&Layer> = Vec::new();
    let mut runs: Vec<BlockRun> = Vec::new();
    for layer in layers {
        // The latest kind first: most layers are like their neighbours.
        let known = kinds.iter().rposition(|k| *k == layer);
        let class = known.unwrap_or(kinds.len()) as u32 + first;
        if known.is_none() {
            kinds.push(layer);
            if kinds.len() > MOST_KINDS {
                let fix = format!("make no more than {MOST_KINDS} kinds");
                return Err(keys.error("layers", "too many kinds of layers", fix));
            }
        }
        match runs.last_mut() {
            Some(run) if run.class == class => run.repeat += 1,
            _ => runs.push(BlockRun { class, repeat: 1 }),
        }
    }
    let mut names: Vec<String> = Vec::new();
    for (k, layer) in kinds.iter().enumerate() {
        let plain = if k == 0 { "layer".to_string() } else { format!("layer.{}", layer.word(kinds[0])) };
        let taken = names.iter().filter(|n| **n == plain || n.starts_with(&format!("{plain}."))).count();
        names.push(if taken == 0 || k == 0 { plain } else { format!("{plain}.{}", taken + 1) });
    }
    let build = |(layer, name): (&&Layer, &String)| layer.block(name, hidden, std);
    Ok((kinds.iter().zip(&names).map(build).collect(), runs))
}

impl Layer {
    /// A layer with norms of `norm` before its branches.
    pub(crate) fn new(norm: NormKind, eps: Real, mixer: Mixer, mlp: Mlp) -> Self {
        Self {
            place: Place::Before,
            norm,
            eps,
            mixer: Some(mixer),
            cross: None,
            mlp: Some(mlp),
            residual: None,
        }
    }

    /// What a layer is called beside the first kind of its model.
    fn word(&self, first: &Layer) -> &'static str {
        match (&self.mixer, &self.mlp) {
            (Some(mixer), _) if self.mixer != first.mixer => mixer.word(first.mixer.as_ref()),
            (None, Some(mlp)) if first.mixer.is_some() => mlp.word(),
            (_, Some(mlp)) => mlp.word(),
            (Some(_), None) => "mixer",
            (None, None) => "empty",
        }
    }

    /// Its graph.
    fn block(&self, name: &str, hidden: u64, std: f64) -> BlockClass {
        let mut b = Block::new(name, std);
        let side_by_side = matches!(self.place, Place::Parallel | Place::ParallelTwo);
        let mut x = Value::Input;
        let mut normed = None;
        if let Some(mixer) = &self.mixer {
            (x, normed) = self.branch(&mut b, hidden, "1", x, x, None, |b, x| mixer.build(b, x, hidden));
        }
        if let Some(cross) = &self.cross {
            (x, _) =
                self.branch(&mut b, hidden, ".cross", x, x, None, |b, x| cross.build(b, x, hidden, "cross."));
        }
        if let Some(mlp) = &self.mlp {
            let k = if self.mixer.is_some() { "2" } else { "1" };
            let from = if side_by_side { Value::Input } else { x };
            let shared = normed.filter(|_| self.place == Place::Parallel);
            (x, _) = self.branch(&mut b, hidden, k, from, x, shared, |b, x| mlp.build(b, x, hidden));
        }
        if x == Value::Input {
            // A layer that was pruned away altogether still hands its input on.
            b.scale("pass", x, hidden, 1.0);
        }
        b.finish()
    }

    /// One branch, its norms and its sum with `skip`: the layer's value after it, and its normed input.
    #[allow(clippy::too_many_arguments)]
    fn branch(
        &self,
        b: &mut Block,
        hidden: u64,
        k: &str,
        from: Value,
        skip: Value,
        shared: Option<Value>,
        body: impl FnOnce(&mut Block, Value) -> Value,
    ) -> (Value, Option<Value>) {
        let op = || norm(self.norm, hidden, self.eps);
        let before = match self.place {
            Place::Before | Place::Around | Place::Parallel | Place::ParallelTwo => {
                Some(shared.unwrap_or_else(|| b.add(&format!("norm{k}"), op(), [from])))
            }
            Place::After | Place::Inside => None,
        };
        let mut y = body(b, before.unwrap_or(from));
        match self.place {
            Place::Inside => y = b.add(&format!("norm{k}"), op(), [y]),
            Place::Around => y = b.add(&format!("norm{k}.post"), op(), [y]),
            Place::Before | Place::After | Place::Parallel | Place::ParallelTwo => {}
        }
        if let Some(factor) = self.residual {
            y = b.scale(&format!("residual{k}.scale"), y, hidden, factor);
        }
        y = b.add(&format!("residual{k}"), Op::Add { width: hidden }, [skip, y]);
        if self.place == Place::After {
            y = b.add(&format!("norm{k}"), op(), [y]);
        }
        (y, before)
    }
}
