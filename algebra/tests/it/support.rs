//! Block classes as text, random choices, and the classes that the tests share.

use meshwright_algebra::{BlockCode, Converter, Shapes, class_plan, expand, strategies};
use meshwright_ir::{
    Axis, BlockClass, BlockRun, ClassPlan, DType, Layout, Mesh, Model, Node, Step, Strategy, Value,
};

/// A layer of GPT-2, 32 wide, 4 heads, inner size 128.
pub(crate) const GPT_LAYER: &str = "
    norm1 norm[kind=layer width=32 groups=1 eps=1e-5] < input
    q linear[input=32 output=32 input_grain=1 output_grain=8] < norm1
    q.bias bias[width=32 grain=8] < q
    k linear[input=32 output=32 input_grain=1 output_grain=8] < norm1
    k.bias bias[width=32 grain=8] < k
    v linear[input=32 output=32 input_grain=1 output_grain=8] < norm1
    v.bias bias[width=32 grain=8] < v
    attn attention[heads=4 kv_heads=4 head_dim=8 causal=true window=0] < q.bias k.bias v.bias
    proj linear[input=32 output=32 input_grain=8 output_grain=1] < attn
    proj.bias bias[width=32 grain=1] < proj
    residual1 add[width=32] < input proj.bias
    norm2 norm[kind=layer width=32 groups=1 eps=1e-5] < residual1
    up linear[input=32 output=128 input_grain=1 output_grain=1] < norm2
    up.bias bias[width=128 grain=1] < up
    act activation[kind=gelu-tanh width=128] < up.bias
    down linear[input=128 output=32 input_grain=1 output_grain=1] < act
    down.bias bias[width=32 grain=1] < down
    residual2 add[width=32] < residual1 down.bias";

/// The same with an eager attention core and dropout wherever GPT-2 has it.
pub(crate) fn dropping_layer() -> String {
    let site = |text: String, after: &str, reader: &str, site: u32| {
        let dropped = format!("{after}.drop dropout[width=32 rate=0.1 site={site}] < {after}\n    {reader}");
        let text = text.replace(reader, &dropped);
        text.replace(&format!("< input {after}"), &format!("< input {after}.drop"))
            .replace(&format!("< residual1 {after}"), &format!("< residual1 {after}.drop"))
    };
    let eager = GPT_LAYER.replace("window=0]", "window=0 core=eager rate=0.1 site=0]");
    site(site(eager, "proj.bias", "residual1 add", 1), "down.bias", "residual2 add", 2)
}

/// A layer with grouped queries, per-head norms, rotary positions and a gated MLP.
pub(crate) const QWEN_LAYER: &str = "
    norm1 norm[kind=rms width=32 groups=1 eps=1e-6] < input
    q linear[input=32 output=64 input_grain=1 output_grain=16] < norm1
    q.norm norm[kind=rms width=8 groups=8 eps=1e-6] < q
    q.rope rope[heads=8 head_dim=8 theta=10000.0] < q.norm
    k linear[input=32 output=32 input_grain=1 output_grain=8] < norm1
    k.norm norm[kind=rms width=8 groups=4 eps=1e-6] < k
    k.rope rope[heads=4 head_dim=8 theta=10000.0] < k.norm
    v linear[input=32 output=32 input_grain=1 output_grain=8] < norm1
    attn attention[heads=8 kv_heads=4 head_dim=8 causal=true window=0] < q.rope k.rope v
    proj linear[input=64 output=32 input_grain=16 output_grain=1] < attn
    residual1 add[width=32] < input proj
    norm2 norm[kind=rms width=32 groups=1 eps=1e-6] < residual1
    gate linear[input=32 output=48 input_grain=1 output_grain=1] < norm2
    up linear[input=32 output=48 input_grain=1 output_grain=1] < norm2
    silu gate[kind=silu width=48] < gate up
    down linear[input=48 output=32 input_grain=1 output_grain=1] < silu
    residual2 add[width=32] < residual1 down";

pub(crate) const EMBED: &str = "
    tokens embedding[rows=64 width=32 index=tokens]
    positions embedding[rows=16 width=32 index=positions]
    sum add[width=32] < tokens positions";

