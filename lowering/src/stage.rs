//! One stage's code. Tasks and messages are listed in order; a block pass becomes one instruction per step of its
//! expansion; the backward of the last micro-batch is followed, block by block, by the synchronisation of its gradients,
//! so that it overlaps the rest; then tied copies are summed, the global norm is formed, and every parameter is updated.

use crate::Context;
use crate::gathered::Transit;
use crate::hazards::Hazards;
use crate::messages::{Item, Message, Parcel};
use crate::tables::Tables;
use meshwright_algebra::schedules::Task;
use meshwright_algebra::{BlockAction, BlockCode, BlockInstruction, Home, StageMemory, accumulates};
use meshwright_ir::program::{
    Action, Buffer, BufferClass, Code, CodeBuilder, Collective, Exchange, Kernel, Parameter, Stream,
};
use meshwright_ir::{Algorithm, Axis, AxisSet, Bytes, DType, Storage};
use std::collections::{BTreeMap, BTreeSet};

pub(crate) fn lower_stage(context: &Context<'_>, stage: usize, items: &[Item], tables: &mut Tables) -> Code {
    let mut writer = Writer::new(context, stage, tables);
    let last_backward = items.iter().rev().find_map(|i| match i {
        Item::Task(Task::B(k)) => Some(*k),
        _ => None,
    });
    let tasks = items.iter().filter_map(|i| match i {
        Item::Task(task) => Some(*task),
        Item::Message(_) => None,
    });
    writer.plan_turns(&tasks.collect::<Vec<_>>());
    for item in items {
        match item {
            Item::Message(message) => writer.message(message),
            Item::Task(Task::F(k)) => writer.forward(*k),
            Item::Task(Task::B(k)) => writer.backward(*k, Some(*k) == last_backward),
        }
    }
    writer.loss();
    writer.tied_copies();
    writer.norm();
    writer.updates();
    writer.builder.code.arena = writer.memory.peak;
    writer.builder.code
}

pub(crate) struct Writer<'a, 'p> {
    pub(crate) context: &'a Context<'p>,
    tables: &'a mut Tables,
    pub(crate) stage: usize,
    pub(crate) memory: StageMemory,
    pub(crate) classes: Vec<u32>,
    pub(crate) builder: CodeBuilder,
    hazards: Hazards,
    /// Buffers of kept tensors of each micro-batch in flight: by micro-batch, then block, then tensor.
    kept: BTreeMap<u32, Vec<BTreeMap<u32, u32>>>,
    /// Buffers at the stage's boundary and between blocks, by parcel or handover, of the pass under way.
    parcels: BTreeMap<Parcel, u32>,
    /// Buffers of each block's parameters: weight and gradient.
    pub(crate) params: Vec<Vec<(u32, u32)>>,
    pub(crate) written: BTreeSet<u32>,
    pub(crate) transit: Transit,
    pub(crate) loss: Option<u32>,
    pub(crate) norm: u32,
}

impl<'a, 'p> Writer<'a, 'p> {
    fn new(context: &'a Context<'p>, stage: usize, tables: &'a mut Tables) -> Self {
        let memory = context.memory(stage);
        let classes = context.classes(stage).to_vec();
        let streams = tables.streams.len();
        let mut w = Self {
            context,
            tables,
            stage,
            memory,
            classes,
            builder: CodeBuilder::default(),
            hazards: Hazards::new(streams),
            kept: BTreeMap::new(),
            parcels: BTreeMap::new(),
            params: vec![],
            written: BTreeSet::new(),
            transit: Transit::default(),
            loss: None,
            norm: 0,
        };
        w.parameters();
        let [loss, norm] = w.memory.scalars;
        if w.classes.iter().any(|c| context.model.classes[*c as usize].ends_in_loss()) {
            let b = w.buffer("loss", DType::F32, 1, loss, BufferClass::Scalar);
            w.loss = Some(b);
            w.builder.code.loss = w.loss;
        }
        w.norm = w.buffer("gradient-norm", DType::F32, 1, norm, BufferClass::Scalar);
        w.builder.code.norm = Some(w.norm);
        w
    }

