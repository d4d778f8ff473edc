//! Fitting a cluster's physical constants to measured steps. Each knob is a factor on constants of the preset; the
//! logarithms of predicted over measured are made small by damped Gauss-Newton steps (Levenberg 1944, Marquardt 1963) with
//! Huber's weights (1964), so that a few odd rows do not bend the rest, and with a pull towards the preset, so that what the
//! rows say nothing of stays there. How a row depends on constants is read off its critical path, which is found anew after
//! each round. The invariant: the fit depends on the rows alone, and a group of n rows moves at most n / 5 knobs.

use super::predict::{Predicted, Prepared, Term, predict};
use super::setup::{Setup, with_attention};
use meshwright_cost_models::CostModel;
use meshwright_ir::{Bandwidth, Cluster, Curve, DType, Time, WorkClass};
use meshwright_zoo::{Constants, DeviceConstants, LevelConstants};
use rayon::prelude::*;
use std::collections::BTreeMap;

/// Rounds of simulating and fitting.
const ROUNDS: usize = 2;
/// Steps of the solver in each.
const STEPS: usize = 12;
/// Residual, as a logarithm, beyond which a row counts linearly: five times a good cluster's noise of 2 %.
const ODD: f64 = 0.10;
/// Rows for each knob.
const ROWS_PER_KNOB: usize = 5;

/// A constant, or several that move together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Knob {
    /// Efficiency of matrix products of all sizes.
    Matmul,
    /// Their efficiency at small sizes against large: a slope over the logarithm of FLOP.
    MatmulSlope,
    /// Efficiency of attention, both ways.
    Attention,
    /// Bandwidth of memory-bound kernels, the optimizer's apart.
    Memory,
    /// Bandwidth of the optimizer.
    Optimizer,
    /// Host time of one op.
    Dispatch,
    /// Start of a collective.
    Collective,
    /// Host time of a step.
    Step,
    /// Launch of one kernel.
    Launch,
    /// Latency of a level.
    Latency(usize),
    /// Bandwidth of a level.
    Bandwidth(usize),
}

/// Every knob of a cluster, the most important first: what few rows can still tell.
fn knobs(cluster: &Cluster) -> Vec<Knob> {
    let levels = 0..cluster.levels.len();
    let used = |k: &usize| cluster.levels[*k].size > 1;
    let mut all = vec![Knob::Matmul, Knob::Memory, Knob::Dispatch, Knob::Attention];
    all.extend(levels.clone().filter(used).map(Knob::Bandwidth));
    all.extend([Knob::Collective, Knob::MatmulSlope, Knob::Optimizer, Knob::Step]);
    all.extend(levels.filter(used).map(Knob::Latency));
    all.push(Knob::Launch);
    all
}

impl Knob {
    /// How far from the preset, as a logarithm, is no surprise.
    fn width(self) -> f64 {
        match self {
            Knob::Matmul => 0.25,
            Knob::MatmulSlope => 0.15,
            Knob::Attention | Knob::Memory | Knob::Optimizer => 0.5,
            Knob::Dispatch | Knob::Launch | Knob::Step => 0.5,
            Knob::Collective => 0.7,
            Knob::Latency(_) => 0.7,
            Knob::Bandwidth(_) => 0.4,
        }
    }

