//! Forward passes against f64 references and backward passes against their central differences, on odd
//! shapes.

use meshwright_executor::kernels::activation::{self, Activation, gate};
use meshwright_executor::kernels::bias;
use meshwright_executor::kernels::dropout::{self, Dropping};
use meshwright_executor::kernels::embedding::{self, Positions};
use meshwright_executor::kernels::gain;
use meshwright_executor::kernels::linear::{self, Linear};
use meshwright_executor::kernels::norm::{self, Kind, Norm};
use meshwright_executor::kernels::rope::{self, Rope};

use crate::support::{Made, check, numbers};

#[test]
fn linear_layer() {
    for (rows, inputs, outputs) in [(1, 1, 1), (3, 5, 7), (2, 17, 3), (9, 4, 33), (2, 512, 3)] {
        let l = Linear { rows, inputs, outputs };
        let (x, w) = (numbers(rows * inputs, 1), numbers(outputs * inputs, 2));
        let dy = numbers(rows * outputs, 3);
        let (mut y, mut dx, mut dw) = (vec![9.0; dy.len()], vec![9.0; x.len()], vec![9.0; w.len()]);
        linear::forward(&l, &x, &w, &mut y);
        linear::backward_input(&l, &dy, &w, &mut dx);
        linear::backward_weight(&l, &dy, &x, &mut dw, true);
        let made = Made { inputs: &[&x, &w], y: &y, dy: &dy, gradients: &[&dx, &dw] };
        check(&format!("{l:?}"), &made, |at| {
            let (x, w) = (&at[0], &at[1]);
            let dot = |r: usize, o: usize| (0..inputs).map(|i| x[r * inputs + i] * w[o * inputs + i]).sum();
            (0..rows * outputs).map(|n| dot(n / outputs, n % outputs)).collect()
        });
        let once = dw.clone();
        linear::backward_weight(&l, &dy, &x, &mut dw, false);
        dw.iter().zip(&once).for_each(|(twice, once)| assert!((twice - 2.0 * once).abs() < 1e-5));
    }
}

#[test]
fn bias_of_rows() {
    for (rows, features) in [(1, 1), (5, 3), (4, 37)] {
        let (x, b, dy) = (numbers(rows * features, 1), numbers(features, 2), numbers(rows * features, 3));
        let (mut y, mut db) = (vec![9.0; x.len()], vec![9.0; features]);
        bias::forward(&x, &b, &mut y);
        bias::backward_weight(&dy, &mut db, true);
        let made = Made { inputs: &[&x, &b], y: &y, dy: &dy, gradients: &[&dy, &db] };
        check("bias", &made, |at| at[0].iter().enumerate().map(|(n, x)| x + at[1][n % features]).collect());
        bias::backward_weight(&dy, &mut db, false);
        let sum: f32 = dy.iter().step_by(features).sum();
        assert!((db[0] - 2.0 * sum).abs() < 1e-5);
    }
}

#[test]
fn gain_of_rows() {
    for (rows, features) in [(1, 1), (5, 3), (4, 37)] {
        let (x, w, dy) = (numbers(rows * features, 1), numbers(features, 2), numbers(rows * features, 3));
        let (mut y, mut dx, mut dw) = (vec![9.0; x.len()], vec![9.0; x.len()], vec![9.0; features]);
        gain::forward(&x, &w, &mut y);
        gain::forward(&dy, &w, &mut dx);
        gain::backward_weight(&dy, &x, &mut dw, true);
        let made = Made { inputs: &[&x, &w], y: &y, dy: &dy, gradients: &[&dx, &dw] };
        check("gain", &made, |at| at[0].iter().enumerate().map(|(n, x)| x * at[1][n % features]).collect());
        let once = dw.clone();
        gain::backward_weight(&dy, &x, &mut dw, false);
        dw.iter().zip(&once).for_each(|(twice, once)| assert!((twice - 2.0 * once).abs() < 1e-5));
    }
}

