//! Sums, maxima, copies and fills of whole buffers of one length.

simd! {
    /// y = a + b.
    pub fn add(a: &[f32], b: &[f32], y: &mut [f32]) {
        assert_eq!((a.len(), b.len()), (y.len(), y.len()));
        for ((y, a), b) in y.iter_mut().zip(a).zip(b) {
            *y = a + b;
        }
    }
}

simd! {
    /// y += a.
    pub fn accumulate(a: &[f32], y: &mut [f32]) {
        assert_eq!(a.len(), y.len());
        for (y, a) in y.iter_mut().zip(a) {
            *y += a;
        }
    }
}

simd! {
    /// y = max(a, y).
    pub fn maximum(a: &[f32], y: &mut [f32]) {
        assert_eq!(a.len(), y.len());
        for (y, a) in y.iter_mut().zip(a) {
            *y = if *a > *y { *a } else { *y };
        }
    }
}

simd! {
    /// y *= factor.
    pub fn scale(factor: f32, y: &mut [f32]) {
        for y in y {
            *y *= factor;
        }
    }
}

/// y = a.
pub fn copy(a: &[f32], y: &mut [f32]) {
    y.copy_from_slice(a);
}

/// y = value, everywhere.
pub fn fill(value: f32, y: &mut [f32]) {
    y.fill(value);
}
