//! Plans for tests, built from any choice of strategies instead of by the planner, so that the rest of the path meets
//! legal plans the planner would never choose.

use meshwright_algebra::{Converter, Shapes, class_plan, may_store, scopes, strategies};
use meshwright_ir::program::IdKind;
use meshwright_ir::{
    Algorithm, Axis, AxisSet, Bytes, Cluster, Gathering, Job, Layout, Mesh, Model, Optimizer, Plan,
    Precision, Prediction, Recompute, Run, Schedule, Search, SearchReport, Source, StagePlan, StateSharding,
    Storage, Strategy, Training,
};
use std::collections::BTreeMap;
use std::path::Path;

/// A small GPT-2: tied embeddings, biases, learned positions.
pub(crate) fn gpt(layers: u32) -> Model {
    let config = format!(
        r#"{{"model_type":"gpt2","vocab_size":64,"n_positions":16,"n_embd":32,"n_layer":{layers},"n_head":4,
            "activation_function":"gelu_new","initializer_range":0.1,"layer_norm_epsilon":1e-5,"tie_word_embeddings":true}}"#
    );
    meshwright_zoo::model_from_config("tiny-gpt.json", "tiny-gpt", &config).unwrap()
}

/// The same with dropout wherever the family has it, and an attention core by its Hugging Face name.
pub(crate) fn dropping(layers: u32, core: &str) -> Model {
    let config = format!(
        r#"{{"model_type":"gpt2","vocab_size":64,"n_positions":16,"n_embd":32,"n_layer":{layers},"n_head":4,
            "activation_function":"gelu_new","initializer_range":0.1,"layer_norm_epsilon":1e-5,"tie_word_embeddings":true,
            "_attn_implementation":"{core}","attn_pdrop":0.1,"resid_pdrop":0.1,"embd_pdrop":0.1}}"#
    );
    meshwright_zoo::model_from_config("dropping.json", core, &config).unwrap()
}

/// A small Qwen3: grouped queries, rotary positions, per-head norms, gated MLP, untied head.
pub(crate) fn qwen(layers: u32) -> Model {
    let config = format!(
        r#"{{"model_type":"qwen3","vocab_size":64,"max_position_embeddings":64,"hidden_size":32,"num_hidden_layers":{layers},
            "num_attention_heads":8,"num_key_value_heads":4,"head_dim":8,"intermediate_size":48,"rms_norm_eps":1e-6,
            "rope_theta":10000.0,"initializer_range":0.1,"hidden_act":"silu","tie_word_embeddings":false}}"#
    );
    meshwright_zoo::model_from_config("tiny-qwen.json", "tiny-qwen", &config).unwrap()
}

pub(crate) fn cluster(ranks: u32) -> Cluster {
    let text = format!(
        r#"
        name = "test"
        devices_per_node = {ranks}
        levels = [{{ name = "link", size = {ranks}, bandwidth = 1e11, latency = 1000000, efficiency = 0.8 }}]
        [device]
        name = "test"
        kind = "gpu"
        memory = 80000000000
        reserved = 1000000
        memory_bandwidth = 1e12
        cores = 1
        launch = 5000000
        peak = {{ f32 = 1e13, bf16 = 1e14 }}
        "#
    );
    meshwright_zoo::cluster_from_toml("test.toml", &text, None).unwrap()
}

/// What a test plan is.
#[derive(Clone)]
pub(crate) struct Shape {
    pub(crate) model: Model,
    pub(crate) dp: u32,
    pub(crate) fsdp: u32,
    pub(crate) tp: u32,
    pub(crate) pp: u32,
    pub(crate) sp: bool,
    pub(crate) micro_batch: u64,
    pub(crate) global_batch: u64,
    pub(crate) sequence: u64,
    pub(crate) schedule: Schedule,
}

/// Chooses one of an op's legal strategies: given class, node name, and the choices.
pub(crate) type Choose<'a> = dyn FnMut(&str, &str, &[Strategy]) -> usize + 'a;

