//! The memory accountant: what a layer keeps, against a derivation of its own; places that never overlap.

use crate::support::{
    EMBED, GPT_LAYER, HEAD, QWEN_LAYER, SHAPES, class, dropping_layer, gpt, megatron, mesh, planned, random,
};
use expect_test::expect;
use meshwright_algebra::{
    ALIGNMENT, BlockAction, BlockCode, BlockInstruction, Expr, Home, Slot, StageBlock, StageShape, layouts,
    recompute, signature, stage_memory,
};
use meshwright_ir::program::Pass;
use meshwright_ir::{
    AxisSet, BlockClass, Bytes, ClassPlan, DType, Gathering, Mesh, Optimizer, Precision, Recompute, Storage,
    Value,
};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// What backward reads of what forward makes, by hand: every operand that a signature asks for, each copy of it once.
fn kept(class: &BlockClass, plan: &ClassPlan, mesh: &Mesh) -> Bytes {
    let mut tensors: BTreeMap<(u32, String), Bytes> = BTreeMap::new();
    let local = |shape: &[u64], layout: &meshwright_ir::Layout| {
        layout.local(shape, mesh).unwrap().iter().product::<u64>()
    };
    for (k, node) in class.nodes.iter().enumerate() {
        let (expr, l) = (Expr::of(&node.op), layouts(&node.op, &plan.strategies[k]));
        let passes = [Pass::BackwardInput, Pass::BackwardWeight].map(|p| signature(&node.op, p));
        for slot in passes.into_iter().flatten().flat_map(|s| s.reads) {
            let (name, elements) = match slot {
                Slot::Input(o) => {
                    let value = match node.inputs[o as usize] {
                        Value::Node(p) => &plan.outputs[p as usize],
                        Value::Input => plan.input.as_ref().unwrap(),
                    };
                    let using =
                        value.uses.iter().find(|u| (u.node, u.operand) == (k as u32, u32::from(o))).unwrap();
                    let copy = &value.copies[using.copy as usize];
                    if copy.steps.is_empty() && node.inputs[o as usize] == Value::Input {
                        continue; // The block's input has a place of its own.
                    }
                    let shape = crate::support::SHAPES.shape(&expr, &expr.inputs[o as usize]);
                    let tensor =
                        if copy.steps.is_empty() { "y".into() } else { format!("copy {}", using.copy) };
                    let at = match node.inputs[o as usize] {
                        Value::Node(p) => p,
                        Value::Input => u32::MAX,
                    };
                    tensors.insert((at, tensor), DType::F32.bytes(local(&shape, &copy.layout)));
                    continue;
                }
                Slot::Output => ("y".to_string(), local(&SHAPES.shape(&expr, &expr.output), &l.output)),
                Slot::Aux(a) => {
                    let aux = &expr.aux[a as usize];
                    let elements = local(&SHAPES.shape(&expr, &aux.dims), &l.aux[a as usize]);
                    tensors
                        .insert((k as u32, format!("aux{a}")), aux.store.dtype(DType::F32).bytes(elements));
                    continue;
                }
                Slot::Ids => {
                    let ids = meshwright_ir::Layout::new(
                        vec![plan.strategies[k].axes_on(0), plan.strategies[k].axes_on(1)],
                        AxisSet::EMPTY,
                    );
                    ("ids".into(), local(&[SHAPES.batch, SHAPES.sequence], &ids))
                }
                Slot::Param(_) | Slot::OutputGradient | Slot::InputGradient(_) | Slot::ParamGradient(_) => {
                    continue;
                }
            };
            tensors.insert((k as u32, name), DType::F32.bytes(elements));
        }
    }
    tensors.values().map(|bytes| bytes.align(ALIGNMENT)).sum()
}

