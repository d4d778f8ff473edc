//! The text form under stress: whatever a program holds round-trips, and whatever a file holds is read, checked and
//! printed, or refused, without a panic.

use crate::programs::{Dice, arbitrary};
use meshwright_ir::Program;
use proptest::prelude::*;

/// Words that a reader of numbers, lists and names might stumble over.
const WORDS: [&str; 12] = [
    "-",
    "",
    "=",
    "0",
    "-1",
    "65536",
    "4294967296",
    "18446744073709551615",
    "99999999999999999999999",
    "%",
    "é",
    "tp.tp",
];

/// One to four edits: a cut, a line repeated or dropped or moved, a word or a character replaced.
fn mutated(text: &str, d: &mut Dice) -> String {
    let mut text = text.to_string();
    for _ in 0..1 + d.roll(4) {
        let mut lines: Vec<String> = text.lines().map(str::to_string).collect();
        if lines.is_empty() {
            return text;
        }
        let at = d.roll(lines.len() as u64) as usize;
        match d.roll(5) {
            0 => {
                let chars: Vec<char> = text.chars().collect();
                text = chars[..d.roll(chars.len() as u64) as usize].iter().collect();
                continue;
            }
            1 => drop(lines.remove(at)),
            2 => {
                let line = lines[at].clone();
                lines.insert(d.roll(lines.len() as u64) as usize, line);
            }
            3 => {
                let mut words: Vec<&str> = lines[at].split(' ').collect();
                let word = d.roll(words.len() as u64) as usize;
                let key = words[word].split_once('=').map(|(key, _)| format!("{key}="));
                let new = key.unwrap_or_default() + d.pick(&WORDS);
                words[word] = &new;
                lines[at] = words.join(" ");
            }
            _ => {
                let mut chars: Vec<char> = lines[at].chars().collect();
                if !chars.is_empty() {
                    let c = d.roll(chars.len() as u64) as usize;
                    chars[c] = d.pick(&[' ', '9', '-', ',', '/', '@', 'x', '\u{2028}']);
                }
                lines[at] = chars.into_iter().collect();
            }
        }
        text = lines.join("\n");
    }
    text
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 2000, ..Default::default() })]

    #[test]
    fn text_round_trips(seed: u64) {
        let program = arbitrary(seed);
        let text = program.to_string();
        match text.parse::<Program>() {
            Ok(read) => prop_assert!(read == program, "{text}"),
            // A kernel drawn beyond all bounds is refused for that, and only for that.
            Err(e) => prop_assert!(e.message.contains("larger than anything that runs"), "{e}\n{text}"),
        }
    }

    #[test]
    fn nothing_makes_the_reader_or_the_checker_panic(seed: u64) {
        let text = mutated(&arbitrary(seed).to_string(), &mut Dice(seed ^ 1));
        if let Ok(program) = text.parse::<Program>() {
            let printed = program.to_string();
            prop_assert!(printed.parse::<Program>().as_ref() == Ok(&program), "{printed}");
            let _ = program.check();
        }
    }
}
