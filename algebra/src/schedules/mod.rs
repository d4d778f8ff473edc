//! Pipeline schedules: the order in which a stage runs its micro-batches. An order is only a list; messages, buffers and
//! times come from others. Every schedule is one file and one line in [`order`].

mod gpipe;
mod one_forward_one_backward;

use meshwright_ir::Schedule;
use std::fmt;

/// One pass of one micro-batch through a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Task {
    /// Forward.
    F(u32),
    /// Backward.
    B(u32),
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Task::F(k) => write!(f, "F{k}"),
            Task::B(k) => write!(f, "B{k}"),
        }
    }
}

/// What stage `stage` of `stages` runs, for `m` micro-batches.
pub fn order(schedule: Schedule, stage: u32, stages: u32, m: u32) -> Vec<Task> {
    match schedule {
        Schedule::Gpipe => gpipe::order(m),
        Schedule::OneForwardOneBackward => one_forward_one_backward::order(stage, stages, m),
    }
}

/// Most micro-batches between their forward and the end of their backward, by replay.
pub fn in_flight(order: &[Task]) -> u64 {
    let live = order.iter().scan(0u64, |live, task| {
        let peak = match task {
            Task::F(_) => {
                *live += 1;
                *live
            }
            Task::B(_) => {
                *live -= 1;
                *live + 1
            }
        };
        Some(peak)
    });
    live.max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    fn check(schedule: Schedule, stages: u32, m: u32, expected: Expect) {
        let listing: String = (0..stages)
            .map(|s| {
                let tasks: Vec<_> = order(schedule, s, stages, m).iter().map(Task::to_string).collect();
                format!("stage {s}: {}\n", tasks.join(" "))
            })
            .collect();
        expected.assert_eq(&listing);
    }

    #[test]
    fn golden_listings() {
        check(
            Schedule::OneForwardOneBackward,
            2,
            3,
            expect![[r#"
            stage 0: F0 F1 B0 F2 B1 B2
            stage 1: F0 B0 F1 B1 F2 B2
        "#]],
        );
        check(
            Schedule::Gpipe,
            2,
            3,
            expect![[r#"
            stage 0: F0 F1 F2 B0 B1 B2
            stage 1: F0 F1 F2 B0 B1 B2
        "#]],
        );
    }

    #[test]
    fn every_micro_batch_goes_forward_then_backward_and_in_flight_has_its_closed_form() {
        for schedule in [Schedule::Gpipe, Schedule::OneForwardOneBackward] {
            for (stages, m) in (1..7).flat_map(|p| (1..9).map(move |m| (p, m))) {
                for stage in 0..stages {
                    let tasks = order(schedule, stage, stages, m);
                    for k in 0..m {
                        let at = |t| tasks.iter().position(|x| *x == t).unwrap();
                        assert!(at(Task::F(k)) < at(Task::B(k)));
                    }
                    assert_eq!(tasks.len() as u32, 2 * m);
                    let closed = match schedule {
                        Schedule::Gpipe => m,
                        // Narayanan et al. 2021: at most p - stage micro-batches, when there are that many.
                        Schedule::OneForwardOneBackward => m.min(stages - stage),
                    };
                    assert_eq!(in_flight(&tasks), u64::from(closed));
                }
            }
        }
    }
}