/// Without recompute a GPT-2 layer keeps, per token: both norms' outputs, q, k, v, attention's output and log-sum-exp, the
/// first residual, and twice the inner width.
#[test]
fn a_gpt_layer_keeps_what_backward_reads() {
    let layer = class("layer", GPT_LAYER);
    let (tokens, h, heads) = (SHAPES.batch * SHAPES.sequence, 32, 4);
    for n in [1, 2, 4] {
        for sp in [false, true] {
            let mesh = mesh(&format!("tp={n}"));
            let (plan, code) = planned(&layer, &mesh, sp, megatron(sp));
            // Along the sequence only the residual is cut: the norms' outputs are kept gathered.
            let residual = if sp { h / n } else { h };
            let per_token = 2 * h + residual + (3 * h + h + heads + 8 * h) / n;
            assert_eq!(code.frame, Bytes(4 * tokens * per_token), "tp {n}, sp {sp}");
            assert_eq!(code.frame, kept(&layer, &plan, &mesh));
            // Gathering again keeps a piece of each norm's output; selective recompute also drops attention's output and
            // log-sum-exp; full recompute all but the block's input.
            let (gathered, attention) = (if sp { 2 * (h - h / n) } else { 0 }, (h + heads) / n);
            let frame = |level| recompute(&code, level).frame;
            let kept = |per_token| Bytes(4 * tokens * per_token);
            assert_eq!(frame(Recompute::Gathers), kept(per_token - gathered), "tp {n}, sp {sp}");
            assert_eq!(
                frame(Recompute::Selective),
                kept(per_token - gathered - attention),
                "tp {n}, sp {sp}"
            );
            assert_eq!(frame(Recompute::Full), Bytes(0));
        }
    }
}

/// What is gathered again is asked for two heavy kernels before it is read, and put in place just before.
#[test]
fn repeated_gathers_are_issued_ahead_of_their_use() {
    let (_, code) = planned(&class("layer", GPT_LAYER), &mesh("tp=2"), true, megatron(true));
    let code = recompute(&code, Recompute::Gathers);
    let show = |i: &BlockInstruction| {
        let name = |t: &u32| code.tensors[*t as usize].name.clone();
        let what = match &i.action {
            BlockAction::Kernel(k) => k.kind_name(),
            BlockAction::Collective { kind, .. } => format!("* {kind}"),
        };
        format!("{what} -> {}\n", i.writes.iter().map(name).collect::<Vec<_>>().join(" "))
    };
    expect![[r#"
        * all-gather -> down.gradient
        unpack -> down.gradient
        bias backward-weight -> down.bias.bias.gradient
        linear backward-input -> down.in0.gradient
        * all-gather -> norm2.copy.again
        linear backward-weight -> down.weight.gradient
        activation backward-input -> act.in0.gradient
        bias backward-weight -> up.bias.bias.gradient
        linear backward-input -> up.in0.gradient
        pack -> norm2.gradient
        * reduce-scatter -> norm2.gradient
        unpack -> norm2.copy.again
        linear backward-weight -> up.weight.gradient
        norm backward-input -> norm2.in0.gradient
        add gradients -> residual1.gradient
        norm backward-weight -> norm2.gamma.gradient norm2.beta.gradient
        * all-gather -> proj.gradient
        unpack -> proj.gradient
        bias backward-weight -> proj.bias.bias.gradient
        linear backward-input -> proj.in0.gradient
        linear backward-weight -> proj.weight.gradient
        * all-gather -> norm1.copy.again
        attention backward-input -> attn.in0.gradient attn.in1.gradient attn.in2.gradient
        bias backward-weight -> v.bias.bias.gradient
        linear backward-input -> v.in0.gradient
        unpack -> norm1.copy.again
        linear backward-weight -> v.weight.gradient
        bias backward-weight -> k.bias.bias.gradient
        linear backward-input -> k.in0.gradient
        add gradients -> norm1.gradient
        linear backward-weight -> k.weight.gradient
        bias backward-weight -> q.bias.bias.gradient
        linear backward-input -> q.in0.gradient
        add gradients -> norm1.gradient
        pack -> norm1.gradient
        * reduce-scatter -> norm1.gradient
        linear backward-weight -> q.weight.gradient
        norm backward-input -> norm1.in0.gradient
        add gradients -> input.gradient
        norm backward-weight -> norm1.gamma.gradient norm1.beta.gradient
    "#]]
    .assert_eq(&code.backward.iter().map(show).collect::<String>());
}

/// Tensors of a pass with a place in the workspace: first use, last use, start, end.
fn placed(code: &BlockCode, pass: &[BlockInstruction]) -> BTreeMap<u32, (usize, usize, u64, u64)> {
    let mut lives = BTreeMap::new();
    for (k, i) in pass.iter().enumerate() {
        for t in i.reads.iter().chain(&i.writes) {
            let tensor = &code.tensors[*t as usize];
            if let Home::Workspace(at) = tensor.home {
                let end = at + tensor.dtype.bytes(tensor.elements);
                lives.entry(*t).or_insert((k, k, at.0, end.0)).1 = k;
            }
        }
    }
    lives
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 200, ..Default::default() })]

    #[test]
    fn live_tensors_never_share_memory(seed: u64, block in 0..5usize, on in 0..4usize, sp: bool) {
        let dropping = dropping_layer();
        let text = [EMBED, GPT_LAYER, QWEN_LAYER, HEAD, &dropping][block];
        let mesh = mesh(["tp=2", "tp=4", "dp=2 tp=2", "dp=4"][on]);
        let class = class("block", text);
        let (plan, code) = planned(&class, &mesh, sp, random(seed));
        prop_assert_eq!(code.frame, kept(&class, &plan, &mesh));
        let code = recompute(&code, Recompute::ALL[seed as usize % Recompute::ALL.len()]);
        for pass in [&code.forward, &code.backward] {
            let lives = placed(&code, pass);
            for (t, a) in &lives {
                prop_assert!(a.3 <= code.workspace.0 && a.2 % ALIGNMENT == 0);
                for (u, b) in lives.range(t + 1..) {
                    let (meet, share) = (a.0 <= b.1 && b.0 <= a.1, a.2 < b.3 && b.2 < a.3);
                    prop_assert!(!(meet && share), "tensors {} and {}", t, u);
                }
            }
        }
        // What forward leaves in the workspace, backward does not read; what it keeps lies apart.
        let (forward, backward) = (placed(&code, &code.forward), placed(&code, &code.backward));
        prop_assert!(forward.keys().all(|t| !backward.contains_key(t)));
        let mut frame: Vec<(u64, u64)> = code.tensors.iter().filter_map(|t| match t.home {
            Home::Frame(at) => Some((at.0, (at + t.dtype.bytes(t.elements)).0)),
            _ => None,
        }).collect();
        frame.sort_unstable();
        prop_assert!(frame.windows(2).all(|w| w[0].1 <= w[1].0));
        prop_assert!(frame.last().is_none_or(|f| f.1 <= code.frame.0));
    }
}

