//! Which ranks see the same times: the coarsest equitable partition of the ranks, and of the devices they share, under the
//! program's groups and messages, their costs, and the perturbations of a run. Colour refinement (Weisfeiler and Leman
//! 1968; Paige and Tarjan 1987): ranks start coloured by role and speed, and are told apart by the colours of those they
//! meet, to a fixed point. The invariant: two ranks of one class run the same instructions at the same times, so one
//! stands for all. Refinement runs over [`Cells`], so its cost follows what breaks symmetry and not the world.

use crate::cells::Cells;
use crate::options::{Options, Ranks};
use crate::tables::{Communicator, communicators};
use meshwright_cost_models::CostModel;
use meshwright_ir::program::Action;
use meshwright_ir::{Axis, Program};
use std::collections::BTreeMap;

/// Ranks that see the same times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Class {
    /// The first of them, which is simulated.
    pub representative: u32,
    /// How many there are.
    pub ranks: u32,
}

/// The world in classes.
#[derive(Debug, Clone)]
pub struct Partition {
    classes: Vec<Class>,
    pub(crate) cells: Cells,
    /// Class of each cell.
    class_of: Vec<u32>,
}

impl Partition {
    /// The classes that `options` asks for. Panics when a factor of `options.slow` is no finite number above zero.
    pub fn of(program: &Program, cost: &CostModel, options: &Options) -> Self {
        let sound = |(rank, factor): (&u32, &f64)| {
            assert!(factor.is_finite() && *factor > 0.0, "rank {rank} slowed by a factor of {factor}");
        };
        options.slow.iter().for_each(sound);
        let slow = options.slow.iter().filter(|(rank, f)| **f != 1.0 && **rank < program.mesh.ranks());
        let slow: BTreeMap<u32, f64> = slow.map(|(rank, factor)| (*rank, *factor)).collect();
        let whole = options.ranks == Ranks::All;
        let cells = Cells::of(program, cost, &slow, whole);
        // Stages differ, so as many cells as stages are the coarsest there can be.
        let colours = match whole || cells.len() == program.roles.len() {
            true => (0..cells.len() as u32).collect(),
            false => Refinement::new(program, cost, &cells).run(&slow),
        };
        let mut number: BTreeMap<u32, u32> = BTreeMap::new();
        let mut classes: Vec<Class> = Vec::new();
        let class_of = (0..cells.len() as u32).map(|cell| {
            let class = *number.entry(colours[cell as usize]).or_insert(classes.len() as u32);
            match classes.get_mut(class as usize) {
                Some(class) => class.ranks += cells.ranks(cell),
                None => classes.push(Class { representative: cells.rank(cell), ranks: cells.ranks(cell) }),
            }
            class
        });
        let class_of = class_of.collect();
        Self { classes, cells, class_of }
    }

    /// The classes, by representative.
    pub fn classes(&self) -> &[Class] {
        &self.classes
    }

    /// Position of a rank's class.
    pub fn class_of(&self, rank: u32) -> usize {
        self.class_of[self.cells.of_rank(rank) as usize] as usize
    }

    /// The rank that is simulated in place of this one.
    pub fn representative_of(&self, rank: u32) -> u32 {
        self.classes[self.class_of(rank)].representative
    }

    /// Instructions of one rank of each class.
    pub fn instructions(&self, program: &Program) -> u64 {
        let of = |c: &Class| program.code_of(c.representative).instructions.len() as u64;
        self.classes.iter().map(of).sum()
    }

    /// Of each group over some cells that is not like an earlier one: its classes, ascending, each with its ranks in it.
    pub(crate) fn distinct(&self, groups: &[Vec<(u32, u32)>]) -> Vec<Vec<(u32, u32)>> {
        let mut seen = vec![false; self.classes.len()];
        let mut kept = Vec::new();
        for cells in groups {
            if std::mem::replace(&mut seen[self.class_of[cells[0].0 as usize] as usize], true) {
                continue;
            }
            let mut classes: BTreeMap<u32, u32> = BTreeMap::new();
            for (cell, ranks) in cells {
                *classes.entry(self.class_of[*cell as usize]).or_default() += ranks;
            }
            classes.keys().for_each(|c| seen[*c as usize] = true);
            kept.push(classes.into_iter().collect());
        }
        kept
    }
}

/// Groups over `communicator`, those who take part only.
pub(crate) fn groups_of(
    program: &Program,
    cells: &Cells,
    (axes, stages): &Communicator,
) -> Vec<Vec<(u32, u32)>> {
    let mut groups = cells.groups(*axes);
    if let Some(stages) = stages {
        for group in &mut groups {
            group.retain(|(cell, _)| stages.contains(&(program.role_of(cells.rank(*cell)) as u32)));
        }
        groups.retain(|g| !g.is_empty());
    }
    groups
}

/// Some way in which cells meet: in groups, each with what tells its cost from others'.
struct Meeting {
    groups: Vec<Vec<(u32, u32)>>,
    cost: Vec<u32>,
    /// Group of each cell, where its role meets at all.
    of: Vec<Option<u32>>,
}

struct Refinement<'a> {
    program: &'a Program,
    cells: &'a Cells,
    role: Vec<usize>,
    meetings: Vec<Meeting>,
    /// For each cell, the cells at the other ends of its messages, and the levels between.
    peers: Vec<Vec<(u32, u32)>>,
}

