//! How much of backward the blocks of one stage recompute: blocks of a class are interchangeable, so a choice is a count
//! per class and version, and the least time under a bound on bytes is found by going through the counts, once for each
//! size the shared workspace may have. The invariant: nothing that fits is faster; brute force agrees.

/// One version of a class: what a block adds to a micro-batch's time, to each frame, and to the shared workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Version {
    /// Forward and backward, in picoseconds.
    pub(crate) time: u64,
    /// Bytes in every frame.
    pub(crate) frame: u64,
    /// Bytes of workspace.
    pub(crate) workspace: u64,
}

/// Blocks of one class on a stage, and their versions by rising time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kind<'v> {
    pub(crate) count: u64,
    pub(crate) versions: &'v [Version],
}

/// How many blocks take each version, per kind.
pub(crate) type Counts = Vec<Vec<u64>>;

/// The choice of least time that holds at most `budget` bytes with so many frames; among equals, of least bytes per frame.
pub(crate) fn fastest(kinds: &[Kind<'_>], frames: u64, budget: u64) -> Option<(u64, Counts)> {
    let within = |cap: u64| {
        let room = budget.checked_sub(cap)? / frames;
        let found = fill(&choices(kinds, cap)?, room)?;
        Some((found, cap))
    };
    let best = caps(kinds).into_iter().filter_map(within).min_by_key(|((time, frame, _), _)| (*time, *frame));
    best.map(|((time, _, picked), _)| (time, counts(kinds, &picked)))
}

/// Every choice that holds at most `budget` bytes with so many frames; `None` where there are more than `most` to look at.
pub(crate) fn every(kinds: &[Kind<'_>], frames: u64, budget: u64, most: usize) -> Option<Vec<Counts>> {
    let mut all: Vec<Counts> = vec![vec![]];
    for kind in kinds {
        let mut splits = vec![];
        each_split(kind.count, kind.versions.len(), &mut |blocks| {
            splits.push(blocks.to_vec());
            splits.len() > most
        });
        if all.len() * splits.len() > most {
            return None;
        }
        let with = |known: &Counts| {
            let known = known.clone();
            splits.clone().into_iter().map(move |s| known.iter().cloned().chain([s]).collect())
        };
        all = all.iter().flat_map(with).collect();
    }
    all.retain(|counts| held(kinds, counts, frames) <= budget);
    Some(all)
}

/// Every way to divide `count` among `n` versions, the fastest first; each until told that it was enough.
fn each_split(count: u64, n: usize, enough: &mut dyn FnMut(&[u64]) -> bool) {
    let mut blocks = vec![0; n];
    blocks[0] = count;
    loop {
        if enough(&blocks) {
            return;
        }
        // The next in order: one more of the first later version that some earlier one can spare.
        let Some(at) = (1..n).find(|k| blocks[..*k].iter().any(|b| *b > 0)) else { return };
        let spare: u64 = blocks[..at].iter().sum();
        blocks[..at].fill(0);
        blocks[at] += 1;
        blocks[0] = spare - 1;
    }
}

/// Bytes of a choice.
fn held(kinds: &[Kind<'_>], counts: &Counts, frames: u64) -> u64 {
    let taken = || {
        let each =
            |(k, n): (&Kind<'_>, &Vec<u64>)| k.versions.iter().copied().zip(n.clone()).collect::<Vec<_>>();
        kinds.iter().zip(counts).flat_map(each).filter(|(_, n)| *n > 0)
    };
    let frame: u64 = taken().map(|(v, n)| v.frame * n).sum();
    frames * frame + taken().map(|(v, _)| v.workspace).max().unwrap_or(0)
}

/// The choice that holds least; among equals, the faster.
pub(crate) fn leanest(kinds: &[Kind<'_>], frames: u64) -> Counts {
    let under = |cap: u64| {
        let smallest = |c: Choices<'_>| {
            let (at, v) = *c.versions.last().expect("a kind has a version");
            let picked = Picked { kind: c.kind, version: at, blocks: c.count };
            (c.count * v.frame, c.count * v.time, picked)
        };
        let all: Vec<(u64, u64, Picked)> = choices(kinds, cap)?.into_iter().map(smallest).collect();
        let bytes = cap + frames * all.iter().map(|x| x.0).sum::<u64>();
        Some((bytes, all.iter().map(|x| x.1).sum::<u64>(), all.into_iter().map(|x| x.2).collect::<Vec<_>>()))
    };
    let best = caps(kinds).into_iter().filter_map(under).min_by_key(|(bytes, time, _)| (*bytes, *time));
    counts(kinds, &best.expect("the largest workspace suits every version").2)
}

/// So many blocks of a kind take a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Picked {
    kind: usize,
    version: usize,
    blocks: u64,
}

/// A kind's versions worth taking: by rising time and falling bytes per frame.
struct Choices<'v> {
    kind: usize,
    count: u64,
    versions: Vec<(usize, &'v Version)>,
    /// Per version: the steps on the lower hull of (frame, time) from the first version to those up to it.
    hulls: Vec<Vec<Step>>,
}

/// From one version to a slower one: bytes per frame that it spares, what that takes, and whether it ends at the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Step {
    spared: u64,
    time: u64,
    ends: bool,
}

impl Step {
    /// Whether it spares a byte for less time than another; both spare some.
    fn is_cheaper(&self, other: &Step) -> bool {
        u128::from(self.time) * u128::from(other.spared) < u128::from(other.time) * u128::from(self.spared)
    }
}

/// Steps along the lower hull, the cheapest first.
fn hull(versions: &[(usize, &Version)]) -> Vec<Step> {
    let last = versions.len() - 1;
    let (mut at, mut steps) = (0, vec![]);
    while at < last {
        let step = |to: usize| Step {
            spared: versions[at].1.frame - versions[to].1.frame,
            time: versions[to].1.time - versions[at].1.time,
            ends: to == last,
        };
        // Of equally cheap ones the longest, so that none is cheaper than the one before it.
        let (to, best) = (at + 1..=last)
            .map(|to| (to, step(to)))
            .reduce(|a, b| if a.1.is_cheaper(&b.1) { a } else { b })
            .expect("a later version");
        steps.push(best);
        at = to;
    }
    steps
}

/// Every size that the workspace may have.
fn caps(kinds: &[Kind<'_>]) -> Vec<u64> {
    let mut caps: Vec<u64> = kinds.iter().flat_map(|k| k.versions).map(|v| v.workspace).collect();
    caps.sort_unstable();
    caps.dedup();
    if caps.is_empty() { vec![0] } else { caps }
}

/// What each kind may take under a workspace of so many bytes, kinds with the fewest versions first; `None` where one
/// has none.
fn choices<'v>(kinds: &[Kind<'v>], cap: u64) -> Option<Vec<Choices<'v>>> {
    let mut all = Vec::with_capacity(kinds.len());
    for (kind, k) in kinds.iter().enumerate() {
        let mut versions: Vec<(usize, &Version)> = vec![];
        for (at, v) in k.versions.iter().enumerate().filter(|(_, v)| v.workspace <= cap) {
            if versions.last().is_none_or(|(_, last)| v.frame < last.frame) {
                versions.push((at, v));
            }
        }
        if versions.is_empty() {
            return None;
        }
        let hulls = (1..=versions.len()).map(|n| hull(&versions[..n])).collect();
        all.push(Choices { kind, count: k.count, versions, hulls });
    }
    all.sort_by_key(|c| c.versions.len());
    Some(all)
}

