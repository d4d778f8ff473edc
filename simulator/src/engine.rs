//! The event loop of ranks that share devices, where a time depends on what else runs. Waiting counts say when an
//! instruction is ready; messages start when both halves are posted and collectives when the last member has joined.
//! Kernels, and the copying part of communication, are jobs of a [`Pool`]; a heap holds the ends of latencies, ordered by
//! (time, class, instruction). The invariants: time never goes back, every instruction of a checked program runs exactly
//! once, and all that happens at one instant has happened before rates are shared anew, so its order does not matter.

use crate::Times;
use crate::fluid::Pool;
use crate::listing::slowed;
use crate::tables::{Meetings, NONE, Waits};
use crate::world::{Devices, World};
use meshwright_cost_models::{CostModel, KernelCost, TransferCost};
use meshwright_ir::Program;
use meshwright_ir::program::Action;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// Runs the step and returns when everything happened.
pub(crate) fn run(
    program: &Program,
    cost: &CostModel,
    world: &World,
    devices: &Devices,
    slow: &BTreeMap<u32, f64>,
) -> Times {
    let mut engine = Engine::new(program, cost, (world, devices), slow);
    engine.run();
    Times { start: engine.start, end: engine.end }
}

/// Not yet.
const NEVER: u64 = u64::MAX;

