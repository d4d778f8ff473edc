//! Public cases of memory counted by others, as rows: what parameters take, and what a layer keeps, in Megatron-LM's
//! terms. Each goes the way a plan goes: config → model → strategies and conversions → expansion → recompute →
//! `stage_memory`. What the published figures leave out is left out by name: embedding and head, and, of parameters,
//! biases and norms. Nothing is left over: the rest agrees to the byte.

use crate::plans::{self, Shape};
use meshwright_algebra::schedules::{in_flight, order};
use meshwright_algebra::{
    ALIGNMENT, BlockCode, Shapes, StageBlock, StageMemory, StageShape, expand, recompute, stage_memory,
    storages,
};
use meshwright_ir::program::{Action, BufferClass};
use meshwright_ir::{Axis, AxisSet, Bytes, Model, Plan, Precision, Recompute, Schedule, Storage};

/// A model of Korthikanti et al. 2022 (arXiv 2205.05198, table 3), and how that paper runs it.
#[derive(Clone, Copy)]
struct Published {
    name: &'static str,
    heads: u64,
    hidden: u64,
    layers: u64,
    tp: u64,
    pp: u64,
    /// Virtual stages of a rank in the published run.
    chunks: u64,
    micro_batch: u64,
    /// GiB of weights and optimizer state in its figure 1.
    states: f64,
    /// GiB of activations there: tensor parallelism alone; with sequence parallelism and selective recompute.
    kept: [f64; 2],
}

const SEQUENCE: u64 = 2048;

/// Figure 1 in GiB, as Calculon's `validation.py` lists it.
const FIGURE: [Published; 4] = [
    Published {
        name: "22B",
        heads: 64,
        hidden: 6144,
        layers: 48,
        tp: 8,
        pp: 1,
        chunks: 1,
        micro_batch: 4,
        states: 45.5625,
        kept: [59.25, 9.5625],
    },
    Published {
        name: "175B",
        heads: 96,
        hidden: 12288,
        layers: 96,
        tp: 8,
        pp: 8,
        chunks: 3,
        micro_batch: 1,
        states: 45.5625,
        kept: [66.84375, 12.3515625],
    },
    Published {
        name: "530B",
        heads: 128,
        hidden: 20480,
        layers: 105,
        tp: 8,
        pp: 35,
        chunks: 3,
        micro_batch: 1,
        states: 31.640625,
        kept: [114.0234375, 23.076171875],
    },
    Published {
        name: "1T",
        heads: 160,
        hidden: 25600,
        layers: 128,
        tp: 8,
        pp: 64,
        chunks: 1,
        micro_batch: 1,
        states: 32.958984375,
        kept: [131.25, 26.5625],
    },
];

fn bytes(gib: f64) -> u64 {
    (gib * (1u64 << 30) as f64) as u64
}

/// A GPT with an eager attention core and dropout, as the paper's was.
fn gpt(hidden: u64, heads: u64, layers: u64, vocab: u64) -> Model {
    let config = format!(
        r#"{{"model_type":"gpt2","vocab_size":{vocab},"n_positions":{SEQUENCE},"n_embd":{hidden},"n_layer":{layers},
            "n_head":{heads},"activation_function":"gelu_new","initializer_range":0.02,"layer_norm_epsilon":1e-5,
            "tie_word_embeddings":true,"_attn_implementation":"eager","attn_pdrop":0.1,"resid_pdrop":0.1,
            "embd_pdrop":0.1}}"#
    );
    meshwright_zoo::model_from_config("gpt.json", "gpt", &config).unwrap()
}

/// The customary plan of a model: columns then rows on tp, in bf16.
fn plan(model: Model, dp: u32, tp: u32, pp: u32, sp: bool, micro_batch: u64) -> Plan {
    let shape = Shape {
        model,
        dp,
        fsdp: 1,
        tp,
        pp,
        sp,
        micro_batch,
        global_batch: micro_batch * u64::from(dp * pp * 2),
        sequence: SEQUENCE,
        schedule: Schedule::OneForwardOneBackward,
    };
    let mut plan = plans::plan(&shape, &mut plans::megatron(sp)).unwrap();
    plan.job.training.precision = Precision::Bf16;
    plan
}

