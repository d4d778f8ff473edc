//! Recomputation (Chen et al. 2016; Korthikanti et al. 2022 for gathers and the selective kind): a pass over an expanded
//! block that drops tensors backward would have kept and lists again, in backward, the forward instructions that make
//! them. What is computed does not change, only when and how often.

use crate::expand::{BlockCode, BlockInstruction, Home, unplaced};
use crate::memory::{place_frame, place_workspace};
use crate::{BlockAction, accumulates};
use meshwright_ir::program::{CollectiveKind, Kernel, OpKernel, Pass};
use meshwright_ir::{Op, Recompute};
use std::collections::BTreeMap;

/// How many matrix products or attentions run between the issue of a repeated gather and its first use, so that it hides
/// behind them. A guess: behind the product just before a use, a gather of its own input's size is about half hidden on
/// current GPUs; further ahead it holds memory longer than it takes.
const AHEAD: usize = 2;

/// Where in backward an instruction is listed again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// At the head, in forward's order.
    Head,
    /// Just before what it makes is first read.
    AtUse,
    /// Some kernels before that.
    Ahead,
}

/// The block with that much of its forward repeated in backward. A block that ends in the loss keeps what it has: its
/// backward follows its forward at once, so there is nothing to gain.
pub fn recompute(code: &BlockCode, level: Recompute) -> BlockCode {
    if code.tensors.iter().any(|t| t.home == Home::Loss) {
        return code.clone();
    }
    let (again, replaced) = match level {
        Recompute::None => return code.clone(),
        Recompute::Gathers => {
            let again = gathers(code);
            let replaced = written(code, &again);
            (again, replaced)
        }
        Recompute::Selective => {
            let gathers = gathers(code);
            let mut replaced = written(code, &gathers);
            own_reads(code).into_iter().for_each(|t| replaced[t as usize] = true);
            let core = code.forward.iter().map(|i| is_attention(i, Pass::Forward).then_some(Place::AtUse));
            (core.zip(gathers).map(|(core, gather)| core.or(gather)).collect(), replaced)
        }
        Recompute::Full => {
            let again: Vec<_> = needed(code).into_iter().map(|n| n.then_some(Place::Head)).collect();
            let replaced = written(code, &again);
            (again, replaced)
        }
    };
    rewrite(code, &again, &replaced)
}

/// Whether an instruction is a pass of an attention core; any backward counts as one.
fn is_attention(i: &BlockInstruction, wanted: Pass) -> bool {
    match &i.action {
        BlockAction::Kernel(Kernel::Op(OpKernel { op: Op::Attention { .. }, pass, .. })) => *pass == wanted,
        BlockAction::Kernel(_) | BlockAction::Collective { .. } => false,
    }
}

/// What attention's own backward reads of what its forward made: for an eager core the scores, but not the output, which
/// the projection behind it keeps (34·sbh in table 2 of the paper); for a fused core the output and its log-sum-exp.
fn own_reads(code: &BlockCode) -> Vec<u32> {
    let made = code.forward.iter().filter(|i| is_attention(i, Pass::Forward)).flat_map(|i| &i.writes);
    let backward = code.backward.iter().filter(|i| is_attention(i, Pass::BackwardInput));
    let read: Vec<u32> = backward.flat_map(|i| i.reads.iter().copied()).collect();
    made.copied().filter(|t| read.contains(t)).collect()
}

