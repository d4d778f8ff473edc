//! Random small stage problems against brute force: the bound, the dynamic programme, the linear programme and the trial.

use super::*;
use crate::closed_form::{StageTime, step};
use crate::levels::{Counts, Kind, Version, every};
use crate::random::Random;
use meshwright_ir::Schedule;
use std::rc::Rc;

/// A chain of blocks with versions, stages with room for frames: what a run may be is every way to fit.
struct Case {
    chain: Vec<usize>,
    forward: Vec<u64>,
    versions: Vec<Vec<Version>>,
    sync: Vec<u64>,
    states: Vec<u64>,
    frames: Vec<u64>,
    limit: u64,
    hop: Vec<u64>,
    schedule: Schedule,
    m: u64,
    clips: bool,
    update: u64,
}

impl Case {
    fn random(r: &mut Random) -> Self {
        let kinds = 1 + r.below(3) as usize;
        let blocks = kinds.max(2) + r.below(4) as usize;
        // As models do: one block of the first kind, one of the last, the rest between.
        let chain = (0..blocks)
            .map(|k| {
                if k == 0 {
                    0
                } else if k + 1 == blocks {
                    kinds - 1
                } else {
                    kinds / 2
                }
            })
            .collect();
        let p = 1 + r.below(blocks.min(4) as u64) as usize;
        let m = 1 + r.below(6);
        let schedule = r.of(&[Schedule::Gpipe, Schedule::OneForwardOneBackward]);
        let ahead = |s: usize| if schedule == Schedule::Gpipe { m } else { m.min((p - s) as u64) };
        let versions = (0..kinds)
            .map(|_| {
                let (mut time, mut frame) = (20 + r.below(40), 30 + r.below(20));
                let n = 1 + r.below(3) as usize;
                (0..n)
                    .map(|_| {
                        let v = Version { time, frame, workspace: r.below(10) };
                        (time, frame) = (time + 1 + r.below(15), frame.saturating_sub(1 + r.below(20)));
                        v
                    })
                    .collect()
            })
            .collect();
        Self {
            chain,
            forward: (0..kinds).map(|_| 5 + r.below(10)).collect(),
            versions,
            sync: (0..kinds).map(|_| r.below(60)).collect(),
            states: (0..kinds).map(|_| r.below(30)).collect(),
            frames: (0..p).map(ahead).collect(),
            limit: 60 + r.below(400),
            hop: (1..p).map(|_| r.below(2) * r.below(20)).collect(),
            schedule,
            m,
            clips: r.below(2) == 0,
            update: r.below(30),
        }
    }

    fn pipeline(&self) -> Pipeline<'_> {
        Pipeline { hop: &self.hop, schedule: self.schedule, micro_batches: self.m, clips: self.clips }
    }

    fn least(&self) -> Vec<(u64, u64)> {
        let of = |k: &usize| (self.forward[*k], self.versions[*k][0].time - self.forward[*k]);
        self.chain.iter().map(of).collect()
    }

    /// The stage of a run whose blocks of each kind take so many of each version, those that take longest first.
    fn time(&self, first: usize, end: usize, kinds: &[usize], counts: &Counts) -> StageTime {
        let mut left = counts.clone();
        let backward = self.chain[first..end].iter().map(|k| {
            let at = kinds.iter().position(|x| x == k).unwrap();
            let v = left[at].iter().rposition(|n| *n > 0).unwrap();
            left[at][v] -= 1;
            self.versions[*k][v].time - self.forward[*k]
        });
        StageTime {
            backward: backward.collect(),
            forward: self.chain[first..end].iter().map(|k| self.forward[*k]).sum(),
            sync: self.chain[first..end].iter().map(|k| self.sync[*k]).collect(),
            first: 0,
            scatter: vec![0; end - first],
            compute: 0,
            norm: 1,
            update: (end - first) as u64 * self.update,
        }
    }

    fn ways(&self, stage: usize, first: usize, end: usize) -> Vec<StageTime> {
        let mut kinds = self.chain[first..end].to_vec();
        kinds.dedup();
        let count = |k: &usize| self.chain[first..end].iter().filter(|x| *x == k).count() as u64;
        let of: Vec<Kind<'_>> =
            kinds.iter().map(|k| Kind { count: count(k), versions: &self.versions[*k] }).collect();
        let states: u64 = self.chain[first..end].iter().map(|k| self.states[*k]).sum();
        let Some(room) = self.limit.checked_sub(states) else { return vec![] };
        let all = every(&of, self.frames[stage], room, 10_000).unwrap();
        all.iter().map(|counts| self.time(first, end, &kinds, counts)).collect()
    }

    /// Every cut and every way: its runs, and the times of its stages.
    fn all(&self) -> Vec<(Vec<Run>, Vec<StageTime>)> {
        let p = self.frames.len();
        let mut all = vec![(vec![], vec![])];
        let mut firsts = vec![vec![0]];
        for stage in 0..p {
            let mut next = (vec![], vec![]);
            for ((runs, times), at) in all.iter().zip(&firsts) {
                let first = *at.last().unwrap();
                let ends = if stage + 1 == p {
                    self.chain.len()..=self.chain.len()
                } else {
                    first + 1..=self.chain.len()
                };
                for end in ends.filter(|e| *e > first) {
                    for (k, way) in self.ways(stage, first, end).into_iter().enumerate() {
                        let (mut runs, mut times): (Vec<Run>, Vec<StageTime>) = (runs.clone(), times.clone());
                        runs.push((first, k));
                        times.push(way);
                        next.0.push((runs, times));
                        next.1.push([&at[..], &[end]].concat());
                    }
                }
            }
            (all, firsts) = next;
        }
        all
    }
}

