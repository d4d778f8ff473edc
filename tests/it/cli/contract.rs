//! The contract's field table: every name it promises is there, and numbers that are told twice agree.

use super::{PLAN, Workplace};
use serde_json::Value;

const MESH: &str = "dp fsdp tp sp cp ep etp pp vpp";
const PLAN_FIELDS: &str = "status mesh microbatch microbatches schedule recompute optimizer_sharding step_time_s \
    step_time_band_s tokens_per_s mfu mfu_convention peak_memory_bytes lower_bound_s gap search search.candidates \
    search.pruned search.solved search.simulated timing timing.seconds timing.configs_per_s alternatives why";
const SIMULATE_FIELDS: &str = "step_time_s tokens_per_s mfu bubble_fraction exposed_comm_fraction peak_memory_bytes \
    instructions critical_path timing timing.seconds timing.instructions_per_s";
const RUN_FIELDS: &str = "losses step_time_s.measured step_time_s.predicted step_time_s.error \
    peak_memory_bytes.measured peak_memory_bytes.predicted weights_hash";
const MODEL_FIELDS: &str = "family total_params active_params embedding_params layers flops_per_token.forward \
    flops_per_token.training flops_per_token.convention";

fn at<'v>(value: &'v Value, path: &str) -> Option<&'v Value> {
    path.split('.').try_fold(value, |v, key| v.get(key))
}

/// Every field is there, and known unless `unknown` names it.
fn assert_fields(what: &str, value: &Value, fields: &str, unknown: &[&str]) {
    for path in fields.split_whitespace() {
        let found = at(value, path).unwrap_or_else(|| panic!("{what} has no `{path}`"));
        assert!(!found.is_null() || unknown.contains(&path), "{what}: `{path}` is null");
    }
}

fn number(value: &Value, path: &str) -> f64 {
    at(value, path).and_then(Value::as_f64).unwrap_or_else(|| panic!("`{path}` is no number in {value}"))
}

fn bytes(value: &Value, path: &str) -> Vec<u64> {
    let list = at(value, path).and_then(Value::as_array).unwrap_or_else(|| panic!("`{path}` is no list"));
    list.iter().map(|n| n.as_u64().unwrap()).collect()
}

#[test]
fn every_field_is_there_and_numbers_told_twice_agree() {
    let w = Workplace::new();
    let plan = w.json(&format!("{PLAN} --pin tp=2,pp=2,microbatch=2 -o plan.json"), 0);
    assert_fields("plan", &plan, PLAN_FIELDS, &[]);
    assert_fields("plan.mesh", &plan["mesh"], MESH, &[]);
    assert_eq!(plan["status"], "ok");
    let step = number(&plan, "step_time_s");
    assert!(step > 0.0 && number(&plan, "lower_bound_s") <= step);
    let band = plan["step_time_band_s"].as_array().unwrap();
    assert!(band.len() == 2 && band[0].as_f64().unwrap() <= step && step <= band[1].as_f64().unwrap());
    assert!((0.0..=1.0).contains(&number(&plan, "gap")) && (0.0..=1.0).contains(&number(&plan, "mfu")));
    assert_eq!(number(&plan, "tokens_per_s"), 256.0 / step);

    let lowered = w.json("lower plan.json -o step.program", 0);
    assert_fields("lower", &lowered, "roles instructions planned_peak_bytes", &[]);
    assert_eq!(lowered["roles"], 2);

    let simulated = w.json("simulate plan.json --trace predicted.json", 0);
    assert_fields("simulate", &simulated, SIMULATE_FIELDS, &[]);
    assert_eq!(simulated["step_time_s"], plan["step_time_s"]);
    assert_eq!(simulated["mfu"], plan["mfu"]);
    let (closed, planned) = (bytes(&plan, "peak_memory_bytes"), bytes(&simulated, "peak_memory_bytes"));
    for (closed, planned) in closed.iter().zip(&planned) {
        assert!(closed >= planned && *closed as f64 <= 1.02 * *planned as f64, "{closed} for {planned}");
    }
    let of_program = w.json("simulate step.program --cluster pair.toml", 0);
    assert_fields("simulate PROGRAM", &of_program, SIMULATE_FIELDS, &["mfu"]);
    for field in ["step_time_s", "peak_memory_bytes", "instructions", "critical_path"] {
        assert_eq!(of_program[field], simulated[field], "{field}");
    }
    let unfolded = w.json("simulate plan.json --unfold", 0);
    assert_eq!(unfolded["step_time_s"], simulated["step_time_s"]);

    let ran = w.json("run plan.json --data repository/README.md --steps 2 --trace measured.json", 0);
    assert_fields("run", &ran, RUN_FIELDS, &[]);
    assert_eq!(ran["losses"].as_array().unwrap().len(), 2);
    assert_eq!(ran["step_time_s"]["predicted"], plan["step_time_s"]);
    let (used, planned) =
        (bytes(&ran, "peak_memory_bytes.measured"), bytes(&ran, "peak_memory_bytes.predicted"));
    assert!(used.iter().zip(&planned).all(|(used, planned)| used <= planned), "{used:?} of {planned:?}");
    assert_eq!(planned, bytes(&lowered, "planned_peak_bytes"));

    let report = w.json("report plan.json predicted.json measured.json -o report.html", 0);
    assert_eq!(report["path"], "report.html");
    assert!(std::fs::read_to_string(w.path("report.html")).unwrap().starts_with("<!DOCTYPE html>"));
    for trace in ["predicted.json", "measured.json"] {
        let trace: Value = serde_json::from_slice(&std::fs::read(w.path(trace)).unwrap()).unwrap();
        assert!(!trace["traceEvents"].as_array().unwrap().is_empty());
    }
}