/// Least time whose frames take at most `room`, with those bytes and the choice.
fn fill(choices: &[Choices<'_>], room: u64) -> Option<(u64, u64, Vec<Picked>)> {
    let mut search = Search { choices, best: None, picked: vec![] };
    let first = choices.first();
    let left = first.map_or(0, |c| c.count);
    search.branch(0, first.map_or(0, |c| c.versions.len() - 1), left, room, 0, 0);
    search.best
}

/// Where a branch stands: its kind and how many of its blocks are left, the bytes that are left, and the time and the bytes
/// of what is decided.
struct Decided {
    k: usize,
    left: u64,
    room: u64,
    time: u64,
    frame: u64,
}

/// Branch and bound: kind by kind, and in each from the slowest version to the fastest, how many blocks take it, under the
/// bound of the multiple-choice knapsack's linear relaxation (Sinha and Zoltners 1979). That bound is convex in a count,
/// so counts are tried from the relaxation's own outwards until it exceeds what was found.
struct Search<'c, 'v> {
    choices: &'c [Choices<'v>],
    best: Option<(u64, u64, Vec<Picked>)>,
    picked: Vec<Picked>,
}

impl Search<'_, '_> {
    /// Decides the count of version `version` of kind `k`, of which `left` blocks have none yet, and all that follows.
    /// `time` and `frame` are those of what is decided, `room` the bytes that are left.
    fn branch(&mut self, k: usize, version: usize, left: u64, room: u64, time: u64, frame: u64) {
        let Some(kind) = self.choices.get(k) else {
            if self.best.as_ref().is_none_or(|b| (time, frame) < (b.0, b.1)) {
                self.best = Some((time, frame, self.picked.clone()));
            }
            return;
        };
        let Some((_, start)) = self.relaxed(k, version, left, room) else { return };
        let so_far = Decided { k, left, room, time, frame };
        if version == 0 {
            self.take(&so_far, version, left);
            return;
        }
        for count in start..=left {
            // The relaxation's own count may lie between two whole ones, so the second is tried even if the first fails.
            if !self.worth(&so_far, version, count, kind.versions[version].1) && count > start {
                break;
            }
        }
        for count in (0..start).rev() {
            if !self.worth(&so_far, version, count, kind.versions[version].1) {
                break;
            }
        }
    }

