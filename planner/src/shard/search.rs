//! Better choices: a random induced forest is taken out, everything else held, and the forest's best strategies are found by
//! dynamic programming at a price on memory; prices are raised on the rows that are broken until the forest fits. The
//! invariant: the choice at hand fits whenever [`Search::fits`] says so, and its cost is exact.

use super::core::Core;
use super::profile::Profile;

/// SplitMix64 (Steele, Lea and Flood 2014).
#[derive(Debug, Clone)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
    /// From 0 to 1.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// A choice under improvement.
#[derive(Debug, Clone)]
pub(crate) struct Search<'c> {
    core: &'c Core,
    pub(crate) choice: Vec<u32>,
    /// Infinite pairs count [`CLASH`] each.
    pub(crate) cost: f64,
    profile: Profile,
    /// What each strategy holds at the going prices.
    toll: Vec<f64>,
    prices: Vec<f64>,
    random: Random,
    /// The forest at hand: its vertices, parents first, and each one's parent with the table of its own strategies by the
    /// parent's.
    forest: Vec<u32>,
    parent: Vec<Option<(u32, u32)>>,
    stamp: Vec<u32>,
    round: u32,
    beside: Vec<u32>,
    message: Vec<Vec<f64>>,
    answer: Vec<Vec<u32>>,
    /// Cells looked at so far: the measure of work.
    pub(crate) work: u64,
}

/// Stands for the cost of a ruled-out pair until it is gone.
const CLASH: f64 = 1e18;

/// How often prices are mended for one forest (a guess).
const TRIES: usize = 8;

/// A price added to one row.
struct Bump {
    row: u32,
    price: f64,
}

impl<'c> Search<'c> {
    pub(crate) fn new(core: &'c Core, choice: Vec<u32>, seed: u64) -> Self {
        let n = core.count();
        let mut search = Self {
            core,
            cost: 0.0,
            profile: Profile::new(&[]),
            toll: vec![0.0; core.cost.len()],
            prices: vec![0.0; core.room.len()],
            random: Random(seed),
            forest: vec![],
            parent: vec![None; n],
            stamp: vec![0; n],
            round: 0,
            beside: vec![0; n],
            message: vec![vec![]; n],
            answer: vec![vec![]; n],
            choice: vec![],
            work: 0,
        };
        search.restart(choice);
        search
    }

    /// Goes on from another choice.
    pub(crate) fn restart(&mut self, choice: Vec<u32>) {
        let held = self.core.held(&choice);
        let over: Vec<i64> = held.iter().zip(&self.core.room).map(|(h, r)| h - r).collect();
        self.profile = Profile::new(&over);
        self.choice = choice;
        self.cost = self.cost_now();
    }

    fn cost_now(&self) -> f64 {
        let core = self.core;
        let mut total = 0.0;
        for v in 0..core.count() {
            let p = self.choice[v] as usize;
            total += core.costs(v)[p] as f64;
            for near in core.near[v].iter().filter(|n| n.first) {
                total += core.tables[near.table as usize].float_row(p)
                    [self.choice[near.to as usize] as usize]
                    .min(CLASH);
            }
        }
        total
    }

    /// Sets the price of memory per row.
    pub(crate) fn price(&mut self, prices: &[f64]) {
        self.prices.copy_from_slice(prices);
        let priced = self.core.priced(prices);
        self.toll = priced.iter().zip(&self.core.cost).map(|(p, c)| p - *c as f64).collect();
    }

    pub(crate) fn fits(&self) -> bool {
        self.profile.top() <= 0 && self.cost < CLASH
    }

    /// Takes a strategy; the cost is the caller's to mend.
    fn take(&mut self, v: usize, k: u32) {
        let old = std::mem::replace(&mut self.choice[v], k) as usize;
        for item in &self.core.items[v] {
            let change = item.held[k as usize] - item.held[old];
            if change != 0 {
                self.profile.add(item.from, item.until, change);
            }
        }
    }

