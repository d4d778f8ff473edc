//! Split parameters in transit. A block's split weights are gathered for its turn, as many turns ahead as the plan
//! prefetches; whole gradients of split parameters go to a slot and are summed into the pieces after every backward. The
//! invariant: nothing here orders anything; that a gather waits for its slot, a pass for its weights and a slot for its
//! sum follows from memory, as every wait does.

use crate::stage::Writer;
use meshwright_algebra::{Turn, turns};
use meshwright_ir::program::{BufferClass, Collective, CollectiveKind, Kernel};
use meshwright_ir::{AxisSet, DType};
use std::collections::{BTreeMap, VecDeque};

/// What of a stage's split parameters is whole at the point of listing.
#[derive(Debug, Default)]
pub(crate) struct Transit {
    turns: Vec<Turn>,
    /// Turns whose gathers are listed.
    listed: usize,
    /// The turn under way.
    turn: Option<usize>,
    /// Whole weights of listed turns, by parameter.
    weights: BTreeMap<usize, BTreeMap<u32, u32>>,
    /// Backward passes that used a gradient slot so far.
    slots_used: usize,
    /// Whole gradients of the pass under way, and places of this rank's piece of their sums.
    gradients: BTreeMap<u32, (u32, Option<u32>)>,
    /// Sums that lie in a slot and are yet to be added to their pieces, oldest first.
    sums: VecDeque<Sums>,
}

/// What a backward pass left in a gradient slot.
#[derive(Debug)]
struct Sums {
    slot: usize,
    block: usize,
    micro_batch: u32,
    /// Sums and the pieces they are added to.
    adds: Vec<(Vec<u32>, Vec<u32>)>,
    /// Whether the pieces are complete then.
    is_last: bool,
}

impl Transit {
    /// The whole weight of a parameter of the block whose turn it is.
    pub(crate) fn weight(&self, param: u32) -> Option<u32> {
        self.weights.get(&self.turn?)?.get(&param).copied()
    }
    /// Where the pass under way leaves the whole gradient of a parameter.
    pub(crate) fn gradient(&self, param: u32) -> Option<u32> {
        self.gradients.get(&param).map(|(whole, _)| *whole)
    }
}

impl Writer<'_, '_> {
    /// Finds who has its weights whole, and when.
    pub(crate) fn plan_turns(&mut self, order: &[meshwright_algebra::schedules::Task]) {
        let gathers: Vec<bool> = self.memory.blocks.iter().map(|b| b.gathers()).collect();
        self.transit.turns = turns(order, &gathers, self.context.plan.gathering);
    }

    /// Before a pass of a block: its turn begins, unless it is under way, and gathers of turns to come are listed.
    pub(crate) fn take_turn(&mut self, block: usize) {
        self.transit.gradients.clear();
        if !self.memory.blocks[block].gathers() {
            return;
        }
        let gathering = self.context.plan.gathering;
        let is_mine = |t: &usize| self.transit.turns[*t].block as usize == block;
        let turn = match self.transit.turn {
            Some(t) if is_mine(&t) => t,
            Some(t) if gathering.reshard_after_forward => t + 1,
            None if gathering.reshard_after_forward => 0,
            _ => (0..self.transit.turns.len()).find(is_mine).expect("a block that gathers has a turn"),
        };
        self.transit.turn = Some(turn);
        if gathering.reshard_after_forward {
            self.transit.weights.retain(|t, _| *t >= turn);
        }
        let end = (turn + usize::from(gathering.prefetch) + 1).min(self.transit.turns.len());
        while self.transit.listed < end {
            self.gather(self.transit.listed);
            self.transit.listed += 1;
        }
    }

    /// Lists the gathers of a turn: one for each set of axes that split weights of its block.
    fn gather(&mut self, turn: usize) {
        let Turn { block, micro_batch } = self.transit.turns[turn];
        let block = block as usize;
        let slots = &self.memory.weight_slots;
        let base = match self.context.plan.gathering.reshard_after_forward {
            true => slots[turn % slots.len()],
            false => slots[block],
        };
        let dtype = self.context.plan.job.training.precision.compute();
        let mut groups: BTreeMap<AxisSet, (Vec<u32>, Vec<u32>)> = BTreeMap::new();
        let mut whole = BTreeMap::new();
        let code = self.code_of(block);
        for (p, scope) in code.params.iter().enumerate() {
            let Some(at) = self.memory.blocks[block].params[p].gathered else { continue };
            let name = format!("{}.whole", scope.name);
            let made = self.named(block, &name, dtype, scope.elements, base + at, BufferClass::Gathered);
            let (pieces, wholes) = groups.entry(self.storage(block, p).over).or_default();
            pieces.push(self.params[block][p].0);
            wholes.push(made);
            whole.insert(p as u32, made);
        }
        for (axes, (pieces, wholes)) in groups {
            self.moves(CollectiveKind::AllGather, axes, dtype, (&pieces, &wholes), micro_batch, block);
        }
        self.transit.weights.insert(turn, whole);
    }

