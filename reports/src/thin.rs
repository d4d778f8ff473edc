//! Thinning of long curves to what a chart can show: of each pixel column, the first, lowest, highest and last point.
//! Extremes are never lost, so a peak that the chart leaves out does not exist.

/// At most four points for each of `columns` columns, in the order of the input; points that are not finite are dropped.
pub(crate) fn thin(points: impl IntoIterator<Item = (f64, f64)>, columns: usize) -> Vec<(f64, f64)> {
    let points: Vec<_> = points.into_iter().filter(|(x, y)| x.is_finite() && y.is_finite()).collect();
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return points };
    if points.len() <= 2 * columns || last.0 <= first.0 {
        return points;
    }
    let column = |x: f64| ((x - first.0) / (last.0 - first.0) * columns as f64) as usize;
    points.chunk_by(|a, b| column(a.0) == column(b.0)).flat_map(extremes).collect()
}

/// First, lowest, highest and last of a column, in order, each once.
fn extremes(column: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let by = |better: fn(f64, f64) -> bool| {
        (1..column.len()).fold(0, |best, k| if better(column[k].1, column[best].1) { k } else { best })
    };
    let mut keep = vec![0, by(|a, b| a < b), by(|a, b| a > b), column.len() - 1];
    keep.sort_unstable();
    keep.dedup();
    keep.into_iter().map(|k| column[k]).collect()
}

/// The corners of a curve that keeps each value until the next point, up to `end`.
pub(crate) fn stairs(points: &[(f64, f64)], end: f64) -> Vec<(f64, f64)> {
    let mut corners = Vec::with_capacity(points.len() * 2 + 1);
    for (k, (x, y)) in points.iter().enumerate() {
        if k > 0 {
            corners.push((*x, points[k - 1].1));
        }
        corners.push((*x, *y));
    }
    if let Some((x, y)) = points.last().filter(|(x, _)| *x < end) {
        debug_assert!(*x < end);
        corners.push((end, *y));
    }
    corners
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extremes_survive() {
        let spike = (0..100_000).map(|k| (f64::from(k), if k == 54_321 { 9.0 } else { 1.0 }));
        let thinned = thin(spike, 400);
        assert!(thinned.len() <= 1_600 && thinned.contains(&(54_321.0, 9.0)));
        assert_eq!(thinned.first(), Some(&(0.0, 1.0)));
        assert_eq!(thinned.last(), Some(&(99_999.0, 1.0)));
        assert_eq!(thin([(0.0, f64::NAN), (1.0, 2.0)], 4), [(1.0, 2.0)]);
    }

    #[test]
    fn stairs_keep_each_value() {
        let corners = [(0.0, 1.0), (2.0, 1.0), (2.0, 3.0), (5.0, 3.0)];
        assert_eq!(stairs(&[(0.0, 1.0), (2.0, 3.0)], 5.0), corners);
    }
}
