//! Planted bugs: each row breaks a correct program in one way that a lowering might, and names who must notice: a rule of
//! the checker, or the comparison of losses with a single rank. SGD with an active clip, since AdamW forgives a gradient of
//! the wrong size. Nothing runs that the checker refuses, so no row can hang.

use crate::parity::shape;
use crate::plans::{self, gpt};
use crate::planting::{
    Base, caught, collective, collectives, drop, edit, exchanges, kernel, kernels, losses, lowered, op, ops,
    serialise, split_exchange, sums, swap,
};
use meshwright_ir::program::{Action, BufferClass, CollectiveKind, Kernel, OpKernel, Parts, Pass, Program};
use meshwright_ir::{Axis, AxisSet, Bytes, Op, Schedule};

const DP: AxisSet = AxisSet::of(Axis::Dp);
const FSDP: AxisSet = AxisSet::of(Axis::Fsdp);
const TP: AxisSet = AxisSet::of(Axis::Tp);
const PP: AxisSet = AxisSet::of(Axis::Pp);

fn square_linear(o: &OpKernel) -> bool {
    matches!(o.op, Op::Linear { input: 32, output: 32, .. })
}

fn weight(p: &Program, name: &str) -> u32 {
    p.roles[0].parameters.iter().find(|w| w.name == name).map(|w| w.weight).unwrap()
}

fn replaced(list: &[u32], from: u32, to: u32) -> Vec<u32> {
    list.iter().map(|b| if *b == from { to } else { *b }).collect()
}

/// Lets one weight gradient of stage 1 read what the same op of an earlier micro-batch kept.
fn read_another_frame(p: &mut Program) {
    let code = &p.roles[1];
    let back = ops(Pass::BackwardWeight, square_linear);
    let kept: Vec<u32> = (0..code.instructions.len())
        .filter(|k| {
            let action = code.instructions[*k].action;
            back(p, &Parts { action, stream: 0, reads: vec![], writes: vec![], after: vec![] })
        })
        .map(|k| code.reads(k)[1])
        .collect();
    let name = |b: &u32| code.buffers[*b as usize].name;
    let (stale, own) = (kept[0], *kept[1..].iter().find(|b| name(b) == name(&kept[0])).unwrap());
    let reads_own = |p: &Program, i: &Parts| back(p, i) && i.reads[1] == own;
    edit(p, 1, 0, reads_own, |_, i| Some(Parts { reads: replaced(&i.reads, own, stale), ..i }));
}

/// Collectives of that kind over exactly these axes.
fn of_kind(kind: CollectiveKind, axes: AxisSet) -> impl Fn(&Program, &Parts) -> bool {
    move |p, i| {
        let of = |c: u32| (p.collectives[c as usize].kind, p.collectives[c as usize].axes);
        matches!(i.action, Action::Collective(c) if of(c) == (kind, axes))
    }
}

type Plant = fn(&mut Program);

