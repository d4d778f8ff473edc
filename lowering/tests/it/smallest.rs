//! The whole program of a model small enough to be read: one block that is a residual MLP 8 wide, cut in columns and rows
//! by tp 2, two micro-batches.

use crate::plans::{self, Shape, gpt};
use expect_test::expect;
use meshwright_ir::program::Program;
use meshwright_ir::{BlockClass, BlockRun, Model, Node, Optimizer, Schedule, Value};
use meshwright_lowering::lower;
use std::collections::BTreeMap;

fn model() -> Model {
    let node = |name: &str, op: &str, inputs: &[Value]| Node {
        name: name.into(),
        op: op.parse().unwrap(),
        inputs: inputs.to_vec(),
        init: None,
        tied: None,
    };
    let square = "linear[input=8 output=8 input_grain=1 output_grain=1]";
    let (input, at) = (Value::Input, Value::Node);
    let class = |name: &str, nodes| BlockClass { name: name.into(), nodes };
    Model {
        name: "smallest".into(),
        family: "test".into(),
        hidden: 8,
        vocab: 16,
        max_sequence: None,
        classes: vec![
            class("embed", vec![node("tokens", "embedding[rows=16 width=8 index=tokens]", &[])]),
            class(
                "layer",
                vec![
                    node("up", square, &[input]),
                    node("act", "activation[kind=relu width=8]", &[at(0)]),
                    node("down", square, &[at(1)]),
                    node("residual", "add[width=8]", &[input, at(2)]),
                ],
            ),
            class(
                "head",
                vec![
                    node("logits", "linear[input=8 output=16 input_grain=1 output_grain=1]", &[input]),
                    node("loss", "cross-entropy[vocab=16]", &[at(0)]),
                ],
            ),
        ],
        runs: (0..3).map(|class| BlockRun { class, repeat: 1 }).collect(),
        towers: vec![],
        assumed: vec![],
    }
}

fn lowered(model: Model, tp: u32, sp: bool, global_batch: u64) -> Program {
    let schedule = Schedule::OneForwardOneBackward;
    let shape =
        Shape { model, dp: 1, fsdp: 1, tp, pp: 1, sp, micro_batch: 1, global_batch, sequence: 4, schedule };
    let mut plan = plans::plan(&shape, &mut plans::megatron(sp)).unwrap();
    plan.job.training.optimizer = Optimizer::Sgd;
    lower(&plan).unwrap()
}