/// The layers' share of the first stage's arena, and the layer's expansion.
fn layers(plan: &Plan, level: Recompute, blocks: u64, wanted: Storage) -> (StageMemory, BlockCode) {
    let (model, mesh) = (&plan.job.model, &plan.mesh);
    let batch = plan.micro_batch * u64::from(mesh.degree(Axis::Dp));
    let shapes = Shapes { batch, sequence: SEQUENCE };
    let at = model.classes.iter().position(|c| c.name == "layer").unwrap();
    let dtype = plan.job.training.precision.compute();
    let (class, choices) = (&model.classes[at], &plan.classes[at]);
    let code = expand(class, choices, mesh, &shapes, model.hidden, &plan.boundary, dtype);
    let code = recompute(&code, level);
    let pp = plan.stages.len() as u32;
    let boundary = plan.boundary.local(&[batch, SEQUENCE, model.hidden], mesh).unwrap();
    let shape = StageShape {
        stage: (0, pp),
        in_flight: in_flight(&order(plan.schedule, 0, pp, plan.micro_batches as u32)),
        micro_batches: plan.micro_batches,
        boundary_elements: boundary.iter().product(),
        precision: plan.job.training.precision,
        optimizer: plan.job.training.optimizer,
        mesh: *mesh,
        gathering: plan.gathering,
        bucket: plan.bucket,
    };
    let storage = storages(model, at as u32, &code.params, pp, mesh, wanted);
    let block = StageBlock { class: at as u32, code: &code, storage: &storage };
    let chain = vec![block; blocks as usize];
    (stage_memory(model, &chain, &shape), code)
}

/// Weights, masters, moments and gradients.
fn states(memory: &StageMemory) -> u64 {
    memory.regions[..4].iter().map(|r| r.1.get()).sum()
}

/// Frames: the region also holds the loss and the gradient's norm.
fn frames(memory: &StageMemory) -> u64 {
    memory.regions[4].1.get() - 2 * ALIGNMENT
}

/// C1, C2, C3: activations that the first stage's layers keep. Interleaving holds 1 + (p - 1)/(p·v) as much as one chunk a
/// rank does (Narayanan et al. 2021), so published figures with v chunks are compared through that factor.
#[test]
fn layers_keep_what_the_papers_figure_says() {
    for p in FIGURE {
        for (sp, level, gib) in [(false, Recompute::None, p.kept[0]), (true, Recompute::Selective, p.kept[1])]
        {
            let model = gpt(p.hidden, p.heads, p.layers, 51200);
            let plan = plan(model, 1, p.tp as u32, p.pp as u32, sp, p.micro_batch);
            let (memory, _) = layers(&plan, level, p.layers / p.pp, Storage::WHOLE);
            let (of, chunks) = match p.chunks {
                1 => (1, 1),
                v => (p.pp * v, p.pp * v + p.pp - 1),
            };
            assert_eq!(frames(&memory) * chunks, bytes(gib) * of, "{} with {level}", p.name);
        }
    }
}

/// Table 2 of the paper, in bytes a layer keeps of `s·b·h` tokens' worth: every row, at t = 8.
#[test]
fn a_layer_keeps_the_papers_table() {
    let p = FIGURE[0];
    let (t, unit) = (p.tp, SEQUENCE * p.micro_batch * p.hidden);
    // 5·a·s/h, the scores with their mask.
    let scores = 5 * p.heads * SEQUENCE * unit / p.hidden;
    for (tp, sp, level, kept) in [
        (1, false, Recompute::None, 34 * unit + scores),
        (t, false, Recompute::None, 10 * unit + (24 * unit + scores) / t),
        (t, true, Recompute::Gathers, (34 * unit + scores) / t),
        (t, true, Recompute::Selective, 34 * unit / t),
        (t, false, Recompute::Selective, 10 * unit + 24 * unit / t),
        (t, false, Recompute::Full, 2 * unit),
        (t, true, Recompute::Full, 2 * unit / t),
    ] {
        let plan = plan(gpt(p.hidden, p.heads, 1, 51200), 1, tp as u32, 1, sp, p.micro_batch);
        let (memory, _) = layers(&plan, level, 1, Storage::WHOLE);
        assert_eq!(frames(&memory), kept, "tp {tp}, sp {sp}, {level}");
    }
}

