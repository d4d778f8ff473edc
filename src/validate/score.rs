//! How predictions stand beside measurements: errors, bias, ranking within groups that share model, devices and batch,
//! regret of the plan that the predictions would have picked, and the error of a trivial baseline (one constant efficiency
//! per source). Figures over nothing are unknown. The invariant: scores depend on the set of rows, not on their order.

use super::predict::Predicted;
use super::setup::{Setup, memory};
use meshwright_algebra::model_flops;
use meshwright_ir::Bytes;
use std::collections::BTreeMap;

/// A row that was predicted.
#[derive(Debug, Clone, Copy)]
pub struct Scored<'s> {
    /// The row.
    pub setup: &'s Setup,
    /// What was predicted of it.
    pub predicted: &'s Predicted,
    /// Step time by the baseline.
    pub baseline_s: f64,
}

/// Figures of a set of rows. Errors are fractions of what was measured.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Score {
    /// Rows.
    pub rows: usize,
    /// Mean absolute error.
    pub mape: Option<f64>,
    /// Median absolute error.
    pub median_ape: Option<f64>,
    /// Nine tenths of the rows are nearer.
    pub p90_ape: Option<f64>,
    /// Mean error, predicted over measured: below 0 is optimistic.
    pub bias: Option<f64>,
    /// Mean absolute error of the baseline.
    pub baseline_mape: Option<f64>,
    /// Mean over groups of Kendall's tau-b.
    pub kendall_tau: Option<f64>,
    /// Mean over groups of what the pick takes beyond the best.
    pub regret: Option<f64>,
    /// Mean absolute error of memory, over the rows that have it.
    pub memory_mape: Option<f64>,
}

impl Scored<'_> {
    /// Predicted memory of the fullest device, what the runtime reserves included.
    pub fn memory(&self) -> Bytes {
        memory(self.predicted.peak, &self.setup.job.cluster)
    }
    /// Predicted over measured step time, less 1.
    pub fn error(&self) -> f64 {
        self.predicted.step_s / self.setup.measured_s - 1.0
    }
}

/// Rows with the baseline of their source.
pub fn with_baseline<'s>(rows: &[(&'s Setup, &'s Predicted)]) -> Vec<Scored<'s>> {
    let mut efficiencies: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for (setup, _) in rows {
        efficiencies.entry(&setup.source).or_default().push(ideal(setup) / setup.measured_s);
    }
    let of: BTreeMap<&str, f64> =
        efficiencies.into_iter().map(|(s, e)| (s, median(e).unwrap_or(1.0))).collect();
    let scored = |(setup, predicted): &(&'s Setup, &'s Predicted)| {
        let baseline_s = ideal(setup) / of[setup.source.as_str()];
        Scored { setup, predicted, baseline_s }
    };
    rows.iter().map(scored).collect()
}

/// Seconds of the model's FLOPs at peak, a third more where backward runs forward again.
fn ideal(setup: &Setup) -> f64 {
    let job = &setup.job;
    let (_, training) = model_flops(&job.model, job.training.sequence);
    let peak = job.cluster.device.peak.get(&job.training.precision.matmul());
    let peak = peak.or(job.cluster.device.peak.values().next()).map_or(1.0, |p| p.get());
    let tokens = (job.training.sequence * job.training.global_batch) as f64;
    let again = if setup.recomputed { 4.0 / 3.0 } else { 1.0 };
    training.get() as f64 * tokens * again / peak / f64::from(job.search.ranks)
}

/// Figures of these rows.
pub fn score(rows: &[Scored<'_>]) -> Score {
    let mut errors: Vec<f64> = rows.iter().map(|r| r.error().abs()).collect();
    errors.sort_by(f64::total_cmp);
    let baseline = rows.iter().map(|r| (r.baseline_s / r.setup.measured_s - 1.0).abs());
    let of_memory = rows.iter().filter_map(|r| {
        let measured = r.setup.measured_memory?.f64();
        Some((r.memory().f64() / measured - 1.0).abs())
    });
    let (kendall_tau, regret) = ranking(rows);
    Score {
        rows: rows.len(),
        mape: mean(errors.iter().copied()),
        median_ape: median(errors.clone()),
        p90_ape: (!errors.is_empty()).then(|| errors[(errors.len() * 9).div_ceil(10) - 1]),
        bias: mean(rows.iter().map(Scored::error)),
        baseline_mape: mean(baseline),
        kendall_tau,
        regret,
        memory_mape: mean(of_memory),
    }
}

/// Mean tau and mean regret over groups of at least two rows.
fn ranking(rows: &[Scored<'_>]) -> (Option<f64>, Option<f64>) {
    let mut groups: BTreeMap<_, Vec<(f64, f64)>> = BTreeMap::new();
    for r in rows {
        let job = &r.setup.job;
        let key = (
            &r.setup.source,
            &r.setup.cluster,
            &job.model_source.hash,
            job.search.ranks,
            job.training.global_batch,
            job.training.sequence,
        );
        groups.entry(key).or_default().push((r.predicted.step_s, r.setup.measured_s));
    }
    let groups: Vec<Vec<(f64, f64)>> = groups.into_values().filter(|g| g.len() > 1).collect();
    let regret = groups.iter().map(|g| {
        let best = g.iter().map(|x| x.1).fold(f64::INFINITY, f64::min);
        let pick = g.iter().min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
        pick.map_or(0.0, |p| p.1 / best - 1.0)
    });
    (mean(groups.iter().filter_map(|g| kendall(g))), mean(regret))
}

/// Kendall's tau-b of pairs; `None` where one side is all ties.
pub fn kendall(pairs: &[(f64, f64)]) -> Option<f64> {
    let (mut agree, mut left, mut right) = (0i64, 0i64, 0i64);
    for (k, a) in pairs.iter().enumerate() {
        for b in &pairs[k + 1..] {
            let sign = |x: f64, y: f64| (x > y) as i64 - (x < y) as i64;
            let (x, y) = (sign(a.0, b.0), sign(a.1, b.1));
            agree += x * y;
            left += x * x;
            right += y * y;
        }
    }
    (left > 0 && right > 0).then(|| agree as f64 / ((left * right) as f64).sqrt())
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (n, sum) = values.fold((0u32, 0.0), |(n, sum), x| (n + 1, sum + x));
    (n > 0).then(|| sum / f64::from(n))
}

/// The middle, or the mean of the two in the middle.
pub(super) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let n = values.len();
    match n {
        0 => None,
        _ if n % 2 == 1 => Some(values[n / 2]),
        _ => Some((values[n / 2 - 1] + values[n / 2]) / 2.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tau_by_hand() {
        assert_eq!(kendall(&[(1.0, 1.0), (2.0, 2.0), (3.0, 3.0)]), Some(1.0));
        // Of three pairs two agree and one does not.
        assert_eq!(kendall(&[(1.0, 1.0), (2.0, 3.0), (3.0, 2.0)]), Some(1.0 / 3.0));
        assert_eq!(kendall(&[(1.0, 1.0), (1.0, 2.0)]), None);
    }
}
