//! What one block executes for one micro-batch on one rank: kernels and collectives in order, forward and backward, with
//! the tensors they touch. It replays the choices of a [`ClassPlan`] and makes none. Lowering turns it into instructions,
//! the planner prices it, and the memory accountant places its tensors; so all three agree by construction.
//!
//! Backward runs in reverse. A node's gradient contributions of equal layout are summed before they are converted, and a
//! node's weight gradient is listed after the conversion of its input gradient, so that the two can overlap.

use crate::count::elements;
use crate::{Expr, OpLayouts, Shapes, Slot, apply, gradient_aliases, layouts, signature};
use meshwright_ir::program::{CollectiveKind, IdKind, Kernel, OpKernel, Pass};
use meshwright_ir::{
    Axis, AxisSet, BlockClass, Bytes, ClassPlan, DType, Init, Layout, Mesh, Op, Step, Tie, Value, ValuePlan,
};

/// Where a tensor lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Home {
    /// The block's input, kept with what backward needs.
    Input,
    /// What the next block reads.
    Output,
    /// Gradient of the output, from the next block.
    OutputGradient,
    /// Gradient of the input, for the previous block.
    InputGradient,
    /// Kept from forward to backward, at this offset of the block's share of a micro-batch's frame.
    Frame(Bytes),
    /// Shorter-lived, at this offset of the workspace.
    Workspace(Bytes),
    /// Parameter in the compute type.
    Weight(u32),
    /// Gradient of a parameter.
    Gradient(u32),
    /// Running sum of the loss.
    Loss,
}

/// One tensor of the expansion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tensor {
    /// Name within the block.
    pub name: String,
    /// Elements on one rank.
    pub elements: u64,
    /// Element type.
    pub dtype: DType,
    /// Where it lives.
    pub home: Home,
}

/// A kernel, or a collective within the stage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BlockAction {
    /// Local work. Kernels that write gradients or the loss overwrite; lowering makes them accumulate.
    Kernel(Kernel),
    /// A collective over these axes.
    Collective {
        /// Which.
        kind: CollectiveKind,
        /// Over which axes.
        axes: AxisSet,
        /// Elements of the whole tensor on one rank.
        elements: u64,
        /// Element type.
        dtype: DType,
    },
}

/// One step of the expansion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockInstruction {
    /// What is done.
    pub action: BlockAction,
    /// Tensors read, in the kernel's order.
    pub reads: Vec<u32>,
    /// Tensors written.
    pub writes: Vec<u32>,
    /// Node it belongs to; `nodes.len()` for the block's input.
    pub node: u32,
}

/// A parameter of the block as this plan stores it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    /// Name within the block, `attn.q.weight`.
    pub name: String,
    /// Whole shape.
    pub shape: Vec<u64>,
    /// Layout in use and in storage.
    pub layout: Layout,
    /// Axes over which its gradient is partial.
    pub sync: AxisSet,
    /// Elements on one rank.
    pub elements: u64,
    /// How it starts.
    pub init: Init,
    /// Whether weight decay applies.
    pub decays: bool,
    /// Set when it is another block's parameter.
    pub tied: Option<Tie>,
}

/// The expansion of one block class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockCode {
    /// Tensors.
    pub tensors: Vec<Tensor>,
    /// Parameters, in node order.
    pub params: Vec<Scope>,
    /// Forward, in order.
    pub forward: Vec<BlockInstruction>,
    /// Backward, in order.
    pub backward: Vec<BlockInstruction>,
    /// Bytes kept per micro-batch, the input aside.
    pub frame: Bytes,
    /// Workspace either pass needs.
    pub workspace: Bytes,
}

impl BlockCode {
    /// The tensor that lives at an external home, if the block has one.
    pub fn tensor_at(&self, home: Home) -> Option<&Tensor> {
        self.tensors.iter().find(|t| t.home == home)
    }
}

/// Expands a block class under its plan. `shapes.batch` is one micro-batch of all replicas together. A plan whose pieces
/// do not divide, or whose lists do not fit the class, is a broken invariant: check it first.
pub fn expand(
    class: &BlockClass,
    plan: &ClassPlan,
    mesh: &Mesh,
    shapes: &Shapes,
    hidden: u64,
    boundary: &Layout,
    dtype: DType,
) -> BlockCode {
    let mut e = Expander::new(class, plan, mesh, shapes, dtype);
    let boundary_shape = [shapes.batch, shapes.sequence, hidden];
    e.forward(&boundary_shape);
    e.backward(&boundary_shape, boundary);
    e.finish()
}

const UNPLACED: Home = Home::Workspace(Bytes(u64::MAX));

