//! Correct programs, ways of breaking them (find an instruction, change its parts, put it back), and who notices.

use crate::parity::{options, shape};
use crate::plans::{self, Shape, gpt};
use crate::sharding;
use meshwright_executor::{Cpu, RunOptions, train};
use meshwright_ir::program::{
    Action, BufferClass, CodeBuilder, Collective, CollectiveKind, Exchange, Kernel, OpKernel, Parts, Pass,
    Program, Stream,
};
use meshwright_ir::{Axis, AxisSet, Optimizer, Plan, Recompute, Schedule, Storage};

/// Which correct program a bug is planted in.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Base {
    /// dp 2, tp 2 with sequence parallelism, two micro-batches.
    Square,
    /// tp 2 with sequence parallelism, pp 2, four micro-batches of 1F1B.
    Stages,
    /// pp 3, four micro-batches of GPipe: every frame lives until its backward.
    Chain,
    /// dp 2, tp 2, strategies drawn at random.
    Drawn,
    /// dp 2, tp 2 with sequence parallelism, replicas updating a piece each.
    Split,
    /// tp 2, every layer recomputed.
    Again,
    /// dp 2, fsdp 2, two micro-batches: everything split over fsdp, pieces summed over dp.
    Hybrid,
}

impl Base {
    pub(crate) const ALL: [Base; 7] =
        [Base::Square, Base::Stages, Base::Chain, Base::Drawn, Base::Split, Base::Again, Base::Hybrid];

    pub(crate) fn program(self) -> Program {
        let shape = |dp, tp, pp, sp, schedule| shape(gpt(2), dp, tp, pp, sp, schedule);
        let megatron = &mut plans::megatron(true);
        match self {
            Base::Square => lowered(&shape(2, 2, 1, true, Schedule::Gpipe), megatron, |_| ()),
            Base::Stages => lowered(&shape(1, 2, 2, true, Schedule::OneForwardOneBackward), megatron, |_| ()),
            Base::Chain => lowered(&shape(1, 1, 3, false, Schedule::Gpipe), megatron, |_| ()),
            Base::Drawn => lowered(&shape(2, 2, 1, false, Schedule::Gpipe), &mut plans::random(3), |_| ()),
            Base::Split => lowered(&shape(2, 2, 1, true, Schedule::Gpipe), megatron, |plan| {
                plans::store(plan, Storage::states(AxisSet::of(Axis::Dp)));
            }),
            Base::Again => lowered(&shape(1, 2, 1, false, Schedule::Gpipe), megatron, |plan| {
                plan.recompute.fill(Recompute::Full);
            }),
            Base::Hybrid => {
                let everything = Storage::everything(AxisSet::of(Axis::Fsdp));
                let mut plan = sharding::plan(&gpt(2), "dp2 fsdp2", everything);
                plan.job.training.optimizer = Optimizer::Sgd;
                meshwright_lowering::lower(&plan).unwrap()
            }
        }
    }
}

/// The program of a plan of that shape, changed by `change`, with plain SGD.
pub(crate) fn lowered(shape: &Shape, choose: &mut plans::Choose<'_>, change: fn(&mut Plan)) -> Program {
    let mut plan = plans::plan(shape, choose).unwrap();
    plan.job.training.optimizer = Optimizer::Sgd;
    change(&mut plan);
    meshwright_lowering::lower(&plan).unwrap()
}

pub(crate) fn losses(program: Program) -> Result<Vec<f64>, String> {
    let checked = program.check().map_err(|f| format!("check: {}", f.rule))?;
    let options = RunOptions { learning_rate: 0.5, clip: 0.2, warmup: 0, ..options(4) };
    let outcome = train(&checked, &Cpu, &plans::ids, &options, &|_, _, _| {});
    outcome.map(|o| o.losses).map_err(|e| format!("run: {e}"))
}

/// Who notices that the program is wrong.
pub(crate) fn caught(program: Program, reference: &[f64]) -> String {
    match losses(program) {
        Ok(found) if reference.iter().zip(&found).all(|(a, b)| (a - b).abs() <= 1e-5 * a) => "nobody".into(),
        Ok(_) => "parity".into(),
        Err(who) => who,
    }
}

/// Applies `change` to the `nth` instruction of a role that is like that.
pub(crate) fn edit(
    p: &mut Program,
    role: usize,
    nth: usize,
    like: impl Fn(&Program, &Parts) -> bool,
    change: impl Fn(&mut Program, Parts) -> Option<Parts>,
) {
    let mut seen = 0;
    rewrite(p, role, |p, _, parts| {
        let found = like(p, &parts);
        seen += usize::from(found);
        if found && seen == nth + 1 { change(p, parts) } else { Some(parts) }
    });
    assert!(seen > nth, "only {seen} instructions are like that");
}

/// Rewrites one role, with the program's tables at hand.
fn rewrite(p: &mut Program, role: usize, mut edit: impl FnMut(&mut Program, usize, Parts) -> Option<Parts>) {
    let code = p.roles[role].clone();
    p.roles[role] = CodeBuilder::rewrite(&code, |k, parts| edit(p, k, parts));
}

/// Drops an instruction.
pub(crate) fn drop(_: &mut Program, _: Parts) -> Option<Parts> {
    None
}

/// Gives an instruction a changed kernel.
pub(crate) fn kernel(p: &mut Program, i: Parts, change: impl Fn(&mut Kernel)) -> Option<Parts> {
    let Action::Compute(k) = i.action else { panic!("no kernel") };
    let mut changed = p.kernels[k as usize].clone();
    change(&mut changed);
    p.kernels.push(changed);
    Some(Parts { action: Action::Compute(p.kernels.len() as u32 - 1), ..i })
}

