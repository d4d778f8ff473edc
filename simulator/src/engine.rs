//! The event loop. Waiting counts say when an instruction is ready; a heap of completions is ordered by (time, rank,
//! instruction); messages start when both halves are posted and collectives when the last member has joined. On shared
//! devices kernels, and the copying part of communication, are jobs of a [`Pool`] instead of fixed durations. The
//! invariant: time never goes back, and every instruction of a checked program runs exactly once.

use crate::Times;
use crate::fluid::Pool;
use crate::tables::{NONE, Tables};
use crate::world::World;
use meshwright_cost_models::{CostModel, KernelCost};
use meshwright_ir::Program;
use meshwright_ir::program::Action;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// Runs the step and returns when everything happened.
pub(crate) fn run(
    program: &Program,
    cost: &CostModel,
    tables: &Tables,
    world: &World,
    slow: &BTreeMap<u32, f64>,
) -> Times {
    let mut engine = Engine::new(program, cost, tables, world, slow);
    engine.run();
    Times { start: engine.start, end: engine.end }
}

/// Not yet.
const NEVER: u64 = u64::MAX;

/// What happens at an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    /// The instruction is complete.
    Done,
    /// Latency is over and the cores' part of communication begins.
    Work,
}

struct Engine<'a> {
    program: &'a Program,
    tables: &'a Tables,
    world: &'a World,
    kernels: Vec<KernelCost>,
    /// Factor on the kernels of each simulated rank.
    factor: Vec<f64>,
    /// Pools by device, where devices are shared.
    pools: Vec<Pool>,
    /// Pool of each simulated rank.
    pool: Vec<u32>,
    /// `time << 64 | rank << 32 | instruction << 1 | event`.
    heap: BinaryHeap<Reverse<u128>>,
    now: u64,
    finished: usize,
    waiting: Vec<u32>,
    /// Exchanges: halves still to match or move. First member of a collective: members joined, then members working.
    pending: Vec<u32>,
    start: Vec<u64>,
    end: Vec<u64>,
}

impl<'a> Engine<'a> {
    fn new(
        program: &'a Program,
        cost: &CostModel,
        tables: &'a Tables,
        world: &'a World,
        slow: &BTreeMap<u32, f64>,
    ) -> Self {
        let total = world.base[world.ranks.len()];
        let cluster = cost.cluster();
        let shared = cost.shares_devices();
        let device = |rank: &u32| if shared { cluster.device_of(*rank) } else { 0 };
        let pool: Vec<u32> = world.ranks.iter().map(device).collect();
        let pools = match pool.last() {
            Some(last) if shared => {
                vec![
                    Pool::new(cluster.device.cores, cluster.device.memory_bandwidth.get());
                    *last as usize + 1
                ]
            }
            _ => Vec::new(),
        };
        let factor = |rank: &u32| {
            let factor = slow.get(rank).copied().unwrap_or(1.0);
            assert!(factor.is_finite() && factor > 0.0, "rank {rank} slowed by a factor of {factor}");
            factor
        };
        Self {
            program,
            tables,
            world,
            kernels: program.kernels.iter().map(|k| cost.kernel(k)).collect(),
            factor: world.ranks.iter().map(factor).collect(),
            pools,
            pool,
            heap: BinaryHeap::new(),
            now: 0,
            finished: 0,
            waiting: world.role.iter().flat_map(|r| &tables.roles[*r as usize].waits).copied().collect(),
            pending: vec![0; total],
            start: vec![NEVER; total],
            end: vec![0; total],
        }
    }

    fn run(&mut self) {
        for i in 0..self.world.ranks.len() as u32 {
            let waits = &self.tables.roles[self.world.role[i as usize] as usize].waits;
            let ready = waits.iter().enumerate().filter(|(_, w)| **w == 0);
            ready.for_each(|(k, _)| self.begin(i, k as u32));
        }
        while let Some((time, i, k, event)) = self.next() {
            assert!(time >= self.now, "time goes back from {} to {time}", self.now);
            self.now = time;
            match event {
                None => self.job_done(i, k),
                Some(Event::Done) => self.finish(i, k),
                Some(Event::Work) => self.work(i, k),
            }
        }
        let total = self.start.len();
        assert_eq!(self.finished, total, "a checked program runs to its end");
    }

