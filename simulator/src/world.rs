//! The classes that are simulated, their groups, and what each group's communication costs. A class is numbered by its
//! position in the partition; an *instance* is one instruction of one class. Every cost is that of a real group, of which
//! one class may hold many ranks. Costs are resolved here, once.

use crate::partition::{Partition, groups_of};
use crate::tables::communicators;
use meshwright_cost_models::{CostModel, TransferCost};
use meshwright_ir::program::{Collective, Exchange};
use meshwright_ir::{Axis, Program};

/// No class, or no group.
pub(crate) const NOBODY: u32 = u32::MAX;

/// Groups of one communicator.
pub(crate) struct Groups {
    /// Group of each class; [`NOBODY`] where its stage takes no part.
    pub(crate) of: Vec<u32>,
    /// Classes of each group, ascending.
    pub(crate) members: Vec<Vec<u32>>,
}

/// Devices that ranks share.
pub(crate) struct Devices {
    /// Device of each class: one stands for all alike.
    pub(crate) of: Vec<u32>,
    /// Ranks of each class on one such device.
    pub(crate) ranks: Vec<u32>,
    /// How many stand for all.
    pub(crate) count: usize,
}

/// Who is simulated.
pub(crate) struct World {
    /// Representative of each class, ascending.
    pub(crate) ranks: Vec<u32>,
    /// Role of each.
    pub(crate) role: Vec<u32>,
    /// First instance of each, and the number of instances.
    pub(crate) base: Vec<usize>,
    /// Communicator of each of the program's collectives.
    pub(crate) communicator: Vec<u32>,
    /// Groups by communicator.
    pub(crate) groups: Vec<Groups>,
    /// Cost of each of the program's collectives for each group.
    pub(crate) collectives: Vec<Vec<TransferCost>>,
    /// For each of the program's exchanges, the class at the other end of each class; [`NOBODY`] where there is no stage.
    pub(crate) peers: Vec<Vec<u32>>,
    /// Cost of what each of the program's exchanges sends, for each sender.
    pub(crate) sends: Vec<Vec<TransferCost>>,
    /// Where ranks share devices.
    pub(crate) devices: Option<Devices>,
}

impl World {
    pub(crate) fn of(program: &Program, cost: &CostModel, partition: &Partition) -> Self {
        let mesh = &program.mesh;
        let ranks: Vec<u32> = partition.classes().iter().map(|c| c.representative).collect();
        let role: Vec<u32> = ranks.iter().map(|r| program.role_of(*r) as u32).collect();
        let mut base = vec![0];
        for r in &role {
            base.push(base[base.len() - 1] + program.roles[*r as usize].instructions.len());
        }
        let (keys, communicator) = communicators(program);
        let groups: Vec<Groups> = keys
            .iter()
            .map(|key| {
                Groups::of(&partition.distinct(&groups_of(program, &partition.cells, key)), ranks.len())
            })
            .collect();
        let of_collective = |(c, collective): (usize, &Collective)| {
            let bytes = collective.dtype.bytes(collective.elements);
            let price = |members: &Vec<u32>| {
                let real = program.members(ranks[members[0] as usize], collective);
                cost.collective_cost(collective.kind, collective.algorithm, bytes, &real)
            };
            let members = &groups[communicator[c] as usize].members;
            match members.first() {
                // Where axes and levels nest, all groups of a kind lie alike.
                Some(first) if partition.cells.nested => vec![price(first); members.len()],
                _ => members.iter().map(price).collect(),
            }
        };
        let collectives = program.collectives.iter().enumerate().map(of_collective).collect();
        let stages = i64::from(mesh.degree(Axis::Pp));
        let peers_of = |exchange: &Exchange| -> Vec<u32> {
            let peer = |(rank, stage): (&u32, &u32)| {
                let exists = (0..stages).contains(&(i64::from(*stage) + i64::from(exchange.peer)));
                if exists { partition.class_of(program.peer(*rank, exchange)) as u32 } else { NOBODY }
            };
            ranks.iter().zip(&role).map(peer).collect()
        };
        let peers: Vec<Vec<u32>> = program.exchanges.iter().map(peers_of).collect();
        let of_exchange = |(exchange, peers): (&Exchange, &Vec<u32>)| {
            let price = |(rank, peer): (&u32, &u32)| {
                let bytes = exchange.send.filter(|_| *peer != NOBODY).map(|n| exchange.dtype.bytes(n));
                bytes.map(|bytes| cost.exchange_cost(bytes, *rank, program.peer(*rank, exchange)))
            };
            ranks.iter().zip(peers).map(|r| price(r).unwrap_or_default()).collect()
        };
        let sends = program.exchanges.iter().zip(&peers).map(of_exchange).collect();
        let devices = cost.shares_devices().then(|| Devices::of(partition, ranks.len()));
        Self { ranks, role, base, communicator, groups, collectives, peers, sends, devices }
    }

    /// The instance of instruction `k` of class `i`.
    pub(crate) fn instance(&self, i: u32, k: u32) -> usize {
        self.base[i as usize] + k as usize
    }
}

impl Groups {
    fn of(distinct: &[Vec<(u32, u32)>], classes: usize) -> Self {
        let mut of = vec![NOBODY; classes];
        for (g, group) in distinct.iter().enumerate() {
            group.iter().for_each(|(class, _)| of[*class as usize] = g as u32);
        }
        let members = distinct.iter().map(|g| g.iter().map(|(class, _)| *class).collect()).collect();
        Self { of, members }
    }
}

impl Devices {
    fn of(partition: &Partition, classes: usize) -> Self {
        let distinct = partition.distinct(&partition.cells.devices());
        let (mut of, mut ranks) = (vec![NOBODY; classes], vec![0; classes]);
        for (d, device) in distinct.iter().enumerate() {
            for (class, on_it) in device {
                (of[*class as usize], ranks[*class as usize]) = (d as u32, *on_it);
            }
        }
        Self { of, ranks, count: distinct.len() }
    }
}
