//! The strategies that a point's stages are cut from: where the fastest choice fits whole, that alone; else every choice
//! on the lower hull of (bytes, cost) from the fastest to the first that fits whole, and the one that holds least. With the
//! levels of recomputation they are the variants of its blocks that may trade memory for time. The invariant: no price per
//! byte has a choice between two neighbours here, up to the first that fits whole.

use crate::candidate::Scenario;
use crate::chain::{Chain, Fit};
use crate::eliminate::Weigh;
use crate::family::Chosen;

/// A choice and its chain.
pub(crate) type Variant<'s, 'a> = (Chosen, Chain<'s, 'a>);

/// Strategies for a point.
pub(crate) enum Variants<'s, 'a> {
    /// The fastest, which fits without recomputing.
    Whole(Variant<'s, 'a>),
    /// Those worth a look, all of which fit.
    Fitting(Vec<Variant<'s, 'a>>),
    /// Those that hold least, none of which fits.
    Short(Vec<Variant<'s, 'a>>),
    /// There are none.
    None,
}

/// Most choices taken from a hull: a guess, above what models have.
const MOST: usize = 16;

/// The variants of a point whose stages hold so many frames; also how many block problems they took.
pub(crate) fn variants<'s, 'a>(scene: &'s Scenario<'a>, frames: &'s [u64]) -> (Variants<'s, 'a>, u64) {
    let instance = scene.family.instance(scene.load(frames));
    let mut solved = 0;
    let mut choose = |weigh| {
        let (found, n) = instance.choose(weigh);
        solved += n;
        found.map(|chosen| {
            let chain = Chain::new(scene, instance.expanded(&chosen), frames);
            (chosen, chain)
        })
    };
    let Some(fast) = choose(Weigh::CostThenMemory) else { return (Variants::None, solved) };
    if !scene.smallest && fast.1.fits(Fit::Plain) {
        return (Variants::Whole(fast), solved);
    }
    let Some(small) = choose(Weigh::MemoryThenCost) else { return (Variants::None, solved) };
    if !small.1.fits(Fit::Recomputing) {
        // With everything recomputed, states weigh more than frames.
        let (lean, n) = scene.lean(frames);
        let lean = lean.map(|chosen| {
            let chain = Chain::new(scene, instance.expanded(&chosen), frames);
            (chosen, chain)
        });
        let found = match lean {
            Some(lean) if lean.1.fits(Fit::Recomputing) => {
                Variants::Fitting([fast, lean].into_iter().filter(|v| v.1.fits(Fit::Recomputing)).collect())
            }
            lean => Variants::Short([Some(small), lean].into_iter().flatten().collect()),
        };
        return (found, solved + n);
    }
    // Where not even the fastest beats the step that must be beaten, with memory to spare, slower ones will not.
    let worth = !scene.smallest && fast.1.may_beat(scene.beat);
    let mut hull = vec![fast, small];
    let mut at = 0;
    while worth && at + 1 < hull.len() && hull.len() < MOST {
        match between(&hull[at], &hull[at + 1], &mut choose) {
            Some(found) => hull.insert(at + 1, found),
            None => at += 1,
        }
    }
    // What costs more than one that fits whole is no better, unless it holds least.
    if let Some(whole) = hull.iter().position(|v| v.1.fits(Fit::Plain)) {
        let last = hull.len() - 1;
        hull = hull.into_iter().enumerate().filter(|(k, _)| *k <= whole || *k == last).map(|x| x.1).collect();
    }
    (Variants::Fitting(hull.into_iter().filter(|v| v.1.fits(Fit::Recomputing)).collect()), solved)
}

/// The choice at the price per byte at which two weigh the same, if it weighs less and may be worth having.
fn between<'s, 'a>(
    over: &Variant<'s, 'a>,
    under: &Variant<'s, 'a>,
    choose: &mut dyn FnMut(Weigh) -> Option<Variant<'s, 'a>>,
) -> Option<Variant<'s, 'a>> {
    // What costs more than a choice that fits whole, or holds more than one that does not fit at all, is not.
    if over.1.fits(Fit::Plain) || !under.1.fits(Fit::Recomputing) {
        return None;
    }
    let (more, less) = (&over.0, &under.0);
    if more.memory <= less.memory || less.cost <= more.cost {
        return None;
    }
    let weigh = Weigh::Sum { cost: more.memory - less.memory, memory: less.cost - more.cost };
    let found = choose(weigh)?;
    (weigh.of(found.0.cost, found.0.memory) < weigh.of(more.cost, more.memory)).then_some(found)
}
