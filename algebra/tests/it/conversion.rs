//! Conversions, exhaustively: every pair of layouts of a `[b, s, e]` tensor, against brute force (Floyd and Warshall over
//! all steps), under several prices; and what papers call by name falls out.

use crate::support::{SHAPES, class, megatron, mesh, planned};
use meshwright_algebra::{BlockAction, Converter, apply, step_elements};
use meshwright_ir::program::CollectiveKind;
use meshwright_ir::{Axis, Layout, Mesh, Step};
use std::collections::BTreeMap;

/// Every layout of a tensor of three dims over dp and tp whose pieces are equal.
fn layouts(mesh: &Mesh, shape: &[u64]) -> Vec<Layout> {
    let mut found = vec![Layout::replicated(3)];
    for axis in [Axis::Dp, Axis::Tp] {
        let mut next = Vec::new();
        for layout in &found {
            next.push(layout.clone());
            next.push(layout.clone().partial_over(axis));
            for dim in 0..3 {
                let major_first = layout.clone().sharded(dim, axis);
                let minor_first = layout.axes(dim).iter().fold(layout.clone(), |l, a| l.cleared(*a));
                let minor_first =
                    layout.axes(dim).iter().fold(minor_first.sharded(dim, axis), |l, a| l.sharded(dim, *a));
                if minor_first != major_first {
                    next.push(minor_first);
                }
                next.push(major_first);
            }
        }
        found = next;
    }
    found.retain(|l| l.local(shape, mesh).is_ok());
    found
}

fn every_step() -> Vec<Step> {
    let dims = || 0..3u8;
    [Axis::Dp, Axis::Tp]
        .into_iter()
        .flat_map(|axis| {
            let mut steps = vec![Step::AllReduce { axis }];
            steps.extend(dims().map(|dim| Step::AllGather { axis, dim }));
            steps.extend(dims().map(|dim| Step::ReduceScatter { axis, dim }));
            steps.extend(dims().map(|dim| Step::Slice { axis, dim }));
            steps.extend(dims().flat_map(|from| dims().map(move |to| Step::AllToAll { axis, from, to })));
            steps
        })
        .collect()
}

/// Cheapest way between every pair: `None` where there is none.
fn brute_force(
    all: &[Layout],
    mesh: &Mesh,
    shape: &[u64],
    price: &dyn Fn(Step, u64) -> u64,
) -> Vec<Vec<Option<u64>>> {
    let at: BTreeMap<&Layout, usize> = all.iter().zip(0..).collect();
    let mut cost = vec![vec![None; all.len()]; all.len()];
    for (a, from) in all.iter().enumerate() {
        cost[a][a] = Some(0);
        for step in every_step() {
            let Some(b) = apply(step, from).and_then(|to| at.get(&to).copied()) else { continue };
            let direct = price(step, step_elements(step, from, shape, mesh));
            cost[a][b] = Some(cost[a][b].map_or(direct, |c: u64| c.min(direct)));
        }
    }
    for via in 0..all.len() {
        for a in 0..all.len() {
            for b in 0..all.len() {
                if let (Some(x), Some(y)) = (cost[a][via], cost[via][b]) {
                    cost[a][b] = Some(cost[a][b].map_or(x + y, |c| c.min(x + y)));
                }
            }
        }
    }
    cost
}

fn axis_of(step: Step) -> Axis {
    match step {
        Step::AllGather { axis, .. }
        | Step::AllReduce { axis }
        | Step::ReduceScatter { axis, .. }
        | Step::AllToAll { axis, .. }
        | Step::Slice { axis, .. } => axis,
    }
}

fn check(mesh: &Mesh, shape: &[u64], price: &dyn Fn(Step, u64) -> u64) {
    let all = layouts(mesh, shape);
    let cheapest = brute_force(&all, mesh, shape, price);
    let mut converter = Converter::new(*mesh, price);
    for (a, from) in all.iter().enumerate() {
        for (b, to) in all.iter().enumerate() {
            let found = converter.path(from, to, shape);
            assert_eq!(found.as_ref().map(|(_, cost)| *cost), cheapest[a][b], "{from} to {to}");
            let becomes_partial = to.partial().iter().any(|axis| !from.partial().contains(axis));
            assert_eq!(found.is_none(), becomes_partial, "{from} to {to}");
            let Some((steps, cost)) = found else { continue };
            let (mut here, mut paid) = (from.clone(), 0);
            for step in steps {
                paid += price(step, step_elements(step, &here, shape, mesh));
                here = apply(step, &here).unwrap();
                assert!(here.local(shape, mesh).is_ok(), "{from} to {to} by way of {here}");
            }
            assert_eq!((&here, paid), (to, cost));
            for via in 0..all.len() {
                if let (Some(x), Some(y)) = (cheapest[a][via], cheapest[via][b]) {
                    assert!(cost <= x + y, "{from} to {to} is cheaper by way of {}", all[via]);
                }
            }
        }
    }
}

