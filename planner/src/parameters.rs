//! The parameters of a chain's blocks: how each is stored, what they and their states hold, what a step does to them. The
//! invariant: bytes are those of `algebra::stage_memory`; whole and split are in its terms.

use crate::chain::{Chain, Transit};
use crate::work::Step;
use meshwright_algebra::{ALIGNMENT, Scope, storages};
use meshwright_ir::program::Kernel;
use meshwright_ir::{AxisSet, DType, Storage};
use std::collections::{BTreeMap, BTreeSet};

/// Parameters of a block that together hold less than this share of its parameters may stay whole, if that takes less
/// time: they are biases and norms. A guess.
const SMALL: u64 = 256;

/// What a block's own parameters take.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Own {
    /// Bytes of them and their states, and were no state split among replicas.
    pub(crate) states: [u64; 2],
    /// Elements of gradients by the axes they are summed over and how they are stored.
    pub(crate) groups: BTreeMap<(AxisSet, Storage), u64>,
    /// Per step: the update, and gathering what replicas updated in pieces.
    pub(crate) update: u64,
    pub(crate) gather: u64,
}

impl Chain<'_, '_> {
    /// How each parameter of a class is stored: as the point asks wherever it may be, but small ones whole where splitting
    /// them takes more time than it saves.
    pub(crate) fn stored(&self, class: usize) -> Vec<Storage> {
        let scene = self.scene();
        let (model, mesh) = (&scene.job.model, &scene.point.mesh);
        let params = self.classes[class].params();
        let stages = scene.point.degree(meshwright_ir::Axis::Pp);
        let wanted = self.keeping.storage(&scene.point);
        let split = storages(model, class as u32, params, stages, mesh, wanted);
        let small = self.small(class);
        if !wanted.gradient && !wanted.weight || small.is_empty() {
            return split;
        }
        let mut mixed = split.clone();
        small.iter().for_each(|p| mixed[*p] = Storage::WHOLE);
        if self.in_turn(params, &mixed) < self.in_turn(params, &split) { mixed } else { split }
    }

    /// Positions of a class's small parameters. Those of one op go together, since one kernel makes their gradients; tied
    /// ones are stored like their owners, so they are none of them.
    fn small(&self, class: usize) -> Vec<usize> {
        let params = self.classes[class].params();
        let op = |p: &Scope| p.name.rsplit_once('.').map_or(p.name.clone(), |(op, _)| op.to_string());
        let ties =
            || self.scene().job.model.classes.iter().flat_map(|c| &c.nodes).filter_map(|n| n.tied.as_ref());
        let owns = |p: &Scope| ties().any(|t| t.node == op(p));
        let total: u64 = params.iter().map(|p| p.elements).sum();
        let mut ops: BTreeMap<String, (u64, Vec<usize>)> = BTreeMap::new();
        for (k, p) in params.iter().enumerate().filter(|(_, p)| p.tied.is_none() && !owns(p)) {
            let of = ops.entry(op(p)).or_default();
            *of = (of.0 + p.elements, [&of.1[..], &[k]].concat());
        }
        let mut ops: Vec<(u64, Vec<usize>)> = ops.into_values().collect();
        ops.sort();
        let mut held = 0;
        let fits = |(elements, _): &(u64, Vec<usize>)| {
            held += elements;
            held * SMALL <= total
        };
        ops.into_iter().take_while(fits).flat_map(|(_, members)| members).collect()
    }

    /// What a step moves and computes for these parameters, one after the other.
    fn in_turn(&self, params: &[Scope], storage: &[Storage]) -> u64 {
        let step = self.scene().step(&self.keeping);
        let all: Vec<(&Scope, Storage)> = params.iter().zip(storage.iter().copied()).collect();
        let (own, transit) = (self.own(&all), self.transit(&all));
        let sync: u64 = own.groups.iter().map(|(key, elements)| self.sync(*key, *elements)).sum();
        let passes = step.turns * transit.gather + step.micro_batches * (transit.scatter + transit.add);
        passes + sync + own.update + own.gather
    }

    /// Summing so many gradients at the end of a step.
    pub(crate) fn sync(&self, (axes, storage): (AxisSet, Storage), elements: u64) -> u64 {
        let scene = self.scene();
        let pieces = storage.pieces(&scene.point.mesh);
        scene.step(&self.keeping).sync(axes, elements, (storage, pieces), scene.prices)
    }

