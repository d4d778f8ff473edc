//! When nothing fits, the change that is named is one that works: each is made, and then something fits.

use super::Workplace;
use super::transcripts::{check, masked, whole};
use expect_test::expect;

/// What is asked, what the answer names, and the same with that change made.
const CASES: [(&str, &str, &str); 7] = [
    (
        "--model llama3-70b --cluster h100-sxm --nodes 1 --sequence 4096 --global-batch 64",
        "use 3 nodes instead of 1",
        "--model llama3-70b --cluster h100-sxm --nodes 3 --sequence 4096 --global-batch 64",
    ),
    (
        "--model llama3-8b --cluster h100-sxm --ranks 1 --sequence 8192 --global-batch 64",
        "use 2 ranks instead of 1",
        "--model llama3-8b --cluster h100-sxm --ranks 2 --sequence 8192 --global-batch 64",
    ),
    (
        "--model gpt-nano --cluster localhost --ranks 7 --sequence 128 --global-batch 16",
        "use 8 ranks instead of 7",
        "--model gpt-nano --cluster localhost --ranks 8 --sequence 128 --global-batch 16",
    ),
    (
        "--model gpt-nano --cluster localhost --ranks 7 --sequence 128 --global-batch 16",
        "train on 14 sequences a step instead of 16",
        "--model gpt-nano --cluster localhost --ranks 7 --sequence 128 --global-batch 14",
    ),
    (
        "--model gpt-nano --cluster localhost --ranks 4 --sequence 64 --global-batch 16 --pin tp=2,pp=3",
        "drop the pin pp=3",
        "--model gpt-nano --cluster localhost --ranks 4 --sequence 64 --global-batch 16 --pin tp=2",
    ),
    (
        "--model gpt-nano --cluster localhost --ranks 4 --sequence 64 --global-batch 16 --pin tp>=3,tp<=2",
        "drop the pin tp>=3",
        "--model gpt-nano --cluster localhost --ranks 4 --sequence 64 --global-batch 16 --pin tp<=2",
    ),
    (
        "--model gpt-nano --cluster h100-sxm --nodes 1000 --sequence 128 --global-batch 64",
        "train on 8000 sequences a step instead of 64",
        "--model gpt-nano --cluster h100-sxm --nodes 1000 --sequence 128 --global-batch 8000 --top 1",
    ),
];

#[test]
fn the_smallest_change_makes_something_fit() {
    let w = Workplace::new();
    for (asked, named, changed) in CASES {
        let answer = w.json(&format!("plan {asked}"), 1);
        let change = answer["smallest_change"].as_str().unwrap();
        assert!(change.contains(named), "plan {asked}: {change}");
        w.json(&format!("plan {changed}"), 0);
    }
}

#[test]
fn this_machine_is_not_told_to_grow_nodes() {
    let w = Workplace::new();
    let answer =
        w.json("plan --model llama3-70b --cluster localhost --ranks 4 --sequence 64 --global-batch 4", 1);
    let change = answer["smallest_change"].as_str().unwrap();
    assert!(!change.contains("nodes") && change.contains("more memory"), "{change}");
}

#[test]
fn a_person_reads_what_is_in_the_way_and_what_would_fit() {
    let w = Workplace::new();
    let job = "plan --model gpt-nano --cluster localhost --ranks 7 --sequence 128 --global-batch 16";
    check(
        &w,
        job,
        whole,
        expect![[r#"
            No plan fits gpt-nano on 7 ranks of localhost.

              - none of 4 points of the space fits
              - batch: 2 points, such as: 16 samples do not divide among 7 replicas
              - heads: 1 point: 8 key heads do not divide by tp 7
              - stages: 1 point: 6 blocks do not fill pp 7

            What would fit:

              - use 8 ranks instead of 7 (tp=1 pp=2 dp=1 fsdp=4 micro-batch 1 zero-3)
              - train on 14 sequences a step instead of 16 (tp=1 pp=1 dp=1 fsdp=7 micro-batch 1 zero-3)
            --- exit 1
        "#]],
    );
    let job = "plan --model llama3-70b --cluster h100-sxm --nodes 1 --sequence 4096 --global-batch 64";
    check(
        &w,
        job,
        masked,
        expect![[r#"
            No plan fits llama#-#b on # ranks of h#-sxm.

              - none of # points of the space fits
              - closest: tp=# pp=# dp=# micro-batch #: memory: stage # needs # GiB of # GiB at micro-batch
              #
              - memory: # points

            What would fit:

              - use # nodes instead of # (# ranks, tp=# pp=# dp=# fsdp=# micro-batch # zero-#)
              - give each rank # GiB more memory (tp=# pp=# dp=# micro-batch #)
            --- exit 1
        "#]],
    );
}