#[test]
fn norms_with_and_without_groups() {
    let cases =
        [(Kind::Layer, 3, 1, 7), (Kind::Layer, 2, 3, 34), (Kind::Rms, 3, 1, 5), (Kind::Rms, 2, 4, 33)];
    for (kind, rows, groups, width) in cases {
        let norm = Norm { kind, width, epsilon: 1e-3 };
        let (x, dy) = (numbers(rows * groups * width, 1), numbers(rows * groups * width, 3));
        let (gamma, beta) = (numbers(width, 2), numbers(width, 4));
        let (mut y, mut dx) = (vec![9.0; x.len()], vec![9.0; x.len()]);
        let (mut dgamma, mut dbeta) = (vec![9.0; width], vec![9.0; width]);
        norm::forward(&norm, &x, &gamma, Some(&beta), &mut y);
        norm::backward_input(&norm, &dy, &x, &gamma, &mut dx);
        norm::backward_weight(&norm, &dy, &x, &mut dgamma, Some(&mut dbeta), true);
        let made = Made { inputs: &[&x, &gamma, &beta], y: &y, dy: &dy, gradients: &[&dx, &dgamma, &dbeta] };
        check(&format!("{norm:?}"), &made, |at| reference_norm(&norm, &at[0], &at[1], &at[2]));

        let mut plain = vec![9.0; x.len()];
        norm::forward(&norm, &x, &gamma, None, &mut plain);
        let zero = vec![0.0; width];
        let made = Made { inputs: &[&x, &gamma, &zero], y: &plain, dy: &dy, gradients: &[] };
        check("without beta", &made, |at| reference_norm(&norm, &at[0], &at[1], &at[2]));

        let once = dgamma.clone();
        norm::backward_weight(&norm, &dy, &x, &mut dgamma, None, false);
        dgamma.iter().zip(&once).for_each(|(twice, once)| assert!((twice - 2.0 * once).abs() < 1e-4));
    }
}

fn reference_norm(norm: &Norm, x: &[f64], gamma: &[f64], beta: &[f64]) -> Vec<f64> {
    let n = norm.width as f64;
    let group = |x: &[f64]| {
        let mean = if norm.kind == Kind::Layer { x.iter().sum::<f64>() / n } else { 0.0 };
        let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
        let rstd = 1.0 / (variance + f64::from(norm.epsilon)).sqrt();
        let terms = x.iter().zip(gamma).zip(beta);
        terms.map(|((x, g), b)| (x - mean) * rstd * g + b).collect::<Vec<_>>()
    };
    x.chunks_exact(norm.width).flat_map(group).collect()
}

#[test]
fn rotary_embedding() {
    for (batch, sequence, heads, head_dim, turned, first_position) in
        [(1, 1, 1, 2, 2, 0), (2, 3, 2, 6, 6, 0), (1, 4, 3, 10, 10, 1000), (2, 3, 2, 7, 4, 5)]
    {
        let rope = Rope { sequence, heads, head_dim, turned, theta: 10_000.0, first_position };
        let n = batch * sequence * heads * head_dim;
        let (x, dy) = (numbers(n, 1), numbers(n, 2));
        let (mut y, mut dx) = (vec![9.0; n], vec![9.0; n]);
        rope::forward(&rope, &x, &mut y);
        rope::backward(&rope, &dy, &mut dx);
        let made = Made { inputs: &[&x], y: &y, dy: &dy, gradients: &[&dx] };
        let half = turned / 2;
        check(&format!("{rope:?}"), &made, |at| {
            let turned = |i: usize| {
                let (head, f) = (i / head_dim * head_dim, i % head_dim);
                if f >= turned {
                    return at[0][i];
                }
                let position = (first_position + i / (heads * head_dim) % sequence) as f64;
                let angle = position * 10_000f64.powf(-2.0 * (f % half) as f64 / turned as f64);
                let (low, high) = (at[0][head + f % half], at[0][head + f % half + half]);
                if f < half {
                    low * angle.cos() - high * angle.sin()
                } else {
                    high * angle.cos() + low * angle.sin()
                }
            };
            (0..n).map(turned).collect()
        });
    }
}

