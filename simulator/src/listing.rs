//! Times of ranks that share no device. What an instruction waits for is then fixed by the program: its stream's order,
//! `after`, and those it meets. So a step is a longest path, and no heap of events is needed: each class walks its listing
//! and stops where others have yet to arrive. The checker has shown that this comes to an end (its "crossed order" rule).
//! The invariant: an instruction's start is the latest end among all it waits for, whoever walks first.

use crate::Times;
use crate::world::World;
use meshwright_cost_models::CostModel;
use meshwright_ir::Program;
use meshwright_ir::program::Action;
use std::collections::BTreeMap;

/// Runs the step and returns when everything happened.
pub(crate) fn run(program: &Program, cost: &CostModel, world: &World, slow: &BTreeMap<u32, f64>) -> Times {
    let mut walk = Walk::new(program, cost, world, slow);
    let mut ready: Vec<u32> = (0..world.ranks.len() as u32).rev().collect();
    while let Some(class) = ready.pop() {
        walk.advance(class, &mut ready);
    }
    let through = |(class, role): (usize, &u32)| {
        walk.next[class] as usize == program.roles[*role as usize].instructions.len()
    };
    assert!(world.role.iter().enumerate().all(through), "a checked program runs to its end");
    Times { start: walk.start, end: walk.end }
}

/// An exchange that waits for its other half.
#[derive(Debug, Clone, Copy)]
struct Posted {
    exchange: u32,
    /// Halves still to meet.
    send: bool,
    receive: bool,
}

/// A collective in which some have arrived.
#[derive(Debug, Clone, Copy, Default)]
struct Gathering {
    arrived: u32,
    latest: u64,
}

struct Walk<'a> {
    program: &'a Program,
    world: &'a World,
    /// Time of each kernel, by speed.
    kernels: Vec<Vec<u64>>,
    /// Speed of each class.
    speed: Vec<u32>,
    /// Next instruction of each class.
    next: Vec<u32>,
    /// When each stream of each class is free.
    free: Vec<u64>,
    posted: Vec<Option<Posted>>,
    /// By communicator and group.
    gathering: Vec<Vec<Gathering>>,
    start: Vec<u64>,
    end: Vec<u64>,
}

impl<'a> Walk<'a> {
    fn new(program: &'a Program, cost: &CostModel, world: &'a World, slow: &BTreeMap<u32, f64>) -> Self {
        let times: Vec<u64> = program.kernels.iter().map(|k| cost.kernel(k).time.get()).collect();
        let mut kernels = vec![times];
        let mut known = BTreeMap::from([(1f64.to_bits(), 0u32)]);
        let mut speed = |rank: &u32| {
            let factor = slow.get(rank).copied().unwrap_or(1.0);
            *known.entry(factor.to_bits()).or_insert_with(|| {
                kernels.push(kernels[0].iter().map(|t| slowed(*t, factor)).collect());
                kernels.len() as u32 - 1
            })
        };
        let speed = world.ranks.iter().map(&mut speed).collect();
        let (classes, instances) = (world.ranks.len(), world.base[world.ranks.len()]);
        let gathering = world.groups.iter().map(|g| vec![Gathering::default(); g.members.len()]).collect();
        Self {
            program,
            world,
            kernels,
            speed,
            next: vec![0; classes],
            free: vec![0; classes * program.streams.len()],
            posted: vec![None; classes],
            gathering,
            start: vec![0; instances],
            end: vec![0; instances],
        }
    }

