//! Solving: presolve, then bound and choice side by side. One hand raises the bound and hands over the choices its messages
//! decode to; the other mends and improves them; when the gap between the two rules strategies out, both start again on what
//! is left, and what is small enough is branched on. The invariant: an answer's choice has been through [`evaluate`], its
//! bound through exact arithmetic.

use super::ascent::Ascent;
use super::branch;
use super::core::Core;
use super::instance::{Instance, Score, evaluate};
use super::net::Net;
use super::presolve::presolve;
use super::search::{Random, Search};
use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// How long to go on.
#[derive(Clone, Copy)]
pub struct Effort<'s> {
    /// Two hands at once if 2 or more; otherwise they take turns, and only work decides when.
    pub threads: usize,
    /// Sweeps of the bound after which to stop, if ever: what makes an answer repeatable.
    pub sweeps: Option<u64>,
    /// Asked often; the answer so far is given once it says yes.
    pub stop: &'s (dyn Fn() -> bool + Sync),
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Best choice, and what it amounts to. It is feasible unless none such was found.
    pub best: Option<(Vec<u32>, Score)>,
    /// No feasible choice costs less.
    pub lower_bound: u128,
    /// Why there is no feasible choice, if that is proved.
    pub infeasible: Option<String>,
    /// What presolve left: vertices, edges, memory rows.
    pub left: [usize; 3],
}

impl Answer {
    /// Whether nothing can be better.
    pub fn proved(&self) -> bool {
        self.infeasible.is_some()
            || self.best.as_ref().is_some_and(|(_, s)| s.feasible && s.cost <= self.lower_bound)
    }
}

/// Solves an instance as well as effort allows.
pub fn solve(instance: &Instance, effort: Effort<'_>) -> Answer {
    let mut net = Net::new(instance);
    let cheapest = instance
        .nodes
        .iter()
        .map(|n| n.costs.iter().enumerate().min_by_key(|(_, c)| **c).map_or(0, |(k, _)| k as u32));
    let fallback: Vec<u32> = cheapest.collect();
    let fallback = evaluate(instance, &fallback).map(|score| (fallback, score));
    if let Err(why) = presolve(&mut net, effort.stop) {
        return Answer { best: fallback, lower_bound: 0, infeasible: Some(why), left: [0; 3] };
    }
    let left = net.left();
    let edges: usize = left.iter().map(|v| net.vertices[*v as usize].near.len()).sum();
    let mut state = State { instance, best: fallback, bound: 0, sweeps: 0 };
    let left = [left.len(), edges / 2, net.held.len()];
    let infeasible = rounds(&mut state, net, effort);
    Answer { best: state.best, lower_bound: state.bound.max(0) as u128, infeasible, left }
}

/// What is known so far.
struct State<'i> {
    instance: &'i Instance,
    best: Option<(Vec<u32>, Score)>,
    bound: i128,
    sweeps: u64,
}

impl State<'_> {
    /// Counts a choice if it is better.
    fn offer(&mut self, whole: Vec<u32>) -> bool {
        let Some(score) = evaluate(self.instance, &whole) else { return false };
        let key = |s: &Score| (!s.feasible, s.ruled_out, s.cost);
        let better = self.best.as_ref().is_none_or(|(_, s)| key(&score) < key(s));
        if better {
            self.best = Some((whole, score));
        }
        better
    }

    fn upper(&self) -> Option<i128> {
        self.best.as_ref().filter(|(_, s)| s.feasible).and_then(|(_, s)| i128::try_from(s.cost).ok())
    }
}

/// A net's choice as the instance's.
pub(super) fn whole(net: &Net, core: &Core, choice: &[u32]) -> Vec<u32> {
    let mut whole = vec![0; net.vertices.len()];
    for (v, k) in core.vertex.iter().zip(choice) {
        whole[*v as usize] = net.vertices[*v as usize].label[*k as usize];
    }
    net.extend(&mut whole);
    whole
}

/// The instance's choice as a core's; strategies that are gone become the first.
fn partial(net: &Net, core: &Core, whole: &[u32]) -> Vec<u32> {
    let own = |v: &u32| {
        let label = &net.vertices[*v as usize].label;
        label.iter().position(|l| *l == whole[*v as usize]).unwrap_or(0) as u32
    };
    core.vertex.iter().map(own).collect()
}

