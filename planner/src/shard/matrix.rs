//! Cost matrices, each distinct one stored once. Whatever is found out about one (a separable sum, a function from rows to
//! columns, its cut to fewer strategies) is found out once for all edges that share it. The invariant: entries are finite
//! or [`NEVER`], and sums keep to that.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// What may not be chosen. Finite costs stay so far below it that sums of two are exact.
pub(crate) const NEVER: i64 = 4_000_000_000_000_000_000;

/// Sum that [`NEVER`] absorbs.
#[inline]
pub(crate) fn plus(a: i64, b: i64) -> i64 {
    if a >= NEVER || b >= NEVER { NEVER } else { (a + b).min(NEVER) }
}

/// Row-major.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Matrix {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) cells: Vec<i64>,
}

impl Matrix {
    pub(crate) fn of(rows: usize, columns: usize, cell: impl Fn(usize, usize) -> i64) -> Self {
        let mut cells = Vec::with_capacity(rows * columns);
        (0..rows).for_each(|p| cells.extend((0..columns).map(|q| cell(p, q))));
        Self { rows, columns, cells }
    }

    #[inline]
    pub(crate) fn at(&self, p: usize, q: usize) -> i64 {
        self.cells[p * self.columns + q]
    }

    /// The one column that goes with each row, if every row has exactly one.
    fn function(&self) -> Option<Vec<u32>> {
        let one = |row: &[i64]| {
            let mut open = row.iter().enumerate().filter(|(_, c)| **c < NEVER);
            let (q, _) = open.next()?;
            open.next().is_none().then_some(q as u32)
        };
        self.cells.chunks(self.columns).map(one).collect()
    }

    /// Row and column terms whose sums the entries are, if they are.
    fn separable(&self) -> Option<(Vec<i64>, Vec<i64>)> {
        let first = *self.cells.first()?;
        let columns: Vec<i64> = self.cells[..self.columns].iter().map(|c| c - first).collect();
        let rows: Vec<i64> = self.cells.chunks(self.columns).map(|row| row[0]).collect();
        let sums = |(p, row): (usize, &[i64])| {
            row.iter().zip(&columns).all(|(c, q)| *c < NEVER && *c == rows[p] + q)
        };
        self.cells.chunks(self.columns).enumerate().all(sums).then_some((rows, columns))
    }
}

/// Position of a matrix in its [`Store`].
pub(crate) type Id = u32;

/// What is known of a matrix.
#[derive(Debug, Clone, Default)]
struct Known {
    function: Option<Option<Vec<u32>>>,
    separable: Option<Option<(Vec<i64>, Vec<i64>)>>,
    flipped: Option<Id>,
}

/// All matrices.
#[derive(Debug, Clone, Default)]
pub(crate) struct Store {
    all: Vec<Matrix>,
    known: Vec<Known>,
    by_hash: HashMap<u64, Vec<Id>>,
    sums: HashMap<(Id, Id), Id>,
    /// Lists of positions, each distinct one stored once.
    lists: HashMap<Vec<u32>, u32>,
    picked: HashMap<(Id, u32), Id>,
}

impl Store {
    pub(crate) fn get(&self, id: Id) -> &Matrix {
        &self.all[id as usize]
    }

    pub(crate) fn put(&mut self, matrix: Matrix) -> Id {
        let mut hasher = DefaultHasher::new();
        matrix.hash(&mut hasher);
        let alike = self.by_hash.entry(hasher.finish()).or_default();
        if let Some(id) = alike.iter().find(|id| self.all[**id as usize] == matrix) {
            return *id;
        }
        let id = self.all.len() as Id;
        alike.push(id);
        self.all.push(matrix);
        self.known.push(Known::default());
        id
    }

    pub(crate) fn function(&mut self, id: Id) -> Option<Vec<u32>> {
        let matrix = &self.all[id as usize];
        self.known[id as usize].function.get_or_insert_with(|| matrix.function()).clone()
    }

    pub(crate) fn separable(&mut self, id: Id) -> Option<(Vec<i64>, Vec<i64>)> {
        let matrix = &self.all[id as usize];
        self.known[id as usize].separable.get_or_insert_with(|| matrix.separable()).clone()
    }

    pub(crate) fn flipped(&mut self, id: Id) -> Id {
        if let Some(flipped) = self.known[id as usize].flipped {
            return flipped;
        }
        let m = self.get(id);
        let flipped = self.put(Matrix::of(m.columns, m.rows, |p, q| m.at(q, p)));
        self.known[id as usize].flipped = Some(flipped);
        self.known[flipped as usize].flipped = Some(id);
        flipped
    }

    /// Entrywise sum of two of the same shape.
    pub(crate) fn sum(&mut self, a: Id, b: Id) -> Id {
        let key = (a.min(b), a.max(b));
        if let Some(id) = self.sums.get(&key) {
            return *id;
        }
        let (x, y) = (self.get(a), self.get(b));
        let cells = x.cells.iter().zip(&y.cells).map(|(x, y)| plus(*x, *y)).collect();
        let sum = Matrix { rows: x.rows, columns: x.columns, cells };
        let id = self.put(sum);
        self.sums.insert(key, id);
        id
    }

    /// The matrix whose row k is row `rows[k]` of this one.
    pub(crate) fn pick_rows(&mut self, id: Id, rows: &[u32]) -> Id {
        let next = self.lists.len() as u32;
        let list = match self.lists.get(rows) {
            Some(list) => *list,
            None => *self.lists.entry(rows.to_vec()).or_insert(next),
        };
        if let Some(picked) = self.picked.get(&(id, list)) {
            return *picked;
        }
        let m = self.get(id);
        let picked = Matrix::of(rows.len(), m.columns, |p, q| m.at(rows[p] as usize, q));
        let picked = self.put(picked);
        self.picked.insert((id, list), picked);
        picked
    }
}
