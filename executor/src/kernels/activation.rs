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
    /// max(x, 0)².
    Relu2,
    /// x·sigmoid(1.702 x), CLIP's approximation of GELU.
    QuickGelu,
    /// tanh x.
    Tanh,
    /// sigmoid(x).
    Sigmoid,
}

simd! {
    /// y = act(x), elementwise.
    pub fn forward(act: Activation, x: &[f32], y: &mut [f32]) {
        match act {
            Activation::Gelu => map(x, y, |x| gelu(x).0),
            Activation::GeluExact => map(x, y, |x| x * normal_cdf(x)),
            Activation::Silu => map(x, y, |x| silu(x).0),
            Activation::Relu => map(x, y, |x| relu(x).0),
            Activation::Relu2 => map(x, y, |x| relu2(x).0),
            Activation::QuickGelu => map(x, y, |x| quick_gelu(x).0),
            Activation::Tanh => map(x, y, |x| tanh(x).0),
            Activation::Sigmoid => map(x, y, sigmoid),
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
            Activation::Relu2 => map2(dy, x, dx, |dy, x| dy * relu2(x).1),
            Activation::QuickGelu => map2(dy, x, dx, |dy, x| dy * quick_gelu(x).1),
            Activation::Tanh => map2(dy, x, dx, |dy, x| dy * tanh(x).1),
            Activation::Sigmoid => map2(dy, x, dx, |dy, x| dy * logistic(x).1),
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
                Activation::Relu2 => map2(g, u, y, |g, u| relu2(g).0 * u),
                Activation::QuickGelu => map2(g, u, y, |g, u| quick_gelu(g).0 * u),
                Activation::Tanh => map2(g, u, y, |g, u| tanh(g).0 * u),
                Activation::Sigmoid => map2(g, u, y, |g, u| sigmoid(g) * u),
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
                Activation::Relu2 => both(dy, g, u, dg, du, relu2),
                Activation::QuickGelu => both(dy, g, u, dg, du, quick_gelu),
                Activation::Tanh => both(dy, g, u, dg, du, tanh),
                Activation::Sigmoid => both(dy, g, u, dg, du, logistic),
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
fn relu2(x: f32) -> (f32, f32) {
    let (value, _) = relu(x);
    (value * value, 2.0 * value)
}

#[inline(always)]
fn quick_gelu(x: f32) -> (f32, f32) {
    const STEEP: f32 = 1.702;
    let s = sigmoid(STEEP * x);
    (x * s, s + STEEP * x * s * (1.0 - s))
}

/// tanh x = 2 sigmoid(2x) - 1; for small |x|, where that would cancel, its series to x⁵ (error below 1e-7 x).
#[inline(always)]
fn tanh(x: f32) -> (f32, f32) {
    let square = x * x;
    let value = if square < 0.01 {
        x * (1.0 - square * (1.0 / 3.0 - square * (2.0 / 15.0)))
    } else {
        2.0 * sigmoid(2.0 * x) - 1.0
    };
    (value, 1.0 - value * value)
}

#[inline(always)]
fn logistic(x: f32) -> (f32, f32) {
    let s = sigmoid(x);
    (s, s * (1.0 - s))
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
