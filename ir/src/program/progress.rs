//! Matching and progress. Ranks of a role do the same, so one representative per role stands for all: a collective
//! inside a stage is complete when the representative reaches it, one that spans stages when every stage has.
//! Two regimes are run: streams with rendezvous (a send completes with its receive), and listing order with one
//! operation in flight per rank, which is what a library that blocks its communicators in issue order needs.

use super::check::{Fault, Rule};
use super::{Action, Exchange, Program};
use crate::Axis;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Stages that take part in collective `c`, or none when it stays within a stage.
fn spanned(program: &Program, c: u32) -> Option<Vec<u32>> {
    let collective = &program.collectives[c as usize];
    let all = || (0..program.mesh.degree(Axis::Pp)).collect();
    collective.axes.contains(Axis::Pp).then(|| collective.stages.clone().unwrap_or_else(all))
}

/// Key of a communicator that spans stages.
fn communicator(program: &Program, c: u32) -> (crate::AxisSet, Option<Vec<u32>>) {
    let collective = &program.collectives[c as usize];
    (collective.axes, collective.stages.clone())
}

/// Every message has its other half, of its size; every spanning collective has all its members, who agree on it.
pub(super) fn check_matching(program: &Program) -> Result<(), Fault> {
    let stages = program.roles.len() as i64;
    let mut sent: BTreeMap<(i64, i64), Vec<(u32, u64)>> = BTreeMap::new();
    let mut received: BTreeMap<(i64, i64), Vec<(u32, u64)>> = BTreeMap::new();
    let mut joined: BTreeMap<_, BTreeMap<u32, Vec<(u32, u32)>>> = BTreeMap::new();
    for (role, code) in program.roles.iter().enumerate() {
        for (k, i) in code.instructions.iter().enumerate() {
            match i.action {
                Action::Compute(_) => {}
                Action::Exchange(e) => {
                    let Exchange { peer, send, receive, .. } = program.exchanges[e as usize];
                    let (me, other) = (role as i64, role as i64 + i64::from(peer));
                    if other < 0 || other >= stages || peer == 0 {
                        let message = format!("exchanges with stage {other}, which does not exist");
                        return Err(Fault {
                            rule: Rule::UnmatchedMessage,
                            role,
                            instruction: Some(k as u32),
                            message,
                        });
                    }
                    if let Some(n) = send {
                        sent.entry((me, other)).or_default().push((k as u32, n));
                    }
                    if let Some(n) = receive {
                        received.entry((other, me)).or_default().push((k as u32, n));
                    }
                }
                Action::Collective(c) => {
                    if let Some(members) = spanned(program, c) {
                        if !members.contains(&(role as u32)) {
                            let message = "joins a collective of other stages".to_string();
                            return Err(Fault {
                                rule: Rule::IncompleteGroup,
                                role,
                                instruction: Some(k as u32),
                                message,
                            });
                        }
                        joined
                            .entry((communicator(program, c), members))
                            .or_default()
                            .entry(role as u32)
                            .or_default()
                            .push((k as u32, c));
                    }
                }
            }
        }
    }
    let links: BTreeSet<_> = sent.keys().chain(received.keys()).copied().collect();
    for (from, to) in links {
        let empty = Vec::new();
        let (s, r) = (sent.get(&(from, to)).unwrap_or(&empty), received.get(&(from, to)).unwrap_or(&empty));
        if s.len() != r.len() {
            let (role, at) = if s.len() > r.len() { (from, s[r.len()].0) } else { (to, r[s.len()].0) };
            let message =
                format!("stage {from} sends {} messages to stage {to}, which receives {}", s.len(), r.len());
            return Err(Fault {
                rule: Rule::UnmatchedMessage,
                role: role as usize,
                instruction: Some(at),
                message,
            });
        }
        if let Some((a, b)) = s.iter().zip(r).find(|(a, b)| a.1 != b.1) {
            let message = format!("receives {} elements where stage {from} sends {}", b.1, a.1);
            return Err(Fault {
                rule: Rule::UnmatchedMessage,
                role: to as usize,
                instruction: Some(b.0),
                message,
            });
        }
    }
    for ((_, members), by_role) in joined {
        let most = by_role.values().map(Vec::len).max().unwrap_or(0);
        for role in members {
            let list = by_role.get(&role).map(Vec::as_slice).unwrap_or_default();
            if list.len() != most {
                let message = format!("joins {} of its group's {most} collectives", list.len());
                return Err(Fault {
                    rule: Rule::IncompleteGroup,
                    role: role as usize,
                    instruction: None,
                    message,
                });
            }
            let first = by_role.values().next().map(Vec::as_slice).unwrap_or_default();
            if let Some((mine, _)) = list
                .iter()
                .zip(first)
                .find(|(a, b)| program.collectives[a.1 as usize] != program.collectives[b.1 as usize])
            {
                let message = "members of the group disagree on the collective".to_string();
                return Err(Fault {
                    rule: Rule::IncompleteGroup,
                    role: role as usize,
                    instruction: Some(mine.0),
                    message,
                });
            }
        }
    }
    Ok(())
}

/// Runs the representatives to the end in both regimes.
pub(super) fn check_progress(program: &Program) -> Result<(), Fault> {
    Regime::new(program, false).run(Rule::Deadlock)?;
    Regime::new(program, true).run(Rule::CrossedOrder)
}

