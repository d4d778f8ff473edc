//! Cutting the chain of blocks into stages: contiguous runs that minimise the slowest stage among those whose stages fit,
//! and among equals the most even one. A stage's time may depend on where it is, since what it must recompute to fit
//! does. The invariant: fewer blocks for the same stage never take longer and still fit, so filling stages greedily
//! decides whether a bottleneck can be met.

use meshwright_ir::StagePlan;

/// Time of a stage that holds blocks `first..end`; `None` where it may not hold them.
pub(crate) type Cost<'a> = dyn Fn(usize, usize, usize) -> Option<u64> + 'a;

/// Cuts so many blocks into `stages` runs. `None` when no cut fits.
pub(crate) fn split(blocks: usize, stages: usize, cost: &Cost<'_>) -> Option<Vec<StagePlan>> {
    let mut high = fill(blocks, stages, u64::MAX, cost)?;
    let mut low = 0;
    while low < high {
        let middle = low + (high - low) / 2;
        match fill(blocks, stages, middle, cost) {
            Some(slowest) => high = slowest,
            None => low = middle + 1,
        }
    }
    Some(even(blocks, stages, low, cost))
}

/// Whether some cut fits.
pub(crate) fn possible(blocks: usize, stages: usize, cost: &Cost<'_>) -> bool {
    fill(blocks, stages, u64::MAX, cost).is_some()
}

/// Fills stages from the last one on, each as full as it may be within `most`, until they take every block; the time of
/// the slowest. Late stages hold the fewest micro-batches, so what can be late should be.
fn fill(blocks: usize, stages: usize, most: u64, cost: &Cost<'_>) -> Option<u64> {
    let (mut end, mut slowest) = (blocks, 0);
    for stage in (0..stages).rev() {
        let (mut first, mut time) = (end, 0);
        // Leave a block for every earlier stage.
        while first > stage {
            let Some(longer) = cost(stage, first - 1, end).filter(|t| *t <= most) else { break };
            (first, time) = (first - 1, longer);
        }
        if first == end {
            return None;
        }
        slowest = slowest.max(time);
        end = first;
    }
    (stages > 0 && end == 0).then_some(slowest)
}

/// The cut whose stages stay under `most` with the least sum of squared times.
fn even(n: usize, stages: usize, most: u64, cost_of: &Cost<'_>) -> Vec<StagePlan> {
    let none = u128::MAX;
    let mut cost = vec![vec![none; n + 1]; stages + 1];
    let mut from = vec![vec![0usize; n + 1]; stages + 1];
    cost[0][0] = 0;
    for stage in 0..stages {
        for end in stage + 1..=n {
            for first in (stage..end).rev() {
                let Some(time) = cost_of(stage, first, end).filter(|t| *t <= most) else { break };
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
    use crate::random::Random;

    fn sizes(times: &[u64], stages: usize, fits: &dyn Fn(usize, usize, usize) -> bool) -> Option<Vec<u32>> {
        cut(times, stages, fits).map(|cut| cut.iter().map(|s| s.blocks).collect())
    }

    fn cut(
        times: &[u64],
        stages: usize,
        fits: &dyn Fn(usize, usize, usize) -> bool,
    ) -> Option<Vec<StagePlan>> {
        let cost = |stage: usize, first: usize, end: usize| {
            fits(stage, first, end).then(|| times[first..end].iter().sum())
        };
        split(times.len(), stages, &cost)
    }

    #[test]
    fn the_slowest_stage_is_as_fast_as_any_cut_makes_it() {
        let mut r = Random(7);
        let mut random = |n: u64| r.below(n);
        for _ in 0..200 {
            let times: Vec<u64> = (0..1 + random(8)).map(|_| 1 + random(20)).collect();
            let limit = 1 + random(6) as usize;
            let stages = 1 + random(times.len() as u64) as usize;
            // Earlier stages hold fewer blocks.
            let fits = |stage: usize, first: usize, end: usize| end - first <= limit + stage;
            let brute = best(&times, stages, 0, &fits);
            let found = cut(&times, stages, &fits).map(|cut| {
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
