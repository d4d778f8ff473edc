//! The ranks that are simulated, their groups, and what each group's communication costs. Ranks are numbered by their
//! position among the simulated ones; an *instance* is one instruction of one of them. Every cost is that of the real
//! group, also where a representative stands for its members. Costs are resolved here, once.

use crate::options::Ranks;
use crate::tables::Tables;
use meshwright_cost_models::{CostModel, TransferCost};
use meshwright_ir::{Axis, Program};
use std::collections::BTreeMap;

/// Groups of one communicator among the simulated ranks.
pub(crate) struct Groups {
    /// Group of each simulated rank.
    pub(crate) of: Vec<u32>,
    /// Simulated members of each group, ascending.
    pub(crate) members: Vec<Vec<u32>>,
}

/// Who is simulated.
pub(crate) struct World {
    /// Ranks simulated, ascending.
    pub(crate) ranks: Vec<u32>,
    /// Role of each.
    pub(crate) role: Vec<u32>,
    /// First instance of each, and the number of instances.
    pub(crate) base: Vec<usize>,
    /// Distance between the same place in neighbouring stages, in simulated ranks.
    pub(crate) stage_step: i64,
    /// Groups by communicator.
    pub(crate) groups: Vec<Groups>,
    /// Cost of each of the program's collectives for each group.
    pub(crate) collectives: Vec<Vec<TransferCost>>,
    /// Cost of what each of the program's exchanges sends, for each sender.
    pub(crate) sends: Vec<Vec<TransferCost>>,
}

impl World {
    pub(crate) fn of(program: &Program, cost: &CostModel, tables: &Tables, chosen: Ranks) -> Self {
        let mesh = &program.mesh;
        let stride = mesh.stride(Axis::Pp);
        let (ranks, stage_step): (Vec<u32>, i64) = match chosen {
            Ranks::All => ((0..mesh.ranks()).collect(), i64::from(stride)),
            Ranks::Representatives => ((0..mesh.degree(Axis::Pp)).map(|s| s * stride).collect(), 1),
        };
        let role: Vec<u32> = ranks.iter().map(|r| program.role_of(*r) as u32).collect();
        let mut base = vec![0];
        for r in &role {
            base.push(base[base.len() - 1] + program.roles[*r as usize].instructions.len());
        }
        let groups: Vec<Groups> =
            (0..tables.communicators.len()).map(|c| groups(program, tables, &ranks, c)).collect();
        let of_collective = |(c, collective): (usize, &meshwright_ir::program::Collective)| {
            let bytes = collective.dtype.bytes(collective.elements);
            let price = |members: &Vec<u32>| {
                let real = program.members(ranks[members[0] as usize], collective);
                cost.collective_cost(collective.kind, collective.algorithm, bytes, &real)
            };
            groups[tables.communicator[c] as usize].members.iter().map(price).collect()
        };
        let collectives = program.collectives.iter().enumerate().map(of_collective).collect();
        let stages = i64::from(mesh.degree(Axis::Pp));
        let of_exchange = |exchange: &meshwright_ir::program::Exchange| {
            let bytes = exchange.dtype.bytes(exchange.send.unwrap_or(0));
            let price = |(rank, stage): (&u32, &u32)| {
                let exists = (0..stages).contains(&(i64::from(*stage) + i64::from(exchange.peer)));
                let sends = exists && exchange.send.is_some();
                sends.then(|| cost.exchange_cost(bytes, *rank, program.peer(*rank, exchange)))
            };
            ranks.iter().zip(&role).map(|r| price(r).unwrap_or_default()).collect()
        };
        let sends = program.exchanges.iter().map(of_exchange).collect();
        Self { ranks, role, base, stage_step, groups, collectives, sends }
    }

    /// The simulated rank `offset` stages on from simulated rank `i`.
    pub(crate) fn peer(&self, i: u32, offset: i32) -> u32 {
        (i64::from(i) + self.stage_step * i64::from(offset)) as u32
    }

    /// The instance of instruction `k` of simulated rank `i`.
    pub(crate) fn instance(&self, i: u32, k: u32) -> usize {
        self.base[i as usize] + k as usize
    }
}

/// Simulated ranks by group. Ranks of stages that take no part are grouped too, and never meet.
fn groups(program: &Program, tables: &Tables, ranks: &[u32], communicator: usize) -> Groups {
    let (axes, stages) = &tables.communicators[communicator];
    let mesh = &program.mesh;
    let mut positions: BTreeMap<(u32, bool), u32> = BTreeMap::new();
    let mut members: Vec<Vec<u32>> = Vec::new();
    let group = |(i, rank): (usize, &u32)| {
        let first = axes.iter().map(|a| mesh.coord(*rank, a) * mesh.stride(a)).sum::<u32>();
        let part = stages.as_ref().is_none_or(|s| s.contains(&mesh.coord(*rank, Axis::Pp)));
        let g = *positions.entry((rank - first, part)).or_insert_with(|| {
            members.push(Vec::new());
            members.len() as u32 - 1
        });
        members[g as usize].push(i as u32);
        g
    };
    let of = ranks.iter().enumerate().map(group).collect();
    Groups { of, members }
}