/// Gathers of forward, with the kernel that puts pieces in place, whose result is kept: backward can gather again what
/// the pieces, kept instead, hold.
fn gathers(code: &BlockCode) -> Vec<Option<Place>> {
    let gathers = |i: &BlockInstruction| {
        matches!(i.action, BlockAction::Collective { kind: CollectiveKind::AllGather, .. })
    };
    let maker = |t: u32| code.forward.iter().position(|i| i.writes.contains(&t));
    let conversion = |k: usize| match &code.forward[k].action {
        BlockAction::Kernel(Kernel::Unpack { .. }) => {
            let gathered = maker(code.forward[k].reads[0]).is_some_and(|m| gathers(&code.forward[m]));
            gathered.then_some(Place::AtUse)
        }
        _ => gathers(&code.forward[k]).then_some(Place::Ahead),
    };
    let mut wanted: Vec<bool> = code.tensors.iter().map(|t| matches!(t.home, Home::Frame(_))).collect();
    let mut again = vec![None; code.forward.len()];
    for k in (0..code.forward.len()).rev() {
        let i = &code.forward[k];
        if i.writes.iter().any(|t| wanted[*t as usize]) {
            again[k] = conversion(k);
        }
        // A gather of what was gathered starts from the first pieces.
        if again[k].is_some() {
            let chained = |t: &&u32| maker(**t).is_some_and(|m| conversion(m).is_some());
            i.reads.iter().filter(chained).for_each(|t| wanted[*t as usize] = true);
        }
    }
    again
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

/// Tensors that these instructions write.
fn written(code: &BlockCode, again: &[Option<Place>]) -> Vec<bool> {
    let mut written = vec![false; code.tensors.len()];
    let listed = code.forward.iter().zip(again).filter(|(_, place)| place.is_some());
    listed.flat_map(|(i, _)| &i.writes).for_each(|t| written[*t as usize] = true);
    written
}

/// Lists instructions again; backward reads what they make instead of what was kept, where that is `replaced`.
fn rewrite(code: &BlockCode, again: &[Option<Place>], replaced: &[bool]) -> BlockCode {
    let mut tensors = code.tensors.clone();
    for t in &mut tensors {
        if matches!(t.home, Home::Frame(_) | Home::Workspace(_)) {
            t.home = unplaced();
        }
    }
    // Each tensor that is made again gets a second self for backward.
    let mut second: BTreeMap<u32, u32> = BTreeMap::new();
    let read = |second: &BTreeMap<u32, u32>, t: &u32| match second.get(t) {
        Some(made) if replaced[*t as usize] => *made,
        Some(_) | None => *t,
    };
    let mut replay: Vec<(BlockInstruction, Place)> = Vec::new();
    for (i, place) in code.forward.iter().zip(again) {
        let Some(place) = place else { continue };
        debug_assert!(
            !matches!(&i.action, BlockAction::Kernel(k) if accumulates(k)),
            "only the loss accumulates in forward"
        );
        let reads = i.reads.iter().map(|t| read(&second, t)).collect();
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
        replay.push((BlockInstruction { action: i.action.clone(), reads, writes, node: i.node }, *place));
    }
    let renamed = |i: &BlockInstruction| {
        let reads = i.reads.iter().map(|t| read(&second, t)).collect();
        BlockInstruction { reads, ..i.clone() }
    };
    let mut backward: Vec<BlockInstruction> = code.backward.iter().map(renamed).collect();
    // From the last: whatever reads a replayed tensor is listed before its maker is placed.
    for (i, place) in replay.into_iter().rev() {
        let at = position(&backward, &i, place);
        backward.insert(at, i);
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

/// Where in backward to list an instruction.
fn position(backward: &[BlockInstruction], i: &BlockInstruction, place: Place) -> usize {
    let uses = |b: &BlockInstruction| b.reads.iter().any(|t| i.writes.contains(t));
    let first = backward.iter().position(uses).unwrap_or(backward.len());
    let heavy = |b: &BlockInstruction| {
        matches!(
            &b.action,
            BlockAction::Kernel(Kernel::Op(OpKernel { op: Op::Linear { .. } | Op::Attention { .. }, .. }))
        )
    };
    match place {
        Place::Head => 0,
        Place::AtUse => first,
        Place::Ahead => (0..first).rev().filter(|k| heavy(&backward[*k])).nth(AHEAD - 1).unwrap_or(0),
    }
}
