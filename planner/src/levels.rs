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
        all.push(Choices { kind, count: k.count, versions });
    }
    all.sort_by_key(|c| c.versions.len());
    Some(all)
}

/// Least time whose frames take at most `room`, with those bytes and the choice.
fn fill(choices: &[Choices<'_>], room: u64) -> Option<(u64, u64, Vec<Picked>)> {
    let Some((first, rest)) = choices.split_first() else { return Some((0, 0, vec![])) };
    let mut best: Option<(u64, u64, Vec<Picked>)> = None;
    let mut visit = |blocks: &[u64]| -> bool {
        let each = || first.versions.iter().zip(blocks).filter(|(_, n)| **n > 0);
        let frame: u64 = each().map(|((_, v), n)| v.frame * n).sum();
        let time: u64 = each().map(|((_, v), n)| v.time * n).sum();
        if frame > room {
            return false;
        }
        if let Some((more, bytes, mut picked)) = fill(rest, room - frame) {
            let (time, frame) = (time + more, frame + bytes);
            if best.as_ref().is_none_or(|b| (time, frame) < (b.0, b.1)) {
                picked.extend(each().map(|((at, _), n)| Picked {
                    kind: first.kind,
                    version: *at,
                    blocks: *n,
                }));
                best = Some((time, frame, picked));
            }
        }
        true
    };
    let last = rest.is_empty();
    match first.versions.len() {
        3 => {
            for slowest in 0..=first.count {
                let left = first.count - slowest;
                let start = if last { fewest(&first.versions, slowest, left, room) } else { 0 };
                for slow in start..=left {
                    // Of the last kind, the first count that fits is the fastest.
                    if visit(&[left - slow, slow, slowest]) && last {
                        break;
                    }
                }
            }
        }
        n => each_split(first.count, n, &mut |blocks| visit(blocks) && last && n == 2),
    }
    best
}

/// Every way to divide `count` among `n` versions, the fastest first; each until `enough`.
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

/// Fewest of `left` blocks that must take the second version rather than the first, when so many take the third.
fn fewest(versions: &[(usize, &Version)], slowest: u64, left: u64, room: u64) -> u64 {
    let [a, b, c] = [0, 1, 2].map(|k| versions[k].1.frame);
    let over = (slowest * c + left * a).saturating_sub(room);
    over.div_ceil(a - b)
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
