//! What one op under one strategy costs and holds on a rank: its kernels in both passes, the collectives inside it, and
//! its parameters. The invariant: kernels and bytes are those that `algebra::expand` lists for the same strategy.

use crate::pricing::{Prices, accumulating};
use meshwright_algebra::{ALIGNMENT, Expr, OpLayouts, Shapes, Slot, gradient_aliases, signature};
use meshwright_cost_models::CostModel;
use meshwright_ir::program::{CollectiveKind, IdKind, Kernel, OpKernel, Pass};
use meshwright_ir::{AxisSet, DType, Mesh, Node, Op, Optimizer, Precision, Strategy, Training};

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

/// What every step does to the parameters of a rank: summing gradients, their norm, the update.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Step {
    pub(crate) precision: Precision,
    pub(crate) optimizer: Optimizer,
    pub(crate) clips: bool,
    /// Axes among which optimizer state is split, and the number of pieces.
    pieces: (AxisSet, u64),
}

impl Step {
    /// As a job trains, with states split among these axes into so many pieces.
    pub(crate) fn of(training: &Training, pieces: (AxisSet, u64)) -> Self {
        let Training { precision, optimizer, clip, .. } = training;
        Self { precision: *precision, optimizer: *optimizer, clips: *clip > 0.0, pieces }
    }

    /// The same with whole states on every replica.
    pub(crate) fn whole(self) -> Self {
        Self { pieces: (AxisSet::EMPTY, 1), ..self }
    }

    /// Pieces of one parameter's state: those of replicas that all sum its gradient, where they divide it.
    fn pieces_of(&self, shard: &Shard) -> u64 {
        let (axes, n) = self.pieces;
        let summed = !axes.is_empty() && axes.iter().all(|a| shard.sync.contains(a));
        if summed && shard.elements.is_multiple_of(n) { n } else { 1 }
    }

    /// Time per step for one parameter: summing its gradient, norm and update.
    pub(crate) fn time(&self, shard: &Shard, prices: &Prices<'_>) -> u64 {
        let pieces = self.pieces_of(shard);
        let time = |k: &Kernel| prices.kernel(k);
        let gather = if pieces > 1 { self.gather(shard.elements, prices) } else { 0 };
        self.sync(shard.sync, shard.elements, pieces > 1, prices)
            + self.norm(shard.elements / pieces, &time)
            + self.update_kernel(shard.elements / pieces, shard.decays, &time)
            + gather
    }

    /// Time of summing so many gradients over `axes`, of which each replica gets its piece if `split`.
    pub(crate) fn sync(&self, axes: AxisSet, elements: u64, split: bool, prices: &Prices<'_>) -> u64 {
        let over = |kind, axes: AxisSet| match axes.is_empty() {
            true => 0,
            false => prices.collective(kind, axes, elements, DType::F32),
        };
        if !split {
            return over(CollectiveKind::AllReduceSum, axes);
        }
        let others = self.pieces.0.iter().fold(axes, AxisSet::without);
        over(CollectiveKind::AllReduceSum, others) + over(CollectiveKind::ReduceScatter, self.pieces.0)
    }

    /// Time of gathering so many weights that replicas updated in pieces.
    pub(crate) fn gather(&self, elements: u64, prices: &Prices<'_>) -> u64 {
        prices.collective(CollectiveKind::AllGather, self.pieces.0, elements, self.precision.compute())
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
        self.bytes_of(shard.elements, self.pieces_of(shard))
    }

    /// Bytes of so many elements whose master and moments are split into pieces; of pieces that do not divide them, a
    /// bound from below.
    pub(crate) fn bytes_of(&self, elements: u64, pieces: u64) -> u64 {
        let aligned = |width: u64, elements: u64| (width * elements).div_ceil(ALIGNMENT) * ALIGNMENT;
        let states = u64::from(self.precision.has_master()) + self.optimizer.states();
        let compute = self.precision.compute().width();
        aligned(compute, elements) + aligned(4, elements) + states * aligned(4, elements / pieces)
    }
}
