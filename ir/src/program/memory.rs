//! Happens-before and the arena: no read before a write, no two live buffers in one place, for every interleaving that
//! streams and `after` allow. Each instruction gets a vector clock over its role's streams (Mattern 1989); buffers are
//! swept in listing order over a map of who owns which range of the arena.

use super::check::{Fault, Rule};
use super::{Code, Program};
use std::collections::BTreeMap;

/// For each instruction and stream, how many instructions of that stream are complete before it starts.
#[derive(Debug)]
pub struct Clocks {
    streams: usize,
    before: Vec<u32>,
    position: Vec<u32>,
}

impl Clocks {
    /// Clocks of one role's code; `after` must name earlier instructions.
    pub fn of(code: &Code, streams: usize) -> Self {
        let n = code.instructions.len();
        let mut clocks = Self { streams, before: vec![0; n * streams], position: vec![0; n] };
        let mut last: Vec<Option<usize>> = vec![None; streams];
        for k in 0..n {
            let stream = code.instructions[k].stream as usize;
            let (earlier, rest) = clocks.before.split_at_mut(k * streams);
            let mine = &mut rest[..streams];
            for d in code.after(k).iter().map(|d| *d as usize).chain(last[stream]) {
                for (m, e) in mine.iter_mut().zip(&earlier[d * streams..][..streams]) {
                    *m = (*m).max(*e);
                }
                let ds = code.instructions[d].stream as usize;
                mine[ds] = mine[ds].max(clocks.position[d] + 1);
            }
            clocks.position[k] = last[stream].map_or(0, |l| clocks.position[l] + 1);
            last[stream] = Some(k);
        }
        clocks
    }
    /// Whether instruction `a` is complete before `b` starts, whatever the interleaving.
    pub fn ordered(&self, code: &Code, a: usize, b: usize) -> bool {
        self.before[b * self.streams + code.instructions[a].stream as usize] > self.position[a]
    }
}

/// What has touched a buffer so far: the last write, and the last access on each stream.
#[derive(Clone)]
struct Touched {
    write: Option<usize>,
    access: Vec<Option<usize>>,
}

