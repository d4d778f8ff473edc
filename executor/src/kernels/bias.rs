//! Adding one bias `[features]` to every row, and its gradient, the column sums. The input's gradient is a
//! copy.

simd! {
    /// y = x + b, with x and y `[rows, features]` and b `[features]`.
    pub fn forward(x: &[f32], b: &[f32], y: &mut [f32]) {
        assert_eq!(x.len(), y.len());
        assert_eq!(x.len() % b.len(), 0, "{} elements are no rows of {}", x.len(), b.len());
        for (x, y) in x.chunks_exact(b.len()).zip(y.chunks_exact_mut(b.len())) {
            for ((y, x), b) in y.iter_mut().zip(x).zip(b) {
                *y = x + b;
            }
        }
    }
}

simd! {
    /// db = Σ over rows of dy when `first`, else db += it.
    pub fn backward_weight(dy: &[f32], db: &mut [f32], first: bool) {
        assert_eq!(dy.len() % db.len(), 0, "{} elements are no rows of {}", dy.len(), db.len());
        if first {
            db.fill(0.0);
        }
        for dy in dy.chunks_exact(db.len()) {
            for (db, dy) in db.iter_mut().zip(dy) {
                *db += dy;
            }
        }
    }
}