/// Gives an instruction a changed op.
pub(crate) fn op(p: &mut Program, i: Parts, change: impl Fn(&mut OpKernel)) -> Option<Parts> {
    kernel(p, i, |k| match k {
        Kernel::Op(o) => change(o),
        other => panic!("{other} is no op"),
    })
}

/// Gives an instruction a changed collective, on the stream of its axes.
pub(crate) fn collective(p: &mut Program, i: Parts, change: impl Fn(&mut Collective)) -> Option<Parts> {
    let Action::Collective(c) = i.action else { panic!("no collective") };
    let mut changed = p.collectives[c as usize].clone();
    change(&mut changed);
    let stream = p.streams.iter().position(|s| *s == Stream::Collective(changed.axes)).unwrap() as u8;
    p.collectives.push(changed);
    Some(Parts { action: Action::Collective(p.collectives.len() as u32 - 1), stream, ..i })
}

/// Instructions whose kernel is like that.
pub(crate) fn kernels(like: impl Fn(&Kernel) -> bool) -> impl Fn(&Program, &Parts) -> bool {
    move |p, i| matches!(i.action, Action::Compute(k) if like(&p.kernels[k as usize]))
}

/// Instructions that run this pass of an op like that.
pub(crate) fn ops(pass: Pass, like: impl Fn(&OpKernel) -> bool) -> impl Fn(&Program, &Parts) -> bool {
    kernels(move |k| matches!(k, Kernel::Op(o) if o.pass == pass && like(o)))
}

/// Collectives of that kind over exactly these axes on buffers of that class, in one role.
pub(crate) fn collectives(
    role: usize,
    kind: CollectiveKind,
    axes: AxisSet,
    class: BufferClass,
) -> impl Fn(&Program, &Parts) -> bool {
    move |p, i| {
        let mut classes = i.writes.iter().map(|b| p.roles[role].buffers[*b as usize].class);
        matches!(i.action, Action::Collective(c)
            if p.collectives[c as usize].axes == axes && p.collectives[c as usize].kind == kind)
            && classes.all(|c| c == class)
    }
}

/// Such all-reduces.
pub(crate) fn sums(role: usize, axes: AxisSet, class: BufferClass) -> impl Fn(&Program, &Parts) -> bool {
    collectives(role, CollectiveKind::AllReduceSum, axes, class)
}

/// Exchanges like that.
pub(crate) fn exchanges(like: impl Fn(&Exchange) -> bool) -> impl Fn(&Program, &Parts) -> bool {
    move |p, i| matches!(i.action, Action::Exchange(x) if like(&p.exchanges[x as usize]))
}

/// Makes every instruction wait for all earlier ones, so that no race hides another bug.
pub(crate) fn serialise(p: &mut Program) {
    for role in 0..p.roles.len() {
        rewrite(p, role, |_, k, i| Some(Parts { after: (0..k as u32).collect(), ..i }));
    }
}

/// Lets the first two instructions like that change places in their stream, each with its own operands.
pub(crate) fn swap(p: &mut Program, role: usize, like: impl Fn(&Program, &Parts) -> bool) {
    let mut found = Vec::new();
    rewrite(p, role, |p, k, i| {
        if like(p, &i) {
            found.push((k, i.clone()));
        }
        Some(i)
    });
    let [(a, first), (b, second)] = [found[0].clone(), found[1].clone()];
    rewrite(p, role, |_, k, i| match k {
        _ if k == a => Some(second.clone()),
        _ if k == b => Some(first.clone()),
        _ => Some(i),
    });
}

/// Replaces the first two-way exchange of a role by its send and then its receive.
pub(crate) fn split_exchange(p: &mut Program, role: usize) {
    let code = p.roles[role].clone();
    let two_way = |k: &usize| match code.instructions[*k].action {
        Action::Exchange(x) => {
            Some(x as usize).filter(|x| p.exchanges[*x].send.and(p.exchanges[*x].receive).is_some())
        }
        Action::Compute(_) | Action::Collective(_) => None,
    };
    let (at, x) =
        (0..code.instructions.len()).find_map(|k| Some((k, two_way(&k)?))).expect("1F1B joins messages");
    let (whole, halves) = (p.exchanges[x].clone(), p.exchanges.len() as u32);
    p.exchanges.extend([Exchange { receive: None, ..whole.clone() }, Exchange { send: None, ..whole }]);
    let mut builder = CodeBuilder::default();
    for (k, i) in code.instructions.iter().enumerate() {
        // The receive is the half that others waited for; the send comes before it on the same stream.
        let after: Vec<u32> = code.after(k).iter().map(|a| a + u32::from(*a as usize >= at)).collect();
        let mut push = |action, reads: &[u32], writes: &[u32]| {
            builder.push(action, i.stream, i.micro_batch, i.block, reads, writes, &after)
        };
        if k == at {
            push(Action::Exchange(halves), code.reads(k), &[]);
            push(Action::Exchange(halves + 1), &[], code.writes(k));
        } else {
            push(i.action, code.reads(k), code.writes(k));
        }
    }
    let split = &mut builder.code;
    (split.buffers, split.parameters) = (code.buffers, code.parameters);
    (split.arena, split.loss, split.norm) = (code.arena, code.loss, code.norm);
    p.roles[role] = builder.code;
}