pub(crate) const HEAD: &str = "
    norm norm[kind=layer width=32 groups=1 eps=1e-5] < input
    logits linear[input=32 output=64 input_grain=1 output_grain=1] < norm
    loss cross-entropy[vocab=64] < logits";

/// Reads a class: one node a line, `name op[…] < inputs`.
pub(crate) fn class(name: &str, text: &str) -> BlockClass {
    let mut nodes: Vec<Node> = Vec::new();
    for line in text.lines().map(str::trim).filter(|l| !l.is_empty()) {
        let (front, inputs) = line.split_once(" < ").unwrap_or((line, ""));
        let (node, op) = front.split_once(' ').unwrap();
        let value = |input: &str| match nodes.iter().position(|n| n.name == input) {
            Some(k) => Value::Node(k as u32),
            None => {
                assert_eq!(input, "input");
                Value::Input
            }
        };
        let inputs = inputs.split_whitespace().map(value).collect();
        nodes.push(Node { name: node.into(), op: op.parse().unwrap(), inputs, init: None, tied: None });
    }
    BlockClass { name: name.into(), nodes }
}

/// An embedding, `layers` layers of GPT-2 and an untied head.
pub(crate) fn gpt(layers: u32) -> Model {
    let model = Model {
        name: "gpt".into(),
        family: "gpt2".into(),
        hidden: 32,
        vocab: 64,
        max_sequence: Some(16),
        classes: vec![class("embed", EMBED), class("layer", GPT_LAYER), class("head", HEAD)],
        runs: [1, layers, 1].into_iter().zip(0..).map(|(repeat, class)| BlockRun { class, repeat }).collect(),
        towers: vec![],
        assumed: vec![],
    };
    model.check().unwrap();
    model
}

pub(crate) const SHAPES: Shapes = Shapes { batch: 4, sequence: 16 };

pub(crate) fn mesh(text: &str) -> Mesh {
    text.parse().unwrap()
}

/// The boundary: batch over dp, sequence over tp when `sp`.
pub(crate) fn boundary(mesh: &Mesh, sp: bool) -> Layout {
    let cut =
        |layout: Layout, dim, axis| if mesh.degree(axis) > 1 { layout.sharded(dim, axis) } else { layout };
    let layout = cut(Layout::replicated(3), 0, Axis::Dp);
    if sp { cut(layout, 1, Axis::Tp) } else { layout }
}

/// A class planned with the chosen strategies, and its expansion.
pub(crate) fn planned(
    class: &BlockClass,
    mesh: &Mesh,
    sp: bool,
    mut choose: impl FnMut(&str, &[Strategy]) -> usize,
) -> (ClassPlan, BlockCode) {
    let chosen = class.nodes.iter().map(|node| {
        let legal = strategies(&node.op, mesh, &SHAPES);
        legal[choose(&node.name, &legal)].clone()
    });
    let (chosen, boundary) = (chosen.collect(), boundary(mesh, sp));
    let price = |_: Step, elements| elements;
    let mut converter = Converter::new(*mesh, &price);
    let plan = class_plan(class, chosen, &SHAPES, 32, &boundary, &mut converter).expect("even sizes convert");
    let code = expand(class, &plan, mesh, &SHAPES, 32, &boundary, DType::F32);
    (plan, code)
}

/// Megatron's choice on tp: columns, then rows; norms and residuals along the sequence when `sp`.
pub(crate) fn megatron(sp: bool) -> impl FnMut(&str, &[Strategy]) -> usize {
    move |node, legal| {
        let wanted = match node {
            "q" | "k" | "v" | "up" | "logits" => Some(3),
            "q.bias" | "k.bias" | "v.bias" | "up.bias" | "attn" | "act" | "proj" | "down" | "tokens"
            | "loss" => Some(2),
            _ => sp.then_some(1),
        };
        legal.iter().position(|s| s.index(Axis::Tp) == wanted).unwrap_or(0)
    }
}

/// Deterministic pseudo-random choices.
pub(crate) fn random(mut state: u64) -> impl FnMut(&str, &[Strategy]) -> usize {
    move |_, legal| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize % legal.len()
    }
}
