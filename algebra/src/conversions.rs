//! From strategies to a block's conversions: each value is made once in every layout that some reader wants, gradients
//! that arrive in one layout are summed before they are converted, and every path is the cheapest under the caller's
//! price. The planner records the result in the plan; nothing here chooses strategies.

use crate::{Converter, Expr, OpLayouts, Shapes, layouts};
use meshwright_ir::{
    BlockClass, ClassPlan, Copy, GradientPath, Layout, Op, Storage, Strategy, Use, Value, ValuePlan,
};

/// The plan of a block class under these strategies, or `None` when some layout cannot be reached with equal pieces.
/// `boundary` is the layout of the tensor between blocks, `hidden` its width. Every parameter is stored whole.
pub fn class_plan(
    class: &BlockClass,
    strategies: Vec<Strategy>,
    shapes: &Shapes,
    hidden: u64,
    boundary: &Layout,
    converter: &mut Converter<'_>,
) -> Option<ClassPlan> {
    let ops: Vec<OpLayouts> = class.nodes.iter().zip(&strategies).map(|(n, s)| layouts(&n.op, s)).collect();
    let mut value = |v: Value| -> Option<ValuePlan> {
        let (produced, gradient, shape) = match v {
            Value::Input => (boundary.clone(), boundary.clone(), vec![shapes.batch, shapes.sequence, hidden]),
            Value::Node(k) => {
                let (op, expr) = (&ops[k as usize], Expr::of(&class.nodes[k as usize].op));
                (op.output.clone(), op.output_gradient.clone(), shapes.shape(&expr, &expr.output))
            }
        };
        let mut plan = ValuePlan { produced, gradient, copies: vec![], gradients: vec![], uses: vec![] };
        let mut readers: Vec<(u32, u32, &Layout, &Layout)> = class
            .consumers(v)
            .into_iter()
            .map(|(n, o)| {
                (n, o, &ops[n as usize].inputs[o as usize], &ops[n as usize].input_gradients[o as usize])
            })
            .collect();
        let last = class.nodes.len() as u32 - 1;
        if v == Value::Node(last) && !matches!(class.nodes[last as usize].op, Op::CrossEntropy { .. }) {
            readers.push((last + 1, 0, boundary, boundary));
        }
        for (node, operand, wanted, given) in readers {
            let copy = match plan.copies.iter().position(|c| c.layout == *wanted) {
                Some(known) => known,
                None => {
                    let (steps, _) = converter.path(&plan.produced, wanted, &shape)?;
                    plan.copies.push(Copy { layout: wanted.clone(), steps });
                    plan.copies.len() - 1
                }
            } as u32;
            let gradient = match plan.gradients.iter().position(|g| g.layout == *given) {
                Some(known) => known,
                None => {
                    let (steps, _) = converter.path(given, &plan.gradient, &shape)?;
                    plan.gradients.push(GradientPath { layout: given.clone(), steps });
                    plan.gradients.len() - 1
                }
            } as u32;
            plan.uses.push(Use { node, operand, copy, gradient });
        }
        Some(plan)
    };
    let outputs = (0..class.nodes.len() as u32).map(|k| value(Value::Node(k))).collect::<Option<_>>()?;
    let input = if class.has_input() { Some(value(Value::Input)?) } else { None };
    let params = class.nodes.iter().map(|n| n.params().len()).sum();
    Some(ClassPlan { strategies, input, outputs, storage: vec![Storage::WHOLE; params] })
}
