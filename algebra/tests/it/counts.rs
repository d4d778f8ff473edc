//! Counted work against closed forms and brute force.

use crate::support::gpt;
use meshwright_algebra::{Work, kernel_work, model_flops};
use meshwright_ir::program::{IdKind, Kernel, OpKernel, Pass};
use meshwright_ir::{AxisSet, Bytes, DType, Flops, Op, Optimizer};

fn work(op: &str, pass: Pass, extents: &[u64], dtype: DType) -> Work {
    let op: Op = op.parse().unwrap();
    let (extents, axes) = (extents.to_vec(), vec![AxisSet::EMPTY; extents.len()]);
    kernel_work(&Kernel::Op(OpKernel { op, pass, extents, axes, accumulate: false, dtype }))
}

/// A product of 3·5 tokens, 7 features in and 11 out: two operations per multiply-add, each operand moved once; weight
/// gradients are fp32.
#[test]
fn a_matrix_product() {
    let op = "linear[input=14 output=44 input_grain=1 output_grain=1]";
    let (b, s, i, o) = (3, 5, 7, 11);
    for (pass, bytes) in [
        (Pass::Forward, 2 * (b * s * i + o * i + b * s * o)),
        (Pass::BackwardInput, 2 * (b * s * o + o * i + b * s * i)),
        (Pass::BackwardWeight, 2 * (b * s * o + b * s * i) + 4 * o * i),
    ] {
        let work = work(op, pass, &[b, s, i, o], DType::Bf16);
        assert_eq!((work.flops, work.bytes), (Flops(2 * b * s * i * o), Bytes(bytes)), "{pass}");
    }
}

/// (query, key) pairs by looking at each.
fn pairs(sequence: u64, causal: bool, window: u64) -> u64 {
    let sees = |q: u64, k: u64| (!causal || k <= q) && (window == 0 || q.abs_diff(k) < window);
    (0..sequence).flat_map(|q| (0..sequence).map(move |k| (q, k))).filter(|(q, k)| sees(*q, *k)).count()
        as u64
}

/// Two products over the attended pairs forward, five backward (Dao et al. 2022).
#[test]
fn attention() {
    for (sequence, window, causal) in
        (1..13).flat_map(|s| (0..15).flat_map(move |w| [(s, w, true), (s, w, false)]))
    {
        let op = format!("attention[heads=12 kv_heads=4 head_dim=8 causal={causal} window={window}]");
        // 2 samples, 2 of the 4 key heads: 6 query heads.
        let extents = [2, sequence, 2];
        let each = 2 * 2 * 6 * 8 * pairs(sequence, causal, window);
        for (pass, products) in [(Pass::Forward, 2), (Pass::BackwardInput, 5)] {
            let flops = work(&op, pass, &extents, DType::F32).flops;
            assert_eq!(flops, Flops(products * each), "{op} {pass} on {sequence} tokens");
        }
        let (q, kv, lse) = (2 * sequence * 6 * 8, 2 * sequence * 2 * 8, 2 * sequence * 6);
        let moved = |pass| work(&op, pass, &extents, DType::Bf16).bytes;
        assert_eq!(moved(Pass::Forward), Bytes(2 * (2 * q + 2 * kv) + 4 * lse));
        assert_eq!(moved(Pass::BackwardInput), Bytes(2 * (4 * q + 4 * kv) + 4 * lse));
    }
}