    pub(crate) fn code_of(&self, block: usize) -> &'a BlockCode {
        self.context.code(self.global_block(block) as usize)
    }

    pub(crate) fn global_block(&self, block: usize) -> u16 {
        (self.context.plan.stages[self.stage].first as usize + block) as u16
    }

    /// How a parameter of a block of the stage is stored.
    pub(crate) fn storage(&self, block: usize, param: usize) -> Storage {
        self.context.plan.classes[self.classes[block] as usize].storage[param]
    }

    fn buffer(&mut self, name: &str, dtype: DType, elements: u64, offset: Bytes, class: BufferClass) -> u32 {
        let name = self.tables.names.of(name.to_string());
        self.builder.buffer(Buffer { name, dtype, elements, offset, class })
    }

    fn parameters(&mut self) {
        let compute = self.context.plan.job.training.precision.compute();
        let optimizer = self.context.plan.job.training.optimizer;
        for block in 0..self.classes.len() {
            let block_name = self.context.model.block_name(u32::from(self.global_block(block)));
            let mut buffers = Vec::new();
            for (p, scope) in self.code_of(block).params.iter().enumerate() {
                let place = self.memory.blocks[block].params[p].clone();
                if let Some((ob, op)) = place.shared {
                    let owner: (u32, u32) = self.params[ob as usize][op as usize];
                    buffers.push(owner);
                    continue;
                }
                let name = match &scope.tied {
                    // A copy on another stage is the owner's parameter under the owner's name.
                    Some(tie) => format!("{}.{}", tie.class, self.context.owner_param(tie)),
                    None => format!("{block_name}.{}", scope.name),
                };
                let storage = self.storage(block, p);
                let held = scope.elements / storage.pieces(&self.context.plan.mesh);
                let of = |split| if split { held } else { scope.elements };
                let weight =
                    self.buffer(&name, compute, of(storage.weight), place.weight, BufferClass::Weight);
                let master = place.master.map(|at| {
                    self.buffer(&format!("{name}.master"), DType::F32, held, at, BufferClass::Master)
                });
                let moments: Vec<u32> = (0..optimizer.states() as usize)
                    .map(|k| {
                        let name = format!("{name}.moment{k}");
                        self.buffer(&name, DType::F32, held, place.moments[k], BufferClass::Optimizer)
                    })
                    .collect();
                let gradient = self.buffer(
                    &format!("{name}.gradient"),
                    DType::F32,
                    of(storage.gradient),
                    place.gradient,
                    BufferClass::Gradient,
                );
                buffers.push((weight, gradient));
                let (shape, layout, init, decays) =
                    (scope.shape.clone(), scope.layout.clone(), scope.init, scope.decays);
                self.builder.code.parameters.push(Parameter {
                    name,
                    shape,
                    layout,
                    init,
                    decays,
                    storage,
                    weight,
                    master,
                    gradient,
                    moments,
                });
            }
            self.params.push(buffers);
        }
    }

    fn push(
        &mut self,
        action: Action,
        stream: u8,
        micro_batch: u32,
        block: u16,
        reads: &[u32],
        writes: &[u32],
    ) {
        let after = self.hazards.next(&self.builder.code, stream, reads, writes);
        self.builder.push(action, stream, micro_batch as u16, block, reads, writes, &after);
    }

    pub(crate) fn kernel(
        &mut self,
        kernel: Kernel,
        micro_batch: u32,
        block: u16,
        reads: &[u32],
        writes: &[u32],
    ) {
        let k = self.tables.kernels.of(kernel);
        let stream = self.tables.stream(Stream::Compute);
        self.push(Action::Compute(k), stream, micro_batch, block, reads, writes);
    }

    pub(crate) fn collective(
        &mut self,
        c: Collective,
        micro_batch: u32,
        block: u16,
        reads: &[u32],
        writes: &[u32],
    ) {
        let stream = self.tables.stream(Stream::Collective(c.axes));
        let c = self.tables.collectives.of(c);
        self.push(Action::Collective(c), stream, micro_batch, block, reads, writes);
    }

    pub(crate) fn algorithm(&self, axes: AxisSet) -> Algorithm {
        let chosen = |a: Axis| self.context.plan.algorithms.get(&a).copied();
        axes.iter().find_map(chosen).unwrap_or(Algorithm::Ring)
    }

    /// The buffer of a parcel at this stage's boundary; made when it is first named.
    fn parcel(&mut self, parcel: Parcel, outgoing: bool) -> u32 {
        if let Some(b) = self.parcels.get(&parcel) {
            return *b;
        }
        let slots = self.memory.boundary[0].len().max(self.memory.boundary[2].len()) as u32;
        let (offset, name, class) = match (parcel, outgoing) {
            (Parcel::Activation(k), true) => {
                (self.memory.boundary[0][(k % slots) as usize], "send.activation", BufferClass::Workspace)
            }
            (Parcel::Activation(k), false) => {
                let frame = self.memory.frames[(u64::from(k) % self.memory.frames.len() as u64) as usize];
                (frame + self.memory.blocks[0].input, "receive.activation", BufferClass::Activation)
            }
            (Parcel::Gradient(k), true) => {
                (self.memory.boundary[2][(k % slots) as usize], "send.gradient", BufferClass::Workspace)
            }
            (Parcel::Gradient(k), false) => {
                (self.memory.boundary[1][(k % slots) as usize], "receive.gradient", BufferClass::Workspace)
            }
        };
        let dtype = self.context.plan.job.training.precision.compute();
        let b = self.buffer(name, dtype, self.context.boundary_elements, offset, class);
        self.parcels.insert(parcel, b);
        b
    }

    fn message(&mut self, message: &Message) {
        let (send, receive) =
            (message.send.map(|p| self.parcel_sent(p)), message.receive.map(|p| self.parcel(p, false)));
        let elements = self.context.boundary_elements;
        let exchange = Exchange {
            peer: message.peer,
            send: send.map(|_| elements),
            receive: receive.map(|_| elements),
            dtype: self.context.plan.job.training.precision.compute(),
        };
        let micro_batch = match message.send.or(message.receive) {
            Some(Parcel::Activation(k) | Parcel::Gradient(k)) => k,
            None => 0,
        };
        let block =
            if message.peer > 0 { self.global_block(self.classes.len() - 1) } else { self.global_block(0) };
        let x = self.tables.exchanges.of(exchange);
        let stream = self.tables.stream(Stream::Link(message.peer));
        let (reads, writes): (Vec<u32>, Vec<u32>) =
            (send.into_iter().collect(), receive.into_iter().collect());
        self.push(Action::Exchange(x), stream, micro_batch, block, &reads, &writes);
    }

    /// The buffer a task left for sending; it is named no more after this.
    fn parcel_sent(&mut self, parcel: Parcel) -> u32 {
        let b = self.parcel(parcel, true);
        self.parcels.remove(&parcel);
        b
    }

    fn forward(&mut self, k: u32) {
        let blocks = self.classes.len();
        let frame = self.memory.frames[(u64::from(k) % self.memory.frames.len() as u64) as usize];
        let dtype = self.context.plan.job.training.precision.compute();
        self.kept.insert(k, vec![BTreeMap::new(); blocks]);
        let mut input = (self.stage > 0).then(|| self.parcel(Parcel::Activation(k), false));
        self.parcels.remove(&Parcel::Activation(k));
        for block in 0..blocks {
            let output = if block + 1 < blocks {
                let name = format!(
                    "{}/input",
                    self.context.model.block_name(u32::from(self.global_block(block + 1)))
                );
                let offset = frame + self.memory.blocks[block + 1].input;
                Some(self.buffer(
                    &name,
                    dtype,
                    self.context.boundary_elements,
                    offset,
                    BufferClass::Activation,
                ))
            } else {
                (self.stage + 1 < self.context.plan.stages.len())
                    .then(|| self.parcel(Parcel::Activation(k), true))
            };
            let external = External { input, output, output_gradient: None, input_gradient: None };
            let code = self.code_of(block);
            self.take_turn(block);
            self.pass(block, k, &code.forward, &external);
            input = output;
        }
    }

    fn backward(&mut self, k: u32, is_last: bool) {
        let blocks = self.classes.len();
        let dtype = self.context.plan.job.training.precision.compute();
        let mut gradient = (self.stage + 1 < self.context.plan.stages.len())
            .then(|| self.parcel(Parcel::Gradient(k), false));
        self.parcels.remove(&Parcel::Gradient(k));
        for block in (0..blocks).rev() {
            let input_gradient = if block > 0 {
                let name = format!(
                    "{}/input.gradient",
                    self.context.model.block_name(u32::from(self.global_block(block)))
                );
                Some(self.buffer(
                    &name,
                    dtype,
                    self.context.boundary_elements,
                    self.memory.handover[block % 2],
                    BufferClass::Workspace,
                ))
            } else {
                (self.stage > 0).then(|| self.parcel(Parcel::Gradient(k), true))
            };
            let external = External { input: None, output: None, output_gradient: gradient, input_gradient };
            let code = self.code_of(block);
            self.take_turn(block);
            self.take_slot(block);
            self.pass(block, k, &code.backward, &external);
            self.scatter(block, k, is_last);
            if is_last {
                self.synchronise(block, k, false);
            }
            gradient = input_gradient;
        }
        if is_last {
            self.settle();
        }
        self.kept.remove(&k);
    }

    /// Lists one pass of a block.
    fn pass(&mut self, block: usize, k: u32, list: &'a [BlockInstruction], external: &External) {
        let mut local: BTreeMap<u32, u32> = self.kept[&k][block].clone();
        let global = self.global_block(block);
        for i in list {
            let reads: Vec<u32> =
                i.reads.iter().map(|t| self.resolve(block, k, *t, &mut local, external)).collect();
            let writes: Vec<u32> =
                i.writes.iter().map(|t| self.resolve(block, k, *t, &mut local, external)).collect();
            match &i.action {
                BlockAction::Kernel(kernel) => self.accumulating(kernel.clone(), k, global, reads, &writes),
                BlockAction::Collective { kind, axes, elements, dtype } => {
                    let algorithm = self.algorithm(*axes);
                    let c = Collective {
                        kind: *kind,
                        axes: *axes,
                        stages: None,
                        elements: *elements,
                        dtype: *dtype,
                        algorithm,
                    };
                    self.collective(c, k, global, &reads, &writes);
                }
            }
        }
    }

    /// Lists a kernel; one that can accumulate does so from its output's second writer on.
    fn accumulating(&mut self, mut kernel: Kernel, k: u32, block: u16, mut reads: Vec<u32>, writes: &[u32]) {
        if accumulates(&kernel) && writes.iter().any(|b| !self.written.insert(*b)) {
            if let Kernel::Op(op) = &mut kernel {
                op.accumulate = true;
            }
            reads.extend(writes);
        }
        self.kernel(kernel, k, block, &reads, writes);
    }

    /// The buffer of a tensor in this pass.
    fn resolve(
        &mut self,
        block: usize,
        k: u32,
        tensor: u32,
        local: &mut BTreeMap<u32, u32>,
        external: &External,
    ) -> u32 {
        if let Some(b) = local.get(&tensor) {
            return *b;
        }
        let t = &self.code_of(block).tensors[tensor as usize];
        let frame = self.memory.frames[(u64::from(k) % self.memory.frames.len() as u64) as usize];
        let present =
            |b: Option<u32>| b.expect("a block has what it shares with others when its pass is listed");
        let b = match t.home {
            Home::Weight(p) if self.storage(block, p as usize).weight => {
                return present(self.transit.weight(p));
            }
            Home::Weight(p) => return self.params[block][p as usize].0,
            Home::Gradient(p) if self.storage(block, p as usize).gradient => {
                return present(self.transit.gradient(p));
            }
            Home::Gradient(p) => return self.params[block][p as usize].1,
            Home::Loss => return present(self.loss),
            Home::Output => return present(external.output),
            Home::OutputGradient => return present(external.output_gradient),
            Home::InputGradient => return present(external.input_gradient),
            Home::Input => present(external.input),
            Home::Frame(at) => {
                let offset = frame + self.memory.blocks[block].kept + at;
                self.named(block, &t.name, t.dtype, t.elements, offset, BufferClass::Activation)
            }
            Home::Workspace(at) => {
                let offset = self.memory.workspace + at;
                let b = self.named(block, &t.name, t.dtype, t.elements, offset, BufferClass::Workspace);
                local.insert(tensor, b);
                return b;
            }
        };
        local.insert(tensor, b);
        if let Some(kept) = self.kept.get_mut(&k) {
            kept[block].insert(tensor, b);
        }
        b
    }

    pub(crate) fn named(
        &mut self,
        block: usize,
        tensor: &str,
        dtype: DType,
        elements: u64,
        offset: Bytes,
        class: BufferClass,
    ) -> u32 {
        let name = format!("{}/{tensor}", self.context.model.block_name(u32::from(self.global_block(block))));
        self.buffer(&name, dtype, elements, offset, class)
    }
}

/// Buffers a block's pass shares with its neighbours.
struct External {
    input: Option<u32>,
    output: Option<u32>,
    output_gradient: Option<u32>,
    input_gradient: Option<u32>,
}

/// Where one copy of a tied parameter lives.
pub(crate) struct TiedCopy {
    pub(crate) stage: usize,
    pub(crate) block: usize,
    pub(crate) param: usize,
    pub(crate) name: String,
}
