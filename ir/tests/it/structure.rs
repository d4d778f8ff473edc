//! What the checker asks of a program's form, before it looks at memory and progress.

use crate::checker::{check, stage, verdict};
use expect_test::expect;

#[test]
fn instructions_are_well_formed() {
    let lines = [
        "k0 s6 mb=0 b=0 r=- w=- a=-",
        "k0 s1 mb=0 b=0 r=- w=- a=-",
        "c0 s0 mb=0 b=0 r=0 w=0 a=-",
        "c0 s2 mb=0 b=0 r=0 w=0 a=-",
        "x0 s5 mb=0 b=0 r=0 w=- a=-",
        "k1 s0 mb=0 b=0 r=- w=- a=-",
        "c5 s1 mb=0 b=0 r=0 w=0 a=-",
        "x6 s4 mb=0 b=0 r=0 w=- a=-",
        "k0 s0 mb=0 b=0 r=2 w=- a=-",
        "k0 s0 mb=0 b=0 r=- w=2 a=-",
        "k0 s0 mb=0 b=0 r=- w=- a=1",
        "k0 s0 mb=0 b=0 r=- w=- a=2",
        "k0 s0 mb=2 b=0 r=- w=- a=-",
        "c0 s1 mb=0 b=0 r=1 w=1 a=0",
        "c0 s1 mb=0 b=0 r=1 w=0 a=0",
        "c0 s1 mb=0 b=0 r=0 w=- a=0",
        "x0 s4 mb=0 b=0 r=1 w=- a=0",
        "x0 s4 mb=0 b=0 r=0 w=1 a=0",
        "x4 s4 mb=0 b=0 r=0 w=0 a=0",
        "k0 s0 mb=0 b=0 r=0,0 w=0 a=-",
        "k0 s0 mb=0 b=0 r=- w=0,0 a=-",
    ];
    let fault = |line: &&str| {
        let written = "buffer 0 f32 16 @0 workspace
             buffer 1 f32 8 @64 workspace
             k0 s0 mb=0 b=0 r=- w=0,1 a=-\n";
        let fault = verdict(&stage("-", &format!("{written} {line}")));
        format!("{line} | {}\n", fault.strip_prefix("role 0, instruction 1: malformed: ").unwrap_or(&fault))
    };
    expect![[r#"
        k0 s6 mb=0 b=0 r=- w=- a=- | stream 6 does not exist
        k0 s1 mb=0 b=0 r=- w=- a=- | lies on a stream of another kind: collective tp
        c0 s0 mb=0 b=0 r=0 w=0 a=- | lies on a stream of another kind: compute
        c0 s2 mb=0 b=0 r=0 w=0 a=- | lies on a stream of another kind: collective pp
        x0 s5 mb=0 b=0 r=0 w=- a=- | lies on a stream of another kind: link -1
        k1 s0 mb=0 b=0 r=- w=- a=- | its action does not exist
        c5 s1 mb=0 b=0 r=0 w=0 a=- | its action does not exist
        x6 s4 mb=0 b=0 r=0 w=- a=- | its action does not exist
        k0 s0 mb=0 b=0 r=2 w=- a=- | names a buffer that does not exist
        k0 s0 mb=0 b=0 r=- w=2 a=- | names a buffer that does not exist
        k0 s0 mb=0 b=0 r=- w=- a=1 | waits for instruction 1, which is not earlier
        k0 s0 mb=0 b=0 r=- w=- a=2 | waits for instruction 2, which is not earlier
        k0 s0 mb=2 b=0 r=- w=- a=- | micro-batch 2 of 2
        c0 s1 mb=0 b=0 r=1 w=1 a=0 | has operands of another size
        c0 s1 mb=0 b=0 r=1 w=0 a=0 | has operands of another size
        c0 s1 mb=0 b=0 r=0 w=- a=0 | has operands of another size
        x0 s4 mb=0 b=0 r=1 w=- a=0 | has operands of another size
        x0 s4 mb=0 b=0 r=0 w=1 a=0 | has operands of another size
        x4 s4 mb=0 b=0 r=0 w=0 a=0 | takes one buffer for two operands
        k0 s0 mb=0 b=0 r=0,0 w=0 a=- | sound
        k0 s0 mb=0 b=0 r=- w=0,0 a=- | takes one buffer for two operands
    "#]]
    .assert_eq(&lines.iter().map(fault).collect::<String>());
}

/// Collectives of 16 elements on groups of two: which operands each kind takes. Buffers 0 and 2 hold 16, 1 and 3 hold 8.
#[test]
fn collectives_have_operands_of_their_sizes() {
    let mut table = String::new();
    for kind in ["all-reduce", "all-gather", "reduce-scatter", "all-to-all"] {
        for (reads, writes) in
            [("0", "0"), ("0", "2"), ("0", "1"), ("1", "0"), ("1,3", "1,3"), ("1,3", "3,1"), ("1,3", "0")]
        {
            let lines = format!(
                "buffer 0 f32 16 @0 workspace
                 buffer 1 f32 8 @64 workspace
                 buffer 0 f32 16 @128 workspace
                 buffer 1 f32 8 @96 workspace
                 k0 s0 mb=0 b=0 r=- w=0,1,2,3 a=-
                 c0 s1 mb=0 b=0 r={reads} w={writes} a=0"
            );
            let text =
                stage("-", &lines).replacen("collective all-reduce tp", &format!("collective {kind} tp"), 1);
            if verdict(&text) == "sound" {
                table += &format!("{kind}: {reads} -> {writes}\n");
            }
        }
    }
    expect![[r#"
        all-reduce: 0 -> 0
        all-reduce: 0 -> 2
        all-reduce: 1,3 -> 1,3
        all-gather: 0 -> 0
        all-gather: 1 -> 0
        all-gather: 1,3 -> 1,3
        reduce-scatter: 0 -> 0
        reduce-scatter: 0 -> 1
        reduce-scatter: 1,3 -> 1,3
        all-to-all: 0 -> 2
    "#]]
    .assert_eq(&table);
}

#[test]
fn roles_are_well_formed() {
    let param = |shape: &str, layout: &str, weight: u32| {
        let lines = format!(
            "buffer 0 f32 16 @0 weight\n param w {shape} {layout} ones decays=true storage=- w={weight} m=- g=0 s=-"
        );
        stage("-", &lines)
    };
    expect!["sound"].assert_eq(&verdict(&param("4x8", "(-,tp)", 0)));
    expect!["role 0: malformed: buffer 0 does not hold a rank's piece of parameter w"]
        .assert_eq(&verdict(&param("4x8", "(-,-)", 0)));
    expect!["role 0: malformed: buffer 0 does not hold a rank's piece of parameter w"]
        .assert_eq(&verdict(&param("16x1", "(-,tp)", 0)));
    expect!["role 0: malformed: buffer 0 does not hold a rank's piece of parameter w"]
        .assert_eq(&verdict(&param("4x8", "(tp)", 0)));
    expect!["role 0: malformed: parameter w names a buffer that does not exist"]
        .assert_eq(&verdict(&param("4x8", "(-,tp)", 1)));
    expect!["role 0: malformed: a loss, norm or name that does not exist"]
        .assert_eq(&verdict(&stage("0", "")));
    check(2, "role 0 arena=0 loss=- norm=-", expect!["role 0: malformed: 1 roles for 2 stages"]);
}

#[test]
fn the_loss_is_there_at_the_end() {
    let buffers = "buffer 0 f32 16 @0 scalar
         buffer 1 f32 16 @0 workspace\n";
    let (write_loss, write_over) = ("k0 s0 mb=0 b=0 r=- w=0 a=-", "k0 s0 mb=0 b=0 r=- w=1 a=-");
    expect!["role 0: use before write: leaves buffer 0 (x), which nothing has written"]
        .assert_eq(&verdict(&stage("0", buffers)));
    expect!["sound"].assert_eq(&verdict(&stage("0", &format!("{buffers} {write_loss}"))));
    expect!["role 0: use after free: leaves buffer 0 (x), whose memory another buffer has taken"]
        .assert_eq(&verdict(&stage("0", &format!("{buffers} {write_loss}\n {write_over}"))));
}

#[test]
fn tables_fit_the_mesh() {
    let edits = [
        ("pp stages=*", "pp stages=0,1"),
        ("pp stages=*", "pp stages=1,0"),
        ("pp stages=*", "pp stages=0,2"),
        ("pp stages=*", "pp stages=-"),
        ("tp stages=*", "tp stages=0"),
        ("exchange +1", "exchange +2"),
        ("exchange +1", "exchange -2147483648"),
        ("exchange +1", "exchange 0"),
        ("tokens=8", "tokens=0"),
    ];
    let fault =
        |(from, to): &(&str, &str)| format!("{to} | {}\n", verdict(&stage("-", "").replacen(from, to, 1)));
    expect![[r#"
        pp stages=0,1 | sound
        pp stages=1,0 | role 0: malformed: a collective over pp of stages [1, 0], of 2
        pp stages=0,2 | role 0: malformed: a collective over pp of stages [0, 2], of 2
        pp stages=- | role 0: malformed: a collective over pp of stages [], of 2
        tp stages=0 | role 0: malformed: a collective over tp of stages [0], of 2
        exchange +2 | role 0: malformed: an exchange with the stage +2 away, of 2
        exchange -2147483648 | role 0: malformed: an exchange with the stage -2147483648 away, of 2
        exchange 0 | role 0: malformed: an exchange with the stage +0 away, of 2
        tokens=0 | role 0: malformed: 6 streams and 0 tokens
    "#]]
    .assert_eq(&edits.iter().map(fault).collect::<String>());
}
