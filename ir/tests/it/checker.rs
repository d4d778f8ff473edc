//! The checker as a function from text to text: small programs in, the first fault out.

use expect_test::{Expect, expect};
use meshwright_ir::Program;

/// Two tensor ranks on each of `stages` stages; every buffer holds 16 numbers, 64 bytes.
fn program(stages: u32, roles: &str) -> String {
    format!(
        "meshwright-program 1
         mesh pp={stages} tp=2
         step tokens=8 micro_batches=2
         stream compute
         stream collective tp
         stream collective pp
         stream collective pp.tp
         stream link +1
         stream link -1
         kernel add f32 n=16
         collective all-reduce tp stages=* n=16 f32 ring
         collective all-reduce pp stages=* n=16 f32 ring
         collective all-reduce pp.tp stages=* n=16 f32 ring
         collective all-reduce-max pp stages=* n=16 f32 ring
         collective all-reduce pp.tp stages=* n=4 f32 ring
         exchange +1 send=16 receive=- f32
         exchange -1 send=- receive=16 f32
         exchange -1 send=16 receive=- f32
         exchange +1 send=- receive=16 f32
         exchange +1 send=16 receive=16 f32
         exchange -1 send=16 receive=16 f32
         name x
         name y
         {roles}"
    )
}

pub(crate) fn verdict(text: &str) -> String {
    let program: Program = text.parse().unwrap();
    program.check().map_or_else(|fault| fault.to_string(), |_| "sound".into())
}

pub(crate) fn check(stages: u32, roles: &str, expected: Expect) {
    expected.assert_eq(&verdict(&program(stages, roles)));
}

#[test]
fn a_message_has_two_ends() {
    let sender = "role 0 arena=1024 loss=- norm=-
        buffer 0 f32 16 @0 workspace
        k0 s0 mb=0 b=0 r=- w=0 a=-
        x0 s4 mb=0 b=0 r=0 w=- a=0
        role 1 arena=1024 loss=- norm=-
        buffer 0 f32 16 @0 workspace\n";
    check(2, &format!("{sender} x1 s5 mb=0 b=0 r=- w=0 a=-"), expect!["sound"]);
    check(
        2,
        &format!("{sender} x1 s5 mb=0 b=0 r=- w=0 a=-\n x1 s5 mb=0 b=0 r=- w=0 a=-"),
        expect![
            "role 1, instruction 1: unmatched message: stage 0 sends 1 messages to stage 1, which receives 2"
        ],
    );
    check(
        2,
        sender,
        expect![
            "role 0, instruction 1: unmatched message: stage 0 sends 1 messages to stage 1, which receives 0"
        ],
    );
    check(
        2,
        &format!("{sender} k0 s0 mb=0 b=0 r=- w=0 a=-\n x0 s4 mb=0 b=0 r=0 w=- a=0"),
        expect!["role 1, instruction 1: unmatched message: exchanges with stage 2, which does not exist"],
    );
}

#[test]
fn a_group_is_whole_and_agrees() {
    let role = |n: u32, joins: &str| {
        format!(
            "role {n} arena=64 loss=- norm=-\n buffer 0 f32 16 @0 scalar\n k0 s0 mb=0 b=0 r=- w=0 a=-\n {joins}\n"
        )
    };
    let (sum, max) = ("c1 s2 mb=0 b=0 r=0 w=0 a=0", "c3 s2 mb=0 b=0 r=0 w=0 a=0");
    check(2, &(role(0, sum) + &role(1, sum)), expect!["sound"]);
    check(
        2,
        &(role(0, sum) + &role(1, "")),
        expect!["role 1: incomplete group: joins 0 of its group's 1 collectives"],
    );
    check(
        2,
        &(role(0, sum) + &role(1, max)),
        expect!["role 1, instruction 1: incomplete group: members of the group disagree on the collective"],
    );
}

