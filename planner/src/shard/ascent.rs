//! Raising the bound: prices step from the best ones known along the averaged excess of memory, a share of the gap at a
//! time (the volume algorithm, Barahona and Anbil 2000). The invariant: the best prices and messages are kept.

use super::core::Core;
use super::dual::{Dual, Swept};

/// Weight of the latest sweep in the average (Barahona and Anbil's 0.1).
const FRESH: f64 = 0.1;

/// Sweeps without a better bound before steps shrink (their 20).
const PATIENCE: u32 = 20;

/// See the module.
#[derive(Debug, Clone)]
pub(crate) struct Ascent<'c> {
    core: &'c Core,
    pub(crate) dual: Dual<'c>,
    /// Best bound, and the prices and messages it came with.
    pub(crate) bound: f64,
    pub(crate) best: Dual<'c>,
    average: Vec<f64>,
    /// Share of the gap that a step aims to close.
    pub(crate) ambition: f64,
    since: u32,
    pub(crate) sweeps: u64,
}

impl<'c> Ascent<'c> {
    pub(crate) fn new(core: &'c Core) -> Self {
        let dual = Dual::new(core);
        Self {
            core,
            best: dual.clone(),
            dual,
            bound: f64::NEG_INFINITY,
            average: vec![0.0; core.room.len()],
            ambition: 0.1,
            since: 0,
            sweeps: 0,
        }
    }

    /// One sweep and one step of the prices, towards `upper` if a choice of that cost is known.
    pub(crate) fn step(&mut self, upper: Option<f64>, stop: &dyn Fn() -> bool) -> Option<Swept> {
        let swept = self.dual.sweep(stop)?;
        self.sweeps += 1;
        let held = self.core.held(&swept.choice);
        let excess = held.iter().zip(&self.core.room).map(|(h, r)| (h - r) as f64);
        let fresh = if self.sweeps == 1 { 1.0 } else { FRESH };
        let mut along = 0.0;
        for (average, e) in self.average.iter_mut().zip(excess) {
            *average += fresh * (e - *average);
            along += *average * e;
        }
        self.since += 1;
        if swept.bound > self.bound {
            if swept.bound > self.bound + 1e-6 * self.bound.abs() {
                self.since = 0;
                if along > 0.0 {
                    self.ambition = (self.ambition * 1.1).min(1.0);
                }
            }
            self.bound = swept.bound;
            self.best.clone_from(&self.dual);
        }
        if self.since > PATIENCE {
            self.since = 0;
            self.ambition *= 0.7;
            if self.ambition < 1e-4 {
                self.ambition = 0.01;
            }
        }
        let gap = upper.map_or(0.05 * self.bound.abs(), |u| u - self.bound).max(1e-6 * self.bound.abs());
        let moved = self.average.iter().zip(&self.best.prices).filter(|(e, p)| **e > 0.0 || **p > 0.0);
        let norm: f64 = moved.map(|(e, _)| e * e).sum();
        let step = self.ambition * gap / norm.max(1.0);
        for ((price, best), e) in self.dual.prices.iter_mut().zip(&self.best.prices).zip(&self.average) {
            *price = (best + step * e).max(0.0);
        }
        Some(swept)
    }
}
