//! Bad input, kind by kind: exit code 2, nothing on stdout, one short message that names what is wrong, and no file left.

use super::{PLAN, Workplace, finished};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// A job that works, to be spoilt.
const JOB: &str = r#"
[model]
source = "gpt-nano"
[cluster]
source = "pair.toml"
[training]
sequence = 32
global_batch = 8
[run]
data = "repository/README.md"
steps = 1
"#;

/// Arguments and words of the message. `JOB a => b` stands for a plan of the job with one text replaced, `PAIR a => b` for
/// the cluster's, `PLAN a => b` for a simulation of the plan's.
const TABLE: &str = r#"
frobnicate | frobnicate
plan | model.source --model
plan --sequence -1 | --sequence -1
plan --model gpt-nano --cluster h100-sxm --nodes -3 | --nodes -3
plan --precision int4 | precision int4 fp32
plan --optimizer lamb | lamb not built adamw
plan missing.toml | missing.toml
plan repository | repository
lower missing.json | missing.json
lower empty.json | empty.json plan
lower binary.json | binary.json text
simulate repository | repository folder
simulate truncated.json | truncated.json line
simulate truncated.program --cluster pair.toml | truncated.program
simulate step.program | step.program --cluster
simulate step.program --cluster localhost --nodes 2 | cluster.nodes 2
simulate step.program --cluster single.toml | 4 ranks 1
simulate plan.json --cluster h100-sxm | plan.json --cluster
simulate plan.json --network flow | flow not built
simulate plan.json --trace missing/t.json | missing/t.json folder
simulate plan.json --trace plan.json | plan.json overwrite
report plan.json -o plan.json | plan.json overwrite
report plan.json other.json -o r.html | other.json trace.spans
report plan.json step.program -o r.html | step.program trace
plan job.toml -o job.toml | job.toml overwrite
plan job.toml -o one.json --report one.json | one.json overwrite
plan job.toml -o repository | repository folder
plan job.toml --report missing/r.html | missing/r.html folder
auto job.toml --report missing/r.html | missing/r.html folder
auto job.toml --precision fp8 | precision fp8
auto job.toml --backend cuda | cuda not built
auto job.toml --data missing.txt | run.data missing.txt
run plan.json | run.data --data
run plan.json --data short.txt | run.data short.txt 33
run plan.json --data hollow | run.data hollow
run plan.json --data repository/README.md --sequence 16 | --data --steps --backend
run plan.json --data repository/README.md --comm mpi | mpi not built
run plan.json --data repository/README.md --resume | resume not built
run plan.json --data repository/README.md --steps 0 | steps 0
run fp8.json --data repository/README.md | precision fp8 bf16
run small.json --data repository/README.md | vocabulary 64 256
model empty.json | empty.json
model gpt-nano --sequence 0 | sequence 0
model gpt-nano --sequence 513 | 513 512
cluster localhost --ranks 0 | search.ranks 0
cluster localhost --ranks 4294967295 | search.ranks 4294967295 1024
cluster localhost --nodes 2 | cluster.nodes 2
cluster h100-sxm --ranks 2 | --ranks localhost
cluster h100-sxm --nodes 0 | cluster.nodes 0
cluster h100-sxm --nodes 4294967295 | cluster.nodes 4294967295
cluster h100 | h100 h100-sxm
JOB [model] => [modle] | modle
JOB source = "gpt-nano" => sorce = "gpt-nano" | model.sorce source
JOB sequence = 32 => sequence = "32" | training.sequence
JOB sequence = 32 => sequence = 0 | training sequence 0
JOB sequence = 32 => sequence = 513 | training.sequence 513 512
JOB sequence = 32 => sequence = 18446744073709551615 | training.sequence
JOB global_batch = 8 => global_batch = 0 | global_batch 0
JOB global_batch = 8 => global_batch = 1000000000000 | global_batch 1000000000000
JOB global_batch = 8 => global_batch = 8.5 | training.global_batch 8.5
JOB steps = 1 => steps = 0 | run.steps 0
JOB steps = 1 => steps = 1, | line
JOB [run] => [search]¶pin = "sp=2"¶[run] | search.pin sp=2
JOB [run] => [search]¶pin = "ep=2"¶[run] | search.pin ep=2 not built
JOB [run] => [search]¶ranks = 0¶[run] | search.ranks 0
JOB [run] => [search]¶ranks = 5¶[run] | search.ranks 5 4
JOB [run] => [search]¶target = "megatron"¶[run] | search.target megatron not built
JOB source = "pair.toml" => source = "pair.toml"¶nodes = 0 | cluster.nodes 0
PAIR name = "Test CPU" => nam = "Test CPU" | device.nam name
PAIR [device] => [devize] | devize
PAIR kind = "cpu" => kind = "tpu" | device.kind tpu
PAIR bandwidth = 8e9 => bandwidth = nan | levels.memory.bandwidth NaN
PAIR bandwidth = 8e9 => bandwidth = -8e9 | levels.memory.bandwidth -8
PAIR bandwidth = 8e9 => bandwidth = inf | levels.memory.bandwidth inf
PAIR bandwidth = 8e9 => bandwidth = 0 | levels.memory.bandwidth 0
PAIR efficiency = 1.0 => efficiency = 1.5 | efficiency 1.5
PAIR latency = 4_000_000 => latency = 1_000_000_000_000 | latency 1000000000000
PAIR size = 1 => size = 0 | levels size
PAIR size = 1 => size = 4294967295 | levels
PAIR devices_per_node = 1 => devices_per_node = 0 | devices
PAIR devices_per_node = 1 => devices_per_node = 3 | devices_per_node 3
PAIR reserved = 67108864 => reserved = 8589934592 | device.memory
PAIR name = "pair" => name = "" | cluster.name
PAIR name = "pair" => name = "\u001b[2J" | cluster.name
PLAN "version": 1, => "version": 2, | plan.version 2
PLAN "micro_batch": => "micro_batch": 9223372036854775807, "old": | old
PLAN "tp": 2 => "tp": 3 | plan.json
PLAN "tp": 2 => "tp": 0 | mesh.tp 0
PLAN "tp": 2 => "tp": 4294967295 | mesh
PLAN "sequence": 32 => "sequence": NaN | plan.json line
PLAN "sequence": 32 => "sequence": 18446744073709551615 | training.sequence
PLAN "partial": [] => "partial": ["tp"] | plan.json tp
"#;

