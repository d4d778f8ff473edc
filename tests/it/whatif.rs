//! `whatif`: the cases of a plan on H100, by library and by command.

use crate::plans;
use expect_test::expect;
use meshwright::what_if::{Case, WhatIf};
use meshwright::{Change, Planned, what_if};
use meshwright_ir::Plan;
use serde_json::Value;
use std::process::{Command, Output};

/// A small model on one node, with choices made here.
fn plan(dp: u32, tp: u32, pp: u32) -> Plan {
    plans::on_h100(dp, tp, pp, None)
}

/// What the planner makes of the same job.
fn planned() -> Plan {
    let Ok(Planned::Fits(plan)) = meshwright::plan(&plan(2, 2, 2).job, &|_| {}) else {
        panic!("a small model fits")
    };
    *plan
}

fn ask(plan: &Plan, changes: &[&str], replan: bool) -> WhatIf {
    let changes: Vec<Change> = changes.iter().map(|t| Change::set(t).unwrap()).collect();
    what_if(plan, &changes, replan).unwrap()
}

fn step(case: &Case) -> f64 {
    case.step_time_s.unwrap_or_else(|| panic!("{}: {:?}", case.change, case.note))
}

#[test]
fn more_of_anything_never_slows() {
    for (dp, tp, pp) in [(8, 1, 1), (2, 2, 2), (1, 4, 2), (2, 4, 1), (1, 1, 4)] {
        let faster = [
            "cluster.levels.nvlink.bandwidth=2x",
            "cluster.levels.nvlink.latency=0.5x",
            "cluster.device.memory_bandwidth=2x",
            "cluster.device.peak.bf16=2x",
            "cluster.device.launch=0",
        ];
        let answer = ask(&plan(dp, tp, pp), &faster, false);
        for case in &answer.cases {
            assert!(step(case) <= step(&answer.baseline), "dp={dp} tp={tp} pp={pp}: {}", case.change);
        }
        assert!(step(&answer.cases[4]) < step(&answer.baseline));
    }
}

#[test]
fn a_straggler_lengthens_a_data_parallel_step_by_its_share_of_compute() {
    let plan = plan(8, 1, 1);
    let program = meshwright::lower(&plan).unwrap();
    let trace = meshwright::simulate(&program, &plan.job.cluster, true).unwrap().trace;
    let compute = trace.breakdown(&program)[3].compute.seconds();
    let answer = what_if(&plan, &[Change::Straggler { rank: 3, slow: 1.3 }], false).unwrap();
    let longer = step(&answer.cases[0]) - step(&answer.baseline);
    // Overlapped collectives may hide a little of it.
    assert!((0.28..=0.3001).contains(&(longer / compute)), "{longer} s of {compute} s");
}

#[test]
fn a_sweep_keeps_its_order_and_repeats_to_the_bit() {
    let plan = plan(2, 2, 2);
    let changes = Change::sweep("training.sequence=16,4,8,12").unwrap();
    let answer = what_if(&plan, &changes, false).unwrap();
    let names: Vec<&str> = answer.cases.iter().map(|c| c.change.as_str()).collect();
    assert_eq!(
        names,
        ["training.sequence=16", "training.sequence=4", "training.sequence=8", "training.sequence=12"]
    );
    assert_eq!(answer.cases[0].step_time_s, answer.baseline.step_time_s);
    assert!(step(&answer.cases[1]) < step(&answer.cases[2]));
    assert_eq!(answer, what_if(&plan, &changes, false).unwrap());
}

#[test]
fn what_cannot_be_says_why_in_its_row() {
    let illegal =
        ["micro_batch=3", "training.global_batch=9", "training.sequence=9", "training.sequence=99999"];
    let answer = ask(&plan(2, 2, 2), &illegal, false);
    for case in &answer.cases {
        assert!(case.step_time_s.is_none() && case.goodput.is_none() && case.note.is_some(), "{case:?}");
    }
    let tight = ask(&plan(2, 2, 2), &["cluster.device.memory=2147500000"], false);
    assert_eq!(tight.cases[0].fits, Some(false));
    assert!(tight.cases[0].step_time_s.is_none());
}

#[test]
fn choices_change_alone_and_the_batch_stays() {
    let plan = plan(2, 2, 2);
    let changes = [
        "plan.micro_batch=2",
        "micro_batches=2",
        "schedule=gpipe",
        "recompute=full",
        "state_sharding=zero-1",
    ];
    let answer = ask(&plan, &changes, false);
    assert!(answer.cases.iter().all(|c| c.fits == Some(true) && !c.plan_changed), "{answer:?}");
    assert_eq!(answer.cases[0].step_time_s, answer.cases[1].step_time_s);
    let most = |c: &Case| c.peak_memory_bytes.clone().unwrap();
    assert!(most(&answer.cases[4]) < most(&answer.baseline));
    let tokens = answer.cases.iter().map(|c| (step(c) * c.goodput.unwrap()).round() as u64);
    assert!(tokens.into_iter().all(|n| n == plan.tokens()));
}