/// A plan with the chosen strategies and cheapest conversions by elements moved.
pub(crate) fn plan(shape: &Shape, choose: &mut Choose<'_>) -> Option<Plan> {
    let degrees =
        [(Axis::Dp, shape.dp), (Axis::Fsdp, shape.fsdp), (Axis::Tp, shape.tp), (Axis::Pp, shape.pp)];
    let mesh = Mesh::new(degrees).unwrap();
    let replicas = u64::from(mesh.replicas());
    let replica_batch = shape.global_batch / replicas;
    let shapes = Shapes { batch: shape.micro_batch * replicas, sequence: shape.sequence };
    let data = mesh.active().iter().filter(|a| AxisSet::DATA.contains(*a));
    let mut boundary = data.fold(Layout::replicated(3), |layout, axis| layout.sharded(0, axis));
    if shape.sp && shape.tp > 1 {
        boundary = boundary.sharded(1, Axis::Tp);
    }
    let price = |_, elements| elements;
    let mut converter = Converter::new(mesh, &price);
    let mut chosen: BTreeMap<(String, String), Strategy> = BTreeMap::new();
    let mut classes = Vec::new();
    for class in &shape.model.classes {
        let mut picked = Vec::new();
        for node in &class.nodes {
            let mut legal = strategies(&node.op, &mesh, &shapes);
            if let Some(tie) = &node.tied {
                // A tied matrix is stored like its owner: same cut of rows and columns.
                let owner = &chosen[&(tie.class.clone(), tie.node.clone())];
                let (rows, columns) = (owner.axes_on(2), owner.axes_on(3));
                legal.retain(|s| s.axes_on(3) == rows && s.axes_on(2) == columns);
                // And summed over the same axes, since both add to one gradient.
                legal.retain(|s| shape.pp > 1 || s.axes_on(1) == owner.axes_on(1));
            }
            let at = choose(&class.name, &node.name, &legal);
            chosen.insert((class.name.clone(), node.name.clone()), legal[at].clone());
            picked.push(legal[at].clone());
        }
        classes.push(class_plan(class, picked, &shapes, shape.model.hidden, &boundary, &mut converter)?);
    }
    let blocks = shape.model.blocks().len() as u32;
    let stages = (0..shape.pp).map(|s| (s * blocks / shape.pp, (s + 1) * blocks / shape.pp));
    let algorithms = mesh.active().iter().map(|a| (a, Algorithm::Direct)).collect();
    let source = |name: &str| Source { name: name.into(), hash: String::new() };
    Some(Plan {
        version: 1,
        job: Job {
            model_source: source("test"),
            model: shape.model.clone(),
            cluster_source: source("test"),
            cluster: cluster(mesh.ranks()),
            training: Training {
                sequence: shape.sequence,
                global_batch: shape.global_batch,
                precision: Precision::Fp32,
                optimizer: Optimizer::Adamw,
                learning_rate: 1e-3,
                warmup: 0,
                weight_decay: 0.1,
                clip: 1.0,
                seed: 1,
            },
            search: Search {
                objective: Default::default(),
                pins: vec![],
                ranks: mesh.ranks(),
                top: 1,
                work_limit: 0,
            },
            run: Run::default(),
        },
        mesh,
        micro_batch: shape.micro_batch,
        micro_batches: replica_batch / shape.micro_batch,
        schedule: shape.schedule,
        stages: stages.map(|(from, to)| StagePlan { first: from, blocks: to - from }).collect(),
        boundary,
        classes,
        recompute: vec![Recompute::None; blocks as usize],
        state_sharding: if shape.fsdp > 1 { StateSharding::Zero3 } else { StateSharding::None },
        gathering: Gathering::default(),
        bucket: Bytes::ZERO,
        algorithms,
        prediction: Prediction {
            step_time_s: 0.0,
            step_time_band_s: (0.0, 0.0),
            basis: String::new(),
            closed_form_s: 0.0,
            peak_memory_bytes: vec![],
            memory_limit_bytes: Bytes(0),
            lower_bound_s: 0.0,
        },
        search: SearchReport::default(),
        why: vec![],
    })
}