/// Both stages send before they receive: fine if sends were buffered, a deadlock because they are not.
#[test]
fn a_deadlock_that_only_rendezvous_shows() {
    let role = |n: u32, first: &str, second: &str| {
        format!(
            "role {n} arena=1024 loss=- norm=-
            buffer 0 f32 16 @0 workspace
            buffer 1 f32 16 @64 workspace
            k0 s0 mb=0 b=0 r=- w=0 a=-
            {first}\n {second}\n"
        )
    };
    let (send_up, take_up) = ("x0 s4 mb=0 b=0 r=0 w=- a=0", "x3 s4 mb=0 b=0 r=- w=1 a=-");
    let (send_down, take_down) = ("x2 s5 mb=0 b=0 r=0 w=- a=0", "x1 s5 mb=0 b=0 r=- w=1 a=-");
    check(
        2,
        &(role(0, send_up, take_up) + &role(1, send_down, take_down)),
        expect!["role 0, instruction 1: deadlock: waits for ever in exchange pp; 2 instructions never run"],
    );
    check(2, &(role(0, send_up, take_up) + &role(1, take_down, send_down)), expect!["sound"]);
    // One exchange on both sides, or one met by a receive and a send, is no deadlock.
    let (both_up, both_down) = ("x4 s4 mb=0 b=0 r=0 w=1 a=0", "x5 s5 mb=0 b=0 r=0 w=1 a=0");
    check(2, &(role(0, both_up, "") + &role(1, both_down, "")), expect!["sound"]);
    check(2, &(role(0, both_up, "") + &role(1, take_down, send_down)), expect!["sound"]);
}

/// Streams of their own let crossed communicators pass; a rank that issues one thing at a time hangs.
#[test]
fn crossed_communicators_fail_in_listing_order_only() {
    let role = |n: u32, first: &str, second: &str| {
        format!(
            "role {n} arena=1024 loss=- norm=-
            buffer 0 f32 16 @0 workspace
            buffer 1 f32 16 @64 workspace
            k0 s0 mb=0 b=0 r=- w=0,1 a=-
            {first}\n {second}\n"
        )
    };
    let (stages, all) = ("c1 s2 mb=0 b=0 r=0 w=0 a=0", "c2 s3 mb=0 b=0 r=1 w=1 a=0");
    check(2, &(role(0, stages, all) + &role(1, stages, all)), expect!["sound"]);
    check(
        2,
        &(role(0, stages, all) + &role(1, all, stages)),
        expect![
            "role 0, instruction 1: crossed order: waits for ever in all-reduce pp; 2 instructions never run"
        ],
    );
}

/// A first stage with the given loss, buffers and instructions, and a second one with nothing to do.
pub(crate) fn stage(loss: &str, lines: &str) -> String {
    program(2, &format!("role 0 arena=256 loss={loss} norm=-\n {lines}\n role 1 arena=0 loss=- norm=-"))
}

fn one(lines: &str, expected: Expect) {
    expected.assert_eq(&verdict(&stage("-", lines)));
}

#[test]
fn memory_is_written_then_read_then_free() {
    one(
        "buffer 0 f32 16 @0 workspace
         k0 s0 mb=0 b=0 r=0 w=- a=-",
        expect!["role 0, instruction 0: use before write: reads buffer 0 (x), which nothing has written"],
    );
    one(
        "buffer 0 f32 16 @0 weight
         k0 s0 mb=0 b=0 r=0 w=- a=-",
        expect!["sound"],
    );
    let overlapping = "buffer 0 f32 16 @0 workspace
         buffer 1 f32 16 @32 workspace
         k0 s0 mb=0 b=0 r=- w=0 a=-
         k0 s0 mb=0 b=0 r=- w=1 a=-\n";
    one(overlapping, expect!["sound"]);
    one(
        &overlapping.replacen("r=- w=1", "r=0 w=1", 1),
        expect!["role 0, instruction 1: use after free: uses buffer 0 (x) and writes another one over it"],
    );
    one(
        &overlapping.replacen("r=- w=0", "r=- w=0,1", 1),
        expect!["role 0, instruction 0: use after free: uses buffer 0 (x) and writes another one over it"],
    );
    one(
        &format!("{overlapping} k0 s0 mb=0 b=0 r=0 w=- a=-"),
        expect![
            "role 0, instruction 2: use after free: reads buffer 0 (x), whose memory another buffer has taken"
        ],
    );
    one(
        &format!("{overlapping} k0 s0 mb=0 b=0 r=- w=0 a=-"),
        expect![
            "role 0, instruction 2: use after free: writes buffer 0 (x), whose memory another buffer has taken"
        ],
    );
    one(
        "buffer 0 f32 16 @224 workspace",
        expect!["role 0: arena: buffer 0 (x) ends at 288 of an arena of 256"],
    );
    one(
        "buffer 0 f32 16 @0 weight
         buffer 1 f32 16 @32 optimizer",
        expect!["role 0: arena: buffers 1 (y) and 0 (x) share memory"],
    );
    one(
        "buffer 0 f32 16 @0 weight
         buffer 1 f32 16 @32 workspace
         k0 s0 mb=0 b=0 r=- w=1 a=-",
        expect!["role 0, instruction 0: arena: writes buffer 1 (y) over state 0 (x)"],
    );
}

