//! What a search's points say together, against brute force.

use crate::programs::Dice;
use meshwright_ir::{Axis, Bytes, Candidate, Mesh, Schedule, SearchReport, StateSharding};

fn point(dice: &mut Dice) -> Candidate {
    let known = dice.roll(5) > 0;
    Candidate {
        mesh: Mesh::new([(Axis::Dp, 2)]).unwrap(),
        micro_batch: 1,
        schedule: Schedule::Gpipe,
        state_sharding: StateSharding::None,
        sequence_parallel: false,
        closed_form_s: known.then(|| dice.roll(12) as f64),
        peak_memory_bytes: known.then(|| Bytes(dice.roll(12))),
        bound_s: None,
        states_bytes: None,
        rejected: (dice.roll(4) == 0).then(|| "memory".to_string()),
    }
}

/// Fits, and has a price.
fn place(c: &Candidate) -> Option<(f64, Bytes)> {
    Some((c.closed_form_s?, c.peak_memory_bytes?)).filter(|_| c.rejected.is_none())
}

#[test]
fn nothing_beats_the_front_and_everything_else_is_beaten() {
    for seed in 0..500 {
        let mut dice = Dice(seed);
        let points: Vec<Candidate> = (0..dice.roll(30)).map(|_| point(&mut dice)).collect();
        let front = SearchReport { points: points.clone(), ..SearchReport::default() }.pareto();
        let no_worse = |a: (f64, Bytes), b: (f64, Bytes)| a.0 <= b.0 && a.1 <= b.1;
        for (k, c) in points.iter().enumerate() {
            let beaten = place(c).is_none_or(|own| {
                let other = |(j, o): (usize, &Candidate)| {
                    place(o).is_some_and(|p| no_worse(p, own) && (p != own || j < k))
                };
                points.iter().enumerate().any(other)
            });
            assert_eq!(front.contains(&k), !beaten, "seed {seed}, point {k} of {points:?}");
        }
        assert!(front.windows(2).all(|w| place(&points[w[0]]).unwrap().1 > place(&points[w[1]]).unwrap().1));
    }
}