    /// Before a backward pass: whole gradients of split parameters get a slot.
    pub(crate) fn take_slot(&mut self, block: usize) {
        let places = &self.memory.blocks[block];
        if !places.scatters() {
            return;
        }
        let slot = self.transit.slots_used % self.memory.gradient_slots.len();
        if self.transit.sums.front().is_some_and(|sums| sums.slot == slot) {
            self.settle_one();
        }
        let base = self.memory.gradient_slots[slot];
        let places = &self.memory.blocks[block];
        let placed: Vec<_> = places.params.iter().map(|p| p.scattered).collect();
        self.transit.slots_used += 1;
        let code = self.code_of(block);
        for (p, scope) in code.params.iter().enumerate() {
            let Some(place) = placed[p] else { continue };
            let (f32, class) = (DType::F32, BufferClass::Gathered);
            let name = format!("{}.gradient.whole", scope.name);
            let whole = self.named(block, &name, f32, scope.elements, base + place.whole, class);
            let piece = place.piece.map(|at| {
                let held = scope.elements / self.storage(block, p).pieces(&self.context.plan.mesh);
                self.named(block, &format!("{}.gradient.sum", scope.name), f32, held, base + at, class)
            });
            self.transit.gradients.insert(p as u32, (whole, piece));
        }
    }

    /// After a backward pass: its gradients of split parameters are summed over their axes, straight into the pieces where
    /// they are the step's first, else by way of the slot. What a slot holds is added when the slot is needed again, so
    /// that the passes between hide the sum.
    pub(crate) fn scatter(&mut self, block: usize, k: u32, is_last: bool) {
        let mut groups: BTreeMap<(AxisSet, bool), [Vec<u32>; 3]> = BTreeMap::new();
        for (p, (whole, piece)) in std::mem::take(&mut self.transit.gradients) {
            let held = self.params[block][p as usize].1;
            let adds = !self.written.insert(held);
            let [wholes, sums, pieces] =
                groups.entry((self.storage(block, p as usize).over, adds)).or_default();
            wholes.push(whole);
            pieces.push(held);
            sums.extend(piece);
        }
        if groups.is_empty() {
            return;
        }
        let mut later = vec![];
        for ((axes, adds), [wholes, sums, pieces]) in groups {
            let into = if adds { &sums } else { &pieces };
            self.moves(CollectiveKind::ReduceScatter, axes, DType::F32, (&wholes, into), k, block);
            if adds {
                later.push((sums, pieces));
            }
        }
        let slot = (self.transit.slots_used - 1) % self.memory.gradient_slots.len();
        self.transit.sums.push_back(Sums { slot, block, micro_batch: k, adds: later, is_last });
    }

    /// Adds what all slots hold.
    pub(crate) fn settle(&mut self) {
        while !self.transit.sums.is_empty() {
            self.settle_one();
        }
    }

    /// Adds what the oldest slot holds; pieces that are complete are summed over what other axes replicate them.
    fn settle_one(&mut self) {
        let Some(Sums { block, micro_batch, adds, is_last, .. }) = self.transit.sums.pop_front() else {
            return;
        };
        for (sums, pieces) in adds {
            let elements = self.elements(&pieces);
            let reads: Vec<u32> = sums.iter().chain(&pieces).copied().collect();
            let kernel = Kernel::Add { elements, dtype: DType::F32 };
            self.kernel(kernel, micro_batch, self.global_block(block), &reads, &pieces);
        }
        if is_last {
            self.synchronise(block, micro_batch, true);
        }
    }

    /// One coalesced collective from pieces to wholes or back.
    fn moves(
        &mut self,
        kind: CollectiveKind,
        axes: AxisSet,
        dtype: DType,
        (from, into): (&[u32], &[u32]),
        k: u32,
        block: usize,
    ) {
        let elements = self.elements(from).max(self.elements(into));
        let algorithm = self.algorithm(axes);
        let c = Collective { kind, axes, stages: None, elements, dtype, algorithm };
        self.collective(c, k, self.global_block(block), from, into);
    }

    /// Elements of several buffers together.
    pub(crate) fn elements(&self, buffers: &[u32]) -> u64 {
        buffers.iter().map(|b| self.builder.code.buffers[*b as usize].elements).sum()
    }
}