    /// What a step does to these parameters of a block.
    pub(crate) fn own(&self, params: &[(&Scope, Storage)]) -> Own {
        let scene = self.scene();
        let (step, prices, mesh) = (scene.step(&self.keeping), scene.prices, &scene.point.mesh);
        let time = |k: &Kernel| prices.kernel(k);
        let stored = |whole: bool| {
            self.states(params.iter().map(|(p, s)| (*p, if whole { Storage::WHOLE } else { *s })))
        };
        let mut own = Own { states: [stored(false), stored(true)], ..Own::default() };
        for (p, storage) in params {
            *own.groups.entry((p.sync, *storage)).or_default() += p.elements;
            own.update += step.update_kernel(p.elements / storage.pieces(mesh), p.decays, &time);
        }
        let gathers = own.groups.iter().map(|((_, storage), n)| step.after_update(*storage, *n, prices));
        own.gather = gathers.sum();
        own
    }

    /// Bytes of these parameters with their states, as the accountant lays them out.
    fn states<'p>(&self, params: impl Iterator<Item = (&'p Scope, Storage)>) -> u64 {
        let training = &self.scene().job.training;
        let mesh = &self.scene().point.mesh;
        let aligned = |dtype: DType, elements: u64| dtype.bytes(elements).align(ALIGNMENT).get();
        let states = u64::from(training.precision.has_master()) + training.optimizer.states();
        let mut gradients: BTreeMap<(AxisSet, Storage), u64> = BTreeMap::new();
        let mut total = 0;
        for (p, storage) in params {
            let (whole, piece) = (p.elements, p.elements / storage.pieces(mesh));
            total += aligned(training.precision.compute(), if storage.weight { piece } else { whole });
            total += states * aligned(DType::F32, piece);
            *gradients.entry((p.sync, storage)).or_default() += if storage.gradient { piece } else { whole };
        }
        total + gradients.values().map(|n| aligned(DType::F32, *n)).sum::<u64>()
    }

    /// What of a block's parameters passes through slots, whoever owns them.
    pub(crate) fn transit(&self, params: &[(&Scope, Storage)]) -> Transit {
        let scene = self.scene();
        let (step, prices, mesh) = (scene.step(&self.keeping), scene.prices, &scene.point.mesh);
        let aligned = |dtype: DType, elements: u64| dtype.bytes(elements).align(ALIGNMENT).get();
        // A second micro-batch, or a second block that shares a parameter, adds to what the first left; on the stage where
        // it does, every slot has room for it.
        let mut nodes = scene.job.model.classes.iter().flat_map(|c| &c.nodes);
        let again = scene.point.micro_batches > 1 || nodes.any(|n| n.tied.is_some());
        let mut transit = Transit::default();
        let mut groups: BTreeMap<(AxisSet, Storage), u64> = BTreeMap::new();
        for (p, storage) in params {
            let piece = p.elements / storage.pieces(mesh);
            if storage.weight {
                transit.weights += aligned(step.precision.compute(), p.elements);
            }
            if storage.gradient {
                transit.gradients += aligned(DType::F32, p.elements);
                transit.gradients += if again { aligned(DType::F32, piece) } else { 0 };
            }
            *groups.entry((storage.over, *storage)).or_default() += p.elements;
        }
        for ((_, storage), elements) in groups {
            transit.gather += step.each_turn(storage, elements, prices);
            transit.scatter += step.each_backward(storage, elements, prices);
            transit.add += step.adding(storage, elements / storage.pieces(mesh), prices);
        }
        transit
    }

    /// Parameters of a class that are its own where the owners in `mask` are on the same stage; with their storages.
    pub(crate) fn elsewhere(&self, class: usize, owners: &[u32], mask: u64) -> Vec<(&Scope, Storage)> {
        let at = |o: u32| owners.iter().position(|x| *x == o);
        let own = |p: &Scope| self.owner(class, p).and_then(at).is_none_or(|k| mask >> k & 1 == 0);
        let all = self.classes[class].params().iter().zip(self.storage[class].iter().copied());
        all.filter(|(p, _)| own(p)).collect()
    }

    /// Classes that own a class's tied parameters, itself aside.
    pub(crate) fn owners(&self, class: usize) -> Vec<u32> {
        let all: BTreeSet<u32> =
            self.classes[class].params().iter().filter_map(|p| self.owner(class, p)).collect();
        all.into_iter().collect()
    }

    fn owner(&self, class: usize, p: &Scope) -> Option<u32> {
        let owner = self.scene().job.model.tied_to(p.tied.as_ref()?)?.0;
        (owner as usize != class).then_some(owner)
    }
}

impl Step {
    /// Adding so many gradients of each kind to the norm, a kernel for each.
    pub(crate) fn norms(
        &self,
        groups: &BTreeMap<(AxisSet, Storage), u64>,
        mesh: &meshwright_ir::Mesh,
        time: &dyn Fn(&Kernel) -> u64,
    ) -> u64 {
        groups.iter().map(|((_, storage), n)| self.norm(n / storage.pieces(mesh), time)).sum()
    }
}
