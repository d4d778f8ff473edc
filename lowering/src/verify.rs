//! What lowering checks before it replays: that layouts follow from strategies, that conversions lead where they say, and
//! that tied parameters are stored, and on one stage summed, alike. A plan that fails here was not made by the planner, or was edited.

use crate::Context;
use meshwright_algebra::{Expr, Shapes, apply, layouts, may_cut, may_store, strategies};
use meshwright_ir::{Axis, AxisSet, BlockClass, ClassPlan, Invalid, Layout, Mesh, Op, Plan, Step, ValuePlan};

const REPLAN: &str = "plan again instead of editing the plan's layouts";

pub(crate) fn boundary(plan: &Plan, shapes: &Shapes) -> Result<(), Invalid> {
    let layout = &plan.boundary;
    let stray = |axes: &[Axis], index: &str| axes.iter().any(|a| !may_cut(*a, index));
    if layout.rank() != 3
        || !layout.partial().is_empty()
        || stray(layout.axes(0), "b")
        || stray(layout.axes(1), "s")
        || !layout.axes(2).is_empty()
    {
        return Err(Invalid::new(
            "plan.boundary",
            layout.to_string(),
            "cut the batch by dp and fsdp and the sequence by tp, nothing else",
        ));
    }
    let whole = plan.mesh.active().without(Axis::Pp);
    let data: AxisSet = whole.without(Axis::Tp);
    if !data.iter().all(|a| layout.axes(0).contains(&a)) || shapes.batch == 0 {
        return Err(Invalid::new("plan.boundary", layout.to_string(), "cut the batch by every data axis"));
    }
    Ok(())
}

pub(crate) fn class(
    class: &BlockClass,
    choices: &ClassPlan,
    plan: &Plan,
    shapes: &Shapes,
) -> Result<(), Invalid> {
    let n = class.nodes.len();
    let field = |node: &str| format!("plan.classes.{}.{node}", class.name);
    for (node, strategy) in class.nodes.iter().zip(&choices.strategies) {
        let legal = strategies(&node.op, &plan.mesh, shapes);
        if !legal.contains(strategy) {
            let found = strategy.describe(node.op.indices());
            return Err(Invalid::new(
                field(&node.name),
                found,
                "no legal strategy on this mesh: an index must divide into equal pieces of whole grains",
            ));
        }
    }
    let ops: Vec<_> =
        class.nodes.iter().zip(&choices.strategies).map(|(node, s)| layouts(&node.op, s)).collect();
    let values = choices.outputs.iter().enumerate().chain(choices.input.iter().map(|v| (n, v)));
    for (v, value) in values {
        let name = class.nodes.get(v).map_or("input", |node| &node.name);
        let wrong = |what: &str, found: &Layout| {
            Err(Invalid::new(format!("{}.{what}", field(name)), found.to_string(), REPLAN))
        };
        let (produced, gradient) = match ops.get(v) {
            Some(op) => (&op.output, &op.output_gradient),
            None => (&plan.boundary, &plan.boundary),
        };
        if value.produced != *produced {
            return wrong("produced", &value.produced);
        }
        if value.gradient != *gradient {
            return wrong("gradient", &value.gradient);
        }
        let is_loss = class.nodes.get(v).is_some_and(|node| matches!(node.op, Op::CrossEntropy { .. }));
        if is_loss {
            continue;
        }
        let shape = match class.nodes.get(v).map(|node| Expr::of(&node.op)) {
            Some(expr) => shapes.shape(&expr, &expr.output),
            None => vec![shapes.batch, shapes.sequence, plan.job.model.hidden],
        };
        let leads = |steps: &[Step], from: &Layout, to: &Layout| {
            follow(steps, from, &shape, &plan.mesh).is_some_and(|end| end == *to)
        };
        if let Some(copy) = value.copies.iter().find(|c| !leads(&c.steps, produced, &c.layout)) {
            return wrong("copies", &copy.layout);
        }
        if let Some(path) = value.gradients.iter().find(|p| !leads(&p.steps, &p.layout, gradient)) {
            return wrong("gradients", &path.layout);
        }
        uses(class, v, value, &ops, plan)
            .map_err(|found| Invalid::new(format!("{}.uses", field(name)), found, REPLAN))?;
    }
    Ok(())
}

