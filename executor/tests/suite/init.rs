//! The generator of initial parameters: moments, independence of streams, shards as slices.

use meshwright_executor::init::{fill_normal, normal};

#[test]
fn moments_of_a_standard_normal() {
    let draws: Vec<f64> = (0..200_000).map(|i| f64::from(normal(7, "block.0.q", i))).collect();
    let moment = |power: i32| draws.iter().map(|x| x.powi(power)).sum::<f64>() / draws.len() as f64;
    for (power, expected, tolerance) in [(1, 0.0, 0.01), (2, 1.0, 0.02), (3, 0.0, 0.04), (4, 3.0, 0.1)] {
        assert!((moment(power) - expected).abs() < tolerance, "moment {power}: {}", moment(power));
    }
    assert!(draws.iter().all(|x| x.is_finite() && x.abs() < 6.8));
    let lagged = draws.windows(2).map(|pair| pair[0] * pair[1]).sum::<f64>() / draws.len() as f64;
    assert!(lagged.abs() < 0.01, "correlation of neighbours: {lagged}");
}

#[test]
fn seeds_and_names_give_unrelated_streams() {
    let correlation = |a: (u64, &str), b: (u64, &str)| {
        let product = |i| f64::from(normal(a.0, a.1, i)) * f64::from(normal(b.0, b.1, i));
        (0..50_000).map(product).sum::<f64>() / 50_000.0
    };
    for (a, b) in [((1, "w"), (2, "w")), ((1, "w"), (1, "v")), ((0, "a.0"), (0, "a.1"))] {
        assert!(correlation(a, b).abs() < 0.02, "{a:?} {b:?}");
    }
}

#[test]
fn a_shard_is_a_slice_of_the_whole() {
    let (rows, columns) = (6, 10);
    let mut whole = vec![0.0; rows * columns];
    fill_normal(&mut whole, 3, "w", 0.02, |i| i as u64);
    let mut by_rows = vec![0.0; 2 * columns];
    fill_normal(&mut by_rows, 3, "w", 0.02, |i| (2 * columns + i) as u64);
    assert_eq!(by_rows, whole[2 * columns..4 * columns]);
    let mut by_columns = vec![0.0; rows * 5];
    fill_normal(&mut by_columns, 3, "w", 0.02, |i| (i / 5 * columns + 5 + i % 5) as u64);
    let expected: Vec<f32> = whole.chunks(columns).flat_map(|row| row[5..].to_vec()).collect();
    assert_eq!(by_columns, expected);
}