#[test]
fn planning_anew_follows_the_change() {
    let plan = planned();
    let changes = ["training.sequence=16", "cluster.nodes=2", "schedule=gpipe", "micro_batch=2"];
    let answer = ask(&plan, &changes, true);
    assert!(!answer.cases[0].plan_changed, "{:?}", answer.cases[0]);
    assert_eq!(answer.cases[0].step_time_s, Some(plan.prediction.step_time_s));
    assert_eq!(answer.baseline.step_time_s, Some(plan.prediction.step_time_s));
    for case in &answer.cases {
        assert_eq!(case.plan_changed, case.note.is_some(), "{case:?}");
    }
    let nodes = Change::set("cluster.nodes=2").unwrap();
    assert!(what_if(&plan, &[nodes], false).is_err(), "more ranks need a new plan");
    let levels = ["recompute=full", "recompute=none"].map(|c| Change::set(c).unwrap());
    assert!(what_if(&plan, &levels, true).is_ok(), "a pin holds them");
    let micro_batches = Change::set("micro_batches=2").unwrap();
    assert!(what_if(&plan, &[micro_batches], true).is_err(), "no pin can hold it");
}

/// Runs the command on a plan in a folder of its own.
fn command(plan: &Plan, arguments: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("plan.json");
    std::fs::write(&file, meshwright::files::to_json(plan)).unwrap();
    let mut binary = Command::new(env!("CARGO_BIN_EXE_meshwright"));
    binary.current_dir(folder.path()).args(["whatif", "plan.json", "-q"]).args(arguments).output().unwrap()
}

#[test]
fn bad_changes_exit_with_2_and_name_the_way_out() {
    let plan = plan(2, 2, 2);
    let cases: &[(&[&str], &str)] = &[
        (&[], "nothing to change"),
        (&["--fail", "mtbf_hours=100"], "not built yet"),
        (&["--set", "cluster.levels.nvlnk.bandwidth=2x"], "did you mean `cluster.levels.nvlink.bandwidth`"),
        (&["--set", "bandwith=2x"], "Known are"),
        (&["--set", "training.sequence=nan"], "whole number"),
        (&["--set", "training.sequence=-4"], "whole number"),
        (&["--set", "training.sequence=0"], "whole number"),
        (&["--set", "cluster.device.peak.bf16=nan"], "write a number"),
        (&["--set", "cluster.device.peak.bf16=-1"], "write a number"),
        (&["--set", "cluster.device.peak.bf16=nanx"], "no factor"),
        (&["--set", "cluster.levels.nvlink.efficiency=2x"], "at most 1"),
        (&["--set", "schedule=zigzag"], "gpipe"),
        (&["--set", "schedule=2x"], "write a word"),
        (&["--set", "training.sequence"], "PATH=VALUE"),
        (&["--sweep", "training.sequence=4,,8"], "empty value"),
        (&["--sweep", "training.sequence=4,x"], "whole number"),
        (&["--straggler", "rank=8,slow=2"], "from 0 to 7"),
        (&["--straggler", "rank=1"], "no factor"),
        (&["--set", "cluster.nodes=2"], "--replan"),
    ];
    for (arguments, said) in cases {
        let output = command(&plan, &[*arguments, &["--json"]].concat());
        let words: Vec<String> =
            String::from_utf8_lossy(&output.stderr).split_whitespace().map(String::from).collect();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(output.stdout.is_empty() && output.stderr.len() <= 2048, "{arguments:?}");
        assert!(words.join(" ").contains(said), "{arguments:?}: {}", words.join(" "));
    }
}

#[test]
fn json_is_one_object_with_the_fields_of_the_contract() {
    let output =
        command(&plan(2, 2, 2), &["--json", "--set", "micro_batch=3", "--straggler", "rank=3,slow=1.3"]);
    assert_eq!(output.status.code(), Some(0));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["goodput_convention"], "tokens per second of one uninterrupted step");
    let cases = json["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 2);
    for case in cases.iter().chain([&json["baseline"]]) {
        let fields =
            ["change", "step_time_s", "goodput", "plan_changed", "speedup", "peak_memory_bytes", "fits"];
        assert!(fields.iter().all(|f| case.get(f).is_some()), "{case}");
    }
    assert!(cases[0]["step_time_s"].is_null() && cases[0]["note"].is_string());
    assert!(cases[1]["speedup"].as_f64().unwrap() < 1.0);
}

#[test]
fn a_person_reads_a_table() {
    let changes = ["--sweep", "cluster.levels.nvlink.bandwidth=0.5x,2x", "--set", "micro_batch=3"];
    let arguments = [&changes[..], &["--straggler", "rank=3,slow=1.3"]].concat();
    let output = command(&plan(2, 2, 2), &arguments);
    let told = String::from_utf8(output.stdout).unwrap();
    expect![[r#"
        $ meshwright whatif plan.json --sweep cluster.levels.nvlink.bandwidth=0.5x,2x --set micro_batch=3 --straggler rank=3,slow=1.3
          change                                         peak memory  step time  tokens/s  difference  plan changed
          as planned                            2.00 GiB of 80.0 GiB     4.2 ms     30271       0.0 %            no
          micro_batch=3                                            -          -         -           -            no
          cluster.levels.nvlink.bandwidth=0.5x  2.00 GiB of 80.0 GiB     4.2 ms     30269       0.0 %            no
          cluster.levels.nvlink.bandwidth=2x    2.00 GiB of 80.0 GiB     4.2 ms     30271       0.0 %            no
          straggler rank=3,slow=1.3             2.00 GiB of 80.0 GiB     4.5 ms     28690      +5.5 %            no

          - micro_batch=3: plan.micro_batches: 2 x 3 x 1; dp x fsdp x micro_batch x micro_batches must be
            the global batch
    "#]].assert_eq(&format!("$ meshwright whatif plan.json {}\n{told}", arguments.join(" ")));
}
