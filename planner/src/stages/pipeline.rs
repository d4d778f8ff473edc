//! A bound on the step of a pipeline from the totals of its stages, one stage at a time from the last to the first. It is
//! the longest of these paths through the schedule: down to a stage, all of its work with what it must wait for later
//! stages (the round trip of its first micro-batch, of its last, and of as many between as follow each other), and back up.
//! For equal stages it is the textbook's (m - 1)·T + p·T. The invariant: it never exceeds the closed form, and grows with
//! every part and every label, so that a label which is nowhere larger than another may replace it.

use meshwright_ir::Schedule;

/// A run of blocks as a stage, in picoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Part {
    /// One micro-batch forward.
    pub(crate) forward: u64,
    /// One micro-batch backward.
    pub(crate) backward: u64,
    /// From the start of the last backward until all gradients are summed.
    pub(crate) synced: u64,
    /// After that: sums over stages, and the gradient norm.
    pub(crate) norm: u64,
    /// The optimizer.
    pub(crate) update: u64,
}

/// How stages follow each other.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pipeline<'a> {
    /// A message between each stage and the next.
    pub(crate) hop: &'a [u64],
    pub(crate) schedule: Schedule,
    pub(crate) micro_batches: u64,
    /// Whether updates wait for the norm of every stage.
    pub(crate) clips: bool,
}

/// The stages from one on, as far as the stages before it are concerned.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Label {
    /// When the last of them has formed its norm, from the start of the first one; with its update where nothing clips.
    pub(crate) done: u64,
    /// When the first of them ends its last backward.
    pub(crate) ends: u64,
    /// Round trip of one micro-batch.
    pub(crate) trip: u64,
    /// The longest update that waits for all norms.
    pub(crate) update: u64,
}

impl Label {
    /// Whether this one is nowhere larger.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        let parts = |l: &Self| [l.done, l.ends, l.trip, l.update];
        parts(self).iter().zip(parts(other)).all(|(a, b)| *a <= b)
    }

    /// The least of both in every part.
    pub(crate) fn under(&self, other: &Self) -> Self {
        Self {
            done: self.done.min(other.done),
            ends: self.ends.min(other.ends),
            trip: self.trip.min(other.trip),
            update: self.update.min(other.update),
        }
    }

    /// Step time, were there no stage before.
    pub(crate) fn step(&self) -> u64 {
        self.done + self.update
    }
}

/// The micro-batches whose round trip through later stages a stage may have to wait for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Waits {
    /// Forwards it has left while it waits for the first micro-batch, and backwards while it waits for the last.
    pub(crate) meanwhile: u64,
    /// Whether those two are one wait.
    pub(crate) one: bool,
    /// So many between, with as many of both passes to do meanwhile.
    pub(crate) between: u64,
}