#[test]
fn streams_race_unless_ordered() {
    let written = "buffer 0 f32 16 @0 workspace
         k0 s0 mb=0 b=0 r=- w=0 a=-\n";
    one(
        &format!("{written} c0 s1 mb=0 b=0 r=0 w=0 a=-"),
        expect!["role 0, instruction 1: race: reads buffer 0 (x) while instruction 0 may still write it"],
    );
    one(&format!("{written} c0 s1 mb=0 b=0 r=0 w=0 a=0"), expect!["sound"]);
    one(
        &format!("{written} c0 s1 mb=0 b=0 r=0 w=0 a=0\n k0 s0 mb=0 b=0 r=0 w=- a=-"),
        expect!["role 0, instruction 2: race: reads buffer 0 (x) while instruction 1 may still write it"],
    );
    one(
        "buffer 0 f32 16 @0 workspace
         buffer 1 f32 16 @64 workspace
         buffer 0 f32 16 @0 workspace
         k0 s0 mb=0 b=0 r=- w=0 a=-
         c0 s1 mb=0 b=0 r=0 w=1 a=0
         k0 s0 mb=0 b=0 r=- w=2 a=-",
        expect![
            "role 0, instruction 2: race: writes buffer 2 (x) while instruction 1 may still use buffer 0 (x) there"
        ],
    );
}

/// A at \[0, 64) is read by a collective; B takes \[0, 16); C takes \[32, 48), which nobody but A has held.
#[test]
fn what_a_partial_overlap_leaves_is_still_being_read() {
    let program = |b_waits: &str, c_waits: &str| {
        format!(
            "buffer 0 f32 16 @0 workspace
             buffer 1 f32 16 @128 workspace
             buffer 1 f32 4 @0 workspace
             buffer 1 f32 4 @32 workspace
             k0 s0 mb=0 b=0 r=- w=0 a=-
             c0 s1 mb=0 b=0 r=0 w=1 a=0
             k0 s0 mb=0 b=0 r=- w=2 a={b_waits}
             k0 s0 mb=0 b=0 r=- w=3 a={c_waits}"
        )
    };
    one(
        &program("-", "-"),
        expect![
            "role 0, instruction 2: race: writes buffer 2 (y) while instruction 1 may still use buffer 0 (x) there"
        ],
    );
    one(&program("1", "-"), expect!["sound"]);
    // The writer of C on a stream of its own, which knows nothing of B's wait.
    one(
        "buffer 0 f32 16 @0 workspace
         buffer 1 f32 4 @128 workspace
         buffer 1 f32 4 @0 workspace
         buffer 1 f32 4 @32 workspace
         k0 s0 mb=0 b=0 r=- w=0 a=-
         k0 s0 mb=0 b=0 r=- w=1 a=-
         c0 s1 mb=0 b=0 r=0 w=0 a=0
         k0 s0 mb=0 b=0 r=- w=2 a=2
         c4 s3 mb=0 b=0 r=1 w=3 a=1",
        expect![
            "role 0, instruction 4: race: writes buffer 3 (y) while instruction 2 may still use buffer 0 (x) there"
        ],
    );
}
