//! The same job gives the same bytes on any number of threads: plan, program, predicted trace and their report.

use crate::cli::Workplace;

/// The job planned in a folder of its own with so many threads; what it wrote, by name.
fn written(job: &str, threads: &str) -> Vec<(String, Vec<u8>)> {
    let w = Workplace::new();
    for arguments in [
        format!("plan {job} -o plan.json --report plan.html"),
        "lower plan.json -o step.program".into(),
        "simulate plan.json --trace trace.json".into(),
        "report plan.json trace.json -o report.html".into(),
    ] {
        let output = w.command(&arguments).env("RAYON_NUM_THREADS", threads).output().unwrap();
        assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
    }
    let names = ["plan.json", "plan.html", "step.program", "trace.json", "report.html"];
    names.map(|n| (n.to_string(), std::fs::read(w.path(n)).unwrap())).into()
}

fn assert_same_bytes(job: &str) {
    let (one, two) = (written(job, "1"), written(job, "2"));
    for ((name, one), (_, two)) in one.iter().zip(&two) {
        assert!(!one.is_empty() && one == two, "{name} of `{job}` depends on the number of threads");
    }
    assert_eq!(one, written(job, "2"), "`{job}` depends on the run");
}

#[test]
fn a_small_job_on_this_machine() {
    assert_same_bytes("--model gpt-nano --cluster localhost --ranks 4 --sequence 64 --global-batch 16");
}

#[test]
fn a_large_job_on_two_nodes() {
    assert_same_bytes("--model llama3-8b --cluster h100-sxm --nodes 2 --sequence 4096 --global-batch 64");
}