/// B24: 18 bytes of each matrix element, 12·h²/t of them a layer; biases and norms, which the figure leaves out, are the
/// rest: 6·h of whole vectors (two norms, two row-parallel biases) and 7·h/t of cut ones.
#[test]
fn layers_hold_the_papers_states() {
    for p in FIGURE {
        let plan = plan(gpt(p.hidden, p.heads, p.layers, 51200), 1, p.tp as u32, p.pp as u32, false, 1);
        let (memory, code) = layers(&plan, Recompute::None, p.layers / p.pp, Storage::WHOLE);
        let vectors: u64 = code.params.iter().filter(|s| s.shape.len() == 1).map(|s| s.elements).sum();
        assert_eq!(vectors, 6 * p.hidden + 7 * p.hidden / p.tp, "{}", p.name);
        let unlisted = 18 * vectors * p.layers / p.pp;
        assert_eq!(states(&memory) - unlisted, bytes(p.states), "{}", p.name);
    }
}

/// B17 (NVIDIA/Megatron-LM #654): bf16 with Adam and fp32 gradients is 2 + 4 + 4 + 8 bytes a parameter; a distributed
/// optimizer splits 12 of them among dp replicas.
#[test]
fn a_parameter_takes_18_bytes_or_6_and_12_shared() {
    for (dp, bytes) in [(1, 18.0), (2, 12.0), (4, 9.0), (8, 7.5)] {
        let plan = plan(gpt(6144, 64, 1, 51200), dp, 1, 1, false, 1);
        let wanted = if dp > 1 { Storage::states(AxisSet::of(Axis::Dp)) } else { Storage::WHOLE };
        let (memory, code) = layers(&plan, Recompute::None, 1, wanted);
        let params: u64 = code.params.iter().map(|p| p.elements).sum();
        assert_eq!(states(&memory) as f64 / params as f64, bytes, "dp {dp}");
        let whole = layers(&plan, Recompute::None, 1, Storage::WHOLE).0;
        assert_eq!(states(&whole), 18 * params, "dp {dp}");
    }
}

/// B8 (bigscience-workshop/Megatron-DeepSpeed #99) and B9 (NVIDIA/Megatron-LM #299): a tied table is one parameter, lies on
/// the first and the last stage and nowhere else, and its gradient is summed between the two once a step.
#[test]
fn a_tied_table_lies_on_the_first_and_the_last_stage() {
    let (vocab, hidden) = (50304, 768);
    let table = vocab * hidden;
    assert_eq!(table, 38_633_472);
    let model = gpt(hidden, 12, 12, vocab);
    for (tp, pp) in [(1, 1), (1, 2), (1, 4), (2, 4)] {
        let plan = plan(model.clone(), 1, tp, pp, false, 1);
        let program = meshwright_lowering::lower(&plan).unwrap();
        let holds = |k: &usize| program.roles[*k].parameters.iter().any(|p| p.name == "embed.tokens.table");
        let holders: Vec<usize> = (0..pp as usize).filter(holds).collect();
        let ends = if pp == 1 { vec![0] } else { vec![0, pp as usize - 1] };
        assert_eq!(holders, ends, "tp {tp}, pp {pp}");
        let of = |code: &meshwright_ir::program::Code| -> u64 {
            let weights = code.buffers.iter().filter(|b| b.class == BufferClass::Weight);
            weights.map(|b| b.bytes().get() / 2).sum()
        };
        let held: u64 = program.roles.iter().map(of).sum();
        if tp == 1 {
            assert_eq!(held, model.params() + table * u64::from(pp > 1), "pp {pp}");
        }
        let between = |k: usize| {
            let listed = program.roles[k].instructions.iter().filter_map(|i| match i.action {
                Action::Collective(c) => Some(&program.collectives[c as usize]),
                Action::Compute(_) | Action::Exchange(_) => None,
            });
            listed.filter(|c| c.stages.is_some()).map(|c| (c.stages.clone().unwrap(), c.elements)).collect()
        };
        for stage in 0..pp as usize {
            let summed: Vec<(Vec<u32>, u64)> = between(stage);
            let wanted = match pp > 1 && ends.contains(&stage) {
                true => vec![(vec![0, pp - 1], table / u64::from(tp))],
                false => vec![],
            };
            assert_eq!(summed, wanted, "stage {stage} of {pp}");
        }
    }
    // The copy has a gradient, a master and moments of its own.
    let program = meshwright_lowering::lower(&plan(model, 1, 1, 4, false, 1)).unwrap();
    let code = &program.roles[3];
    let copy = code.parameters.iter().find(|p| p.name == "embed.tokens.table").unwrap();
    let buffers = [copy.weight, copy.gradient].into_iter().chain(copy.master).chain(copy.moments.clone());
    let bytes: Bytes = buffers.map(|b| code.buffers[b as usize].bytes()).sum();
    assert_eq!(bytes, Bytes(18 * table));
}