    /// Grows a random induced forest of about so many vertices: one joins if it touches each tree at most once.
    fn grow(&mut self, size: usize) {
        self.round += 1;
        self.forest.clear();
        let n = self.core.count();
        let mut open: Vec<u32> = Vec::new();
        let mut misses = 0;
        while self.forest.len() < size && misses < 20 {
            let v = match open.len() {
                0 => {
                    misses += 1;
                    self.random.below(n) as u32
                }
                k => {
                    let pick = self.random.below(k);
                    open.swap_remove(pick)
                }
            };
            if self.stamp[v as usize] == self.round {
                continue;
            }
            let inside =
                self.core.near[v as usize].iter().filter(|n| self.stamp[n.to as usize] == self.round);
            let mut inside = inside.take(2);
            let parent = match (inside.next(), inside.next()) {
                (None, _) => None,
                (Some(one), None) => Some((one.to, one.back)),
                (Some(_), Some(_)) => continue,
            };
            self.stamp[v as usize] = self.round;
            self.parent[v as usize] = parent;
            self.forest.push(v);
            let near = &self.core.near[v as usize];
            // Hubs would fill the forest with their own leaves alone.
            let skip = if near.len() > 64 { self.random.below(near.len() - 63) } else { 0 };
            open.extend(
                near.iter()
                    .skip(skip)
                    .take(64)
                    .map(|n| n.to)
                    .filter(|w| self.stamp[*w as usize] != self.round),
            );
        }
    }

    /// Cost of every strategy of a vertex, its neighbours outside the forest held.
    fn local(&mut self, v: usize, into: &mut Vec<f64>) {
        let core = self.core;
        into.clear();
        into.extend(core.costs(v).iter().map(|c| *c as f64));
        for near in &core.near[v] {
            if self.stamp[near.to as usize] != self.round {
                let row = core.tables[near.back as usize].float_row(self.choice[near.to as usize] as usize);
                self.work += row.len() as u64;
                into.iter_mut().zip(row).for_each(|(a, b)| *a += b);
            }
        }
    }

    /// Best strategies of the forest at the going prices times `scale`, plus the bumps; by position in the forest.
    fn best(&mut self, locals: &[Vec<f64>], scale: f64, bumps: &[Bump]) -> Vec<u32> {
        let core = self.core;
        for v in &self.forest {
            self.message[*v as usize].clear();
        }
        for k in (0..self.forest.len()).rev() {
            let v = self.forest[k] as usize;
            let mut own = std::mem::take(&mut self.message[v]);
            own.resize(locals[k].len(), 0.0);
            let toll = &self.toll[core.start[v]..core.start[v + 1]];
            for ((o, l), t) in own.iter_mut().zip(&locals[k]).zip(toll) {
                *o += l + scale * t;
            }
            for bump in bumps {
                for item in core.items[v].iter().filter(|i| i.from <= bump.row && bump.row < i.until) {
                    own.iter_mut().zip(&item.held).for_each(|(o, h)| *o += bump.price * *h as f64);
                }
            }
            let answer = &mut self.answer[v];
            answer.clear();
            match self.parent[v] {
                None => {
                    let best = (0..own.len()).min_by(|a, b| own[*a].total_cmp(&own[*b]));
                    answer.push(best.expect("a vertex has a strategy") as u32);
                }
                Some((up, table)) => {
                    let table = &core.tables[table as usize];
                    self.work += table.floats.len() as u64;
                    let to = &mut self.message[up as usize];
                    to.resize(core.start[up as usize + 1] - core.start[up as usize], 0.0);
                    for (q, t) in to.iter_mut().enumerate() {
                        let (mut least, mut at) = (f64::INFINITY, 0);
                        for (p, (o, c)) in own.iter().zip(table.float_row(q)).enumerate() {
                            let sum = o + c;
                            if sum < least {
                                (least, at) = (sum, p as u32);
                            }
                        }
                        *t += least;
                        answer.push(at);
                    }
                }
            }
            self.message[v] = own;
        }
        let mut picked = Vec::with_capacity(self.forest.len());
        let mut taken: Vec<u32> = vec![];
        std::mem::swap(&mut taken, &mut self.beside);
        for v in &self.forest {
            let answer = &self.answer[*v as usize];
            let k = match self.parent[*v as usize] {
                None => answer[0],
                Some((up, _)) => answer[taken[up as usize] as usize],
            };
            taken[*v as usize] = k;
            picked.push(k);
        }
        self.beside = taken;
        picked
    }

    /// Cost of the forest's part for given strategies.
    fn part(&self, locals: &[Vec<f64>], picked: &[u32]) -> f64 {
        let mut total = 0.0;
        for ((v, k), local) in self.forest.iter().zip(picked).zip(locals) {
            total += local[*k as usize].min(CLASH);
            if let Some((up, table)) = self.parent[*v as usize] {
                let up = self.beside[up as usize] as usize;
                total += self.core.tables[table as usize].float_row(up)[*k as usize].min(CLASH);
            }
        }
        total
    }