struct Expander<'a> {
    class: &'a BlockClass,
    plan: &'a ClassPlan,
    mesh: &'a Mesh,
    shapes: &'a Shapes,
    dtype: DType,
    layouts: Vec<OpLayouts>,
    exprs: Vec<Expr>,
    tensors: Vec<Tensor>,
    params: Vec<Scope>,
    first_param: Vec<u32>,
    weights: Vec<u32>,
    gradients: Vec<u32>,
    forward: Vec<BlockInstruction>,
    backward: Vec<BlockInstruction>,
    /// Copies of the input (last) and of each node's output.
    copies: Vec<Vec<u32>>,
    ids: Vec<Option<u32>>,
    outputs: Vec<u32>,
    aux: Vec<Vec<u32>>,
    into_backward: bool,
}

impl<'a> Expander<'a> {
    fn new(
        class: &'a BlockClass,
        plan: &'a ClassPlan,
        mesh: &'a Mesh,
        shapes: &'a Shapes,
        dtype: DType,
    ) -> Self {
        let n = class.nodes.len();
        let mut e = Self {
            class,
            plan,
            mesh,
            shapes,
            dtype,
            layouts: class.nodes.iter().zip(&plan.strategies).map(|(n, s)| layouts(&n.op, s)).collect(),
            exprs: class.nodes.iter().map(|n| Expr::of(&n.op)).collect(),
            tensors: vec![],
            params: vec![],
            first_param: vec![],
            weights: vec![],
            gradients: vec![],
            forward: vec![],
            backward: vec![],
            copies: vec![vec![]; n + 1],
            ids: vec![None; n],
            outputs: vec![],
            aux: vec![],
            into_backward: false,
        };
        for (k, node) in class.nodes.iter().enumerate() {
            e.first_param.push(e.params.len() as u32);
            for (p, spec) in node.params().into_iter().enumerate() {
                let layout = e.layouts[k].params[p].clone();
                let position = e.params.len() as u32;
                let name = format!("{}.{}", node.name, spec.name);
                let local = e.local(&spec.shape, &layout);
                let (weight, gradient) = (Home::Weight(position), Home::Gradient(position));
                let w = e.tensor(name.clone(), local, dtype, weight);
                let g = e.tensor(format!("{name}.gradient"), local, DType::F32, gradient);
                e.weights.push(w);
                e.gradients.push(g);
                e.params.push(Scope {
                    name,
                    elements: local,
                    sync: e.layouts[k].param_gradients[p].partial(),
                    layout,
                    init: spec.init,
                    decays: spec.decays,
                    tied: node.tied.clone().filter(|_| p == 0),
                    shape: spec.shape,
                });
            }
        }
        e
    }

    fn local(&self, shape: &[u64], layout: &Layout) -> u64 {
        layout.local(shape, self.mesh).expect("a checked plan cuts evenly").iter().product()
    }

    fn tensor(&mut self, name: String, elements: u64, dtype: DType, home: Home) -> u32 {
        self.tensors.push(Tensor { name, elements, dtype, home });
        self.tensors.len() as u32 - 1
    }

    fn emit(&mut self, action: BlockAction, reads: Vec<u32>, writes: Vec<u32>, node: usize) {
        let list = if self.into_backward { &mut self.backward } else { &mut self.forward };
        list.push(BlockInstruction { action, reads, writes, node: node as u32 });
    }

    fn kernel(&self, k: usize, pass: Pass) -> Kernel {
        let strategy = &self.plan.strategies[k];
        let expr = &self.exprs[k];
        let axes: Vec<AxisSet> =
            (0..expr.indices.len()).map(|i| strategy.axes_on(i as u8).into_iter().collect()).collect();
        let extents = expr
            .indices
            .iter()
            .zip(&axes)
            .map(|(i, a)| self.shapes.extent(i.extent) / u64::from(self.mesh.size(*a)))
            .collect();
        Kernel::Op(OpKernel {
            op: self.class.nodes[k].op.clone(),
            pass,
            extents,
            axes,
            accumulate: false,
            dtype: self.dtype,
        })
    }

