//! How full every memory row is: a segment tree with additions over runs of rows and the largest value at the root. The
//! invariant: the root's value is that of the fullest row.

/// See the module.
#[derive(Debug, Clone)]
pub(crate) struct Profile {
    leaves: usize,
    rows: usize,
    /// Largest of the part below each place, what was added to the whole part included.
    most: Vec<i64>,
    /// Added to the whole part.
    added: Vec<i64>,
}

impl Profile {
    pub(crate) fn new(values: &[i64]) -> Self {
        let leaves = values.len().next_power_of_two();
        let mut most = vec![i64::MIN / 4; 2 * leaves];
        most[leaves..leaves + values.len()].copy_from_slice(values);
        for k in (1..leaves).rev() {
            most[k] = most[2 * k].max(most[2 * k + 1]);
        }
        Self { leaves, rows: values.len(), most, added: vec![0; leaves] }
    }

    /// The fullest row's value; the least there is where there are no rows.
    pub(crate) fn top(&self) -> i64 {
        if self.rows == 0 { i64::MIN / 4 } else { self.most[1] }
    }

    /// A fullest row.
    pub(crate) fn fullest(&self) -> usize {
        let mut k = 1;
        while k < self.leaves {
            k = if self.most[2 * k] >= self.most[2 * k + 1] { 2 * k } else { 2 * k + 1 };
        }
        k - self.leaves
    }

    /// Adds to the rows `from..until`.
    pub(crate) fn add(&mut self, from: u32, until: u32, value: i64) {
        let (mut l, mut r) = (from as usize + self.leaves, until as usize + self.leaves);
        let (first, last) = (l, r - 1);
        while l < r {
            if l & 1 == 1 {
                self.put(l, value);
                l += 1;
            }
            if r & 1 == 1 {
                r -= 1;
                self.put(r, value);
            }
            l >>= 1;
            r >>= 1;
        }
        self.mend(first);
        self.mend(last);
    }

    fn put(&mut self, k: usize, value: i64) {
        self.most[k] += value;
        if k < self.leaves {
            self.added[k] += value;
        }
    }

    fn mend(&mut self, mut k: usize) {
        while k > 1 {
            k >>= 1;
            self.most[k] = self.most[2 * k].max(self.most[2 * k + 1]) + self.added[k];
        }
    }
}