    /// The cluster with the knob moved by `x`, as a logarithm.
    fn turn(self, cluster: &mut Cluster, x: f64) {
        let factor = x.exp();
        let time = |t: Time| Time::from_seconds((t.seconds() * factor).clamp(0.0, 0.1));
        let mut scale = |classes: &[WorkClass], by: &dyn Fn(f64) -> f64| {
            let of = |c: &&mut Curve| classes.contains(&c.class);
            for curve in cluster.device.curves.iter_mut().filter(of) {
                curve.points.iter_mut().for_each(|p| p.1 = (p.1 * by(p.0)).clamp(1e-3, 0.98));
            }
        };
        match self {
            Knob::Matmul => scale(&[WorkClass::Matmul], &|_| factor),
            Knob::MatmulSlope => scale(&[WorkClass::Matmul], &|flop| (x * (flop / 1e12).ln() / -4.6).exp()),
            Knob::Attention => scale(&[WorkClass::Attention, WorkClass::AttentionBackward], &|_| factor),
            Knob::Memory => scale(
                &[
                    WorkClass::Memory,
                    WorkClass::Norm,
                    WorkClass::Activation,
                    WorkClass::Rope,
                    WorkClass::Embedding,
                    WorkClass::Loss,
                ],
                &|_| factor,
            ),
            Knob::Optimizer => scale(&[WorkClass::Optimizer], &|_| factor),
            Knob::Dispatch => cluster.device.host.dispatch = time(cluster.device.host.dispatch),
            Knob::Collective => cluster.device.host.collective = time(cluster.device.host.collective),
            Knob::Step => cluster.device.host.step = time(cluster.device.host.step),
            Knob::Launch => cluster.device.launch = time(cluster.device.launch),
            Knob::Latency(k) => cluster.levels[k].latency = time(cluster.levels[k].latency),
            Knob::Bandwidth(k) => {
                let level = &mut cluster.levels[k];
                let reached = (level.bandwidth.get() * level.efficiency * factor).clamp(1e7, 1e15);
                let (bandwidth, efficiency) = match reached < level.bandwidth.get() {
                    true => (level.bandwidth.get(), reached / level.bandwidth.get()),
                    false => (reached, 1.0),
                };
                level.bandwidth = Bandwidth::try_from(bandwidth).expect("a clamped rate");
                level.efficiency = efficiency;
            }
        }
    }
}

/// What a calibration found for one cluster.
#[derive(Debug, Clone, PartialEq)]
pub struct Fitted {
    /// The cluster.
    pub cluster: String,
    /// Rows fitted.
    pub rows: usize,
    /// Constants moved.
    pub moved: usize,
    /// Mean absolute error on those rows before and after, fractions.
    pub error: (f64, f64),
    /// The constants.
    pub constants: Constants,
}

/// Fits the constants of every cluster that has rows enough, and puts them in the setups.
pub fn calibrate(prepared: &Prepared, setups: &mut [Setup]) -> Vec<Fitted> {
    let mut groups: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    setups.iter().enumerate().for_each(|(k, s)| groups.entry(s.cluster.clone()).or_default().push(k));
    let presets: Vec<Cluster> = setups.iter().map(|s| s.preset.clone()).collect();
    let mut turned: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    let mut errors: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for round in 0..=ROUNDS {
        let predicted = predict(prepared, setups);
        for (cluster, rows) in &groups {
            let error =
                |k: &usize| Some((predicted[*k].as_ref().ok()?.step_s / setups[*k].measured_s - 1.0).abs());
            let all: Vec<f64> = rows.iter().filter_map(error).collect();
            errors
                .entry(cluster.clone())
                .or_default()
                .push(all.iter().sum::<f64>() / all.len().max(1) as f64);
        }
        if round == ROUNDS {
            break;
        }
        let fit_one = |(name, rows): (&String, &Vec<usize>)| {
            let samples: Vec<Sample<'_>> = rows
                .iter()
                .filter_map(|k| Some(Sample::new(&setups[*k], predicted[*k].as_ref().ok()?, &presets[*k])))
                .collect();
            let widest = rows.iter().map(|k| &presets[*k]).max_by_key(|c| c.devices())?;
            let knobs: Vec<Knob> = knobs(widest).into_iter().take(samples.len() / ROWS_PER_KNOB).collect();
            let start = turned.get(name).cloned().unwrap_or_else(|| vec![0.0; knobs.len()]);
            (!knobs.is_empty()).then(|| (name.clone(), fit(&samples, &knobs, start)))
        };
        let fitted: Vec<(String, Vec<f64>)> = groups.par_iter().filter_map(fit_one).collect();
        turned.extend(fitted);
        for (name, rows) in &groups {
            let Some(x) = turned.get(name) else { continue };
            let widest =
                rows.iter().map(|k| &presets[*k]).max_by_key(|c| c.devices()).expect("a group has rows");
            for k in rows {
                setups[*k].reprice(turn_all(&presets[*k], &knobs(widest), x));
            }
        }
    }
    let report = |(name, x): (&String, &Vec<f64>)| {
        let rows = &groups[name];
        let widest = rows.iter().max_by_key(|k| presets[**k].devices()).expect("a group has rows");
        let error = &errors[name];
        Fitted {
            cluster: name.clone(),
            rows: rows.len(),
            moved: x.len(),
            error: (error[0], error[error.len() - 1]),
            constants: constants(&setups[*widest].preset),
        }
    };
    turned.iter().map(report).collect()
}

