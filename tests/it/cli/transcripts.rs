//! What a person sees: each subcommand, its tables, its messages. Numbers that follow from measurements, prices or the
//! planner's choices are masked; their right values are other tests' business.

use super::{PLAN, Workplace};
use expect_test::{Expect, expect};

/// Command, what it printed, exit code.
pub(super) fn check(w: &Workplace, arguments: &str, mask: fn(&str) -> String, expected: Expect) {
    let ran = w.run(arguments);
    let widest = ran.out.lines().map(|l| l.chars().count()).max().unwrap_or(0);
    assert!(widest <= 100 || ran.out.starts_with(['{', 'm']), "meshwright {arguments}: {widest} columns");
    let err = if ran.err.is_empty() { String::new() } else { format!("--- stderr\n{}", mask(&ran.err)) };
    expected.assert_eq(&format!("{}{err}--- exit {}\n", mask(&ran.out), ran.code));
}

pub(super) fn whole(text: &str) -> String {
    text.to_string()
}

/// Numbers become `#`, columns two spaces.
pub(super) fn masked(text: &str) -> String {
    let mut shown = String::new();
    let mut number = false;
    // A hash is no number, and no one's to know.
    let hash = |word: &str| word.len() == 16 && word.bytes().all(|b| b.is_ascii_hexdigit());
    let words = text.split_inclusive(char::is_whitespace);
    let text: String =
        words.map(|w| if hash(w.trim()) { w.replace(w.trim(), "#") } else { w.into() }).collect();
    for c in text.chars() {
        let digit = c.is_ascii_digit() || (number && matches!(c, '.' | ','));
        if digit && !number {
            shown.push('#');
        } else if !digit {
            shown.push(c);
        }
        number = digit;
    }
    let shown = shown.replace("(-#", "(±#").replace("(+#", "(±#");
    let column = |line: &str| {
        let (indent, rest) = line.split_at(line.len() - line.trim_start().len());
        let words: Vec<&str> = rest.split("  ").map(str::trim).filter(|w| !w.is_empty()).collect();
        format!("{}{}\n", if indent.is_empty() { "" } else { "  " }, words.join("  "))
    };
    shown.lines().map(column).collect()
}

/// What comes before the list of what took longest.
fn top(text: &str) -> String {
    masked(text).lines().take(11).map(|l| format!("{l}\n")).collect()
}

/// The first lines.
fn head(text: &str) -> String {
    text.lines().take(3).map(|l| format!("{l}\n")).collect()
}

