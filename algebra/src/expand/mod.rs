//! What one block executes for one micro-batch on one rank: kernels and collectives in order, forward and backward, with
//! the tensors they touch. It replays the choices of a [`ClassPlan`] and makes none. Lowering turns it into instructions,
//! the planner prices it, and the memory accountant places its tensors; so all three agree by construction.
//!
//! Backward runs in reverse. A node's gradient contributions of equal layout are summed before they are converted, and a
//! node's weight gradient is listed after the conversion of its input gradient, so that the two can overlap.

mod backward;
mod forward;
mod steps;

use crate::{Expr, Shapes, layouts};
use meshwright_ir::program::{CollectiveKind, Kernel, OpKernel, Pass};
use meshwright_ir::{
    AxisSet, BlockClass, Bytes, ClassPlan, DType, Init, Layout, Mesh, Strategy, Tie, Value, ValuePlan,
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

/// A parameter of the block as this plan uses it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    /// Name within the block, `attn.q.weight`.
    pub name: String,
    /// Whole shape.
    pub shape: Vec<u64>,
    /// Layout in use; what is stored is that or a piece of it.
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

/// Parameters of a class under these strategies, in node order. A strategy that cuts unevenly is a broken invariant.
pub fn scopes(class: &BlockClass, strategies: &[Strategy], mesh: &Mesh) -> Vec<Scope> {
    let mut scopes = Vec::new();
    for (node, strategy) in class.nodes.iter().zip(strategies) {
        let layouts = layouts(&node.op, strategy);
        for (p, spec) in node.params().into_iter().enumerate() {
            let layout = layouts.params[p].clone();
            let local = layout.local(&spec.shape, mesh).expect("a checked plan cuts evenly");
            scopes.push(Scope {
                name: format!("{}.{}", node.name, spec.name),
                elements: local.iter().product(),
                sync: layouts.param_gradients[p].partial(),
                layout,
                init: spec.init,
                decays: spec.decays,
                tied: node.tied.clone().filter(|_| p == 0),
                shape: spec.shape,
            });
        }
    }
    scopes
}

const UNPLACED: Home = Home::Workspace(Bytes(u64::MAX));

struct Expander<'a> {
    class: &'a BlockClass,
    plan: &'a ClassPlan,
    mesh: &'a Mesh,
    shapes: &'a Shapes,
    dtype: DType,
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
        e.params = scopes(class, &plan.strategies, mesh);
        let mut first = 0;
        for node in &class.nodes {
            e.first_param.push(first);
            first += node.params().len() as u32;
        }
        for p in 0..e.params.len() as u32 {
            let Scope { name, elements, .. } = &e.params[p as usize];
            let (name, elements) = (name.clone(), *elements);
            let w = e.tensor(name.clone(), elements, dtype, Home::Weight(p));
            let g = e.tensor(format!("{name}.gradient"), elements, DType::F32, Home::Gradient(p));
            e.weights.push(w);
            e.gradients.push(g);
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

pub(crate) fn is_unplaced(home: Home) -> bool {
    home == UNPLACED
}

pub(crate) fn unplaced() -> Home {
    UNPLACED
}
