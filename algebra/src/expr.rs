//! Ops as index expressions (GSPMD, Xu et al. 2021): every dim of every operand names an index of the op, so that one
//! assignment of mesh axes to indices determines all layouts, forward and backward. Invariant: dims and indices are
//! listed in the order of [`Op::indices`].

use meshwright_ir::{AttentionCore, DType, IdSource, Op, ScanKind, ScoreBias, room};

/// How long an index is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// Samples of the micro-batch, all replicas together.
    Batch,
    /// Tokens of a sample.
    Sequence,
    /// Fixed by the op.
    Fixed(u64),
}

/// One index of an op.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Index {
    /// Its name.
    pub name: &'static str,
    /// Its length.
    pub extent: Extent,
    /// Elements that must stay together when it is cut.
    pub grain: u64,
    /// Whether it may be cut at all.
    pub cuttable: bool,
}

/// One dim of an operand: an index times a unit, or a fixed size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dim {
    /// Index that runs along it.
    pub index: Option<u8>,
    /// Elements per step of the index; the whole size where there is none.
    pub unit: u64,
}

/// What forward keeps beside inputs and output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Aux {
    /// Its dims.
    pub dims: Vec<Dim>,
    /// How its elements are stored.
    pub store: Store,
}

/// How an auxiliary tensor is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Store {
    /// In fp32, whatever the run computes in: statistics.
    Fp32,
    /// In the compute type, like activations.
    Compute,
    /// In a byte: masks.
    Byte,
}

impl Store {
    /// The element type in a run that computes in `compute`.
    pub fn dtype(self, compute: DType) -> DType {
        match self {
            Store::Fp32 => DType::F32,
            Store::Compute => compute,
            Store::Byte => DType::U8,
        }
    }
}

/// An op as an index expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expr {
    /// Indices.
    pub indices: Vec<Index>,
    /// Tensors read from other nodes.
    pub inputs: Vec<Vec<Dim>>,
    /// Parameters.
    pub params: Vec<Vec<Dim>>,
    /// The output.
    pub output: Vec<Dim>,
    /// What forward keeps beside inputs and output: log-sum-exp, softmax statistics, scores, masks of dropout.
    pub aux: Vec<Aux>,
    /// An index that the op reduces by collectives of its own, so that cutting it leaves no partial output.
    pub reduced_inside: Option<u8>,
}

const fn dim(index: u8) -> Dim {
    Dim { index: Some(index), unit: 1 }
}
const fn units(index: u8, unit: u64) -> Dim {
    Dim { index: Some(index), unit }
}
const fn fixed(unit: u64) -> Dim {
    Dim { index: None, unit }
}

fn aux(store: Store, dims: Vec<Dim>) -> Aux {
    Aux { dims, store }
}