    /// Walks a class's listing on from where it stands, until it has to wait; who no longer has to is `ready`.
    fn advance(&mut self, class: u32, ready: &mut Vec<u32>) {
        let (program, world) = (self.program, self.world);
        let i = class as usize;
        let code = &program.roles[world.role[i] as usize];
        let (streams, first, speed) = (program.streams.len(), world.base[i], self.speed[i] as usize);
        for k in self.next[i] as usize..code.instructions.len() {
            let instruction = &code.instructions[k];
            let stream = i * streams + instruction.stream as usize;
            let ends = &self.end[first..first + k];
            let start =
                code.after(k).iter().fold(self.free[stream], |latest, d| latest.max(ends[*d as usize]));
            self.start[first + k] = start;
            self.next[i] = k as u32;
            let end = match instruction.action {
                Action::Compute(n) => Some(start + self.kernels[speed][n as usize]),
                Action::Collective(c) => self.join(class, c, start, ready),
                Action::Exchange(e) => self.post(class, e, start, ready),
            };
            let Some(end) = end else { return };
            self.end[first + k] = end;
            self.free[stream] = end;
        }
        self.next[i] = code.instructions.len() as u32;
    }

    /// What a class waits in is complete.
    fn complete(&mut self, class: u32, end: u64) {
        let (i, k) = (class as usize, self.next[class as usize]);
        let code = &self.program.roles[self.world.role[i] as usize];
        let stream = code.instructions[k as usize].stream as usize;
        self.end[self.world.instance(class, k)] = end;
        self.free[i * self.program.streams.len() + stream] = end;
        self.next[i] = k + 1;
    }

    /// When a collective that `class` joins at `start` ends, if all have joined.
    fn join(&mut self, class: u32, c: u32, start: u64, ready: &mut Vec<u32>) -> Option<u64> {
        let world = self.world;
        let communicator = world.communicator[c as usize] as usize;
        let groups = &world.groups[communicator];
        let group = groups.of[class as usize] as usize;
        let members = &groups.members[group];
        let gathering = &mut self.gathering[communicator][group];
        gathering.arrived += 1;
        gathering.latest = gathering.latest.max(start);
        if (gathering.arrived as usize) < members.len() {
            return None;
        }
        let end = std::mem::take(gathering).latest + world.collectives[c as usize][group].time().get();
        for member in members.iter().filter(|m| **m != class) {
            self.complete(*member, end);
            ready.push(*member);
        }
        Some(end)
    }

    /// When an exchange that `class` posts at `start` ends, if its halves have met. Both ends walk in listing order, so
    /// what is posted on a link is what meets there next.
    fn post(&mut self, class: u32, e: u32, start: u64, ready: &mut Vec<u32>) -> Option<u64> {
        let (program, world) = (self.program, self.world);
        let exchange = &program.exchanges[e as usize];
        let mut mine =
            Posted { exchange: e, send: exchange.send.is_some(), receive: exchange.receive.is_some() };
        let here = world.instance(class, self.next[class as usize]);
        self.end[here] = start;
        let peer = world.peers[e as usize][class as usize];
        let met = self.posted[peer as usize]
            .filter(|theirs| program.exchanges[theirs.exchange as usize].peer == -exchange.peer);
        if let Some(mut theirs) = met {
            let there = world.instance(peer, self.next[peer as usize]);
            let both = start.max(self.start[there]);
            if mine.send && theirs.receive {
                (mine.send, theirs.receive) = (false, false);
                let moved = both + world.sends[e as usize][class as usize].time().get();
                self.end[here] = self.end[here].max(moved);
                self.end[there] = self.end[there].max(moved);
            }
            if mine.receive && theirs.send {
                (mine.receive, theirs.send) = (false, false);
                let moved = both + world.sends[theirs.exchange as usize][peer as usize].time().get();
                self.end[here] = self.end[here].max(moved);
                self.end[there] = self.end[there].max(moved);
            }
            self.posted[peer as usize] = Some(theirs).filter(|t| t.send || t.receive);
            if self.posted[peer as usize].is_none() {
                self.complete(peer, self.end[there]);
                ready.push(peer);
            }
        }
        if mine.send || mine.receive {
            self.posted[class as usize] = Some(mine);
            return None;
        }
        Some(self.end[here])
    }
}

/// A kernel's time on a rank that computes `factor` times as slowly.
pub(crate) fn slowed(time: u64, factor: f64) -> u64 {
    if factor == 1.0 { time } else { (time as f64 * factor).round() as u64 }
}
