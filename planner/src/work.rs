//! What one op under one strategy costs and holds on a rank: its kernels in both passes, the collectives inside it, and
//! its parameters. The invariant: kernels and bytes are those that `algebra::expand` lists for the same strategy.

use crate::pricing::{Prices, accumulating};
use meshwright_algebra::{ALIGNMENT, Expr, OpLayouts, Shapes, Slot, gradient_aliases, signature};
use meshwright_cost_models::CostModel;
use meshwright_ir::program::{CollectiveKind, IdKind, Kernel, OpKernel, Pass};
use meshwright_ir::{
    Axis, AxisSet, DType, Mesh, Node, Op, Optimizer, Precision, Storage, Strategy, Training,
};

/// One rank's piece of a parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shard {
    /// Axes over which its gradient is summed.
    pub(crate) sync: AxisSet,
    /// Elements on one rank.
    pub(crate) elements: u64,
    /// Whether weight decay applies.
    pub(crate) decays: bool,
}

/// An op under a strategy, for one micro-batch on one rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NodeWork {
    /// Kernels and internal collectives of both passes, in picoseconds.
    pub(crate) time: u64,
    /// Bytes that only this op keeps from forward to backward: statistics and ids.
    pub(crate) kept: u64,
    /// Its parameters, the first one left out where another block owns it and `owned` is false.
    pub(crate) params: Vec<Shard>,
}

/// The context of a block's ops.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scene<'a> {
    pub(crate) mesh: &'a Mesh,
    pub(crate) shapes: &'a Shapes,
    pub(crate) dtype: DType,
}

impl Scene<'_> {
    /// A pass of an op on one rank.
    pub(crate) fn kernel(&self, op: &Op, strategy: &Strategy, pass: Pass) -> OpKernel {
        let expr = Expr::of(op);
        let axes: Vec<AxisSet> =
            (0..expr.indices.len()).map(|k| strategy.axes_on(k as u8).into_iter().collect()).collect();
        let cut = |(index, axes): (&meshwright_algebra::Index, &AxisSet)| {
            self.shapes.extent(index.extent) / u64::from(self.mesh.size(*axes))
        };
        let extents = expr.indices.iter().zip(&axes).map(cut).collect();
        OpKernel { op: op.clone(), pass, extents, axes, accumulate: false, dtype: self.dtype }
    }

    /// Kernels of both passes in order; backward ones only where `backward`.
    pub(crate) fn kernels(&self, op: &Op, strategy: &Strategy, backward: bool) -> Vec<Kernel> {
        let whole = self.kernel(op, strategy, Pass::Forward);
        let loss = matches!(op, Op::CrossEntropy { .. });
        let load = Expr::reads_ids(op).then(|| Kernel::Load {
            what: if loss { IdKind::Targets } else { IdKind::Tokens },
            batch: whole.extents[0],
            sequence: whole.extents[1],
            batch_axes: whole.axes[0],
            sequence_axes: whole.axes[1],
        });
        let exists = |pass: &Pass| match pass {
            Pass::BackwardInput => backward && !gradient_aliases(op) && signature(op, *pass).is_some(),
            Pass::BackwardWeight => backward && signature(op, *pass).is_some(),
            Pass::Max | Pass::Sum | Pass::Forward => signature(op, *pass).is_some(),
        };
        let passes = [Pass::Max, Pass::Sum, Pass::Forward, Pass::BackwardInput, Pass::BackwardWeight];
        let passes = passes.into_iter().filter(exists);
        load.into_iter().chain(passes.map(|pass| Kernel::Op(OpKernel { pass, ..whole.clone() }))).collect()
    }

    /// Cost and holdings of a node. `live`: whether its output reaches the block's end, so that backward passes it.
    pub(crate) fn work(
        &self,
        node: &Node,
        strategy: &Strategy,
        layouts: &OpLayouts,
        live: bool,
        prices: &Prices<'_>,
    ) -> NodeWork {
        let expr = Expr::of(&node.op);
        let local = |dims: &[meshwright_algebra::Dim], layout: &meshwright_ir::Layout| -> u64 {
            let shape = self.shapes.shape(&expr, dims);
            layout.local(&shape, self.mesh).expect("a legal strategy cuts evenly").iter().product()
        };
        let kernels = self.kernels(&node.op, strategy, live);
        let mut time: u64 = kernels.iter().map(|k| prices.kernel(&accumulating(k))).sum();
        if let Op::CrossEntropy { .. } = node.op {
            let over: AxisSet = strategy.axes_on(2).into_iter().collect();
            let kinds = [CollectiveKind::AllReduceMax, CollectiveKind::AllReduceSum];
            for ((kind, aux), layout) in kinds.into_iter().zip(&expr.aux).zip(&layouts.aux) {
                if !over.is_empty() {
                    time += prices.collective(kind, over, local(&aux.dims, layout), DType::F32);
                }
            }
        }
        let backward = [Pass::BackwardInput, Pass::BackwardWeight].map(|p| signature(&node.op, p));
        let read_back = |slot: Slot| live && backward.iter().flatten().any(|s| s.reads.contains(&slot));
        let aligned = |dtype: DType, elements: u64| dtype.bytes(elements).align(ALIGNMENT).get();
        let mut kept = 0;
        for (a, (aux, layout)) in expr.aux.iter().zip(&layouts.aux).enumerate() {
            if read_back(Slot::Aux(a as u8)) {
                kept += aligned(aux.store.dtype(self.dtype), local(&aux.dims, layout));
            }
        }
        if read_back(Slot::Ids) {
            let whole = self.kernel(&node.op, strategy, Pass::Forward);
            kept += aligned(DType::I32, whole.extents[0] * whole.extents[1]);
        }
        NodeWork { time, kept, params: self.shards(node, layouts) }
    }

    /// Pieces of a node's parameters.
    pub(crate) fn shards(&self, node: &Node, layouts: &OpLayouts) -> Vec<Shard> {
        let shard = |(p, spec): (usize, meshwright_ir::ParamSpec)| {
            let local = layouts.params[p].local(&spec.shape, self.mesh);
            Shard {
                sync: layouts.param_gradients[p].partial(),
                elements: local.expect("a legal strategy cuts evenly").iter().product(),
                decays: spec.decays,
            }
        };
        node.params().into_iter().enumerate().map(shard).collect()
    }
}