#[test]
fn a_rotary_shard_is_a_slice_of_the_whole() {
    let whole = Rope { sequence: 4096, heads: 1, head_dim: 8, turned: 8, theta: 10_000.0, first_position: 0 };
    let x = numbers(4096 * 8, 5);
    let mut y = vec![0.0; x.len()];
    rope::forward(&whole, &x, &mut y);
    let shard = Rope { sequence: 1024, first_position: 3072, ..whole };
    let mut part = vec![0.0; 1024 * 8];
    rope::forward(&shard, &x[3072 * 8..], &mut part);
    part.iter().zip(&y[3072 * 8..]).for_each(|(a, b)| assert!((a - b).abs() < 1e-6, "{a} {b}"));
}

#[test]
fn activations_and_gates() {
    let n = 67;
    let x: Vec<f32> = numbers(n, 1).iter().map(|x| 4.0 * x).collect();
    let (u, dy) = (numbers(n, 2), numbers(n, 3));
    for act in [
        Activation::Gelu,
        Activation::GeluExact,
        Activation::Silu,
        Activation::Relu,
        Activation::Relu2,
        Activation::QuickGelu,
        Activation::Tanh,
        Activation::Sigmoid,
    ] {
        let (mut y, mut dx) = (vec![9.0; n], vec![9.0; n]);
        activation::forward(act, &x, &mut y);
        activation::backward(act, &dy, &x, &mut dx);
        let made = Made { inputs: &[&x], y: &y, dy: &dy, gradients: &[&dx] };
        check(&format!("{act:?}"), &made, |at| at[0].iter().map(|x| reference_activation(act, *x)).collect());

        let (mut y, mut dg, mut du) = (vec![9.0; n], vec![9.0; n], vec![9.0; n]);
        gate::forward(act, &x, &u, &mut y);
        gate::backward(act, &dy, &x, &u, &mut dg, &mut du);
        let made = Made { inputs: &[&x, &u], y: &y, dy: &dy, gradients: &[&dg, &du] };
        check(&format!("gated {act:?}"), &made, |at| {
            at[0].iter().zip(&at[1]).map(|(g, u)| reference_activation(act, *g) * u).collect()
        });
    }
}

/// A mask is a pure function of its place, keeps its share, and its gradient passes where the input did.
#[test]
fn dropout_of_rows() {
    let (rows, width, rate) = (40, 501, 0.25);
    let dice = Dropping::new(1, 2, 3, 4, rate);
    let mut mask = vec![9.0; rows * width];
    let of = |dice: &Dropping, mask: &mut [f32], columns: usize, first: usize| {
        let row = |(r, mask): (usize, &mut [f32])| dice.mask([7, r as u64, 0], first as u32, mask);
        mask.chunks_exact_mut(columns).enumerate().for_each(row);
    };
    of(&dice, &mut mask, width, 0);
    let kept = mask.iter().sum::<f32>() / mask.len() as f32;
    assert!((kept - 0.75).abs() < 0.01 && mask.iter().all(|m| *m == 0.0 || *m == 1.0), "{kept}");
    let mut part = vec![9.0; rows * 100];
    of(&dice, &mut part, 100, 400);
    assert!((0..rows).all(|r| part[r * 100..][..100] == mask[r * width + 400..][..100]));
    // Another seed, step, block or site drops others: about 2 · 3/4 · 1/4 of the elements differ.
    for other in [(5, 2, 3, 4), (1, 5, 3, 4), (1, 2, 5, 4), (1, 2, 3, 5)] {
        let dice = Dropping::new(other.0, other.1, other.2, other.3, rate);
        let mut others = vec![9.0; mask.len()];
        of(&dice, &mut others, width, 0);
        let differ = others.iter().zip(&mask).filter(|(a, b)| a != b).count() as f32 / mask.len() as f32;
        assert!((differ - 0.375).abs() < 0.02, "{other:?}: {differ}");
    }
    let (x, dy) = (numbers(width, 1), numbers(width, 2));
    let (mut y, mut dx) = (vec![9.0; width], vec![9.0; width]);
    dropout::apply(&x, &mask[..width], dice.scale(), &mut y);
    dropout::apply(&dy, &mask[..width], dice.scale(), &mut dx);
    let made = Made { inputs: &[&x], y: &y, dy: &dy, gradients: &[&dx] };
    check("dropout", &made, |at| {
        at[0].iter().zip(&mask).map(|(x, m)| x * f64::from(*m) / (1.0 - rate)).collect()
    });
}