    /// Follows a count if what comes of it may be faster than the best; tells whether it might.
    fn worth(&mut self, so_far: &Decided, version: usize, count: u64, v: &Version) -> bool {
        let Decided { k, left, room, time, .. } = *so_far;
        let bound = |room| self.relaxed(k, version - 1, left - count, room);
        let bound = room.checked_sub(count * v.frame).and_then(bound);
        let found = self.best.as_ref().map_or(u64::MAX, |b| b.0);
        let worth = bound.is_some_and(|(b, _)| time + count * v.time + b < found);
        if worth {
            self.take(so_far, version, count);
        }
        worth
    }

    /// Gives `count` of `left` blocks a version and goes on.
    fn take(&mut self, so_far: &Decided, version: usize, count: u64) {
        let Decided { k, left, room, time, frame } = *so_far;
        let kind = &self.choices[k];
        let (at, v) = kind.versions[version];
        let Some(room) = room.checked_sub(count * v.frame) else { return };
        let (time, frame) = (time + count * v.time, frame + count * v.frame);
        self.picked.push(Picked { kind: kind.kind, version: at, blocks: count });
        match version.checked_sub(1) {
            Some(next) => self.branch(k, next, left - count, room, time, frame),
            None => {
                let next = self.choices.get(k + 1);
                let (slowest, blocks) = next.map_or((0, 0), |c| (c.versions.len() - 1, c.count));
                self.branch(k + 1, slowest, blocks, room, time, frame);
            }
        }
        self.picked.pop();
    }

    /// A bound on the time of what is undecided, rounded down, and how many blocks its solution gives `version`, rounded
    /// down; `None` where nothing fits.
    fn relaxed(&self, k: usize, version: usize, left: u64, room: u64) -> Option<(u64, u64)> {
        let here = &self.choices[k];
        let rest = &self.choices[k + 1..];
        let fastest = |c: &Choices<'_>, n: u64| (n * c.versions[0].1.frame, n * c.versions[0].1.time);
        let (mut frame, mut time) = fastest(here, left);
        for c in rest {
            let (f, t) = fastest(c, c.count);
            (frame, time) = (frame + f, time + t);
        }
        let mut over = frame.saturating_sub(room);
        let mut slowest = 0;
        if over == 0 {
            return Some((time, slowest));
        }
        let last = |c: &'_ Choices<'_>| c.versions.len() - 1;
        // Next step of each kind; along a hull they come cheapest first, so merging the kinds does too.
        let mut next = vec![0; rest.len() + 1];
        while over > 0 {
            let steps = |j: usize| match j {
                0 => (&here.hulls[version], left),
                _ => (&rest[j - 1].hulls[last(&rest[j - 1])], rest[j - 1].count),
            };
            let open = (0..next.len()).filter_map(|j| Some((j, steps(j).0.get(next[j])?)));
            let (j, step) = open.reduce(|a, b| if b.1.is_cheaper(a.1) { b } else { a })?;
            let blocks = steps(j).1;
            let spared = (blocks * step.spared).min(over);
            // Whole blocks and a part of one, in 128 bits: a byte's price times bytes.
            time += (u128::from(spared) * u128::from(step.time) / u128::from(step.spared)) as u64;
            if j == 0 && step.ends {
                slowest = spared / step.spared;
            }
            over -= spared;
            next[j] += 1;
        }
        Some((time, slowest))
    }
}

