//! Cross-entropy: closed forms, central differences, and sharded vocabularies against the whole one.

use meshwright_executor::kernels::cross_entropy::{self, Shard};

use crate::support::{Made, check, close, numbers, widen};

const VOCABULARY: usize = 36;
const IDS: [u32; 5] = [0, 35, 17, 18, 9];

fn logits() -> Vec<f32> {
    numbers(IDS.len() * VOCABULARY, 1).iter().map(|x| 20.0 * x).collect()
}

/// Loss of each row and gradient of the scaled sum, from the fused entry point.
fn whole(logits: &[f32], scale: f32) -> (Vec<f32>, Vec<f32>, f64) {
    let (mut loss, mut dlogits) = (vec![9.0; IDS.len()], vec![9.0; logits.len()]);
    let mut workspace = vec![f32::NAN; 3 * IDS.len()];
    let sum = cross_entropy::fused(VOCABULARY, logits, &IDS, scale, &mut loss, &mut dlogits, &mut workspace);
    (loss, dlogits, sum)
}

#[test]
fn loss_and_gradient_of_a_whole_vocabulary() {
    let logits = logits();
    let (loss, dlogits, sum) = whole(&logits, 0.25);
    let made = Made { inputs: &[&logits], y: &loss, dy: &[0.25; IDS.len()], gradients: &[&dlogits] };
    check("cross-entropy", &made, |at| {
        let rows = at[0].chunks_exact(VOCABULARY).zip(IDS);
        rows.map(|(row, id)| row.iter().map(|l| l.exp()).sum::<f64>().ln() - row[id as usize]).collect()
    });
    assert!((sum - widen(&loss).iter().sum::<f64>()).abs() < 1e-12);
}

#[test]
fn equal_logits_cost_the_logarithm_of_the_vocabulary() {
    let (loss, dlogits, _) = whole(&vec![1000.0; IDS.len() * VOCABULARY], 1.0);
    close("loss", &loss, &[(VOCABULARY as f64).ln(); IDS.len()], 1e-6);
    assert!((dlogits[1] - 1.0 / 36.0).abs() < 1e-8 && (dlogits[0] - (1.0 / 36.0 - 1.0)).abs() < 1e-7);
}

#[test]
fn shards_make_up_the_whole() {
    let logits = logits();
    let (loss, dlogits, sum) = whole(&logits, 0.5);
    for shards in [1, 2, 4] {
        let width = VOCABULARY / shards;
        let parts: Vec<(Shard, Vec<f32>)> = (0..shards)
            .map(|k| {
                let rows = logits.chunks_exact(VOCABULARY);
                let part = rows.flat_map(|row| row[k * width..(k + 1) * width].to_vec()).collect();
                (Shard { offset: k * width, width }, part)
            })
            .collect();
        let rows = IDS.len();
        let (mut maximum, mut total, mut target) =
            (vec![f32::NEG_INFINITY; rows], vec![0.0; rows], vec![0.0; rows]);
        for (shard, part) in &parts {
            let mut local = vec![9.0; rows];
            cross_entropy::row_maxima(shard, part, &mut local);
            maximum.iter_mut().zip(local).for_each(|(all, local)| *all = all.max(local));
        }
        for (shard, part) in &parts {
            let (mut sums, mut targets) = (vec![9.0; rows], vec![9.0; rows]);
            cross_entropy::row_sums(shard, part, &IDS, &maximum, &mut sums, &mut targets);
            total.iter_mut().zip(sums).for_each(|(all, local)| *all += local);
            target.iter_mut().zip(targets).for_each(|(all, local)| *all += local);
        }
        let mut sharded = vec![9.0; rows];
        let sharded_sum = cross_entropy::losses(&maximum, &total, &target, &mut sharded);
        close("loss", &sharded, &widen(&loss), 1e-6);
        assert!((sharded_sum - sum).abs() < 1e-5);
        for (shard, part) in &parts {
            let mut local = vec![9.0; part.len()];
            cross_entropy::backward(shard, part, &IDS, &maximum, &total, 0.5, &mut local);
            let expected: Vec<f64> = (0..part.len())
                .map(|n| f64::from(dlogits[n / width * VOCABULARY + shard.offset + n % width]))
                .collect();
            close("dlogits", &local, &expected, 1e-7);
        }
    }
}