fn turn_all(preset: &Cluster, knobs: &[Knob], x: &[f64]) -> Cluster {
    let mut cluster = preset.clone();
    knobs.iter().zip(x).for_each(|(knob, x)| knob.turn(&mut cluster, *x));
    cluster
}

/// What a constants file says of a calibrated cluster.
fn constants(cluster: &Cluster) -> Constants {
    let device = &cluster.device;
    let level = |l: &meshwright_ir::Level| {
        let new = LevelConstants {
            bandwidth: Some(l.bandwidth),
            latency: Some(l.latency),
            efficiency: Some(l.efficiency),
        };
        (l.name.clone(), new)
    };
    Constants {
        device: DeviceConstants {
            reserved: None,
            launch: Some(device.launch),
            dispatch: Some(device.host.dispatch),
            collective: Some(device.host.collective),
            step: Some(device.host.step),
            curves: device.curves.clone(),
        },
        levels: cluster.levels.iter().filter(|l| l.size > 1).map(level).collect(),
    }
}

/// A row as the solver sees it.
struct Sample<'s> {
    preset: &'s Cluster,
    unfused: Option<u64>,
    dtype: DType,
    terms: &'s [(Term, f64)],
    measured: f64,
    /// What the terms leave out: nothing, unless rounding or a shared device does.
    rest: f64,
}

impl<'s> Sample<'s> {
    fn new(setup: &'s Setup, predicted: &'s Predicted, preset: &'s Cluster) -> Self {
        let cost = CostModel::new(&setup.job.cluster);
        let sum: f64 = predicted.terms.iter().map(|(t, n)| n * t.seconds(&cost)).sum();
        let dtype = setup.job.training.precision.compute();
        Self {
            preset,
            unfused: setup.unfused,
            dtype,
            terms: &predicted.terms,
            measured: setup.measured_s,
            rest: predicted.step_s - sum,
        }
    }
}

/// What terms are priced on: a cluster, and how attention runs there.
type Shape<'s> = (&'s Cluster, Option<u64>, DType);

/// One sample's path: its cluster, how often each of that cluster's terms stands on it, and seconds of no term.
type Path = (usize, Vec<(usize, f64)>, f64);

/// Steps that the samples' paths take under constants, each distinct term priced once per cluster.
struct Pricing<'s> {
    clusters: Vec<(Shape<'s>, Vec<&'s Term>)>,
    rows: Vec<Path>,
}

