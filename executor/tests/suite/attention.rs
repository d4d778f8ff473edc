//! Blocked attention against the plain definition in f64, its gradients against central differences, and long
//! sequences (several blocks) against both.

use std::num::NonZeroUsize;

use meshwright_executor::kernels::attention::{self, Attention, DroppedScores, Mask};
use meshwright_executor::kernels::dropout::Dropping;
use meshwright_executor::kernels::eager::{self, Kept};

use crate::support::{Made, check, close, numbers, widen};

#[test]
fn small_cases_with_their_gradients() {
    let base = Attention {
        batch: 2,
        queries: 5,
        keys: 5,
        first_query: 0,
        heads: 2,
        kv_heads: 2,
        head_dim: 3,
        scale: 0.6,
        mask: Mask::Causal,
        window: None,
        dropping: None,
    };
    let dropping = DroppedScores { dice: Dropping::new(7, 0, 1, 2, 0.4), first_sample: 3, first_head: 2 };
    let cases = [
        base,
        Attention { mask: Mask::Full, ..base },
        Attention { heads: 4, kv_heads: 2, ..base },
        Attention { heads: 3, kv_heads: 1, mask: Mask::Full, ..base },
        Attention { window: NonZeroUsize::new(2), ..base },
        Attention { window: NonZeroUsize::new(2), mask: Mask::Full, ..base },
        Attention { queries: 3, first_query: 2, ..base },
        Attention { queries: 1, keys: 1, batch: 1, ..base },
        Attention { queries: 4, first_query: 4, window: NonZeroUsize::new(2), ..base },
        Attention { dropping: Some(dropping), heads: 4, ..base },
    ];
    for a in cases {
        let run = Run::new(&a);
        let made = Made {
            inputs: &[&run.q, &run.k, &run.v],
            y: &run.y,
            dy: &run.dy,
            gradients: &[&run.dq, &run.dk, &run.dv],
        };
        check(&format!("{a:?}"), &made, |at| reference(&a, &at[0], &at[1], &at[2]).0);
        let lse = reference(&a, &widen(&run.q), &widen(&run.k), &widen(&run.v)).1;
        let finite = |x: f64| if x.is_finite() { x } else { -1e30 };
        let got: Vec<f32> = run.lse.iter().map(|x| finite(f64::from(*x)) as f32).collect();
        close("lse", &got, &lse.iter().map(|x| finite(*x)).collect::<Vec<_>>(), 3e-6);
    }
}

#[test]
fn several_blocks_of_queries_and_keys() {
    let base = Attention {
        batch: 1,
        queries: 601,
        keys: 601,
        first_query: 0,
        heads: 2,
        kv_heads: 1,
        head_dim: 8,
        scale: 2.0,
        mask: Mask::Causal,
        window: None,
        dropping: None,
    };
    for (mask, window) in [(Mask::Causal, None), (Mask::Full, None), (Mask::Causal, NonZeroUsize::new(100))] {
        let a = Attention { mask, window, ..base };
        let run = Run::new(&a);
        let (q, k, v) = (widen(&run.q), widen(&run.k), widen(&run.v));
        close(&format!("{a:?}"), &run.y, &reference(&a, &q, &k, &v).0, 5e-6);
        let (dq, dk, dv) = gradients(&a, &q, &k, &v, &widen(&run.dy));
        close("dq", &run.dq, &dq, 3e-5);
        close("dk", &run.dk, &dk, 3e-5);
        close("dv", &run.dv, &dv, 3e-5);
    }
}