/// What the two hands share.
struct Shared<'a, 'i> {
    state: &'a mut State<'i>,
    prices: Vec<f64>,
    /// Changes of `prices`.
    version: u64,
    /// The latest choice that messages decode to.
    decoded: Option<Vec<u32>>,
}

/// Improves until done or told to stop; `Some` if there is no feasible choice.
fn rounds(state: &mut State<'_>, mut net: Net, effort: Effort<'_>) -> Option<String> {
    let mut prices: HashMap<u32, f64> = HashMap::new();
    loop {
        let core = Core::new(&net);
        if core.count() == 0 {
            state.offer(whole(&net, &core, &[]));
            state.bound = state.bound.max(state.upper().map_or(net.constant, |u| u.min(net.constant)));
            return None;
        }
        let round = round(state, &net, &core, &prices, effort);
        prices = net.row.iter().copied().zip(round.prices).collect();
        let upper = state.upper();
        if upper.is_some_and(|u| u <= state.bound) || (effort.stop)() || spent(state, effort) {
            return None;
        }
        match round.end {
            End::Stopped => return None,
            End::Branch => {
                let offer = &mut |choice: Vec<u32>| {
                    state.offer(choice);
                    state.upper()
                };
                if !branch::finish(net, upper, offer, effort.stop) {
                    return None;
                }
                match state.upper() {
                    Some(upper) => state.bound = state.bound.max(upper),
                    None => {
                        return Some("no choice meets every limit: all were ruled out by branching".into());
                    }
                }
                return None;
            }
            End::Fixed(kept) => {
                net.keep(&kept);
                if presolve(&mut net, effort.stop).is_err() {
                    // Nothing better than what is known is left.
                    state.bound = upper.unwrap_or(state.bound);
                    return None;
                }
            }
        }
    }
}

fn spent(state: &State<'_>, effort: Effort<'_>) -> bool {
    effort.sweeps.is_some_and(|most| state.sweeps >= most)
}

/// Why a round ended.
enum End {
    Stopped,
    /// These strategies are all that a better choice can take.
    Fixed(BTreeMap<u32, Vec<u32>>),
    /// The bound moves no more, and little is left.
    Branch,
}

struct Round {
    prices: Vec<f64>,
    end: End,
}

fn round(
    state: &mut State<'_>,
    net: &Net,
    core: &Core,
    prices: &HashMap<u32, f64>,
    effort: Effort<'_>,
) -> Round {
    let mut ascent = Ascent::new(core);
    for (price, row) in ascent.dual.prices.iter_mut().zip(&net.row) {
        *price = prices.get(row).copied().unwrap_or(0.0);
    }
    let known =
        state.best.as_ref().map(|(c, _)| partial(net, core, c)).unwrap_or_else(|| vec![0; core.count()]);
    let seed = state.sweeps;
    let shared = Mutex::new(Shared { state, prices: vec![], version: 0, decoded: None });
    let over = AtomicBool::new(false);
    let mut raise = Raise {
        net,
        core,
        ascent,
        last_fix: 0.0,
        certified: 0.0,
        checked: 0,
        best_at: 0,
        best_bound: f64::NEG_INFINITY,
    };
    let mut mend = Mend::new(net, core, known, seed);
    let stop = || over.load(Ordering::Relaxed) || (effort.stop)();
    let end = if effort.threads > 1 {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop() {
                    mend.turn(&shared, &stop);
                }
            });
            let end = loop {
                if let Some(end) = raise.turn(&shared, effort) {
                    break end;
                }
            };
            over.store(true, Ordering::Relaxed);
            end
        })
    } else {
        loop {
            if let Some(end) = raise.turn(&shared, effort) {
                break end;
            }
            // The hands take turns by work: as many cells for choices as for the bound.
            let cells: usize = core.edges.len()
                + core
                    .near
                    .iter()
                    .flatten()
                    .map(|n| core.tables[n.table as usize].floats.len())
                    .sum::<usize>();
            let until = mend.search.work + cells as u64;
            while mend.search.work < until && !stop() {
                mend.turn(&shared, &stop);
            }
        }
    };
    Round { prices: raise.ascent.best.prices.clone(), end }
}