#[test]
fn every_pair_of_layouts() {
    for (mesh_text, shape, expected) in [
        ("dp=2 tp=2", [4, 8, 12], 28),
        ("dp=2 tp=4", [8, 8, 8], 28),
        // A batch of 4 is cut once only, a width of 6 by dp only.
        ("dp=2 tp=4", [4, 8, 6], 20),
    ] {
        let mesh = mesh(mesh_text);
        assert_eq!(layouts(&mesh, &shape).len(), expected, "{mesh_text} {shape:?}");
        check(&mesh, &shape, &|_, elements| elements);
        check(&mesh, &shape, &|_, _| 1);
        // A slow axis, a latency, and an all_to_all dearer than a gather.
        check(&mesh, &shape, &|step, elements| {
            let slow = if axis_of(step) == Axis::Dp { 7 } else { 1 };
            let weight = match step {
                Step::AllReduce { .. } => 2,
                Step::AllToAll { .. } => 5,
                Step::Slice { .. } => return 3,
                Step::AllGather { .. } | Step::ReduceScatter { .. } => 1,
            };
            40 + slow * weight * elements
        });
    }
}

#[test]
fn steps_that_do_not_apply() {
    let layout = |text: &str| text.parse::<Layout>().unwrap();
    let tp = Axis::Tp;
    for (step, from, to) in [
        (Step::AllGather { axis: tp, dim: 0 }, "(dp.tp,-,-)", Some("(dp,-,-)")),
        (Step::AllGather { axis: tp, dim: 0 }, "(tp.dp,-,-)", None),
        (Step::AllGather { axis: tp, dim: 1 }, "(tp,-,-)", None),
        (Step::AllGather { axis: tp, dim: 3 }, "(tp,-,-)", None),
        (Step::AllReduce { axis: tp }, "(-,-,-)+dp.tp", Some("(-,-,-)+dp")),
        (Step::AllReduce { axis: tp }, "(-,-,-)", None),
        (Step::ReduceScatter { axis: tp, dim: 1 }, "(-,dp,-)+tp", Some("(-,dp.tp,-)")),
        (Step::ReduceScatter { axis: tp, dim: 1 }, "(-,-,-)", None),
        (Step::AllToAll { axis: tp, from: 1, to: 2 }, "(-,tp,-)", Some("(-,-,tp)")),
        (Step::AllToAll { axis: tp, from: 1, to: 1 }, "(-,tp,-)", None),
        (Step::AllToAll { axis: tp, from: 1, to: 2 }, "(-,tp.dp,-)", None),
        (Step::Slice { axis: tp, dim: 2 }, "(-,-,dp)", Some("(-,-,dp.tp)")),
        (Step::Slice { axis: tp, dim: 2 }, "(-,-,-)+tp", None),
        (Step::Slice { axis: tp, dim: 2 }, "(tp,-,-)", None),
    ] {
        assert_eq!(apply(step, &layout(from)), to.map(layout), "{step:?} of {from}");
    }
}

/// Collectives of a layer: kind, axis, elements, in order, forward and backward.
fn collectives(sp: bool) -> [Vec<(CollectiveKind, u64)>; 2] {
    let (_, code) = planned(&class("layer", crate::support::GPT_LAYER), &mesh("tp=4"), sp, megatron(sp));
    [&code.forward, &code.backward].map(|pass| {
        pass.iter()
            .filter_map(|i| match &i.action {
                BlockAction::Collective { kind, elements, .. } => Some((*kind, *elements)),
                BlockAction::Kernel(_) => None,
            })
            .collect()
    })
}

/// Shoeybi et al. 2019: two all-reduces forward, two backward. Korthikanti et al. 2022: each becomes a reduce-scatter and
/// an all-gather of the same tensor; and since q, k and v read one copy, its gradient is gathered once.
#[test]
fn tensor_and_sequence_parallelism_fall_out() {
    let whole = SHAPES.batch * SHAPES.sequence * 32;
    let [forward, backward] = collectives(false);
    assert_eq!(forward, [(CollectiveKind::AllReduceSum, whole); 2]);
    assert_eq!(backward, [(CollectiveKind::AllReduceSum, whole); 2]);
    let pair = [(CollectiveKind::AllGather, whole), (CollectiveKind::ReduceScatter, whole)];
    let [forward, backward] = collectives(true);
    assert_eq!(forward, [pair, pair].concat());
    assert_eq!(backward, [pair, pair].concat());
}
