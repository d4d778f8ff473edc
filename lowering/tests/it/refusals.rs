//! Edited plans are refused by name, and never make lowering panic.

use crate::plans::{self, Shape};
use expect_test::expect;
use meshwright_ir::{Axis, ClassPlan, Layout, Model, Plan, Schedule, Step, Strategy};
use meshwright_lowering::{lower, planned_peaks};

fn shape(model: Model) -> Shape {
    let schedule = Schedule::OneForwardOneBackward;
    Shape {
        model,
        dp: 1,
        fsdp: 1,
        tp: 4,
        pp: 2,
        sp: true,
        micro_batch: 2,
        global_batch: 4,
        sequence: 8,
        schedule,
    }
}

fn plan() -> Plan {
    plans::plan(&shape(plans::gpt(2)), &mut plans::megatron(true)).unwrap()
}

/// A head whose logits are cut by nothing, while the embedding's rows are.
fn whole_logits() -> ClassPlan {
    let mut untied = plans::gpt(2);
    untied.classes[2].nodes[1].tied = None;
    let choose = &mut |class: &str, node: &str, legal: &[Strategy]| match node {
        "logits" => legal.iter().position(|s| s.0.is_empty()).unwrap(),
        _ => plans::megatron(true)(class, node, legal),
    };
    plans::plan(&shape(untied), choose).unwrap().classes.remove(2)
}

fn layout(text: &str) -> Layout {
    text.parse().unwrap()
}

type Edit = fn(&mut Plan);

const EDITS: &[(&str, Edit)] = &[
    ("nothing", |_| ()),
    ("the version", |p| p.version = 2),
    ("one micro-batch more", |p| p.micro_batches += 1),
    ("65,536 micro-batches", |p| {
        (p.micro_batch, p.micro_batches, p.job.training.global_batch) = (1, 65536, 65536);
    }),
    ("no micro-batch", |p| (p.micro_batches, p.job.training.global_batch) = (0, 0)),
    ("a stage without blocks", |p| p.stages[0].blocks = 0),
    ("a stage too many", |p| p.stages.push(p.stages[0].clone())),
    ("a stage of 4,294,967,295 blocks", |p| {
        (p.stages[0].blocks, p.stages[1].first) = (u32::MAX, u32::MAX);
    }),
    ("a micro-batch of 2^63", |p| p.micro_batch = 1 << 63),
    ("a class too few", |p| p.classes.truncate(2)),
    ("a strategy too few", |p| p.classes[1].strategies.truncate(3)),
    ("an output too few", |p| p.classes[1].outputs.truncate(3)),
    ("no plan for the input", |p| p.classes[1].input = None),
    ("an index that the op lacks", |p| p.classes[1].strategies[1] = Strategy([(Axis::Tp, 9)].into())),
    ("tp on the batch", |p| p.classes[1].strategies[1] = Strategy([(Axis::Tp, 0)].into())),
    ("pp on the sequence", |p| p.classes[1].strategies[1] = Strategy([(Axis::Pp, 1)].into())),
    ("norm over cut features", |p| p.classes[1].strategies[0] = Strategy([(Axis::Tp, 2)].into())),
    ("another strategy for q", |p| p.classes[1].strategies[1] = Strategy::default()),
    ("another layout produced", |p| p.classes[1].outputs[1].produced = layout("(-,tp,-)")),
    ("another gradient wanted", |p| p.classes[1].outputs[1].gradient = layout("(-,tp,-)")),
    ("a conversion without its steps", |p| p.classes[1].outputs[0].copies[0].steps.clear()),
    ("a conversion that leads elsewhere", |p| {
        p.classes[1].outputs[0].copies[0].steps = vec![Step::AllToAll { axis: Axis::Tp, from: 1, to: 2 }];
    }),
    ("a step along an axis of one rank", |p| {
        p.classes[1].outputs[0].copies[0].steps.push(Step::Slice { axis: Axis::Dp, dim: 0 });
    }),
    ("a way round by pieces that do not divide", |p| {
        let steps = &mut p.classes[1].outputs[0].copies[0].steps;
        steps.extend([Step::Slice { axis: Axis::Tp, dim: 0 }, Step::AllGather { axis: Axis::Tp, dim: 0 }]);
    }),
    ("a gradient without its steps", |p| p.classes[1].outputs[0].gradients[0].steps.clear()),
    ("another layout copied", |p| p.classes[1].outputs[0].copies[0].layout = layout("(-,-,tp)")),
    ("a use too few", |p| p.classes[1].outputs[0].uses.truncate(1)),
    ("a use of a copy that is not there", |p| p.classes[1].outputs[0].uses[0].copy = 7),
    ("a use of a path that is not there", |p| p.classes[1].outputs[0].uses[0].gradient = 7),
    ("a boundary cut by features", |p| p.boundary = layout("(-,-,tp)")),
    ("a partial boundary", |p| p.boundary = layout("(-,-,-)+tp")),
    ("a boundary of two dims", |p| p.boundary = layout("(-,tp)")),
    ("a boundary cut by an axis of one rank", |p| p.boundary = layout("(cp,tp,-)")),
    ("a boundary whole along the sequence", |p| p.boundary = layout("(-,-,-)")),
    ("a sequence that tp does not divide", |p| p.job.training.sequence = 6),
    ("a tied matrix cut otherwise", |p| p.classes[2] = whole_logits()),
];

