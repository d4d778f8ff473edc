//! Live bytes of a rank over time. States, gradients and scalars live throughout; any other buffer from the start of the
//! first instruction that touches it to the end of the last. The invariant: two buffers that share arena bytes are never
//! both live, so no point exceeds the arena; the checker proved it for every interleaving, this shows it for one.

use crate::order::{Lanes, Order};
use crate::tables::NONE;
use meshwright_ir::program::{Buffer, Code};
use meshwright_ir::trace::MemoryPoint;
use meshwright_ir::{Bytes, Time};

/// Appends the points of one rank, from the start and end of each of its instructions.
pub(crate) fn points(
    code: &Code,
    rank: u32,
    (start, end, lanes): (&[u64], &[u64], &Lanes),
    points: &mut Vec<MemoryPoint>,
) {
    let (born, gone) = changes(code, end);
    let (mut starts, mut ends) = (Order::new(lanes, start).peekable(), Order::new(lanes, end).peekable());
    let mut live = code.static_bytes().get();
    points.push(MemoryPoint { rank, time: Time::ZERO, bytes: Bytes(live) });
    while let Some(at) = starts.peek().into_iter().chain(ends.peek()).map(|e| e.0).min() {
        let mut less = 0;
        while let Some((_, k)) = starts.next_if(|e| e.0 == at) {
            live += born[k as usize];
        }
        while let Some((_, k)) = ends.next_if(|e| e.0 == at) {
            less += gone[k as usize];
        }
        live -= less;
        let point = MemoryPoint { rank, time: Time(at), bytes: Bytes(live) };
        match points.last_mut() {
            Some(last) if last.rank == rank && last.time == point.time => *last = point,
            Some(last) if last.rank == rank && last.bytes == point.bytes => {}
            _ => points.push(point),
        }
    }
}

/// Bytes that come alive as each instruction starts, and that are free once it ends. The first in the listing to touch a
/// buffer is also the first in time: it writes, and the checker has seen that all others wait for it.
fn changes(code: &Code, end: &[u64]) -> (Vec<u64>, Vec<u64>) {
    let n = code.instructions.len();
    let (mut born, mut gone) = (vec![0; n], vec![0; n]);
    let mut last = vec![NONE; code.buffers.len()];
    for k in 0..n {
        for b in code.reads(k).iter().chain(code.writes(k)) {
            let last = &mut last[*b as usize];
            if *last == NONE {
                born[k] += passing(&code.buffers[*b as usize]);
                *last = k as u32;
            } else if end[*last as usize] <= end[k] {
                *last = k as u32;
            }
        }
    }
    for (buffer, last) in code.buffers.iter().zip(last).filter(|(_, last)| *last != NONE) {
        gone[last as usize] += passing(buffer);
    }
    (born, gone)
}

/// Bytes of a buffer that does not live throughout, as [`Code::static_bytes`] counts.
fn passing(buffer: &Buffer) -> u64 {
    if buffer.class.is_static() { 0 } else { buffer.bytes().get() }
}
