//! Where one step of the quick start's model goes on one rank: measured time by kind of instruction, beside what the
//! simulator predicts for it.
#![allow(missing_docs, clippy::print_stdout)]

use meshwright::host;
use meshwright_ir::Time;
use std::collections::BTreeMap;

#[allow(dead_code)]
mod support;

/// Steps trained; the middle one is traced.
const STEPS: u64 = 15;

fn main() {
    let profile = host::profile(std::env::args().any(|a| a == "--fresh"), &|text| println!("{text}"));
    let plan = support::plan(&support::quickstart(profile, 1, ""));
    let program = meshwright::lower(&plan).expect("a plan lowers");
    let predicted = meshwright::simulate(&program, &plan.job.cluster, false).expect("a small program").trace;
    let ran = meshwright::run(&plan, &program, &support::corpus(), STEPS, &|_, _, _| ());
    let measured = ran.expect("the quick start trains").outcome.trace.expect("a step is traced");

    let expected: BTreeMap<String, Time> =
        predicted.by_kind(&program).into_iter().map(|(kind, time, _)| (kind, time)).collect();
    let mut kinds = measured.by_kind(&program);
    kinds.sort_by_key(|(_, time, _)| std::cmp::Reverse(*time));
    let share = |time: Time| 100.0 * time.seconds() / measured.step_time.seconds();
    println!("kind                         | count | measured ms |  share | predicted ms");
    let line = |kind: &str, count: u64, time: Time, expected: Time| {
        let (ms, predicted) = (time.seconds() * 1e3, expected.seconds() * 1e3);
        println!("{kind:<28} | {count:>5} | {ms:>11.2} | {:>4.1} % | {predicted:>12.2}", share(time));
    };
    for (kind, time, count) in &kinds {
        line(kind, *count, *time, expected.get(kind).copied().unwrap_or_default());
    }
    let total = |of: &dyn Fn(&str) -> bool| {
        let mine = kinds.iter().filter(|(kind, ..)| of(kind));
        mine.fold((0, Time(0), Time(0)), |(n, m, p), (kind, time, count)| {
            (n + count, m + *time, p + expected.get(kind).copied().unwrap_or_default())
        })
    };
    println!();
    // Attention's own products are left out, as it fuses them with the softmax.
    let (count, time, predicted_time) = total(&|kind| kind.starts_with("linear"));
    line("matrix products", count, time, predicted_time);
    let (count, time, predicted_time) = total(&|_| true);
    line("all instructions", count, time, predicted_time);
    line("step", 1, measured.step_time, predicted.step_time);
}
