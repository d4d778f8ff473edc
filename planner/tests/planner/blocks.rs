//! What the block problem chooses, and that its cost is the price of what is executed.

use crate::fixtures::{self, Block, GPT2_XL, LLAMA_8B, Sizes, TINY};
use meshwright_algebra::{Shapes, expand};
use meshwright_cost_models::CostModel;
use meshwright_ir::{Axis, BlockClass, DType, Layout, Mesh, Model, Op, Step, Training, Value};
use meshwright_planner::{
    BlockPlan, Outcome, Prices, Problem, Spec, block_problem, plan_block, solve, solve_milp,
};
use std::collections::BTreeMap;

struct Case<'a> {
    class: &'a BlockClass,
    hidden: u64,
    mesh: &'a str,
    batch: u64,
    sequence: u64,
    boundary: &'a str,
    micro_batches: u64,
}

impl Case<'_> {
    fn spec(&self) -> Spec<'_> {
        Spec {
            class: self.class,
            mesh: self.mesh.parse().unwrap(),
            shapes: Shapes { batch: self.batch, sequence: self.sequence },
            hidden: self.hidden,
            boundary: self.boundary.parse().unwrap(),
            dtype: DType::Bf16,
        }
    }
    fn solve(&self, budget: Option<u64>) -> Result<BlockPlan, String> {
        let pose = |training: &Training, prices: &Prices<'_>| {
            plan_block(self.spec(), training, prices, self.micro_batches, 1, budget)
        };
        self.priced(pose)
    }
    fn problem(&self) -> Problem {
        let pose = |training: &Training, prices: &Prices<'_>| {
            block_problem(self.spec(), training, prices, self.micro_batches, 1).unwrap()
        };
        self.priced(pose)
    }
    fn priced<T>(&self, pose: impl FnOnce(&Training, &Prices<'_>) -> T) -> T {
        let cluster = fixtures::h100(8);
        let model = CostModel::new(&cluster);
        let prices = Prices::new(&model, self.mesh.parse().unwrap(), &BTreeMap::new());
        pose(&fixtures::training(self.sequence, self.batch * self.micro_batches), &prices)
    }
}

/// `name strategy` of every node, joined by commas.
fn chosen(class: &BlockClass, plan: &BlockPlan) -> String {
    let show = |(n, s): (&meshwright_ir::Node, &meshwright_ir::Strategy)| {
        format!("{} {}", n.name, s.describe(n.op.indices()))
    };
    class.nodes.iter().zip(&plan.plan.strategies).map(show).collect::<Vec<_>>().join(", ")
}

fn boundary(mesh: &Mesh, sp: bool) -> Layout {
    let batch = if mesh.degree(Axis::Dp) > 1 {
        Layout::replicated(3).sharded(0, Axis::Dp)
    } else {
        Layout::replicated(3)
    };
    if sp { batch.sharded(1, Axis::Tp) } else { batch }
}

/// Classes of a model on several meshes, with both boundaries.
fn each(model: &Model, sequence: u64, check: &dyn Fn(&Case<'_>)) {
    for (mesh, sp) in [
        ("tp=1", false),
        ("tp=2", false),
        ("tp=2", true),
        ("tp=4", true),
        ("dp=2 tp=2", false),
        ("dp=2 tp=2", true),
        ("dp=4", false),
    ] {
        let layout = boundary(&mesh.parse().unwrap(), sp).to_string();
        for (class, batch, micro_batches) in
            model.classes.iter().flat_map(|c| [(c, 4, 1), (c, 4, 64), (c, 8, 2)])
        {
            let hidden = model.hidden;
            check(&Case { class, hidden, mesh, batch, sequence, boundary: &layout, micro_batches });
        }
    }
}

#[test]
fn cost_and_memory_of_a_choice_are_those_of_its_expansion() {
    let models = [
        fixtures::llama(TINY),
        fixtures::llama(LLAMA_8B),
        fixtures::gpt2(TINY, 64),
        fixtures::gpt2(GPT2_XL, 1024),
    ];
    for (model, sequence) in models.iter().zip([64, 4096, 64, 1024]) {
        each(model, sequence, &|case: &Case<'_>| {
            let found = case.solve(None).unwrap();
            assert!(matches!(found.outcome, Outcome::Optimal(_)));
            let spec = case.spec();
            let code = expand(
                spec.class,
                &found.plan,
                &spec.mesh,
                &spec.shapes,
                spec.hidden,
                &spec.boundary,
                spec.dtype,
            );
            let cluster = fixtures::h100(8);
            let cost_model = CostModel::new(&cluster);
            let prices = Prices::new(&cost_model, spec.mesh, &BTreeMap::new());
            let listed = prices.in_turn(&code.forward) + prices.in_turn(&code.backward);
            let label = format!("{} on {} {}", spec.class.name, case.mesh, case.boundary);
            assert_eq!(found.time, listed, "{label}: {}", chosen(case.class, &found));
            let states: u64 = code
                .params
                .iter()
                .map(|p| {
                    let aligned = |width: u64| (width * p.elements).div_ceil(256) * 256;
                    aligned(2) + 4 * aligned(4)
                })
                .sum();
            assert_eq!(found.memory, states + code.frame.get(), "{label}");
        });
    }
}

