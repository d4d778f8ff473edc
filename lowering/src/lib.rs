//! Plan to Program. Lowering verifies and replays what the plan records and chooses nothing: blocks are expanded by the
//! algebra, placed at the offsets the memory accountant gave, ordered by the schedule, joined by messages, and followed
//! by gradient synchronisation and the optimizer. Every `after` comes from one rule: an instruction waits for whoever
//! wrote what it reads and whoever used the memory it writes.

mod finish;
mod gathered;
mod hazards;
mod messages;
mod stage;
mod tables;
mod verify;

pub use messages::{Item, Message, Parcel, items};

use meshwright_algebra::{
    BlockCode, Scope, Shapes, StageBlock, StageMemory, StageShape, countable, expand, recompute, schedules,
    stage_memory,
};
use meshwright_ir::program::Stream;
use meshwright_ir::{Axis, AxisSet, Bytes, Invalid, Model, Plan, Program, Recompute};
use std::collections::{BTreeMap, BTreeSet};

/// A plan with everything that follows from it before any instruction is listed.
struct Context<'p> {
    plan: &'p Plan,
    model: &'p Model,
    /// Class of every block of the model.
    blocks: Vec<u32>,
    /// Expansion of each class at each level of recomputation that some block uses, and at none.
    codes: BTreeMap<(u32, Recompute), BlockCode>,
    boundary_elements: u64,
}

/// Writes the program of a plan. Refuses a plan whose layouts do not follow from its strategies, whose conversions do not
/// lead where they say, or whose pieces are not equal.
pub fn lower(plan: &Plan) -> Result<Program, Invalid> {
    plan.check()?;
    let context = Context::new(plan)?;
    if plan.micro_batches > u64::from(u16::MAX) {
        let fix = "use a larger micro-batch or more replicas, so that there are at most 65,535";
        return Err(Invalid::new("plan.micro_batches", plan.micro_batches.to_string(), fix));
    }
    let mut tables = tables::Tables::new(streams(plan));
    let stages = plan.stages.len() as u32;
    let orders: Vec<_> =
        (0..stages).map(|s| schedules::order(plan.schedule, s, stages, plan.micro_batches as u32)).collect();
    let items = messages::items(&orders);
    let roles =
        (0..plan.stages.len()).map(|s| stage::lower_stage(&context, s, &items[s], &mut tables)).collect();
    Ok(Program {
        mesh: plan.mesh,
        tokens: plan.tokens(),
        micro_batches: plan.micro_batches as u32,
        streams: tables.streams,
        kernels: tables.kernels.items,
        collectives: tables.collectives.items,
        exchanges: tables.exchanges.items,
        names: tables.names.items,
        roles,
    })
}

/// Where everything lies on a rank of each stage, without listing an instruction: what `lower` will reach, exactly.
pub fn planned_memory(plan: &Plan) -> Result<Vec<StageMemory>, Invalid> {
    plan.check()?;
    let context = Context::new(plan)?;
    Ok((0..plan.stages.len()).map(|s| context.memory(s)).collect())
}

/// The planned peak of each stage.
pub fn planned_peaks(plan: &Plan) -> Result<Vec<Bytes>, Invalid> {
    Ok(planned_memory(plan)?.iter().map(|m| m.peak).collect())
}

impl<'p> Context<'p> {
    fn new(plan: &'p Plan) -> Result<Self, Invalid> {
        let model = &plan.job.model;
        let shapes = Shapes {
            batch: plan.micro_batch * u64::from(plan.mesh.replicas()),
            sequence: plan.job.training.sequence,
        };
        countable(model, shapes.batch, shapes.sequence, plan.micro_batches)?;
        verify::boundary(plan, &shapes)?;
        let boundary_shape = [shapes.batch, shapes.sequence, model.hidden];
        let local = plan.boundary.local(&boundary_shape, &plan.mesh).map_err(|d| {
            Invalid::new(
                "plan.boundary",
                plan.boundary.to_string(),
                format!("dim {d} does not divide into equal pieces: choose other degrees"),
            )
        })?;
        for (class, choices) in model.classes.iter().zip(&plan.classes) {
            verify::class(class, choices, plan, &shapes)?;
        }
        let dtype = plan.job.training.precision.compute();
        let levels: BTreeSet<Recompute> = plan.recompute.iter().copied().collect();
        let mut codes = BTreeMap::new();
        for (c, (class, choices)) in model.classes.iter().zip(&plan.classes).enumerate() {
            let code = expand(class, choices, &plan.mesh, &shapes, model.hidden, &plan.boundary, dtype);
            codes.extend(levels.iter().map(|l| ((c as u32, *l), recompute(&code, *l))));
            codes.insert((c as u32, Recompute::None), code);
        }
        let context =
            Self { plan, model, blocks: model.blocks(), codes, boundary_elements: local.iter().product() };
        verify::ties(&context)?;
        verify::storage(&context)?;
        Ok(context)
    }