/// What every step does to the parameters of a rank: gathering and summing them, the norm, the update.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Step {
    pub(crate) precision: Precision,
    pub(crate) optimizer: Optimizer,
    pub(crate) clips: bool,
    /// How parameters are stored where they may be, and in how many pieces that makes.
    wanted: Storage,
    pieces: u64,
    /// The mesh's data axes with several ranks, for which a block problem's one data axis stands.
    data: AxisSet,
    pub(crate) micro_batches: u64,
    /// How often a step gathers split weights.
    pub(crate) turns: u64,
}

impl Step {
    /// As a job trains, with parameters stored as `wanted` on a mesh.
    pub(crate) fn of(
        training: &Training,
        wanted: Storage,
        mesh: &Mesh,
        micro_batches: u64,
        turns: u64,
    ) -> Self {
        let Training { precision, optimizer, clip, .. } = training;
        Self {
            precision: *precision,
            optimizer: *optimizer,
            clips: *clip > 0.0,
            wanted,
            pieces: wanted.pieces(mesh),
            data: data_axes(mesh),
            micro_batches,
            turns,
        }
    }

    /// As a job trains, whatever the mesh: for what does not depend on it.
    pub(crate) fn on_one_rank(training: &Training) -> Self {
        Self::of(training, Storage::WHOLE, &Mesh::single(), 1, 1)
    }

    /// The same with whole states on every replica.
    pub(crate) fn whole(self) -> Self {
        Self { wanted: Storage::WHOLE, pieces: 1, ..self }
    }

    /// Axes of the mesh that a block problem's stand for.
    pub(crate) fn axes(&self, axes: AxisSet) -> AxisSet {
        if axes.contains(Axis::Dp) { axes.without(Axis::Dp).union(self.data) } else { axes }
    }

    /// How one parameter is stored: as wanted where all of its replicas sum its gradient and the pieces are even.
    fn stored(&self, shard: &Shard) -> (Storage, u64) {
        let may =
            self.wanted.over.is_subset(self.axes(shard.sync)) && shard.elements.is_multiple_of(self.pieces);
        if may { (self.wanted, self.pieces) } else { (Storage::WHOLE, 1) }
    }

    /// Time per step for one parameter by itself.
    pub(crate) fn time(&self, shard: &Shard, prices: &Prices<'_>) -> u64 {
        let (storage, pieces) = self.stored(shard);
        let time = |k: &Kernel| prices.kernel(k);
        self.each_turn(storage, shard.elements, prices) * self.turns
            + self.each_backward(storage, shard.elements, prices) * self.micro_batches
            + self.sync(self.axes(shard.sync), shard.elements, (storage, pieces), prices)
            + self.norm(shard.elements / pieces, &time)
            + self.update_kernel(shard.elements / pieces, shard.decays, &time)
            + self.after_update(storage, shard.elements, prices)
    }

