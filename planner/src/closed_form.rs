//! Step time without simulation. Stages run the schedule's own order with a message's delay between them (max-plus
//! recurrence, which for equal stages and no delay is (m - 1)·T + p·T); gradients are summed while the last micro-batch
//! runs backward; then norm and update. Within a stage, blocks follow each other and each takes its overlapped time. The
//! invariant: the parts of a [`Breakdown`] add up to the step.

use crate::stages::Part;
use meshwright_algebra::schedules::{Task, order};
use meshwright_ir::Schedule;

/// One stage, in picoseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct StageTime {
    /// One micro-batch forward.
    pub(crate) forward: u64,
    /// One micro-batch backward, per block in chain order.
    pub(crate) backward: Vec<u64>,
    /// Kernels of one micro-batch, both passes.
    pub(crate) compute: u64,
    /// How much longer the first forward takes, from the start of the step.
    pub(crate) first: u64,
    /// Summing the split gradients of each block into pieces after its backward, in chain order.
    pub(crate) scatter: Vec<u64>,
    /// Summing the others after the last backward, and the pieces over what replicates them.
    pub(crate) sync: Vec<u64>,
    /// After that: sums over stages, and the gradient norm.
    pub(crate) norm: u64,
    /// The optimizer.
    pub(crate) update: u64,
}

impl StageTime {
    /// From the start of the last backward until all gradients are summed, each block's once its backward is done.
    pub(crate) fn synced(&self) -> u64 {
        let (mut done, mut scattered, mut free) = (0u64, 0, 0);
        let moves = self.scatter.iter().zip(&self.sync);
        for (backward, (scatter, sync)) in self.backward.iter().zip(moves).rev() {
            done += backward;
            scattered = done.max(scattered) + scatter;
            free = if *scatter > 0 { scattered } else { done }.max(free) + sync;
        }
        free.max(scattered).max(done)
    }

    /// Its totals.
    pub(crate) fn part(&self) -> Part {
        Part {
            forward: self.forward,
            backward: self.backward.iter().sum(),
            synced: self.synced(),
            norm: self.norm,
            update: self.update,
        }
    }
}

/// Where a step's time goes, on the slowest stage's account; in picoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Breakdown {
    /// All of it.
    pub(crate) step: u64,
    /// Kernels of the slowest stage.
    pub(crate) compute: u64,
    /// What its collectives add to them.
    pub(crate) communication: u64,
    /// What waiting for other stages adds.
    pub(crate) bubble: u64,
    /// What summing gradients adds.
    pub(crate) gradients: u64,
    /// Norm and update.
    pub(crate) update: u64,
}

/// Step time of `m` micro-batches; `hop[s]` is a message between stages `s` and `s + 1`. With `clips`, updates wait for
/// the norm of every stage.
pub(crate) fn step(stages: &[StageTime], hop: &[u64], schedule: Schedule, m: u32, clips: bool) -> Breakdown {
    let backward = |s: &StageTime| s.backward.iter().sum::<u64>();
    let passes: Vec<[u64; 3]> = stages.iter().map(|s| [s.forward, backward(s), s.first]).collect();
    let ends = pipeline(schedule, &passes, hop, m);
    let last = ends.iter().copied().max().unwrap_or(0);
    let synced: Vec<u64> = stages.iter().zip(&ends).map(|(s, end)| end - backward(s) + s.synced()).collect();
    let normed: Vec<u64> = synced.iter().zip(stages).map(|(t, s)| t + s.norm).collect();
    let ready = normed.iter().copied().max().unwrap_or(0);
    let start = |k: usize| if clips { ready } else { normed[k] };
    let step = (0..stages.len()).map(|k| start(k) + stages[k].update).max().unwrap_or(0);
    let slowest = stages.iter().max_by_key(|s| s.forward + backward(s));
    let busy = slowest.map_or(0, |s| u64::from(m) * (s.forward + backward(s)));
    let compute = slowest.map_or(0, |s| u64::from(m) * s.compute).min(busy);
    let gradients = synced.iter().copied().max().unwrap_or(0) - last;
    // What must be gathered before anything begins waits for no other stage.
    let gathered = slowest.map_or(0, |s| s.first).min(last - busy);
    Breakdown {
        step,
        compute,
        communication: busy - compute + gathered,
        bubble: last - busy - gathered,
        gradients,
        update: step - last - gradients,
    }
}

/// When each stage ends its last task, given its forward, its backward, and how much longer the first forward takes if it
/// begins at once.
fn pipeline(schedule: Schedule, stages: &[[u64; 3]], hop: &[u64], m: u32) -> Vec<u64> {
    let p = stages.len();
    let orders: Vec<Vec<Task>> = (0..p).map(|s| order(schedule, s as u32, p as u32, m)).collect();
    let unset = u64::MAX;
    let mut forward = vec![vec![unset; m as usize]; p];
    let mut backward = vec![vec![unset; m as usize]; p];
    let (mut next, mut free) = (vec![0usize; p], vec![0u64; p]);
    let mut left: usize = orders.iter().map(Vec::len).sum();
    while left > 0 {
        let before = left;
        for s in (0..p).chain((0..p).rev()) {
            while let Some(task) = orders[s].get(next[s]) {
                let arrived = match task {
                    Task::F(_) if s == 0 => 0,
                    Task::F(k) => forward[s - 1][*k as usize].saturating_add(hop[s - 1]),
                    Task::B(k) if s + 1 == p => forward[s][*k as usize],
                    Task::B(k) => backward[s + 1][*k as usize].saturating_add(hop[s]),
                };
                if arrived == unset {
                    break;
                }
                let start = free[s].max(arrived);
                match task {
                    Task::F(k) => {
                        let [time, _, first] = stages[s];
                        let ready = if *k == 0 { first } else { 0 };
                        free[s] = start.max(ready) + time;
                        forward[s][*k as usize] = free[s];
                    }
                    Task::B(k) => {
                        free[s] = start + stages[s][1];
                        backward[s][*k as usize] = free[s];
                    }
                }
                next[s] += 1;
                left -= 1;
            }
        }
        assert!(left < before, "a schedule that never ends");
    }
    free
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_stages_take_the_textbook_time() {
        for schedule in [Schedule::Gpipe, Schedule::OneForwardOneBackward] {
            for (p, m) in (1..6u64).flat_map(|p| (1..9).map(move |m| (p, m))) {
                let stages = vec![[3, 5, 0]; p as usize];
                let ends = pipeline(schedule, &stages, &vec![0; p as usize], m as u32);
                assert_eq!(ends.into_iter().max(), Some((m - 1) * 8 + p * 8), "{schedule} {p} {m}");
            }
        }
    }

    #[test]
    fn parts_add_up() {
        let stage = |backward: Vec<u64>, sync: Vec<u64>| StageTime {
            forward: 10,
            first: 3,
            compute: 25,
            scatter: vec![0; sync.len()],
            backward,
            sync,
            norm: 2,
            update: 7,
        };
        let stages = [stage(vec![9, 11], vec![30, 1]), stage(vec![12, 12], vec![0, 40])];
        for clips in [false, true] {
            let b = step(&stages, &[3], Schedule::OneForwardOneBackward, 4, clips);
            assert_eq!(b.step, b.compute + b.communication + b.bubble + b.gradients + b.update);
            assert!(b.bubble >= 3 * 2 + 30 && b.gradients > 0);
        }
    }
}
