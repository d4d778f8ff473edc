//! The memory accountant. A rank's arena is laid out in regions: weights, masters, moments, gradients, scalars; then one
//! frame per micro-batch in flight, holding what backward needs; then buffers at the stage's boundary; then slots for whole
//! weights and gradients of split parameters; then a workspace that blocks share. Lowering places buffers at exactly these
//! offsets, so the planner's closed form and the planned peak are one number. The order of regions and the 256-byte
//! granule are choices, not physics.

mod groups;
mod pass;

pub use groups::{GradientGroup, gradient_groups};
pub use pass::accumulates;
pub(crate) use pass::{place_frame, place_workspace};

use crate::expand::{BlockCode, Home};
use meshwright_ir::{Bytes, DType, Gathering, Mesh, Model, Optimizer, Precision, Storage, Tie};

/// Every buffer starts at a multiple of this many bytes (what CUDA allocators use), gradients of one group aside.
pub const ALIGNMENT: u64 = 256;

/// Where one parameter's buffers start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParamPlace {
    /// Compute copy, or this rank's piece of it.
    pub weight: Bytes,
    /// fp32 copy, in mixed precision.
    pub master: Option<Bytes>,
    /// Gradient, or this rank's piece of it.
    pub gradient: Bytes,
    /// Optimizer moments.
    pub moments: Vec<Bytes>,
    /// Whole compute copy within a weight slot, where the weight is split.
    pub gathered: Option<Bytes>,
    /// Whole gradient within a gradient slot, where the gradient is split.
    pub scattered: Option<Scattered>,
    /// Set when the parameter is another block's of the same stage: `(block of the stage, parameter)`.
    pub shared: Option<(u32, u32)>,
}

/// Places of a split gradient within a gradient slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scattered {
    /// What backward writes.
    pub whole: Bytes,
    /// This rank's piece of the sum, on its way to what earlier micro-batches left; absent where a step makes one only.
    pub piece: Option<Bytes>,
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

impl BlockPlace {
    /// Whether any of the block's weights are split, so that its passes need a gather.
    pub fn gathers(&self) -> bool {
        self.params.iter().any(|p| p.gathered.is_some())
    }
    /// Whether any of its gradients are split, so that each backward ends in a reduce_scatter.
    pub fn scatters(&self) -> bool {
        self.params.iter().any(|p| p.scattered.is_some())
    }
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
    /// Places of whole weights: slots that turns take in rotation, or one for each block where weights stay.
    pub weight_slots: Vec<Bytes>,
    /// Slots of whole gradients, which backward passes take in rotation.
    pub gradient_slots: Vec<Bytes>,
    /// Gradients between blocks of the stage, alternating.
    pub handover: [Bytes; 2],
    /// The workspace.
    pub workspace: Bytes,
    /// Bytes by region: weights, masters, moments, gradients, frames, boundary, gathered, workspace.
    pub regions: [(&'static str, Bytes); 8],
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
    /// Degrees.
    pub mesh: Mesh,
    /// When split weights are gathered.
    pub gathering: Gathering,
    /// Bytes of gradients that share a collective at the end of the step.
    pub bucket: Bytes,
}

/// A block of a stage.
#[derive(Debug, Clone, Copy)]
pub struct StageBlock<'a> {
    /// Its class.
    pub class: u32,
    /// Its expansion.
    pub code: &'a BlockCode,
    /// How each of its parameters is stored.
    pub storage: &'a [Storage],
}

impl StageBlock<'_> {
    /// Each parameter's elements in use and when split, with its storage.
    fn params(&self, mesh: &Mesh) -> impl Iterator<Item = (u64, u64, Storage)> {
        let held = |(p, s): (&crate::Scope, &Storage)| (p.elements, p.elements / s.pieces(mesh), *s);
        self.code.params.iter().zip(self.storage).map(held)
    }
}