impl<'a> Refinement<'a> {
    fn new(program: &'a Program, cost: &CostModel, cells: &'a Cells) -> Self {
        let role: Vec<usize> = (0..cells.len() as u32).map(|c| program.role_of(cells.rank(c))).collect();
        let (keys, communicator) = communicators(program);
        let mut joins = vec![vec![false; program.roles.len()]; keys.len()];
        let mut offsets = vec![Vec::new(); program.roles.len()];
        for (r, code) in program.roles.iter().enumerate() {
            for i in &code.instructions {
                match i.action {
                    Action::Compute(_) => {}
                    Action::Collective(c) => joins[communicator[c as usize] as usize][r] = true,
                    Action::Exchange(e) => {
                        let peer = program.exchanges[e as usize].peer;
                        if !offsets[r].contains(&peer) {
                            offsets[r].push(peer);
                        }
                    }
                }
            }
        }
        let meeting = |(key, joins): (&Communicator, &Vec<bool>)| {
            let groups = groups_of(program, cells, key);
            let cost = if cells.nested { vec![0; groups.len()] } else { routes(cost, cells, &groups) };
            Meeting::new(groups, cost, cells.len(), |cell| joins[role[cell as usize]])
        };
        let mut meetings: Vec<Meeting> = keys.iter().zip(&joins).map(meeting).collect();
        if cost.shares_devices() {
            let groups = cells.devices();
            let cost = vec![0; groups.len()];
            meetings.push(Meeting::new(groups, cost, cells.len(), |_| true));
        }
        let stride = i64::from(program.mesh.stride(Axis::Pp));
        let peers = |cell: u32| {
            let rank = cells.rank(cell);
            let peer = |offset: &i32| {
                let other = (i64::from(rank) + stride * i64::from(*offset)) as u32;
                // Where all nests, the level follows from the stages.
                let level = if cells.nested { 0 } else { cost.cluster().level_between(rank, other) };
                (cells.of_rank(other), level as u32)
            };
            offsets[role[cell as usize]].iter().map(peer).collect()
        };
        let peers = (0..cells.len() as u32).map(peers).collect();
        Self { program, cells, role, meetings, peers }
    }

    /// A colour for each cell.
    fn run(&self, slow: &BTreeMap<u32, f64>) -> Vec<u32> {
        let mut names = Names::default();
        let first = |cell: u32| {
            let factor = slow.get(&self.cells.rank(cell)).map_or(1, |f| f.to_bits());
            let role = self.role[cell as usize] as u32;
            names.of(vec![role, factor as u32, (factor >> 32) as u32])
        };
        let mut colours: Vec<u32> = (0..self.cells.len() as u32).map(first).collect();
        let mut known = names.len();
        loop {
            let (finer, count) = self.refine(&colours);
            if count == known {
                return colours;
            }
            (colours, known) = (finer, count);
            debug_assert!(known <= self.cells.len() && known >= self.program.roles.len());
        }
    }

    /// Colours by own colour and the colours met, and how many there are.
    fn refine(&self, colours: &[u32]) -> (Vec<u32>, usize) {
        let met: Vec<Vec<u32>> = self.meetings.iter().map(|m| m.colours(colours)).collect();
        let mut names = Names::default();
        let finer = |cell: usize| {
            let mut signature = vec![colours[cell]];
            for (meeting, met) in self.meetings.iter().zip(&met) {
                signature.extend(meeting.of[cell].map(|g| met[g as usize]));
            }
            for (peer, level) in &self.peers[cell] {
                signature.extend([colours[*peer as usize], *level]);
            }
            names.of(signature)
        };
        let finer = (0..colours.len()).map(finer).collect();
        (finer, names.len())
    }
}

impl Meeting {
    fn new(groups: Vec<Vec<(u32, u32)>>, cost: Vec<u32>, cells: usize, meets: impl Fn(u32) -> bool) -> Self {
        let mut of = vec![None; cells];
        for (g, group) in groups.iter().enumerate() {
            for (cell, _) in group.iter().filter(|(cell, _)| meets(*cell)) {
                of[*cell as usize] = Some(g as u32);
            }
        }
        Self { groups, cost, of }
    }

    /// A colour for each group: what it costs, and how many ranks of which colour it has.
    fn colours(&self, colours: &[u32]) -> Vec<u32> {
        let mut names = Names::default();
        let name = |(group, cost): (&Vec<(u32, u32)>, &u32)| {
            let mut has: Vec<(u32, u32)> = group.iter().map(|(c, n)| (colours[*c as usize], *n)).collect();
            has.sort_unstable();
            let alike = has.chunk_by(|a, b| a.0 == b.0);
            let counts = alike.flat_map(|run| [run[0].0, run.iter().map(|(_, n)| n).sum()]);
            names.of(std::iter::once(*cost).chain(counts).collect())
        };
        self.groups.iter().zip(&self.cost).map(name).collect()
    }
}

/// Numbers groups by the levels between neighbours in rank order, from which every cost of a group follows.
fn routes(cost: &CostModel, cells: &Cells, groups: &[Vec<(u32, u32)>]) -> Vec<u32> {
    let cluster = cost.cluster();
    let mut names = Names::default();
    let route = |group: &Vec<(u32, u32)>| {
        let mut ranks: Vec<u32> = group.iter().map(|(cell, _)| cells.rank(*cell)).collect();
        ranks.sort_unstable();
        let level = |pair: &[u32]| match cluster.device_of(pair[0]) == cluster.device_of(pair[1]) {
            true => 0,
            false => 1 + cluster.level_between(pair[0], pair[1]) as u32,
        };
        names.of(ranks.windows(2).map(level).collect())
    };
    groups.iter().map(route).collect()
}

/// Numbers for distinct lists, in order of appearance.
#[derive(Default)]
struct Names(BTreeMap<Vec<u32>, u32>);

impl Names {
    fn of(&mut self, list: Vec<u32>) -> u32 {
        let next = self.0.len() as u32;
        *self.0.entry(list).or_insert(next)
    }
    fn len(&self) -> usize {
        self.0.len()
    }
}
