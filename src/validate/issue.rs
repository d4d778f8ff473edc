//! How a framework issues a program that lowering made for itself. Lowering lets everything overlap that memory allows;
//! an eager framework has one host thread that dispatches ops one by one, may block on messages between stages, and may
//! sum gradients only after the last backward. Such a program is the same work with more waits and a stream of host work.
//! The invariant: no instruction of the original is lost, and each waits for at least what it waited for.

use meshwright_cost_models::{dispatches, dispatching, once_per_step};
use meshwright_ir::program::{Action, BufferClass, Code, CodeBuilder, Collective, Kernel, Program, Stream};
use meshwright_ir::{Axis, DType};

/// Habits of a framework.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Manner {
    /// Ops are dispatched one by one from an interpreter, so the host may set the pace.
    pub eager: bool,
    /// A rank computes nothing while it exchanges messages with another stage, and its host waits for them.
    pub blocking_messages: bool,
    /// The host dispatches nothing while its rank takes part in a collective of a layer.
    pub blocking_collectives: bool,
    /// Gradients are summed after the last backward, not beside it.
    pub late_gradients: bool,
    /// Gradients are summed in the type of compute, not in fp32.
    pub narrow_gradients: bool,
}

/// The program as a framework of these habits issues it.
pub fn issued(mut program: Program, manner: Manner) -> Program {
    if manner == Manner::default() {
        return program;
    }
    let host = program.streams.len() as u8;
    if manner.eager {
        program.streams.push(Stream::Compute);
    }
    let narrow = narrowed(&mut program, manner);
    let roles = std::mem::take(&mut program.roles);
    program.roles = roles.iter().map(|code| reissued(code, &mut program, manner, host, &narrow)).collect();
    program
}

/// For each collective its kin in the type of compute; itself where there is none or nothing is narrowed.
fn narrowed(program: &mut Program, manner: Manner) -> Vec<u32> {
    let compute = program.exchanges.first().map(|x| x.dtype).or_else(|| {
        program.kernels.iter().find_map(|k| match k {
            Kernel::Op(op) => Some(op.dtype),
            _ => None,
        })
    });
    let of = |(c, at): (Collective, u32), all: &mut Vec<Collective>| match compute {
        Some(dtype) if manner.narrow_gradients && c.dtype == DType::F32 && c.axes.contains(Axis::Dp) => {
            all.push(Collective { dtype, ..c });
            all.len() as u32 - 1
        }
        _ => at,
    };
    let known: Vec<(Collective, u32)> = program.collectives.iter().cloned().zip(0..).collect();
    known.into_iter().map(|known| of(known, &mut program.collectives)).collect()
}

fn reissued(code: &Code, program: &mut Program, manner: Manner, host: u8, narrow: &[u32]) -> Code {
    let order = listing(code, program, manner);
    let mut builder = CodeBuilder { code: CodeBuilder::rewrite(code, |_, _| None) };
    let mut moved = vec![u32::MAX; code.instructions.len()];
    let before = predecessors(code);
    let mut message: Option<u32> = None;
    let mut computed: Option<u32> = None;
    if manner.eager {
        let kernel = kernel(program, once_per_step());
        builder.push(Action::Compute(kernel), host, 0, code.instructions[0].block, &[], &[], &[]);
    }
    for k in order {
        let i = code.instructions[k];
        let mut after = vec![];
        for a in code.after(k) {
            resolve(code, *a, &moved, &before, &mut after);
        }
        let count = match i.action {
            Action::Compute(n) => dispatches(&program.kernels[n as usize]),
            Action::Collective(_) | Action::Exchange(_) => 1,
        };
        if manner.eager && count > 0 {
            let waits: Vec<u32> = message.take().into_iter().collect();
            let dispatch = kernel(program, dispatching(count));
            let at = builder.push(Action::Compute(dispatch), host, i.micro_batch, i.block, &[], &[], &waits);
            after.push(at);
        } else if matches!(i.action, Action::Compute(_)) {
            after.extend(message.take());
        }
        if late(code, program, k) && manner.late_gradients {
            after.extend(computed);
        }
        after.sort_unstable();
        after.dedup();
        let (reads, writes) = (code.reads(k), code.writes(k));
        let action = match i.action {
            Action::Collective(c) if late(code, program, k) => Action::Collective(narrow[c as usize]),
            other => other,
        };
        let at = builder.push(action, i.stream, i.micro_batch, i.block, reads, writes, &after);
        moved[k] = at;
        match i.action {
            Action::Exchange(_) if manner.blocking_messages => message = Some(at),
            Action::Collective(_) if manner.blocking_collectives && !late(code, program, k) => {
                message = Some(at);
            }
            Action::Compute(_) => computed = Some(at),
            Action::Exchange(_) | Action::Collective(_) => {}
        }
    }
    builder.code
}

/// Positions in the order in which they are issued: gradient sums go behind the last backward kernel.
fn listing(code: &Code, program: &Program, manner: Manner) -> Vec<usize> {
    let all = 0..code.instructions.len();
    if !manner.late_gradients {
        return all.collect();
    }
    let backward = |k: &usize| match code.instructions[*k].action {
        Action::Compute(n) => matches!(program.kernels[n as usize], Kernel::Op(_)),
        Action::Collective(_) | Action::Exchange(_) => false,
    };
    let last = all.clone().rev().find(backward).unwrap_or(0);
    let early = |k: &usize| *k < last && late(code, program, *k);
    let before = (0..=last).filter(|k| !early(k));
    before.chain((0..last).filter(early)).chain(last + 1..code.instructions.len()).collect()
}

/// Whether an instruction sums gradients among replicas.
fn late(code: &Code, program: &Program, k: usize) -> bool {
    let Action::Collective(c) = code.instructions[k].action else { return false };
    let collective = &program.collectives[c as usize];
    let gradient = |b: &u32| code.buffers[*b as usize].class == BufferClass::Gradient;
    !collective.axes.contains(Axis::Pp)
        && collective.axes.contains(Axis::Dp)
        && code.writes(k).iter().all(gradient)
}

/// Position of a kernel in the program's table.
fn kernel(program: &mut Program, kernel: Kernel) -> u32 {
    if let Some(at) = program.kernels.iter().position(|k| *k == kernel) {
        return at as u32;
    }
    program.kernels.push(kernel);
    program.kernels.len() as u32 - 1
}

/// The instruction before each on its stream.
fn predecessors(code: &Code) -> Vec<Option<u32>> {
    let mut last = std::collections::BTreeMap::new();
    code.instructions.iter().zip(0..).map(|(i, k)| last.insert(i.stream, k)).collect()
}

/// Where instruction `a` went; of one that is listed later now, where those went that it waits for.
fn resolve(code: &Code, a: u32, moved: &[u32], before: &[Option<u32>], into: &mut Vec<u32>) {
    match moved[a as usize] {
        u32::MAX => {
            let waits = code.after(a as usize).iter().copied().chain(before[a as usize]);
            waits.for_each(|w| resolve(code, w, moved, before, into));
        }
        at => into.push(at),
    }
}
