//! 1F1B with flush (PipeDream-flush; Narayanan et al. 2021): a warm-up of one forward per later stage, then one forward
//! and one backward in turn, then the remaining backwards. At most `stages - stage` micro-batches are in flight.

use super::Task;

/// Warm-up, steady state, drain.
pub(super) fn order(stage: u32, stages: u32, m: u32) -> Vec<Task> {
    let warmup = (stages - 1 - stage).min(m);
    let steady = (0..m - warmup).flat_map(|k| [Task::F(warmup + k), Task::B(k)]);
    (0..warmup).map(Task::F).chain(steady).chain((m - warmup..m).map(Task::B)).collect()
}
