//! Job files: defaults, overrides, and what resolving refuses.

use expect_test::expect;
use meshwright_ir::{Bytes, HostProfile, Job, Optimizer, Precision};
use meshwright_zoo::{ZooError, hash, job_file, job_from_toml, merge, resolve};
use std::path::Path;

fn host(ranks: Option<u32>) -> Result<HostProfile, ZooError> {
    assert!(ranks.is_none_or(|r| r == 3), "{ranks:?}");
    Ok(HostProfile { processor: "Test CPU".into(), cores: 6, memory: Bytes::gib(8), samples: vec![] })
}

fn job(text: &str) -> Result<Job, ZooError> {
    resolve(job_from_toml("job.toml", text)?, Path::new(""), host)
}

#[test]
fn defaults_are_filled_in() {
    let job = job(r#"
        [model]
        source = "gpt-nano"
        [cluster]
        source = "localhost"
        [training]
        sequence = 128
        global_batch = 8
    "#)
    .unwrap();
    assert_eq!((job.training.precision, job.training.optimizer), (Precision::Fp32, Optimizer::Adamw));
    assert_eq!((job.search.ranks, job.cluster.ranks(), job.search.top), (4, 4, 5));
    assert_eq!((job.run.steps, job.run.backend.as_str(), job.run.data.clone()), (100, "cpu", None));
    assert_eq!(job.model_source.hash, hash(&job.model));
    assert_eq!(job.cluster_source.name, "localhost");
    let json = serde_json::to_string(&job).unwrap();
    assert_eq!(serde_json::from_str::<Job>(&json).unwrap(), job);
}

#[test]
fn flags_override_the_file() {
    let file = job_from_toml(
        "job.toml",
        r#"
        [model]
        source = "llama3-8b"
        [cluster]
        source = "h100-sxm"
        nodes = 2
        [training]
        sequence = 8192
        global_batch = 32
        [search]
        pin = "tp=8,pp<=4"
        ranks = 8
    "#,
    )
    .unwrap();
    let flags =
        job_from_toml("flags", "[training]\nsequence = 4096\nclip = 0.0\n[search]\npin = \"\"").unwrap();
    let job = resolve(merge(file.clone(), flags), Path::new(""), host).unwrap();
    assert_eq!((job.training.sequence, job.training.global_batch, job.training.clip), (4096, 32, 0.0));
    assert_eq!((job.training.precision, job.search.ranks, job.cluster.ranks()), (Precision::Bf16, 8, 16));
    assert!(job.search.pins.is_empty());
    assert_eq!(resolve(file, Path::new(""), host).unwrap().search.pins.len(), 2);
}

#[test]
fn paths_start_at_the_job_files_folder() {
    let folder = tempfile::tempdir().unwrap();
    let data = Path::new(env!("CARGO_MANIFEST_DIR"));
    std::fs::copy(data.join("models/gpt-nano.json"), folder.path().join("config.json")).unwrap();
    std::fs::copy(data.join("clusters/h100-sxm.toml"), folder.path().join("my.toml")).unwrap();
    std::fs::write(folder.path().join("cal.toml"), "[h100-sxm.device]\nlaunch = 1").unwrap();
    let text = r#"
        [model]
        source = "config.json"
        [cluster]
        source = "my.toml"
        constants = "cal.toml"
        [training]
        sequence = 128
        global_batch = 8
        [run]
        data = "corpus.txt"
    "#;
    let path = folder.path().join("job.toml");
    std::fs::write(&path, text).unwrap();
    let job = resolve(job_file(&path, "job.toml").unwrap(), folder.path(), host).unwrap();
    assert_eq!((job.model_source.name.as_str(), job.model.family.as_str()), ("config.json", "gpt2"));
    assert_eq!(job.cluster.device.launch.0, 1);
    assert_eq!(job.run.data.as_deref(), folder.path().join("corpus.txt").to_str());
}

#[test]
fn what_resolving_refuses() {
    let whole = |training: &str, rest: &str| {
        format!("[model]\nsource = \"gpt-nano\"\n[training]\n{training}\n{rest}\n[cluster]\nsource = ")
    };
    let usual = "sequence = 128\nglobal_batch = 8";
    let cases = [
        ("[model]\nsource = \"gpt-nano\"".to_string()),
        ("[cluster]\nsource = \"localhost\"".to_string()),
        (whole("sequence = 128", "") + "\"localhost\""),
        (whole("global_batch = 8", "") + "\"localhost\""),
        (whole("sequence = 0\nglobal_batch = 8", "") + "\"localhost\""),
        (whole("sequence = 513\nglobal_batch = 8", "") + "\"localhost\""),
        (whole(usual, "precision = \"fp8\"") + "\"localhost\""),
        (whole(usual, "precision = \"fp8\"") + "\"a100-sxm-80\""),
        (whole(usual, "learning_rate = nan") + "\"localhost\""),
        (whole(usual, "weight_decay = -0.1") + "\"localhost\""),
        (whole(usual, "[search]\nranks = 0") + "\"localhost\""),
        (whole(usual, "[search]\nranks = 9") + "\"h100-sxm\""),
        (whole(usual, "[search]\ntop = 0") + "\"localhost\""),
        (whole(usual, "[search]\npin = \"tp=\"") + "\"localhost\""),
        (whole(usual, "[search]\ntarget = \"megatron\"") + "\"localhost\""),
        (whole(usual, "[run]\nsteps = 0") + "\"localhost\""),
        (whole(usual, "[run]\nbackend = \"tpu\"") + "\"localhost\""),
        (whole(usual, "") + "\"h100\""),
        (whole(usual, "") + "\"localhost\"\nnodes = 2"),
        (whole(usual, "") + "\"h100-sxm\"\nnodes = 0"),
        (whole(usual, "") + "\"h100-sxm\"\nnodes = 4000000000"),
        (whole(usual, "") + "\"h100-sxm\"\nconstants = \"no such.toml\""),
    ];
    let messages: Vec<_> = cases.iter().map(|text| job(text).unwrap_err().to_string()).collect();
    expect![[r#"
        job: cluster.source: missing; write `source = "localhost"` under [cluster], or pass --cluster
        job: model.source: missing; write `source = "gpt-nano"` under [model], or pass --model
        job: training.global_batch: missing; write `global_batch = 64` under [training], or pass --global-batch
        job: training.sequence: missing; write `sequence = 1024` under [training], or pass --sequence
        job: training: sequence 0 and global_batch 8; write 1 or more
        job: training.sequence: 513; gpt-nano has positions for 512 tokens: write at most that
        job: training.precision: fp8, but localhost gives no f8 rate; use fp32 or fp16 or bf16, or add device.peak.f8
        job: training.precision: fp8, but a100-sxm-80 gives no f8 rate; use fp32 or fp16 or bf16, or add device.peak.f8
        job: training.learning_rate: NaN; write a finite number, 0 or more
        job: training.weight_decay: -0.1; write a finite number, 0 or more
        job: search.ranks: 0; share this machine among 1 to 1024 ranks
        job: search.ranks: 9; the cluster holds 8: add nodes or use fewer ranks
        job: search.top: 0; write 1 or more
        job: search.pin: `tp=`; write dp, fsdp, tp, pp, sp, microbatch, schedule, zero (0 to 3) or recompute (none, gathers, selective or full) with =, !=, <= or >= and a value, as in `tp=8,pp<=4`
        job: search.target: `megatron`, which is not built yet; write any or meshwright
        job: run.steps: 0; write 1 or more
        job: run.backend: `tpu`; write cpu or cuda
        h100: cluster.source: no such file and no such preset; did you mean `h100-sxm`? name a cluster TOML, or one of a100-sxm-40, a100-sxm-80, a10g, ascend-910b, b200-sxm, gb200-nvl72, h100-hbm2e-500w, h100-sxm, h200-sxm, h800-sxm, l4, mi300x, v100-sxm-16, v100-sxm-32, localhost
        job: cluster.nodes: 2; leave it out: localhost is this one machine
        h100-sxm: cluster.nodes: 0; use at least one node
        h100-sxm: cluster.nodes: 4000000000; use fewer: that is more than 16,777,216 devices
        no such.toml: cluster.constants: cannot be read: No such file or directory (os error 2); name a readable file, or a preset
    "#]].assert_eq(&(messages.join("\n") + "\n"));
}

#[test]
fn an_error_takes_the_job_files_name() {
    let e = job("").unwrap_err().in_file("mine.toml");
    assert!(e.to_string().starts_with("mine.toml: model.source: missing"), "{e}");
}