    fn locals(&mut self) -> Vec<Vec<f64>> {
        let forest = std::mem::take(&mut self.forest);
        let mut all = Vec::with_capacity(forest.len());
        for v in &forest {
            let mut local = Vec::new();
            self.local(*v as usize, &mut local);
            all.push(local);
        }
        self.forest = forest;
        all
    }

    fn put(&mut self, picked: &[u32]) {
        for (at, k) in picked.iter().enumerate() {
            let v = self.forest[at] as usize;
            if self.choice[v] != *k {
                self.take(v, *k);
            }
            self.beside[v] = *k;
        }
    }

    /// Re-optimises a random forest at the going prices, whether it fits or not.
    pub(crate) fn relax(&mut self, size: usize) {
        self.grow(size);
        let locals = self.locals();
        let old: Vec<u32> = self.forest.iter().map(|v| self.choice[*v as usize]).collect();
        self.put(&old);
        let before = self.part(&locals, &old);
        let picked = self.best(&locals, 1.0, &[]);
        let after = self.part(&locals, &picked);
        self.put(&picked);
        self.cost += after - before;
        if before >= CLASH {
            self.cost = self.cost_now();
        }
    }

    /// Re-optimises a random forest, keeping what fits: prices are bumped where rows break, a few times. Takes a choice
    /// that costs no more than `slack` over the one at hand; says whether anything changed.
    pub(crate) fn improve(&mut self, size: usize, slack: f64) -> bool {
        self.grow(size);
        let locals = self.locals();
        let old: Vec<u32> = self.forest.iter().map(|v| self.choice[*v as usize]).collect();
        self.put(&old);
        let before = self.part(&locals, &old);
        let top_before = self.profile.top();
        let mut scale = if self.random.below(4) == 0 { 0.0 } else { 2.0 * self.random.unit() };
        let mut bumps: Vec<Bump> = Vec::new();
        let mut best: Option<(f64, Vec<u32>)> = None;
        let unit = self.unit_price();
        for _ in 0..TRIES {
            let picked = self.best(&locals, scale, &bumps);
            let cost = self.part(&locals, &picked);
            if cost > best.as_ref().map_or(before + slack, |b| b.0) {
                // Fits or not, it is no better: less should be paid for memory.
                if !bumps.is_empty() || scale == 0.0 {
                    break;
                }
                scale *= 0.5 * self.random.unit();
                continue;
            }
            self.put(&picked);
            let top = self.profile.top();
            if top <= 0 || (top_before > 0 && top < top_before) {
                if best.as_ref().is_none_or(|b| cost < b.0) {
                    best = Some((cost, picked));
                }
                if scale == 0.0 && bumps.is_empty() {
                    break;
                }
                scale *= 0.5;
                bumps.iter_mut().for_each(|b| b.price *= 0.6);
            } else {
                let row = self.profile.fullest() as u32;
                match bumps.iter_mut().find(|b| b.row == row) {
                    Some(bump) => bump.price *= 2.5,
                    None => bumps.push(Bump { row, price: unit * (0.2 + self.random.unit()) }),
                }
            }
        }
        match best {
            Some((cost, picked)) if cost <= before + slack => {
                self.put(&picked);
                self.cost += cost - before;
                if before >= CLASH {
                    self.cost = self.cost_now();
                }
                picked != old
            }
            Some(_) | None => {
                self.put(&old);
                false
            }
        }
    }

    /// Raises the prices of rows that are broken, lowers those of rows with room.
    pub(crate) fn raise(&self, prices: &mut [f64]) {
        let unit = self.unit_price() / (1.0 + prices.len() as f64).sqrt();
        let held = self.core.held(&self.choice);
        for ((price, held), room) in prices.iter_mut().zip(held).zip(&self.core.room) {
            let excess = (held - room) as f64 / (*room).max(1) as f64;
            *price = if excess > 0.0 { *price * 1.05 + unit * excess.min(1.0) } else { *price * 0.99 };
        }
    }

    /// A price that matters: the sum of the going prices spread over a few rows, or cost per byte where there are none.
    fn unit_price(&self) -> f64 {
        let sum: f64 = self.prices.iter().sum();
        if sum > 0.0 {
            return sum * 0.1;
        }
        let room = self.core.room.iter().copied().max().unwrap_or(1).max(1);
        self.cost.min(CLASH) / room as f64
    }
}