    /// The next event by (time, rank, instruction); `None` as its kind is the end of a job.
    fn next(&mut self) -> Option<(u64, u32, u32, Option<Event>)> {
        let now = self.now;
        let job = self.pools.iter_mut().filter_map(|p| p.next(now)).min();
        let timed = self.heap.peek().map(|Reverse(key)| {
            let event = if key & 1 == 1 { Event::Work } else { Event::Done };
            ((key >> 64) as u64, (key >> 32) as u32, (*key as u32) >> 1, event)
        });
        match (timed, job) {
            (Some((t, i, k, event)), job) if job.is_none_or(|j| (t, i, k) <= j) => {
                self.heap.pop();
                Some((t, i, k, Some(event)))
            }
            (_, Some((t, i, k))) => {
                self.pools[self.pool[i as usize] as usize].remove((i, k));
                Some((t, i, k, None))
            }
            (_, None) => None,
        }
    }

    fn push(&mut self, time: u64, i: u32, k: u32, event: Event) {
        let low = u128::from(k) << 1 | u128::from(event == Event::Work);
        self.heap.push(Reverse(u128::from(time) << 64 | u128::from(i) << 32 | low));
    }

    /// Instruction `k` of simulated rank `i` has nothing left to wait for.
    fn begin(&mut self, i: u32, k: u32) {
        self.start[self.world.instance(i, k)] = self.now;
        match self.program.roles[self.world.role[i as usize] as usize].instructions[k as usize].action {
            Action::Compute(n) => self.compute(i, k, n),
            Action::Collective(c) => self.join(i, k, c),
            Action::Exchange(e) => self.post(i, k, e),
        }
    }

    fn compute(&mut self, i: u32, k: u32, kernel: u32) {
        let KernelCost { time, bytes } = self.kernels[kernel as usize];
        let factor = self.factor[i as usize];
        let time = if factor == 1.0 { time.get() } else { (time.get() as f64 * factor).round() as u64 };
        match self.pools.is_empty() {
            true => self.push(self.now + time, i, k, Event::Done),
            false => self.pools[self.pool[i as usize] as usize].add(self.now, (i, k), time, bytes.get()),
        }
    }

    /// Number of the group in which simulated rank `i` joins collective `c`, and its members.
    fn group(&self, i: u32, c: u32) -> (usize, &'a [u32]) {
        let groups = &self.world.groups[self.tables.communicator[c as usize] as usize];
        let group = groups.of[i as usize] as usize;
        (group, &groups.members[group])
    }

