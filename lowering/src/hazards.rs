//! Dependencies from memory. As instructions are listed, a map of the arena remembers who owns which range and which
//! instructions touched it last on each stream. A reader waits for the last writer; a writer waits for everyone who used
//! that memory. Waits that streams or earlier waits already imply are left out, by vector clocks.

use meshwright_ir::program::{Buffer, Code};
use std::collections::BTreeMap;

#[derive(Debug, Clone)]
struct Owner {
    buffer: u32,
    end: u64,
    write: Option<u32>,
    access: Vec<Option<u32>>,
}

/// Finds each instruction's waits.
#[derive(Debug)]
pub(crate) struct Hazards {
    streams: usize,
    owners: BTreeMap<u64, Owner>,
    /// Per instruction: how many of each stream's instructions are complete before it starts; and its own place.
    before: Vec<Vec<u32>>,
    place: Vec<(u8, u32)>,
    last: Vec<Option<u32>>,
}

impl Hazards {
    pub(crate) fn new(streams: usize) -> Self {
        Self {
            streams,
            owners: BTreeMap::new(),
            before: Vec::new(),
            place: Vec::new(),
            last: vec![None; streams],
        }
    }

    /// The waits of the next instruction, on `stream`, which reads and writes these buffers; it is taken as listed.
    pub(crate) fn next(&mut self, code: &Code, stream: u8, reads: &[u32], writes: &[u32]) -> Vec<u32> {
        let mut wanted: Vec<u32> = Vec::new();
        for &b in reads {
            if let Some(owner) = self.owners.get(&start(&code.buffers[b as usize])).filter(|o| o.buffer == b)
            {
                wanted.extend(owner.write);
            }
        }
        for &b in writes {
            wanted.extend(self.take(b, &code.buffers[b as usize]));
        }
        let after = self.record(stream, wanted);
        let me = self.place.len() as u32 - 1;
        for (&b, writes) in reads.iter().map(|b| (b, false)).chain(writes.iter().map(|b| (b, true))) {
            let buffer = &code.buffers[b as usize];
            let fresh =
                || Owner { buffer: b, end: buffer.end().0, write: None, access: vec![None; self.streams] };
            let owner = self.owners.entry(start(buffer)).or_insert_with(fresh);
            owner.access[stream as usize] = Some(me);
            if writes {
                owner.write = Some(me);
            }
        }
        after
    }

    /// Makes `b` the owner of its range; everyone who used the memory before. What an older owner keeps outside the
    /// range stays on the map, with its users, for whoever takes that next.
    fn take(&mut self, b: u32, buffer: &Buffer) -> Vec<u32> {
        let (from, to) = (start(buffer), buffer.end().0);
        let before = self.owners.range(..from).next_back().filter(|(_, o)| o.end > from).map(|(k, _)| *k);
        let met: Vec<u64> =
            before.into_iter().chain(self.owners.range(from..to.max(from + 1)).map(|(k, _)| *k)).collect();
        let mut users = Vec::new();
        for key in met {
            let owner = &self.owners[&key];
            users.extend(owner.access.iter().flatten());
            if owner.buffer != b
                && let Some(owner) = self.owners.remove(&key)
            {
                if key < from {
                    self.owners.insert(key, Owner { end: from, ..owner.clone() });
                }
                if owner.end > to {
                    self.owners.insert(to, owner);
                }
            }
        }
        users
    }

    /// Lists an instruction that waits for `wanted`; returns the waits that nothing else implies.
    fn record(&mut self, stream: u8, mut wanted: Vec<u32>) -> Vec<u32> {
        let mut clock = self.last[stream as usize].map_or_else(|| vec![0; self.streams], |l| self.after(l));
        wanted.sort_unstable();
        wanted.dedup();
        let mut kept = Vec::new();
        for w in wanted.into_iter().rev() {
            let (s, position) = self.place[w as usize];
            if clock[s as usize] <= position {
                kept.push(w);
                for (mine, theirs) in clock.iter_mut().zip(self.after(w)) {
                    *mine = (*mine).max(theirs);
                }
            }
        }
        kept.sort_unstable();
        let position = self.last[stream as usize].map_or(0, |l| self.place[l as usize].1 + 1);
        self.last[stream as usize] = Some(self.place.len() as u32);
        self.place.push((stream, position));
        self.before.push(clock);
        kept
    }

    /// The clock once instruction `k` is complete.
    fn after(&self, k: u32) -> Vec<u32> {
        let mut clock = self.before[k as usize].clone();
        let (stream, position) = self.place[k as usize];
        clock[stream as usize] = clock[stream as usize].max(position + 1);
        clock
    }
}

fn start(buffer: &Buffer) -> u64 {
    buffer.offset.0
}
