//! LayerNorm (Ba et al., arXiv 1607.06450) and RMSNorm (Zhang & Sennrich, arXiv 1910.07467) over groups of
//! `width` features. A row of features = groups · width is normalised group by group with one shared gamma,
//! which is the plain norm for one group and the per-head query/key norm for several. Statistics are not
//! kept: the gradients compute them again from the saved input.

use super::math::{sum, sum2};

/// Which statistics are taken out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Subtract the mean, divide by the standard deviation.
    Layer,
    /// Divide by the root mean square.
    Rms,
}

/// A norm over each run of `width` elements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Norm {
    /// Which norm.
    pub kind: Kind,
    /// Elements normalised together; the length of gamma and beta.
    pub width: usize,
    /// Added to the mean square before the root.
    pub epsilon: f32,
}

simd! {
    /// y = (x - mean) · rstd · gamma + beta, with x and y `[.., width]`, gamma and beta `[width]`.
    pub fn forward(norm: &Norm, x: &[f32], gamma: &[f32], beta: Option<&[f32]>, y: &mut [f32]) {
        norm.check(x.len(), gamma.len());
        assert_eq!(x.len(), y.len());
        for (x, y) in x.chunks_exact(norm.width).zip(y.chunks_exact_mut(norm.width)) {
            let (mean, rstd) = norm.statistics(x);
            match beta {
                Some(beta) => {
                    assert_eq!(beta.len(), norm.width);
                    for (((y, x), g), b) in y.iter_mut().zip(x).zip(gamma).zip(beta) {
                        *y = (x - mean) * rstd * g + b;
                    }
                }
                None => {
                    for ((y, x), g) in y.iter_mut().zip(x).zip(gamma) {
                        *y = (x - mean) * rstd * g;
                    }
                }
            }
        }
    }
}

simd! {
    /// dx = rstd (h - mean(h) - z mean(h z)), h = dy gamma, z = (x - mean) rstd; RMSNorm drops mean(h).
    pub fn backward_input(norm: &Norm, dy: &[f32], x: &[f32], gamma: &[f32], dx: &mut [f32]) {
        norm.check(x.len(), gamma.len());
        assert_eq!((dy.len(), dx.len()), (x.len(), x.len()));
        let share = 1.0 / norm.width as f32;
        let rows = dy.chunks_exact(norm.width).zip(x.chunks_exact(norm.width));
        for (dx, (dy, x)) in dx.chunks_exact_mut(norm.width).zip(rows) {
            let (mean, rstd) = norm.statistics(x);
            for (((dx, dy), g), _) in dx.iter_mut().zip(dy).zip(gamma).zip(x) {
                *dx = dy * g;
            }
            let level = match norm.kind {
                Kind::Layer => sum(dx, |h| h) * share,
                Kind::Rms => 0.0,
            };
            let tilt = sum2(dx, x, |h, x| h * (x - mean)) * rstd * rstd * share;
            for (dx, x) in dx.iter_mut().zip(x) {
                *dx = (*dx - level - (x - mean) * tilt) * rstd;
            }
        }
    }
}

simd! {
    /// dgamma (+)= Σ dy z and dbeta (+)= Σ dy over all groups of all rows; `first` overwrites.
    pub fn backward_weight(
        norm: &Norm,
        dy: &[f32],
        x: &[f32],
        dgamma: &mut [f32],
        dbeta: Option<&mut [f32]>,
        first: bool,
    ) {
        norm.check(x.len(), dgamma.len());
        assert_eq!(dy.len(), x.len());
        if first {
            dgamma.fill(0.0);
        }
        for (dy, x) in dy.chunks_exact(norm.width).zip(x.chunks_exact(norm.width)) {
            let (mean, rstd) = norm.statistics(x);
            for ((dgamma, dy), x) in dgamma.iter_mut().zip(dy).zip(x) {
                *dgamma += dy * ((x - mean) * rstd);
            }
        }
        if let Some(dbeta) = dbeta {
            assert_eq!(dbeta.len(), norm.width);
            super::bias::backward_weight(dy, dbeta, first);
        }
    }
}

impl Norm {
    fn check(&self, elements: usize, gamma: usize) {
        assert_eq!(gamma, self.width, "gamma does not fit {self:?}");
        assert_eq!(elements % self.width, 0, "{elements} elements are no groups of {self:?}");
    }

    /// Mean (0 for RMSNorm) and reciprocal standard deviation of one group.
    #[inline(always)]
    fn statistics(&self, x: &[f32]) -> (f32, f32) {
        let share = 1.0 / self.width as f32;
        let mean = match self.kind {
            Kind::Layer => sum(x, |x| x) * share,
            Kind::Rms => 0.0,
        };
        let variance = sum(x, |x| (x - mean) * (x - mean)) * share;
        (mean, 1.0 / (variance + self.epsilon).sqrt())
    }
}
