//! What the reader of programs says of bad lines.

use expect_test::{Expect, expect};
use meshwright_ir::Program;

const VALID: &str = "meshwright-program 1
mesh pp=1 tp=2

# comments and empty lines are allowed
step tokens=8 micro_batches=1
stream compute
kernel op forward f32 linear[input=4 output=8 input_grain=1 output_grain=1] b=1/- s=8/- i=4/- o=4/tp
collective all-reduce tp stages=* n=16 f32 ring
exchange +1 send=16 receive=- f32
name a%20;b
role 0 arena=1024 loss=- norm=-
buffer 0 f32 16 @0 weight
param w 4x4 (-,tp) normal=0.02 decays=true storage=- w=0 m=- g=0 s=-
k0 s0 mb=0 b=0 r=- w=0 a=-
";

/// Replaces the first occurrence of some text of a valid program and reads it.
fn check(from: &str, to: &str, expected: Expect) {
    assert!(VALID.contains(from), "{from}");
    let read = VALID.replacen(from, to, 1).parse::<Program>();
    expected.assert_eq(&read.map_or_else(|e| e.to_string(), |_| "read".into()));
}

#[test]
fn the_valid_program_is_read_as_it_stands() {
    let program: Program = VALID.parse().unwrap();
    assert_eq!(program.names, ["a b"]);
    expect![[r#"
        meshwright-program 1
        mesh pp=1 dp=1 fsdp=1 cp=1 tp=2
        step tokens=8 micro_batches=1
        stream compute
        kernel op forward f32 linear[input=4 output=8 input_grain=1 output_grain=1] b=1/- s=8/- i=4/- o=4/tp
        collective all-reduce tp stages=* n=16 f32 ring
        exchange +1 send=16 receive=- f32
        name a%20;b
        role 0 arena=1024 loss=- norm=-
        buffer 0 f32 16 @0 weight
        param w 4x4 (-,tp) normal=0.02 decays=true storage=- w=0 m=- g=0 s=-
        k0 s0 mb=0 b=0 r=- w=0 a=-
    "#]]
    .assert_eq(&program.to_string());
}

#[test]
fn errors_name_the_line_and_the_word() {
    check("meshwright-program 1\n", "", expect!["line 1: a program starts with `meshwright-program 1`"]);
    check("program 1", "program 2", expect!["line 1: version 2; this program reads version 1"]);
    check("tp=2", "tp=0", expect!["line 2: mesh.tp: a degree of 0; write 1 for an axis that is not used"]);
    check("tp=2", "xp=2", expect!["line 2: `xp` is no mesh axis (pp, dp, fsdp, cp, tp)"]);
    check("mesh pp=1 tp=2\n", "", expect!["line 13: there is no `mesh` line"]);
    check("step tokens=8 micro_batches=1\n", "", expect!["line 13: there is no `step` line"]);
    check("tokens=8", "tokens=-8", expect!["line 5: `-8` is no number for tokens"]);
    check("micro_batches=1", "", expect!["line 5: micro_batches is missing"]);
    check("stream compute", "stream computer", expect!["line 6: `computer` is no stream"]);
    check("stream compute", "stream link x", expect!["line 6: `x` is no offset"]);
    check("op forward", "op sideways", expect!["line 7: `sideways` is no pass"]);
    check(
        "linear[",
        "linear(",
        expect!["line 7: `linear(input=4 output=8 input_grain=1 output_grain=1]` is no op"],
    );
    check("linear[input=4", "linear[inputs=4", expect!["line 7: op linear lacks `input`"]);
    check("o=4/tp", "o=4", expect!["line 7: `4` should be extent/axes"]);
    check("o=4/tp", "o=4/tp x", expect!["line 7: `x` is one word too many"]);
    check("all-reduce tp", "all-shrink tp", expect!["line 8: `all-shrink` is no collective"]);
    check("stages=*", "stages=0;1", expect!["line 8: `0;1` is no position"]);
    check("ring", "rings", expect!["line 8: `rings` is no algorithm"]);
    check("n=16 f32", "n=16 f33", expect!["line 8: `f33` is no element type"]);
    check("receive=-", "receive=+", expect!["line 9: `+` is no number for receive"]);
    check("a%20;b", "a%20b", expect!["line 10: `a%20b` has a bad escape"]);
    check("a%20;b", "a%d800;b", expect!["line 10: `a%d800;b` has a bad escape"]);
    check("role 0", "role 1", expect!["line 11: role 1 should be role 0"]);
    check("role 0 arena=1024 loss=- norm=-\n", "", expect!["line 11: stands before the first role"]);
    check("@0 weight", "0 weight", expect!["line 12: `0` is no offset"]);
    check("@0 weight", "@0 height", expect!["line 12: `height` is no class of buffer"]);
    check("4x4", "4x", expect!["line 13: `4x` is no shape"]);
    check("(-,tp)", "(tp,tp)", expect!["line 13: `(tp,tp)` is no layout"]);
    check("normal=0.02", "normal=inf", expect!["line 13: `normal=inf` is no start"]);
    check("k0 s0", "q0 s0", expect!["line 14: `q0` begins no line of a program"]);
    check("k0 s0", "k s0", expect!["line 14: `k` begins no line of a program"]);
    check("k0 s0", "k0 0", expect!["line 14: `0` is no stream"]);
    check("mb=0", "mb=65536", expect!["line 14: `65536` is no number for mb"]);
    check("r=- w=0 a=-", "w=0 r=- a=-", expect!["line 14: `w=0` should be `r=…`"]);
    check("r=- w=0 a=-", "r=-1 w=0 a=-", expect!["line 14: `-1` is no position"]);
    check("a=-\n", "a=- b=1\n", expect!["line 14: `b=1` is one word too many"]);
}

#[test]
fn sizes_beyond_any_memory_are_refused() {
    check("f32 16 @0", "f32 1125899906842625 @0", expect!["line 12: a size or offset beyond any memory"]);
    check("f32 16 @0", "f32 16 @9999999999999999999", expect!["line 12: a size or offset beyond any memory"]);
    check(
        "arena=1024",
        "arena=18446744073709551615",
        expect!["line 11: an arena of 18446744073709551615 bytes is beyond any memory"],
    );
    check(
        "n=16",
        "n=18446744073709551615",
        expect!["line 8: 18446744073709551615 elements are more than any memory holds"],
    );
    check(
        "send=16",
        "send=18446744073709551615",
        expect!["line 9: 18446744073709551615 elements are more than any memory holds"],
    );
    check(
        "s=8/-",
        "s=18446744073709551615/-",
        expect!["line 7: 18446744073709551615 elements are more than any memory holds"],
    );
    check(
        "input=4 ",
        "input=18446744073709551615 ",
        expect![
            "line 7: kernel `op forward f32 linear[input=18446744073709551615 output=8 input_grain=1 output_grain=1] b=1/- s=8/- i=4/- o=4/tp`: input: 18446744073709551615; write a whole number from 1 to 4,294,967,296"
        ],
    );
    check(
        "4x4",
        "4294967296x4294967296",
        expect!["line 13: 4294967296x4294967296 elements are more than any memory holds"],
    );
    check(
        "tp=2",
        "tp=16777217",
        expect!["line 2: mesh: more than 16,777,216 ranks; lower one of the degrees"],
    );
    check(
        "tokens=8",
        "tokens=18446744073709551616",
        expect!["line 5: `18446744073709551616` is no number for tokens"],
    );
}
