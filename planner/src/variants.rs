//! The strategies that a point's stages are cut from: where the fastest choice fits whole, that alone; else every choice
//! on the lower hull of (bytes, cost) from the fastest to the first that fits whole, and the one that holds least. With the
//! levels of recomputation they are the variants of its blocks that may trade memory for time. The invariant: no price per
//! byte has a choice between two neighbours here, up to the first that fits whole.

use crate::candidate::Scenario;
use crate::chain::{Chain, Fit};
use crate::eliminate::Weigh;
use crate::family::{Chosen, Instance};

/// Strategies for a point.
pub(crate) enum Variants<'s, 'a> {
    /// Those worth a look, each of which fits if what is split is kept in some way.
    Fitting(Vec<Variant<'s, 'a>>),
    /// Those that hold least, none of which fits.
    Short(Vec<Variant<'s, 'a>>),
    /// The fastest takes no less than what must be beaten, even with memory to spare. That slower ones take more is a guess:
    /// the solver adds up what in a block overlaps.
    Slow,
    /// There are none.
    None,
}

/// A choice, and its chains by how what is split is kept.
pub(crate) struct Variant<'s, 'a> {
    pub(crate) chosen: Chosen,
    pub(crate) chains: Vec<Chain<'s, 'a>>,
}

impl Variant<'_, '_> {
    pub(crate) fn fits(&self, fit: Fit) -> bool {
        self.chains.iter().any(|chain| chain.fits(fit))
    }
}

/// Most choices taken from a hull: a guess, above what models have.
const MOST: usize = 16;

/// The variants of a point whose stages hold so many frames; also how many block problems they took.
pub(crate) fn variants<'s, 'a>(
    scene: &'s Scenario<'a>,
    instance: &Instance<'_, '_>,
    frames: &'s [u64],
) -> (Variants<'s, 'a>, u64) {
    let mut solved = 0;
    let variant = |chosen: Chosen| scene.variant(instance, chosen, frames);
    let mut choose = |weigh| {
        let (found, n) = instance.choose(weigh);
        solved += n;
        found.map(variant)
    };
    let Some(fast) = choose(Weigh::CostThenMemory) else { return (Variants::None, solved) };
    let hopeless = || !fast.chains.iter().any(|chain| chain.may_beat(scene.beat));
    if !scene.smallest && scene.beat < u64::MAX && hopeless() {
        return (Variants::Slow, solved);
    }
    if !scene.smallest && fast.fits(Fit::Plain) {
        return (Variants::Fitting(vec![fast]), solved);
    }
    let Some(small) = choose(Weigh::MemoryThenCost) else { return (Variants::None, solved) };
    if !small.fits(Fit::Recomputing) {
        // With everything recomputed, states weigh more than frames.
        let (lean, n) = scene.lean(frames);
        let found = match lean.map(variant) {
            Some(lean) if lean.fits(Fit::Recomputing) => {
                Variants::Fitting([fast, lean].into_iter().filter(|v| v.fits(Fit::Recomputing)).collect())
            }
            lean => Variants::Short([Some(small), lean].into_iter().flatten().collect()),
        };
        return (found, solved + n);
    }
    let mut hull = vec![fast, small];
    let mut at = 0;
    while at + 1 < hull.len() && !scene.smallest && hull.len() < MOST {
        match between(&hull[at], &hull[at + 1], &mut choose) {
            Some(found) => hull.insert(at + 1, found),
            None => at += 1,
        }
    }
    // What costs more than one that fits whole is no better, unless it holds least.
    if let Some(whole) = hull.iter().position(|v| v.fits(Fit::Plain)) {
        let last = hull.len() - 1;
        hull = hull.into_iter().enumerate().filter(|(k, _)| *k <= whole || *k == last).map(|x| x.1).collect();
    }
    (Variants::Fitting(hull.into_iter().filter(|v| v.fits(Fit::Recomputing)).collect()), solved)
}

/// The choice at the price per byte at which two weigh the same, if it weighs less and may be worth having.
fn between<'s, 'a>(
    over: &Variant<'s, 'a>,
    under: &Variant<'s, 'a>,
    choose: &mut dyn FnMut(Weigh) -> Option<Variant<'s, 'a>>,
) -> Option<Variant<'s, 'a>> {
    // What costs more than a choice that fits whole, or holds more than one that does not fit at all, is not.
    if over.fits(Fit::Plain) || !under.fits(Fit::Recomputing) {
        return None;
    }
    let (more, less) = (&over.chosen, &under.chosen);
    if more.memory <= less.memory || less.cost <= more.cost {
        return None;
    }
    let weigh = Weigh::Sum { cost: more.memory - less.memory, memory: less.cost - more.cost };
    let found = choose(weigh)?;
    (weigh.of(found.chosen.cost, found.chosen.memory) < weigh.of(more.cost, more.memory)).then_some(found)
}
