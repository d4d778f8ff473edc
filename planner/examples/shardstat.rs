//! x
#![allow(missing_docs, clippy::print_stdout, clippy::unwrap_used)]
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let t = std::time::Instant::now();
    let b = std::fs::read(&a[1]).unwrap();
    let limit: f64 = a[2].parse().unwrap();
    let i = meshwright_planner::shard::parse(&b).unwrap();
    let answer = meshwright_planner::shard::solve(&i, meshwright_planner::shard::Effort { threads: a[3].parse().unwrap(), sweeps: None, stop: &|| t.elapsed().as_secs_f64() > limit });
    println!("{} {:?} bound {} proved {} left {:?} {:?} {:.2}s", a[1], answer.best.as_ref().map(|b| b.1), answer.lower_bound, answer.proved(), answer.left, answer.infeasible, t.elapsed().as_secs_f64());
}