/// Every reader of the value is planned, and reads the layout it wants.
fn uses(
    class: &BlockClass,
    v: usize,
    value: &ValuePlan,
    ops: &[meshwright_algebra::OpLayouts],
    plan: &Plan,
) -> Result<(), String> {
    let n = class.nodes.len();
    let this = if v == n { meshwright_ir::Value::Input } else { meshwright_ir::Value::Node(v as u32) };
    let mut readers = class.consumers(this);
    if v + 1 == n {
        readers.push((n as u32, 0));
    }
    for (node, operand) in readers {
        let using = value.uses.iter().find(|u| (u.node, u.operand) == (node, operand));
        let using = using.ok_or_else(|| format!("operand {operand} of node {node} is not planned"))?;
        let copy = value.copies.get(using.copy as usize).ok_or("a copy that does not exist")?;
        let path =
            value.gradients.get(using.gradient as usize).ok_or("a gradient path that does not exist")?;
        let (wanted, given) = match ops.get(node as usize) {
            Some(op) => (&op.inputs[operand as usize], &op.input_gradients[operand as usize]),
            None => (&plan.boundary, &plan.boundary),
        };
        if copy.layout != *wanted {
            return Err(format!("operand {operand} of node {node} reads {} and wants {wanted}", copy.layout));
        }
        if path.layout != *given {
            let found = &path.layout;
            return Err(format!("the gradient of operand {operand} of node {node} is {given}, not {found}"));
        }
    }
    Ok(())
}

/// Where steps lead: along active axes inside a stage only, and by equal pieces all the way.
fn follow(steps: &[Step], from: &Layout, shape: &[u64], mesh: &Mesh) -> Option<Layout> {
    let axis = |s: &Step| match s {
        Step::AllGather { axis, .. }
        | Step::AllReduce { axis }
        | Step::ReduceScatter { axis, .. }
        | Step::AllToAll { axis, .. }
        | Step::Slice { axis, .. } => *axis,
    };
    let whole = |layout: &Layout| layout.rank() == shape.len() && layout.local(shape, mesh).is_ok();
    let inside = mesh.active().without(Axis::Pp);
    steps.iter().try_fold(Some(from.clone()).filter(whole)?, |layout, step| {
        inside.contains(axis(step)).then(|| apply(*step, &layout)).flatten().filter(whole)
    })
}

/// Every parameter may be stored as the plan says, and a tied one is stored like its owner.
pub(crate) fn storage(context: &Context<'_>) -> Result<(), Invalid> {
    let (plan, model) = (context.plan, context.model);
    let stages = plan.stages.len() as u32;
    for (c, class) in model.classes.iter().enumerate() {
        for (p, scope) in context.params(c).iter().enumerate() {
            let storage = plan.classes[c].storage[p];
            let bad = |why: String, fix: &str| {
                let field = format!("plan.classes.{}.storage.{}", class.name, scope.name);
                Err(Invalid::new(field, format!("{storage}, but {why}"), fix))
            };
            if let Err(why) = may_store(model, c as u32, scope, stages, &plan.mesh, storage) {
                return bad(why, "keep it whole (`over = []`), or split it among other axes");
            }
            let Some((oc, _)) = scope.tied.as_ref().and_then(|t| model.tied_to(t)) else { continue };
            let owner = scope.tied.as_ref().map(|t| context.owner_param(t)).unwrap_or_default();
            let at = context.params(oc as usize).iter().position(|q| q.name == owner);
            let theirs = at.map(|q| plan.classes[oc as usize].storage[q]);
            if theirs.is_some_and(|theirs| theirs != storage) {
                return bad(format!("its owner {owner} is not"), "store a tied parameter like its owner");
            }
        }
    }
    Ok(())
}

/// A tied parameter and its owner on one stage are one buffer with one gradient, so they must be cut and summed alike; on
/// two stages each copy is summed on its own and the pieces are added.
pub(crate) fn ties(context: &Context<'_>) -> Result<(), Invalid> {
    for (c, class) in context.model.classes.iter().enumerate() {
        for node in class.nodes.iter().filter(|n| n.tied.is_some()) {
            let owner = node.tied.as_ref().and_then(|t| context.model.tied_to(t));
            let (oc, on) = owner.ok_or_else(|| {
                Invalid::new("model", format!("{} is tied to nothing", node.name), "tie to an existing node")
            })?;
            let owner_name = &context.model.classes[oc as usize].nodes[on as usize].name;
            let find = |class: usize, name: &str| {
                context
                    .params(class)
                    .iter()
                    .find(|p| p.name.rsplit_once('.').is_some_and(|(n, _)| n == name))
                    .map(|p| (&p.layout, p.sync))
            };
            let (mine, theirs) = (find(c, &node.name), find(oc as usize, owner_name));
            let same_stage = context.tied_copies().iter().all(|(owner, copy)| owner.stage == copy.stage);
            let agree = match (mine, theirs) {
                (Some((a, sync_a)), Some((b, sync_b))) => a == b && (!same_stage || sync_a == sync_b),
                _ => false,
            };
            if !agree {
                let show = |p: Option<(&Layout, AxisSet)>| {
                    p.map_or("-".into(), |(l, sync)| format!("{l} summed over {sync}"))
                };
                let field = format!("plan.classes.{}.{}", class.name, node.name);
                let fix =
                    "cut a tied parameter like its owner, so that both add to one gradient in one layout";
                return Err(Invalid::new(field, format!("{} and {}", show(mine), show(theirs)), fix));
            }
        }
    }
    Ok(())
}