#[test]
fn edited_plans_are_refused() {
    let mut table = String::new();
    for (what, edit) in EDITS {
        let mut edited = plan();
        edit(&mut edited);
        let (lowered, peaks) = (lower(&edited).map(|_| ()), planned_peaks(&edited).map(|_| ()));
        let said = match &lowered {
            Ok(()) => "lowered".into(),
            Err(e) => e.to_string(),
        };
        table += &format!("{what} | {said}\n");
        assert!(
            lowered == peaks || *what == "65,536 micro-batches",
            "{what}: the closed form says {peaks:?}"
        );
    }
    expect![[r#"
        nothing | lowered
        the version | plan.version: 2; plan again with this version, which reads version 1
        one micro-batch more | plan.micro_batches: 1 x 2 x 3; dp x fsdp x micro_batch x micro_batches must be the global batch
        65,536 micro-batches | plan.micro_batches: 65536; use a larger micro-batch or more replicas, so that there are at most 65,535
        no micro-batch | training: sequence 8 and global_batch 0; write 1 or more
        a stage without blocks | plan.stages: 2 stages; list one run of blocks per pipeline stage, covering the chain in order
        a stage too many | plan.stages: 3 stages; list one run of blocks per pipeline stage, covering the chain in order
        a stage of 4,294,967,295 blocks | plan.stages: 2 stages; list one run of blocks per pipeline stage, covering the chain in order
        a micro-batch of 2^63 | plan.micro_batches: 1 x 9223372036854775808 x 2; dp x fsdp x micro_batch x micro_batches must be the global batch
        a class too few | plan.classes: 2; give choices for each block class of the model
        a strategy too few | plan.classes.layer: lists of the wrong length; give one strategy and one output per node, and an input where the block has one
        an output too few | plan.classes.layer: lists of the wrong length; give one strategy and one output per node, and an input where the block has one
        no plan for the input | plan.classes.layer: lists of the wrong length; give one strategy and one output per node, and an input where the block has one
        an index that the op lacks | plan.classes.layer.q: an index the op does not have; cut one of the op's indices
        tp on the batch | plan.classes.layer.q: tp:b; no legal strategy on this mesh: an index must divide into equal pieces of whole grains
        pp on the sequence | plan.classes.layer.q: pp:s; no legal strategy on this mesh: an index must divide into equal pieces of whole grains
        norm over cut features | plan.classes.layer.norm1: tp:e; no legal strategy on this mesh: an index must divide into equal pieces of whole grains
        another strategy for q | plan.classes.layer.norm1.uses: the gradient of operand 0 of node 1 is (-,-,-), not (-,-,-)+tp; plan again instead of editing the plan's layouts
        another layout produced | plan.classes.layer.q.produced: (-,tp,-); plan again instead of editing the plan's layouts
        another gradient wanted | plan.classes.layer.q.gradient: (-,tp,-); plan again instead of editing the plan's layouts
        a conversion without its steps | plan.classes.layer.norm1.copies: (-,-,-); plan again instead of editing the plan's layouts
        a conversion that leads elsewhere | plan.classes.layer.norm1.copies: (-,-,-); plan again instead of editing the plan's layouts
        a step along an axis of one rank | plan.classes.layer.norm1.copies: (-,-,-); plan again instead of editing the plan's layouts
        a way round by pieces that do not divide | plan.classes.layer.norm1.copies: (-,-,-); plan again instead of editing the plan's layouts
        a gradient without its steps | plan.classes.layer.norm1.gradients: (-,-,-)+tp; plan again instead of editing the plan's layouts
        another layout copied | plan.classes.layer.norm1.copies: (-,-,tp); plan again instead of editing the plan's layouts
        a use too few | plan.classes.layer.norm1.uses: operand 0 of node 3 is not planned; plan again instead of editing the plan's layouts
        a use of a copy that is not there | plan.classes.layer.norm1.uses: a copy that does not exist; plan again instead of editing the plan's layouts
        a use of a path that is not there | plan.classes.layer.norm1.uses: a gradient path that does not exist; plan again instead of editing the plan's layouts
        a boundary cut by features | plan.boundary: (-,-,tp); cut the batch by dp and fsdp and the sequence by tp, nothing else
        a partial boundary | plan.boundary: (-,-,-)+tp; cut the batch by dp and fsdp and the sequence by tp, nothing else
        a boundary of two dims | plan.boundary: (-,tp); cut the batch by dp and fsdp and the sequence by tp, nothing else
        a boundary cut by an axis of one rank | plan.boundary: (cp,tp,-); cut the batch by dp and fsdp and the sequence by tp, nothing else
        a boundary whole along the sequence | plan.classes.embed.sum.uses: operand 0 of node 3 reads (-,tp,-) and wants (-,-,-); plan again instead of editing the plan's layouts
        a sequence that tp does not divide | plan.boundary: (-,tp,-); dim 1 does not divide into equal pieces: choose other degrees
        a tied matrix cut otherwise | plan.classes.head.logits: (-,-) summed over - and (tp,-) summed over -; cut a tied parameter like its owner, so that both add to one gradient in one layout
    "#]].assert_eq(&table);
}
