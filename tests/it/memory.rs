//! One accountant, three readings: the peak that the planner reports, the arena that lowering lays out, and what the
//! executor has in use at most. Hundreds of plans that searches found for random models, sizes, precisions and pins.

use crate::bounds::job;
use crate::parity::run_program;
use crate::plans;
use meshwright_ir::{Bytes, Model, Plan, Precision, Recompute, StateSharding};
use meshwright_planner::{Verdict, search};
use std::collections::BTreeSet;

/// Plans looked at.
const PLANS: usize = 300;

struct Random(u64);

impl Random {
    fn of<T: Clone>(&mut self, all: &[T]) -> T {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        all[(self.0 >> 33) as usize % all.len()].clone()
    }
}

fn model(random: &mut Random) -> Model {
    let (heads, head_dim, layers) =
        (random.of(&[2, 4, 6, 8]), random.of(&[4, 8, 16]), random.of(&[1, 2, 3, 5]));
    let (hidden, inner, vocab) = (heads * head_dim, random.of(&[24, 48, 100]), random.of(&[64, 80, 97]));
    let (core, dropout) = (random.of(&["eager", "sdpa"]), random.of(&["0.0", "0.2"]));
    let config = match random.of(&[true, false]) {
        true => format!(
            r#"{{"model_type":"gpt2","vocab_size":{vocab},"n_positions":32,"n_embd":{hidden},"n_layer":{layers},
                "n_head":{heads},"n_inner":{inner},"_attn_implementation":"{core}","attn_pdrop":{dropout},
                "resid_pdrop":{dropout},"embd_pdrop":{dropout},"tie_word_embeddings":{}}}"#,
            random.of(&[true, false])
        ),
        false => format!(
            r#"{{"model_type":"qwen3","vocab_size":{vocab},"hidden_size":{hidden},"num_hidden_layers":{layers},
                "num_attention_heads":{heads},"num_key_value_heads":{},"head_dim":{head_dim},
                "intermediate_size":{inner},"_attn_implementation":"{core}","attention_dropout":{dropout},
                "tie_word_embeddings":{}}}"#,
            random.of(&[heads / 2, heads]),
            random.of(&[true, false])
        ),
    };
    meshwright_zoo::model_from_config("random.json", "random", &config).unwrap()
}

const PINS: [&str; 10] = [
    "",
    "pp>=2",
    "tp>=2,sp=true",
    "tp>=2,sp=true,recompute=gathers",
    "recompute=selective",
    "tp>=2,recompute!=none",
    "dp>=2,zero=1",
    "pp>=2,schedule=gpipe",
    "recompute=full",
    "pp>=2,recompute<=selective,zero=0",
];

#[test]
fn the_reported_peak_is_the_arena_and_covers_the_run() {
    let mut random = Random(5);
    let (mut seen, mut ran) = (0, 0);
    let mut kinds: BTreeSet<String> = BTreeSet::new();
    while seen < PLANS {
        let model = model(&mut random);
        let ranks = random.of(&[1, 2, 4, 8]);
        let mut cluster = plans::cluster(ranks);
        // So little that some must recompute.
        cluster.device.memory = Bytes(random.of(&[1_300_000, 1_600_000, 2_400_000, 80_000_000]));
        let precision = random.of(&[Precision::Fp32, Precision::Bf16, Precision::Fp16]);
        let (sequence, batch, pins) = (random.of(&[8, 16, 32]), random.of(&[4, 8, 16]), random.of(&PINS));
        let mut job = job(model, cluster, sequence, batch, precision, pins);
        job.search.top = 6;
        let Verdict::Plans { plans, .. } = search(&job, &|_| ()) else { continue };
        for plan in plans {
            kinds.extend(plan.recompute.iter().map(Recompute::to_string));
            kinds.extend([plan.schedule.to_string(), plan.state_sharding.to_string(), precision.to_string()]);
            agrees(&plan, seen % 8 == 0 && ranks <= 4, &mut ran);
            seen += 1;
        }
    }
    assert!(ran >= 15, "only {ran} plans were run");
    let all = Recompute::ALL.iter().map(Recompute::to_string).chain(["gpipe", "1f1b"].map(String::from));
    // What searches choose among; `sharding.rs` holds plans that split more to the same.
    let all = all.chain([StateSharding::None, StateSharding::Zero1].map(|s| s.to_string()));
    let missing: Vec<String> = all.filter(|k| !kinds.contains(k)).collect();
    assert!(missing.is_empty(), "no plan has {missing:?}");
}

fn agrees(plan: &Plan, run: bool, ran: &mut u32) {
    let program = meshwright_lowering::lower(plan).unwrap();
    let (planned, mesh) = (program.planned_peaks(), plan.mesh);
    let reserved = plan.job.cluster.device.reserved;
    let reported = plan.prediction.peak_memory_bytes.iter().map(|p| *p - reserved);
    for (stage, (reported, planned)) in reported.zip(&planned).enumerate() {
        let close = reported >= *planned && reported.f64() <= 1.02 * planned.f64();
        assert!(close, "{mesh}, stage {stage}: reported {reported}, planned {planned}");
    }
    if run {
        *ran += 1;
        let outcome = run_program(program, 1).unwrap_or_else(|e| panic!("{mesh}: {e}"));
        for (rank, high) in outcome.high_water.iter().enumerate() {
            let stage = mesh.coord(rank as u32, meshwright_ir::Axis::Pp) as usize;
            assert!(*high <= planned[stage], "{mesh}: rank {rank} used {high} of {}", planned[stage]);
        }
    }
}
