//! x
#![allow(missing_docs, clippy::print_stdout, clippy::unwrap_used)]
fn main() {
    let a: Vec<String> = std::env::args().collect();
        let b = std::fs::read(&a[1]).unwrap();
        let i = meshwright_planner::shard::parse(&b).unwrap();
        println!("{}", meshwright_planner::shard::stats(&i));
        meshwright_planner::shard::dual_trial(&i, a[2].parse().unwrap());
}