/// The hand that raises the bound.
struct Raise<'c> {
    net: &'c Net,
    core: &'c Core,
    ascent: Ascent<'c>,
    /// Bound when strategies were last looked over, when it was last certified.
    last_fix: f64,
    certified: f64,
    checked: u64,
    /// Sweep and bound of the last gain that counts.
    best_at: u64,
    best_bound: f64,
}

/// Sweeps between looks at what the bound proves (a guess: a certificate costs some five sweeps).
const EVERY: u64 = 50;

/// Sweeps without gain after which a small problem is branched on.
const STUCK: u64 = 600;

/// Most vertices of a small problem.
const SMALL: usize = 400;

impl Raise<'_> {
    fn turn(&mut self, shared: &Mutex<Shared<'_, '_>>, effort: Effort<'_>) -> Option<End> {
        let upper = shared.lock().expect("no hand panics").state.upper();
        let relative = upper.map(|u| (u - self.net.constant) as f64);
        let swept = match self.ascent.step(relative, effort.stop) {
            Some(swept) => swept,
            None => {
                return Some(End::Stopped);
            }
        };
        let held = self.core.held(&swept.choice);
        let fits = held.iter().zip(&self.core.room).all(|(h, r)| h <= r);
        let cost = self.core.cost_of(&swept.choice).filter(|_| fits).map(|c| c + self.net.constant);
        let mut s = shared.lock().expect("no hand panics");
        s.state.sweeps += 1;
        if cost.is_some_and(|c| upper.is_none_or(|u| c < u)) {
            s.state.offer(whole(self.net, self.core, &swept.choice));
        }
        // A choice that fits is a better start than one that does not.
        if cost.is_some() || s.decoded.is_none() || self.ascent.sweeps.is_multiple_of(16) {
            s.decoded = Some(swept.choice);
        }
        if self.ascent.sweeps % 16 == 1 {
            s.prices.clone_from(&self.ascent.best.prices);
            s.version += 1;
        }
        let done = upper.is_some_and(|u| self.ascent.bound + self.net.constant as f64 >= u as f64 - 1.0);
        let spent = spent(s.state, effort);
        drop(s);
        if self.ascent.sweeps >= self.checked + EVERY || done || spent {
            self.checked = self.ascent.sweeps;
            if self.certify(shared) {
                return Some(End::Stopped);
            }
            if !spent && let Some(end) = self.fix(upper) {
                return Some(end);
            }
        }
        spent.then_some(End::Stopped)
    }

    /// Proves the bound; true if it meets the best choice.
    fn certify(&mut self, shared: &Mutex<Shared<'_, '_>>) -> bool {
        let gained =
            self.ascent.bound > self.certified + 1e-7 * self.certified.abs() || self.certified == 0.0;
        let proved = gained.then(|| self.ascent.best.certify() + self.net.constant);
        self.certified = self.ascent.bound;
        let mut s = shared.lock().expect("no hand panics");
        let upper = s.state.upper();
        if let Some(proved) = proved {
            // Strategies ruled out for costing no less than the best choice may hold that choice.
            let proved = upper.map_or(proved, |u| proved.min(u));
            s.state.bound = s.state.bound.max(proved);
        }
        upper.is_some_and(|u| u <= s.state.bound)
    }

    /// Looks for strategies that the gap rules out, and for a bound that is stuck.
    fn fix(&mut self, upper: Option<i128>) -> Option<End> {
        let small = self.core.count() <= SMALL;
        if self.ascent.bound > self.best_bound + 1e-6 * self.best_bound.abs() {
            (self.best_at, self.best_bound) = (self.ascent.sweeps, self.ascent.bound);
        }
        let stuck = self.ascent.sweeps > self.best_at + STUCK;
        let upper = upper.map(|u| (u - self.net.constant) as f64);
        if let Some(upper) = upper {
            let gap = upper - self.ascent.bound;
            // Only where the gap has halved since, or all else has been tried.
            if gap < 0.5 * self.last_fix || self.last_fix == 0.0 || stuck {
                self.last_fix = gap;
                let mut dual = self.ascent.best.clone();
                // The costs that beliefs reduce are those of the state after a whole sweep.
                if let Some(swept) = dual.sweep(&|| false) {
                    let margin = 1.0 + 1e-7 * upper.abs();
                    let room = upper - swept.bound + margin;
                    let kept = self.kept(&dual.reduced(), room);
                    let gone: usize =
                        kept.iter().map(|(v, k)| self.net.vertices[*v as usize].width() - k.len()).sum();
                    if gone * 8 > self.core.cost.len() || (stuck && small && gone > 0) {
                        return Some(End::Fixed(kept));
                    }
                }
            }
        }
        (stuck && small).then_some(End::Branch)
    }

    fn kept(&self, reduced: &[f64], room: f64) -> BTreeMap<u32, Vec<u32>> {
        let mut kept = BTreeMap::new();
        for (k, v) in self.core.vertex.iter().enumerate() {
            let own = &reduced[self.core.start[k]..self.core.start[k + 1]];
            let list: Vec<u32> = (0..own.len() as u32).filter(|p| own[*p as usize] <= room).collect();
            if list.len() < own.len() {
                kept.insert(*v, list);
            }
        }
        kept
    }
}