fn counts(kinds: &[Kind<'_>], picked: &[Picked]) -> Counts {
    let mut counts: Counts = kinds.iter().map(|k| vec![0; k.versions.len()]).collect();
    picked.iter().for_each(|p| counts[p.kind][p.version] += p.blocks);
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// Every way to give each of some blocks a version: `(time, bytes)`.
    fn assignments(blocks: &[&[Version]], frames: u64) -> Vec<(u64, u64)> {
        let mut all = vec![(0, 0, 0)];
        for versions in blocks {
            let with = |x: &(u64, u64, u64)| {
                let x = *x;
                versions.iter().map(move |v| (x.0 + v.time, x.1 + v.frame, x.2.max(v.workspace)))
            };
            all = all.iter().flat_map(with).collect();
        }
        all.into_iter().map(|(time, frame, workspace)| (time, frames * frame + workspace)).collect()
    }

    fn measure(kinds: &[Kind<'_>], counts: &Counts, frames: u64) -> (u64, u64) {
        let mut total = (0, 0, 0);
        for (k, n) in kinds.iter().zip(counts) {
            assert_eq!(n.iter().sum::<u64>(), k.count);
            for (v, n) in k.versions.iter().zip(n).filter(|(_, n)| **n > 0) {
                total = (total.0 + v.time * n, total.1 + v.frame * n, total.2.max(v.workspace));
            }
        }
        (total.0, frames * total.1 + total.2)
    }

    #[test]
    fn no_assignment_of_levels_is_better() {
        let mut r = Random(11);
        let mut random = |n: u64| r.below(n);
        for _ in 0..2000 {
            let mut classes: Vec<(u64, Vec<Version>)> = vec![];
            for _ in 0..1 + random(3) {
                let version = |_| Version { time: random(20), frame: random(20), workspace: random(30) };
                let mut versions: Vec<Version> = (0..1 + seed_of(&classes) % 4).map(version).collect();
                versions.sort_by_key(|v| v.time);
                classes.push((1 + versions[0].frame % 3, versions));
            }
            let kinds: Vec<Kind<'_>> =
                classes.iter().map(|(count, versions)| Kind { count: *count, versions }).collect();
            let blocks: Vec<&[Version]> =
                kinds.iter().flat_map(|k| (0..k.count).map(|_| k.versions)).collect();
            let frames = 1 + classes.len() as u64;
            let all = assignments(&blocks, frames);
            for budget in [0, 20, 60, 100, 150, 250] {
                let brute = all.iter().filter(|x| x.1 <= budget).map(|x| x.0).min();
                let found = fastest(&kinds, frames, budget);
                assert_eq!(found.as_ref().map(|f| f.0), brute, "{kinds:?} within {budget}");
                if let Some((time, counts)) = found {
                    let (measured, bytes) = measure(&kinds, &counts, frames);
                    assert!(measured == time && bytes <= budget);
                }
                // Blocks are interchangeable, so counts say as much as assignments.
                let counted = every(&kinds, frames, budget, 100_000).expect("small kinds");
                let mut counted: Vec<(u64, u64)> =
                    counted.iter().map(|c| measure(&kinds, c, frames)).collect();
                let mut assigned: Vec<(u64, u64)> = all.iter().filter(|x| x.1 <= budget).copied().collect();
                counted.sort_unstable();
                assigned.sort_unstable();
                counted.dedup();
                assigned.dedup();
                assert_eq!(counted, assigned);
            }
            let least = measure(&kinds, &leanest(&kinds, frames), frames).1;
            assert_eq!(Some(least), all.iter().map(|x| x.1).min(), "{kinds:?}");
        }
    }

    /// Something that varies from class to class.
    fn seed_of(classes: &[(u64, Vec<Version>)]) -> u64 {
        classes.iter().flat_map(|c| &c.1).map(|v| v.time + v.frame).sum::<u64>() + 2
    }
}
