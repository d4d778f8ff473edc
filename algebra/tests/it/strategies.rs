//! Strategies and the layouts that follow from them, op by op; what papers call by name falls out of one rule.

use crate::support::{SHAPES, mesh};
use expect_test::expect;
use meshwright_algebra::{Slot, gradient_aliases, layouts, signature, strategies};
use meshwright_ir::program::Pass;
use meshwright_ir::{Layout, Op};

const OPS: [&str; 12] = [
    "embedding[rows=64 width=32 index=tokens]",
    "linear[input=32 output=64 input_grain=1 output_grain=16]",
    "bias[width=32 grain=8]",
    "norm[kind=layer width=32 groups=1 eps=1e-5]",
    "norm[kind=rms width=8 groups=4 eps=1e-5]",
    "rope[heads=4 head_dim=8 theta=10000.0]",
    "attention[heads=8 kv_heads=4 head_dim=8 causal=true window=0]",
    "attention[heads=8 kv_heads=1 head_dim=8 causal=true window=0]",
    "activation[kind=relu width=32]",
    "gate[kind=silu width=32]",
    "add[width=32]",
    "cross-entropy[vocab=64]",
];

fn list(layouts: &[Layout]) -> String {
    layouts.iter().map(Layout::to_string).collect::<Vec<_>>().join(" ")
}