#[test]
fn what_memory_decides() {
    let n = 2 * 3 * 8; // samples x tokens x features
    let bf16 = |op: &str, pass, extents: &[u64]| work(op, pass, extents, DType::Bf16).bytes.0;
    let (x, features) = (&[2, 3, 8][..], 8);
    let norm = "norm[kind=layer width=8 groups=1 eps=1e-5]";
    assert_eq!(bf16(norm, Pass::Forward, x), 2 * (2 * n + 2 * features));
    assert_eq!(bf16(norm, Pass::BackwardInput, x), 2 * (3 * n + features));
    assert_eq!(bf16(norm, Pass::BackwardWeight, x), 2 * 2 * n + 4 * 2 * features);
    assert_eq!(bf16("bias[width=8 grain=1]", Pass::Forward, x), 2 * (2 * n + features));
    assert_eq!(bf16("add[width=8]", Pass::Forward, x), 2 * 3 * n);
    assert_eq!(bf16("gate[kind=silu width=8]", Pass::Forward, x), 2 * 3 * n);
    assert_eq!(bf16("gate[kind=silu width=8]", Pass::BackwardInput, x), 2 * 5 * n);
    assert_eq!(bf16("activation[kind=relu width=8]", Pass::BackwardInput, x), 2 * 3 * n);
    assert_eq!(bf16("rope[heads=2 head_dim=4 theta=1e4]", Pass::BackwardInput, x), 2 * 2 * n);
    // Rows of the table that are looked up, not the table.
    let table = "embedding[rows=1000 width=8 index=tokens]";
    assert_eq!(bf16(table, Pass::Forward, &[2, 3, 1000, 8]), 2 * 2 * n);
    assert_eq!(bf16(table, Pass::BackwardWeight, &[2, 3, 1000, 8]), 2 * 3 * n);
    // Logits and fp32 statistics: the maximum, then the sum and the target's logit.
    let (loss, rows) = ("cross-entropy[vocab=8]", 2 * 3);
    assert_eq!(bf16(loss, Pass::Max, x), 2 * n + 4 * rows);
    assert_eq!(bf16(loss, Pass::Sum, x), 2 * n + 4 * rows + 4 * rows + 4 * 2 * rows);
    assert_eq!(bf16(loss, Pass::BackwardInput, x), 2 * 2 * n + 4 * rows + 4 * rows + 4 * 2 * rows);
}

#[test]
fn everything_else() {
    let moved = |kernel: Kernel| kernel_work(&kernel).bytes.0;
    let dtype = DType::Bf16;
    assert_eq!(moved(Kernel::Add { elements: 10, dtype }), 60);
    assert_eq!(moved(Kernel::Pack { outer: 2, parts: 3, inner: 5, dtype }), 2 * 2 * 30);
    assert_eq!(moved(Kernel::Unpack { outer: 2, parts: 3, inner: 5, dtype }), 2 * 2 * 30);
    assert_eq!(
        moved(Kernel::SumSquares { elements: 10, replicas: 2, accumulate: true, piece: AxisSet::EMPTY }),
        40
    );
    let load = Kernel::Load {
        what: IdKind::Tokens,
        batch: 2,
        sequence: 8,
        batch_axes: AxisSet::EMPTY,
        sequence_axes: AxisSet::EMPTY,
    };
    assert_eq!(moved(load), 64);
    // Bytes a parameter: gradient read, weight (or master) and moments read and written, the 16-bit copy written.
    for (optimizer, dtype, each) in [
        (Optimizer::Sgd, DType::F32, 4 + 8),
        (Optimizer::Adamw, DType::F32, 4 + 8 + 16),
        (Optimizer::Adamw, DType::Bf16, 4 + 8 + 16 + 2),
    ] {
        let piece = AxisSet::EMPTY;
        assert_eq!(moved(Kernel::Update { optimizer, elements: 10, dtype, decays: true, piece }), 10 * each);
    }
}

/// Narayanan et al. 2021, equation for a GPT without its logits: 24·b·s·h²·l·(1 + s/6h) forward, attention dense; plus 2·s·h·V.
#[test]
fn model_flops_by_the_customary_formula() {
    let (h, layers, vocab, s) = (32, 3, 64, 16);
    let (forward, training) = model_flops(&gpt(layers as u32), s);
    assert_eq!(forward, Flops(24 * h * h * layers + 4 * s * h * layers + 2 * h * vocab));
    assert_eq!(training, Flops(3 * forward.0));
}
