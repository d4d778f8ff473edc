//! How well the simulator ranks layouts: the quick start's model, pinned to six layouts of four ranks on this machine, each
//! planned, simulated and trained. Says what it finds and judges nothing. `-- --fresh` measures this machine again first.
#![allow(missing_docs, clippy::print_stdout)]

use meshwright::host;

#[allow(dead_code)]
mod support;

const RANKS: u32 = 4;
const STEPS: u64 = 15;
const LAYOUTS: [(&str, &str); 6] = [
    ("dp4", "dp=4,tp=1,pp=1"),
    ("tp4", "dp=1,tp=4,pp=1"),
    ("pp4", "dp=1,tp=1,pp=4"),
    ("dp2·tp2", "dp=2,tp=2,pp=1"),
    ("dp2·pp2", "dp=2,tp=1,pp=2"),
    ("tp2·pp2", "dp=1,tp=2,pp=2"),
];

/// Step times in seconds.
#[derive(Clone, Copy)]
struct Pair {
    predicted: f64,
    measured: f64,
}

impl Pair {
    fn error(self) -> f64 {
        (self.predicted - self.measured) / self.measured
    }
}

fn main() {
    let profile = host::profile(std::env::args().any(|a| a == "--fresh"), &|text| println!("{text}"));
    println!("{} on {} cores, {STEPS} steps each, median after warm-up\n", profile.processor, profile.cores);
    let pairs = LAYOUTS.map(|(_, pin)| {
        let plan = support::plan(&support::quickstart(profile.clone(), RANKS, pin));
        let program = meshwright::lower(&plan).expect("a plan lowers");
        let simulated = meshwright::simulate(&program, &plan.job.cluster, false).expect("a small program");
        let ran = meshwright::run(&plan, &program, &support::corpus(), STEPS, &|_, _, _| ());
        let measured = ran.expect("the quick start trains").step_time_s;
        Pair { predicted: simulated.trace.step_time.seconds(), measured }
    });
    table(&pairs);
}

fn table(pairs: &[Pair]) {
    let rank = |of: fn(&Pair) -> f64, x: f64| 1 + pairs.iter().filter(|p| of(p) < x).count();
    println!("layout  | predicted ms | measured ms |   error | rank predicted | rank measured");
    for ((name, _), p) in LAYOUTS.iter().zip(pairs) {
        let ranks = (rank(|p| p.predicted, p.predicted), rank(|p| p.measured, p.measured));
        println!(
            "{name:<7} | {:>12.2} | {:>11.2} | {:>+5.1} % | {:>14} | {:>13}",
            p.predicted * 1e3,
            p.measured * 1e3,
            p.error() * 100.0,
            ranks.0,
            ranks.1
        );
    }
    let worst = pairs.iter().map(|p| p.error().abs()).fold(0.0, f64::max);
    println!("\nmax |error| {:.1} %, Kendall tau {:.2}", worst * 100.0, kendall_tau(pairs));
}

/// Kendall's rank correlation, tau-a: pairs in the same order less pairs in the opposite one, over all pairs.
fn kendall_tau(pairs: &[Pair]) -> f64 {
    let sign = |x: f64| if x == 0.0 { 0.0 } else { x.signum() };
    let agreement = |(k, a): (usize, &Pair)| {
        let with = |b: &Pair| sign(a.predicted - b.predicted) * sign(a.measured - b.measured);
        pairs[..k].iter().map(with).sum::<f64>()
    };
    let n = pairs.len();
    pairs.iter().enumerate().map(agreement).sum::<f64>() / (n * (n - 1) / 2) as f64
}