/// A small model in bf16 on H100, with choices made here.
pub(crate) fn on_h100(dp: u32, tp: u32, pp: u32, nodes: Option<u32>) -> Plan {
    let shape = Shape {
        model: gpt(4),
        dp,
        fsdp: 1,
        tp,
        pp,
        sp: true,
        micro_batch: 1,
        global_batch: 4 * u64::from(dp),
        sequence: 16,
        schedule: Schedule::OneForwardOneBackward,
    };
    let mut made = plan(&shape, &mut megatron(true)).expect("even sizes convert");
    (made.job.cluster, made.job.cluster_source) =
        meshwright_zoo::cluster("h100-sxm", nodes, Path::new("")).unwrap();
    made.job.training.precision = Precision::Bf16;
    made
}

/// Stores every parameter as wanted where it may be; the others stay as they are.
pub(crate) fn store(plan: &mut Plan, wanted: Storage) {
    store_some(plan, &mut |_| Some(wanted));
}

/// Stores an op's parameters as `wanted` says of its name, where they may be; a tied one like its owner.
pub(crate) fn store_some(plan: &mut Plan, wanted: &mut dyn FnMut(&str) -> Option<Storage>) {
    let (mesh, stages) = (plan.mesh, plan.stages.len() as u32);
    let mut chosen: BTreeMap<(String, String), Storage> = BTreeMap::new();
    for (c, choices) in plan.classes.iter_mut().enumerate() {
        let class = &plan.job.model.classes[c];
        let scopes = scopes(class, &choices.strategies, &mesh);
        for (scope, storage) in scopes.iter().zip(&mut choices.storage) {
            let node = scope.name.rsplit_once('.').unwrap().0.to_string();
            // One kernel makes the gradients of all of an op's parameters, so they go the same way.
            let like = match &scope.tied {
                Some(tie) => (tie.class.clone(), tie.node.clone()),
                None => (class.name.clone(), node.clone()),
            };
            let wish = chosen.get(&like).copied().or_else(|| wanted(&node));
            let may = |s: &Storage| may_store(&plan.job.model, c as u32, scope, stages, &mesh, *s).is_ok();
            if let Some(wish) = wish.filter(may) {
                *storage = wish;
            }
            chosen.entry((class.name.clone(), node)).or_insert(*storage);
        }
    }
    let most = plan.classes.iter().flat_map(|c| &c.storage).map(|s| s.needs()).max();
    plan.state_sharding = if mesh.degree(Axis::Fsdp) > 1 { StateSharding::Zero3 } else { most.unwrap() };
}

/// The customary choice: attention and MLP column then row, norms along the sequence when `sp`, vocabulary cut.
pub(crate) fn megatron(sp: bool) -> impl FnMut(&str, &str, &[Strategy]) -> usize {
    move |_, node, legal| {
        let wanted: &[u8] = match node.trim_end_matches(".bias") {
            "q" | "k" | "v" | "up" | "gate" if node.ends_with(".bias") => &[2],
            "q" | "k" | "v" | "up" | "gate" | "logits" => &[3],
            "proj" | "down" if !node.ends_with(".bias") => &[2],
            "tokens" | "loss" | "attn" | "act" | "silu" | "q.rope" | "k.rope" | "q.norm" | "k.norm" => &[2],
            _ if sp => &[1],
            _ => &[],
        };
        let matches = |s: &Strategy| s.index(Axis::Tp).as_slice() == wanted;
        legal
            .iter()
            .position(matches)
            .or_else(|| legal.iter().position(|s| s.index(Axis::Tp).is_none()))
            .unwrap_or(0)
    }
}

/// Deterministic pseudo-random choices.
pub(crate) fn random(mut state: u64) -> impl FnMut(&str, &str, &[Strategy]) -> usize {
    move |_, _, legal| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize % legal.len()
    }
}

/// Ids that depend only on step, sample and position.
pub(crate) fn ids(what: IdKind, step: u64, sample: u64, first: u64, into: &mut [u32]) {
    let shift = u64::from(what == IdKind::Targets);
    for (k, id) in into.iter_mut().enumerate() {
        let at = first + k as u64 + shift;
        // A short cycle per sample, so that there is something to learn.
        *id = ((at * (sample % 5 + 1) + step % 3) * 7 % 61) as u32;
    }
}