    /// Expansion of a block of the chain, at its level of recomputation.
    fn code(&self, block: usize) -> &BlockCode {
        &self.codes[&(self.blocks[block], self.plan.recompute[block])]
    }

    /// Parameters of a class.
    fn params(&self, class: usize) -> &[Scope] {
        &self.codes[&(class as u32, Recompute::None)].params
    }

    /// Classes of the blocks of a stage.
    fn classes(&self, stage: usize) -> &[u32] {
        let s = &self.plan.stages[stage];
        &self.blocks[s.first as usize..][..s.blocks as usize]
    }

    /// What the memory of a stage depends on beside its blocks.
    fn shape(&self, stage: usize) -> StageShape {
        let (s, stages, m) = (stage as u32, self.plan.stages.len() as u32, self.plan.micro_batches);
        let order = schedules::order(self.plan.schedule, s, stages, m as u32);
        StageShape {
            stage: (s, stages),
            in_flight: schedules::in_flight(&order),
            micro_batches: m,
            boundary_elements: self.boundary_elements,
            precision: self.plan.job.training.precision,
            optimizer: self.plan.job.training.optimizer,
            mesh: self.plan.mesh,
            gathering: self.plan.gathering,
            bucket: self.plan.bucket,
        }
    }

    fn memory(&self, stage: usize) -> StageMemory {
        let first = self.plan.stages[stage].first as usize;
        let block = |(k, class): (usize, &u32)| StageBlock {
            class: *class,
            code: self.code(first + k),
            storage: &self.plan.classes[*class as usize].storage,
        };
        let chain: Vec<StageBlock<'_>> = self.classes(stage).iter().enumerate().map(block).collect();
        stage_memory(self.model, &chain, &self.shape(stage))
    }

    /// Axes over which a rank's squared gradient norms are summed: every active one over which what it counts differs.
    fn norm_axes(&self) -> AxisSet {
        norm_axes(self.plan)
    }
}

fn norm_axes(plan: &Plan) -> AxisSet {
    let split = plan.classes.iter().flat_map(|c| &c.storage).fold(AxisSet::EMPTY, |all, s| all.union(s.over));
    plan.mesh.active().iter().filter(|a| matches!(a, Axis::Pp | Axis::Tp) || split.contains(*a)).collect()
}

/// The streams of a plan: compute, one per group of axes that may synchronise, one per neighbour.
fn streams(plan: &Plan) -> Vec<Stream> {
    let active = plan.mesh.active();
    let mut streams = vec![Stream::Compute];
    streams.extend(active.iter().map(|a| Stream::Collective(AxisSet::of(a))));
    let several = active.without(Axis::Pp).subsets().into_iter().filter(|s| s.iter().count() > 1);
    streams.extend(several.map(Stream::Collective));
    if active.contains(Axis::Pp) {
        let norm = Stream::Collective(norm_axes(plan));
        if !streams.contains(&norm) {
            streams.push(norm);
        }
        streams.extend([Stream::Link(1), Stream::Link(-1)]);
    }
    streams
}

impl Context<'_> {
    /// Name of a tied parameter's owner within its block.
    fn owner_param(&self, tie: &meshwright_ir::Tie) -> String {
        let (class, node) = self.model.tied_to(tie).expect("a checked model's ties exist");
        let node = &self.model.classes[class as usize].nodes[node as usize];
        format!("{}.{}", node.name, node.op.params()[0].name)
    }

    /// Owner and copy of every tied parameter.
    fn tied_copies(&self) -> Vec<(stage::TiedCopy, stage::TiedCopy)> {
        let place = |class: u32, param: &str, name: &str| {
            let block = self.blocks.iter().position(|c| *c == class)? as u32;
            let stage =
                self.plan.stages.iter().position(|s| (s.first..s.first + s.blocks).contains(&block))?;
            let param = self.params(class as usize).iter().position(|p| p.name == param)?;
            Some(stage::TiedCopy {
                stage,
                block: (block - self.plan.stages[stage].first) as usize,
                param,
                name: name.to_string(),
            })
        };
        let mut copies = Vec::new();
        for c in 0..self.model.classes.len() {
            for scope in self.params(c) {
                let Some(tie) = &scope.tied else { continue };
                let Some((class, _)) = self.model.tied_to(tie) else { continue };
                let owner_param = self.owner_param(tie);
                let name = format!("{}.{owner_param}", tie.class);
                copies.extend(place(class, &owner_param, &name).zip(place(c as u32, &scope.name, &name)));
            }
        }
        copies
    }
}