    fn value_plan(&self, v: usize) -> &'a ValuePlan {
        match self.plan.outputs.get(v) {
            Some(plan) => plan,
            None => self.plan.input.as_ref().expect("a block that reads an input plans it"),
        }
    }

    fn shape_of(&self, v: usize, boundary: &[u64]) -> Vec<u64> {
        match self.exprs.get(v) {
            Some(expr) => self.shapes.shape(expr, &expr.output),
            None => boundary.to_vec(),
        }
    }

    fn name_of(&self, v: usize) -> &str {
        self.class.nodes.get(v).map_or("input", |n| &n.name)
    }

    /// Tensor of operand `o` of node `k`.
    fn operand(&self, k: usize, o: usize) -> u32 {
        let v = value_index(self.class.nodes[k].inputs[o], self.class.nodes.len());
        let uses = &self.value_plan(v).uses;
        let using = uses
            .iter()
            .find(|u| u.node as usize == k && u.operand as usize == o)
            .expect("every operand is planned");
        self.copies[v][using.copy as usize]
    }

    fn forward(&mut self, boundary: &[u64]) {
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
                self.tensor(format!("{name}.aux{a}"), elements(d, &extents), DType::F32, UNPLACED)
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

    fn load_ids(&mut self, k: usize, name: &str) {
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

    fn reduce_inside(&mut self, k: usize, kind: CollectiveKind, axes: AxisSet, tensor: u32) {
        if !axes.is_empty() {
            let Tensor { elements, dtype, .. } = self.tensors[tensor as usize];
            self.emit(BlockAction::Collective { kind, axes, elements, dtype }, vec![tensor], vec![tensor], k);
        }
    }

    /// Emits one pass of node `k` on forward's tensors.
    fn pass(&mut self, k: usize, pass: Pass) {
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
    fn materialise(&mut self, v: usize, produced: u32, shape: &[u64]) {
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
    fn settle(&mut self, tensor: u32, home: Home, v: usize) -> u32 {
        if self.tensors[tensor as usize].home == UNPLACED {
            self.tensors[tensor as usize].home = home;
            return tensor;
        }
        let Tensor { elements, dtype, name, .. } = self.tensors[tensor as usize].clone();
        let copy = self.tensor(format!("{name}.copy"), elements, dtype, home);
        let kernel = Kernel::Slice { axes: AxisSet::EMPTY, outer: 1, whole: elements, inner: 1, dtype };
        self.emit(BlockAction::Kernel(kernel), vec![tensor], vec![copy], v);
        copy
    }

    fn convert(
        &mut self,
        v: usize,
        tensor: u32,
        from: &Layout,
        steps: &[Step],
        shape: &[u64],
        may_overwrite: bool,
    ) -> u32 {
        let (mut at, mut layout) = (tensor, from.clone());
        for (k, step) in steps.iter().enumerate() {
            let next = apply(*step, &layout).expect("a checked conversion applies");
            at = self.step(v, at, *step, &layout, &next, shape, may_overwrite || k > 0);
            layout = next;
        }
        at
    }

    #[allow(clippy::too_many_arguments)]
    fn step(
        &mut self,
        v: usize,
        tensor: u32,
        step: Step,
        from: &Layout,
        to: &Layout,
        shape: &[u64],
        may_overwrite: bool,
    ) -> u32 {
        let before = from.local(shape, self.mesh).expect("a checked plan cuts evenly");
        let after = to.local(shape, self.mesh).expect("a checked plan cuts evenly");
        let count = |dims: &[u64]| dims.iter().product::<u64>();
        let outer = |dims: &[u64], dim: u8| count(&dims[..dim as usize]);
        let dtype = self.tensors[tensor as usize].dtype;
        let label = format!("{}.{}", self.name_of(v), if self.into_backward { "gradient" } else { "copy" });
        match step {
            Step::AllReduce { axis } => {
                let out =
                    if may_overwrite { tensor } else { self.tensor(label, count(&after), dtype, UNPLACED) };
                self.collective(v, CollectiveKind::AllReduceSum, axis, count(&after), tensor, out)
            }
            Step::Slice { axis, dim } => {
                let out = self.tensor(label, count(&after), dtype, UNPLACED);
                let inner = count(&before[dim as usize + 1..]);
                let kernel = Kernel::Slice {
                    axes: AxisSet::of(axis),
                    outer: outer(&before, dim),
                    whole: before[dim as usize],
                    inner,
                    dtype,
                };
                self.emit(BlockAction::Kernel(kernel), vec![tensor], vec![out], v);
                out
            }
            Step::AllGather { axis, dim } => {
                let gathered = self.tensor(label.clone(), count(&after), dtype, UNPLACED);
                self.collective(v, CollectiveKind::AllGather, axis, count(&after), tensor, gathered);
                self.unpack(v, gathered, axis, &before, dim, label)
            }
            Step::ReduceScatter { axis, dim } => {
                let packed = self.pack(v, tensor, axis, &after, dim, label.clone());
                let out = self.tensor(label, count(&after), dtype, UNPLACED);
                self.collective(v, CollectiveKind::ReduceScatter, axis, count(&before), packed, out)
            }
            Step::AllToAll { axis, from, to } => {
                let packed = self.pack(v, tensor, axis, &piece(&before, to, &after), to, label.clone());
                let swapped = self.tensor(label.clone(), count(&after), dtype, UNPLACED);
                self.collective(v, CollectiveKind::AllToAll, axis, count(&before), packed, swapped);
                self.unpack(v, swapped, axis, &piece(&before, to, &after), from, label)
            }
        }
    }

    fn collective(
        &mut self,
        v: usize,
        kind: CollectiveKind,
        axis: Axis,
        elements: u64,
        from: u32,
        to: u32,
    ) -> u32 {
        let dtype = self.tensors[from as usize].dtype;
        self.emit(
            BlockAction::Collective { kind, axes: AxisSet::of(axis), elements, dtype },
            vec![from],
            vec![to],
            v,
        );
        to
    }

    /// `[outer, parts, piece]` → `[parts, outer, piece]`, unless the pieces are contiguous already. `piece` is the shape of
    /// one part.
    fn pack(&mut self, v: usize, tensor: u32, axis: Axis, piece: &[u64], dim: u8, label: String) -> u32 {
        let outer: u64 = piece[..dim as usize].iter().product();
        if outer == 1 {
            return tensor;
        }
        let (inner, parts) = (piece[dim as usize..].iter().product(), u64::from(self.mesh.degree(axis)));
        let dtype = self.tensors[tensor as usize].dtype;
        let out = self.tensor(label, outer * parts * inner, dtype, UNPLACED);
        self.emit(
            BlockAction::Kernel(Kernel::Pack { outer, parts, inner, dtype }),
            vec![tensor],
            vec![out],
            v,
        );
        out
    }

    fn unpack(&mut self, v: usize, tensor: u32, axis: Axis, piece: &[u64], dim: u8, label: String) -> u32 {
        let outer: u64 = piece[..dim as usize].iter().product();
        if outer == 1 {
            return tensor;
        }
        let (inner, parts) = (piece[dim as usize..].iter().product(), u64::from(self.mesh.degree(axis)));
        let dtype = self.tensors[tensor as usize].dtype;
        let out = self.tensor(label, outer * parts * inner, dtype, UNPLACED);
        self.emit(
            BlockAction::Kernel(Kernel::Unpack { outer, parts, inner, dtype }),
            vec![tensor],
            vec![out],
            v,
        );
        out
    }

    fn backward(&mut self, boundary: &[u64], boundary_layout: &Layout) {
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
    fn collect(&mut self, v: usize, pending: &mut [Vec<Option<(u32, bool)>>], shape: &[u64]) -> Option<u32> {
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

    fn add(&mut self, v: usize, a: u32, b: u32) -> u32 {
        let Tensor { elements, dtype, .. } = self.tensors[a as usize];
        let out = self.tensor(format!("{}.gradient", self.name_of(v)), elements, dtype, UNPLACED);
        self.emit(BlockAction::Kernel(Kernel::Add { elements, dtype }), vec![a, b], vec![out], v);
        out
    }

    fn input_gradients(&mut self, k: usize, gradient: Option<u32>, pending: &mut [Vec<Option<(u32, bool)>>]) {
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

    fn weight_gradients(&mut self, k: usize, gradient: Option<u32>) {
        if signature(&self.class.nodes[k].op, Pass::BackwardWeight).is_some() {
            self.gradient_pass(k, Pass::BackwardWeight, gradient, &[]);
        }
    }

    fn gradient_pass(&mut self, k: usize, pass: Pass, gradient: Option<u32>, inputs: &[u32]) {
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

    fn finish(mut self) -> BlockCode {
        let frame = crate::memory::place_frame(&mut self.tensors, &self.forward, &self.backward);
        let forward = crate::memory::place_workspace(&mut self.tensors, &self.forward);
        let backward = crate::memory::place_workspace(&mut self.tensors, &self.backward);
        let Self { tensors, params, forward: f, backward: b, .. } = self;
        BlockCode { tensors, params, forward: f, backward: b, frame, workspace: forward.max(backward) }
    }
}

/// Position of a value in lists of node outputs that end with the block's input.
fn value_index(value: Value, nodes: usize) -> usize {
    match value {
        Value::Node(p) => p as usize,
        Value::Input => nodes,
    }
}

/// Shape of one part when `before` is cut along `dim` as `after` is.
fn piece(before: &[u64], dim: u8, after: &[u64]) -> Vec<u64> {
    let mut shape = before.to_vec();
    shape[dim as usize] = after[dim as usize];
    shape
}

pub(crate) fn is_unplaced(home: Home) -> bool {
    home == UNPLACED
}

pub(crate) fn unplaced() -> Home {
    UNPLACED
}
