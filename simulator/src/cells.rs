//! The world as a product, without its ranks. Where the mesh's axes, the cluster's levels and the devices that ranks share
//! nest, a rank number is a row of digits, and the ranks of any group, host or level are those that differ in some of
//! them. A perturbation breaks few values of few digits; values that nothing tells apart form one block, and a *cell* is
//! one block of each digit. The invariant: cells are an equitable partition (Godsil and Royle 2001, section 9.3), since a
//! group holds all blocks of its digits and one of every other, whichever rank of a cell is asked.

use meshwright_cost_models::CostModel;
use meshwright_ir::{Axis, AxisSet, Program};
use std::collections::BTreeMap;

/// Values of a digit that are alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Block {
    first: u32,
    values: u32,
}

/// One digit of the rank number.
#[derive(Debug, Clone)]
struct Digit {
    axis: Axis,
    /// What one step of it adds to the rank number.
    stride: u32,
    size: u32,
    /// By first value.
    blocks: Vec<Block>,
    /// Block of each value.
    block_of: Vec<u32>,
    /// What one block of it adds to the cell number.
    step: usize,
}

/// Every cell of the world, numbered like its first rank.
#[derive(Debug, Clone)]
pub(crate) struct Cells {
    /// Major first.
    digits: Vec<Digit>,
    count: usize,
    /// Whether axes, levels and shared devices begin at digit boundaries. If not, every cell is one rank.
    pub(crate) nested: bool,
    ranks_per_device: u32,
}

impl Cells {
    /// The coarsest cells that keep ranks of unlike `slow` factors apart; with `whole`, every rank its own.
    pub(crate) fn of(program: &Program, cost: &CostModel, slow: &BTreeMap<u32, f64>, whole: bool) -> Self {
        let mesh = &program.mesh;
        let per_device = cost.cluster().ranks_per_device;
        let boundaries = boundaries(program, cost);
        let nested = boundaries.windows(2).all(|w| w[1].is_multiple_of(w[0]));
        let axes = Axis::ALL.into_iter().map(|a| (a, mesh.stride(a), mesh.degree(a)));
        let cut = |(axis, stride, degree): (Axis, u32, u32)| -> Vec<Digit> {
            let end = stride * degree;
            let inside = boundaries.iter().copied().filter(|b| nested && *b > stride && *b < end);
            let starts: Vec<u32> = std::iter::once(stride).chain(inside).chain([end]).collect();
            let digit = |w: &[u32]| Digit {
                axis,
                stride: w[0],
                size: w[1] / w[0],
                blocks: Vec::new(),
                block_of: Vec::new(),
                step: 0,
            };
            starts.windows(2).rev().map(digit).collect()
        };
        let mut digits: Vec<Digit> = axes.filter(|a| a.2 > 1).flat_map(cut).collect();
        let mut count = 1;
        for digit in digits.iter_mut().rev() {
            digit.step = count;
            if whole || !nested || digit.axis == Axis::Pp {
                digit.blocks = (0..digit.size).map(|first| Block { first, values: 1 }).collect();
                digit.block_of = (0..digit.size).collect();
            } else {
                digit.divide(slow);
            }
            count *= digit.blocks.len();
        }
        Self { digits, count, nested, ranks_per_device: per_device }
    }