impl Pipeline<'_> {
    /// Number of stages.
    pub(crate) fn stages(&self) -> usize {
        self.hop.len() + 1
    }

    /// A message to the next stage; nothing follows the last.
    pub(crate) fn hop(&self, stage: usize) -> u64 {
        self.hop.get(stage).copied().unwrap_or(0)
    }

    /// What a stage waits for.
    pub(crate) fn waits(&self, stage: usize) -> Waits {
        let m = self.micro_batches;
        let ahead = match self.schedule {
            Schedule::Gpipe => m,
            Schedule::OneForwardOneBackward => m.min((self.stages() - stage) as u64),
        };
        // Micro-batches 0, w, 2w, ... follow each other; the last wait must come after theirs.
        let between = ((m - 1) / ahead).saturating_sub(1);
        Waits { meanwhile: ahead - 1, one: m <= ahead, between }
    }

    /// Least time from the start of a stage's first forward to the end of its last backward; `trip` is the round trip from
    /// its output back to it.
    pub(crate) fn own(&self, stage: usize, part: &Part, trip: u64) -> u64 {
        let Waits { meanwhile, one, between } = self.waits(stage);
        let (f, b) = (part.forward, part.backward);
        let wait = |work: u64| trip.saturating_sub(meanwhile * work);
        let ends = if one { wait(f).max(wait(b)) } else { wait(f) + wait(b) };
        self.micro_batches * (f + b) + ends + between * wait(f + b)
    }

    /// The label with one more stage before it.
    pub(crate) fn before(&self, stage: usize, part: &Part, after: Option<&Label>) -> Label {
        let hop = self.hop(stage);
        let later = after.copied().unwrap_or_default();
        let trip = if after.is_some() { later.trip + 2 * hop } else { 0 };
        let passed = if after.is_some() { part.forward + hop + later.ends + hop + part.backward } else { 0 };
        let ends = self.own(stage, part, trip).max(passed);
        let (inside, waiting) = if self.clips { (0, part.update) } else { (part.update, 0) };
        let done = ends - part.backward + part.synced + part.norm + inside;
        Label {
            done: done.max(if after.is_some() { part.forward + hop + later.done } else { 0 }),
            ends,
            trip: trip + part.forward + part.backward,
            update: later.update.max(waiting),
        }
    }

    /// The bound of these stages.
    #[cfg(test)]
    pub(crate) fn bound(&self, parts: &[Part]) -> u64 {
        let mut label = None;
        for (stage, part) in parts.iter().enumerate().rev() {
            label = Some(self.before(stage, part, label.as_ref()));
        }
        label.map_or(0, |l| l.step())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::closed_form::{StageTime, step};
    use crate::random::Random;

    #[test]
    fn no_closed_form_is_under_the_bound_and_equal_stages_meet_it() {
        let mut r = Random(5);
        let (mut met, mut total, mut most) = (0u64, 0u64, 0.0f64);
        for _ in 0..20_000 {
            let (p, m) = (1 + r.below(6) as usize, 1 + r.below(12));
            let hop: Vec<u64> = (1..p).map(|_| if r.below(2) == 0 { 0 } else { r.below(40) }).collect();
            let schedule = [Schedule::Gpipe, Schedule::OneForwardOneBackward][r.below(2) as usize];
            let clips = r.below(2) == 0;
            let spread = [1, 5, 40][r.below(3) as usize];
            let stage = |r: &mut Random| StageTime {
                forward: 20 + r.below(spread),
                backward: (0..1 + r.below(3)).map(|_| 15 + r.below(spread)).collect(),
                first: if r.below(8) == 0 { r.below(20) } else { 0 },
                scatter: vec![],
                sync: vec![],
                compute: 0,
                norm: r.below(spread),
                update: r.below(3 * spread),
            };
            let mut stages: Vec<StageTime> = (0..p).map(|_| stage(&mut r)).collect();
            for s in &mut stages {
                s.sync = s.backward.iter().map(|_| r.below(30)).collect();
                s.scatter = s.backward.iter().map(|_| r.below(2) * r.below(20)).collect();
            }
            let parts: Vec<Part> = stages.iter().map(StageTime::part).collect();
            let pipeline = Pipeline { hop: &hop, schedule, micro_batches: m, clips };
            let (bound, time) = (pipeline.bound(&parts), step(&stages, &hop, schedule, m as u32, clips).step);
            assert!(bound <= time, "{bound} > {time}: {stages:?} {hop:?} {schedule} {m}");
            (met, total) = (met + u64::from(bound == time), total + 1);
            most = most.max(time as f64 / bound as f64);
        }
        // Measured: half are met, and few are far.
        assert!(3 * met > total && most < 2.0, "{met} of {total} met, one exceeds by {most}");
        for (p, m) in (1..6usize).flat_map(|p| (1..9u64).map(move |m| (p, m))) {
            let hop = vec![0; p - 1];
            let schedule = Schedule::OneForwardOneBackward;
            let part = Part { forward: 3, backward: 5, synced: 5, ..Part::default() };
            let pipeline = Pipeline { hop: &hop, schedule, micro_batches: m, clips: false };
            assert_eq!(pipeline.bound(&vec![part; p]), (m - 1) * 8 + p as u64 * 8);
        }
    }
}