impl Expr {
    /// The expression of an op.
    pub fn of(op: &Op) -> Self {
        let batch = Index { name: "b", extent: Extent::Batch, grain: 1, cuttable: true };
        let sequence = Index { name: "s", extent: Extent::Sequence, grain: 1, cuttable: true };
        let index = |name, n, grain, cuttable| Index { name, extent: Extent::Fixed(n), grain, cuttable };
        let (b, s) = (dim(0), dim(1));
        // x[b,s,e] → y[b,s,e] for every elementwise op and every norm.
        let pointwise = |inputs: usize, width, grain, cuttable, params: Vec<Vec<Dim>>| Expr {
            indices: vec![batch, sequence, index("e", width, grain, cuttable)],
            inputs: vec![vec![b, s, dim(2)]; inputs],
            params,
            output: vec![b, s, dim(2)],
            aux: vec![],
            reduced_inside: None,
        };
        match op {
            Op::Embedding { rows, width, .. } => Expr {
                indices: vec![batch, sequence, index("v", *rows, 1, true), index("e", *width, 1, true)],
                inputs: vec![],
                params: vec![vec![dim(2), dim(3)]],
                output: vec![b, s, dim(3)],
                aux: vec![],
                reduced_inside: None,
            },
            Op::Linear { input, output, input_grain, output_grain } => Expr {
                indices: vec![
                    batch,
                    sequence,
                    index("i", *input, *input_grain, true),
                    index("o", *output, *output_grain, true),
                ],
                inputs: vec![vec![b, s, dim(2)]],
                params: vec![vec![dim(3), dim(2)]],
                output: vec![b, s, dim(3)],
                aux: vec![],
                reduced_inside: None,
            },
            Op::Bias { width, grain } | Op::Gain { width, grain } => {
                pointwise(1, *width, *grain, true, vec![vec![dim(2)]])
            }
            Op::Norm { width, groups, .. } => {
                let per_group = *groups > 1;
                let vector = if per_group { vec![fixed(*width)] } else { vec![dim(2)] };
                pointwise(1, width * groups, *width, per_group, vec![vector; op.params().len()])
            }
            Op::Rope { heads, head_dim, .. } => pointwise(1, heads * head_dim, *head_dim, true, vec![]),
            Op::Activation { width, .. } | Op::Scale { width, .. } => pointwise(1, *width, 1, true, vec![]),
            Op::Spread { width } => {
                let mut expr = pointwise(2, *width, 1, true, vec![]);
                expr.inputs[0] = vec![b, s, fixed(1)];
                expr
            }
            Op::Input { width, .. } => pointwise(0, *width, 1, true, vec![]),
            // The choice is among all experts.
            Op::Route { experts, .. } => pointwise(1, *experts, 1, false, vec![]),
            // A tap looks back along the sequence, so that stays whole.
            Op::Conv { width, kernel } => {
                let taps = vec![vec![dim(2), fixed(*kernel)]];
                let whole = Index { cuttable: false, ..sequence };
                let mut expr = pointwise(1, *width, 1, true, taps);
                expr.indices[1] = whole;
                expr
            }
            Op::Scan { kind, heads, head_dim, state, groups } => {
                scan(batch, sequence, *kind, *heads, *head_dim, *state, *groups)
            }
            Op::Dispatch { width, experts, top_k } => Expr {
                inputs: vec![vec![b, s, fixed(*width)], vec![b, s, fixed(*experts)]],
                output: vec![b, s, units(2, room(*experts, *top_k, *width))],
                ..pointwise(0, *experts, 1, true, vec![])
            }
            .named(2, "x"),
            Op::ExpertLinear { experts, top_k, input, output } => Expr {
                inputs: vec![vec![b, s, units(2, room(*experts, *top_k, *input))]],
                output: vec![b, s, units(2, room(*experts, *top_k, *output))],
                ..pointwise(0, *experts, 1, true, vec![vec![dim(2), fixed(*output), fixed(*input)]])
            }
            .named(2, "x"),
            Op::ExpertBias { experts, top_k, width } => {
                let tokens = vec![b, s, units(2, room(*experts, *top_k, *width))];
                Expr {
                    inputs: vec![tokens.clone()],
                    output: tokens,
                    ..pointwise(0, *experts, 1, true, vec![vec![dim(2), fixed(*width)]])
                }
                .named(2, "x")
            }
            Op::Combine { width, experts, top_k } => Expr {
                inputs: vec![
                    vec![b, s, units(2, room(*experts, *top_k, *width))],
                    vec![b, s, fixed(*experts)],
                ],
                output: vec![b, s, fixed(*width)],
                ..pointwise(0, *experts, 1, true, vec![])
            }
            .named(2, "x"),
            Op::Index { heads, head_dim, top } => Expr {
                inputs: vec![
                    vec![b, s, units(2, *head_dim)],
                    vec![b, s, fixed(*head_dim)],
                    vec![b, s, dim(2)],
                ],
                output: vec![b, s, fixed(*top)],
                // The choice is made of the scores of all heads.
                indices: vec![batch, Index { cuttable: false, ..sequence }, index("h", *heads, 1, false)],
                ..pointwise(0, *heads, 1, false, vec![])
            },
            Op::LatentAttention { heads, nope, rotary, value, top } => Expr {
                indices: vec![batch, Index { cuttable: false, ..sequence }, index("h", *heads, 1, true)],
                inputs: [
                    Some(vec![b, s, units(2, nope + rotary)]),
                    Some(vec![b, s, units(2, nope + value)]),
                    Some(vec![b, s, fixed(*rotary)]),
                    top.map(|top| vec![b, s, fixed(top)]),
                ]
                .into_iter()
                .flatten()
                .collect(),
                params: vec![],
                output: vec![b, s, units(2, *value)],
                aux: vec![aux(Store::Fp32, vec![b, dim(2), s])],
                reduced_inside: None,
            },
            Op::Gate { width, .. } | Op::Add { width } => pointwise(2, *width, 1, true, vec![]),
            Op::Dropout { width, .. } => {
                let x = pointwise(1, *width, 1, true, vec![]);
                Expr { aux: vec![aux(Store::Byte, x.output.clone())], ..x }
            }
            Op::Attention { heads, kv_heads, head_dim, scores, core, dropout, .. } => {
                // Keys and values need every position, so the sequence stays whole inside the op.
                let whole = Index { cuttable: false, ..sequence };
                let group = heads / kv_heads;
                let kept = |store| aux(store, vec![b, units(2, group), s, s]);
                let aux = match (core, dropout) {
                    (AttentionCore::Fused, _) => vec![aux(Store::Fp32, vec![b, units(2, group), s])],
                    // Without dropout its output is the softmax's.
                    (AttentionCore::Eager, None) => vec![kept(Store::Compute)],
                    (AttentionCore::Eager, Some(_)) => {
                        vec![kept(Store::Compute), kept(Store::Byte), kept(Store::Compute)]
                    }
                };
                Expr {
                    indices: vec![batch, whole, index("h", *kv_heads, 1, true)],
                    inputs: vec![
                        vec![b, s, units(2, group * head_dim)],
                        vec![b, s, units(2, *head_dim)],
                        vec![b, s, units(2, *head_dim)],
                    ],
                    params: match scores.bias {
                        ScoreBias::None | ScoreBias::Alibi => vec![],
                        ScoreBias::Sinks => vec![vec![units(2, group)]],
                        ScoreBias::Relative { buckets } => vec![vec![fixed(buckets), units(2, group)]],
                    },
                    output: vec![b, s, units(2, group * head_dim)],
                    aux,
                    reduced_inside: None,
                }
            }
            Op::CrossEntropy { vocab } => Expr {
                indices: vec![batch, sequence, index("v", *vocab, 1, true)],
                inputs: vec![vec![b, s, dim(2)]],
                params: vec![],
                output: vec![fixed(1)],
                aux: vec![aux(Store::Fp32, vec![b, s]), aux(Store::Fp32, vec![fixed(2), b, s])],
                reduced_inside: Some(2),
            },
        }
    }