/// Both cores on the same shapes, with and without dropout: one definition, whatever is kept.
#[test]
fn an_eager_core_is_the_fused_one_with_its_scores_kept() {
    let base = Attention {
        batch: 2,
        queries: 70,
        keys: 70,
        first_query: 0,
        heads: 4,
        kv_heads: 2,
        head_dim: 6,
        scale: 0.7,
        mask: Mask::Causal,
        window: None,
        dropping: None,
    };
    let dropping =
        |rate| Some(DroppedScores { dice: Dropping::new(1, 2, 3, 4, rate), first_sample: 5, first_head: 8 });
    for a in [
        base,
        Attention { dropping: dropping(0.3), ..base },
        Attention { queries: 1, keys: 1, ..base },
        Attention { queries: 600, keys: 600, batch: 1, heads: 2, dropping: dropping(0.1), ..base },
        Attention { mask: Mask::Full, window: NonZeroUsize::new(9), dropping: dropping(0.5), ..base },
    ] {
        let run = Run::new(&a);
        let scores = a.batch * a.heads * a.queries * a.keys;
        let mut workspace = vec![f32::NAN; eager::workspace(&a)];
        let [mut y, mut dq] = [(); 2].map(|()| vec![f32::NAN; run.q.len()]);
        let [mut dk, mut dv] = [(); 2].map(|()| vec![f32::NAN; run.k.len()]);
        let [mut softmax, mut mask, mut dropped] = [(); 3].map(|()| vec![f32::NAN; scores]);
        let drops = a.dropping.is_some();
        let mut kept = Kept {
            softmax: &mut softmax[..],
            mask: drops.then_some(&mut mask[..]),
            dropped: drops.then_some(&mut dropped[..]),
        };
        eager::forward(&a, &run.q, &run.k, &run.v, &mut y, &mut kept, &mut workspace);
        let kept = Kept {
            softmax: &softmax[..],
            mask: drops.then_some(&mask[..]),
            dropped: drops.then_some(&dropped[..]),
        };
        let (q, k, v) = (&run.q, &run.k, &run.v);
        eager::backward(&a, &run.dy, q, k, v, &kept, &mut dq, &mut dk, &mut dv, &mut workspace);
        close(&format!("{a:?}"), &y, &widen(&run.y), 1e-6);
        for (what, eager, fused) in [("dq", &dq, &run.dq), ("dk", &dk, &run.dk), ("dv", &dv, &run.dv)] {
            close(&format!("{what} {a:?}"), eager, &widen(fused), 1e-5);
        }
        if drops {
            let share = mask.iter().sum::<f32>() / scores as f32;
            let rate = 1.0 - 1.0 / a.dropping.unwrap().dice.scale();
            assert!((share - 1.0 + rate).abs() < 0.02, "{share} of the scores kept at {rate}");
        }
    }
}

#[test]
fn query_shards_make_up_the_whole() {
    let whole = Attention {
        batch: 1,
        queries: 300,
        keys: 300,
        first_query: 0,
        heads: 1,
        kv_heads: 1,
        head_dim: 4,
        scale: 1.0,
        mask: Mask::Causal,
        window: None,
        dropping: None,
    };
    let run = Run::new(&whole);
    let (mut dk, mut dv) = (vec![0.0; run.dk.len()], vec![0.0; run.dv.len()]);
    for first_query in [0, 150] {
        let a = Attention { queries: 150, first_query, ..whole };
        let part = first_query * 4..(first_query + 150) * 4;
        let shard = Run::of(&a, &run.q[part.clone()], &run.k, &run.v, &run.dy[part.clone()]);
        close("y", &shard.y, &widen(&run.y[part.clone()]), 2e-6);
        close("dq", &shard.dq, &widen(&run.dq[part]), 1e-5);
        dk.iter_mut().zip(&shard.dk).for_each(|(sum, part)| *sum += part);
        dv.iter_mut().zip(&shard.dv).for_each(|(sum, part)| *sum += part);
    }
    close("dk", &dk, &widen(&run.dk), 1e-5);
    close("dv", &dv, &widen(&run.dv), 1e-5);
}

/// One forward and backward run of the kernel.
struct Run {
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    y: Vec<f32>,
    lse: Vec<f32>,
    dy: Vec<f32>,
    dq: Vec<f32>,
    dk: Vec<f32>,
    dv: Vec<f32>,
}

impl Run {
    fn new(a: &Attention) -> Self {
        let (n, m) = (a.batch * a.queries * a.heads * a.head_dim, a.batch * a.keys * a.kv_heads * a.head_dim);
        Self::of(a, &numbers(n, 1), &numbers(m, 2), &numbers(m, 3), &numbers(n, 4))
    }

    fn of(a: &Attention, q: &[f32], k: &[f32], v: &[f32], dy: &[f32]) -> Self {
        let mut workspace = vec![f32::NAN; attention::workspace(a)];
        let (mut y, mut lse) = (vec![f32::NAN; q.len()], vec![f32::NAN; a.batch * a.heads * a.queries]);
        let (mut dq, mut dk, mut dv) = (vec![9.0; q.len()], vec![9.0; k.len()], vec![9.0; v.len()]);
        attention::forward(a, q, k, v, &mut y, &mut lse, &mut workspace);
        attention::backward(a, dy, q, k, v, &y, &lse, &mut dq, &mut dk, &mut dv, &mut workspace);
        Self { q: q.to_vec(), k: k.to_vec(), v: v.to_vec(), y, lse, dy: dy.to_vec(), dq, dk, dv }
    }
}