pub(crate) fn reference_activation(act: Activation, x: f64) -> f64 {
    match act {
        Activation::Gelu => {
            let u = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
            0.5 * x * (1.0 + u.tanh())
        }
        Activation::GeluExact => x * reference_cdf(x),
        Activation::Silu => x / (1.0 + (-x).exp()),
        Activation::Relu => x.max(0.0),
        Activation::Relu2 => x.max(0.0).powi(2),
        Activation::QuickGelu => x / (1.0 + (-1.702 * x).exp()),
        Activation::Tanh => x.tanh(),
        Activation::Sigmoid => 1.0 / (1.0 + (-x).exp()),
    }
}

/// Standard normal distribution in f64: the Taylor series of erf near 0, its continued fraction in the tails.
pub(crate) fn reference_cdf(x: f64) -> f64 {
    let density = (-0.5 * x * x).exp() / (2.0 * std::f64::consts::PI).sqrt();
    if x.abs() < 3.0 {
        let mut term = x;
        let mut sum = x;
        for n in 1..200 {
            term *= x * x / (2 * n + 1) as f64;
            sum += term;
        }
        return 0.5 + density * sum;
    }
    let fraction = (1..400).rev().fold(x.abs(), |below, n| x.abs() + f64::from(n) / below);
    let tail = density / fraction;
    if x > 0.0 { 1.0 - tail } else { tail }
}

#[test]
fn token_embedding_summed_over_shards() {
    let (vocabulary, width) = (12, 5);
    let ids = [3u32, 0, 11, 3, 7, 4];
    let (table, dy) = (numbers(vocabulary * width, 1), numbers(ids.len() * width, 2));
    for shards in [1, 2, 3] {
        let rows = vocabulary / shards;
        let (mut y, mut dtable) = (vec![0.0; dy.len()], vec![9.0; table.len()]);
        for k in 0..shards {
            let shard = embedding::Shard { offset: k * rows, width };
            let local = k * rows * width..(k + 1) * rows * width;
            let mut part = vec![9.0; dy.len()];
            embedding::forward(&shard, &table[local.clone()], &ids, &mut part);
            y.iter_mut().zip(&part).for_each(|(y, p)| *y += p);
            embedding::backward(&shard, &dy, &ids, &mut dtable[local], true);
        }
        let made = Made { inputs: &[&table], y: &y, dy: &dy, gradients: &[&dtable] };
        check("embedding", &made, |at| {
            ids.iter().flat_map(|id| at[0][*id as usize * width..][..width].to_vec()).collect()
        });
    }
}

#[test]
fn position_embedding() {
    let (batch, positions) = (3, 7);
    let at = Positions { sequence: 4, width: 3, first_position: 2 };
    let n = batch * at.sequence * at.width;
    let (table, dy) = (numbers(positions * at.width, 1), numbers(n, 2));
    let (mut y, mut dtable) = (vec![9.0; n], vec![9.0; table.len()]);
    embedding::positions_forward(&at, &table, &mut y);
    embedding::positions_backward(&at, &dy, &mut dtable, true);
    let made = Made { inputs: &[&table], y: &y, dy: &dy, gradients: &[&dtable] };
    check("positions", &made, |inputs| inputs[0][6..18].repeat(batch));
}