#[test]
fn reductions_and_the_programme_agree_on_blocks() {
    let cost = |outcome: Outcome| match outcome {
        Outcome::Optimal(found) => Some((found.cost, found.memory)),
        Outcome::Infeasible { .. } => None,
        Outcome::Feasible { .. } | Outcome::Stopped { .. } => panic!("not solved: {outcome:?}"),
    };
    for (model, sequence) in [(fixtures::llama(TINY), 64), (fixtures::gpt2(TINY, 64), 64)] {
        each(&model, sequence, &|case: &Case<'_>| {
            let free = case.problem();
            let (best, memory) = cost(solve(&free)).unwrap();
            assert_eq!(cost(solve_milp(&free)).unwrap().0, best);
            let tight = Problem { budget: Some(memory * 7 / 8), ..free };
            let costs = [solve(&tight), solve_milp(&tight)].map(|found| cost(found).map(|(cost, _)| cost));
            assert_eq!(costs[0], costs[1], "{} on {} {}", case.class.name, case.mesh, case.boundary);
            assert!(costs[0].is_none_or(|c| c >= best));
        });
    }
}

#[test]
fn three_projections_cost_what_one_fused_costs() {
    let h = 2048;
    let core = || Op::attention(16, 16, h / 16, true, None);
    let mut apart = Block::new();
    let names = ["q", "k", "v"];
    let qkv: Vec<Value> = names.iter().map(|n| apart.linear(n, Value::Input, [h, h], [1, h / 16])).collect();
    apart.add("attention", core(), &qkv);
    let apart = apart.finish("apart");
    let mut fused = Block::new();
    let all = fused.linear("qkv", Value::Input, [h, 3 * h], [1, h / 16]);
    fused.add("out", Op::Linear { input: 3 * h, output: h, input_grain: h / 16, output_grain: 1 }, &[all]);
    let fused = fused.finish("fused");
    let conversions = |class: &BlockClass| {
        let case = Case {
            class,
            hidden: h,
            mesh: "tp=4",
            batch: 1,
            sequence: 2048,
            boundary: "(-,tp,-)",
            micro_batches: 1,
        };
        let found = case.solve(None).unwrap();
        let input = found.plan.input.unwrap();
        let steps = |s: &[Step]| s.len();
        (
            input.copies.iter().map(|c| steps(&c.steps)).sum::<usize>(),
            input.gradients.iter().map(|g| steps(&g.steps)).sum::<usize>(),
        )
    };
    // One all_gather forward and one reduce_scatter backward, whether one reader needs them or three do.
    assert_eq!(conversions(&apart), (1, 1));
    assert_eq!(conversions(&fused), (1, 1));
}

fn layer(model: &Model) -> &BlockClass {
    &model.classes[1]
}

fn on_tp<'a>(class: &'a BlockClass, s: Sizes, mesh: &'a str, boundary: &'a str, sequence: u64) -> Case<'a> {
    Case { class, hidden: s.hidden, mesh, batch: 1, sequence, boundary, micro_batches: 1 }
}

