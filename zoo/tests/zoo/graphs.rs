//! The graphs that configs turn into, one line per op.

use expect_test::{Expect, expect};
use meshwright_ir::{Init, Model, Value};
use meshwright_zoo::{model, model_from_config};
use std::path::Path;

/// One line per block class and node; the repeats follow the class.
fn show(model: &Model) -> String {
    let mut text =
        format!("{} {} hidden={} vocab={}\n", model.family, model.params(), model.hidden, model.vocab);
    for run in &model.runs {
        let class = &model.classes[run.class as usize];
        text += &format!("{} x{}\n", class.name, run.repeat);
        for node in &class.nodes {
            let input = |v: &Value| match v {
                Value::Input => "input".to_string(),
                Value::Node(k) => class.nodes[*k as usize].name.clone(),
            };
            let inputs: Vec<_> = node.inputs.iter().map(input).collect();
            let tie = node.tied.as_ref().map(|t| format!(" = {}.{}", t.class, t.node)).unwrap_or_default();
            let init = match node.init {
                Some(Init::Normal { std }) => format!(" std={:.6}", std.0),
                Some(Init::Ones | Init::Zeros) | None => String::new(),
            };
            text += &format!("  {}: {}({}){init}{tie}\n", node.name, node.op, inputs.join(", "));
        }
    }
    text + &model.assumed.iter().map(|a| format!("assumed {a}\n")).collect::<String>()
}

fn check(source: &str, want: Expect) {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    want.assert_eq(&show(&model(source, &data).unwrap().0));
}

/// A small config of a family, with `extra` keys.
fn small(family: &str, extra: &str) -> String {
    format!(
        r#"{{"model_type": "{family}", "vocab_size": 100, "hidden_size": 32, "intermediate_size": 64,
            "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "rope_theta": 1e4,
            "tie_word_embeddings": false, "rms_norm_eps": 1e-6, "initializer_range": 0.02, "hidden_act": "silu"{extra}}}"#
    )
}

fn check_small(family: &str, extra: &str, want: Expect) {
    let text = small(family, extra);
    want.assert_eq(&show(&model_from_config("config.json", "small", &text).unwrap()));
}