/// Lays out the arena of a stage whose blocks, in order, are these.
pub fn stage_memory(model: &Model, chain: &[StageBlock<'_>], shape: &StageShape) -> StageMemory {
    let mut layout = Layout { shape, chain, cursor: Cursor(Bytes::ZERO), blocks: blank(model, chain) };
    let mut marks = vec![Bytes::ZERO];
    let compute = shape.precision.compute();
    layout.states(compute, |storage| storage.weight, |place, at| place.weight = at);
    marks.push(layout.cursor.0);
    if shape.precision.has_master() {
        layout.states(DType::F32, |_| true, |place, at| place.master = Some(at));
    }
    marks.push(layout.cursor.0);
    layout.moments();
    marks.push(layout.cursor.0);
    let gradient_groups = layout.gradients();
    marks.push(layout.cursor.0);
    layout.share();
    let scalars = [layout.cursor.take(Bytes(4)), layout.cursor.take(Bytes(4))];
    let boundary_bytes = compute.bytes(shape.boundary_elements).align(ALIGNMENT);
    let frames = layout.frames(boundary_bytes);
    marks.push(layout.cursor.0);
    let slots = shape.micro_batches.min(2);
    let (first, last) = (shape.stage.0 == 0, shape.stage.0 + 1 == shape.stage.1);
    let mut region = |wanted: bool| layout.cursor.several(if wanted { slots } else { 0 }, boundary_bytes);
    let boundary = [region(!last), region(!last), region(!first)];
    marks.push(layout.cursor.0);
    let weight_slots = layout.gathered_weights(compute);
    let gradient_slots = layout.gathered_gradients();
    marks.push(layout.cursor.0);
    let handover = if chain.len() > 1 {
        [layout.cursor.take(boundary_bytes), layout.cursor.take(boundary_bytes)]
    } else {
        [Bytes::ZERO; 2]
    };
    let needed = chain.iter().map(|block| block.code.workspace).max().unwrap_or_default();
    let workspace = layout.cursor.take(needed);
    marks.push(layout.cursor.0);
    let names = [
        "weights",
        "master weights",
        "optimizer moments",
        "gradients",
        "activations",
        "boundary",
        "gathered",
        "workspace",
    ];
    StageMemory {
        gradient_groups,
        scalars,
        frames,
        boundary,
        weight_slots,
        gradient_slots,
        handover,
        workspace,
        regions: std::array::from_fn(|k| (names[k], marks[k + 1] - marks[k])),
        peak: layout.cursor.0,
        blocks: layout.blocks,
    }
}

/// Places yet to be filled in, with who shares whose parameter: one tied to a parameter that lives on this stage is that one.
fn blank(model: &Model, chain: &[StageBlock<'_>]) -> Vec<BlockPlace> {
    let owner = |tie: &Tie| {
        let (class, node) = model.tied_to(tie)?;
        let block = chain.iter().position(|b| b.class == class)?;
        let name = &model.classes[class as usize].nodes[node as usize].name;
        let named = |p: &crate::Scope| p.name.rsplit_once('.').is_some_and(|(n, _)| n == name);
        let param = chain[block].code.params.iter().position(named)?;
        Some((block as u32, param as u32))
    };
    let place = |b: usize, p: &crate::Scope| ParamPlace {
        weight: Bytes::ZERO,
        master: None,
        gradient: Bytes::ZERO,
        moments: vec![],
        gathered: None,
        scattered: None,
        shared: p.tied.as_ref().and_then(owner).filter(|(block, _)| *block as usize != b),
    };
    let block = |(b, block): (usize, &StageBlock<'_>)| BlockPlace {
        params: block.code.params.iter().map(|p| place(b, p)).collect(),
        input: Bytes::ZERO,
        kept: Bytes::ZERO,
    };
    chain.iter().enumerate().map(block).collect()
}

/// Hands out aligned offsets.
struct Cursor(Bytes);

impl Cursor {
    fn take(&mut self, bytes: Bytes) -> Bytes {
        let at = self.0;
        self.0 = (self.0 + bytes).align(ALIGNMENT);
        at
    }
    fn several(&mut self, count: u64, bytes: Bytes) -> Vec<Bytes> {
        (0..count).map(|_| self.take(bytes)).collect()
    }
}

/// A layout being made.
struct Layout<'a> {
    shape: &'a StageShape,
    chain: &'a [StageBlock<'a>],
    cursor: Cursor,
    blocks: Vec<BlockPlace>,
}

