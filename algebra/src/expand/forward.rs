//! Forward: ids, kernels, and each value in every layout its readers want.

use super::{BlockAction, Expander, Home, Tensor, UNPLACED};
use crate::count::elements;
use crate::{Expr, Slot, signature};
use meshwright_ir::program::{CollectiveKind, IdKind, Kernel, OpKernel, Pass};
use meshwright_ir::{AxisSet, DType, Op};

impl Expander<'_> {
    pub(super) fn forward(&mut self, boundary: &[u64]) {
        let n = self.class.nodes.len();
        if let Some(plan) = &self.plan.input {
            let elements = self.local(boundary, &plan.produced);
            let input = self.tensor("input".into(), elements, self.dtype, Home::Input);
            self.materialise(n, input, boundary);
        }
        for k in 0..n {
            let op = &self.class.nodes[k].op;
            let name = self.class.nodes[k].name.clone();
            if Expr::reads_ids(op) {
                self.load_ids(k, &name);
            }
            let Kernel::Op(OpKernel { extents, .. }) = self.kernel(k, Pass::Forward) else {
                unreachable!("an op's kernel")
            };
            let expr = self.exprs[k].clone();
            let aux = expr.aux.iter().enumerate().map(|(a, d)| {
                let dtype = d.store.dtype(self.dtype);
                self.tensor(format!("{name}.aux{a}"), elements(&d.dims, &extents), dtype, UNPLACED)
            });
            let aux: Vec<u32> = aux.collect();
            self.aux.push(aux.clone());
            let is_loss = matches!(op, Op::CrossEntropy { .. });
            let (dtype, home) = if is_loss { (DType::F32, Home::Loss) } else { (self.dtype, UNPLACED) };
            let output = self.tensor(name, elements(&expr.output, &extents), dtype, home);
            self.outputs.push(output);
            if is_loss {
                let over: AxisSet = self.plan.strategies[k].axes_on(2).into_iter().collect();
                self.pass(k, Pass::Max);
                self.reduce_inside(k, CollectiveKind::AllReduceMax, over, aux[0]);
                self.pass(k, Pass::Sum);
                self.reduce_inside(k, CollectiveKind::AllReduceSum, over, aux[1]);
            }
            self.pass(k, Pass::Forward);
            if !is_loss {
                let shape = self.shape_of(k, boundary);
                self.materialise(k, output, &shape);
            }
        }
    }

    pub(super) fn load_ids(&mut self, k: usize, name: &str) {
        let what = if matches!(self.class.nodes[k].op, Op::CrossEntropy { .. }) {
            IdKind::Targets
        } else {
            IdKind::Tokens
        };
        let Kernel::Op(OpKernel { extents, axes, .. }) = self.kernel(k, Pass::Forward) else {
            unreachable!("an op's kernel")
        };
        let ids = self.tensor(format!("{name}.ids"), extents[0] * extents[1], DType::I32, UNPLACED);
        self.ids[k] = Some(ids);
        let load = Kernel::Load {
            what,
            batch: extents[0],
            sequence: extents[1],
            batch_axes: axes[0],
            sequence_axes: axes[1],
        };
        self.emit(BlockAction::Kernel(load), vec![], vec![ids], k);
    }

    pub(super) fn reduce_inside(&mut self, k: usize, kind: CollectiveKind, axes: AxisSet, tensor: u32) {
        if !axes.is_empty() {
            let Tensor { elements, dtype, .. } = self.tensors[tensor as usize];
            self.emit(BlockAction::Collective { kind, axes, elements, dtype }, vec![tensor], vec![tensor], k);
        }
    }

    /// Emits one pass of node `k` on forward's tensors.
    pub(super) fn pass(&mut self, k: usize, pass: Pass) {
        let signature = signature(&self.class.nodes[k].op, pass).expect("only passes that exist");
        let at = |s: &Slot| match s {
            Slot::Input(o) => self.operand(k, *o as usize),
            Slot::Param(p) => self.weights[self.first_param[k] as usize + *p as usize],
            Slot::Ids => self.ids[k].expect("ids were loaded"),
            Slot::Output => self.outputs[k],
            Slot::Aux(a) => self.aux[k][*a as usize],
            Slot::OutputGradient | Slot::InputGradient(_) | Slot::ParamGradient(_) => {
                unreachable!("forward makes no gradient")
            }
        };
        let (reads, writes) =
            (signature.reads.iter().map(at).collect(), signature.writes.iter().map(at).collect());
        self.emit(BlockAction::Kernel(self.kernel(k, pass)), reads, writes, k);
    }

    /// Makes every planned copy of value `v`; the block's output ends at its home.
    pub(super) fn materialise(&mut self, v: usize, produced: u32, shape: &[u64]) {
        let plan = self.value_plan(v);
        let alone = plan.copies.len() == 1;
        let n = self.class.nodes.len();
        for (c, copy) in plan.copies.iter().enumerate() {
            let may_overwrite = alone && v < n;
            let mut made = self.convert(v, produced, &plan.produced, &copy.steps, shape, may_overwrite);
            if plan.uses.iter().any(|u| u.node as usize == n && u.copy as usize == c) {
                made = self.settle(made, Home::Output, v);
            }
            self.copies[v].push(made);
        }
    }

    /// Gives a tensor an external home, through a copy if it already has one.
    pub(super) fn settle(&mut self, tensor: u32, home: Home, v: usize) -> u32 {
        if self.tensors[tensor as usize].home == UNPLACED {
            self.tensors[tensor as usize].home = home;
            return tensor;
        }
        let Tensor { elements, dtype, name, .. } = self.tensors[tensor as usize].clone();
        let copy = self.tensor(format!("{name}.copy"), elements, dtype, home);
        let kernel = Kernel::Slice { axes: AxisSet::EMPTY, outer: 1, piece: elements, inner: 1, dtype };
        self.emit(BlockAction::Kernel(kernel), vec![tensor], vec![copy], v);
        copy
    }
}
