//! The machine's measurement: every sample is a positive, finite time, and the whole takes a few seconds.

use meshwright_executor::microbench::{Sample, measure};

#[test]
#[allow(clippy::print_stdout)]
fn measurement_is_complete() {
    let began = std::time::Instant::now();
    let samples = measure();
    let elapsed = began.elapsed();
    for Sample { name, shape, seconds, bytes, .. } in &samples {
        assert!(seconds.is_finite() && *seconds > 0.0 && *bytes > 0.0, "{name} {shape}: {seconds}");
    }
    let names = ["linear", "attention", "gelu", "adamw", "copy", "all_reduce", "hand_off"];
    assert!(names.iter().all(|name| samples.iter().any(|sample| sample.name == *name)));
    assert!(elapsed.as_secs() < 30, "took {elapsed:?}");
    let shown: String = samples.iter().map(show).collect();
    // Seen with `cargo test -- --nocapture`.
    println!("{shown}in {elapsed:?}");
}

fn show(s: &Sample) -> String {
    let (gflops, gigabytes) = (s.flops / s.seconds * 1e-9, s.bytes / s.seconds * 1e-9);
    let time = s.seconds * 1e6;
    let what = format!("{} {:?} {}", s.name, s.pass, s.shape);
    format!("{what:75} x{} {time:10.2} us {gflops:7.1} GFLOP/s {gigabytes:6.1} GB/s\n", s.threads)
}
