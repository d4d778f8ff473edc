//! Test helpers: reproducible numbers, comparison with a tolerance, and the gradient check: a kernel's
//! outputs and gradients against a plain f64 reference of the forward pass and its central differences.

/// `n` reproducible numbers, about evenly spread over (-1, 1).
pub(crate) fn numbers(n: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x1234_5678_9ABC_DEF1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        ((state >> 40) as f32 / (1u64 << 23) as f32) - 1.0
    };
    (0..n).map(|_| next()).collect()
}

/// Panics unless |got - expected| <= tolerance · (1 + |expected|) everywhere.
#[track_caller]
pub(crate) fn close(what: &str, got: &[f32], expected: &[f64], tolerance: f64) {
    assert_eq!(got.len(), expected.len(), "{what}: lengths");
    for (i, (g, e)) in got.iter().zip(expected).enumerate() {
        let off = (f64::from(*g) - e).abs();
        assert!(off <= tolerance * (1.0 + e.abs()), "{what}[{i}]: {g}, expected {e}");
    }
}

pub(crate) fn widen(xs: &[f32]) -> Vec<f64> {
    xs.iter().map(|x| f64::from(*x)).collect()
}

/// What a kernel made of `inputs`: its output, and for a gradient `dy` of it the gradient of each input
/// (an empty one is not checked).
pub(crate) struct Made<'a> {
    pub(crate) inputs: &'a [&'a [f32]],
    pub(crate) y: &'a [f32],
    pub(crate) dy: &'a [f32],
    pub(crate) gradients: &'a [&'a [f32]],
}

/// Checks y against `reference` and each gradient against central differences of `reference`, both in f64.
#[track_caller]
pub(crate) fn check(what: &str, made: &Made, reference: impl Fn(&[Vec<f64>]) -> Vec<f64>) {
    let mut inputs: Vec<Vec<f64>> = made.inputs.iter().map(|x| widen(x)).collect();
    close(&format!("{what}: y"), made.y, &reference(&inputs), 3e-6);
    let step = 1e-5;
    for (i, gradient) in made.gradients.iter().enumerate().filter(|(_, g)| !g.is_empty()) {
        let expected: Vec<f64> = (0..inputs[i].len())
            .map(|j| {
                let kept = inputs[i][j];
                let mut at = |x: f64| {
                    inputs[i][j] = x;
                    let y = reference(&inputs);
                    y.iter().zip(made.dy).map(|(y, dy)| y * f64::from(*dy)).sum::<f64>()
                };
                let slope = (at(kept + step) - at(kept - step)) / (2.0 * step);
                inputs[i][j] = kept;
                slope
            })
            .collect();
        close(&format!("{what}: gradient of input {i}"), gradient, &expected, 1e-5);
    }
}
