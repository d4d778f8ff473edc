//! The one door to the `gemm` crate: strided matrix views whose bounds are checked when they are made, one
//! product over them, and a transposition. Invariant: every element that a view names lies inside its slice.

/// A read-only view; element (r, c) lies at `data[r * strides.0 + c * strides.1]`.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a> {
    data: &'a [f32],
    rows: usize,
    columns: usize,
    strides: (usize, usize),
}

/// A row-major view to write through; element (r, c) lies at `data[r * stride + c]`.
#[derive(Debug)]
pub struct MatrixMut<'a> {
    data: &'a mut [f32],
    rows: usize,
    columns: usize,
    stride: usize,
}

impl<'a> Matrix<'a> {
    /// Views `rows` rows of `columns` elements, `stride` elements apart. Panics when the slice is too short.
    pub fn new(data: &'a [f32], rows: usize, columns: usize, stride: usize) -> Self {
        check(data.len(), rows, columns, stride);
        Self { data, rows, columns, strides: (stride, 1) }
    }

    /// The transposed view of the same elements.
    #[must_use]
    pub fn transposed(self) -> Self {
        let (row, column) = self.strides;
        Self { rows: self.columns, columns: self.rows, strides: (column, row), ..self }
    }
}

impl<'a> MatrixMut<'a> {
    /// Views `rows` rows of `columns` elements, `stride` elements apart. Panics when the slice is too short
    /// or rows would overlap.
    pub fn new(data: &'a mut [f32], rows: usize, columns: usize, stride: usize) -> Self {
        check(data.len(), rows, columns, stride);
        assert!(rows <= 1 || stride >= columns, "rows of {columns} elements overlap at stride {stride}");
        Self { data, rows, columns, stride }
    }
}

/// into = scale · a·b when `first`, else into += scale · a·b. Single-threaded.
#[allow(unsafe_code)]
pub fn multiply(into: MatrixMut, first: bool, scale: f32, a: Matrix, b: Matrix) {
    let (m, n, k) = (into.rows, into.columns, a.columns);
    assert_eq!((a.rows, b.columns, b.rows), (m, n, k), "shapes of a matrix product disagree");
    if m == 0 || n == 0 {
        return;
    }
    let kept = if first { 0.0 } else { 1.0 };
    // SAFETY: the constructors checked that every (r, c) of each view lies inside its slice; `into` is
    // borrowed mutably, so it overlaps neither `a` nor `b`; strides fit isize because slices are at most
    // isize::MAX bytes.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            into.data.as_mut_ptr(),
            1,
            into.stride as isize,
            !first,
            a.data.as_ptr(),
            a.strides.1 as isize,
            a.strides.0 as isize,
            b.data.as_ptr(),
            b.strides.1 as isize,
            b.strides.0 as isize,
            kept,
            scale,
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    }
}

simd! {
    /// to[c, r] = from[r, c] for rows of `columns` elements that lie `stride` apart in `from` and a dense
    /// `to`.
    pub fn transpose(rows: usize, columns: usize, stride: usize, from: &[f32], to: &mut [f32]) {
        // A square tile reads and writes whole cache lines, and few enough that they stay.
        const TILE: usize = 16;
        check(from.len(), rows, columns, stride);
        assert_eq!(to.len(), rows * columns);
        for row in (0..rows).step_by(TILE) {
            for column in (0..columns).step_by(TILE) {
                let (height, width) = (TILE.min(rows - row), TILE.min(columns - column));
                let mut tile = [[0.0; TILE]; TILE];
                for r in 0..height {
                    let line = &from[(row + r) * stride + column..][..width];
                    for (c, x) in line.iter().enumerate() {
                        tile[c][r] = *x;
                    }
                }
                for (c, line) in tile[..width].iter().enumerate() {
                    to[(column + c) * rows + row..][..height].copy_from_slice(&line[..height]);
                }
            }
        }
    }
}

/// Panics unless the last element of the last row lies inside `len` elements.
fn check(len: usize, rows: usize, columns: usize, stride: usize) {
    if rows > 0 && columns > 0 {
        let needed = (rows - 1) * stride + columns;
        assert!(
            needed <= len,
            "a {rows}x{columns} view at stride {stride} needs {needed} elements, has {len}"
        );
    }
}