#[test]
fn bound_programmes_and_trial_agree_with_every_cut() {
    let mut r = Random(21);
    let (mut solved, mut open, mut closed) = (0, 0, 0);
    for case in 0..800 {
        let c = Case::random(&mut r);
        let every: Vec<(Vec<Run>, Vec<StageTime>)> = c.all();
        let time = |times: &[StageTime]| step(times, &c.hop, c.schedule, c.m as u32, c.clips).step;
        let parts =
            |stage, first, end| Rc::new(c.ways(stage, first, end).iter().map(StageTime::part).collect());
        let blocks = c.least();
        let problem = Stages { blocks: &blocks, pipeline: c.pipeline(), parts: &parts };
        let least_bound = every.iter().map(|(runs, _)| problem.bound(runs)).min();
        let least_time = every.iter().map(|(_, times)| time(times)).min();
        let found = least(&problem, u64::MAX / 4);
        assert!(found.exact, "case {case} is small");
        assert_eq!(found.cut.as_ref().map(|_| found.bound), least_bound, "case {case}");
        let Some((least_bound, least_time)) = least_bound.zip(least_time) else { continue };
        assert!(least_bound <= least_time, "case {case}");
        let cut = found.cut.unwrap();
        assert_eq!(problem.bound(&cut), least_bound);
        // Nothing is under the bound; all of it is under one more.
        assert_eq!(least(&problem, least_bound).cut, None);
        assert_eq!(least(&problem, least_bound + 1).bound, least_bound);
        if case % 6 == 0 {
            let upper = every.iter().map(|(runs, _)| problem.bound(runs)).max().unwrap() + 1;
            let start = every[0].0.clone();
            for start in [None, Some(&start[..])] {
                match programme(&problem, upper, start) {
                    Answer::Cut(cut) => assert_eq!(problem.bound(&cut), least_bound, "case {case}"),
                    other => panic!("case {case}: {other:?}"),
                }
            }
            assert_eq!(programme(&problem, least_bound, None), Answer::None);
        }
        let of = |cut: &[Run]| {
            let times = &every.iter().find(|(runs, _)| runs == cut).unwrap().1;
            time(times)
        };
        let first = of(&cut);
        let tried = trial(&problem, first, 1 << 20, &of);
        assert!(tried.proven);
        assert_eq!(tried.best.as_ref().map_or(first, |b| b.0), least_time, "case {case}");
        solved += 1;
        open += u32::from(first > least_bound);
        closed += u32::from(first > least_time);
    }
    assert!(solved > 300 && open > 50 && closed > 5, "{solved} solved, {open} open, {closed} improved");
}

/// Rounded labels keep the bound certified.
#[test]
fn a_thinned_bound_is_under_the_best_cut() {
    let mut r = Random(4);
    let mut rounded = 0;
    for _ in 0..30 {
        let (n, p, m) = (14, 4, 1 + r.below(6));
        // Runs of arbitrary parts: as many labels as there can be.
        let mut table = std::collections::BTreeMap::new();
        for stage in 0..p {
            for (first, end) in (0..n).flat_map(|f| (f + 1..=n).map(move |e| (f, e))) {
                let part = |r: &mut Random| {
                    let backward = (end - first) as u64 * 100 + r.below(100);
                    let forward = (end - first) as u64 * 50;
                    let synced = backward + r.below(800);
                    Part { forward, backward, synced, norm: 0, update: r.below(900) }
                };
                let parts: Vec<Part> = (0..4).map(|_| part(&mut r)).collect();
                table.insert([stage, first, end], Rc::new(parts));
            }
        }
        let hop = vec![3; p - 1];
        let schedule = Schedule::OneForwardOneBackward;
        let blocks = vec![(50, 100); n];
        let parts = |stage, first, end| table[&[stage, first, end]].clone();
        let pipeline = Pipeline { hop: &hop, schedule, micro_batches: m, clips: true };
        let problem = Stages { blocks: &blocks, pipeline, parts: &parts };
        let found = least(&problem, u64::MAX / 4);
        let cut = found.cut.unwrap();
        let met = problem.bound(&cut);
        assert!(found.bound <= met);
        rounded += u32::from(!found.exact);
        // The programme under the cut that was found proves it, or finds a better one that the bound is still under.
        match programme(&problem, met, Some(&cut)) {
            Answer::Cut(better) => {
                assert!(found.bound <= problem.bound(&better) && problem.bound(&better) <= met)
            }
            Answer::None => assert!(found.bound <= met),
            Answer::Unknown => {}
        }
    }
    assert!(rounded > 0, "{rounded} rounded");
}
