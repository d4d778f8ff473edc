fn main() {
    for f in std::env::args().skip(1) {
        let v: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&f).unwrap()).unwrap();
        let job: meshwright_ir::Job = serde_json::from_value(v["job"].clone()).unwrap();
        for _ in 0..3 {
            let t = std::time::Instant::now();
            let c = cpu();
            let r = meshwright_planner::search(&job, &|_| ());
            let (e, cpu_) = (t.elapsed().as_secs_f64(), cpu() - c);
            match r {
                meshwright_planner::Verdict::Plans { plans, report } => println!(
                    "{f}: wall {e:.2} cpu {cpu_:.2} solved {} best {} {} bound {} gap {}",
                    report.solved,
                    plans[0].mesh,
                    plans[0].prediction.step_time_s,
                    plans[0].prediction.lower_bound_s,
                    report.surrogate_gap_s
                ),
                _ => println!("{f}: none"),
            }
        }
    }
}
fn cpu() -> f64 {
    let s = std::fs::read_to_string("/proc/self/stat").unwrap();
    let v: Vec<&str> = s.rsplit(')').next().unwrap().split_whitespace().collect();
    (v[11].parse::<f64>().unwrap() + v[12].parse::<f64>().unwrap()) / 100.0
}