const BUGS: &[(&str, Base, Plant, &str)] = &[
    (
        "a gradient all_reduce is dropped",
        Base::Square,
        |p| edit(p, 0, 0, sums(0, DP, BufferClass::Gradient), drop),
        "parity",
    ),
    (
        "a gradient all_reduce runs over the wrong group",
        Base::Square,
        |p| {
            let wrong = |p: &mut Program, i| collective(p, i, |c| c.axes = TP);
            edit(p, 0, 0, sums(0, DP, BufferClass::Gradient), wrong);
            serialise(p);
        },
        "parity",
    ),
    (
        "the operands of a linear are swapped",
        Base::Square,
        |p| {
            // The row-parallel projection: its piece of the weight is as large as its piece of the input.
            let row = |o: &OpKernel| square_linear(o) && !o.axes[2].is_empty();
            edit(p, 0, 0, ops(Pass::Forward, row), |_, i| {
                Some(Parts { reads: vec![i.reads[1], i.reads[0]], ..i })
            });
        },
        "parity",
    ),
    (
        "a wait for another stream is dropped",
        Base::Square,
        |p| {
            let waits = |_: &Program, i: &Parts| !i.after.is_empty();
            edit(p, 0, 0, waits, |_, i| Some(Parts { after: vec![], ..i }));
        },
        "check: race",
    ),
    (
        "a second micro-batch overwrites a weight's gradient",
        Base::Square,
        |p| {
            let adds = ops(Pass::BackwardWeight, |o| o.accumulate);
            edit(p, 0, 3, adds, |p, i| op(p, i, |o| o.accumulate = false));
        },
        "parity",
    ),
    (
        "a slice is cut by the wrong axis",
        Base::Drawn,
        |p| {
            let cut = kernels(|k| matches!(k, Kernel::Slice { axes, .. } if *axes == TP));
            edit(p, 0, 0, cut, |p, i| {
                kernel(p, i, |k| {
                    if let Kernel::Slice { axes, .. } = k {
                        *axes = DP;
                    }
                })
            });
        },
        "parity",
    ),
    (
        "a vocabulary shard looks its rows up at another rank's offset",
        Base::Square,
        |p| {
            let lookup = ops(Pass::Forward, |o| matches!(o.op, Op::Embedding { rows: 64, .. }));
            edit(p, 0, 0, lookup, |p, i| op(p, i, |o| o.axes[2] = DP));
        },
        "parity",
    ),
    (
        "a position embedding ignores where its piece of the sequence starts",
        Base::Square,
        |p| {
            let lookup = ops(Pass::Forward, |o| matches!(o.op, Op::Embedding { rows: 16, .. }));
            edit(p, 0, 0, lookup, |p, i| op(p, i, |o| o.axes[1] = AxisSet::EMPTY));
        },
        "parity",
    ),
    (
        "every replica loads the first one's tokens",
        Base::Square,
        |p| {
            edit(p, 0, 0, kernels(|k| matches!(k, Kernel::Load { .. })), |p, i| {
                kernel(p, i, |k| {
                    if let Kernel::Load { batch_axes, .. } = k {
                        *batch_axes = AxisSet::EMPTY;
                    }
                })
            });
        },
        "parity",
    ),
    (
        "a sum of activations is a maximum",
        Base::Drawn,
        |p| {
            edit(p, 0, 0, sums(0, TP, BufferClass::Workspace), |p, i| {
                collective(p, i, |c| c.kind = CollectiveKind::AllReduceMax)
            });
        },
        "parity",
    ),
    (
        "pieces are not put in place after an all_gather",
        Base::Square,
        |p| {
            edit(p, 0, 0, kernels(|k| matches!(k, Kernel::Unpack { .. })), |p, i| {
                kernel(p, i, |k| {
                    if let Kernel::Unpack { outer, inner, .. } = k {
                        (*outer, *inner) = (1, *outer * *inner);
                    }
                })
            });
        },
        "parity",
    ),
    (
        "a send is dropped",
        Base::Stages,
        |p| edit(p, 0, 0, exchanges(|x| x.send.is_some()), drop),
        "check: unmatched message",
    ),
    (
        "an exchange is split, and both stages send first",
        Base::Stages,
        |p| (0..2).for_each(|role| split_exchange(p, role)),
        "check: deadlock",
    ),
    (
        "two receives change places",
        Base::Chain,
        |p| swap(p, 1, exchanges(|x| x.receive.is_some() && x.peer < 0)),
        "check: use before write",
    ),
    (
        "two sends change places",
        Base::Chain,
        |p| swap(p, 0, exchanges(|x| x.send.is_some())),
        "check: use before write",
    ),
    (
        "the norm counts what every tensor rank holds as often as there are ranks",
        Base::Square,
        |p| {
            let shared = kernels(|k| matches!(k, Kernel::SumSquares { replicas, .. } if *replicas > 1));
            edit(p, 0, 0, shared, |p, i| {
                kernel(p, i, |k| {
                    if let Kernel::SumSquares { replicas, .. } = k {
                        *replicas = 1;
                    }
                })
            });
        },
        "parity",
    ),
    (
        "the norm is not summed over the stages",
        Base::Stages,
        |p| {
            for role in 0..2 {
                let norm = p.roles[role].norm.unwrap();
                let sum = move |_: &Program, i: &Parts| {
                    matches!(i.action, Action::Collective(_)) && i.writes == [norm]
                };
                edit(p, role, 0, sum, drop);
            }
        },
        "parity",
    ),
    (
        "a tied copy's gradient is summed over every stage",
        Base::Chain,
        |p| {
            for role in [0, 2] {
                edit(p, role, 0, sums(role, PP, BufferClass::Gradient), |p, i| {
                    collective(p, i, |c| c.stages = None)
                });
            }
        },
        "check: incomplete group",
    ),
    (
        "a tied copy's gradient is summed on one of its stages only",
        Base::Chain,
        |p| edit(p, 2, 0, sums(2, PP, BufferClass::Gradient), drop),
        "check: incomplete group",
    ),
    (
        "the gradients of a tied parameter's copies are not summed",
        Base::Chain,
        |p| [0, 2].into_iter().for_each(|r| edit(p, r, 0, sums(r, PP, BufferClass::Gradient), drop)),
        "parity",
    ),
    ("the loss is divided by the tokens of one replica", Base::Square, |p| p.tokens /= 2, "parity"),
    (
        "a backward pass reads the activation of another micro-batch",
        Base::Chain,
        read_another_frame,
        "parity",
    ),
    (
        "one layer computes with the other's queries",
        Base::Square,
        |p| {
            let (own, other) = (weight(p, "layer.0.q.weight"), weight(p, "layer.1.q.weight"));
            let reads_own =
                |p: &Program, i: &Parts| ops(Pass::Forward, |_| true)(p, i) && i.reads.contains(&own);
            edit(p, 0, 0, reads_own, |_, i| Some(Parts { reads: replaced(&i.reads, own, other), ..i }));
        },
        "parity",
    ),
    (
        "a kept activation lies where the next one is written",
        Base::Square,
        |p| {
            let kept = p.roles[0].buffers.iter_mut().filter(|b| b.class == BufferClass::Activation);
            if let [first, second, ..] = &mut kept.collect::<Vec<_>>()[..] {
                second.offset = first.offset;
            }
        },
        "check: use after free",
    ),
    (
        "pieces that replicas updated are not gathered",
        Base::Split,
        |p| edit(p, 0, 0, collectives(0, CollectiveKind::AllGather, DP, BufferClass::Weight), drop),
        "parity",
    ),
    (
        "gradients are not summed into the replicas' pieces",
        Base::Split,
        |p| edit(p, 0, 0, collectives(0, CollectiveKind::ReduceScatter, DP, BufferClass::Gradient), drop),
        "parity",
    ),
    (
        "replicas update the pieces of their tensor ranks",
        Base::Split,
        |p| {
            edit(p, 0, 0, kernels(|k| matches!(k, Kernel::Update { piece, .. } if *piece == DP)), |p, i| {
                kernel(p, i, |k| {
                    if let Kernel::Update { piece, .. } = k {
                        *piece = TP;
                    }
                })
            });
        },
        "parity",
    ),
    (
        "the norm counts gradients beyond the replica's piece",
        Base::Split,
        |p| {
            edit(
                p,
                0,
                0,
                kernels(|k| matches!(k, Kernel::SumSquares { piece, .. } if *piece == DP)),
                |p, i| {
                    kernel(p, i, |k| {
                        if let Kernel::SumSquares { piece, .. } = k {
                            *piece = AxisSet::EMPTY;
                        }
                    })
                },
            );
        },
        "parity",
    ),
    (
        "what is recomputed uses another layer's weights",
        Base::Again,
        |p| {
            let (own, other) = (weight(p, "layer.0.up.weight"), weight(p, "layer.1.up.weight"));
            let reads_own =
                |p: &Program, i: &Parts| ops(Pass::Forward, |_| true)(p, i) && i.reads.contains(&own);
            edit(p, 0, 1, reads_own, |_, i| Some(Parts { reads: replaced(&i.reads, own, other), ..i }));
        },
        "parity",
    ),
    (
        "a norm is not recomputed",
        Base::Again,
        |p| edit(p, 0, 5, ops(Pass::Forward, |o| matches!(o.op, Op::Norm { .. })), drop),
        "check: use before write",
    ),
    (
        "a micro-batch's gradients are not summed over the ranks that split them",
        Base::Hybrid,
        |p| {
            edit(p, 0, 0, of_kind(CollectiveKind::ReduceScatter, FSDP), drop);
            serialise(p);
        },
        "check: use before write",
    ),
    (
        "the last micro-batch's gradients are summed and not added",
        Base::Hybrid,
        |p| {
            let into_pieces = |p: &Program, i: &Parts| {
                let gradient = p.roles[0].buffers[i.writes[0] as usize].class == BufferClass::Gradient;
                gradient && kernels(|k| matches!(k, Kernel::Add { .. }))(p, i)
            };
            edit(p, 0, 0, into_pieces, drop);
            serialise(p);
        },
        "parity",
    ),
    (
        "pieces of gradients are not summed over the replicas",
        Base::Hybrid,
        |p| edit(p, 0, 0, sums(0, DP, BufferClass::Gradient), drop),
        "parity",
    ),
    (
        "gradients are summed over the replicas instead of the ranks that split them",
        Base::Hybrid,
        |p| {
            let scatter = of_kind(CollectiveKind::ReduceScatter, FSDP);
            edit(p, 0, 0, scatter, |p, i| collective(p, i, |c| c.axes = DP));
            serialise(p);
        },
        "parity",
    ),
    (
        "weights are gathered from the replicas instead of the ranks that split them",
        Base::Hybrid,
        |p| {
            let gather = of_kind(CollectiveKind::AllGather, FSDP);
            edit(p, 0, 0, gather, |p, i| collective(p, i, |c| c.axes = DP));
            serialise(p);
        },
        "parity",
    ),
    (
        "weights are gathered after their use",
        Base::Hybrid,
        |p| {
            let code = &p.roles[0];
            let gather = |k: &usize| matches!(code.instructions[*k].action, Action::Collective(_));
            let whole = code.writes((0..code.instructions.len()).find(gather).unwrap())[0];
            swap(p, 0, move |_, i| i.writes.contains(&whole) || i.reads.contains(&whole));
        },
        "check: use before write",
    ),
    (
        "weights are gathered into a slot that is still in use",
        Base::Hybrid,
        |p| {
            let waits = |p: &Program, i: &Parts| {
                of_kind(CollectiveKind::AllGather, FSDP)(p, i) && !i.after.is_empty()
            };
            edit(p, 0, 0, waits, |_, i| Some(Parts { after: vec![], ..i }));
        },
        "check: race",
    ),
    (
        "backward reads the weights that forward gathered",
        Base::Hybrid,
        |p| {
            let code = &p.roles[0];
            let named =
                |b: &u32| p.names[code.buffers[*b as usize].name as usize] == "layer.0/up.weight.whole";
            let mut all = (0..code.buffers.len() as u32).filter(named);
            let (forward, backward) = (all.next().unwrap(), all.next().unwrap());
            let reads = move |_: &Program, i: &Parts| i.reads.contains(&backward);
            edit(p, 0, 0, reads, |_, i| Some(Parts { reads: replaced(&i.reads, backward, forward), ..i }));
        },
        "check: use after free",
    ),
    (
        "a parameter's piece starts where another rank's does",
        Base::Hybrid,
        |p| {
            let table = p.roles[0].parameters.iter_mut().find(|w| w.name == "layer.0.up.weight");
            table.unwrap().storage.over = DP;
        },
        "parity",
    ),
    (
        "the norm counts one rank's pieces only",
        Base::Hybrid,
        |p| edit(p, 0, 0, sums(0, FSDP, BufferClass::Scalar), drop),
        "parity",
    ),
    (
        "the arena is too short",
        Base::Stages,
        |p| p.roles[1].arena = p.roles[1].arena - Bytes(256),
        "check: arena",
    ),
    (
        "a collective waits on the compute stream",
        Base::Square,
        |p| {
            let any = |_: &Program, i: &Parts| matches!(i.action, Action::Collective(_));
            edit(p, 0, 0, any, |_, i| Some(Parts { stream: 0, ..i }));
        },
        "check: malformed",
    ),
];

#[test]
fn every_planted_bug_is_caught() {
    let single = shape(gpt(2), 1, 1, 1, false, Schedule::Gpipe);
    let reference = losses(lowered(&single, &mut plans::megatron(false), |_| ())).unwrap();
    for base in Base::ALL {
        assert_eq!(caught(base.program(), &reference), "nobody", "{base:?} is wrong to begin with");
    }
    let (found, expected): (Vec<_>, Vec<_>) = BUGS
        .iter()
        .map(|(bug, base, plant, expected)| {
            let mut program = base.program();
            plant(&mut program);
            assert!(program != base.program(), "{bug}: nothing was planted");
            (format!("{bug}: {}", caught(program, &reference)), format!("{bug}: {expected}"))
        })
        .unzip();
    assert_eq!(found, expected);
}
