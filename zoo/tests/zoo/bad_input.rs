//! Bad files: text in, message out. Every message names the file, the key or line, what was found, and what to write.

use expect_test::{Expect, expect};
use meshwright_zoo::{ZooError, cluster_from_toml, job_from_toml, model, model_from_config, model_from_toml};
use std::path::Path;

fn check<T>(results: impl IntoIterator<Item = Result<T, ZooError>>, want: Expect) {
    let messages = results.into_iter().map(|r| match r {
        Ok(_) => "accepted\n".to_string(),
        Err(e) => {
            let message = e.to_string();
            assert!(message.len() <= 2048, "{message}");
            message + "\n"
        }
    });
    want.assert_eq(&messages.collect::<String>());
}

const LLAMA: &str = r#"{
    "model_type": "llama",
    "vocab_size": 100,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4
}"#;
const GPT2: &str =
    r#"{"model_type": "gpt2", "vocab_size": 9, "n_positions": 8, "n_embd": 6, "n_layer": 2, "n_head": 3}"#;

/// The Llama config with one piece of text replaced.
fn llama(from: &str, to: &str) -> Result<meshwright_ir::Model, ZooError> {
    assert!(LLAMA.contains(from), "{from}");
    model_from_config("config.json", "m", &LLAMA.replace(from, to))
}