impl<'s> Pricing<'s> {
    fn new(samples: &[Sample<'s>]) -> Self {
        let mut clusters: Vec<(Shape<'s>, Vec<&Term>)> = vec![];
        let mut known: Vec<BTreeMap<&Term, usize>> = vec![];
        let mut rows = vec![];
        for s in samples {
            let shape = (s.preset, s.unfused, s.dtype);
            let c = clusters.iter().position(|(c, _)| *c == shape).unwrap_or_else(|| {
                clusters.push((shape, vec![]));
                known.push(BTreeMap::new());
                clusters.len() - 1
            });
            let place = |t: &'s Term, terms: &mut Vec<&'s Term>, known: &mut BTreeMap<&'s Term, usize>| {
                *known.entry(t).or_insert_with(|| {
                    terms.push(t);
                    terms.len() - 1
                })
            };
            let terms =
                s.terms.iter().map(|(t, n)| (place(t, &mut clusters[c].1, &mut known[c]), *n)).collect();
            rows.push((c, terms, s.rest));
        }
        Self { clusters, rows }
    }

    fn steps(&self, knobs: &[Knob], x: &[f64]) -> Vec<f64> {
        let price = |((preset, unfused, dtype), terms): &(Shape<'_>, Vec<&Term>)| {
            let cost = CostModel::new(&with_attention(turn_all(preset, knobs, x), *unfused, *dtype));
            terms.iter().map(|t| t.seconds(&cost)).collect::<Vec<f64>>()
        };
        let prices: Vec<Vec<f64>> = self.clusters.iter().map(price).collect();
        let step = |(c, terms, rest): &Path| {
            (rest + terms.iter().map(|(t, n)| n * prices[*c][*t]).sum::<f64>()).max(1e-9)
        };
        self.rows.iter().map(step).collect()
    }
}

/// The knobs' places that fit the samples best, from `x` on.
fn fit(samples: &[Sample<'_>], knobs: &[Knob], mut x: Vec<f64>) -> Vec<f64> {
    let pricing = Pricing::new(samples);
    let residuals = |x: &[f64]| -> Vec<f64> {
        let steps = pricing.steps(knobs, x);
        steps.iter().zip(samples).map(|(p, s)| (p / s.measured).ln()).collect()
    };
    let weight = |r: f64| if r.abs() <= ODD { 1.0 } else { ODD / r.abs() };
    // Mean loss of the rows, and of the pull towards the preset as if it were a few rows with an error of 2 %.
    let pull =
        |x: &[f64]| -> f64 { knobs.iter().zip(x).map(|(k, x)| (x / k.width()).powi(2)).sum::<f64>() * PULL };
    let loss = |r: &[f64], x: &[f64]| {
        let huber = |r: &f64| if r.abs() <= ODD { r * r } else { ODD * (2.0 * r.abs() - ODD) };
        r.iter().map(huber).sum::<f64>() + pull(x)
    };
    let mut r = residuals(&x);
    let mut best = loss(&r, &x);
    let mut damping = 1e-3;
    for _ in 0..STEPS {
        let n = knobs.len();
        const H: f64 = 0.02;
        let column = |k: usize| {
            let mut moved = x.clone();
            moved[k] += H;
            residuals(&moved).iter().zip(&r).map(|(a, b)| (a - b) / H).collect::<Vec<f64>>()
        };
        let columns: Vec<Vec<f64>> = (0..n).into_par_iter().map(column).collect();
        let weights: Vec<f64> = r.iter().map(|r| weight(*r)).collect();
        let dot = |a: &[f64], b: &[f64]| -> f64 {
            a.iter().zip(b).zip(&weights).map(|((a, b), w)| a * b * w).sum()
        };
        let mut improved = false;
        for _ in 0..6 {
            let mut matrix = vec![vec![0.0; n + 1]; n];
            for i in 0..n {
                let prior = PULL / knobs[i].width().powi(2);
                for j in 0..n {
                    matrix[i][j] = dot(&columns[i], &columns[j]);
                }
                matrix[i][i] = matrix[i][i] * (1.0 + damping) + prior;
                matrix[i][n] = -dot(&columns[i], &r) - prior * x[i];
            }
            let Some(step) = solve(matrix) else { break };
            let moved: Vec<f64> = x
                .iter()
                .zip(&step)
                .zip(knobs)
                .map(|((x, s), k)| (x + s).clamp(-4.0 * k.width(), 4.0 * k.width()))
                .collect();
            let new = residuals(&moved);
            let after = loss(&new, &moved);
            if after < best {
                improved = best - after > 1e-9 * best;
                (x, r, best) = (moved, new, after);
                damping = f64::max(damping / 4.0, 1e-6);
                break;
            }
            damping *= 8.0;
        }
        if !improved {
            break;
        }
    }
    x
}

/// How strongly constants are pulled to the preset: the square of a row's usual error of 3 %.
const PULL: f64 = 0.03 * 0.03;

/// Gaussian elimination with pivots, of rows that end in the right-hand side; `None` where it is singular.
fn solve(mut rows: Vec<Vec<f64>>) -> Option<Vec<f64>> {
    let n = rows.len();
    for k in 0..n {
        let pivot = (k..n).max_by(|a, b| rows[*a][k].abs().total_cmp(&rows[*b][k].abs()))?;
        if rows[pivot][k].abs() < 1e-300 {
            return None;
        }
        rows.swap(k, pivot);
        for i in k + 1..n {
            let factor = rows[i][k] / rows[k][k];
            let (above, below) = rows.split_at_mut(i);
            below[0].iter_mut().zip(&above[k]).skip(k).for_each(|(x, y)| *x -= factor * y);
        }
    }
    let mut x = vec![0.0; n];
    for k in (0..n).rev() {
        let known: f64 = (k + 1..n).map(|j| rows[k][j] * x[j]).sum();
        x[k] = (rows[k][n] - known) / rows[k][k];
    }
    x.iter().all(|x| x.is_finite()).then_some(x)
}
