//! Branch and bound on what the Lagrangian bound leaves of a small problem. Each branch fixes one vertex, is reduced again
//! and bounded again. The invariant: a branch is dropped only if it has no choice, or exact arithmetic shows that it holds none
//! cheaper than the best known.

use super::ascent::Ascent;
use super::core::Core;
use super::net::Net;
use super::presolve::presolve;
use super::solve::whole;
use std::collections::BTreeMap;

/// Sweeps per branch at most (a guess: a deeper branch is cheaper than a better bound).
const SWEEPS: u64 = 200;

/// Searches all of a net for choices cheaper than `upper`; `offer` takes one and gives the best cost known. False if stopped.
pub(crate) fn finish(
    net: Net,
    mut upper: Option<i128>,
    offer: &mut dyn FnMut(Vec<u32>) -> Option<i128>,
    stop: &dyn Fn() -> bool,
) -> bool {
    let mut open = vec![net];
    while let Some(mut net) = open.pop() {
        if stop() {
            return false;
        }
        if presolve(&mut net, stop).is_err() {
            continue;
        }
        let core = Core::new(&net);
        if core.count() == 0 {
            upper = offer(whole(&net, &core, &[]));
            continue;
        }
        let mut ascent = Ascent::new(&core);
        let mut dropped = false;
        for sweep in 1..=SWEEPS {
            let relative = upper.map(|u| (u - net.constant) as f64);
            let Some(swept) = ascent.step(relative, stop) else { return false };
            let fits = core.held(&swept.choice).iter().zip(&core.room).all(|(h, r)| h <= r);
            if fits
                && let Some(cost) = core.cost_of(&swept.choice)
                && upper.is_none_or(|u| cost + net.constant < u)
            {
                upper = offer(whole(&net, &core, &swept.choice));
            }
            let reached = upper.is_some_and(|u| ascent.bound + net.constant as f64 > u as f64 - 1.0);
            if (reached || sweep == SWEEPS)
                && upper.is_some_and(|u| ascent.best.certify() + net.constant >= u)
            {
                dropped = true;
                break;
            }
        }
        if !dropped {
            open.extend(children(&net, &core, &ascent, upper));
        }
    }
    true
}

/// One net per strategy of the vertex whose strategies differ most, the most promising last.
fn children(net: &Net, core: &Core, ascent: &Ascent<'_>, upper: Option<i128>) -> Vec<Net> {
    let mut dual = ascent.best.clone();
    let bound = dual.sweep(&|| false).map_or(f64::NEG_INFINITY, |s| s.bound);
    let reduced = dual.reduced();
    let room = upper.map_or(f64::INFINITY, |u| {
        let upper = (u - net.constant) as f64;
        upper - bound + 1.0 + 1e-7 * upper.abs()
    });
    let own = |k: usize| &reduced[core.start[k]..core.start[k + 1]];
    let second = |k: usize| {
        let mut sorted = own(k).to_vec();
        sorted.sort_by(f64::total_cmp);
        sorted.get(1).copied().unwrap_or(0.0)
    };
    let rank = |k: usize| (second(k).min(room), core.near[k].len());
    let order = |a: &usize, b: &usize| rank(*a).0.total_cmp(&rank(*b).0).then(rank(*a).1.cmp(&rank(*b).1));
    let branched =
        (0..core.count()).filter(|k| core.width(*k) > 1).max_by(order).expect("a core vertex has a choice");
    let mut strategies: Vec<u32> = (0..core.width(branched) as u32).collect();
    strategies.retain(|p| own(branched)[*p as usize] <= room);
    strategies.sort_by(|a, b| own(branched)[*b as usize].total_cmp(&own(branched)[*a as usize]));
    let mut kept = BTreeMap::new();
    for k in (0..core.count()).filter(|k| *k != branched) {
        let list: Vec<u32> = (0..core.width(k) as u32).filter(|p| own(k)[*p as usize] <= room).collect();
        if list.is_empty() {
            return vec![];
        }
        if list.len() < core.width(k) {
            kept.insert(core.vertex[k], list);
        }
    }
    let child = |p: u32| {
        let mut child = net.clone();
        let mut kept = kept.clone();
        kept.insert(core.vertex[branched], vec![p]);
        child.keep(&kept);
        child
    };
    strategies.into_iter().map(child).collect()
}
