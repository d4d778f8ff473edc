//! Clusters of round numbers, pipelined programs from schedule orders, and traces as text.

use meshwright_algebra::schedules::{Task, order};
use meshwright_ir::program::{
    Action, Buffer, BufferClass, Checked, CodeBuilder, Collective, CollectiveKind, Exchange, Kernel, Program,
    Stream,
};
use meshwright_ir::trace::Trace;
use meshwright_ir::{
    Algorithm, Axis, AxisSet, Bandwidth, Bytes, Cluster, DType, Device, DeviceKind, FlopRate, Level, Mesh,
    Schedule, Time,
};
use std::collections::BTreeMap;

pub(crate) fn bandwidth(x: f64) -> Bandwidth {
    Bandwidth::try_from(x).unwrap()
}

pub(crate) fn level(name: &str, size: u32, bytes_per_second: f64, micros: u64) -> Level {
    let (name, bandwidth) = (name.into(), bandwidth(bytes_per_second));
    Level { name, size, bandwidth, latency: Time::micros(micros), efficiency: 1.0 }
}

/// Devices on which adding n fp32 elements takes n µs (12 bytes each, at 12 MB/s), without launches.
pub(crate) fn cluster(levels: Vec<Level>) -> Cluster {
    Cluster {
        name: "test".into(),
        device: Device {
            name: "unit".into(),
            kind: DeviceKind::Gpu,
            memory: Bytes::gib(80),
            reserved: Bytes::gib(2),
            peak: BTreeMap::from([(DType::F32, FlopRate::try_from(1e12).unwrap())]),
            memory_bandwidth: bandwidth(12e6),
            core_bandwidth: None,
            cores: 1,
            launch: Time::ZERO,
            host: meshwright_ir::Host::default(),
            curves: vec![],
            price_per_hour: None,
            watts: None,
        },
        devices_per_node: levels[0].size,
        levels,
        ranks_per_device: 1,
        sources: BTreeMap::new(),
    }
}

/// One switch without cost.
pub(crate) fn free_network() -> Cluster {
    cluster(vec![level("switch", 4096, 1e18, 0)])
}

/// Eight devices behind NVLink, nodes behind InfiniBand, with H100-like proportions to the unit kernels.
pub(crate) fn nodes(n: u32) -> Cluster {
    cluster(vec![level("nvlink", 8, 450e6, 3), level("infiniband", n, 50e6, 10)])
}

/// One host whose cores and memory bandwidth `ranks` ranks share.
pub(crate) fn host(ranks: u32, cores: u32, memory: f64) -> Cluster {
    let mut host = cluster(vec![level("memory", 1, 4e6, 1)]);
    host.ranks_per_device = ranks;
    host.device.kind = DeviceKind::Cpu;
    host.device.cores = cores;
    host.device.memory_bandwidth = bandwidth(memory);
    host.device.core_bandwidth = Some(bandwidth(12e6));
    host
}

/// What a pipelined program is made of.
#[derive(Debug, Clone)]
pub(crate) struct Pipeline {
    pub(crate) mesh: Mesh,
    pub(crate) schedule: Schedule,
    pub(crate) micro_batches: u32,
    /// Microseconds of a forward and of a backward.
    pub(crate) passes: (u64, u64),
    /// Kernels per pass, with an all-reduce over tp between them where the mesh has tp.
    pub(crate) layers: u32,
    /// Elements of the gradient summed over data axes at the end.
    pub(crate) gradients: u64,
}

impl Pipeline {
    pub(crate) fn new(mesh: &str, schedule: Schedule, micro_batches: u32, passes: (u64, u64)) -> Self {
        Self { mesh: mesh.parse().unwrap(), schedule, micro_batches, passes, layers: 1, gradients: 1000 }
    }

    pub(crate) fn program(&self) -> Checked {
        let stages = self.mesh.degree(Axis::Pp);
        let tp = AxisSet::of(Axis::Tp);
        let data: AxisSet = [Axis::Dp, Axis::Fsdp, Axis::Cp].into_iter().collect();
        let world = data.union(tp).with(Axis::Pp);
        let sum = |axes, elements, algorithm| Collective {
            kind: CollectiveKind::AllReduceSum,
            axes,
            stages: None,
            elements,
            dtype: DType::F32,
            algorithm,
        };
        let exchange = |peer, send, receive| Exchange { peer, send, receive, dtype: DType::F32 };
        let one = Some(1);
        let kernel = |elements| Kernel::Add { elements, dtype: DType::F32 };
        let program = Program {
            mesh: self.mesh,
            tokens: 1,
            micro_batches: self.micro_batches,
            streams: vec![
                Stream::Compute,
                Stream::Link(-1),
                Stream::Link(1),
                Stream::Collective(tp),
                Stream::Collective(data),
                Stream::Collective(world),
            ],
            kernels: vec![kernel(self.passes.0), kernel(self.passes.1), kernel(1)],
            collectives: vec![
                sum(tp, 1, Algorithm::Ring),
                sum(data, self.gradients, Algorithm::Ring),
                sum(world, 1, Algorithm::Tree),
            ],
            exchanges: [-1, 1]
                .into_iter()
                .filter(|_| stages > 1)
                .flat_map(|p| {
                    [exchange(p, one, None), exchange(p, None, one), exchange(p, one, one)].into_iter()
                })
                .collect(),
            names: vec!["x".into()],
            roles: (0..stages).map(|s| self.role(s, stages)).collect(),
        };
        program.check().unwrap_or_else(|e| panic!("{e}"))
    }