fn sees(a: &Attention, query: usize, key: usize) -> bool {
    let position = a.first_query + query;
    let near = a.window.is_none_or(|w| position.abs_diff(key) < w.get());
    near && (a.mask == Mask::Full || key <= position)
}

/// (batch, head, query) and the start of its row in q; a function from a key to the start of its row in k.
fn rows(a: &Attention) -> impl Iterator<Item = (usize, usize, Box<dyn Fn(usize) -> usize>)> {
    let a = *a;
    (0..a.batch * a.heads * a.queries).map(move |n| {
        let (b, h, i) = (n / (a.heads * a.queries), n / a.queries % a.heads, n % a.queries);
        let kv = h * a.kv_heads / a.heads;
        let key = move |j: usize| ((b * a.keys + j) * a.kv_heads + kv) * a.head_dim;
        (i, ((b * a.queries + i) * a.heads + h) * a.head_dim, Box::new(key) as Box<dyn Fn(usize) -> usize>)
    })
}

/// Probabilities of the visible keys of one query, and the logarithm of their sum.
fn probabilities(
    a: &Attention,
    q: &[f64],
    k: &[f64],
    (i, at, key): (usize, usize, &dyn Fn(usize) -> usize),
) -> (Vec<(usize, f64)>, f64) {
    let dot = |j: usize| (0..a.head_dim).map(|f| q[at + f] * k[key(j) + f]).sum::<f64>() * f64::from(a.scale);
    let scores: Vec<_> = (0..a.keys).filter(|j| sees(a, i, *j)).map(|j| (j, dot(j))).collect();
    let lse = scores.iter().map(|(_, s)| s.exp()).sum::<f64>().ln();
    (scores.iter().map(|(j, s)| (*j, (s - lse).exp())).collect(), lse)
}

fn reference(a: &Attention, q: &[f64], k: &[f64], v: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let (mut y, mut all) = (vec![0.0; q.len()], Vec::new());
    for (i, at, key) in rows(a) {
        let (p, lse) = probabilities(a, q, k, (i, at, &key));
        for (j, p) in p {
            let p = p * weight(a, at, i, j);
            (0..a.head_dim).for_each(|f| y[at + f] += p * v[key(j) + f]);
        }
        all.push(lse);
    }
    (y, all)
}

/// What dropout multiplies a probability by: 1 without any. `at` is where the query's features of a head start.
fn weight(a: &Attention, at: usize, query: usize, key: usize) -> f64 {
    let Some(d) = &a.dropping else { return 1.0 };
    let (row, head) = (at / a.head_dim / a.heads, at / a.head_dim % a.heads);
    let place = [d.first_sample + (row / a.queries) as u64, d.first_head + head as u64, query as u64];
    let mut mask = [9.0];
    d.dice.mask(place, key as u32, &mut mask);
    f64::from(mask[0] * d.dice.scale())
}

/// The textbook gradients: dv = pᵀdy, dp = dy·vᵀ, ds = p (dp - Σ p dp), dq = ds·k, dk = dsᵀq.
fn gradients(a: &Attention, q: &[f64], k: &[f64], v: &[f64], dy: &[f64]) -> (Vec<f64>, Vec<f64>, Vec<f64>) {
    let (mut dq, mut dk, mut dv) = (vec![0.0; q.len()], vec![0.0; k.len()], vec![0.0; v.len()]);
    for (i, at, key) in rows(a) {
        let (p, _) = probabilities(a, q, k, (i, at, &key));
        let dp = |j: usize| (0..a.head_dim).map(|f| dy[at + f] * v[key(j) + f]).sum::<f64>();
        let mean: f64 = p.iter().map(|(j, p)| p * dp(*j)).sum();
        for (j, p) in p {
            let ds = p * (dp(j) - mean) * f64::from(a.scale);
            for f in 0..a.head_dim {
                dv[key(j) + f] += p * dy[at + f];
                dq[at + f] += ds * k[key(j) + f];
                dk[key(j) + f] += ds * q[at + f];
            }
        }
    }
    (dq, dk, dv)
}
