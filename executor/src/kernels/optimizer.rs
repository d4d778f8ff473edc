//! Optimizer steps over flat parameter shards, and the pieces of clipping by the global gradient norm. AdamW
//! is Loshchilov & Hutter, arXiv 1711.05101, with the bias correction of arXiv 1412.6980; all state is f32.

/// Constants of AdamW.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamW {
    /// Learning rate of this step.
    pub rate: f32,
    /// Decay of the first moment.
    pub beta1: f32,
    /// Decay of the second moment.
    pub beta2: f32,
    /// Added to the root of the second moment.
    pub epsilon: f32,
    /// Decoupled weight decay, multiplied by the rate.
    pub decay: f32,
}

/// One AdamW step on a shard. `step` counts from 1; `factor` multiplies the gradient (clipping, or 1).
pub fn adamw(c: &AdamW, step: u64, factor: f32, p: &mut [f32], g: &[f32], m: &mut [f32], v: &mut [f32]) {
    assert!(step > 0, "steps count from 1");
    let correction = |beta: f32| 1.0 - f64::from(beta).powf(step as f64);
    let rate = (f64::from(c.rate) / correction(c.beta1)) as f32;
    let root = (1.0 / correction(c.beta2).sqrt()) as f32;
    adamw_corrected(c, rate, root, factor, p, g, m, v);
}

simd! {
    /// The step with `rate` and the reciprocal `root` of the second moment's correction already worked out.
    fn adamw_corrected(
        c: &AdamW,
        rate: f32,
        root: f32,
        factor: f32,
        p: &mut [f32],
        g: &[f32],
        m: &mut [f32],
        v: &mut [f32],
    ) {
        let n = p.len();
        assert_eq!((g.len(), m.len(), v.len()), (n, n, n));
        let kept = 1.0 - c.rate * c.decay;
        for (((p, g), m), v) in p.iter_mut().zip(g).zip(m).zip(v) {
            let g = g * factor;
            *m = c.beta1 * *m + (1.0 - c.beta1) * g;
            *v = c.beta2 * *v + (1.0 - c.beta2) * g * g;
            *p = kept * *p - rate * *m / (v.sqrt() * root + c.epsilon);
        }
    }
}

simd! {
    /// One step of plain gradient descent: p -= rate · factor · g.
    pub fn sgd(rate: f32, factor: f32, p: &mut [f32], g: &[f32]) {
        assert_eq!(p.len(), g.len());
        for (p, g) in p.iter_mut().zip(g) {
            *p -= rate * (factor * g);
        }
    }
}

simd! {
    /// Σ x² in f64: this rank's addend to the square of the global norm.
    pub fn sum_squares(x: &[f32]) -> f64 {
        let mut lanes = [0.0f64; 16];
        let (blocks, tail) = x.as_chunks::<16>();
        for block in blocks {
            for (lane, x) in lanes.iter_mut().zip(block) {
                *lane += f64::from(*x) * f64::from(*x);
            }
        }
        for (lane, x) in lanes.iter_mut().zip(tail) {
            *lane += f64::from(*x) * f64::from(*x);
        }
        lanes.iter().sum()
    }
}

/// The factor that brings a gradient of global norm `norm` down to at most `limit`; 1 when it is there
/// already.
pub fn clip_factor(norm: f64, limit: f64) -> f32 {
    if norm > limit { (limit / norm) as f32 } else { 1.0 }
}
