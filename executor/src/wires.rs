//! Wiring a world of threads: one group of communicators per set of ranks that any collective names, one link per pair
//! of stages that exchange, all under one poison.

use crate::backend::{Group, Wires};
use crate::comm::threads::{group, link};
use crate::comm::{Communicator, Link, Poison};
use meshwright_ir::Axis;
use meshwright_ir::program::Checked;
use std::collections::{BTreeMap, BTreeSet};

/// The wires of every rank, in rank order.
pub(crate) fn in_process(program: &Checked, poison: &Poison) -> Vec<Wires> {
    let world = program.mesh.ranks();
    let bare = |_| Wires { groups: BTreeMap::new(), links: BTreeMap::new(), poison: poison.clone() };
    let mut wires: Vec<Wires> = (0..world).map(bare).collect();
    let keys: BTreeSet<Group> = program.collectives.iter().map(|c| (c.axes, c.stages.clone())).collect();
    for key in keys {
        let inside = |r: &u32| key.1.as_ref().is_none_or(|s| s.contains(&program.mesh.coord(*r, Axis::Pp)));
        for rank in (0..world).filter(inside) {
            let members: Vec<u32> = program.mesh.group(rank, key.0).into_iter().filter(inside).collect();
            // Each group is wired once, when its first member comes by.
            if members[0] == rank {
                for (member, r) in group(members.len(), poison).into_iter().zip(members) {
                    let member: Box<dyn Communicator> = Box::new(member);
                    wires[r as usize].groups.insert(key.clone(), member);
                }
            }
        }
    }
    let stride = program.mesh.stride(Axis::Pp);
    let distances: BTreeSet<i32> = program.exchanges.iter().map(|x| x.peer.abs()).collect();
    for (distance, rank) in distances.into_iter().flat_map(|d| (0..world).map(move |r| (d, r))) {
        let other = rank + distance as u32 * stride;
        if other < world {
            let (near, far) = link(poison);
            let (near, far): (Box<dyn Link>, Box<dyn Link>) = (Box::new(near), Box::new(far));
            wires[rank as usize].links.insert(distance, near);
            wires[other as usize].links.insert(-distance, far);
        }
    }
    wires
}
