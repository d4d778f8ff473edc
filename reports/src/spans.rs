//! Every span of the drawn lanes as compact text, for the page's script to zoom into: numbers in base 64, five bits to a
//! character, low bits first, the sixth bit set where more follow. A lane is pairs of (pause since the last end, length)
//! in quanta; what its instructions are is listed once per stage and stream, as positions in a dictionary of (name, step
//! in blocks, step in micro-batches). The invariant: whatever the traces hold, the text stays below [`BUDGET`]; times
//! are rounded to what fits, and lanes that do not fit even so are left out.

use crate::kind::Kind;
use meshwright_ir::trace::Span;
use meshwright_ir::{Model, Program};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Characters that all lanes may take together.
const BUDGET: usize = 300_000;
/// Quanta of a step, finest first.
const QUANTA: [u64; 4] = [1 << 24, 1 << 21, 1 << 18, 1 << 16];
const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// A lane to be told: one stream of one rank in one trace.
pub(crate) struct Told<'a> {
    /// Its `id` in the page.
    pub(crate) id: String,
    /// Stage.
    pub(crate) stage: u32,
    /// Position of the stream.
    pub(crate) stream: usize,
    /// Its spans in the order of the listing.
    pub(crate) spans: Vec<Span>,
    /// The role's program.
    pub(crate) program: &'a Program,
}

/// One number.
fn push(out: &mut String, mut n: u64) {
    loop {
        let low = (n & 31) as usize;
        n >>= 5;
        out.push(DIGITS[low | if n > 0 { 32 } else { 0 }] as char);
        if n == 0 {
            return;
        }
    }
}

fn times(spans: &[Span], quantum: u64) -> String {
    let (mut out, mut last) = (String::new(), 0);
    for span in spans {
        let at = |t: u64| (t + quantum / 2) / quantum;
        let (start, end) = (at(span.start.get()).max(last), at(span.end.get()).max(last));
        push(&mut out, start - last);
        push(&mut out, end - start);
        last = end;
    }
    out
}

/// Names, and what each stream of each stage does, by position.
#[derive(Default)]
struct Words {
    names: Vec<(String, Kind)>,
    position: BTreeMap<String, usize>,
    steps: Vec<(usize, i64, i64)>,
    known: BTreeMap<(usize, i64, i64), usize>,
}

impl Words {
    fn name(&mut self, program: &Program, action: meshwright_ir::program::Action) -> usize {
        let name = program.kind_name(action);
        *self.position.entry(name).or_insert_with_key(|name| {
            self.names.push((name.clone(), Kind::of(program, action)));
            self.names.len() - 1
        })
    }

    fn listing(&mut self, told: &Told<'_>) -> String {
        let code = &told.program.roles[told.stage as usize];
        let (mut out, mut block, mut micro_batch) = (String::new(), 0, 0);
        for span in &told.spans {
            let i = &code.instructions[span.instruction as usize];
            let name = self.name(told.program, i.action);
            let (b, m) = (i64::from(i.block), i64::from(i.micro_batch));
            let step = (name, b - block, m - micro_batch);
            (block, micro_batch) = (b, m);
            let position = *self.known.entry(step).or_insert_with(|| {
                self.steps.push(step);
                self.steps.len() - 1
            });
            push(&mut out, position as u64);
        }
        out
    }
}

/// Empties the longest texts until the others fit into `room`; what those take.
fn keep_shortest(mut texts: Vec<&mut String>, room: usize) -> usize {
    // A stable sort: equals stay in order.
    texts.sort_by_key(|t| t.len());
    let mut used = 0;
    for text in texts {
        if used + text.len() > room {
            text.clear();
        }
        used += text.len();
    }
    used
}

/// Everything the script needs of these lanes, whose axis ends at `full` picoseconds.
pub(crate) fn told(lanes: &[Told<'_>], model: &Model, full: u64) -> Value {
    let mut words = Words::default();
    let mut listings: BTreeMap<(u32, usize), (Vec<u32>, String)> = BTreeMap::new();
    for lane in lanes {
        let order: Vec<u32> = lane.spans.iter().map(|s| s.instruction).collect();
        listings.entry((lane.stage, lane.stream)).or_insert_with(|| (order, words.listing(lane)));
    }
    let listed = keep_shortest(listings.values_mut().map(|l| &mut l.1).collect(), BUDGET / 3);
    let room = BUDGET - listed;
    let coded = |quanta: u64| -> (u64, Vec<String>) {
        let quantum = full.div_ceil(quanta).max(1);
        (quantum, lanes.iter().map(|l| times(&l.spans, quantum)).collect())
    };
    let size = |texts: &[String]| texts.iter().map(String::len).sum::<usize>();
    let mut tries = QUANTA.into_iter().map(coded);
    let fine = tries.find(|(_, texts)| size(texts) <= room);
    let (quantum, mut texts) = fine.unwrap_or_else(|| coded(QUANTA[QUANTA.len() - 1]));
    keep_shortest(texts.iter_mut().collect(), room);
    let same = |l: &Told<'_>| {
        let (listing, text) = &listings[&(l.stage, l.stream)];
        !text.is_empty() && l.spans.iter().map(|s| s.instruction).eq(listing.iter().copied())
    };
    let lane = |(l, text): (&Told<'_>, &String)| {
        (!text.is_empty() && same(l)).then(|| (l.id.clone(), json!([l.stage, l.stream, text])))
    };
    let block = |b: u32| model.block_name(b);
    let blocks = model.blocks().len() as u32;
    json!({
        "full": full,
        "quantum": quantum,
        "kinds": Kind::ALL.map(Kind::name),
        "names": words.names.iter().map(|(n, k)| json!([n, *k as u8])).collect::<Vec<_>>(),
        "blocks": (0..blocks.min(4096)).map(block).collect::<Vec<_>>(),
        "steps": words.steps.iter().map(|(n, b, m)| json!([n, b, m])).collect::<Vec<_>>(),
        "listings": listings.iter().map(|((stage, stream), l)| (format!("{stage}.{stream}"), json!(l.1)))
            .collect::<serde_json::Map<_, _>>(),
        "lanes": lanes.iter().zip(&texts).filter_map(lane).collect::<serde_json::Map<_, _>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use meshwright_ir::Time;

    /// What the script does.
    fn read(text: &str) -> Vec<u64> {
        let (mut out, mut n, mut shift) = (Vec::new(), 0, 0);
        for c in text.bytes() {
            let digit = DIGITS.iter().position(|d| *d == c).expect("a digit") as u64;
            n |= (digit & 31) << shift;
            shift += 5;
            if digit & 32 == 0 {
                out.push(n);
                (n, shift) = (0, 0);
            }
        }
        out
    }

    #[test]
    fn numbers_come_back() {
        let numbers = [0, 1, 31, 32, 1023, 1024, 1 << 24, u64::MAX >> 4];
        let mut text = String::new();
        numbers.iter().for_each(|n| push(&mut text, *n));
        assert_eq!(read(&text), numbers);
    }

    #[test]
    fn spans_come_back_rounded_and_never_overlap() {
        let span = |k, start, end| Span { rank: 0, instruction: k, start: Time(start), end: Time(end) };
        let spans = [span(0, 0, 14), span(1, 14, 26), span(2, 40, 61)];
        assert_eq!(read(&times(&spans, 10)), [0, 1, 0, 2, 1, 2]);
    }
}