/// The arena of a single stage: 16 bytes a parameter in fp32 with AdamW, 18 in mixed precision; one frame per micro-batch in flight.
#[test]
fn a_stage_is_the_sum_of_its_regions() {
    let model = gpt(2);
    let codes: Vec<BlockCode> =
        model.classes.iter().map(|c| planned(c, &mesh("tp=1"), false, megatron(false)).1).collect();
    let params: u64 = model.params();
    for (precision, each) in [(Precision::Fp32, [4, 0, 8, 4]), (Precision::Bf16, [2, 4, 8, 4])] {
        for in_flight in 1..4 {
            let shape = StageShape {
                stage: (0, 1),
                in_flight,
                micro_batches: 4,
                boundary_elements: SHAPES.batch * SHAPES.sequence * model.hidden,
                precision,
                optimizer: Optimizer::Adamw,
                mesh: mesh("tp=1"),
                gathering: Gathering::default(),
                bucket: Bytes::ZERO,
            };
            let whole = [Storage::WHOLE; 64];
            let block = |class: u32| {
                let code = &codes[class as usize];
                StageBlock { class, code, storage: &whole[..code.params.len()] }
            };
            let chain: Vec<_> = model.blocks().into_iter().map(block).collect();
            let memory = stage_memory(&model, &chain, &shape);
            let region = |k: usize| memory.regions[k].1;
            for (k, bytes) in each.into_iter().enumerate() {
                // Every buffer is padded to the alignment.
                let buffers = 50;
                assert!(region(k) >= Bytes(bytes * params), "{}", memory.regions[k].0);
                assert!(
                    region(k) <= Bytes(bytes * params + buffers * bytes * ALIGNMENT),
                    "{}",
                    memory.regions[k].0
                );
            }
            assert_eq!(memory.regions.iter().map(|r| r.1).sum::<Bytes>(), memory.peak);
            assert_eq!(memory.frames.len() as u64, in_flight);
            let frame: Bytes = model.blocks().iter().map(|c| codes[*c as usize].frame).sum();
            let inputs = precision.compute().bytes(shape.boundary_elements) * 3;
            assert_eq!(region(4) - Bytes(512), (frame + inputs) * in_flight);
        }
    }
}
