//! Memory rows: which times have to be watched. The set of nodes alive changes only where one starts or ends, and only the
//! moments just before an end that follows a start hold a set that no other contains (the maximal cliques of an interval
//! graph). The invariant: a choice fits at every time if and only if it fits at these rows.

/// What a node holds over the rows `from..until`, per strategy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) from: u32,
    pub(crate) until: u32,
    pub(crate) held: Vec<i64>,
}

/// Rows of a set of half-open intervals: how many, and each interval's own, empty where it is.
pub(crate) fn rows(intervals: &[(u64, u64)]) -> (usize, Vec<(u32, u32)>) {
    // Ends sort before starts of the same time: what ends then is gone.
    let mut events: Vec<(u64, bool)> = Vec::with_capacity(2 * intervals.len());
    for (from, until) in intervals.iter().filter(|(from, until)| from < until) {
        events.extend([(*from, true), (*until, false)]);
    }
    events.sort_unstable();
    let mut watched: Vec<u64> = Vec::new();
    for pair in events.windows(2) {
        if pair[0].1 && !pair[1].1 {
            watched.push(pair[0].0);
        }
    }
    let row = |time: u64| watched.partition_point(|w| *w < time) as u32;
    let own = |(from, until): &(u64, u64)| if from < until { (row(*from), row(*until)) } else { (0, 0) };
    (watched.len(), intervals.iter().map(own).collect())
}

/// Least value over any run of rows, in constant time (a sparse table).
pub(crate) struct Least(Vec<Vec<i64>>);

impl Least {
    pub(crate) fn new(values: Vec<i64>) -> Self {
        let mut levels = vec![values];
        let mut width = 1;
        while 2 * width <= levels[0].len() {
            let last = &levels[levels.len() - 1];
            let next = (0..=levels[0].len() - 2 * width).map(|k| last[k].min(last[k + width])).collect();
            levels.push(next);
            width *= 2;
        }
        Self(levels)
    }

    /// Least of `from..until`, which is not empty.
    pub(crate) fn over(&self, from: u32, until: u32) -> i64 {
        let (from, until) = (from as usize, until as usize);
        let level = (until - from).ilog2() as usize;
        self.0[level][from].min(self.0[level][until - (1 << level)])
    }
}