#[test]
fn every_kind_of_bad_input_is_refused() {
    let w = Workplace::new();
    w.give("job.toml", JOB).give("empty.json", "").give("binary.json", (0..=255).collect::<Vec<u8>>());
    w.give("short.txt", "thirty-two bytes are not enough.");
    std::fs::create_dir(w.path("hollow")).unwrap();
    w.ok(&format!("{PLAN} --pin tp=2,pp=2 -o plan.json -q"));
    w.ok("lower plan.json -o step.program -q");
    w.ok(&format!("{PLAN} --pin dp=4,microbatch=1 -o replicas.json -q"));
    w.ok("simulate replicas.json --trace other.json -q");
    let tiny = r#"{"model_type":"gpt2","vocab_size":64,"n_positions":64,"n_embd":32,"n_layer":1,"n_head":4}"#;
    w.give("config.json", tiny);
    let job = "--cluster pair.toml --sequence 32 --global-batch 8";
    w.ok(&format!("plan --model config.json {job} -o small.json -q"));
    let h100 = "--cluster h100-sxm --nodes 1 --sequence 32 --global-batch 8";
    w.ok(&format!("plan --model gpt-nano {h100} --precision fp8 -o fp8.json -q"));
    let read = |name: &str| std::fs::read_to_string(w.path(name)).unwrap();
    let (plan, program, pair) = (read("plan.json"), read("step.program"), read("pair.toml"));
    w.give("truncated.json", &plan[..plan.len() / 2])
        .give("truncated.program", &program[..program.len() / 2]);
    w.give("single.toml", pair.replace("ranks_per_device = 4", "ranks_per_device = 1"));
    let before = [w.files(), vec!["spoilt.json".into(), "spoilt.toml".into()]].concat();

    for row in TABLE.lines().filter(|l| !l.is_empty()) {
        let (what, words) = row.rsplit_once(" | ").unwrap();
        let spoil = |text: &str, edit: &str| {
            let (from, to) = edit.split_once(" => ").unwrap();
            assert!(text.contains(from), "{what}: there is no `{from}`");
            text.replacen(from, &to.replace('¶', "\n"), 1)
        };
        let arguments = match what.split_once(' ') {
            Some(("JOB", edit)) => {
                w.give("spoilt.toml", spoil(JOB, edit));
                "plan spoilt.toml -o out.json".to_string()
            }
            Some(("PAIR", edit)) => {
                w.give("spoilt.toml", spoil(&pair, edit));
                "cluster spoilt.toml -o out.toml".to_string()
            }
            Some(("PLAN", edit)) => {
                w.give("spoilt.json", spoil(&plan, edit));
                "simulate spoilt.json --trace out.json".to_string()
            }
            _ => what.to_string(),
        };
        let ran = w.run(&arguments);
        assert_eq!(ran.code, 2, "{what}: {}{}", ran.out, ran.err);
        let message = ran.err.replace("spoilt.json", "plan.json");
        for word in words.split_whitespace() {
            assert!(message.contains(word), "{what}: no `{word}` in\n{message}");
        }
        assert!(w.files().iter().all(|f| before.contains(f)), "{what} leaves {:?}", w.files());
    }
}

#[test]
fn endless_words_make_short_messages() {
    let w = Workplace::new();
    let long = "frob".repeat(4000);
    for arguments in [
        long.clone(),
        format!("plan --precision {long}"),
        format!("plan {long}"),
        format!("model {long}"),
        format!("cluster {long}"),
        format!("plan --model gpt-nano --cluster h100-sxm --sequence 8 --global-batch 8 --pin {long}"),
        format!("check {long}"),
        format!("lower {long}"),
    ] {
        let ran = w.run(&arguments);
        assert_eq!(ran.code, 2);
        assert!(ran.err.contains("frob"), "{}", ran.err);
    }
}

#[test]
fn names_that_are_no_text_are_taken_or_refused() {
    let w = Workplace::new();
    let name = OsStr::from_bytes(b"pl\xffan.json");
    let mut plan = w.command(PLAN);
    assert_eq!(finished("plan", &plan.args([OsStr::new("-o"), name]).output().unwrap()).code, 0);
    let mut simulate = w.command("simulate");
    assert_eq!(finished("simulate", &simulate.arg(name).output().unwrap()).code, 0);
    let mut model = w.command("model");
    assert_eq!(finished("model", &model.arg(name).output().unwrap()).code, 2);
}