    /// Members of the collective that is instruction `k` of simulated rank `i`, each with its instruction.
    fn members(&self, i: u32, k: u32, c: u32) -> impl Iterator<Item = (u32, u32)> + use<'a> {
        let (tables, world) = (self.tables, self.world);
        let role = world.role[i as usize];
        let (_, members) = self.group(i, c);
        members.iter().map(move |m| (*m, tables.joined_by(role, k, world.role[*m as usize])))
    }

    /// The instance in whose place a collective's members are counted.
    fn counter(&self, i: u32, k: u32, c: u32) -> usize {
        let (first, at) = self.members(i, k, c).next().expect("a group has members");
        self.world.instance(first, at)
    }

    fn join(&mut self, i: u32, k: u32, c: u32) {
        let (group, members) = self.group(i, c);
        let counter = self.counter(i, k, c);
        self.pending[counter] += 1;
        if (self.pending[counter] as usize) < members.len() {
            return;
        }
        let cost = self.world.collectives[c as usize][group];
        if !self.pools.is_empty() {
            return self.push(self.now + cost.latency.get(), i, k, Event::Work);
        }
        let end = self.now + cost.time().get();
        for (member, at) in self.members(i, k, c) {
            self.push(end, member, at, Event::Done);
        }
    }

    fn post(&mut self, i: u32, k: u32, e: u32) {
        let exchange = &self.program.exchanges[e as usize];
        let table = &self.tables.roles[self.world.role[i as usize] as usize];
        let peer = self.world.peer(i, exchange.peer);
        let (to, from) = (table.sends_to[k as usize], table.receives_from[k as usize]);
        let here = self.world.instance(i, k);
        self.pending[here] = u32::from(to != NONE) + u32::from(from != NONE);
        if to != NONE && self.start[self.world.instance(peer, to)] != NEVER {
            self.transfer((i, k), (peer, to));
        }
        if from != NONE && self.start[self.world.instance(peer, from)] != NEVER {
            self.transfer((peer, from), (i, k));
        }
        if self.pending[here] == 0 && to == NONE && from == NONE {
            self.push(self.now, i, k, Event::Done);
        }
    }

    /// Both halves of a message are posted.
    fn transfer(&mut self, sender: (u32, u32), receiver: (u32, u32)) {
        let role = self.world.role[sender.0 as usize] as usize;
        let Action::Exchange(e) = self.program.roles[role].instructions[sender.1 as usize].action else {
            unreachable!("a message is sent by an exchange")
        };
        let cost = self.world.sends[e as usize][sender.0 as usize];
        if !self.pools.is_empty() {
            return self.push(self.now + cost.latency.get(), receiver.0, receiver.1, Event::Work);
        }
        let moved = self.now + cost.time().get();
        for (i, k) in [sender, receiver] {
            let at = self.world.instance(i, k);
            self.end[at] = self.end[at].max(moved);
            self.pending[at] -= 1;
            if self.pending[at] == 0 {
                self.push(self.end[at], i, k, Event::Done);
            }
        }
    }

    /// Cores begin to move what a collective or a message carries.
    fn work(&mut self, i: u32, k: u32) {
        let role = self.world.role[i as usize] as usize;
        match self.program.roles[role].instructions[k as usize].action {
            Action::Collective(c) => {
                let cost = self.world.collectives[c as usize][self.group(i, c).0];
                for (member, at) in self.members(i, k, c) {
                    let pool = self.pool[member as usize] as usize;
                    self.pools[pool].add(self.now, (member, at), cost.work.get(), cost.bytes.get());
                }
            }
            Action::Exchange(e) => {
                let (sender, at) = self.sender(i, k, e);
                let role = self.world.role[sender as usize] as usize;
                let Action::Exchange(sent) = self.program.roles[role].instructions[at as usize].action else {
                    unreachable!("a message is sent by an exchange")
                };
                let cost = self.world.sends[sent as usize][sender as usize];
                let pool = self.pool[i as usize] as usize;
                self.pools[pool].add(self.now, (i, k), cost.work.get(), cost.bytes.get());
            }
            Action::Compute(_) => unreachable!("a kernel has no latency"),
        }
    }

    /// The sender of what instruction `k` of simulated rank `i` receives.
    fn sender(&self, i: u32, k: u32, e: u32) -> (u32, u32) {
        let peer = self.world.peer(i, self.program.exchanges[e as usize].peer);
        (peer, self.tables.roles[self.world.role[i as usize] as usize].receives_from[k as usize])
    }

    /// A job on a shared device ended: a kernel, or one rank's part of communication. A collective is complete for all
    /// once everyone's part is, since peers read each other's buffers until then.
    fn job_done(&mut self, i: u32, k: u32) {
        let role = self.world.role[i as usize] as usize;
        match self.program.roles[role].instructions[k as usize].action {
            Action::Compute(_) => self.finish(i, k),
            Action::Collective(c) => {
                let counter = self.counter(i, k, c);
                self.pending[counter] -= 1;
                if self.pending[counter] == 0 {
                    for (member, at) in self.members(i, k, c) {
                        self.finish(member, at);
                    }
                }
            }
            Action::Exchange(e) => {
                for (end, at) in [(i, k), self.sender(i, k, e)] {
                    let instance = self.world.instance(end, at);
                    self.pending[instance] -= 1;
                    if self.pending[instance] == 0 {
                        self.finish(end, at);
                    }
                }
            }
        }
    }

    fn finish(&mut self, i: u32, k: u32) {
        let base = self.world.base[i as usize];
        self.end[base + k as usize] = self.now;
        self.finished += 1;
        let tables = self.tables;
        for d in tables.roles[self.world.role[i as usize] as usize].dependents(k) {
            let waiting = &mut self.waiting[base + *d as usize];
            *waiting -= 1;
            if *waiting == 0 {
                self.begin(i, *d);
            }
        }
    }
}
