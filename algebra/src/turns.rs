//! Who has its weights whole, and when. A stage lists passes of its blocks; consecutive passes of one block are one turn of
//! it, for which its weights are gathered once: the last block's forward and backward of a micro-batch, say, or the first
//! block's backward and the next forward. The invariant: every pass of a block that gathers lies in a turn of it.

use crate::schedules::Task;
use meshwright_ir::Gathering;

/// A turn of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turn {
    /// Block of the stage.
    pub block: u32,
    /// Micro-batch of its first pass.
    pub micro_batch: u32,
}

/// The turns of a stage, in order. `gathers` says of each block of the stage whether any of its weights are split. Where
/// weights stay whole until the step ends, a block has one turn, counted from its first pass.
pub fn turns(order: &[Task], gathers: &[bool], gathering: Gathering) -> Vec<Turn> {
    let blocks = || (0..gathers.len() as u32).filter(|b| gathers[*b as usize]);
    let turn = |micro_batch| move |block| Turn { block, micro_batch };
    if !gathering.reshard_after_forward {
        return blocks().map(turn(0)).collect();
    }
    let passes = order.iter().flat_map(|task| -> Vec<Turn> {
        match task {
            Task::F(k) => blocks().map(turn(*k)).collect(),
            Task::B(k) => blocks().rev().map(turn(*k)).collect(),
        }
    });
    let mut turns: Vec<Turn> = passes.collect();
    turns.dedup_by_key(|t| t.block);
    turns
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedules::order;
    use meshwright_ir::Schedule;

    #[test]
    fn neighbouring_passes_of_a_block_share_a_gather() {
        let turns = |schedule, m, gathers: &[bool], reshard_after_forward| {
            let gathering = Gathering { reshard_after_forward, prefetch: 1 };
            let turns = turns(&order(schedule, 0, 1, m), gathers, gathering);
            turns.into_iter().map(|t| t.block).collect::<Vec<_>>()
        };
        let (gpipe, fb) = (Schedule::Gpipe, Schedule::OneForwardOneBackward);
        assert_eq!(turns(fb, 2, &[true; 3], true), [0, 1, 2, 1, 0, 1, 2, 1, 0]);
        assert_eq!(turns(gpipe, 2, &[true; 3], true), [0, 1, 2, 0, 1, 2, 1, 0, 2, 1, 0]);
        assert_eq!(turns(fb, 2, &[true, false, true], true), [0, 2, 0, 2, 0]);
        assert_eq!(turns(fb, 8, &[false, true], true), [1]);
        assert_eq!(turns(gpipe, 2, &[true, false, true], false), [0, 2]);
    }
}