#[test]
fn gpt2_has_biases_positions_and_a_tied_head() {
    check(
        "gpt-nano",
        expect![[r#"
        gpt2 3356160 hidden=256 vocab=256
        embed x1
          tokens: embedding[rows=256 width=256 index=tokens]()
          positions: embedding[rows=512 width=256 index=positions]()
          sum: add[width=256](tokens, positions)
        layer x4
          norm1: norm[kind=layer width=256 groups=1 eps=1e-5](input)
          q: linear[input=256 output=256 input_grain=1 output_grain=32](norm1)
          q.bias: bias[width=256 grain=32](q)
          k: linear[input=256 output=256 input_grain=1 output_grain=32](norm1)
          k.bias: bias[width=256 grain=32](k)
          v: linear[input=256 output=256 input_grain=1 output_grain=32](norm1)
          v.bias: bias[width=256 grain=32](v)
          attn: attention[heads=8 kv_heads=8 head_dim=32 causal=true window=0](q.bias, k.bias, v.bias)
          proj: linear[input=256 output=256 input_grain=32 output_grain=1](attn) std=0.007071
          proj.bias: bias[width=256 grain=1](proj)
          residual1: add[width=256](input, proj.bias)
          norm2: norm[kind=layer width=256 groups=1 eps=1e-5](residual1)
          up: linear[input=256 output=1024 input_grain=1 output_grain=1](norm2)
          up.bias: bias[width=1024 grain=1](up)
          act: activation[kind=gelu-tanh width=1024](up.bias)
          down: linear[input=1024 output=256 input_grain=1 output_grain=1](act) std=0.007071
          down.bias: bias[width=256 grain=1](down)
          residual2: add[width=256](residual1, down.bias)
        head x1
          norm: norm[kind=layer width=256 groups=1 eps=1e-5](input)
          logits: linear[input=256 output=256 input_grain=1 output_grain=1](norm) = embed.tokens
          loss: cross-entropy[vocab=256](logits)
    "#]],
    );
}

#[test]
fn qwen3_normalises_each_head() {
    check(
        "qwen3-0.6b",
        expect![[r#"
        qwen3 596049920 hidden=1024 vocab=151936
        embed x1
          tokens: embedding[rows=151936 width=1024 index=tokens]()
        layer x28
          norm1: norm[kind=rms width=1024 groups=1 eps=1e-6](input)
          q: linear[input=1024 output=2048 input_grain=1 output_grain=128](norm1)
          k: linear[input=1024 output=1024 input_grain=1 output_grain=128](norm1)
          v: linear[input=1024 output=1024 input_grain=1 output_grain=128](norm1)
          q.norm: norm[kind=rms width=128 groups=16 eps=1e-6](q)
          q.rope: rope[heads=16 head_dim=128 theta=1000000.0](q.norm)
          k.norm: norm[kind=rms width=128 groups=8 eps=1e-6](k)
          k.rope: rope[heads=8 head_dim=128 theta=1000000.0](k.norm)
          attn: attention[heads=16 kv_heads=8 head_dim=128 causal=true window=0](q.rope, k.rope, v)
          proj: linear[input=2048 output=1024 input_grain=128 output_grain=1](attn)
          residual1: add[width=1024](input, proj)
          norm2: norm[kind=rms width=1024 groups=1 eps=1e-6](residual1)
          gate: linear[input=1024 output=3072 input_grain=1 output_grain=1](norm2)
          up: linear[input=1024 output=3072 input_grain=1 output_grain=1](norm2)
          silu: gate[kind=silu width=3072](gate, up)
          down: linear[input=3072 output=1024 input_grain=1 output_grain=1](silu)
          residual2: add[width=1024](residual1, down)
        head x1
          norm: norm[kind=rms width=1024 groups=1 eps=1e-6](input)
          logits: linear[input=1024 output=151936 input_grain=1 output_grain=1](norm) = embed.tokens
          loss: cross-entropy[vocab=151936](logits)
    "#]],
    );
}

#[test]
fn mistral_has_a_window() {
    check(
        "mistral-7b-v0.1.json",
        expect![[r#"
        mistral 7241732096 hidden=4096 vocab=32000
        embed x1
          tokens: embedding[rows=32000 width=4096 index=tokens]()
        layer x32
          norm1: norm[kind=rms width=4096 groups=1 eps=1e-5](input)
          q: linear[input=4096 output=4096 input_grain=1 output_grain=128](norm1)
          k: linear[input=4096 output=1024 input_grain=1 output_grain=128](norm1)
          v: linear[input=4096 output=1024 input_grain=1 output_grain=128](norm1)
          q.rope: rope[heads=32 head_dim=128 theta=10000.0](q)
          k.rope: rope[heads=8 head_dim=128 theta=10000.0](k)
          attn: attention[heads=32 kv_heads=8 head_dim=128 causal=true window=4096](q.rope, k.rope, v)
          proj: linear[input=4096 output=4096 input_grain=128 output_grain=1](attn)
          residual1: add[width=4096](input, proj)
          norm2: norm[kind=rms width=4096 groups=1 eps=1e-5](residual1)
          gate: linear[input=4096 output=14336 input_grain=1 output_grain=1](norm2)
          up: linear[input=4096 output=14336 input_grain=1 output_grain=1](norm2)
          silu: gate[kind=silu width=14336](gate, up)
          down: linear[input=14336 output=4096 input_grain=1 output_grain=1](silu)
          residual2: add[width=4096](residual1, down)
        head x1
          norm: norm[kind=rms width=4096 groups=1 eps=1e-5](input)
          logits: linear[input=4096 output=32000 input_grain=1 output_grain=1](norm)
          loss: cross-entropy[vocab=32000](logits)
    "#]],
    );
}

#[test]
fn qwen2_has_biases_and_may_window_its_last_layers() {
    check_small(
        "qwen2",
        r#", "use_sliding_window": true, "sliding_window": 16, "max_window_layers": 3"#,
        expect![[r#"
            qwen2 43808 hidden=32 vocab=100
            embed x1
              tokens: embedding[rows=100 width=32 index=tokens]()
            layer x3
              norm1: norm[kind=rms width=32 groups=1 eps=1e-6](input)
              q: linear[input=32 output=32 input_grain=1 output_grain=8](norm1)
              q.bias: bias[width=32 grain=8](q)
              k: linear[input=32 output=16 input_grain=1 output_grain=8](norm1)
              k.bias: bias[width=16 grain=8](k)
              v: linear[input=32 output=16 input_grain=1 output_grain=8](norm1)
              v.bias: bias[width=16 grain=8](v)
              q.rope: rope[heads=4 head_dim=8 theta=10000.0](q.bias)
              k.rope: rope[heads=2 head_dim=8 theta=10000.0](k.bias)
              attn: attention[heads=4 kv_heads=2 head_dim=8 causal=true window=0](q.rope, k.rope, v.bias)
              proj: linear[input=32 output=32 input_grain=8 output_grain=1](attn)
              residual1: add[width=32](input, proj)
              norm2: norm[kind=rms width=32 groups=1 eps=1e-6](residual1)
              gate: linear[input=32 output=64 input_grain=1 output_grain=1](norm2)
              up: linear[input=32 output=64 input_grain=1 output_grain=1](norm2)
              silu: gate[kind=silu width=64](gate, up)
              down: linear[input=64 output=32 input_grain=1 output_grain=1](silu)
              residual2: add[width=32](residual1, down)
            layer.window x1
              norm1: norm[kind=rms width=32 groups=1 eps=1e-6](input)
              q: linear[input=32 output=32 input_grain=1 output_grain=8](norm1)
              q.bias: bias[width=32 grain=8](q)
              k: linear[input=32 output=16 input_grain=1 output_grain=8](norm1)
              k.bias: bias[width=16 grain=8](k)
              v: linear[input=32 output=16 input_grain=1 output_grain=8](norm1)
              v.bias: bias[width=16 grain=8](v)
              q.rope: rope[heads=4 head_dim=8 theta=10000.0](q.bias)
              k.rope: rope[heads=2 head_dim=8 theta=10000.0](k.bias)
              attn: attention[heads=4 kv_heads=2 head_dim=8 causal=true window=16](q.rope, k.rope, v.bias)
              proj: linear[input=32 output=32 input_grain=8 output_grain=1](attn)
              residual1: add[width=32](input, proj)
              norm2: norm[kind=rms width=32 groups=1 eps=1e-6](residual1)
              gate: linear[input=32 output=64 input_grain=1 output_grain=1](norm2)
              up: linear[input=32 output=64 input_grain=1 output_grain=1](norm2)
              silu: gate[kind=silu width=64](gate, up)
              down: linear[input=64 output=32 input_grain=1 output_grain=1](silu)
              residual2: add[width=32](residual1, down)
            head x1
              norm: norm[kind=rms width=32 groups=1 eps=1e-6](input)
              logits: linear[input=32 output=100 input_grain=1 output_grain=1](norm)
              loss: cross-entropy[vocab=100](logits)
        "#]],
    );
}

#[test]
fn llama_biases_follow_their_keys() {
    check_small(
        "llama",
        r#", "attention_bias": true, "mlp_bias": true, "head_dim": 16, "attention_dropout": 0.1,
            "rope_scaling": {"rope_type": "yarn", "factor": 2.0}"#,
        expect![[r#"
            llama 57120 hidden=32 vocab=100
            embed x1
              tokens: embedding[rows=100 width=32 index=tokens]()
            layer x4
              norm1: norm[kind=rms width=32 groups=1 eps=1e-6](input)
              q: linear[input=32 output=64 input_grain=1 output_grain=16](norm1)
              q.bias: bias[width=64 grain=16](q)
              k: linear[input=32 output=32 input_grain=1 output_grain=16](norm1)
              k.bias: bias[width=32 grain=16](k)
              v: linear[input=32 output=32 input_grain=1 output_grain=16](norm1)
              v.bias: bias[width=32 grain=16](v)
              q.rope: rope[heads=4 head_dim=16 theta=10000.0](q.bias)
              k.rope: rope[heads=2 head_dim=16 theta=10000.0](k.bias)
              attn: attention[heads=4 kv_heads=2 head_dim=16 causal=true window=0 rate=0.1 site=0](q.rope, k.rope, v.bias)
              proj: linear[input=64 output=32 input_grain=16 output_grain=1](attn)
              proj.bias: bias[width=32 grain=1](proj)
              residual1: add[width=32](input, proj.bias)
              norm2: norm[kind=rms width=32 groups=1 eps=1e-6](residual1)
              gate: linear[input=32 output=64 input_grain=1 output_grain=1](norm2)
              gate.bias: bias[width=64 grain=1](gate)
              up: linear[input=32 output=64 input_grain=1 output_grain=1](norm2)
              up.bias: bias[width=64 grain=1](up)
              silu: gate[kind=silu width=64](gate.bias, up.bias)
              down: linear[input=64 output=32 input_grain=1 output_grain=1](silu)
              down.bias: bias[width=32 grain=1](down)
              residual2: add[width=32](residual1, down.bias)
            head x1
              norm: norm[kind=rms width=32 groups=1 eps=1e-6](input)
              logits: linear[input=32 output=100 input_grain=1 output_grain=1](norm)
              loss: cross-entropy[vocab=100](logits)
            assumed unscaled rotary frequencies, although rope_scaling asks for yarn
        "#]],
    );
}

#[test]
fn a_model_survives_its_toml() {
    let model = model("gpt-nano", Path::new("")).unwrap().0;
    let text = toml::to_string(&model).unwrap();
    assert_eq!(meshwright_zoo::model_from_toml("nano.toml", &text).unwrap(), model);
}