#[test]
fn configs() {
    let plain = [
        "",
        "{",
        "[]",
        "{}",
        r#"{"model_type": null}"#,
        r#"{"model_type": 3}"#,
        r#"{"model_type": "lama"}"#,
        r#"{"model_type": "mamba2"}"#,
    ];
    let edits = [
        ("\"model_type\"", "\"mode_type\""),
        ("hidden_size", "hiden_size"),
        ("32", "0"),
        ("32", "-32"),
        ("32", "32.5"),
        ("32", "\"32\""),
        ("32", "true"),
        ("32", "{\"a\": 1}"),
        ("32", "Infinity"),
        ("32", "1e999"),
        ("32", "99999999999999999999"),
        ("32", "4294967297"),
        ("32", "34"),
        ("32", "12"),
        ("\"num_hidden_layers\": 4", "\"num_hidden_layers\": 100001"),
        ("\"num_hidden_layers\": 4", "\"num_hidden_layers\": 100000"),
        ("\"intermediate_size\": 64", "\"intermediate_size\": 4294967296, \"num_hidden_layers\": 99999"),
        ("\"num_hidden_layers\": 4,", "\"intermediate_size\": 4294967296, \"num_hidden_layers\": 100000,"),
        ("\"num_attention_heads\": 4", "\"num_attention_heads\": 4, \"num_key_value_heads\": 3"),
        ("\"num_attention_heads\": 4", "\"num_attention_heads\": 4, \"num_key_value_heads\": 8"),
        ("\"num_attention_heads\": 4", "\"num_attention_heads\": 4294967296, \"head_dim\": 4294967296"),
        ("\"num_attention_heads\": 4", "\"num_attention_heads\": 4, \"hidden_act\": \"tanh\""),
        ("\"num_attention_heads\": 4", "\"num_attention_heads\": 4, \"rms_norm_eps\": NaN"),
        ("\"num_attention_heads\": 4", "\"num_attention_heads\": 4, \"rope_theta\": 0"),
        ("\"num_attention_heads\": 4", "\"num_attention_heads\": 4, \"tie_word_embeddings\": \"no\""),
        ("\"num_attention_heads\": 4", "\"num_attention_heads\": 4, \"partial_rotary_factor\": 0.5"),
    ];
    let gpt2 = [
        GPT2.replace("6", "7"),
        GPT2.replace("8", "null"),
        GPT2.replace("}", ", \"add_cross_attention\": true}"),
        GPT2.replace("}", ", \"n_inner\": 0}"),
    ];
    let results = plain
        .iter()
        .map(|text| model_from_config("config.json", "m", text))
        .chain(edits.iter().map(|(from, to)| llama(from, to)))
        .chain(gpt2.iter().map(|text| model_from_config("config.json", "m", text)));
    check(
        results,
        expect![[r#"
            config.json, line 1: the document: no JSON: EOF while parsing a value; mend the JSON there
            config.json, line 1: the document: no JSON: EOF while parsing an object; mend the JSON there
            config.json: the document: a list of 0; write one JSON object, as Hugging Face's config.json does
            config.json: model_type: missing; add it; 76 families are read: see docs/models.md
            config.json: model_type: missing; add it; 76 families are read: see docs/models.md
            config.json: model_type: 3; write text in quotes
            config.json: model_type: `lama`, which is not built yet; did you mean `llama`? 76 families are read: see docs/models.md; or describe the model in a TOML
            config.json: hidden_size: missing; write `"hidden_size": …`, a whole number above 0
            config.json: model_type: missing; add it; 76 families are read: see docs/models.md
            config.json: hidden_size: missing; write `"hidden_size": …`, a whole number above 0; the file has `hiden_size`
            config.json: hidden_size: 0; write a whole number from 1 to 4,294,967,296
            config.json: hidden_size: -32; write a whole number from 1 to 4,294,967,296
            config.json: hidden_size: 32.5; write a whole number from 1 to 4,294,967,296
            config.json: hidden_size: "32"; write a whole number from 1 to 4,294,967,296
            config.json: hidden_size: true; write a whole number from 1 to 4,294,967,296
            config.json: hidden_size: an object of 1 keys; write a whole number from 1 to 4,294,967,296
            config.json: hidden_size: "Infinity"; write a whole number from 1 to 4,294,967,296
            config.json, line 4: the document: no JSON: number out of range; mend the JSON there
            config.json: hidden_size: 1e+20; write a whole number from 1 to 4,294,967,296
            config.json: hidden_size: 4294967297; write a whole number from 1 to 4,294,967,296
            config.json: num_attention_heads: 4; make hidden_size (34) a multiple of it, or write head_dim
            config.json: head_dim: 3; make it even: rotary positions turn features in pairs
            config.json: num_hidden_layers: 100001; write at most 100,000 layers
            accepted
            accepted
            config.json: model: 41231686457606432 parameters; lower a width or the number of layers: at most 1,000,000,000,000,000 parameters
            config.json: num_key_value_heads: 3; write a divisor of num_attention_heads (4)
            config.json: num_key_value_heads: 8; write a divisor of num_attention_heads (4)
            config.json: num_attention_heads: 4294967296 of 4294967296 features; lower one of the two: their product is the width of the queries
            accepted
            config.json: rms_norm_eps: "NaN"; write a finite number above 0
            config.json: rope_theta: 0; write a finite number above 0
            config.json: tie_word_embeddings: "no"; write true or false
            accepted
            config.json: n_head: 3; make n_embd (7) a multiple of it
            config.json: n_positions: null; write `"n_positions": …`, a whole number above 0
            config.json: add_cross_attention: true; set it to false: only decoders without an encoder are read
            config.json: n_inner: 0; write a whole number from 1 to 4,294,967,296
        "#]],
    );
}

#[test]
fn python_infinities_are_no_trouble_where_nobody_looks() {
    let text = LLAMA
        .replace("\"vocab_size\"", "\"time_step_limit\": [0.0, Infinity], \"note\": NaN, \"vocab_size\"");
    assert!(model_from_config("config.json", "m", &text).is_ok());
}

#[test]
fn model_sources() {
    let sources = ["gpt-nanoo", "", "no/such/config.json", "model.onnx", ".."];
    check(
        sources.map(|s| model(s, Path::new("/"))),
        expect![[r#"
            gpt-nanoo: model.source: no such file and no such preset; did you mean `gpt-nano`? name a config.json, a model TOML, or a preset: gpt-nano, gpt2-124m, qwen3-0.6b, llama3-8b, llama3-70b, gpt3-175b, llama3.1-405b
            "": model.source: no such file and no such preset; name a config.json, a model TOML, or a preset: gpt-nano, gpt2-124m, qwen3-0.6b, llama3-8b, llama3-70b, gpt3-175b, llama3.1-405b
            no/such/config.json: model.source: no such file and no such preset; name a config.json, a model TOML, or a preset: gpt-nano, gpt2-124m, qwen3-0.6b, llama3-8b, llama3-70b, gpt3-175b, llama3.1-405b
            model.onnx: model.source: an ONNX file: reading ONNX is not built yet; export the model's config.json instead
            ..: model.source: no such file and no such preset; name a config.json, a model TOML, or a preset: gpt-nano, gpt2-124m, qwen3-0.6b, llama3-8b, llama3-70b, gpt3-175b, llama3.1-405b
        "#]],
    );
}

#[test]
fn model_tomls() {
    let nano = toml::to_string(&model("gpt-nano", Path::new("")).unwrap().0).unwrap();
    let edits = [
        ("hidden = 256", "hidden = 255"),
        ("hidden = 256", "hiden = 256"),
        ("repeat = 4", "repeat = 4294967295"),
        ("repeat = 4", "repeat = 0"),
        ("kv_heads = 8", "kv_heads = 0"),
        ("kv_heads = 8", "kv_heads = 3"),
        ("rows = 512", "rows = 511"),
        ("groups = 1", "groups = 9223372036854775807"),
        ("eps = 0.00001", "eps = nan"),
        ("op = \"attention\"", "op = \"atention\""),
        ("node = \"tokens\"", "node = \"token\""),
    ];
    let edited = edits.map(|(from, to)| {
        assert!(nano.contains(from), "{from} in {nano}");
        model_from_toml("model.toml", &nano.replacen(from, to, 1))
    });
    check(
        edited,
        expect![[r#"
            model.toml: model.layer.norm1: input 0 is 255 wide; it must be 256 wide
            model.toml, line 3: hiden: no such key; did you mean `hidden`? known keys: name, family, hidden, vocab, max_sequence, classes, runs, towers, assumed
            model.toml: model.runs: 4294967297 blocks; repeat fewer blocks: at most 200,000
            model.toml: model.runs: an unknown class, or no repeats; name existing classes, each at least once
            model.toml: model.layer.attn.kv_heads: 0; write a whole number from 1 to 4,294,967,296
            model.toml: model.layer.attn: 8 heads over 3 key heads; make the heads a multiple of the key heads
            model.toml: model.embed.positions: 511 rows; give the model a `max_sequence` of at most that
            model.toml: model.layer.norm1.groups: 9223372036854775807; write a whole number from 1 to 4,294,967,296
            model.toml: model.layer.norm1.eps: NaN; write a finite number above 0
            model.toml, line 134: classes.layer.nodes.attn.op.op: `atention`; did you mean `attention`? known values: embedding, linear, bias, norm, rope, attention, dropout, latent-attention, activation, gate, index, scale, spread, gain, route, dispatch, expert-linear, expert-bias, combine, conv, scan, input, add, cross-entropy
            model.toml: model.head.logits: tied to embed.token; tie to a node whose first parameter has the same size
        "#]],
    );
}

#[test]
fn cluster_tomls() {
    let text = include_str!("../../clusters/h100-sxm.toml");
    let edits = [
        ("name = \"h100-sxm\"", ""),
        ("devices_per_node = 8", "device_per_node = 8"),
        ("devices_per_node = 8", "devices_per_node = 0"),
        ("devices_per_node = 8", "devices_per_node = 8.5"),
        ("memory = 85899345920", "memory = 80e9"),
        ("memory = 85899345920", "memory = 1"),
        ("memory_bandwidth = 3.35e12", "memory_bandwidth = nan"),
        ("bf16 = 989.4e12", "bf16 = -1.0"),
        ("bf16 = 989.4e12", "bf17 = 989.4e12"),
        ("bf16 = 989.4e12", "bf16 = 989.4"),
        ("kind = \"gpu\"", "kind = \"gqu\""),
        ("bandwidth = 450e9", "bandwidth = -450e9"),
        ("bandwidth = 450e9", "bandwidth = inf"),
        ("bandwidth = 450e9", "bandwith = 450e9"),
        ("size = 8", "size = 0"),
        ("size = 8", "size = 16777217"),
        ("size = 8", "size = -8"),
        ("latency = 5_200_000", "latency = 9223372036854775807"),
        ("efficiency = 0.82", "efficiency = 82"),
        ("efficiency = 0.82", "efficiency = nan"),
        ("[1e8, 0.02], [1.5e9", "[1e10, 0.02], [1.5e9"),
        ("[1e8, 0.02], [1.5e9", "[1e8, nan], [1.5e9"),
        ("watts = 700.0", "watts = inf"),
        ("[device.peak]", "[device.peak"),
        ("cores = 1", "cores = 1\nranks_per_device = 4294967295"),
    ];
    let edited = edits.map(|(from, to)| {
        assert!(text.contains(from), "{from}");
        cluster_from_toml("my.toml", &text.replacen(from, to, 1), Some(2))
    });
    check(
        edited,
        expect![[r#"
            my.toml, line 1: name: missing; add `name = …`
            my.toml, line 4: device_per_node: no such key; did you mean `devices_per_node`? known keys: name, device, levels, devices_per_node, ranks_per_device, sources
            my.toml: cluster: zero devices per node, ranks per device or cores; write 1 or more
            my.toml, line 4: devices_per_node: floating point `8.5`; write a whole number, 0 or more
            my.toml, line 9: device.memory: floating point `80000000000.0`; write a whole number, 0 or more
            my.toml: cluster.device.memory: 1 B; give more memory than `reserved`
            my.toml, line 11: device.memory_bandwidth: NaN is no bandwidth; write a finite number above 0, in bytes per second
            my.toml, line 23: device.peak.bf16: -1 is no compute rate; write a finite number above 0, in operations per second
            my.toml, line 23: device.peak.bf17: `bf17`; did you mean `bf16`? known values: f32, bf16, f16, f8, i32, u8
            my.toml: cluster.device.peak.bf16: 9.894e2; write a rate per second from 1e6 to 1e21
            my.toml, line 8: device.kind: `gqu`; did you mean `gpu`? known values: gpu, npu, cpu
            my.toml, line 46: levels.nvlink.bandwidth: -450000000000 is no bandwidth; write a finite number above 0, in bytes per second
            my.toml, line 46: levels.nvlink.bandwidth: inf is no bandwidth; write a finite number above 0, in bytes per second
            my.toml, line 46: levels.nvlink.bandwith: no such key; did you mean `bandwidth`? known keys: name, size, bandwidth, latency, efficiency
            my.toml: cluster.levels: no level, or one of size 0; give at least one level with a size of 1 or more
            my.toml: cluster.levels: more than 16,777,216 devices; lower a level's size
            my.toml, line 45: levels.nvlink.size: integer `-8`; write a whole number, 0 or more
            my.toml: cluster.levels.infiniband.latency: 9223372036854775807; write picoseconds: at most 1e11
            my.toml: cluster.levels.nvlink.efficiency: 82; write a share above 0, at most 1
            my.toml: cluster.levels.nvlink.efficiency: NaN; write a share above 0, at most 1
            my.toml: cluster.device.curves.matmul: points that do not rise, or out of range; list (x, efficiency) in rising x above 0, efficiencies from 1e-9 to 1000
            my.toml: cluster.device.curves.matmul: points that do not rise, or out of range; list (x, efficiency) in rising x above 0, efficiencies from 1e-9 to 1000
            my.toml: cluster.device.watts: inf; write a finite number, 0 or more
            my.toml, line 21: the document: unclosed table; write `]`
            my.toml, line 13: device.ranks_per_device: no such key; known keys: name, kind, memory, reserved, peak, memory_bandwidth, core_bandwidth, cores, launch, host, curves, price_per_hour, watts
        "#]],
    );
}

#[test]
fn job_tomls() {
    let texts = [
        "[training]\nsequense = 8",
        "[trainin]\nsequence = 8",
        "[training]\nsequence = \"8\"",
        "[training]\nsequence = -8",
        "[training]\nsequence = 8\nsequence = 9",
        "[training]\nprecision = \"bf61\"",
        "[training]\noptimizer = \"lamb\"",
        "[search]\nobjective = \"speed\"",
        "model = \"gpt-nano\"",
        "[model\n",
        "sequence = 8",
        "[run]\nsteps = 1e3",
    ];
    check(
        texts.map(|t| job_from_toml("job.toml", t)),
        expect![[r#"
            job.toml, line 2: training.sequense: no such key; did you mean `sequence`? known keys: sequence, global_batch, precision, optimizer, learning_rate, warmup, weight_decay, clip, seed
            job.toml, line 1: trainin: no such key; did you mean `training`? known keys: model, cluster, training, search, run
            job.toml, line 2: training.sequence: string "8"; write a whole number, 0 or more
            job.toml, line 2: training.sequence: integer `-8`; write a whole number, 0 or more
            job.toml, line 3: the document: duplicate key; mend the TOML there
            job.toml, line 2: training.precision: `bf61`; did you mean `bf16`? known values: fp32, fp16, bf16, fp8
            job.toml, line 2: training.optimizer: `lamb`, which is not built yet; use adamw, sgd
            job.toml, line 2: search.objective: `speed`; known values: time, cost, energy, memory
            job.toml, line 1: model: string "gpt-nano"; write a table
            job.toml, line 1: the document: unclosed table; write `]`
            job.toml, line 1: sequence: no such key; known keys: model, cluster, training, search, run
            job.toml, line 2: run.steps: floating point `1000.0`; write a whole number, 0 or more
        "#]],
    );
}
