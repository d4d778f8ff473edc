//! Activations of a feed-forward block and gated activations, with gradients recomputed from the saved input.
//! The tanh form of GELU is x·sigmoid(2u), u = sqrt(2/π)(x + 0.044715 x³): the same function, since (1 + tanh
//! u)/2 = sigmoid(2u), without the cancellation of 1 + tanh u (Hendrycks & Gimpel, arXiv 1606.08415).

use super::math::{normal_cdf, normal_density, sigmoid};

/// Which function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// GELU in its tanh form, as GPT-2 uses it.
    Gelu,
    /// GELU by the exact normal distribution, as BERT uses it.
    GeluExact,
    /// x·sigmoid(x), also called swish.
    Silu,
    /// max(x, 0); its slope at 0 is 0.
    Relu,
}

simd! {
    /// y = act(x), elementwise.
    pub fn forward(act: Activation, x: &[f32], y: &mut [f32]) {
        match act {
            Activation::Gelu => map(x, y, |x| gelu(x).0),
            Activation::GeluExact => map(x, y, |x| x * normal_cdf(x)),
            Activation::Silu => map(x, y, |x| silu(x).0),
            Activation::Relu => map(x, y, |x| relu(x).0),
        }
    }
}

simd! {
    /// dx = dy · act'(x), elementwise, from the saved input x.
    pub fn backward(act: Activation, dy: &[f32], x: &[f32], dx: &mut [f32]) {
        match act {
            Activation::Gelu => map2(dy, x, dx, |dy, x| dy * gelu(x).1),
            Activation::GeluExact => map2(dy, x, dx, |dy, x| dy * gelu_exact(x).1),
            Activation::Silu => map2(dy, x, dx, |dy, x| dy * silu(x).1),
            Activation::Relu => map2(dy, x, dx, |dy, x| dy * relu(x).1),
        }
    }
}

/// Gated activations: the product of an activated gate and a second branch (GLU variants, arXiv 2002.05202).
pub mod gate {
    use super::*;

    simd! {
        /// y = act(g) · u, elementwise.
        pub fn forward(act: Activation, g: &[f32], u: &[f32], y: &mut [f32]) {
            match act {
                Activation::Gelu => map2(g, u, y, |g, u| gelu(g).0 * u),
                Activation::GeluExact => map2(g, u, y, |g, u| gelu_exact(g).0 * u),
                Activation::Silu => map2(g, u, y, |g, u| silu(g).0 * u),
                Activation::Relu => map2(g, u, y, |g, u| relu(g).0 * u),
            }
        }
    }

    simd! {
        /// dg = dy · u · act'(g) and du = dy · act(g), from the saved branches.
        pub fn backward(act: Activation, dy: &[f32], g: &[f32], u: &[f32], dg: &mut [f32], du: &mut [f32]) {
            match act {
                Activation::Gelu => both(dy, g, u, dg, du, gelu),
                Activation::GeluExact => both(dy, g, u, dg, du, gelu_exact),
                Activation::Silu => both(dy, g, u, dg, du, silu),
                Activation::Relu => both(dy, g, u, dg, du, relu),
            }
        }
    }

    #[inline(always)]
    fn both(
        dy: &[f32],
        g: &[f32],
        u: &[f32],
        dg: &mut [f32],
        du: &mut [f32],
        act: impl Fn(f32) -> (f32, f32),
    ) {
        let n = dy.len();
        assert_eq!((g.len(), u.len(), dg.len(), du.len()), (n, n, n, n));
        for ((((dg, du), dy), g), u) in dg.iter_mut().zip(du).zip(dy).zip(g).zip(u) {
            let (value, slope) = act(*g);
            *dg = dy * u * slope;
            *du = dy * value;
        }
    }
}

/// Value and slope of GELU's tanh form.
#[inline(always)]
fn gelu(x: f32) -> (f32, f32) {
    const TWICE_ROOT: f32 = 1.595_769; // 2 sqrt(2/π)
    let s = sigmoid(x * (TWICE_ROOT + TWICE_ROOT * 0.044_715 * x * x));
    let slope = TWICE_ROOT + 3.0 * TWICE_ROOT * 0.044_715 * x * x;
    (x * s, s + x * s * (1.0 - s) * slope)
}

/// Value and slope of the exact GELU.
#[inline(always)]
fn gelu_exact(x: f32) -> (f32, f32) {
    let cdf = normal_cdf(x);
    (x * cdf, cdf + x * normal_density(x))
}

#[inline(always)]
fn silu(x: f32) -> (f32, f32) {
    let s = sigmoid(x);
    (x * s, s + x * s * (1.0 - s))
}

/// NaN passes through the value.
#[inline(always)]
fn relu(x: f32) -> (f32, f32) {
    if x <= 0.0 { (0.0, 0.0) } else { (x, 1.0) }
}

#[inline(always)]
fn map(x: &[f32], y: &mut [f32], f: impl Fn(f32) -> f32) {
    assert_eq!(x.len(), y.len());
    for (y, x) in y.iter_mut().zip(x) {
        *y = f(*x);
    }
}

#[inline(always)]
fn map2(a: &[f32], b: &[f32], y: &mut [f32], f: impl Fn(f32, f32) -> f32) {
    assert_eq!((a.len(), b.len()), (y.len(), y.len()));
    for ((y, a), b) in y.iter_mut().zip(a).zip(b) {
        *y = f(*a, *b);
    }
}