    /// Time of gathering so many weights for a turn of their block, if they are split.
    pub(crate) fn each_turn(&self, storage: Storage, elements: u64, prices: &Prices<'_>) -> u64 {
        self.gathered(storage.of_weight(), elements, prices)
    }

    /// Time of summing so many gradients into their pieces after a backward, if they are split.
    pub(crate) fn each_backward(&self, storage: Storage, elements: u64, prices: &Prices<'_>) -> u64 {
        over(CollectiveKind::ReduceScatter, storage.of_gradient(), elements, DType::F32, prices)
    }

    /// Time of adding such sums of so many elements to the pieces, if gradients are split.
    pub(crate) fn adding(&self, storage: Storage, piece: u64, prices: &Prices<'_>) -> u64 {
        let add = Kernel::Add { elements: piece, dtype: DType::F32 };
        if storage.gradient { prices.kernel(&add) } else { 0 }
    }

    /// Time of summing so many gradients over `axes` at the end of the step, so far as they are not yet: over the axes that
    /// do not split them all of them, or their pieces; over those that do into pieces.
    pub(crate) fn sync(
        &self,
        axes: AxisSet,
        elements: u64,
        (storage, pieces): (Storage, u64),
        prices: &Prices<'_>,
    ) -> u64 {
        let held = if storage.gradient { elements / pieces } else { elements };
        let split = if storage.gradient { AxisSet::EMPTY } else { storage.over };
        over(CollectiveKind::AllReduceSum, axes.minus(storage.over), held, DType::F32, prices)
            + over(CollectiveKind::ReduceScatter, split, elements, DType::F32, prices)
    }

    /// Time of gathering so many weights that replicas updated in pieces and hold whole.
    pub(crate) fn after_update(&self, storage: Storage, elements: u64, prices: &Prices<'_>) -> u64 {
        let split = if storage.weight { AxisSet::EMPTY } else { storage.over };
        self.gathered(split, elements, prices)
    }

    fn gathered(&self, axes: AxisSet, elements: u64, prices: &Prices<'_>) -> u64 {
        over(CollectiveKind::AllGather, axes, elements, self.precision.compute(), prices)
    }

    /// Time of the update of so many elements.
    pub(crate) fn update_kernel(&self, elements: u64, decays: bool, time: &dyn Fn(&Kernel) -> u64) -> u64 {
        let dtype = self.precision.compute();
        time(&Kernel::Update { optimizer: self.optimizer, elements, dtype, decays, piece: AxisSet::EMPTY })
    }

    /// Time of adding so many gradients to the norm, where gradients are clipped.
    pub(crate) fn norm(&self, elements: u64, time: &dyn Fn(&Kernel) -> u64) -> u64 {
        if self.clips {
            time(&Kernel::SumSquares { elements, replicas: 1, accumulate: true, piece: AxisSet::EMPTY })
        } else {
            0
        }
    }

    /// What [`Self::norm`] takes at least, however many parameters share a kernel: reading them.
    pub(crate) fn norm_floor(&self, elements: u64, model: &CostModel) -> u64 {
        let read = model.rank_bandwidth().time(DType::F32.bytes(elements)).get();
        if self.clips { read.saturating_sub(1) } else { 0 }
    }

    /// Bytes a parameter takes: compute copy, fp32 master, moments, fp32 gradient, each aligned.
    pub(crate) fn bytes(&self, shard: &Shard) -> u64 {
        let (storage, pieces) = self.stored(shard);
        self.bytes_of(shard.elements, storage, pieces)
    }

    /// Bytes of so many elements stored so in so many pieces; of pieces that do not divide them, a bound from below.
    pub(crate) fn bytes_of(&self, elements: u64, storage: Storage, pieces: u64) -> u64 {
        let aligned = |dtype: DType, split: bool| {
            let held = if split { elements / pieces } else { elements };
            dtype.bytes(held).align(ALIGNMENT).get()
        };
        let states = u64::from(self.precision.has_master()) + self.optimizer.states();
        aligned(self.precision.compute(), storage.weight)
            + aligned(DType::F32, storage.gradient)
            + states * aligned(DType::F32, storage.is_split())
    }
}

/// Time of a collective over these axes, if there are any.
fn over(kind: CollectiveKind, axes: AxisSet, elements: u64, dtype: DType, prices: &Prices<'_>) -> u64 {
    if axes.is_empty() { 0 } else { prices.collective(kind, axes, elements, dtype) }
}

/// The data axes of a mesh with several ranks.
pub(crate) fn data_axes(mesh: &Mesh) -> AxisSet {
    mesh.active().iter().filter(|a| AxisSet::DATA.contains(*a)).collect()
}
