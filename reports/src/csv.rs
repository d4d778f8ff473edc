//! Loss and step time of each step as CSV (RFC 4180, header line, `\n`). A value that is missing or not finite leaves its
//! field empty.

use std::fmt::Write;

/// One line per step, numbered from 1: `step,loss,step_time_s`. Losses are mean nats per token before the update.
pub fn loss_csv(losses: &[f64], step_times_s: &[f64]) -> String {
    let field = |values: &[f64], k: usize| {
        values.get(k).filter(|x| x.is_finite()).map(f64::to_string).unwrap_or_default()
    };
    let mut out = String::from("step,loss,step_time_s\n");
    for k in 0..losses.len().max(step_times_s.len()) {
        writeln!(out, "{},{},{}", k + 1, field(losses, k), field(step_times_s, k)).expect("a string grows");
    }
    out
}
