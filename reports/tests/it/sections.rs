//! What sections say, as text: the answer sentence and the tables of a small plan.

use crate::fixture::{Fixture, PIPELINE, SMALL};
use crate::markup::{section, text};
use expect_test::{Expect, expect};
use meshwright_ir::Bytes;
use meshwright_reports::{Report, html};

fn check(report: &Report<'_>, id: &str, expected: Expect) {
    let page = html(report);
    expected.assert_eq(&text(section(&page, id).unwrap_or_else(|| panic!("no section {id}"))));
}

fn sentence(report: &Report<'_>) -> String {
    let page = html(report);
    text(section(&page, "answer").unwrap()).lines().nth(1).unwrap().to_string()
}

#[test]
fn the_answer() {
    let fixture = Fixture::new(&SMALL);
    check(
        &fixture.report(),
        "answer",
        expect![[r#"
            Answer
            gpt-nano on 4 ranks of localhost: dp 2 × tp 2, 1F1B, micro-batch 2: predicted 65.5 ms a step (band 53.7–78.6 ms), measured 68.5 ms (error −4.3 %), fits with 30.7 MiB of 123 MiB to spare.
            Step time
            65.5 ms predicted
            Band 53.7–78.6 ms.
            68.5 ms measured
            The prediction is off by −4.3 %: by kind.
            No plan of the searched space is faster than 52.4 ms.
            Memory of a rank
            fits, 30.7 MiB to spare
            Peak 92.0 MiB of 123 MiB.
            The largest part is activations and workspace (44.0 MiB).
            What limits it
            kernels, 76.2 % of the step
            kernels 76.2 %
            exposed collectives 23.8 %
            On the critical path, most is linear forward on stage 0, 79.4 % of the step.
            What would help
            −8.3 % time per token : 11.0 GiB more memory a rank, for pp 2 at micro-batch 2 *
            −3.1 % time per token : twice the bandwidth of memory
            Each was simulated with this plan and nothing else changed; * by the planner's closed form. What rejected plans would take.
            Tokens per second 125 k predicted
            Model FLOP utilisation 41.2 % model FLOPs as in PaLM, attention included
            Global batch 8 sequences of 1 024 tokens; 2 micro-batches of 2 per replica
            Training fp32, adamw recompute: none; state sharding: none; sequence-parallel norms
        "#]],
    );
}

#[test]
fn the_answer_without_a_run_and_without_room() {
    let fixture = Fixture::new(&PIPELINE);
    let mut plan = fixture.plan.clone();
    plan.prediction.memory_limit_bytes = Bytes(64 << 20);
    expect!["gpt-nano on 8 ranks of h100-sxm: pp 2 × dp 2 × tp 2, 1F1B, micro-batch 2: predicted 197 ms a step (band 161–236 ms), fits with 32.0 MiB of 128 MiB to spare."].assert_eq(&sentence(&Report::new(&fixture.plan, "")));
    expect!["gpt-nano on 8 ranks of h100-sxm: pp 2 × dp 2 × tp 2, 1F1B, micro-batch 2: predicted 197 ms a step (band 161–236 ms), does not fit: stage 0 needs 96.0 MiB of 64.0 MiB, 32.0 MiB too much."].assert_eq(&sentence(&Report::new(&plan, "")));
}

#[test]
fn stages_on_the_cluster() {
    check(
        &Fixture::new(&PIPELINE).report(),
        "cluster",
        expect![[r#"
            The plan on the cluster
            2 nodes of 4 devices (H100 SXM, 80.0 GiB). The mesh is pp 2 × dp 2 × tp 2.
            Stages
            Stage | Blocks | Ranks | Peak memory, predicted | Of the limit | Peak of the arena, measured
            0  | embed – layer.1 (3 blocks) | 0–3 | 96.0 MiB | 75.0 % | 73.5 MiB
            1  | layer.2 – head (3 blocks) | 4–7 | 69.0 MiB | 53.9 % | 56.2 MiB
        "#]],
    );
}

#[test]
fn strategies_and_conversions() {
    check(
        &Fixture::new(&SMALL).report(),
        "strategies",
        expect![[r#"
        How each op is sharded
        A strategy names the index of the op that each mesh axis cuts: b batch, s sequence, i/o input and output features, e features, h heads, v vocabulary. A layout lists what cuts each dim of [batch, sequence, features]; +tp marks addends still to be summed. Between blocks the layout is (dp,tp,-).
        Block embed
        Node | Op | Strategy | In words | Output | Forward conversions
        tokens | embedding | dp:b tp:v | vocabulary-parallel | (dp,-,-)+tp | reduce-scatter over tp along sequence → (dp,tp,-) for the next block
        Block layer × 2
        Node | Op | Strategy | In words | Output | Forward conversions
        (input) |  |  |  | (dp,tp,-) |
        attn.norm | norm | dp:b tp:s | sequence-parallel | (dp,tp,-) | all-gather over tp along sequence → (dp,-,-) for attn.q, attn.k, attn.v
        attn.q | linear | dp:b tp:o | column-parallel | (dp,-,tp) |
        attn.k | linear | dp:b tp:o | column-parallel | (dp,-,tp) |
        attn.v | linear | dp:b tp:o | column-parallel | (dp,-,tp) |
        attn.core | attention | dp:b tp:h | head-parallel | (dp,-,tp) |
        attn.out | linear | dp:b tp:i | row-parallel | (dp,-,-)+tp | reduce-scatter over tp along sequence → (dp,tp,-) for attn.residual
        attn.residual | add | dp:b tp:s | sequence-parallel | (dp,tp,-) |
        mlp.norm | norm | dp:b tp:s | sequence-parallel | (dp,tp,-) | all-gather over tp along sequence → (dp,-,-) for mlp.up
        mlp.up | linear | dp:b tp:o | column-parallel | (dp,-,tp) |
        mlp.gelu | activation | dp:b tp:e | feature-parallel | (dp,-,tp) |
        mlp.down | linear | dp:b tp:i | row-parallel | (dp,-,-)+tp | reduce-scatter over tp along sequence → (dp,tp,-) for mlp.residual
        mlp.residual | add | dp:b tp:s | sequence-parallel | (dp,tp,-) |
        Block head
        Node | Op | Strategy | In words | Output | Forward conversions
        (input) |  |  |  | (dp,tp,-) |
        norm | norm | dp:b tp:s | sequence-parallel | (dp,tp,-) | all-gather over tp along sequence → (dp,-,-) for logits
        logits | linear | dp:b tp:o | column-parallel | (dp,-,tp) |
        loss | cross-entropy | dp:b tp:v | vocabulary-parallel | (dp,-) |
        Collectives: ring over dp, ring over tp.
    "#]],
    );
}

#[test]
fn streams_in_time() {
    check(
        &Fixture::new(&PIPELINE).report(),
        "timeline",
        expect![[r#"
            One step in time
            The step takes 197 ms predicted and 206 ms measured. The first traced rank of each stage stands for its stage.
            forward
            backward
            collective
            exchange
            optimizer
            −
            +
            ←
            →
            Whole step
            Stage all01Rank one of each stageall drawn01234567KindsforwardbackwardcollectiveexchangeoptimizerCopy link to this view
            How to move and zoom
            Drag to move; double-click or Ctrl + wheel to zoom; Shift + drag to zoom into a range. With the keyboard on the timeline: ← → move, + − zoom, Home shows the whole step, , . step through instructions, ↑ ↓ change the lane.
            Stage 0 rank 0 ·  embed – layer.1 (3 blocks)
            compute predicted
            measured
            collective tp predicted
            measured
            collective dp predicted
            measured
            link +1 predicted
            measured
            3 more ranks of stage 0
            Rank 1
            compute measured
            collective tp measured
            collective dp measured
            link +1 measured
            Rank 2
            compute measured
            collective tp measured
            collective dp measured
            link +1 measured
            Rank 3
            compute measured
            collective tp measured
            collective dp measured
            link +1 measured
            Stage 1 rank 4 ·  layer.2 – head (3 blocks)
            compute predicted
            measured
            collective tp predicted
            measured
            collective dp predicted
            measured
            link −1 predicted
            measured
            3 more ranks of stage 1
            Rank 5
            compute measured
            collective tp measured
            collective dp measured
            link −1 measured
            Rank 6
            compute measured
            collective tp measured
            collective dp measured
            link −1 measured
            Rank 7
            compute measured
            collective tp measured
            collective dp measured
            link −1 measured
            20 lanes of 40, the longest, are drawn in columns of 457 µs: the colour is the kind that fills most of a column, the height how much of it was busy.
            Neighbouring instructions of one kind are drawn as one where they are narrower than a pixel, its height how much of it was busy. F and B number the micro-batches going forward and backward.
            Table: streams of these ranks
            Streams of the ranks drawn
            Stage | Rank | Stream | Trace | Instructions | Busy | First start | Last end
            0 | 0 | compute | predicted | 375 | 128 ms | 0 | 197 ms
            0 | 0 | compute | measured | 375 | 134 ms | 0 | 206 ms
            0 | 0 | collective tp | predicted | 108 | 25.9 ms | 350 µs | 189 ms
            0 | 0 | collective tp | measured | 108 | 27.0 ms | 367 µs | 197 ms
            0 | 0 | collective dp | predicted | 3 | 4.50 ms | 189 ms | 194 ms
            0 | 0 | collective dp | measured | 3 | 4.86 ms | 198 ms | 203 ms
            0 | 0 | link +1 | predicted | 12 | 53.6 ms | 9.83 ms | 174 ms
            0 | 0 | link +1 | measured | 12 | 56.1 ms | 10.2 ms | 182 ms
            0 | 1 | compute | measured | 375 | 134 ms | 0 | 205 ms
            0 | 1 | collective tp | measured | 108 | 27.0 ms | 364 µs | 197 ms
            0 | 1 | collective dp | measured | 3 | 4.82 ms | 198 ms | 203 ms
            0 | 1 | link +1 | measured | 12 | 55.9 ms | 10.2 ms | 182 ms
            0 | 2 | compute | measured | 375 | 133 ms | 0 | 205 ms
            0 | 2 | collective tp | measured | 108 | 27.0 ms | 360 µs | 197 ms
            0 | 2 | collective dp | measured | 3 | 4.77 ms | 198 ms | 203 ms
            0 | 2 | link +1 | measured | 12 | 56.2 ms | 10.3 ms | 182 ms
            0 | 3 | compute | measured | 375 | 134 ms | 0 | 205 ms
            0 | 3 | collective tp | measured | 108 | 27.0 ms | 357 µs | 197 ms
            0 | 3 | collective dp | measured | 3 | 4.72 ms | 198 ms | 202 ms
            0 | 3 | link +1 | measured | 12 | 55.8 ms | 10.3 ms | 182 ms
            1 | 4 | compute | predicted | 405 | 137 ms | 10.1 ms | 181 ms
            1 | 4 | compute | measured | 405 | 144 ms | 10.5 ms | 190 ms
            1 | 4 | collective tp | predicted | 108 | 25.9 ms | 10.2 ms | 174 ms
            1 | 4 | collective tp | measured | 108 | 26.9 ms | 10.6 ms | 181 ms
            1 | 4 | collective dp | predicted | 3 | 4.50 ms | 174 ms | 179 ms
            1 | 4 | collective dp | measured | 3 | 5.00 ms | 182 ms | 187 ms
            1 | 4 | link −1 | predicted | 12 | 13.4 ms | 0 | 174 ms
            1 | 4 | link −1 | measured | 12 | 13.9 ms | 0 | 182 ms
            1 | 5 | compute | measured | 405 | 144 ms | 10.5 ms | 190 ms
            1 | 5 | collective tp | measured | 108 | 27.0 ms | 10.6 ms | 181 ms
            1 | 5 | collective dp | measured | 3 | 4.95 ms | 182 ms | 187 ms
            1 | 5 | link −1 | measured | 12 | 14.0 ms | 0 | 182 ms
            1 | 6 | compute | measured | 405 | 144 ms | 10.6 ms | 190 ms
            1 | 6 | collective tp | measured | 108 | 27.0 ms | 10.7 ms | 181 ms
            1 | 6 | collective dp | measured | 3 | 4.91 ms | 182 ms | 187 ms
            1 | 6 | link −1 | measured | 12 | 14.0 ms | 0 | 182 ms
            1 | 7 | compute | measured | 405 | 143 ms | 10.6 ms | 189 ms
            1 | 7 | collective tp | measured | 108 | 27.1 ms | 10.7 ms | 181 ms
            1 | 7 | collective dp | measured | 3 | 4.86 ms | 182 ms | 186 ms
            1 | 7 | link −1 | measured | 12 | 14.0 ms | 0 | 182 ms
        "#]],
    );
}

#[test]
fn memory_by_class() {
    check(
        &Fixture::new(&PIPELINE).report(),
        "memory",
        expect![[r#"
            Memory
            By class of buffer, at the fullest instant
            weight
            gradient
            optimizer
            arena, not held then
            runtime
            free
            stage 0 predicted
            measured
            stage 1 predicted
            measured
            A full bar is the limit of 128 MiB. The arena is laid out so that every legal order of instructions fits; what this order leaves unused is drawn apart.
            Table: classes of buffers
            What the memory of a rank is for
            Class of buffer | Stage 0, predicted | Stage 0, measured | Stage 1, predicted | Stage 1, measured
            weight | 9.00 MiB | 9.00 MiB | 9.00 MiB | 9.00 MiB
            gradient | 9.00 MiB | 9.00 MiB | 9.00 MiB | 9.00 MiB
            optimizer | 18.0 MiB | 18.0 MiB | 18.0 MiB | 18.0 MiB
            arena, not held then | 60.0 MiB | 60.0 MiB | 33.0 MiB | 33.0 MiB
            runtime | 0 B | 0 B | 0 B | 0 B
            planned peak | 96.0 MiB | 96.0 MiB | 69.0 MiB | 69.0 MiB
            free | 32.0 MiB | 32.0 MiB | 59.0 MiB | 59.0 MiB
            of the limit | 75.0 % | 75.0 % | 53.9 % | 53.9 %
            10 buffers in all. Weights, master weights, gradients and optimizer state last the whole step.
            Over the step
            A rank may use 128 MiB. The highest point drawn is 73.5 MiB, 57.4 % of it.
            predicted
            measured
            limit
            Stage 0 embed – layer.1 (3 blocks)
            ↑ bytes live in the arena of one rank
            time in the step →
            Stage 1 layer.2 – head (3 blocks)
            ↑ bytes live in the arena of one rank
            time in the step →
            Table: peaks of these ranks
            Highest point of each curve
            Stage | Trace | Rank | Peak | First reached | Of the limit
            0 | predicted | 0 | 73.5 MiB | 19.9 ms | 57.4 %
            0 | measured | 0 | 73.5 MiB | 20.7 ms | 57.4 %
            1 | predicted | 4 | 56.2 MiB | 20.2 ms | 43.9 %
            1 | measured | 4 | 56.2 MiB | 21.0 ms | 43.9 %
        "#]],
    );
}

#[test]
fn parts_and_kinds() {
    check(
        &Fixture::new(&SMALL).report(),
        "breakdown",
        expect![[r#"
            Where the time goes
            Time in which a kernel ran; in which only a collective was under way; in which only a message between stages was; and the rest. The four add up to the step.
            compute
            exposed collective
            pipeline wait
            idle
            stage 0 · rank 0  predicted
            measured
            Table: parts of the step
            Parts of the step of the ranks drawn
            Stage | Trace | compute | share | exposed collective | share | pipeline wait | share | idle | share | step
            0 | predicted | 49.9 ms | 76.2 % | 15.6 ms | 23.8 % | 0 | 0.0 % | 0 | 0.0 % | 65.5 ms
            0 | measured | 51.6 ms | 75.4 % | 16.2 ms | 23.6 % | 0 | 0.0 % | 673 µs | 1.0 % | 68.5 ms
            Busy time by kind of instruction, over all traced ranks
            Kind | Share of busy time | Share, predicted | Share, measured | Time, predicted | Time, measured | Instructions, predicted | Instructions, measured
            linear backward-input |  | 18.3 % | 18.4 % | 12.0 ms | 50.1 ms | 26 | 104
            linear backward-weight |  | 18.3 % | 18.4 % | 12.0 ms | 50.2 ms | 26 | 104
            linear forward |  | 18.3 % | 18.3 % | 12.0 ms | 50.0 ms | 26 | 104
            all-reduce dp |  | 9.2 % | 8.8 % | 6.00 ms | 24.0 ms | 4 | 16
            all-gather tp |  | 7.3 % | 7.3 % | 4.80 ms | 19.9 ms | 20 | 80
            reduce-scatter tp |  | 7.3 % | 7.4 % | 4.80 ms | 20.2 ms | 20 | 80
            adamw |  | 5.5 % | 5.6 % | 3.60 ms | 15.3 ms | 4 | 16
            attention backward-input |  | 3.1 % | 3.1 % | 2.00 ms | 8.40 ms | 4 | 16
            attention forward |  | 3.1 % | 3.1 % | 2.00 ms | 8.32 ms | 4 | 16
            norm backward-input |  | 1.4 % | 1.4 % | 900 µs | 3.76 ms | 10 | 40
            norm forward |  | 1.4 % | 1.4 % | 900 µs | 3.75 ms | 10 | 40
            cross-entropy backward-input |  | 1.1 % | 1.1 % | 700 µs | 2.88 ms | 2 | 8
            Traced: 1 rank predicted, 4 ranks measured. Of each pair of bars the upper is predicted. Streams overlap, so busy time does not add up to step time; compare shares where the numbers of ranks differ.
            Table: 7 kinds more
            Busy time by kind of instruction, the other kinds
            Kind | Share of busy time | Share, predicted | Share, measured | Time, predicted | Time, measured | Instructions, predicted | Instructions, measured
            cross-entropy forward |  | 1.1 % | 1.0 % | 700 µs | 2.85 ms | 2 | 8
            embedding backward-input |  | 1.1 % | 1.1 % | 700 µs | 2.94 ms | 2 | 8
            embedding forward |  | 1.1 % | 1.1 % | 700 µs | 2.99 ms | 2 | 8
            add backward-input |  | 0.7 % | 0.7 % | 480 µs | 1.99 ms | 8 | 32
            add forward |  | 0.7 % | 0.7 % | 480 µs | 2.01 ms | 8 | 32
            activation backward-input |  | 0.5 % | 0.5 % | 360 µs | 1.49 ms | 4 | 16
            activation forward |  | 0.5 % | 0.6 % | 360 µs | 1.50 ms | 4 | 16
            The predicted critical path
            Waiting for | Against the longest | Time | Share
            linear forward on stage 0 |  | 52.0 ms | 76.5 %
            exchange pp to stage 1 |  | 4.00 ms | 5.9 %
            reduce-scatter tp |  | 9.00 ms | 13.2 %
            adamw |  | 3.00 ms | 4.4 %
        "#]],
    );
}

#[test]
fn training_in_words() {
    let fixture = Fixture::new(&SMALL);
    let few = Report { losses: &[5.55, 4.0, 2.31], step_times_s: &[0.3, 0.19, 0.19], ..fixture.report() };
    check(
        &few,
        "loss",
        expect![[r#"
        Training
        Over 3 steps the loss went from 5.550 to 2.310 nats per token (mean over the global batch, before each update).
        ↑ loss, nats per token
        step →
        Time of each step
        measured
        predicted, with its band
        ↑ step time
        step →
        Table: steps
        Steps
        Step | Loss | Step time, measured
        1 | 5.550 | 300 ms
        2 | 4.000 | 190 ms
        3 | 2.310 | 190 ms
        Predicted: 65.5 ms a step (band 53.7–78.6 ms).
    "#]],
    );
}

#[test]
fn candidates_grouped_by_reason() {
    check(
        &Fixture::new(&SMALL).report(),
        "candidates",
        expect![[r#"
            Candidates
            24 candidates enumerated, 3 cut by a rule or a bound, 21 block problems solved, 5 plans simulated. No plan of this space takes less than 52.4 ms.
            this plan
            feasible
            rejected
            Pareto front: none is faster with less memory
            memory limit
            ↑ step time, closed form
            peak memory of a rank →
            21 of 24 points have a price and are drawn, by the planner's closed form; the others were cut before. Those of more than 1.6 times the limit or 2.2 times this plan's step time lie beyond the edge.
            Runners-up, simulated, best first
            Mesh | Sequence-parallel | Micro-batch | Schedule | Optimizer state | Step time | Peak memory
            pp 2 × tp 2 | yes | 1 | 1F1B | none | 107 ms | 115 MiB
            tp 4 | yes | 1 | GPipe | none | 118 ms | 83.6 MiB
            pp 2 × tp 4 | yes | 2 | 1F1B | none | 124 ms | 123 MiB
            pp 4 | no | 1 | 1F1B | none | 127 ms | 115 MiB
            Table: the Pareto front
            Plans that none beats in both time and memory, fastest first
            Candidate | Step time, closed form | Peak memory
            pp 2 × tp 2, micro-batch 1, 1F1B, sequence-parallel | 102 ms | 115 MiB
            tp 4, micro-batch 1, GPipe, sequence-parallel | 113 ms | 83.6 MiB
            pp 2 × tp 4, micro-batch 1, 1F1B, sequence-parallel | 128 ms | 76.7 MiB
            pp 4 × tp 4, micro-batch 1, 1F1B, sequence-parallel | 160 ms | 65.7 MiB
            What it would take for rejected plans
            Short of memory: what would let them fit, the least first
            Candidate | It would take | Its step, then, against this plan
            tp 2, micro-batch 1, GPipe, sequence-parallel  | 8.76 MiB more memory a rank to fit, and 28.0 % off its step to win | +39 %
            tp 4, micro-batch 2, GPipe, sequence-parallel  | 11.2 MiB more memory a rank to fit, and 39.1 % off its step to win | +64 %
            pp 4 × tp 2, micro-batch 2, 1F1B, sequence-parallel  | 24.5 MiB more memory a rank to fit, and 49.5 % off its step to win | +98 %
            pp 2, micro-batch 1, 1F1B  | 30.7 MiB more memory a rank to fit, and 30.1 % off its step to win | +43 %
            one rank, micro-batch 1, GPipe  | 61.3 MiB more memory a rank to fit, and 15.2 % off its step to win | +18 %
            pp 2 × tp 2, micro-batch 2, 1F1B, sequence-parallel  | 61.3 MiB more memory a rank to fit, and 32.1 % off its step to win | +47 %
            pp 4, micro-batch 2, 1F1B  | 61.3 MiB more memory a rank to fit, and 43.5 % off its step to win | +77 %
            tp 2, micro-batch 2, GPipe, sequence-parallel  | 87.6 MiB more memory a rank to fit, and 18.1 % off its step to win | +22 %
            5 more meshes and micro-batches need at least as much.
            A rule is in the way of 3 candidates: no amount of memory or time helps those.
            Table: every reason for a rejection
            Rejected, and why
            Reason | Candidates | For instance
            memory: a rank would need more than the limit | 13 | one rank, micro-batch 1; one rank, micro-batch 2; tp 2, micro-batch 1
            tp 8 does not divide the 4 heads of `attn.core` | 3 | tp 8, micro-batch 1; pp 2 × tp 8, micro-batch 1; pp 4 × tp 8, micro-batch 1
            Table: candidates with a price
            Candidates with a price, in the order of enumeration
            Mesh | Micro-batch | Schedule | Step time, closed form | Peak memory | Rejected because
            one rank | 1 | GPipe | 73.4 ms | 184 MiB | memory: a rank would need more than the limit
            one rank | 2 | GPipe | 62.9 ms | 294 MiB | memory: a rank would need more than the limit
            tp 2 | 1 | GPipe | 86.5 ms | 131 MiB | memory: a rank would need more than the limit
            tp 2 | 2 | GPipe | 76.0 ms | 210 MiB | memory: a rank would need more than the limit
            tp 2 | 4 | GPipe | 70.8 ms | 368 MiB | memory: a rank would need more than the limit
            tp 4 | 1 | GPipe | 113 ms | 83.6 MiB |
            tp 4 | 2 | GPipe | 102 ms | 134 MiB | memory: a rank would need more than the limit
            pp 2 | 1 | 1F1B | 89.1 ms | 153 MiB | memory: a rank would need more than the limit
            pp 2 | 2 | 1F1B | 78.6 ms | 245 MiB | memory: a rank would need more than the limit
            pp 2 × tp 2 | 1 | 1F1B | 102 ms | 115 MiB |
            pp 2 × tp 2 | 2 | 1F1B | 91.7 ms | 184 MiB | memory: a rank would need more than the limit
            pp 2 × tp 2 | 4 | 1F1B | 86.5 ms | 322 MiB | memory: a rank would need more than the limit
            pp 2 × tp 4 | 1 | 1F1B | 128 ms | 76.7 MiB |
            pp 2 × tp 4 | 2 | 1F1B | 118 ms | 123 MiB |
            pp 4 | 1 | 1F1B | 121 ms | 115 MiB |
            pp 4 | 2 | 1F1B | 110 ms | 184 MiB | memory: a rank would need more than the limit
            pp 4 × tp 2 | 1 | 1F1B | 134 ms | 92.0 MiB |
            pp 4 × tp 2 | 2 | 1F1B | 123 ms | 147 MiB | memory: a rank would need more than the limit
            pp 4 × tp 2 | 4 | 1F1B | 118 ms | 258 MiB | memory: a rank would need more than the limit
            pp 4 × tp 4 | 1 | 1F1B | 160 ms | 65.7 MiB |
            pp 4 × tp 4 | 2 | 1F1B | 149 ms | 105 MiB |
        "#]],
    );
}

#[test]
fn reasons_and_command() {
    let fixture = Fixture::new(&SMALL);
    check(
        &fixture.report(),
        "why",
        expect![[r#"
        Why this plan
        tp 2 halves the weights of each rank; tp 4 would expose 31 ms of collectives a step
        micro-batch 2 keeps matrices above the knee of the efficiency curve
    "#]],
    );
    check(
        &fixture.report(),
        "assumptions",
        expect![[r#"
        Assumptions and sources
        What the prediction rests on
        12 measured runs of this cluster; the band holds 9 of 10 of them
        Assumptions about the model
        the position table is learnt, as in GPT-2
        Sources of the numbers of localhost
        Number | Source
        device.memory_bandwidth | measured by `meshwright profile`, median of 9
        device.peak.f32 | vendor data sheet, dense
    "#]],
    );
    check(
        &fixture.report(),
        "repeat",
        expect![[r#"
        Repeat it
        The same job and the same sources give the same bytes, whatever the thread count; measured figures vary with the machine.
        Command
        meshwright auto job.toml --ranks 4 --pin tp=2 -o report.html
        Copy command
        Pins
        Given to --pin, these lead a search back to this point.
        dp=2,tp=2,pp=1,sp=true,microbatch=2,schedule=1f1b,zero=0
        Copy pins
        Figures as JSON
        This page holds its figures as one JSON object, in the element #twin; meshwright report --json-twin FILE writes the same to a file.
        Copy JSON
        What the figures rest on
        What | Name | Hash (FNV-1a)
        model | gpt-nano | 8a1f3c5577e0d2b4
        cluster | localhost | 51c0ffee00d15ea5
        file | job.toml | 00112233aabbccdd
    "#]],
    );
}

#[test]
fn errors_by_kind_add_up() {
    check(
        &Fixture::new(&SMALL).report(),
        "errors",
        expect![[r#"
        Predicted against measured
        The traced step takes 68.5 ms, and 65.5 ms was predicted: −2.98 ms, or −4.3 %. The largest part of that is idle with −673 µs.
        predicted too short
        predicted too long
        idle −673 µs
        linear backward-input −541 µs
        linear backward-weight −475 µs
        linear forward −320 µs
        reduce-scatter tp −274 µs
        all-gather tp −218 µs
        all-reduce dp −90.0 µs
        embedding forward −59.0 µs
        adamw −54.0 µs
        norm forward −51.0 µs
        norm backward-input −49.0 µs
        add forward −30.0 µs
        Mean over 1 rank that both traces hold. Each instant of the step counts for what ran then: kernels before collectives before messages, or nothing. So the parts add up to the error of this step; the figure at the top is of the median step.
        Table: every kind, predicted and measured
        Predicted against measured, largest contribution first
        Kind | Adds to the error | Of the step, predicted | Of the step, measured | Instructions | Each, predicted | Each, measured | Error of each
        idle | −673 µs | 0 | 673 µs | – | – | – | –
        linear backward-input | −541 µs | 12.0 ms | 12.6 ms | 26 | 462 µs | 483 µs | −4.3 %
        linear backward-weight | −475 µs | 12.0 ms | 12.5 ms | 26 | 462 µs | 480 µs | −3.8 %
        linear forward | −320 µs | 12.0 ms | 12.3 ms | 26 | 462 µs | 474 µs | −2.6 %
        reduce-scatter tp | −274 µs | 4.80 ms | 5.07 ms | 20 | 240 µs | 254 µs | −5.4 %
        all-gather tp | −218 µs | 4.80 ms | 5.02 ms | 20 | 240 µs | 251 µs | −4.3 %
        all-reduce dp | −90.0 µs | 6.00 ms | 6.09 ms | 4 | 1.50 ms | 1.52 ms | −1.5 %
        embedding forward | −59.0 µs | 700 µs | 759 µs | 2 | 350 µs | 380 µs | −7.8 %
        adamw | −54.0 µs | 3.60 ms | 3.65 ms | 4 | 900 µs | 914 µs | −1.5 %
        norm forward | −51.0 µs | 900 µs | 951 µs | 10 | 90.0 µs | 95.1 µs | −5.4 %
        norm backward-input | −49.0 µs | 900 µs | 949 µs | 10 | 90.0 µs | 94.9 µs | −5.2 %
        add forward | −30.0 µs | 480 µs | 510 µs | 8 | 60.0 µs | 63.8 µs | −5.9 %
        attention backward-input | −30.0 µs | 2.00 ms | 2.03 ms | 4 | 500 µs | 508 µs | −1.5 %
        attention forward | −30.0 µs | 2.00 ms | 2.03 ms | 4 | 500 µs | 508 µs | −1.5 %
        add backward-input | −25.0 µs | 480 µs | 505 µs | 8 | 60.0 µs | 63.1 µs | −5.0 %
        cross-entropy forward | −24.0 µs | 700 µs | 724 µs | 2 | 350 µs | 362 µs | −3.3 %
        cross-entropy backward-input | −17.0 µs | 700 µs | 717 µs | 2 | 350 µs | 358 µs | −2.4 %
        activation backward-input | −8.00 µs | 360 µs | 368 µs | 4 | 90.0 µs | 92.0 µs | −2.2 %
        activation forward | −8.00 µs | 360 µs | 368 µs | 4 | 90.0 µs | 92.0 µs | −2.2 %
        embedding backward-input | −3.00 µs | 700 µs | 703 µs | 2 | 350 µs | 352 µs | −0.4 %
        “Each” is from start to end, waiting for other ranks included, also where something else hides it.
    "#]],
    );
}

#[test]
fn load_on_levels_and_axes() {
    check(
        &Fixture::new(&PIPELINE).report(),
        "load",
        expect![[r#"
        Load on the interconnect
        The busiest level is nvlink: a device sends 900 MiB over it in a step, which takes 31.0 % of the step at the bandwidth that large transfers reach.
        infiniband joins 2  15.5 % 56.2 MiB a device, for pp, dp
        nvlink joins 4  31.0 % 900 MiB a device, for tp
        Outermost level first. A bar is the share of the step in which a device's port is busy, one way; overlapped with kernels or not.
        Table: levels
        Interconnect and its load, innermost first
        Level | Joins | Bandwidth each way | Latency | Large transfers reach | Sent by a device | Busy share of the step
        nvlink | 4 | 450 GB/s | 2.00 µs | 82.0 % | 900 MiB | 31.0 %
        infiniband | 2 | 50.0 GB/s | 5.00 µs | 90.0 % | 56.2 MiB | 15.5 %
        What runs along the axes of the mesh, and on which level
        Axes | Levels crossed | Algorithm | Operations of a rank | Sent by a rank | Time under way | Of the step
        pp | infiniband | messages | 12 | 300 MiB | 2.10 ms | 1.2 %
        dp | infiniband | ring | 24 | 300 MiB | 2.10 ms | 1.2 %
        tp | nvlink | ring | 36 | 300 MiB | 2.10 ms | 1.2 %
        Of the stage where they take longest, once everyone has arrived: waiting for others is not counted, and what kernels hide is.
    "#]],
    );
}