struct Engine<'a> {
    program: &'a Program,
    /// By role.
    waits: Vec<Waits>,
    meetings: Meetings,
    world: &'a World,
    devices: &'a Devices,
    kernels: Vec<KernelCost>,
    /// Factor on the kernels of each class.
    factor: Vec<f64>,
    /// By device.
    pools: Vec<Pool>,
    /// Ends of latencies.
    heap: BinaryHeap<Reverse<(u64, u32, u32)>>,
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
        (world, devices): (&'a World, &'a Devices),
        slow: &BTreeMap<u32, f64>,
    ) -> Self {
        let total = world.base[world.ranks.len()];
        let device = &cost.cluster().device;
        let streams = program.streams.len();
        let waits: Vec<Waits> = program.roles.iter().map(|c| Waits::of(c, streams)).collect();
        let pool = Pool::new(device.cores, device.memory_bandwidth.get());
        Self {
            program,
            meetings: Meetings::of(program),
            waiting: world.role.iter().flat_map(|r| &waits[*r as usize].waits).copied().collect(),
            waits,
            world,
            devices,
            kernels: program.kernels.iter().map(|k| cost.kernel(k)).collect(),
            factor: world.ranks.iter().map(|r| slow.get(r).copied().unwrap_or(1.0)).collect(),
            pools: vec![pool; devices.count],
            heap: BinaryHeap::new(),
            now: 0,
            finished: 0,
            pending: vec![0; total],
            start: vec![NEVER; total],
            end: vec![0; total],
        }
    }

    fn run(&mut self) {
        for i in 0..self.world.ranks.len() as u32 {
            let waits = &self.waits[self.world.role[i as usize] as usize].waits;
            let ready = waits.iter().enumerate().filter(|(_, w)| **w == 0).map(|(k, _)| k as u32);
            ready.collect::<Vec<_>>().into_iter().for_each(|k| self.begin(i, k));
        }
        while let Some((time, i, k, working)) = self.next() {
            assert!(time >= self.now, "time goes back from {} to {time}", self.now);
            self.now = time;
            if working { self.job_done(i, k) } else { self.work(i, k) }
        }
        let total = self.start.len();
        assert_eq!(self.finished, total, "a checked program runs to its end");
    }

    /// The next event by (time, class, instruction), and whether it ends a job instead of a latency.
    fn next(&mut self) -> Option<(u64, u32, u32, bool)> {
        let now = self.now;
        let due = self.pools.iter().filter_map(|p| p.due(now)).min();
        let latency = self.heap.peek().map(|Reverse(event)| *event);
        let job = match due {
            None if latency.is_none_or(|(time, ..)| time > now) => {
                self.pools.iter_mut().filter_map(|p| p.next(now)).min()
            }
            due => due,
        };
        match (latency, job) {
            (Some((t, i, k)), job) if job.is_none_or(|j| (t, i, k) <= j) => {
                self.heap.pop();
                Some((t, i, k, false))
            }
            (_, Some((t, i, k))) => {
                self.pools[self.devices.of[i as usize] as usize].remove((i, k));
                Some((t, i, k, true))
            }
            (_, None) => None,
        }
    }

    /// Starts a job on a class's device: one for each of its ranks there.
    fn add(&mut self, i: u32, k: u32, time: u64, bytes: u64) {
        let ranks = self.devices.ranks[i as usize];
        self.pools[self.devices.of[i as usize] as usize].add(self.now, (i, k), (time, bytes), ranks);
    }

    /// Instruction `k` of class `i` has nothing left to wait for.
    fn begin(&mut self, i: u32, k: u32) {
        self.start[self.world.instance(i, k)] = self.now;
        match self.program.roles[self.world.role[i as usize] as usize].instructions[k as usize].action {
            Action::Compute(n) => {
                let KernelCost { time, bytes } = self.kernels[n as usize];
                self.add(i, k, slowed(time.get(), self.factor[i as usize]), bytes.get());
            }
            Action::Collective(c) => self.join(i, k, c),
            Action::Exchange(e) => self.post(i, k, e),
        }
    }

    /// Number of the group in which class `i` joins collective `c`, and its members.
    fn group(&self, i: u32, c: u32) -> (usize, &'a [u32]) {
        let groups = &self.world.groups[self.world.communicator[c as usize] as usize];
        let group = groups.of[i as usize] as usize;
        (group, &groups.members[group])
    }

    /// Members of the collective that is instruction `k` of class `i`, each with its instruction.
    fn members(&self, i: u32, k: u32, c: u32) -> impl Iterator<Item = (u32, u32)> {
        let (_, members) = self.group(i, c);
        members.iter().map(move |m| {
            let role = |class: u32| self.world.role[class as usize];
            (*m, self.meetings.joined_by(role(i), k, role(*m)))
        })
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
        if self.pending[counter] as usize == members.len() {
            let latency = self.world.collectives[c as usize][group].latency.get();
            self.heap.push(Reverse((self.now + latency, i, k)));
        }
    }

    fn post(&mut self, i: u32, k: u32, e: u32) {
        let peer = self.world.peers[e as usize][i as usize];
        let [to, from] = self.meetings.halves(self.world.role[i as usize], k);
        let here = self.world.instance(i, k);
        self.pending[here] = u32::from(to != NONE) + u32::from(from != NONE);
        if to != NONE && self.start[self.world.instance(peer, to)] != NEVER {
            self.transfer((i, k), (peer, to));
        }
        if from != NONE && self.start[self.world.instance(peer, from)] != NEVER {
            self.transfer((peer, from), (i, k));
        }
        if self.pending[here] == 0 {
            self.finish(i, k);
        }
    }

    /// Both halves of a message are posted.
    fn transfer(&mut self, sender: (u32, u32), receiver: (u32, u32)) {
        let latency = self.sent(sender).latency.get();
        self.heap.push(Reverse((self.now + latency, receiver.0, receiver.1)));
    }

    /// Cost of what an exchange sends.
    fn sent(&self, (i, k): (u32, u32)) -> TransferCost {
        let role = self.world.role[i as usize] as usize;
        let Action::Exchange(e) = self.program.roles[role].instructions[k as usize].action else {
            unreachable!("a message is sent by an exchange")
        };
        self.world.sends[e as usize][i as usize]
    }

    /// Cores begin to move what a collective or a message carries.
    fn work(&mut self, i: u32, k: u32) {
        let role = self.world.role[i as usize] as usize;
        match self.program.roles[role].instructions[k as usize].action {
            Action::Collective(c) => {
                let cost = self.world.collectives[c as usize][self.group(i, c).0];
                for (member, at) in self.members(i, k, c).collect::<Vec<_>>() {
                    self.add(member, at, cost.work.get(), cost.bytes.get());
                }
            }
            Action::Exchange(e) => {
                let cost = self.sent(self.sender(i, k, e));
                self.add(i, k, cost.work.get(), cost.bytes.get());
            }
            Action::Compute(_) => unreachable!("a kernel has no latency"),
        }
    }

    /// The sender of what instruction `k` of class `i` receives.
    fn sender(&self, i: u32, k: u32, e: u32) -> (u32, u32) {
        let peer = self.world.peers[e as usize][i as usize];
        (peer, self.meetings.halves(self.world.role[i as usize], k)[1])
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
                    for (member, at) in self.members(i, k, c).collect::<Vec<_>>() {
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
        let waits = &self.waits[self.world.role[i as usize] as usize];
        let mut ready = Vec::new();
        for d in waits.dependents(k) {
            let waiting = &mut self.waiting[base + *d as usize];
            *waiting -= 1;
            if *waiting == 0 {
                ready.push(*d);
            }
        }
        ready.into_iter().for_each(|d| self.begin(i, d));
    }
}
