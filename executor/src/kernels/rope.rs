//! Rotary position embedding (Su et al., arXiv 2104.09864) in the half-split convention of Llama: element i
//! of a head pairs with element i + turned/2 and turns by position · theta^(-2i/turned), where `turned` leading
//! features of a head turn (all, but in models with partial rotation) and the others pass. The angles of one
//! position follow from those of the one before by a rotation in f64, so no table is kept.

/// Where and how a local `[batch, sequence, heads * head_dim]` tensor is rotated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rope {
    /// Local sequence length.
    pub sequence: usize,
    /// Local heads.
    pub heads: usize,
    /// Features of one head.
    pub head_dim: usize,
    /// Features of them that turn; even.
    pub turned: usize,
    /// Base of the geometric series of frequencies, 10 000 in the paper.
    pub theta: f64,
    /// Global position of the first local token.
    pub first_position: usize,
}

/// y = x with every pair turned by its angle.
pub fn forward(rope: &Rope, x: &[f32], y: &mut [f32]) {
    turn(rope, 1.0, x, y);
}

/// dx = dy with every pair turned back.
pub fn backward(rope: &Rope, dy: &[f32], dx: &mut [f32]) {
    turn(rope, -1.0, dy, dx);
}

fn turn(rope: &Rope, direction: f64, x: &[f32], y: &mut [f32]) {
    let features = rope.heads * rope.head_dim;
    assert_eq!(rope.turned % 2, 0, "rotary embedding pairs features: {rope:?}");
    assert!(rope.turned <= rope.head_dim, "{rope:?}");
    assert_eq!(x.len(), y.len());
    assert_eq!(x.len() % (rope.sequence * features), 0, "{} elements are no batch of {rope:?}", x.len());
    let batch = x.len() / (rope.sequence * features);
    let mut angles = Angles::new(rope, direction);
    for position in 0..rope.sequence {
        for b in 0..batch {
            let start = (b * rope.sequence + position) * features;
            let row = start..start + features;
            rotate(rope.head_dim, &angles.cos, &angles.sin, &x[row.clone()], &mut y[row]);
        }
        angles.advance();
    }
}

simd! {
    /// Turns each head of one row; `cos` and `sin` are half as long as what turns.
    fn rotate(head_dim: usize, cos: &[f32], sin: &[f32], x: &[f32], y: &mut [f32]) {
        let half = cos.len();
        for (x, y) in x.chunks_exact(head_dim).zip(y.chunks_exact_mut(head_dim)) {
            let ((x, still), (y, passed)) = (x.split_at(2 * half), y.split_at_mut(2 * half));
            passed.copy_from_slice(still);
            let ((x0, x1), (y0, y1)) = (x.split_at(half), y.split_at_mut(half));
            for (((((y0, y1), x0), x1), c), s) in y0.iter_mut().zip(y1).zip(x0).zip(x1).zip(cos).zip(sin) {
                *y0 = x0 * c - x1 * s;
                *y1 = x1 * c + x0 * s;
            }
        }
    }
}

/// Cosine and sine of every frequency at the current position, and the rotation to the next.
struct Angles {
    /// (cos, sin) now and per step, in f64.
    now: Vec<(f64, f64)>,
    step: Vec<(f64, f64)>,
    cos: Vec<f32>,
    sin: Vec<f32>,
}

impl Angles {
    fn new(rope: &Rope, direction: f64) -> Self {
        let half = rope.turned / 2;
        let turn = |i: usize, position: f64| {
            let frequency = rope.theta.powf(-2.0 * i as f64 / rope.turned as f64);
            let (sin, cos) = (direction * position * frequency).sin_cos();
            (cos, sin)
        };
        let now = (0..half).map(|i| turn(i, rope.first_position as f64)).collect();
        let step = (0..half).map(|i| turn(i, 1.0)).collect();
        let mut angles = Self { now, step, cos: vec![0.0; half], sin: vec![0.0; half] };
        angles.narrow();
        angles
    }

    fn advance(&mut self) {
        for ((cos, sin), (step_cos, step_sin)) in self.now.iter_mut().zip(&self.step) {
            (*cos, *sin) = (*cos * step_cos - *sin * step_sin, *sin * step_cos + *cos * step_sin);
        }
        self.narrow();
    }

    fn narrow(&mut self) {
        for ((c, s), (cos, sin)) in self.cos.iter_mut().zip(&mut self.sin).zip(&self.now) {
            (*c, *s) = (*cos as f32, *sin as f32);
        }
    }
}