pub(super) fn check_role(program: &Program, role: usize) -> Result<(), Fault> {
    let code = &program.roles[role];
    let streams = program.streams.len();
    let clocks = Clocks::of(code, streams);
    let fault =
        |rule, k: usize, message: String| Err(Fault { rule, role, instruction: Some(k as u32), message });
    let name = |b: u32| &program.names[code.buffers[b as usize].name as usize];
    for (b, buffer) in code.buffers.iter().enumerate() {
        if buffer.end() > code.arena {
            let message = format!(
                "buffer {b} ({}) ends at {} of an arena of {}",
                name(b as u32),
                buffer.end().0,
                code.arena.0
            );
            return Err(Fault { rule: Rule::Arena, role, instruction: None, message });
        }
    }
    let mut touched = vec![Touched { write: None, access: vec![None; streams] }; code.buffers.len()];
    // The arena by start offset: each range's end and who used it last. Only an owner of all its range may be read.
    let mut owners: BTreeMap<u64, (u64, u32)> = BTreeMap::new();
    let mut owns = vec![false; code.buffers.len()];
    for (b, buffer) in code.buffers.iter().enumerate().filter(|(_, b)| b.class.is_state() && b.elements > 0) {
        if let Some((_, (_, other))) = overlapping(&owners, buffer.offset.0, buffer.end().0).first() {
            let message =
                format!("buffers {b} ({}) and {other} ({}) share memory", name(b as u32), name(*other));
            return Err(Fault { rule: Rule::Arena, role, instruction: None, message });
        }
        owners.insert(buffer.offset.0, (buffer.end().0, b as u32));
        owns[b] = true;
    }
    for k in 0..code.instructions.len() {
        for &b in code.reads(k) {
            let t = &touched[b as usize];
            let written = t.write.is_some() || code.buffers[b as usize].class.is_state();
            if !written {
                return fault(
                    Rule::UseBeforeWrite,
                    k,
                    format!("reads buffer {b} ({}), which nothing has written", name(b)),
                );
            }
            if !owns[b as usize] && code.buffers[b as usize].elements > 0 {
                return fault(
                    Rule::UseAfterFree,
                    k,
                    format!("reads buffer {b} ({}), whose memory another buffer has taken", name(b)),
                );
            }
            if t.write.is_some_and(|w| !clocks.ordered(code, w, k)) {
                return fault(
                    Rule::Race,
                    k,
                    format!(
                        "reads buffer {b} ({}) while instruction {} may still write it",
                        name(b),
                        t.write.unwrap_or(0)
                    ),
                );
            }
        }
        for &b in code.writes(k) {
            let buffer = &code.buffers[b as usize];
            let mut victims = vec![b];
            if !owns[b as usize] && buffer.elements > 0 {
                if touched[b as usize].write.is_some() {
                    return fault(
                        Rule::UseAfterFree,
                        k,
                        format!("writes buffer {b} ({}), whose memory another buffer has taken", name(b)),
                    );
                }
                let (from, to) = (buffer.offset.0, buffer.end().0);
                let taken = overlapping(&owners, from, to);
                for (start, (end, old)) in &taken {
                    if code.buffers[*old as usize].class.is_state() {
                        return fault(
                            Rule::Arena,
                            k,
                            format!("writes buffer {b} ({}) over state {old} ({})", name(b), name(*old)),
                        );
                    }
                    owners.remove(start);
                    if *start < from {
                        owners.insert(*start, (from, *old));
                    }
                    if *end > to {
                        owners.insert(to, (*end, *old));
                    }
                    owns[*old as usize] = false;
                }
                owners.insert(from, (to, b));
                owns[b as usize] = true;
                victims.extend(taken.iter().map(|(_, (_, old))| *old));
            }
            for v in victims {
                if let Some(a) = touched[v as usize]
                    .access
                    .iter()
                    .flatten()
                    .find(|a| **a != k && !clocks.ordered(code, **a, k))
                {
                    return fault(
                        Rule::Race,
                        k,
                        format!(
                            "writes buffer {b} ({}) while instruction {a} may still use buffer {v} ({}) there",
                            name(b),
                            name(v)
                        ),
                    );
                }
            }
        }
        let mut used = code.reads(k).iter().chain(code.writes(k));
        if let Some(&b) = used.find(|b| !owns[**b as usize] && code.buffers[**b as usize].elements > 0) {
            return fault(
                Rule::UseAfterFree,
                k,
                format!("uses buffer {b} ({}) and writes another one over it", name(b)),
            );
        }
        let stream = code.instructions[k].stream as usize;
        for &b in code.reads(k).iter().chain(code.writes(k)) {
            touched[b as usize].access[stream] = Some(k);
        }
        for &b in code.writes(k) {
            touched[b as usize].write = Some(k);
        }
    }
    for &b in code.loss.iter().chain(&code.norm) {
        let (rule, what) = match (touched[b as usize].write, owns[b as usize]) {
            (None, _) => (Rule::UseBeforeWrite, "which nothing has written"),
            (Some(_), false) => (Rule::UseAfterFree, "whose memory another buffer has taken"),
            (Some(_), true) => continue,
        };
        let message = format!("leaves buffer {b} ({}), {what}", name(b));
        return Err(Fault { rule, role, instruction: None, message });
    }
    Ok(())
}

/// Ranges that meet `[from, to)`: start, end and user.
fn overlapping(owners: &BTreeMap<u64, (u64, u32)>, from: u64, to: u64) -> Vec<(u64, (u64, u32))> {
    let before = owners.range(..from).next_back().filter(|(_, (end, _))| *end > from);
    before.into_iter().chain(owners.range(from..to)).map(|(start, range)| (*start, *range)).collect()
}