#[test]
fn the_quick_start_is_the_four_commands_in_one() {
    let w = Workplace::new();
    let auto =
        w.json("auto repository/examples/quickstart.toml --steps 2 --sequence 32 --report report.html", 0);
    assert_fields("auto", &auto, "plan simulate run report", &[]);
    assert_fields("auto.plan", &auto["plan"], PLAN_FIELDS, &[]);
    assert_fields("auto.simulate", &auto["simulate"], SIMULATE_FIELDS, &[]);
    assert_fields("auto.run", &auto["run"], RUN_FIELDS, &[]);
    assert_eq!(auto["report"], "report.html");
    assert_eq!(w.files(), ["pair.toml", "report.html", "repository"]);
}

#[test]
fn models_and_clusters() {
    let w = Workplace::new();
    let model = w.json("model gpt-nano", 0);
    assert_fields("model", &model, MODEL_FIELDS, &[]);
    // As many tokens as the model has positions, where the usual 2048 are too many.
    assert_eq!(model["flops_per_token"], w.json("model gpt-nano --sequence 512", 0)["flops_per_token"]);
    let large = w.json("model repository/examples/llama3-70b/config.json", 0);
    assert_eq!(large["total_params"], 70_553_706_496u64);
    assert_eq!(large["flops_per_token"]["sequence"], 2048);

    let cluster = w.json("cluster h100-sxm --nodes 64 -o cluster.toml", 0);
    assert_fields("cluster", &cluster, "devices nodes device levels warnings", &[]);
    assert_eq!((&cluster["devices"], &cluster["nodes"]), (&512.into(), &64.into()));
    for level in cluster["levels"].as_array().unwrap() {
        assert_fields("cluster.levels", level, "name size bandwidth latency", &[]);
    }
    // Seconds, not picoseconds, and as written.
    assert_eq!(cluster["levels"][0]["latency"], 1.8725e-6);
    let again = w.json("cluster cluster.toml", 0);
    assert_eq!(again["levels"], cluster["levels"]);
    assert_eq!(w.json("cluster localhost --ranks 3", 0)["devices"], 1);
}

#[test]
fn no_plan_has_the_fields_of_a_plan() {
    let w = Workplace::new();
    let none =
        w.json("plan --model llama3-70b --cluster h100-sxm --nodes 1 --sequence 512 --global-batch 8", 1);
    let unknown: Vec<&str> = PLAN_FIELDS.split_whitespace().filter(|f| none[*f].is_null()).collect();
    assert_fields("plan", &none, PLAN_FIELDS, &unknown);
    assert_eq!(none["status"], "no_fit");
    assert!(none["search"]["candidates"].as_u64().unwrap() > 0);
    assert!(!none["why"].as_array().unwrap().is_empty() && none["smallest_change"].is_string());
    let plan = w.json(PLAN, 0);
    let names = |v: &Value| v.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let mut expected = names(&plan);
    expected.push("smallest_change".into());
    expected.sort();
    let mut found = names(&none);
    found.sort();
    assert_eq!(found, expected);
}