    /// Whether the op reads ids beside its inputs: tokens for an embedding, targets for the loss.
    pub fn reads_ids(op: &Op) -> bool {
        match op {
            Op::Embedding { index, .. } => *index == IdSource::Tokens,
            Op::CrossEntropy { .. } => true,
            Op::Linear { .. }
            | Op::Bias { .. }
            | Op::Norm { .. }
            | Op::Rope { .. }
            | Op::Attention { .. }
            | Op::Dropout { .. }
            | Op::Activation { .. }
            | Op::Gate { .. }
            | Op::LatentAttention { .. }
            | Op::Index { .. }
            | Op::Scale { .. }
            | Op::Spread { .. }
            | Op::Gain { .. }
            | Op::Route { .. }
            | Op::Dispatch { .. }
            | Op::ExpertLinear { .. }
            | Op::ExpertBias { .. }
            | Op::Combine { .. }
            | Op::Conv { .. }
            | Op::Scan { .. }
            | Op::Input { .. }
            | Op::Add { .. } => false,
        }
    }

    fn named(mut self, index: usize, name: &'static str) -> Self {
        self.indices[index].name = name;
        self
    }

    /// Position of an index by name.
    pub fn index(&self, name: &str) -> Option<u8> {
        self.indices.iter().position(|i| i.name == name).map(|k| k as u8)
    }
}

/// A recurrence: its index runs over groups of heads, or over heads where one group serves them all, whose shared tensors
/// are then whole.
fn scan(
    batch: Index,
    sequence: Index,
    kind: ScanKind,
    heads: u64,
    head_dim: u64,
    state: u64,
    groups: u64,
) -> Expr {
    let (b, s) = (dim(0), dim(1));
    let steps = if groups == 1 { heads } else { groups };
    let group = heads / steps;
    let shared = if groups == 1 { vec![b, s, fixed(state)] } else { vec![b, s, units(2, state)] };
    let (values, scalars) = (vec![b, s, units(2, group * head_dim)], vec![b, s, units(2, group)]);
    let per_head = vec![units(2, group)];
    let cut = Index { name: "h", extent: Extent::Fixed(steps), grain: 1, cuttable: true };
    Expr {
        indices: vec![batch, Index { cuttable: false, ..sequence }, cut],
        inputs: match kind {
            ScanKind::Selective | ScanKind::Ssd => {
                vec![values.clone(), scalars, shared.clone(), shared]
            }
            ScanKind::Delta => vec![shared.clone(), shared, values.clone(), scalars.clone(), scalars],
        },
        params: match kind {
            ScanKind::Selective => vec![vec![units(2, group), fixed(state)], per_head],
            ScanKind::Ssd => vec![per_head.clone(), per_head],
            ScanKind::Delta => vec![per_head],
        },
        output: values,
        aux: vec![],
        reduced_inside: None,
    }
}
