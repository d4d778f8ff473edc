//! Cutting the chain of blocks into stages: contiguous runs that minimise the slowest stage among those whose stages fit,
//! and among equals the most even one. The invariant: feasibility is closed under taking fewer blocks for the same stage,
//! so filling stages greedily decides whether a bottleneck can be met.

use meshwright_ir::StagePlan;

/// Cuts blocks with these times into `stages` runs. `fits` tells whether a stage may hold blocks `first..end`; it must
/// hold of fewer blocks where it holds of more. `None` when no cut fits.
pub(crate) fn split(
    times: &[u64],
    stages: usize,
    fits: &dyn Fn(usize, usize, usize) -> bool,
) -> Option<Vec<StagePlan>> {
    if stages == 0 || stages > times.len() {
        return None;
    }
    let mut before = vec![0u64];
    times.iter().for_each(|t| before.push(before[before.len() - 1] + t));
    let reachable = |most: u64| fill(&before, stages, most, fits);
    let (mut low, mut high) = (times.iter().copied().max().unwrap_or(0), before[times.len()]);
    if !reachable(high) {
        return None;
    }
    while low < high {
        let middle = low + (high - low) / 2;
        match reachable(middle) {
            true => high = middle,
            false => low = middle + 1,
        }
    }
    Some(even(&before, stages, low, fits))
}

/// Whether stages filled from the last one on, each as full as it may be, take every block. Late stages hold the fewest
/// micro-batches, so what can be late should be.
fn fill(before: &[u64], stages: usize, most: u64, fits: &dyn Fn(usize, usize, usize) -> bool) -> bool {
    let mut end = before.len() - 1;
    for stage in (0..stages).rev() {
        let mut first = end;
        // Leave a block for every earlier stage.
        while first > stage && before[end] - before[first - 1] <= most && fits(stage, first - 1, end) {
            first -= 1;
        }
        if first == end {
            return false;
        }
        end = first;
    }
    end == 0
}

/// The cut whose stages stay under `most` with the least sum of squared times.
fn even(
    before: &[u64],
    stages: usize,
    most: u64,
    fits: &dyn Fn(usize, usize, usize) -> bool,
) -> Vec<StagePlan> {
    let n = before.len() - 1;
    let none = u128::MAX;
    let mut cost = vec![vec![none; n + 1]; stages + 1];
    let mut from = vec![vec![0usize; n + 1]; stages + 1];
    cost[0][0] = 0;
    for stage in 0..stages {
        for end in stage + 1..=n {
            for first in (stage..end).rev() {
                let time = before[end] - before[first];
                if time > most || !fits(stage, first, end) {
                    break;
                }
                let total = cost[stage][first].saturating_add(u128::from(time) * u128::from(time));
                if total != none && total <= cost[stage + 1][end] {
                    (cost[stage + 1][end], from[stage + 1][end]) = (total, first);
                }
            }
        }
    }
    let mut cuts = vec![];
    let mut end = n;
    for stage in (0..stages).rev() {
        let first = from[stage + 1][end];
        cuts.push(StagePlan { first: first as u32, blocks: (end - first) as u32 });
        end = first;
    }
    cuts.reverse();
    cuts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(times: &[u64], stages: usize, fits: &dyn Fn(usize, usize, usize) -> bool) -> Option<Vec<u32>> {
        split(times, stages, fits).map(|cut| cut.iter().map(|s| s.blocks).collect())
    }

    #[test]
    fn the_slowest_stage_is_as_fast_as_any_cut_makes_it() {
        let mut seed = 7u64;
        let mut random = |n: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % n
        };
        for _ in 0..200 {
            let times: Vec<u64> = (0..1 + random(8)).map(|_| 1 + random(20)).collect();
            let limit = 1 + random(6) as usize;
            let stages = 1 + random(times.len() as u64) as usize;
            // Earlier stages hold fewer blocks.
            let fits = |stage: usize, first: usize, end: usize| end - first <= limit + stage;
            let brute = best(&times, stages, 0, &fits);
            let found = split(&times, stages, &fits).map(|cut| {
                let run = |s: &StagePlan| times[s.first as usize..][..s.blocks as usize].iter().sum::<u64>();
                assert_eq!(cut.iter().map(|s| s.blocks as usize).sum::<usize>(), times.len());
                cut.iter().map(run).max().unwrap_or(0)
            });
            assert_eq!(found, brute, "{times:?} into {stages}, {limit}");
        }
    }

    fn best(
        times: &[u64],
        stages: usize,
        stage: usize,
        fits: &dyn Fn(usize, usize, usize) -> bool,
    ) -> Option<u64> {
        if stage == stages {
            return times.is_empty().then_some(0);
        }
        (1..=times.len())
            .filter(|n| fits(stage, 0, *n))
            .filter_map(|n| {
                let rest = best(&times[n..], stages, stage + 1, fits)?;
                Some(rest.max(times[..n].iter().sum()))
            })
            .min()
    }

    #[test]
    fn thirty_layers_on_four_stages_lose_none() {
        assert_eq!(sizes(&[1; 30], 4, &|_, _, _| true), Some(vec![7, 7, 8, 8]));
        assert_eq!(sizes(&[1; 3], 4, &|_, _, _| true), None);
    }
}