    fn role(&self, stage: u32, stages: u32) -> meshwright_ir::program::Code {
        let mut role = Role::default();
        let gradient = role.buffer(self.gradients, BufferClass::Gradient);
        let norm = role.buffer(1, BufferClass::Scalar);
        let tasks = order(self.schedule, stage, stages, self.micro_batches);
        let mut kept = vec![(0, 0); self.micro_batches as usize];
        let mut received = None;
        let last = stages - 1;
        for (n, task) in tasks.iter().enumerate() {
            let (m, from, to, kernel) = match *task {
                Task::F(m) => (m, -1, 1, 0),
                Task::B(m) => (m, 1, -1, 1),
            };
            let exists = |offset: i32| (0..=last as i32).contains(&(stage as i32 + offset));
            let link = |offset: i32| if offset < 0 { (0, 1u8) } else { (3, 2u8) };
            if received.is_none() && exists(from) {
                let (first, stream) = link(from);
                received = Some(role.act(Action::Exchange(first + 1), stream, m, &[], 1, &[]));
            }
            let mut done = (u32::MAX, u32::MAX);
            for layer in 0..self.layers {
                let (mut reads, mut after) = (Vec::new(), Vec::new());
                if layer == 0 {
                    if let Some((buffer, at)) = received.take() {
                        (reads, after) = (vec![buffer], vec![at]);
                    }
                    if let Task::B(m) = task {
                        reads.push(kept[*m as usize].0);
                        after.push(kept[*m as usize].1);
                    }
                } else {
                    (reads, after) = (vec![done.0], vec![done.1]);
                }
                done = role.act(Action::Compute(kernel), 0, m, &reads, 1, &after);
                if self.mesh.degree(Axis::Tp) > 1 {
                    done = role.act(Action::Collective(0), 3, m, &[done.0], 1, &[done.1]);
                }
            }
            if let Task::F(m) = task {
                kept[*m as usize] = done;
            }
            if exists(to) {
                // Send and receive on one link are one exchange when the next task takes from it.
                let next_from = tasks.get(n + 1).map(|t| if matches!(t, Task::F(_)) { -1 } else { 1 });
                let (first, stream) = link(to);
                let both = next_from == Some(to);
                let written = if both { 1 } else { 0 };
                let which = first + if both { 2 } else { 0 };
                let got = role.act(Action::Exchange(which), stream, m, &[done.0], written, &[done.1]);
                received = both.then_some(got);
            }
        }
        let end = role.builder.code.instructions.len() as u32;
        let computed = (0..end).rev().find(|k| role.builder.code.instructions[*k as usize].stream == 0);
        let make = role.write(Action::Compute(2), 0, &[], &[gradient], &[computed.unwrap_or(0)]);
        let reduced = role.write(Action::Collective(1), 4, &[gradient], &[gradient], &[make]);
        let square = role.write(Action::Compute(2), 0, &[gradient], &[norm], &[reduced]);
        let summed = role.write(Action::Collective(2), 5, &[norm], &[norm], &[square]);
        role.write(Action::Compute(2), 0, &[gradient, norm], &[gradient], &[summed]);
        role.builder.code
    }
}

/// A role whose buffers never share memory.
#[derive(Default)]
struct Role {
    builder: CodeBuilder,
}

impl Role {
    fn buffer(&mut self, elements: u64, class: BufferClass) -> u32 {
        let offset = self.builder.code.arena;
        self.builder.code.arena = (offset + DType::F32.bytes(elements)).align(256);
        self.builder.buffer(Buffer { name: 0, dtype: DType::F32, elements, offset, class })
    }
    /// An instruction that writes `written` new buffers of one element; the first of them, and its position.
    fn act(
        &mut self,
        action: Action,
        stream: u8,
        m: u32,
        reads: &[u32],
        written: u32,
        after: &[u32],
    ) -> (u32, u32) {
        let writes: Vec<u32> = (0..written).map(|_| self.buffer(1, BufferClass::Activation)).collect();
        let at = self.builder.push(action, stream, m as u16, 0, reads, &writes, after);
        (writes.first().copied().unwrap_or(u32::MAX), at)
    }
    fn write(&mut self, action: Action, stream: u8, reads: &[u32], writes: &[u32], after: &[u32]) -> u32 {
        self.builder.push(action, stream, 0, 0, reads, writes, after)
    }
}

/// `rank instruction: start–end` in microseconds.
pub(crate) fn listing(trace: &Trace) -> String {
    let micros = |t: Time| t.get() as f64 / 1e6;
    let line = |s: &meshwright_ir::trace::Span| {
        format!("rank {} #{}: {} – {}\n", s.rank, s.instruction, micros(s.start), micros(s.end))
    };
    trace.spans.iter().map(line).collect()
}