/// The hand that mends and improves choices.
struct Mend<'c> {
    net: &'c Net,
    core: &'c Core,
    search: Search<'c>,
    random: Random,
    version: u64,
    /// Best that this hand has, and its cost.
    own: (f64, Vec<u32>),
    moves: u64,
    /// Prices of its own while nothing fits.
    prices: Vec<f64>,
}

/// Forests between returns to a better start.
const CYCLE: u64 = 500;

impl<'c> Mend<'c> {
    fn new(net: &'c Net, core: &'c Core, known: Vec<u32>, seed: u64) -> Self {
        Self {
            net,
            core,
            search: Search::new(core, known.clone(), seed ^ 0x5eed),
            random: Random(seed),
            version: 0,
            own: (f64::INFINITY, known),
            moves: 0,
            prices: vec![0.0; core.room.len()],
        }
    }

    /// Some forests.
    fn turn(&mut self, shared: &Mutex<Shared<'_, '_>>, stop: &dyn Fn() -> bool) {
        let n = self.core.count();
        if self.moves.is_multiple_of(CYCLE) {
            self.start_over(shared);
        }
        let phase = (self.moves % CYCLE) as f64 / CYCLE as f64;
        self.moves += 1;
        let fits = self.search.fits();
        let size = (4.0 * (n as f64 / 4.0).max(1.0).powf(self.random.unit())) as usize;
        if fits {
            // Worse is accepted at first, by ever less (threshold accepting, Dueck and Scheuer 1990).
            let heat =
                if self.moves / CYCLE % 2 == 1 && phase < 0.5 { 1e-4 * (1.0 - 2.0 * phase) } else { 0.0 };
            self.search.improve(size, heat * self.search.cost.abs() * self.random.unit());
        } else {
            self.search.improve(size, f64::INFINITY);
            if self.moves.is_multiple_of(8) && !self.search.fits() {
                self.search.raise(&mut self.prices);
                self.search.price(&self.prices);
                self.search.relax(n / 2 + 1);
            }
        }
        if self.search.fits() && self.search.cost < self.own.0 {
            self.own = (self.search.cost, self.search.choice.clone());
            if !stop() {
                let mut s = shared.lock().expect("no hand panics");
                let known = s.state.upper();
                let better = |u: i128| self.search.cost + (self.net.constant as f64) < u as f64 - 0.5;
                if known.is_none_or(better) {
                    s.state.offer(whole(self.net, self.core, &self.search.choice));
                }
            }
        }
    }

    /// Takes the latest prices; goes on from the best choice or from what messages decode to now.
    fn start_over(&mut self, shared: &Mutex<Shared<'_, '_>>) {
        let cycle = self.moves / CYCLE;
        let (decoded, best) = {
            let mut s = shared.lock().expect("no hand panics");
            if s.version != self.version {
                self.version = s.version;
                self.prices.clone_from(&s.prices);
                self.search.price(&self.prices);
            }
            let best = s.state.best.as_ref().filter(|(_, score)| score.feasible);
            let best = best.map(|(c, score)| (score.cost as f64, partial(self.net, self.core, c)));
            (s.decoded.take(), best)
        };
        match (decoded, best) {
            (Some(decoded), None) => self.search.restart(decoded),
            (Some(decoded), Some(_)) if cycle.is_multiple_of(3) => self.search.restart(decoded),
            (_, Some((_, best))) if cycle % 3 == 1 => self.search.restart(best),
            _ => {}
        }
    }
}
