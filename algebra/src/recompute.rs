//! Recomputation (Chen et al. 2016; Korthikanti et al. 2022 for the selective kind): a pass over an expanded block that
//! drops tensors backward would have kept and lists again, at the head of backward or just before their first use, the
//! forward instructions that make them. What is computed does not change, only when and how often.

use crate::expand::{BlockCode, BlockInstruction, Home, unplaced};
use crate::memory::{place_frame, place_workspace};
use crate::{BlockAction, accumulates};
use meshwright_ir::program::{Kernel, OpKernel, Pass};
use meshwright_ir::{Op, Recompute};
use std::collections::BTreeMap;

/// The block with that much of its forward recomputed in backward. A block that ends in the loss keeps what it has: its
/// backward follows its forward at once, so there is nothing to gain.
pub fn recompute(code: &BlockCode, level: Recompute) -> BlockCode {
    let ends_in_loss = code.tensors.iter().any(|t| t.home == Home::Loss);
    let again: Vec<bool> = match level {
        Recompute::None => return code.clone(),
        _ if ends_in_loss => return code.clone(),
        Recompute::Selective => code.forward.iter().map(is_attention).collect(),
        Recompute::Full => needed(code),
    };
    rewrite(code, &again, level == Recompute::Full)
}

/// Whether an instruction is the attention core.
fn is_attention(i: &BlockInstruction) -> bool {
    matches!(
        &i.action,
        BlockAction::Kernel(Kernel::Op(OpKernel { op: Op::Attention { .. }, pass: Pass::Forward, .. }))
    )
}

/// The forward instructions that backward's operands depend on.
fn needed(code: &BlockCode) -> Vec<bool> {
    let mut wanted = vec![false; code.tensors.len()];
    code.backward.iter().flat_map(|i| &i.reads).for_each(|t| wanted[*t as usize] = true);
    let mut again = vec![false; code.forward.len()];
    for (k, i) in code.forward.iter().enumerate().rev() {
        again[k] = i.writes.iter().any(|t| wanted[*t as usize]);
        if again[k] {
            i.reads.iter().for_each(|t| wanted[*t as usize] = true);
        }
    }
    again
}

fn rewrite(code: &BlockCode, again: &[bool], at_head: bool) -> BlockCode {
    let mut tensors = code.tensors.clone();
    for t in &mut tensors {
        if matches!(t.home, Home::Frame(_) | Home::Workspace(_)) {
            t.home = unplaced();
        }
    }
    // Each tensor that is made again gets a second self for backward.
    let mut second: BTreeMap<u32, u32> = BTreeMap::new();
    let mut replay: Vec<BlockInstruction> = Vec::new();
    for (i, _) in code.forward.iter().zip(again).filter(|(_, again)| **again) {
        debug_assert!(
            !matches!(&i.action, BlockAction::Kernel(k) if accumulates(k)),
            "only the loss accumulates in forward"
        );
        let reads = i.reads.iter().map(|t| second.get(t).copied().unwrap_or(*t)).collect();
        let mut writes = Vec::new();
        for t in &i.writes {
            // An in-place collective writes the second self that its kernel made.
            let made = *second.entry(*t).or_insert_with(|| {
                let mut copy = tensors[*t as usize].clone();
                copy.name.push_str(".again");
                copy.home = unplaced();
                tensors.push(copy);
                tensors.len() as u32 - 1
            });
            writes.push(made);
        }
        replay.push(BlockInstruction { action: i.action.clone(), reads, writes, node: i.node });
    }
    let mut backward: Vec<BlockInstruction> = Vec::with_capacity(code.backward.len() + replay.len());
    if at_head {
        backward.append(&mut replay);
    }
    for i in &code.backward {
        let uses = |t: &u32| second.contains_key(t);
        if !replay.is_empty() && i.reads.iter().any(uses) {
            backward.append(&mut replay);
        }
        let reads = i.reads.iter().map(|t| second.get(t).copied().unwrap_or(*t)).collect();
        backward.push(BlockInstruction { reads, ..i.clone() });
    }
    let frame = place_frame(&mut tensors, &code.forward, &backward);
    let workspace =
        place_workspace(&mut tensors, &code.forward).max(place_workspace(&mut tensors, &backward));
    BlockCode {
        tensors,
        params: code.params.clone(),
        forward: code.forward.clone(),
        backward,
        frame,
        workspace,
    }
}
