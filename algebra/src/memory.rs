//! The memory accountant. A rank's arena is laid out in regions: weights, masters, moments, gradients, scalars; then one
//! frame per micro-batch in flight, holding what backward needs; then buffers at the stage's boundary; then a workspace
//! that blocks share. Lowering places buffers at exactly these offsets, so the planner's closed form and the planned
//! peak are one number. The order of regions and the 256-byte granule are choices, not physics.

use crate::expand::{BlockCode, BlockInstruction, Home, Scope, Tensor, is_unplaced};
use meshwright_ir::program::Kernel;
use meshwright_ir::{AxisSet, Bytes, DType, Model, Optimizer, Precision, Tie};
use std::collections::BTreeMap;

/// Every buffer starts at a multiple of this many bytes (what CUDA allocators use), gradients of one group aside.
pub const ALIGNMENT: u64 = 256;

/// Gives every tensor that forward writes and backward reads a place in the frame; returns the frame's size.
pub(crate) fn place_frame(
    tensors: &mut [Tensor],
    forward: &[BlockInstruction],
    backward: &[BlockInstruction],
) -> Bytes {
    let mut kept = vec![false; tensors.len()];
    backward.iter().flat_map(|i| &i.reads).for_each(|t| kept[*t as usize] = true);
    let mut size = Bytes::ZERO;
    for t in forward.iter().flat_map(|i| &i.writes).map(|t| *t as usize) {
        if kept[t] && is_unplaced(tensors[t].home) {
            tensors[t].home = Home::Frame(size);
            size += tensors[t].dtype.bytes(tensors[t].elements).align(ALIGNMENT);
        }
    }
    size
}

/// Gives every unplaced tensor of a pass a place in the workspace, first fit by time of birth; returns its size.
pub(crate) fn place_workspace(tensors: &mut [Tensor], pass: &[BlockInstruction]) -> Bytes {
    let mut lives: BTreeMap<u32, (usize, usize)> = BTreeMap::new();
    for (k, i) in pass.iter().enumerate() {
        for t in i.reads.iter().chain(&i.writes).filter(|t| is_unplaced(tensors[**t as usize].home)) {
            lives.entry(*t).or_insert((k, k)).1 = k;
        }
    }
    let mut order: Vec<(u32, (usize, usize))> = lives.into_iter().collect();
    order.sort_by_key(|(t, (first, _))| (*first, *t));
    let mut placed: Vec<(u64, u64, usize)> = Vec::new();
    let mut size = 0;
    for (t, (first, last)) in order {
        let bytes = tensors[t as usize].dtype.bytes(tensors[t as usize].elements).align(ALIGNMENT).0;
        // Those still alive when this one is born; lists are ordered by birth.
        let mut alive: Vec<(u64, u64)> = placed.iter().filter(|p| p.2 >= first).map(|p| (p.0, p.1)).collect();
        alive.sort_unstable();
        let offset =
            alive.iter().fold(0, |at, (from, to)| if at + bytes <= *from { at } else { at.max(*to) });
        placed.push((offset, offset + bytes, last));
        size = size.max(offset + bytes);
        tensors[t as usize].home = Home::Workspace(Bytes(offset));
    }
    Bytes(size)
}

/// Where one parameter's buffers start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParamPlace {
    /// Compute copy.
    pub weight: Bytes,
    /// fp32 copy, in mixed precision.
    pub master: Option<Bytes>,
    /// Gradient.
    pub gradient: Bytes,
    /// Optimizer moments.
    pub moments: Vec<Bytes>,
    /// Set when the parameter is another block's of the same stage: `(block of the stage, parameter)`.
    pub shared: Option<(u32, u32)>,
}

/// Where one block's buffers start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockPlace {
    /// Parameters, in the expansion's order.
    pub params: Vec<ParamPlace>,
    /// The block's input within a frame.
    pub input: Bytes,
    /// What it keeps within a frame.
    pub kept: Bytes,
}

/// Gradients that are summed together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GradientGroup {
    /// Block of the stage.
    pub block: u32,
    /// Axes they are summed over.
    pub axes: AxisSet,
    /// Pieces that the sum is split into among replicas; 1 when every replica gets all of it.
    pub pieces: u64,
    /// Parameters of the block.
    pub members: Vec<u32>,
}

