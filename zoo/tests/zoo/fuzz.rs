//! Mutations of valid files never panic: they are read and counted, or refused with a short message.

use meshwright_ir::JobFile;
use meshwright_zoo::{
    ZooError, cluster_from_toml, hash, job_from_toml, merge, model_from_config, model_from_toml, resolve,
};
use proptest::prelude::*;
use std::path::Path;

/// One change to a text's bytes.
#[derive(Debug, Clone)]
enum Edit {
    Set(usize, u8),
    Remove(usize, usize),
    Insert(usize, &'static str),
    Repeat(usize, usize),
}

/// Pieces that readers stumble over.
const PIECES: [&str; 18] = [
    "0",
    "-1",
    "9",
    "99999999999999999999",
    "4294967296",
    "1e308",
    "nan",
    "inf",
    "NaN",
    "Infinity",
    "null",
    "true",
    "\"",
    "[",
    "{",
    "}\n",
    "é",
    "\\u0000",
];

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let at = any::<usize>;
    let edit = prop_oneof![
        (at(), any::<u8>()).prop_map(|(k, b)| Edit::Set(k, b)),
        (at(), 1..8usize).prop_map(|(k, n)| Edit::Remove(k, n)),
        (at(), proptest::sample::select(&PIECES[..])).prop_map(|(k, s)| Edit::Insert(k, s)),
        (at(), 1..16usize).prop_map(|(k, n)| Edit::Repeat(k, n)),
    ];
    proptest::collection::vec(edit, 1..4)
}

fn mutated(text: &str, edits: &[Edit]) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for edit in edits {
        let place = |k: &usize| k % bytes.len().max(1);
        match edit {
            Edit::Set(k, b) => {
                let k = place(k);
                bytes[k] = *b;
            }
            Edit::Remove(k, n) => {
                let k = place(k);
                bytes.drain(k..(k + n).min(bytes.len()));
            }
            Edit::Insert(k, piece) => {
                let k = place(k);
                bytes.splice(k..k, piece.bytes());
            }
            Edit::Repeat(k, n) => {
                let k = place(k);
                let piece = bytes[k..(k + n).min(bytes.len())].to_vec();
                bytes.splice(k..k, piece);
            }
        }
        if bytes.is_empty() {
            bytes.push(b' ');
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A refusal is short; what is accepted can be used.
fn sound<T>(read: Result<T, ZooError>, use_it: impl FnOnce(T)) {
    match read {
        Ok(value) => use_it(value),
        Err(e) => assert!(e.to_string().len() <= 2048),
    }
}

fn count(model: meshwright_ir::Model) {
    model.check().unwrap();
    assert!(model.params() >= model.active_params() && model.params() >= model.routed_params());
    assert!(!model.block_name(model.blocks().len() as u32 - 1).is_empty());
    hash(&model);
}

const CONFIGS: [&str; 14] = [
    include_str!("../../models/gpt-nano.json"),
    include_str!("../../models/llama3.1-405b.json"),
    include_str!("../../models/qwen3-0.6b.json"),
    include_str!("../data/mistral-7b-v0.1.json"),
    include_str!("../data/hf/deepseek_v3-671b.json"),
    include_str!("../data/hf/gpt_oss-20b.json"),
    include_str!("../data/hf/qwen2_vl-2b.json"),
    include_str!("../data/hf/llama4-scout-17b-16e.json"),
    include_str!("../data/hf/jamba-v0.1-52b.json"),
    include_str!("../data/hf/mamba2-default.json"),
    include_str!("../data/hf/whisper-tiny.json"),
    include_str!("../data/hf/t5-small.json"),
    include_str!("../data/hf/falcon-40b.json"),
    include_str!("../data/hf/gemma3-27b.json"),
];
const JOB: &str = r#"
[model]
source = "gpt-nano"
[cluster]
source = "h100-sxm"
nodes = 8
[training]
sequence = 128
global_batch = 512
precision = "bf16"
optimizer = "adamw"
learning_rate = 3e-4
[search]
objective = "time"
pin = "tp=8,pp<=4"
ranks = 16
[run]
steps = 100
backend = "cpu"
"#;

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn configs(which in 0..CONFIGS.len(), edits in edits()) {
        sound(model_from_config("config.json", "m", &mutated(CONFIGS[which], &edits)), count);
    }

    #[test]
    fn clusters(edits in edits(), nodes in any::<Option<u32>>()) {
        let text = mutated(include_str!("../../clusters/a100-sxm-80.toml"), &edits);
        sound(cluster_from_toml("my.toml", &text, nodes), |cluster| {
            assert!(cluster.ranks() >= cluster.nodes() || cluster.devices_per_node > 0);
            cluster.memory_per_rank();
            cluster.level_between(0, cluster.ranks() - 1);
            cluster.device.curves.iter().for_each(|c| assert!(c.at(1e9).is_finite()));
            hash(&cluster);
        });
    }

    #[test]
    fn jobs(edits in edits()) {
        let no_host = |_| unreachable!("a mutation cannot spell localhost");
        sound(job_from_toml("job.toml", &mutated(JOB, &edits)), |job| {
            // Mutated sources would be paths of files that are not there.
            let job = merge(JobFile::default(), job);
            sound(resolve(job, Path::new("/nowhere"), no_host), |job| job.check().unwrap());
        });
    }
}

#[test]
fn model_tomls() {
    let nano = meshwright_zoo::model("gpt-nano", Path::new("")).unwrap().0;
    let text = toml::to_string(&nano).unwrap();
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 1000,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    runner
        .run(&edits(), |edits| {
            sound(model_from_toml("model.toml", &mutated(&text, &edits)), count);
            Ok(())
        })
        .unwrap();
}