#[test]
fn column_then_row_with_sequence_parallel_norms_comes_out_for_llama() {
    let model = fixtures::llama(LLAMA_8B);
    for mesh in ["tp=2", "tp=4", "tp=8"] {
        let case = on_tp(layer(&model), LLAMA_8B, mesh, "(-,tp,-)", 4096);
        let found = case.solve(None).unwrap();
        assert_eq!(
            chosen(case.class, &found),
            "norm1 tp:s, q tp:o, k tp:o, v tp:o, rope_q tp:e, rope_k tp:e, attention tp:h, proj tp:i, \
             add1 tp:s, norm2 tp:s, gate tp:o, up tp:o, glu tp:e, down tp:i, add2 tp:s",
            "{mesh}"
        );
        let of = |node: usize| &found.plan.outputs[node];
        let (tp, gather, scatter) = (
            Axis::Tp,
            vec![Step::AllGather { axis: Axis::Tp, dim: 1 }],
            vec![Step::ReduceScatter { axis: Axis::Tp, dim: 1 }],
        );
        for norm in [0, 9] {
            assert_eq!((&of(norm).copies[0].steps, of(norm).copies.len()), (&gather, 1));
            assert_eq!((&of(norm).gradients[0].steps, of(norm).gradients.len()), (&scatter, 1));
        }
        for row in [7, 13] {
            assert_eq!(of(row).copies[0].steps, scatter, "{tp}");
            assert_eq!(of(row).gradients[0].steps, gather);
        }
    }
}

#[test]
fn column_then_row_comes_out_for_gpt2() {
    let sizes = Sizes { hidden: 4096, heads: 32, kv_heads: 32, inner: 16384, ..GPT2_XL };
    let model = fixtures::gpt2(sizes, 2048);
    for mesh in ["tp=2", "tp=4", "tp=8"] {
        let case = on_tp(layer(&model), sizes, mesh, "(-,tp,-)", 2048);
        let found = case.solve(None).unwrap();
        assert_eq!(
            chosen(case.class, &found),
            "ln1 tp:s, q tp:o, q.bias tp:e, k tp:o, k.bias tp:e, v tp:o, v.bias tp:e, attention tp:h, \
             proj tp:i, proj.bias tp:s, add1 tp:s, ln2 tp:s, up tp:o, up.bias tp:e, gelu tp:e, down tp:i, \
             down.bias tp:s, add2 tp:s",
            "{mesh}"
        );
    }
}

#[test]
fn the_vocabulary_is_cut_in_head_and_loss() {
    for (model, s, sequence) in
        [(fixtures::llama(LLAMA_8B), LLAMA_8B, 4096), (fixtures::gpt2(GPT2_XL, 1024), GPT2_XL, 1024)]
    {
        for (mesh, boundary) in [("tp=2", "(-,tp,-)"), ("tp=8", "(-,tp,-)"), ("tp=8", "(-,-,-)")] {
            let case = on_tp(&model.classes[2], s, mesh, boundary, sequence);
            let found = case.solve(None).unwrap();
            let shown = chosen(case.class, &found);
            assert!(shown.ends_with("logits tp:o, loss tp:v"), "{mesh} {boundary}: {shown}");
        }
    }
}

#[test]
fn memory_brings_tensor_parallelism_back_when_many_micro_batches_hide_the_gradients() {
    let model = fixtures::llama(LLAMA_8B);
    let case = Case { micro_batches: 512, ..on_tp(layer(&model), LLAMA_8B, "tp=8", "(-,tp,-)", 4096) };
    let free = case.solve(None).unwrap();
    assert!(chosen(case.class, &free).contains("gate tp:s"), "{}", chosen(case.class, &free));
    let tight = case.solve(Some(free.memory / 4)).unwrap();
    assert!(chosen(case.class, &tight).contains("gate tp:o"), "{}", chosen(case.class, &tight));
    assert!(tight.memory <= free.memory / 4 && tight.time + tight.parameters > free.time + free.parameters);
    assert!(case.solve(Some(free.memory / 100)).unwrap_err().contains("every choice holds at least"));
}