/// One symbolic run. A lane is an in-order queue: a stream, or the whole listing when serial.
struct Regime<'p> {
    program: &'p Program,
    lanes: Vec<Vec<VecDeque<u32>>>,
    done: Vec<Vec<bool>>,
    /// Halves of the exchange at the head of a lane that are already matched: (send, receive).
    halves: BTreeMap<(usize, u32), (bool, bool)>,
    serial: bool,
}

impl<'p> Regime<'p> {
    fn new(program: &'p Program, serial: bool) -> Self {
        let lanes = program
            .roles
            .iter()
            .map(|code| {
                let mut lanes = vec![VecDeque::new(); if serial { 1 } else { program.streams.len() }];
                for (k, i) in code.instructions.iter().enumerate() {
                    lanes[if serial { 0 } else { i.stream as usize }].push_back(k as u32);
                }
                lanes
            })
            .collect();
        let done = program.roles.iter().map(|c| vec![false; c.instructions.len()]).collect();
        Self { program, lanes, done, halves: BTreeMap::new(), serial }
    }

    /// The instruction at the head of a lane, if its dependencies are complete.
    fn ready(&self, role: usize, lane: usize) -> Option<u32> {
        let head = *self.lanes[role][lane].front()?;
        let code = &self.program.roles[role];
        code.after(head as usize).iter().all(|a| self.done[role][*a as usize]).then_some(head)
    }

    fn lane_of(&self, role: usize, instruction: u32) -> usize {
        if self.serial {
            0
        } else {
            self.program.roles[role].instructions[instruction as usize].stream as usize
        }
    }

    fn finish(&mut self, role: usize, instruction: u32) {
        let lane = self.lane_of(role, instruction);
        self.lanes[role][lane].pop_front();
        self.done[role][instruction as usize] = true;
    }

    /// Completes what it can at the heads of `role`'s lanes; whether anything moved.
    fn advance(&mut self, role: usize) -> bool {
        let mut moved = false;
        let mut lane = 0;
        while lane < self.lanes[role].len() {
            let Some(head) = self.ready(role, lane) else {
                lane += 1;
                continue;
            };
            let complete = match self.program.roles[role].instructions[head as usize].action {
                Action::Compute(_) => true,
                Action::Collective(c) => self.join(role, c),
                Action::Exchange(e) => self.exchange(role, head, e),
            };
            if complete {
                if !self.done[role][head as usize] {
                    self.finish(role, head);
                }
                moved = true;
                lane = 0;
            } else {
                lane += 1;
            }
        }
        moved
    }

    /// Completes a spanning collective for every member once all have reached it.
    fn join(&mut self, role: usize, c: u32) -> bool {
        let Some(members) = spanned(self.program, c) else { return true };
        let key = communicator(self.program, c);
        let mut heads = Vec::new();
        for member in members.iter().map(|m| *m as usize).filter(|m| *m != role) {
            let at = (0..self.lanes[member].len()).filter_map(|l| self.ready(member, l)).find(|head| {
                matches!(self.program.roles[member].instructions[*head as usize].action,
                    Action::Collective(other) if communicator(self.program, other) == key)
            });
            match at {
                Some(head) => heads.push((member, head)),
                None => return false,
            }
        }
        for (member, head) in heads {
            self.finish(member, head);
        }
        true
    }

    /// Matches halves with the peer's exchange, if it is at the head of one of its lanes.
    fn exchange(&mut self, role: usize, head: u32, e: u32) -> bool {
        let mine = &self.program.exchanges[e as usize];
        let other = (role as i64 + i64::from(mine.peer)) as usize;
        let met = (0..self.lanes[other].len()).filter_map(|l| self.ready(other, l)).find_map(|h| match self
            .program
            .roles[other]
            .instructions[h as usize]
            .action
        {
            Action::Exchange(x) if self.program.exchanges[x as usize].peer == -mine.peer => Some((h, x)),
            _ => None,
        });
        let (mut sent, mut received) =
            self.halves.get(&(role, head)).copied().unwrap_or((mine.send.is_none(), mine.receive.is_none()));
        if let Some((h, x)) = met {
            let theirs = &self.program.exchanges[x as usize];
            let (mut their_sent, mut their_received) = self
                .halves
                .get(&(other, h))
                .copied()
                .unwrap_or((theirs.send.is_none(), theirs.receive.is_none()));
            if !sent && !their_received {
                (sent, their_received) = (true, true);
            }
            if !received && !their_sent {
                (received, their_sent) = (true, true);
            }
            self.halves.insert((other, h), (their_sent, their_received));
            if their_sent && their_received {
                self.finish(other, h);
            }
        }
        self.halves.insert((role, head), (sent, received));
        sent && received
    }

    fn run(mut self, rule: Rule) -> Result<(), Fault> {
        loop {
            let mut moved = false;
            for role in 0..self.lanes.len() {
                moved |= self.advance(role);
            }
            if !moved {
                break;
            }
        }
        for (role, lanes) in self.lanes.iter().enumerate() {
            if let Some(head) = lanes.iter().filter_map(|l| l.front()).min() {
                let action = self.program.roles[role].instructions[*head as usize].action;
                let left: usize = lanes.iter().map(VecDeque::len).sum();
                let message = format!(
                    "waits for ever in {}; {left} instructions never run",
                    self.program.kind_name(action)
                );
                return Err(Fault { rule, role, instruction: Some(*head), message });
            }
        }
        Ok(())
    }
}