    /// How many.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    fn block(&self, digit: &Digit, cell: u32) -> usize {
        cell as usize / digit.step % digit.blocks.len()
    }

    /// The first rank of a cell.
    pub(crate) fn rank(&self, cell: u32) -> u32 {
        self.digits.iter().map(|d| d.blocks[self.block(d, cell)].first * d.stride).sum()
    }

    /// Ranks in a cell.
    pub(crate) fn ranks(&self, cell: u32) -> u32 {
        self.digits.iter().map(|d| d.blocks[self.block(d, cell)].values).product()
    }

    /// The cell of a rank.
    pub(crate) fn of_rank(&self, rank: u32) -> u32 {
        let place = |d: &Digit| d.block_of[(rank / d.stride % d.size) as usize] as usize * d.step;
        self.digits.iter().map(place).sum::<usize>() as u32
    }

    /// Cells by group over `axes`, each with how many of its ranks are in one group. Groups are numbered by first cell,
    /// and their cells ascend.
    pub(crate) fn groups(&self, axes: AxisSet) -> Vec<Vec<(u32, u32)>> {
        self.gather(|d| axes.contains(d.axis))
    }

    /// Cells by shared device, as [`Self::groups`].
    pub(crate) fn devices(&self) -> Vec<Vec<(u32, u32)>> {
        if self.nested {
            return self.gather(|d| d.stride < self.ranks_per_device);
        }
        let mut devices: BTreeMap<u32, Vec<(u32, u32)>> = BTreeMap::new();
        for cell in 0..self.count as u32 {
            devices.entry(self.rank(cell) / self.ranks_per_device).or_default().push((cell, 1));
        }
        devices.into_values().collect()
    }

    /// Cells that differ in the chosen digits alone.
    fn gather(&self, chosen: impl Fn(&Digit) -> bool) -> Vec<Vec<(u32, u32)>> {
        let chosen: Vec<&Digit> = self.digits.iter().filter(|d| chosen(d)).collect();
        let mut place = vec![u32::MAX; self.count];
        let mut groups: Vec<Vec<(u32, u32)>> = Vec::new();
        for cell in 0..self.count as u32 {
            let blocks = || chosen.iter().map(|d| (self.block(d, cell), d));
            let first = cell as usize - blocks().map(|(b, d)| b * d.step).sum::<usize>();
            if place[first] == u32::MAX {
                place[first] = groups.len() as u32;
                groups.push(Vec::new());
            }
            let ranks = blocks().map(|(b, d)| d.blocks[b].values).product();
            groups[place[first] as usize].push((cell, ranks));
        }
        groups
    }
}

impl Digit {
    /// Puts values in one block where swapping them would leave every slow rank's factor in its place.
    fn divide(&mut self, slow: &BTreeMap<u32, f64>) {
        let mut entries: Vec<(u32, u32, u64)> = slow
            .iter()
            .map(|(rank, factor)| {
                let value = rank / self.stride % self.size;
                (value, rank - value * self.stride, factor.to_bits())
            })
            .collect();
        entries.sort_unstable();
        let mut slices: Vec<&[(u32, u32, u64)]> = vec![&[]; self.size as usize];
        for slice in entries.chunk_by(|a, b| a.0 == b.0) {
            slices[slice[0].0 as usize] = slice;
        }
        let mut known: BTreeMap<Vec<(u32, u64)>, u32> = BTreeMap::new();
        for (value, slice) in slices.into_iter().enumerate() {
            let alike = slice.iter().map(|(_, rest, factor)| (*rest, *factor)).collect();
            let block = *known.entry(alike).or_insert(self.blocks.len() as u32);
            match self.blocks.get_mut(block as usize) {
                Some(block) => block.values += 1,
                None => self.blocks.push(Block { first: value as u32, values: 1 }),
            }
            self.block_of.push(block);
        }
    }
}

/// Where digits may begin: at axes, at units of the cluster's levels and at shared devices, all in ranks and ascending.
fn boundaries(program: &Program, cost: &CostModel) -> Vec<u32> {
    let (mesh, cluster) = (&program.mesh, cost.cluster());
    let axes = Axis::ALL.into_iter().map(|a| mesh.stride(a) * mesh.degree(a));
    let levels = (0..cluster.levels.len()).map(|k| cluster.span(k) * cluster.ranks_per_device);
    let inside = levels.chain([cluster.ranks_per_device]).filter(|b| *b < mesh.ranks());
    let mut all: Vec<u32> = axes.chain(inside).collect();
    all.sort_unstable();
    all.dedup();
    all
}
