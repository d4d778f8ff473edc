//! Live bytes of a rank over time. States, gradients and scalars live throughout; any other buffer from the start of the
//! first instruction that touches it to the end of the last. The invariant: two buffers that share arena bytes are never
//! both live, so no point exceeds the arena; the checker proved it for every interleaving, this shows it for one.

use meshwright_ir::program::Code;
use meshwright_ir::trace::MemoryPoint;
use meshwright_ir::{Bytes, Time};

/// Appends the points of one rank, from the start and end of each of its instructions.
pub(crate) fn points(code: &Code, rank: u32, start: &[u64], end: &[u64], points: &mut Vec<MemoryPoint>) {
    let mut lives = vec![(u64::MAX, 0u64); code.buffers.len()];
    for k in 0..code.instructions.len() {
        for b in code.reads(k).iter().chain(code.writes(k)) {
            let life = &mut lives[*b as usize];
            *life = (life.0.min(start[k]), life.1.max(end[k]));
        }
    }
    let (mut born, mut gone) = (Vec::new(), Vec::new());
    for (buffer, (from, to)) in code.buffers.iter().zip(lives) {
        if !buffer.class.is_static() && from < to && buffer.elements > 0 {
            born.push((from, buffer.bytes().get()));
            gone.push((to, buffer.bytes().get()));
        }
    }
    born.sort_unstable();
    gone.sort_unstable();
    let mut live = code.static_bytes().get();
    points.push(MemoryPoint { rank, time: Time::ZERO, bytes: Bytes(live) });
    let (mut born, mut gone) = (born.into_iter().peekable(), gone.into_iter().peekable());
    while let Some(at) = born.peek().into_iter().chain(gone.peek()).map(|e| e.0).min() {
        while let Some((_, bytes)) = gone.next_if(|e| e.0 == at) {
            live -= bytes;
        }
        while let Some((_, bytes)) = born.next_if(|e| e.0 == at) {
            live += bytes;
        }
        let point = MemoryPoint { rank, time: Time(at), bytes: Bytes(live) };
        match points.last_mut() {
            Some(last) if last.rank == rank && last.time == point.time => *last = point,
            Some(last) if last.rank == rank && last.bytes == point.bytes => {}
            _ => points.push(point),
        }
    }
}
