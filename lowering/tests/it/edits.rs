//! Edited programs: whatever one or two words of a lowered program are changed to, the checker answers and does not panic.

use crate::plans::{self, Shape};
use meshwright_ir::{Program, Schedule};
use meshwright_lowering::lower;
use proptest::prelude::*;
use std::sync::LazyLock;

static TEXT: LazyLock<String> = LazyLock::new(|| {
    let schedule = Schedule::OneForwardOneBackward;
    let shape = Shape {
        model: plans::gpt(1),
        dp: 1,
        fsdp: 1,
        tp: 2,
        pp: 2,
        sp: true,
        micro_batch: 1,
        global_batch: 3,
        sequence: 8,
        schedule,
    };
    lower(&plans::plan(&shape, &mut plans::megatron(true)).unwrap()).unwrap().to_string()
});

/// Changes one number of one line to a neighbour, to that of another line's same place, or to something large.
fn edited(text: &str, line: usize, word: usize, how: u8, by: u64) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_string).collect();
    let at = line % lines.len();
    let digits: Vec<(usize, &str)> = lines[at]
        .split(|c: char| !c.is_ascii_digit())
        .filter(|run| !run.is_empty())
        .map(|run| (run.as_ptr() as usize - lines[at].as_ptr() as usize, run))
        .collect();
    if digits.is_empty() {
        return text.into();
    }
    let (from, run) = digits[word % digits.len()];
    let number: u64 = run.parse().unwrap_or(0);
    let new = match how % 4 {
        0 => number + 1 + by % 3,
        1 => number.saturating_sub(1 + by % 3),
        2 => by % 700,
        _ => by,
    };
    lines[at] = format!("{}{new}{}", &lines[at][..from], &lines[at][from + run.len()..]);
    lines.join("\n")
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 1500, ..Default::default() })]

    #[test]
    fn the_checker_never_panics(edits in prop::collection::vec((0..5000usize, 0..50usize, 0..4u8, any::<u64>()), 1..3)) {
        let text = edits.iter().fold(TEXT.clone(), |t, (line, word, how, by)| edited(&t, *line, *word, *how, *by));
        if let Ok(program) = text.parse::<Program>() {
            let _ = program.check();
        }
    }
}
