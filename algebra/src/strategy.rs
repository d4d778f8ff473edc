//! From a strategy to layouts. For an operand and an axis that cuts index k: if the operand has k, it is sharded there
//! and so is its gradient; if not, it is replicated and its gradient is partial. For the output: if it has k, sharded; if
//! not, partial (unless the op reduces inside), and the gradient it needs is replicated. Data parallelism, column and row
//! parallelism, sequence parallelism and the vocabulary-parallel loss are all this one rule.

use crate::{Dim, Expr, Extent};
use meshwright_ir::{Axis, AxisSet, Layout, Mesh, Op, Strategy};

/// Sizes that come from the job, not from the op.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shapes {
    /// Samples of one micro-batch, all replicas together.
    pub batch: u64,
    /// Tokens of a sample.
    pub sequence: u64,
}

impl Shapes {
    /// Length of an index.
    pub fn extent(&self, extent: Extent) -> u64 {
        match extent {
            Extent::Batch => self.batch,
            Extent::Sequence => self.sequence,
            Extent::Fixed(n) => n,
        }
    }
    /// Whole shape of an operand.
    pub fn shape(&self, expr: &Expr, dims: &[Dim]) -> Vec<u64> {
        let size = |d: &Dim| d.index.map_or(1, |k| self.extent(expr.indices[k as usize].extent)) * d.unit;
        dims.iter().map(size).collect()
    }
}

/// Layouts of everything an op touches, under one strategy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpLayouts {
    /// Inputs as the op wants them.
    pub inputs: Vec<Layout>,
    /// Gradients of the inputs as the op makes them.
    pub input_gradients: Vec<Layout>,
    /// The output as the op makes it.
    pub output: Layout,
    /// The gradient of the output as the op wants it.
    pub output_gradient: Layout,
    /// Parameters as the op uses them.
    pub params: Vec<Layout>,
    /// Gradients of the parameters as the op makes them, before synchronisation.
    pub param_gradients: Vec<Layout>,
    /// What forward keeps beside inputs and output.
    pub aux: Vec<Layout>,
}

/// Whether an axis may cut an index of that name: dp and fsdp cut the batch, cp the sequence, tp anything but the batch,
/// pp nothing inside an op.
pub fn may_cut(axis: Axis, index: &str) -> bool {
    match axis {
        Axis::Pp => false,
        Axis::Dp | Axis::Fsdp => index == "b",
        Axis::Cp => index == "s",
        Axis::Tp => index != "b",
    }
}

/// Every strategy of an op on the mesh: each active axis (pp aside) cuts one index that divides evenly, or none. Data
/// axes always cut the batch, since a replica that did not would do its neighbour's work again.
pub fn strategies(op: &Op, mesh: &Mesh, shapes: &Shapes) -> Vec<Strategy> {
    let expr = Expr::of(op);
    let mut found = vec![Strategy::default()];
    for axis in mesh.active().without(Axis::Pp).iter() {
        let choices: Vec<Option<u8>> = match axis {
            Axis::Dp | Axis::Fsdp => vec![expr.index("b")],
            Axis::Pp | Axis::Cp | Axis::Tp => {
                let cuts =
                    (0..expr.indices.len() as u8).filter(|k| may_cut(axis, expr.indices[*k as usize].name));
                std::iter::once(None).chain(cuts.map(Some)).collect()
            }
        };
        found = found
            .iter()
            .flat_map(|s| {
                choices.iter().map(move |c| {
                    let mut s = s.clone();
                    if let Some(k) = c {
                        s.0.insert(axis, *k);
                    }
                    s
                })
            })
            .collect();
    }
    found.retain(|s| is_legal(&expr, s, mesh, shapes));
    found
}

/// Whether every cut index is cuttable and divides into equal pieces of whole grains.
fn is_legal(expr: &Expr, strategy: &Strategy, mesh: &Mesh, shapes: &Shapes) -> bool {
    expr.indices.iter().enumerate().all(|(k, index)| {
        let axes: AxisSet = strategy.axes_on(k as u8).into_iter().collect();
        let pieces = u64::from(mesh.size(axes));
        axes.is_empty()
            || (index.cuttable && (shapes.extent(index.extent) / index.grain).is_multiple_of(pieces))
    })
}

/// Layouts that follow from a strategy.
pub fn layouts(op: &Op, strategy: &Strategy) -> OpLayouts {
    let expr = Expr::of(op);
    let place = |dims: &[Dim], partial_elsewhere: &dyn Fn(u8) -> bool| {
        strategy.0.iter().fold(Layout::replicated(dims.len()), |layout, (axis, k)| {
            match dims.iter().position(|d| d.index == Some(*k)) {
                Some(d) => layout.sharded(d, *axis),
                None if partial_elsewhere(*k) => layout.partial_over(*axis),
                None => layout,
            }
        })
    };
    let (never, always) = (|_: u8| false, |_: u8| true);
    let reduced = |k: u8| expr.reduced_inside != Some(k);
    OpLayouts {
        inputs: expr.inputs.iter().map(|d| place(d, &never)).collect(),
        input_gradients: expr.inputs.iter().map(|d| place(d, &always)).collect(),
        output: place(&expr.output, &reduced),
        output_gradient: place(&expr.output, &never),
        params: expr.params.iter().map(|d| place(d, &never)).collect(),
        param_gradients: expr.params.iter().map(|d| place(d, &always)).collect(),
        aux: expr.aux.iter().map(|a| place(&a.dims, &never)).collect(),
    }
}