impl Layout<'_> {
    /// A buffer of every parameter that the stage's blocks own.
    fn states(
        &mut self,
        dtype: DType,
        splits: impl Fn(Storage) -> bool,
        set: impl Fn(&mut ParamPlace, Bytes),
    ) {
        for (block, places) in self.chain.iter().zip(&mut self.blocks) {
            let params = block.params(&self.shape.mesh).zip(&mut places.params);
            for ((whole, piece, storage), place) in params.filter(|(_, place)| place.shared.is_none()) {
                let elements = if splits(storage) { piece } else { whole };
                set(place, self.cursor.take(dtype.bytes(elements)));
            }
        }
    }

    fn moments(&mut self) {
        for (block, places) in self.chain.iter().zip(&mut self.blocks) {
            let params = block.params(&self.shape.mesh).zip(&mut places.params);
            for ((_, piece, _), place) in params.filter(|(_, place)| place.shared.is_none()) {
                let bytes = DType::F32.bytes(piece);
                place.moments = self.cursor.several(self.shape.optimizer.states(), bytes);
            }
        }
    }

    /// Gradients of a group lie one behind the other, so that one collective can sum them all.
    fn gradients(&mut self) -> Vec<GradientGroup> {
        let blocks = &self.blocks;
        let owns = |b: usize, p: usize| blocks[b].params[p].shared.is_none();
        let groups = gradient_groups(self.chain, self.shape.bucket, &owns);
        for group in &groups {
            let pieces = if group.storage.gradient { group.storage.pieces(&self.shape.mesh) } else { 1 };
            let mut at = self.cursor.0;
            for (b, p) in &group.members {
                self.blocks[*b as usize].params[*p as usize].gradient = at;
                at += DType::F32.bytes(self.chain[*b as usize].code.params[*p as usize].elements / pieces);
            }
            self.cursor.take(at - self.cursor.0);
        }
        groups
    }

    /// A parameter that is another block's has its buffers.
    fn share(&mut self) {
        for b in 0..self.blocks.len() {
            for p in 0..self.blocks[b].params.len() {
                if let Some((ob, op)) = self.blocks[b].params[p].shared {
                    let owner = self.blocks[ob as usize].params[op as usize].clone();
                    self.blocks[b].params[p] = ParamPlace { shared: Some((ob, op)), ..owner };
                }
            }
        }
    }

    fn frames(&mut self, boundary_bytes: Bytes) -> Vec<Bytes> {
        let mut frame = Cursor(Bytes::ZERO);
        for (block, places) in self.chain.iter().zip(&mut self.blocks) {
            if block.code.tensor_at(Home::Input).is_some() {
                places.input = frame.take(boundary_bytes);
            }
            places.kept = frame.take(block.code.frame);
        }
        self.cursor.several(self.shape.in_flight, frame.0)
    }

    /// Slots of whole weights: as many as turns may be gathered at once, each as large as the largest block's; or a place
    /// for every block, where weights stay.
    fn gathered_weights(&mut self, compute: DType) -> Vec<Bytes> {
        let Gathering { reshard_after_forward, prefetch } = self.shape.gathering;
        let sizes = self.slots(|storage, whole, _, place, slot| {
            place.gathered = storage.weight.then(|| slot.take(compute.bytes(whole)));
        });
        if !reshard_after_forward {
            return sizes.into_iter().map(|size| self.cursor.take(size)).collect();
        }
        let gathering = self.blocks.iter().filter(|b| b.gathers()).count() as u64;
        // A block that gathers alone has its turn all the time.
        let count = if gathering > 1 { u64::from(prefetch) + 1 } else { gathering };
        self.cursor.several(count, sizes.into_iter().max().unwrap_or_default())
    }

    /// Slots of whole gradients, each as large as the largest block's: one that backward fills while the other is summed.
    fn gathered_gradients(&mut self) -> Vec<Bytes> {
        let shared = |(b, places): (&StageBlock<'_>, &BlockPlace)| {
            b.storage.iter().zip(&places.params).any(|(s, p)| s.gradient && p.shared.is_some())
        };
        let again = self.shape.micro_batches > 1 || self.chain.iter().zip(&self.blocks).any(shared);
        let sizes = self.slots(|storage, whole, piece, place, slot| {
            place.scattered = storage.gradient.then(|| Scattered {
                whole: slot.take(DType::F32.bytes(whole)),
                piece: again.then(|| slot.take(DType::F32.bytes(piece))),
            });
        });
        let passes = self.blocks.iter().filter(|b| b.scatters()).count() as u64 * self.shape.micro_batches;
        self.cursor.several(passes.min(2), sizes.into_iter().max().unwrap_or_default())
    }

    /// Places every block's parameters in a slot of its own making; returns the slots' sizes.
    fn slots(&mut self, place: impl Fn(Storage, u64, u64, &mut ParamPlace, &mut Cursor)) -> Vec<Bytes> {
        let mut sizes = Vec::new();
        for (block, places) in self.chain.iter().zip(&mut self.blocks) {
            let mut slot = Cursor(Bytes::ZERO);
            for ((whole, piece, storage), p) in block.params(&self.shape.mesh).zip(&mut places.params) {
                place(storage, whole, piece, p, &mut slot);
            }
            sizes.push(slot.0);
        }
        sizes
    }
}
