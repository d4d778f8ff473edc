//! One rank per stage stands for all: what `simulate` does with a large world is, to the picosecond, what it does with
//! every rank of it.

use crate::plans::{self, Shape};
use meshwright_cost_models::CostModel;
use meshwright_ir::{Plan, Precision, Schedule};
use meshwright_simulator::{Options, Ranks, simulate};
use std::collections::BTreeMap;
use std::path::Path;

/// A Llama-like model of eight layers on whole nodes of H100.
fn plan(dp: u32, tp: u32, pp: u32, sp: bool, schedule: Schedule) -> Plan {
    let config = r#"{"model_type":"llama","vocab_size":32000,"max_position_embeddings":4096,"hidden_size":2048,
        "num_hidden_layers":8,"num_attention_heads":16,"num_key_value_heads":8,"intermediate_size":5632,
        "rms_norm_eps":1e-5,"rope_theta":10000.0,"hidden_act":"silu","tie_word_embeddings":false}"#;
    let model = meshwright_zoo::model_from_config("llama.json", "llama-like", config).unwrap();
    let (micro_batch, global_batch, sequence) = (1, 8 * u64::from(dp), 2048);
    let shape = Shape { model, dp, fsdp: 1, tp, pp, sp, micro_batch, global_batch, sequence, schedule };
    let mut plan = plans::plan(&shape, &mut plans::megatron(sp)).expect("even sizes convert");
    let (cluster, _) = meshwright_zoo::cluster("h100-sxm", Some(dp * tp * pp / 8), Path::new("")).unwrap();
    plan.job.cluster = cluster;
    plan.job.training.precision = Precision::Bf16;
    plan
}

#[test]
fn representatives_of_64_ranks_see_the_times_of_all() {
    for (dp, tp, pp) in [(4, 8, 2), (8, 4, 2), (4, 4, 4), (2, 8, 4), (8, 8, 1), (16, 2, 2)] {
        for (sp, schedule) in [(true, Schedule::OneForwardOneBackward), (false, Schedule::Gpipe)] {
            let plan = plan(dp, tp, pp, sp, schedule);
            let program = meshwright::lower(&plan).unwrap();
            let cost = CostModel::new(&plan.job.cluster);
            let run = |ranks| simulate(&program, &cost, &Options { ranks, slow: BTreeMap::new() });
            let (all, folded) = (run(Ranks::All), run(Ranks::Representatives));
            let case = format!("dp={dp} tp={tp} pp={pp} sp={sp} {schedule}");
            assert_eq!(all.ranks.len(), 64, "{case}");
            assert_eq!(folded.ranks, (0..pp).map(|s| s * dp * tp).collect::<Vec<_>>(), "{case}");
            assert_eq!(all.step_time, folded.step_time, "{case}");
            for rank in &folded.ranks {
                assert!(all.of_rank(*rank) == folded.of_rank(*rank), "{case}: spans of rank {rank}");
            }
            let memory = all.memory.iter().filter(|p| folded.ranks.contains(&p.rank));
            assert!(memory.eq(&folded.memory), "{case}: memory of the representatives");
        }
    }
}

#[test]
fn a_world_above_64_ranks_folds_and_unfolds_on_demand() {
    let plan = plan(8, 8, 2, true, Schedule::OneForwardOneBackward);
    let program = meshwright::lower(&plan).unwrap();
    let [folded, all] =
        [false, true].map(|unfold| meshwright::simulate(&program, &plan.job.cluster, unfold).unwrap());
    assert_eq!((folded.trace.ranks.len(), all.trace.ranks.len()), (2, 128));
    assert_eq!(folded.summary.step_time, all.summary.step_time);
    assert_eq!(folded.summary.bubble_fraction, all.summary.bubble_fraction);
    assert_eq!(folded.summary.exposed_comm_fraction, all.summary.exposed_comm_fraction);
    assert_eq!(folded.summary.peaks, all.summary.peaks);
}
