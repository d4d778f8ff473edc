//! One rank of each class stands for all: what `simulate` does with a large world is, to the picosecond, what it does with
//! every rank of it, also where some are slow or share a host. And what its trace file holds.

use crate::bounds;
use crate::plans::{self, Shape};
use meshwright_cost_models::CostModel;
use meshwright_ir::program::Action;
use meshwright_ir::trace::Span;
use meshwright_ir::{Plan, Precision, Schedule};
use meshwright_simulator::{Options, Partition, Ranks, simulate};
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

/// Every rank of each plan sees what its stand-in sees, whoever is slow.
#[test]
fn whoever_is_slow_one_of_each_class_stands_for_all() {
    let host = bounds::host(64, 24, 64 << 30);
    for (case, (dp, tp, pp)) in
        [(4, 8, 2), (16, 4, 2), (8, 2, 4), (32, 2, 1), (2, 8, 8), (6, 4, 3)].into_iter().enumerate()
    {
        let plan = plan(dp, tp, pp, case % 2 == 0, Schedule::OneForwardOneBackward);
        let program = meshwright::lower(&plan).unwrap();
        let (world, stage) = (dp * tp * pp, dp * tp);
        let slowed = |hit: &dyn Fn(u32) -> bool| {
            (0..world).filter(|r| hit(*r)).map(|r| (r, 1.4)).collect::<BTreeMap<u32, f64>>()
        };
        let (rank, other) = (world * 5 / 7, world / 3);
        let cases = [
            slowed(&|r| r == rank),
            BTreeMap::from([(rank, 1.4), (other, 2.0)]),
            slowed(&|r| r / 8 == rank / 8),
            slowed(&|r| r / stage == pp - 1),
            slowed(&|r| r % 2 == 1),
        ];
        let places = std::iter::once(&plan.job.cluster).chain(Some(&host).filter(|_| world <= 64));
        for (cluster, slow) in places.flat_map(|c| cases.iter().map(move |s| (c, s))) {
            let cost = CostModel::new(cluster);
            let [all, few] =
                [Ranks::All, Ranks::Representatives].map(|ranks| Options { ranks, slow: slow.clone() });
            let [whole, folded] = [&all, &few].map(|o| simulate(&program, &cost, o));
            let partition = Partition::of(&program, &cost, &few);
            let case = format!("dp={dp} tp={tp} pp={pp} on {}, slow {slow:?}", cluster.name);
            assert_eq!(whole.step_time, folded.step_time, "{case}");
            assert!(folded.ranks.len() < whole.ranks.len(), "{case}");
            let times = |s: &Span| (s.instruction, s.start, s.end);
            for rank in 0..world {
                let stand_in = folded.of_rank(partition.representative_of(rank)).iter().map(times);
                assert!(whole.of_rank(rank).iter().map(times).eq(stand_in), "{case}: rank {rank}");
            }
        }
    }
}

/// A trace file of every rank is JSON, holds each span and both ends of each message, and is read back the same.
#[test]
fn a_trace_file_of_64_ranks_holds_every_span() {
    let plan = plan(4, 4, 4, true, Schedule::OneForwardOneBackward);
    let program = meshwright::lower(&plan).unwrap();
    let trace = meshwright::simulate(&program, &plan.job.cluster, true).unwrap().trace;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("trace.json");
    meshwright::files::write_trace(&file, &program, &trace).unwrap();
    let text = std::fs::read_to_string(&file).unwrap();
    let each = text.len() / trace.spans.len();
    assert!(each < 280, "{each} bytes for each of {} spans", trace.spans.len());
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let events = json["traceEvents"].as_array().unwrap();
    let of = |phase: &str| events.iter().filter(|e| e["ph"] == phase).count();
    let sends = |s: &&Span| {
        let action = program.code_of(s.rank).instructions[s.instruction as usize].action;
        matches!(action, Action::Exchange(e) if program.exchanges[e as usize].send.is_some())
    };
    let messages = trace.spans.iter().filter(sends).count();
    assert_eq!((of("X"), of("s"), of("f")), (trace.spans.len(), messages, messages));
    assert!(messages > 0 && of("C") >= 64);
    assert_eq!(meshwright::files::read_trace(&file).unwrap(), trace);
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
