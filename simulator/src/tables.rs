//! What a role's instructions wait for and whom they meet, once per role: dependents as flat index arrays; and for every
//! message and every collective between stages the instruction at the other end. The n-th message sent on a directed
//! link meets the n-th received there, the n-th collective of a communicator its n-th on every stage; the checker has
//! made sure that they fit.

use meshwright_ir::program::{Action, Code};
use meshwright_ir::{Axis, AxisSet, Program};
use std::collections::BTreeMap;

/// No instruction.
pub(crate) const NONE: u32 = u32::MAX;

/// What a role's instructions wait for.
pub(crate) struct Waits {
    /// How many completions each instruction waits for.
    pub(crate) waits: Vec<u32>,
    first: Vec<u32>,
    dependents: Vec<u32>,
}

/// Whom a role's instructions meet.
struct Halves {
    /// For a message that is sent: the instruction of the peer's role that receives it.
    sends_to: Vec<u32>,
    /// For a message that is received: the instruction of the peer's role that sends it.
    receives_from: Vec<u32>,
    /// For a collective between stages: its row in [`Meetings::joins`].
    joint: Vec<u32>,
}

impl Waits {
    pub(crate) fn of(code: &Code, streams: usize) -> Self {
        let n = code.instructions.len();
        let predecessors = stream_predecessors(code, streams);
        let edges = |k: usize| {
            let stream = (predecessors[k] != NONE).then_some(predecessors[k]);
            code.after(k).iter().copied().chain(stream)
        };
        let mut first = vec![0u32; n + 1];
        let mut waits = vec![0u32; n];
        for (k, wait) in waits.iter_mut().enumerate() {
            for d in edges(k) {
                first[d as usize + 1] += 1;
                *wait += 1;
            }
        }
        for k in 0..n {
            first[k + 1] += first[k];
        }
        let mut dependents = vec![0u32; first[n] as usize];
        let mut next = first.clone();
        for k in 0..n {
            for d in edges(k) {
                dependents[next[d as usize] as usize] = k as u32;
                next[d as usize] += 1;
            }
        }
        Self { waits, first, dependents }
    }

    /// Instructions that wait for `k`.
    pub(crate) fn dependents(&self, k: u32) -> &[u32] {
        &self.dependents[self.first[k as usize] as usize..self.first[k as usize + 1] as usize]
    }
}

/// The instruction before each on its stream, or [`NONE`].
fn stream_predecessors(code: &Code, streams: usize) -> Vec<u32> {
    let mut last = vec![NONE; streams];
    let previous = |(k, stream): (usize, u8)| std::mem::replace(&mut last[stream as usize], k as u32);
    code.instructions.iter().map(|i| i.stream).enumerate().map(previous).collect()
}

/// A set of ranks that meet in collectives: axes, and the stages that take part where not all do.
pub(crate) type Communicator = (AxisSet, Option<Vec<u32>>);

/// Distinct communicators of a program, and which of them each of its collectives uses.
pub(crate) fn communicators(program: &Program) -> (Vec<Communicator>, Vec<u32>) {
    let keys: Vec<Communicator> = program.collectives.iter().map(|c| (c.axes, c.stages.clone())).collect();
    let mut distinct = keys.clone();
    distinct.sort_unstable();
    distinct.dedup();
    let position = |key| distinct.binary_search(key).expect("every communicator is listed") as u32;
    let of = keys.iter().map(position).collect();
    (distinct, of)
}

/// Who meets whom.
pub(crate) struct Meetings {
    roles: Vec<Halves>,
    /// For each collective between stages, its instruction on each stage.
    joins: Vec<Vec<u32>>,
}

impl Meetings {
    pub(crate) fn of(program: &Program) -> Self {
        let halves = |code: &Code| {
            let none = || vec![NONE; code.instructions.len()];
            Halves { sends_to: none(), receives_from: none(), joint: none() }
        };
        let mut meetings = Self { roles: program.roles.iter().map(halves).collect(), joins: Vec::new() };
        meetings.match_messages(program);
        meetings.match_collectives(program);
        meetings
    }

    /// The instruction with which `stage` takes part in the collective that is instruction `k` of `role`.
    pub(crate) fn joined_by(&self, role: u32, k: u32, stage: u32) -> u32 {
        match self.roles[role as usize].joint[k as usize] {
            NONE => k,
            row => self.joins[row as usize][stage as usize],
        }
    }

    /// The instructions of the peer's role that receive what instruction `k` of `role` sends and that send what it
    /// receives, each [`NONE`] where there is nothing.
    pub(crate) fn halves(&self, role: u32, k: u32) -> [u32; 2] {
        let role = &self.roles[role as usize];
        [role.sends_to[k as usize], role.receives_from[k as usize]]
    }

    fn match_messages(&mut self, program: &Program) {
        let mut sent: BTreeMap<(i64, i64), Vec<u32>> = BTreeMap::new();
        let mut received: BTreeMap<(i64, i64), Vec<u32>> = BTreeMap::new();
        for (role, code) in program.roles.iter().enumerate() {
            for (k, i) in code.instructions.iter().enumerate() {
                if let Action::Exchange(e) = i.action {
                    let exchange = &program.exchanges[e as usize];
                    let (me, peer) = (role as i64, role as i64 + i64::from(exchange.peer));
                    if exchange.send.is_some() {
                        sent.entry((me, peer)).or_default().push(k as u32);
                    }
                    if exchange.receive.is_some() {
                        received.entry((peer, me)).or_default().push(k as u32);
                    }
                }
            }
        }
        for ((from, to), sends) in sent {
            let receives = &received[&(from, to)];
            assert_eq!(sends.len(), receives.len(), "a checked program's messages match");
            for (s, r) in sends.iter().zip(receives) {
                self.roles[from as usize].sends_to[*s as usize] = *r;
                self.roles[to as usize].receives_from[*r as usize] = *s;
            }
        }
    }

    fn match_collectives(&mut self, program: &Program) {
        let stages = program.roles.len();
        let (communicators, communicator_of) = communicators(program);
        let mut rows: BTreeMap<(u32, usize), u32> = BTreeMap::new();
        for (role, code) in program.roles.iter().enumerate() {
            let mut met = vec![0usize; communicators.len()];
            for (k, i) in code.instructions.iter().enumerate() {
                let Action::Collective(c) = i.action else { continue };
                let communicator = communicator_of[c as usize];
                if !communicators[communicator as usize].0.contains(Axis::Pp) {
                    continue;
                }
                let nth = &mut met[communicator as usize];
                let row = *rows.entry((communicator, *nth)).or_insert_with(|| {
                    self.joins.push(vec![NONE; stages]);
                    self.joins.len() as u32 - 1
                });
                *nth += 1;
                self.joins[row as usize][role] = k as u32;
                self.roles[role].joint[k] = row;
            }
        }
    }
}
