//! Backward: gradients collected, converted and summed in reverse order of the nodes.

use super::{BlockAction, Tensor};
use super::{Expander, Home, UNPLACED, value_index};
use crate::count::elements;
use crate::{Slot, gradient_aliases, signature};
use meshwright_ir::program::{Kernel, OpKernel, Pass};
use meshwright_ir::{Layout, Op};

impl Expander<'_> {
    pub(super) fn backward(&mut self, boundary: &[u64], boundary_layout: &Layout) {
        self.into_backward = true;
        let n = self.class.nodes.len();
        // Contributions per value and gradient path: (tensor, whether somebody else reads it too).
        let mut pending: Vec<Vec<Option<(u32, bool)>>> = (0..=n)
            .map(|v| {
                if v < n || self.plan.input.is_some() {
                    vec![None; self.value_plan(v).gradients.len()]
                } else {
                    vec![]
                }
            })
            .collect();
        if !self.class.ends_in_loss() {
            let elements = self.local(boundary, boundary_layout);
            let seed = self.tensor("output.gradient".into(), elements, self.dtype, Home::OutputGradient);
            let plan = self.value_plan(n - 1);
            let using =
                plan.uses.iter().find(|u| u.node as usize == n).expect("the block's output is planned");
            pending[n - 1][using.gradient as usize] = Some((seed, true));
        }
        let mut waiting: Vec<(usize, Option<u32>)> = Vec::new();
        for k in (0..n).rev() {
            let is_loss = matches!(self.class.nodes[k].op, Op::CrossEntropy { .. });
            let shape = self.shape_of(k, boundary);
            let gradient = if is_loss { None } else { self.collect(k, &mut pending, &shape) };
            for (node, dy) in waiting.drain(..) {
                self.weight_gradients(node, dy);
            }
            if gradient.is_none() && !is_loss {
                continue;
            }
            self.input_gradients(k, gradient, &mut pending);
            waiting.push((k, gradient));
        }
        if self.plan.input.is_some() {
            let made = self.collect(n, &mut pending, boundary).expect("something reads the block's input");
            self.settle(made, Home::InputGradient, n);
        }
        for (node, dy) in waiting {
            self.weight_gradients(node, dy);
        }
    }

    /// Sums the contributions to a value's gradient, each path converted once.
    pub(super) fn collect(
        &mut self,
        v: usize,
        pending: &mut [Vec<Option<(u32, bool)>>],
        shape: &[u64],
    ) -> Option<u32> {
        let plan = self.value_plan(v);
        let mut total = None;
        for (path, contribution) in plan.gradients.iter().zip(std::mem::take(&mut pending[v])) {
            let Some((tensor, shared)) = contribution else { continue };
            let made = self.convert(v, tensor, &path.layout, &path.steps, shape, !shared);
            total = Some(match total {
                None => made,
                Some(other) => self.add(v, other, made),
            });
        }
        total
    }

    pub(super) fn add(&mut self, v: usize, a: u32, b: u32) -> u32 {
        let Tensor { elements, dtype, .. } = self.tensors[a as usize];
        let out = self.tensor(format!("{}.gradient", self.name_of(v)), elements, dtype, UNPLACED);
        self.emit(BlockAction::Kernel(Kernel::Add { elements, dtype }), vec![a, b], vec![out], v);
        out
    }

    pub(super) fn input_gradients(
        &mut self,
        k: usize,
        gradient: Option<u32>,
        pending: &mut [Vec<Option<(u32, bool)>>],
    ) {
        let node = &self.class.nodes[k];
        let n = self.class.nodes.len();
        let made: Vec<(u32, bool)> = if gradient_aliases(&node.op) {
            vec![(gradient.expect("a gradient to pass on"), true); node.inputs.len()]
        } else if signature(&node.op, Pass::BackwardInput).is_some() {
            let Kernel::Op(OpKernel { extents, .. }) = self.kernel(k, Pass::BackwardInput) else {
                unreachable!("an op's kernel")
            };
            let expr = self.exprs[k].clone();
            let fresh = expr.inputs.iter().enumerate().map(|(o, d)| {
                self.tensor(
                    format!("{}.in{o}.gradient", node.name),
                    elements(d, &extents),
                    self.dtype,
                    UNPLACED,
                )
            });
            let fresh: Vec<u32> = fresh.collect();
            self.gradient_pass(k, Pass::BackwardInput, gradient, &fresh);
            fresh.into_iter().map(|t| (t, false)).collect()
        } else {
            vec![]
        };
        for (o, contribution) in made.into_iter().enumerate() {
            let v = value_index(node.inputs[o], n);
            let using = self
                .value_plan(v)
                .uses
                .iter()
                .find(|u| u.node as usize == k && u.operand as usize == o)
                .expect("every operand is planned");
            let at = using.gradient as usize;
            pending[v][at] = Some(match pending[v][at] {
                None => contribution,
                Some((other, _)) => (self.add(v, other, contribution.0), false),
            });
        }
    }

    pub(super) fn weight_gradients(&mut self, k: usize, gradient: Option<u32>) {
        if signature(&self.class.nodes[k].op, Pass::BackwardWeight).is_some() {
            self.gradient_pass(k, Pass::BackwardWeight, gradient, &[]);
        }
    }

    pub(super) fn gradient_pass(&mut self, k: usize, pass: Pass, gradient: Option<u32>, inputs: &[u32]) {
        let signature = signature(&self.class.nodes[k].op, pass).expect("only passes that exist");
        let first = self.first_param[k] as usize;
        let at = |s: &Slot| match s {
            Slot::Input(o) => self.operand(k, *o as usize),
            Slot::Param(p) => self.weights[first + *p as usize],
            Slot::Ids => self.ids[k].expect("ids were loaded"),
            Slot::Output => self.outputs[k],
            Slot::Aux(a) => self.aux[k][*a as usize],
            Slot::OutputGradient => gradient.expect("the gradient of the output is there"),
            Slot::InputGradient(o) => inputs[*o as usize],
            Slot::ParamGradient(p) => self.gradients[first + *p as usize],
        };
        let (reads, writes) =
            (signature.reads.iter().map(at).collect(), signature.writes.iter().map(at).collect());
        self.emit(BlockAction::Kernel(self.kernel(k, pass)), reads, writes, k);
    }
}