#[test]
fn model() {
    let w = Workplace::new();
    check(
        &w,
        "model gpt-nano",
        whole,
        expect![[r#"
            gpt-nano (gpt2)

              block  parameters  times
              embed     196,608      1
              layer     789,760      4
              head          512      1
              all     3,356,160

              embedding     196,608 parameters
              activations   34,444 bytes a token, 16-bit, nothing recomputed
              keys, values  2,048 elements a token

            FLOPs a token at sequence 512
              8.52 MFLOP forward, 25.6 MFLOP training  2 per matrix weight used and token, dense attention;
                                                       training is 3 x forward (PaLM appendix B)
              8.55 MFLOP forward, 25.6 MFLOP training  2 per active parameter but tables only looked up, dense
                                                       attention within windows; training is 3 x forward
                                                       (torchtitan)
              7.47 MFLOP forward, 22.4 MFLOP training  2 per matrix weight used and token, attention only where
                                                       the mask lets it; training is 3 x forward
              7.47 MFLOP forward, 22.9 MFLOP training  as executed: masked attention, whose backward makes the
                                                       scores again and costs 2.5 x its forward
            --- exit 0
        "#]],
    );
    check(
        &w,
        "model repository/examples/llama3-70b/config.json --sequence 8192",
        whole,
        expect![[r#"
            llama3-70b (llama)

              block      parameters  times
              embed   1,050,673,152      1
              layer     855,654,400     80
              head    1,050,681,344      1
              all    70,553,706,496

              embedding     1,050,673,152 parameters
              activations   22,264,332 bytes a token, 16-bit, nothing recomputed
              keys, values  163,840 elements a token

            FLOPs a token at sequence 8192
              160 GFLOP forward, 481 GFLOP training  2 per matrix weight used and token, dense attention;
                                                     training is 3 x forward (PaLM appendix B)
              160 GFLOP forward, 481 GFLOP training  2 per active parameter but tables only looked up, dense
                                                     attention within windows; training is 3 x forward
                                                     (torchtitan)
              150 GFLOP forward, 449 GFLOP training  2 per matrix weight used and token, attention only where
                                                     the mask lets it; training is 3 x forward
              150 GFLOP forward, 455 GFLOP training  as executed: masked attention, whose backward makes the
                                                     scores again and costs 2.5 x its forward
            --- exit 0
        "#]],
    );
    check(
        &w,
        "model gpt-nano --sequence 513",
        whole,
        expect![[r#"
        --- stderr
          × --sequence 513: gpt-nano has positions for 512 tokens
          help: write at most 512

        --- exit 2
    "#]],
    );
    check(
        &w,
        "model llama3-7b",
        whole,
        expect![[r#"
        --- stderr
          × llama3-7b: model.source: no such file and no such preset
          help: did you mean `llama3-8b`? name a config.json, a model TOML, or a preset: gpt-nano, gpt2-124m, qwen3-0.6b, llama3-8b, llama3-70b, gpt3-175b, llama3.1-405b

        --- exit 2
    "#]],
    );
}

#[test]
fn cluster() {
    let w = Workplace::new();
    check(
        &w,
        "cluster h100-sxm --nodes 2",
        whole,
        expect![[r#"
            h100-sxm

              memory            80.0 GiB a device, 2.00 GiB reserved by the runtime
              devices           16 x H100-SXM5-80GB on 2 nodes
              compute           67.0 TFLOP/s f32, 989 TFLOP/s bf16, 989 TFLOP/s f16, 1.98 PFLOP/s f8
              memory bandwidth  3.35 TB/s
              launch            4.00 µs

              level       size  bandwidth  latency
              nvlink         8   450 GB/s  1.87 µs
              infiniband     2  50.0 GB/s  5.20 µs

            not measured:
              device.curves.attention           a guess after FlashAttention-2 on this GPU; fraction of the FLOP
                                                really done, half of a full square for causal attention
              device.curves.attention-backward  a guess: 0.8 of forward, the ratio of SimuMax's A100 measurement
                                                (0.802 / 1.015)
              device.curves.matmul              shape: NeuSight H100 FP32 GEMM medians .21 .44 .62 .74 .76 per
                                                decade of FLOP, x scaled by 989.4/66.9, y to a plateau of 0.72;
                                                the plateau and the first point (a floor of some 5 us) are
                                                guesses
              device.host.collective            a guess: small all_reduces take 13 to 20 us over 8 GPUs (dgxc),
                                                larger ones start later
              device.host.dispatch              a guess: as for a100-sxm-80, on a faster host
              device.host.step                  a guess
              device.launch                     a guess: a few microseconds per kernel from a framework's eager
                                                queue
              device.reserved                   a guess: 361 MiB as above, about 0.5 GiB of CUDA context, the
                                                rest communicator buffers and library workspaces
            --- exit 0
        "#]],
    );
    check(
        &w,
        "cluster pair.toml -o copy.toml",
        whole,
        expect![[r#"
        pair

          memory            8.00 GiB a device, 64.0 MiB reserved by the runtime
          devices           1 x Test CPU on 1 node
          compute           50.0 GFLOP/s f32
          memory bandwidth  20.0 GB/s
          launch            1.00 µs
          ranks             4 share each device

          level   size  bandwidth  latency
          memory     1  8.00 GB/s  4.00 µs
        --- stderr
        written: copy.toml
        --- exit 0
    "#]],
    );
    check(
        &w,
        "cluster localhost --ranks 4 -q",
        masked,
        expect![[r#"
        localhost

          memory  # GiB a device, # MiB reserved by the runtime
          devices  # x Test CPU on # node
          compute  # GFLOP/s f#
          memory bandwidth  # GB/s
          launch  # µs
          ranks  # share each device

          level  size  bandwidth  latency
          memory  #  # GB/s  # µs

        not measured:
          device.reserved  a guess: # MiB per rank
        --- exit 0
    "#]],
    );
    check(
        &w,
        "cluster h100-sxm --from nvidia-smi-topo topo.txt",
        whole,
        expect![[r#"
        --- stderr
          × cluster --from nvidia-smi-topo is not built yet
          help: write the cluster as TOML; `meshwright cluster h100-sxm -o c.toml` gives a start

        --- exit 2
    "#]],
    );
}

#[test]
fn from_plan_to_report() {
    let w = Workplace::new();
    check(
        &w,
        &format!("{PLAN} --pin tp=2,pp=2,schedule=gpipe --top 2 -o plan.json"),
        masked,
        expect![[r#"
            gpt-nano on # ranks of pair: pp # · tp # · sp, micro-batch # × # gpipe

              stage  peak memory  to spare  blocks
              #  # MiB  # GiB  embed … layer.#
              #  # MiB  # GiB  layer.# … head

              fullest stage  #: fits with # GiB to spare; the runtime's own # MiB, optimizer moments #
              MiB, activations # MiB, weights # MiB, gradients # MiB, workspace # KiB,
              boundary # KiB
              step time  # ms  (# ms – # ms)
              recompute  none
              throughput  # tokens/s
              MFU  # %
              lower bound  # ms  (gap # %)
              basis  rates as the cluster's file states them, not calibrated; the width of the band is a
              guess
              search  # candidates, # block problems, # simulated

              next best  step  peak memory
              pp # · tp # micro-batch # gpipe  # ms  # MiB

              why this plan
              - the fastest of the # plans simulated: the next takes # % longer
              - # plans fit, of # points of the space
              - closed form # ms: kernels # ms (# %), exposed communication # µs (# %), bubble # ms
              (# %), gradients # ps (# %), update # ms (# %)
              - peak memory # MiB of # GiB, on stage #
              - no plan of this space simulates faster than # ms: this one takes # times that
              - sp true → false: step +# %, kernels +# %, communication +# %, bubble +# %, memory +#
              KiB
              - micro-batch # → #: step +# %, kernels -# %, communication +# %, bubble +# %, memory +#
              KiB
              - micro-batch # → # sp true → false: step +# %, kernels -# %, communication +# %, bubble
              +# %, memory +# KiB
            --- stderr
            written: plan.json
            --- exit 0
        "#]],
    );
    check(
        &w,
        "lower plan.json",
        head,
        expect![[r#"
            meshwright-program 1
            mesh pp=2 dp=1 fsdp=1 cp=1 tp=2
            step tokens=256 micro_batches=8
            --- exit 0
        "#]],
    );
    check(
        &w,
        "lower plan.json -o step.program -q",
        masked,
        expect![[r#"
          stage  instructions  buffers  planned peak
          #  #  #  # MiB
          #  #  #  # MiB
        --- exit 0
    "#]],
    );
    check(
        &w,
        "simulate plan.json -q",
        top,
        expect![[r#"
              stage  peak memory  to spare
              #  # MiB  # GiB
              #  # MiB  # GiB

              step time  # ms
              throughput  # tokens/s
              bubble  # %
              exposed communication  # %
              instructions  #

              critical path  time
            --- exit 0
        "#]],
    );
    check(
        &w,
        "simulate step.program",
        whole,
        expect![[r#"
        --- stderr
          × step.program is a program, which names no cluster
          help: pass --cluster (and --nodes), or give a plan instead

        --- exit 2
    "#]],
    );
    check(
        &w,
        "run plan.json --data repository/README.md --steps 1",
        masked,
        expect![[r#"
              peak memory  # MiB, # MiB of buffers measured, # MiB, # MiB planned, a rank by stage
              step time  # ms measured, # ms predicted (±# %)
              loss  # → # nats a token in # step
              weights  #
            --- exit 0
        "#]],
    );
    check(
        &w,
        "report plan.json -o report.html",
        whole,
        expect![[r#"
          report: report.html
        --- exit 0
    "#]],
    );
}

#[test]
fn auto() {
    let w = Workplace::new();
    let job = "auto repository/examples/quickstart.toml --steps 1 --sequence 16 --pin dp=4,microbatch=4";
    check(
        &w,
        job,
        masked,
        expect![[r#"
            gpt-nano on # ranks of localhost: dp # micro-batch # × # #f#b, zero-#

              stage  peak memory  to spare  blocks
              #  # MiB  # GiB  embed … head

              fullest stage  #: fits with # GiB to spare; the runtime's own # MiB, weights # MiB,
              gradients # MiB, optimizer moments # MiB, activations # MiB, workspace #
              KiB
              step time  # ms  (# ms – # ms)
              recompute  none
              throughput  # tokens/s
              MFU  # %
              lower bound  # ms  (gap # %)
              basis  kernels and links measured on this machine; the width of the band is a guess
              search  # candidates, # block problems, # simulated

              next best  step  peak memory
              dp # micro-batch # #f#b, zero-#  # ms  # MiB
              dp # micro-batch # #f#b  # ms  # MiB

              peak memory  # MiB of buffers measured, # MiB planned, a rank by stage
              step time  # ms measured, # ms predicted (±# %)
              loss  # → # nats a token in # step
              weights  #

              report: meshwright-report.html
            --- stderr
            planned: gpt-nano on # ranks of localhost: dp # micro-batch # × # #f#b, zero-#
            --- exit 0
        "#]],
    );
}

#[test]
fn what_is_not_built_says_so() {
    let w = Workplace::new();
    for command in ["profile", "check c.yaml --json", "export plan.json"] {
        let ran = w.run(command);
        assert_eq!(ran.code, 2, "{command}");
        assert!(ran.err.contains("is not built yet"), "{command}: {}", ran.err);
    }
    check(
        &w,
        "export plan.json",
        whole,
        expect![[r#"
        --- stderr
          × `meshwright export` is not built yet (given: plan.json)
          help: see `meshwright --help` for what is

        --- exit 2
    "#]],
    );
}

/// The contest's worked example.
const SHARDING: &str = r#"{"problem": {"name": "example", "nodes": {
    "intervals": [[30, 70], [40, 70], [50, 120], [110, 140], [110, 150]],
    "costs": [[15], [55, 65], [25, 45, 35], [85, 75], [95]],
    "usages": [[10], [25, 25], [15, 20, 15], [10, 10], [15]]}, "edges": {
    "nodes": [[0, 1], [0, 2], [1, 3], [2, 4], [3, 4]],
    "costs": [[30, 40], [50, 10, 40], [90, 10, 20, 80], [60, 20, 30], [70, 60]]}, "usage_limit": 50}}"#;

/// The time it took is not the test's.
fn timeless(text: &str) -> String {
    text.lines().filter(|l| !l.contains("seconds")).map(|l| format!("{l}\n")).collect()
}

#[test]
fn shard() {
    let w = Workplace::new();
    w.give("example.json", SHARDING);
    check(
        &w,
        "shard example.json 5",
        timeless,
        expect![[r#"
        example

          problem         5 nodes, 5 edges
          after presolve  0 nodes, 0 edges, 0 memory rows
          verdict         optimal
          cost            445
          lower bound     445
          memory          50 of 50 at the peak

        [0, 0, 2, 1, 0]
        --- exit 0
    "#]],
    );
    check(
        &w,
        "shard example.json 5 --json",
        timeless,
        expect![[r#"
        {
          "cost": 445,
          "feasible": true,
          "lower_bound": 445,
          "gap": 0.0,
          "solution": [
            0,
            0,
            2,
            1,
            0
          ]
        }
        --- exit 0
    "#]],
    );
    w.give("tight.json", SHARDING.replace("\"usage_limit\": 50", "\"usage_limit\": 49"));
    check(
        &w,
        "shard tight.json 5",
        timeless,
        expect![[r#"
        example

          problem         5 nodes, 5 edges
          after presolve  0 nodes, 0 edges, 0 memory rows
          verdict         no solution: memory row 0 holds at least 1 more than the limit of 49
          cost            475
          lower bound     none
          memory          50 of 49 at the peak

        [0, 0, 0, 1, 0]
        --- exit 1
    "#]],
    );
    w.give("broken.json", SHARDING.replace("[55, 65]", "[55]"));
    check(
        &w,
        "shard broken.json 5",
        whole,
        expect![[r#"
        --- stderr
          × broken.json: problem.nodes.usages[1] has 2 numbers for 1 costs
          help: give each strategy one of each

        --- exit 2
    "#]],
    );
    check(
        &w,
        "shard example.json 0",
        whole,
        expect![[r#"
        --- stderr
          × SECONDS is 0: no limit to work within
          help: give seconds above 0, such as 60

        --- exit 2
    "#]],
    );
    check(
        &w,
        "shard nowhere.json 5",
        whole,
        expect![[r#"
        --- stderr
          × nowhere.json: No such file or directory (os error 2)
          help: name a file that exists

        --- exit 2
    "#]],
    );
}