/// Every strategy of every op on dp 2, tp 2: inputs and parameters to output, and gradients the other way.
#[test]
fn layouts_of_every_op() {
    let mut table = String::new();
    for text in OPS {
        let op: Op = text.parse().unwrap();
        table += &format!("{text}\n");
        for s in strategies(&op, &mesh("dp=2 tp=2"), &SHAPES) {
            let l = layouts(&op, &s);
            let arrow = |from: [&str; 2], to: &str| {
                let from: Vec<_> = from.into_iter().filter(|t| !t.is_empty()).collect();
                format!("{} -> {to}", from.join(" · "))
            };
            let forward = arrow([&list(&l.inputs), &list(&l.params)], &list(std::slice::from_ref(&l.output)));
            let (to, weights) = (list(&l.input_gradients), list(&l.param_gradients));
            let back = [to, weights].into_iter().filter(|t| !t.is_empty()).collect::<Vec<_>>().join(" · ");
            let aux = if l.aux.is_empty() { String::new() } else { format!(" | keeps {}", list(&l.aux)) };
            let name = s.describe(op.indices());
            table += &format!("  {name}: {forward} | {} -> {back}{aux}\n", l.output_gradient);
        }
    }
    expect![[r#"
        embedding[rows=64 width=32 index=tokens]
          dp:b: (-,-) -> (dp,-,-) | (dp,-,-) -> (-,-)+dp
          dp:b tp:s: (-,-) -> (dp,tp,-) | (dp,tp,-) -> (-,-)+dp.tp
          dp:b tp:v: (tp,-) -> (dp,-,-)+tp | (dp,-,-) -> (tp,-)+dp
          dp:b tp:e: (-,tp) -> (dp,-,tp) | (dp,-,tp) -> (-,tp)+dp
        linear[input=32 output=64 input_grain=1 output_grain=16]
          dp:b: (dp,-,-) · (-,-) -> (dp,-,-) | (dp,-,-) -> (dp,-,-) · (-,-)+dp
          dp:b tp:s: (dp,tp,-) · (-,-) -> (dp,tp,-) | (dp,tp,-) -> (dp,tp,-) · (-,-)+dp.tp
          dp:b tp:i: (dp,-,tp) · (-,tp) -> (dp,-,-)+tp | (dp,-,-) -> (dp,-,tp) · (-,tp)+dp
          dp:b tp:o: (dp,-,-) · (tp,-) -> (dp,-,tp) | (dp,-,tp) -> (dp,-,-)+tp · (tp,-)+dp
        bias[width=32 grain=8]
          dp:b: (dp,-,-) · (-) -> (dp,-,-) | (dp,-,-) -> (dp,-,-) · (-)+dp
          dp:b tp:s: (dp,tp,-) · (-) -> (dp,tp,-) | (dp,tp,-) -> (dp,tp,-) · (-)+dp.tp
          dp:b tp:e: (dp,-,tp) · (tp) -> (dp,-,tp) | (dp,-,tp) -> (dp,-,tp) · (tp)+dp
        norm[kind=layer width=32 groups=1 eps=1e-5]
          dp:b: (dp,-,-) · (-) (-) -> (dp,-,-) | (dp,-,-) -> (dp,-,-) · (-)+dp (-)+dp
          dp:b tp:s: (dp,tp,-) · (-) (-) -> (dp,tp,-) | (dp,tp,-) -> (dp,tp,-) · (-)+dp.tp (-)+dp.tp
        norm[kind=rms width=8 groups=4 eps=1e-5]
          dp:b: (dp,-,-) · (-) -> (dp,-,-) | (dp,-,-) -> (dp,-,-) · (-)+dp
          dp:b tp:s: (dp,tp,-) · (-) -> (dp,tp,-) | (dp,tp,-) -> (dp,tp,-) · (-)+dp.tp
          dp:b tp:e: (dp,-,tp) · (-) -> (dp,-,tp) | (dp,-,tp) -> (dp,-,tp) · (-)+dp.tp
        rope[heads=4 head_dim=8 theta=10000.0]
          dp:b: (dp,-,-) -> (dp,-,-) | (dp,-,-) -> (dp,-,-)
          dp:b tp:s: (dp,tp,-) -> (dp,tp,-) | (dp,tp,-) -> (dp,tp,-)
          dp:b tp:e: (dp,-,tp) -> (dp,-,tp) | (dp,-,tp) -> (dp,-,tp)
        attention[heads=8 kv_heads=4 head_dim=8 causal=true window=0]
          dp:b: (dp,-,-) (dp,-,-) (dp,-,-) -> (dp,-,-) | (dp,-,-) -> (dp,-,-) (dp,-,-) (dp,-,-) | keeps (dp,-,-)
          dp:b tp:h: (dp,-,tp) (dp,-,tp) (dp,-,tp) -> (dp,-,tp) | (dp,-,tp) -> (dp,-,tp) (dp,-,tp) (dp,-,tp) | keeps (dp,tp,-)
        attention[heads=8 kv_heads=1 head_dim=8 causal=true window=0]
          dp:b: (dp,-,-) (dp,-,-) (dp,-,-) -> (dp,-,-) | (dp,-,-) -> (dp,-,-) (dp,-,-) (dp,-,-) | keeps (dp,-,-)
        activation[kind=relu width=32]
          dp:b: (dp,-,-) -> (dp,-,-) | (dp,-,-) -> (dp,-,-)
          dp:b tp:s: (dp,tp,-) -> (dp,tp,-) | (dp,tp,-) -> (dp,tp,-)
          dp:b tp:e: (dp,-,tp) -> (dp,-,tp) | (dp,-,tp) -> (dp,-,tp)
        gate[kind=silu width=32]
          dp:b: (dp,-,-) (dp,-,-) -> (dp,-,-) | (dp,-,-) -> (dp,-,-) (dp,-,-)
          dp:b tp:s: (dp,tp,-) (dp,tp,-) -> (dp,tp,-) | (dp,tp,-) -> (dp,tp,-) (dp,tp,-)
          dp:b tp:e: (dp,-,tp) (dp,-,tp) -> (dp,-,tp) | (dp,-,tp) -> (dp,-,tp) (dp,-,tp)
        add[width=32]
          dp:b: (dp,-,-) (dp,-,-) -> (dp,-,-) | (dp,-,-) -> (dp,-,-) (dp,-,-)
          dp:b tp:s: (dp,tp,-) (dp,tp,-) -> (dp,tp,-) | (dp,tp,-) -> (dp,tp,-) (dp,tp,-)
          dp:b tp:e: (dp,-,tp) (dp,-,tp) -> (dp,-,tp) | (dp,-,tp) -> (dp,-,tp) (dp,-,tp)
        cross-entropy[vocab=64]
          dp:b: (dp,-,-) -> (-)+dp | (-) -> (dp,-,-) | keeps (dp,-) (-,dp,-)
          dp:b tp:s: (dp,tp,-) -> (-)+dp.tp | (-) -> (dp,tp,-) | keeps (dp,tp) (-,dp,tp)
          dp:b tp:v: (dp,-,tp) -> (-)+dp | (-) -> (dp,-,tp) | keeps (dp,-) (-,dp,-)
    "#]].assert_eq(&table);
}

#[test]
fn axes_divide_whole_grains() {
    let count = |op: &str, on: &str| strategies(&op.parse().unwrap(), &mesh(on), &SHAPES).len();
    // tp may cut the sequence, either feature dim, or nothing; four heads of 16 are not cut in eight.
    assert_eq!(count(OPS[1], "tp=2"), 4);
    assert_eq!(count(OPS[1], "tp=8"), 3);
    assert_eq!(count(OPS[1], "tp=3"), 1);
    assert_eq!(count(OPS[1], "dp=2"), 1);
    assert_eq!(count(OPS[1], "dp=8"), 0);
    // cp only ever cuts the sequence, which attention keeps whole.
    assert_eq!((count(OPS[1], "cp=2"), count(OPS[6], "cp=2")), (2, 1));
    assert_eq!((count(OPS[6], "tp=4"), count(OPS[7], "tp=4")), (2, 1));
}

/// What a kernel of each pass reads and writes.
#[test]
fn signatures_of_every_op() {
    let slot = |s: &Slot| match s {
        Slot::Input(k) => format!("x{k}"),
        Slot::Param(k) => format!("w{k}"),
        Slot::Ids => "ids".into(),
        Slot::Output => "y".into(),
        Slot::Aux(k) => format!("aux{k}"),
        Slot::OutputGradient => "dy".into(),
        Slot::InputGradient(k) => format!("dx{k}"),
        Slot::ParamGradient(k) => format!("dw{k}"),
    };
    let words = |slots: &[Slot]| slots.iter().map(slot).collect::<Vec<_>>().join(" ");
    let mut table = String::new();
    for text in OPS.into_iter().filter(|t| !t.contains("kv_heads=1")) {
        let op: Op = text.parse().unwrap();
        table += &format!("{}{}\n", op.name(), if gradient_aliases(&op) { " (dx is dy)" } else { "" });
        for pass in [Pass::Max, Pass::Sum, Pass::Forward, Pass::BackwardInput, Pass::BackwardWeight] {
            if let Some(s) = signature(&op, pass) {
                table += &format!("  {pass}: {} -> {}\n", words(&s.reads), words(&s.writes));
            }
        }
    }
    expect![[r#"
        embedding
          forward: w0 ids -> y
          backward-weight: dy ids -> dw0
        linear
          forward: x0 w0 -> y
          backward-input: dy w0 -> dx0
          backward-weight: dy x0 -> dw0
        bias (dx is dy)
          forward: x0 w0 -> y
          backward-weight: dy -> dw0
        norm
          forward: x0 w0 w1 -> y
          backward-input: dy x0 w0 -> dx0
          backward-weight: dy x0 -> dw0 dw1
        norm
          forward: x0 w0 -> y
          backward-input: dy x0 w0 -> dx0
          backward-weight: dy x0 -> dw0
        rope
          forward: x0 -> y
          backward-input: dy -> dx0
        attention
          forward: x0 x1 x2 -> y aux0
          backward-input: dy x0 x1 x2 y aux0 -> dx0 dx1 dx2
        activation
          forward: x0 -> y
          backward-input: dy x0 -> dx0
        gate
          forward: x0 x1 -> y
          backward-input: dy x0 x1 -> dx0 dx1
        add (dx is dy)
          forward: x0 x1 -> y
        cross-entropy
          max: x0 -> aux0
          sum: x0 ids aux0 -> aux1
          forward: aux0 aux1 -> y
          backward-input: x0 ids aux0 aux1 -> dx0
    "#]]
    .assert_eq(&table);
}
