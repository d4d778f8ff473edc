//! Accuracy of the scalar functions, the optimizers against their definitions, and the copies.

use meshwright_executor::kernels::optimizer::{self, AdamW};
use meshwright_executor::kernels::{elementwise, gemm, math, rearrange};

use crate::gradients::reference_cdf;
use crate::support::{close, numbers};

/// The largest relative error of `f` against `reference` over `[low, high]`.
fn worst(low: f64, high: f64, f: impl Fn(f32) -> f32, reference: impl Fn(f64) -> f64) -> f64 {
    let points = (0..200_000).map(|i| (low + (high - low) * f64::from(i) / 200_000.0) as f32);
    points.map(|x| (f64::from(f(x)) / reference(f64::from(x)) - 1.0).abs()).fold(0.0, f64::max)
}

#[test]
fn scalar_functions_keep_their_promise() {
    let exp = worst(-86.5, 88.7, math::exp, f64::exp);
    assert!(exp < 3e-7, "exp: {exp}");
    let sigmoid = worst(-80.0, 80.0, math::sigmoid, |x| 1.0 / (1.0 + (-x).exp()));
    assert!(sigmoid < 3e-7, "sigmoid: {sigmoid}");
    let cdf = worst(-5.0, 8.0, math::normal_cdf, reference_cdf);
    assert!(cdf < 3e-6, "normal_cdf: {cdf}");
}

#[test]
fn exp_at_the_edges() {
    assert_eq!(math::exp(0.0), 1.0);
    assert_eq!(math::exp(f32::NEG_INFINITY), 0.0);
    assert_eq!(math::exp(-100.0), 0.0);
    assert_eq!(math::exp(f32::INFINITY), f32::INFINITY);
    assert_eq!(math::exp(88.8), f32::INFINITY);
    assert!(math::exp(f32::NAN).is_nan() && math::normal_cdf(f32::NAN).is_nan());
}

#[test]
fn reductions_of_every_length() {
    for n in 0..100 {
        let xs = numbers(n, 7);
        let sum: f64 = xs.iter().map(|x| f64::from(*x)).sum();
        close("sum", &[math::sum(&xs, |x| x)], &[sum], 1e-6);
        let squares: f64 = xs.iter().map(|x| f64::from(*x).powi(2)).sum();
        close("dot", &[math::sum2(&xs, &xs, |a, b| a * b)], &[squares], 1e-6);
        assert!((optimizer::sum_squares(&xs) - squares).abs() < 1e-12);
        assert_eq!(math::max(&xs), xs.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    }
}

#[test]
fn adamw_follows_its_definition() {
    let c = AdamW { rate: 0.01, beta1: 0.9, beta2: 0.95, epsilon: 1e-8, decay: 0.1 };
    let (mut p, mut m, mut v) = (numbers(37, 1), vec![0.0f32; 37], vec![0.0f32; 37]);
    let mut reference: Vec<(f64, f64, f64)> = p.iter().map(|p| (f64::from(*p), 0.0, 0.0)).collect();
    for step in 1..=20 {
        let g = numbers(37, 100 + step);
        optimizer::adamw(&c, step, 0.5, &mut p, &g, &mut m, &mut v);
        for ((p, m, v), g) in reference.iter_mut().zip(&g) {
            let g = f64::from(*g) * 0.5;
            (*m, *v) = (0.9 * *m + 0.1 * g, 0.95 * *v + 0.05 * g * g);
            let (m, v) = (*m / (1.0 - 0.9f64.powi(step as i32)), *v / (1.0 - 0.95f64.powi(step as i32)));
            *p -= 0.01 * 0.1 * *p + 0.01 * m / (v.sqrt() + 1e-8);
        }
    }
    close("adamw", &p, &reference.iter().map(|r| r.0).collect::<Vec<_>>(), 1e-5);
}

#[test]
fn the_first_adamw_step_is_the_sign_of_the_gradient() {
    let c = AdamW { rate: 0.5, beta1: 0.9, beta2: 0.999, epsilon: 0.0, decay: 0.0 };
    let mut p = [1.0, 1.0];
    optimizer::adamw(&c, 1, 1.0, &mut p, &[3.0, -0.001], &mut [0.0; 2], &mut [0.0; 2]);
    close("p", &p, &[0.5, 1.5], 1e-6);
}

#[test]
fn gradient_descent_and_clipping() {
    let mut p = [1.0, 2.0];
    optimizer::sgd(0.1, 0.5, &mut p, &[2.0, -4.0]);
    close("p", &p, &[0.9, 2.2], 1e-7);
    assert_eq!(optimizer::clip_factor(0.5, 1.0), 1.0);
    assert_eq!(optimizer::clip_factor(4.0, 1.0), 0.25);
}

#[test]
fn elementwise_sums() {
    let (a, b) = (numbers(19, 1), numbers(19, 2));
    let mut y = vec![9.0; 19];
    elementwise::add(&a, &b, &mut y);
    let mut z = a.clone();
    elementwise::accumulate(&b, &mut z);
    assert_eq!(y, z);
    elementwise::scale(2.0, &mut z);
    assert_eq!(z[3], 2.0 * y[3]);
    elementwise::copy(&a, &mut z);
    assert_eq!(z, a);
    elementwise::fill(3.0, &mut z);
    assert_eq!(z, [3.0; 19]);
}

#[test]
fn packing_and_slicing() {
    let (pieces, outer, block) = (3, 2, 4);
    let whole: Vec<f32> = (0..24).map(|i| i as f32).collect();
    let (mut packed, mut back) = (vec![9.0; 24], vec![9.0; 24]);
    rearrange::pack(pieces, outer, block, &whole, &mut packed);
    for piece in 0..pieces {
        let mut part = vec![9.0; 8];
        rearrange::slice_dim(pieces, outer, block, piece, &whole, &mut part);
        assert_eq!(part, packed[piece * 8..(piece + 1) * 8]);
    }
    assert_eq!(packed[..8], [0.0, 1.0, 2.0, 3.0, 12.0, 13.0, 14.0, 15.0]);
    rearrange::unpack(pieces, outer, block, &packed, &mut back);
    assert_eq!(back, whole);
}

#[test]
fn transposition_of_odd_sizes() {
    for (rows, columns, stride) in [(1, 1, 1), (16, 16, 16), (17, 33, 40), (5, 70, 70)] {
        let from = numbers(rows * stride, 1);
        let mut to = vec![9.0; rows * columns];
        gemm::transpose(rows, columns, stride, &from, &mut to);
        let moved = |r: usize, c: usize| to[c * rows + r] == from[r * stride + c];
        assert!((0..rows).all(|r| (0..columns).all(|c| moved(r, c))));
    }
}