/// The arena of one stage's ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StageMemory {
    /// Blocks of the stage, in order.
    pub blocks: Vec<BlockPlace>,
    /// Groups of gradients that are contiguous and summed together.
    pub gradient_groups: Vec<GradientGroup>,
    /// Loss, squared gradient norm.
    pub scalars: [Bytes; 2],
    /// Start of each frame.
    pub frames: Vec<Bytes>,
    /// Outgoing activations, incoming gradients, outgoing gradients at the stage's boundary.
    pub boundary: [Vec<Bytes>; 3],
    /// Gradients between blocks of the stage, alternating.
    pub handover: [Bytes; 2],
    /// The workspace.
    pub workspace: Bytes,
    /// Bytes by region: weights, masters, moments, gradients, frames, boundary, workspace.
    pub regions: [(&'static str, Bytes); 7],
    /// Size of the arena: the planned peak.
    pub peak: Bytes,
}

/// What a stage's memory depends on beside its blocks.
#[derive(Debug, Clone, Copy)]
pub struct StageShape {
    /// Position of the stage and their number.
    pub stage: (u32, u32),
    /// Micro-batches in flight at most.
    pub in_flight: u64,
    /// Micro-batches of a step.
    pub micro_batches: u64,
    /// Elements of the tensor between blocks, on one rank.
    pub boundary_elements: u64,
    /// Precision recipe.
    pub precision: Precision,
    /// Update rule.
    pub optimizer: Optimizer,
    /// Axes among which optimizer state and master weights are split, and how many pieces that makes.
    pub pieces: (AxisSet, u64),
}

impl StageShape {
    /// How many pieces a parameter's master and moments are split into: as many as there are replicas where its gradient
    /// is summed over all of them and its elements divide evenly. A tied parameter with copies on two stages stays whole,
    /// since the copies are summed after the replicas.
    pub fn pieces_of(&self, model: &Model, class: u32, param: &Scope) -> u64 {
        let (axes, n) = self.pieces;
        let summed = !axes.is_empty() && axes.iter().all(|a| param.sync.contains(a));
        let owns = |tie: &Tie| {
            model.tied_to(tie).is_some_and(|(c, node)| {
                let name = &model.classes[c as usize].nodes[node as usize].name;
                c == class && param.name.rsplit_once('.').is_some_and(|(owner, _)| owner == name)
            })
        };
        let ties = || model.classes.iter().flat_map(|c| &c.nodes).filter_map(|n| n.tied.as_ref());
        let copied = self.stage.1 > 1 && (param.tied.is_some() || ties().any(owns));
        if summed && !copied && param.elements.is_multiple_of(n) { n } else { 1 }
    }
}

/// Hands out aligned offsets.
struct Cursor(Bytes);

impl Cursor {
    fn take(&mut self, bytes: Bytes) -> Bytes {
        let at = self.0;
        self.0 = (self.0 + bytes).align(ALIGNMENT);
        at
    }
}

/// Lays out the arena of a stage whose blocks, in order, are of these classes and expand to these codes.
pub fn stage_memory(model: &Model, chain: &[(u32, &BlockCode)], shape: &StageShape) -> StageMemory {
    let mut cursor = Cursor(Bytes::ZERO);
    let mut blocks: Vec<BlockPlace> =
        chain.iter().map(|_| BlockPlace { params: vec![], input: Bytes::ZERO, kept: Bytes::ZERO }).collect();
    let mut marks = vec![Bytes::ZERO];
    // A parameter tied to one that lives on this stage is that one.
    let owner = |tie: &meshwright_ir::Tie| {
        let (class, node) = model.tied_to(tie)?;
        let block = chain.iter().position(|(c, _)| *c == class)?;
        let name = &model.classes[class as usize].nodes[node as usize].name;
        let param = chain[block]
            .1
            .params
            .iter()
            .position(|p| p.name.rsplit_once('.').is_some_and(|(n, _)| n == name))?;
        Some((block as u32, param as u32))
    };
    let compute = shape.precision.compute();
    for (b, (_, code)) in chain.iter().enumerate() {
        for p in &code.params {
            let shared = p.tied.as_ref().and_then(owner).filter(|(block, _)| *block as usize != b);
            let weight = if shared.is_some() { Bytes::ZERO } else { cursor.take(compute.bytes(p.elements)) };
            blocks[b].params.push(ParamPlace {
                weight,
                master: None,
                gradient: Bytes::ZERO,
                moments: vec![],
                shared,
            });
        }
    }
    marks.push(cursor.0);
    let own = |blocks: &[BlockPlace], b: usize, p: usize| blocks[b].params[p].shared.is_none();
    // Elements of each parameter's master and moments.
    let each = |f: &mut dyn FnMut(usize, usize, u64)| {
        for (b, (class, code)) in chain.iter().enumerate() {
            for (p, param) in code.params.iter().enumerate() {
                f(b, p, param.elements / shape.pieces_of(model, *class, param));
            }
        }
    };
    each(&mut |b, p, elements| {
        if shape.precision.has_master() && own(&blocks, b, p) {
            blocks[b].params[p].master = Some(cursor.take(DType::F32.bytes(elements)));
        }
    });
    marks.push(cursor.0);
    each(&mut |b, p, elements| {
        for _ in 0..shape.optimizer.states() {
            if own(&blocks, b, p) {
                let at = cursor.take(DType::F32.bytes(elements));
                blocks[b].params[p].moments.push(at);
            }
        }
    });
    marks.push(cursor.0);
    let mut gradient_groups = Vec::new();
    for (b, (class, code)) in chain.iter().enumerate() {
        let mut groups: BTreeMap<(AxisSet, u64), Vec<u32>> = BTreeMap::new();
        for (p, param) in code.params.iter().enumerate() {
            if own(&blocks, b, p) {
                let pieces = shape.pieces_of(model, *class, param);
                groups.entry((param.sync, pieces)).or_default().push(p as u32);
            }
        }
        for ((axes, pieces), members) in groups {
            let mut at = cursor.0;
            for p in &members {
                blocks[b].params[*p as usize].gradient = at;
                at += DType::F32.bytes(code.params[*p as usize].elements);
            }
            cursor.take(at - cursor.0);
            gradient_groups.push(GradientGroup { block: b as u32, axes, pieces, members });
        }
    }
    marks.push(cursor.0);
    for b in 0..chain.len() {
        for p in 0..blocks[b].params.len() {
            if let Some((ob, op)) = blocks[b].params[p].shared {
                let owner = blocks[ob as usize].params[op as usize].clone();
                blocks[b].params[p] = ParamPlace { shared: Some((ob, op)), ..owner };
            }
        }
    }
    let scalars = [cursor.take(Bytes(4)), cursor.take(Bytes(4))];
    let boundary_bytes = compute.bytes(shape.boundary_elements).align(ALIGNMENT);
    let mut frame = Cursor(Bytes::ZERO);
    for (b, (_, code)) in chain.iter().enumerate() {
        if code.tensor_at(Home::Input).is_some() {
            blocks[b].input = frame.take(boundary_bytes);
        }
        blocks[b].kept = frame.take(code.frame);
    }
    let frames = (0..shape.in_flight).map(|_| cursor.take(frame.0)).collect();
    marks.push(cursor.0);
    let slots = shape.micro_batches.min(2);
    let (first, last) = (shape.stage.0 == 0, shape.stage.0 + 1 == shape.stage.1);
    let mut region = |wanted: bool| {
        (0..if wanted { slots } else { 0 }).map(|_| cursor.take(boundary_bytes)).collect::<Vec<_>>()
    };
    let boundary = [region(!last), region(!last), region(!first)];
    marks.push(cursor.0);
    let handover = if chain.len() > 1 {
        [cursor.take(boundary_bytes), cursor.take(boundary_bytes)]
    } else {
        [Bytes::ZERO; 2]
    };
    let needed = chain.iter().map(|(_, code)| code.workspace).max().unwrap_or_default();
    let workspace = cursor.take(needed);
    marks.push(cursor.0);
    let names = [
        "weights",
        "master weights",
        "optimizer moments",
        "gradients",
        "activations",
        "boundary",
        "workspace",
    ];
    let regions = std::array::from_fn(|k| (names[k], marks[k + 1] - marks[k]));
    StageMemory {
        blocks,
        gradient_groups,
        scalars,
        frames,
        boundary,
        handover,
        workspace,
        regions,
        peak: cursor.0,
    }
}

/// Whether a kernel adds to what its output holds when told to.
pub fn accumulates(kernel: &Kernel) -> bool {
    use meshwright_ir::Op;
    use meshwright_ir::program::{OpKernel, Pass};
    match kernel {
        Kernel::Op(OpKernel { pass: Pass::BackwardWeight, .. }) => true,
        Kernel::Op(OpKernel { op: Op::CrossEntropy { .. }, pass: Pass::Forward, .. }) => true,
        Kernel::Op(_)
        | Kernel::Add { .. }
        | Kernel::Slice { .. }
        | Kernel::Pack { .. }
        | Kernel::Unpack { .. } => false,
        Kernel::Load { .. } | Kernel::SumSquares { .. } | Kernel::Update { .. } => false,
    }
}