#[test]
fn the_program_of_the_smallest_model() {
    let program = lowered(model(), 2, false, 2);
    expect![[r#"
        meshwright-program 1
        mesh pp=1 dp=1 fsdp=1 cp=1 tp=2
        step tokens=8 micro_batches=2
        stream compute
        stream collective tp
        kernel load tokens batch=1/- sequence=4/-
        kernel op forward f32 embedding[rows=16 width=8 index=tokens] b=1/- s=4/- v=8/tp e=8/-
        kernel op forward f32 linear[input=8 output=8 input_grain=1 output_grain=1] b=1/- s=4/- i=8/- o=4/tp
        kernel op forward f32 activation[kind=relu width=8] b=1/- s=4/- e=4/tp
        kernel op forward f32 linear[input=8 output=8 input_grain=1 output_grain=1] b=1/- s=4/- i=4/tp o=8/-
        kernel op forward f32 add[width=8] b=1/- s=4/- e=8/-
        kernel op forward f32 linear[input=8 output=16 input_grain=1 output_grain=1] b=1/- s=4/- i=8/- o=8/tp
        kernel load targets batch=1/- sequence=4/-
        kernel op max f32 cross-entropy[vocab=16] b=1/- s=4/- v=8/tp
        kernel op sum f32 cross-entropy[vocab=16] b=1/- s=4/- v=8/tp
        kernel op forward f32 cross-entropy[vocab=16] b=1/- s=4/- v=8/tp
        kernel op backward-input f32 cross-entropy[vocab=16] b=1/- s=4/- v=8/tp
        kernel op backward-input f32 linear[input=8 output=16 input_grain=1 output_grain=1] b=1/- s=4/- i=8/- o=8/tp
        kernel op backward-weight f32 linear[input=8 output=16 input_grain=1 output_grain=1] b=1/- s=4/- i=8/- o=8/tp
        kernel op backward-input f32 linear[input=8 output=8 input_grain=1 output_grain=1] b=1/- s=4/- i=4/tp o=8/-
        kernel op backward-weight f32 linear[input=8 output=8 input_grain=1 output_grain=1] b=1/- s=4/- i=4/tp o=8/-
        kernel op backward-input f32 activation[kind=relu width=8] b=1/- s=4/- e=4/tp
        kernel op backward-input f32 linear[input=8 output=8 input_grain=1 output_grain=1] b=1/- s=4/- i=8/- o=4/tp
        kernel add f32 n=32
        kernel op backward-weight f32 linear[input=8 output=8 input_grain=1 output_grain=1] b=1/- s=4/- i=8/- o=4/tp
        kernel op backward-weight f32 embedding[rows=16 width=8 index=tokens] b=1/- s=4/- v=8/tp e=8/-
        kernel op forward+ f32 cross-entropy[vocab=16] b=1/- s=4/- v=8/tp
        kernel op backward-weight+ f32 linear[input=8 output=16 input_grain=1 output_grain=1] b=1/- s=4/- i=8/- o=8/tp
        kernel op backward-weight+ f32 linear[input=8 output=8 input_grain=1 output_grain=1] b=1/- s=4/- i=4/tp o=8/-
        kernel op backward-weight+ f32 linear[input=8 output=8 input_grain=1 output_grain=1] b=1/- s=4/- i=8/- o=4/tp
        kernel op backward-weight+ f32 embedding[rows=16 width=8 index=tokens] b=1/- s=4/- v=8/tp e=8/-
        kernel sum-squares n=192 replicas=1 accumulate=false piece=-
        kernel update sgd f32 n=64 decays=true piece=-
        kernel update sgd f32 n=32 decays=true piece=-
        collective all-reduce tp stages=* n=32 f32 direct
        collective all-reduce-max tp stages=* n=4 f32 direct
        collective all-reduce tp stages=* n=8 f32 direct
        collective all-reduce tp stages=* n=1 f32 direct
        name embed.tokens.table
        name embed.tokens.table.gradient
        name layer.up.weight
        name layer.up.weight.gradient
        name layer.down.weight
        name layer.down.weight.gradient
        name head.logits.weight
        name head.logits.weight.gradient
        name loss
        name gradient-norm
        name layer/input
        name embed/tokens.ids
        name head/input
        name layer/up
        name layer/act
        name layer/down
        name head/logits
        name head/loss.ids
        name head/loss.aux0
        name head/loss.aux1
        name head/input.gradient
        name head/loss.in0.gradient
        name layer/input.gradient
        name layer/down.in0.gradient
        name layer/act.in0.gradient
        name layer/up.in0.gradient
        role 0 arena=5632 loss=8 norm=9
        buffer 0 f32 64 @0 weight
        buffer 1 f32 64 @1024 gradient
        buffer 2 f32 32 @256 weight
        buffer 3 f32 32 @1280 gradient
        buffer 4 f32 32 @512 weight
        buffer 5 f32 32 @1408 gradient
        buffer 6 f32 64 @768 weight
        buffer 7 f32 64 @1536 gradient
        buffer 8 f32 1 @1792 scalar
        buffer 9 f32 1 @2048 scalar
        buffer 10 f32 32 @2560 activation
        buffer 11 i32 4 @2304 activation
        buffer 12 f32 32 @3328 activation
        buffer 13 f32 16 @2816 activation
        buffer 14 f32 16 @3072 activation
        buffer 15 f32 32 @5120 workspace
        buffer 16 f32 32 @3584 activation
        buffer 17 i32 4 @3840 activation
        buffer 18 f32 4 @4096 activation
        buffer 19 f32 8 @4352 activation
        buffer 20 f32 32 @4608 workspace
        buffer 21 f32 32 @5120 workspace
        buffer 22 f32 32 @4864 workspace
        buffer 23 f32 16 @5120 workspace
        buffer 24 f32 16 @5376 workspace
        buffer 25 f32 32 @5120 workspace
        buffer 10 f32 32 @2560 activation
        buffer 11 i32 4 @2304 activation
        buffer 12 f32 32 @3328 activation
        buffer 13 f32 16 @2816 activation
        buffer 14 f32 16 @3072 activation
        buffer 15 f32 32 @5120 workspace
        buffer 16 f32 32 @3584 activation
        buffer 17 i32 4 @3840 activation
        buffer 18 f32 4 @4096 activation
        buffer 19 f32 8 @4352 activation
        buffer 20 f32 32 @4608 workspace
        buffer 21 f32 32 @5120 workspace
        buffer 22 f32 32 @4864 workspace
        buffer 23 f32 16 @5120 workspace
        buffer 24 f32 16 @5376 workspace
        buffer 25 f32 32 @5120 workspace
        param embed.tokens.table 16x8 (tp,-) normal=0.02 decays=true storage=- w=0 m=- g=1 s=-
        param layer.up.weight 8x8 (tp,-) normal=0.02 decays=true storage=- w=2 m=- g=3 s=-
        param layer.down.weight 8x8 (-,tp) normal=0.02 decays=true storage=- w=4 m=- g=5 s=-
        param head.logits.weight 16x8 (tp,-) normal=0.02 decays=true storage=- w=6 m=- g=7 s=-
        k0 s0 mb=0 b=0 r=- w=11 a=-
        k1 s0 mb=0 b=0 r=0,11 w=10 a=-
        c0 s1 mb=0 b=0 r=10 w=10 a=1
        k2 s0 mb=0 b=1 r=10,2 w=13 a=2
        k3 s0 mb=0 b=1 r=13 w=14 a=-
        k4 s0 mb=0 b=1 r=14,4 w=15 a=-
        c0 s1 mb=0 b=1 r=15 w=15 a=5
        k5 s0 mb=0 b=1 r=10,15 w=12 a=6
        k6 s0 mb=0 b=2 r=12,6 w=16 a=-
        k7 s0 mb=0 b=2 r=- w=17 a=-
        k8 s0 mb=0 b=2 r=16 w=18 a=-
        c1 s1 mb=0 b=2 r=18 w=18 a=10
        k9 s0 mb=0 b=2 r=16,17,18 w=19 a=11
        c2 s1 mb=0 b=2 r=19 w=19 a=12
        k10 s0 mb=0 b=2 r=18,19 w=8 a=13
        k11 s0 mb=0 b=2 r=16,17,18,19 w=21 a=-
        k12 s0 mb=0 b=2 r=21,6 w=20 a=-
        c0 s1 mb=0 b=2 r=20 w=20 a=16
        k13 s0 mb=0 b=2 r=21,12 w=7 a=-
        k14 s0 mb=0 b=1 r=20,4 w=23 a=17
        k15 s0 mb=0 b=1 r=20,14 w=5 a=-
        k16 s0 mb=0 b=1 r=23,13 w=24 a=-
        k17 s0 mb=0 b=1 r=24,2 w=25 a=-
        c0 s1 mb=0 b=1 r=25 w=25 a=22
        k18 s0 mb=0 b=1 r=25,20 w=22 a=23
        k19 s0 mb=0 b=1 r=24,10 w=3 a=-
        k20 s0 mb=0 b=0 r=22,11 w=1 a=-
        k0 s0 mb=1 b=0 r=- w=27 a=-
        k1 s0 mb=1 b=0 r=0,27 w=26 a=-
        c0 s1 mb=1 b=0 r=26 w=26 a=28
        k2 s0 mb=1 b=1 r=26,2 w=29 a=29
        k3 s0 mb=1 b=1 r=29 w=30 a=-
        k4 s0 mb=1 b=1 r=30,4 w=31 a=-
        c0 s1 mb=1 b=1 r=31 w=31 a=32
        k5 s0 mb=1 b=1 r=26,31 w=28 a=33
        k6 s0 mb=1 b=2 r=28,6 w=32 a=-
        k7 s0 mb=1 b=2 r=- w=33 a=-
        k8 s0 mb=1 b=2 r=32 w=34 a=-
        c1 s1 mb=1 b=2 r=34 w=34 a=37
        k9 s0 mb=1 b=2 r=32,33,34 w=35 a=38
        c2 s1 mb=1 b=2 r=35 w=35 a=39
        k21 s0 mb=1 b=2 r=34,35,8 w=8 a=40
        k11 s0 mb=1 b=2 r=32,33,34,35 w=37 a=-
        k12 s0 mb=1 b=2 r=37,6 w=36 a=-
        c0 s1 mb=1 b=2 r=36 w=36 a=43
        k22 s0 mb=1 b=2 r=37,28,7 w=7 a=-
        k14 s0 mb=1 b=1 r=36,4 w=39 a=44
        k23 s0 mb=1 b=1 r=36,30,5 w=5 a=-
        k16 s0 mb=1 b=1 r=39,29 w=40 a=-
        k17 s0 mb=1 b=1 r=40,2 w=41 a=-
        c0 s1 mb=1 b=1 r=41 w=41 a=49
        k18 s0 mb=1 b=1 r=41,36 w=38 a=50
        k24 s0 mb=1 b=1 r=40,26,3 w=3 a=-
        k25 s0 mb=1 b=0 r=38,27,1 w=1 a=-
        k26 s0 mb=0 b=0 r=1,3,5,7 w=9 a=-
        c3 s1 mb=0 b=0 r=9 w=9 a=54
        k27 s0 mb=0 b=0 r=1,9,0 w=0 a=55
        k28 s0 mb=0 b=0 r=3,9,2 w=2 a=-
        k28 s0 mb=0 b=0 r=5,9,4 w=4 a=-
        k27 s0 mb=0 b=0 r=7,9,6 w=6 a=-
    "#]].assert_eq(&program.to_string());
    program.check().unwrap();
}

/// A GPT-2 layer under sequence parallelism, by kind of instruction; embedding and head included.
#[test]
fn kinds_of_instructions() {
    let program = lowered(gpt(1), 2, true, 1);
    let mut kinds = BTreeMap::<String, u32>::new();
    for i in &program.roles[0].instructions {
        *kinds.entry(program.kind_name(i.action)).or_default() += 1;
    }
    let table: String = kinds.iter().map(|(kind, n)| format!("{n} {kind}\n")).collect();
    expect![[r#"
        1 activation backward-input
        1 activation forward
        3 add forward
        4 add gradients
        6 all-gather tp
        5 all-reduce tp
        1 all-reduce-max tp
        1 attention backward-input
        1 attention forward
        6 bias backward-weight
        6 bias forward
        1 cross-entropy backward-input
        1 cross-entropy forward
        1 cross-entropy max
        1 cross-entropy sum
        2 embedding backward-weight
        2 embedding forward
        2 gradient norm
        7 linear backward-input
        7 linear backward-weight
        7 linear forward
        2 load
        3 norm backward-input
        3 norm backward-weight
        3 norm forward
        6 reduce-scatter tp
        20 sgd
    "#]]
    .assert_eq(&table);
}
