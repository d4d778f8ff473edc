//! A learned factor for each feature. The gradient of the input is the same product, with dy for x.

simd! {
    /// y = x · w along rows of `w.len()` features.
    pub fn forward(x: &[f32], w: &[f32], y: &mut [f32]) {
        assert_eq!((x.len(), x.len() % w.len()), (y.len(), 0));
        for (x, y) in x.chunks_exact(w.len()).zip(y.chunks_exact_mut(w.len())) {
            for ((y, x), w) in y.iter_mut().zip(x).zip(w) {
                *y = x * w;
            }
        }
    }
}

simd! {
    /// dw (+)= Σ dy x over all rows; `first` overwrites.
    pub fn backward_weight(dy: &[f32], x: &[f32], dw: &mut [f32], first: bool) {
        assert_eq!((dy.len(), dy.len() % dw.len()), (x.len(), 0));
        if first {
            dw.fill(0.0);
        }
        for (dy, x) in dy.chunks_exact(dw.len()).zip(x.chunks_exact(dw.len())) {
            for ((dw, dy), x) in dw.iter_mut().zip(dy).zip(x) {
                *dw += dy * x;
            }
        }
    }
}
