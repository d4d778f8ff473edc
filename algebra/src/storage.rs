//! Which parameters may be split among replicas, and what one wish means for each of a block's. The invariant: a piece is
//! an equal part of a tensor that every rank of its axes would otherwise hold and sum alike.

use crate::{Scope, scopes};
use meshwright_ir::{BlockClass, Mesh, Model, Storage, Strategy, Tie};

/// Why a parameter may not be stored so, for a person; `Ok` if it may. Its gradient must be summed over all axes that split
/// it, its elements must divide evenly, and copies on two stages, which are summed after the replicas, stay whole.
pub fn may_store(
    model: &Model,
    class: u32,
    param: &Scope,
    stages: u32,
    mesh: &Mesh,
    storage: Storage,
) -> Result<(), String> {
    let pieces = storage.pieces(mesh);
    if !storage.over.is_subset(param.sync) {
        Err(format!("its gradient is summed over {}", param.sync))
    } else if !param.elements.is_multiple_of(pieces) {
        Err(format!("its {} elements on a rank do not divide by {pieces}", param.elements))
    } else if storage.is_split() && stages > 1 && is_tied(model, class, param) {
        Err("it is tied across stages".into())
    } else {
        Ok(())
    }
}

/// How each parameter of a class is stored if all that may be are stored as wanted, and the others whole.
pub fn storages(
    model: &Model,
    class: u32,
    params: &[Scope],
    stages: u32,
    mesh: &Mesh,
    wanted: Storage,
) -> Vec<Storage> {
    let stored = |p: &Scope| match may_store(model, class, p, stages, mesh, wanted) {
        Ok(()) => wanted,
        Err(_) => Storage::WHOLE,
    };
    params.iter().map(stored).collect()
}

/// The same from a class's strategies, without its expansion.
pub fn storages_of(
    model: &Model,
    class: u32,
    strategies: &[Strategy],
    stages: u32,
    mesh: &Mesh,
    wanted: Storage,
) -> Vec<Storage> {
    let block: &BlockClass = &model.classes[class as usize];
    storages(model, class, &scopes(block, strategies, mesh), stages, mesh, wanted)
}

/// Whether another block owns the parameter or has it too.
fn is_tied(model: &Model, class: u32, param: &Scope) -> bool {
    let owns = |tie: &Tie| {
        model.tied_to(tie).is_some_and(|(c, node)| {
            let name = &model.classes[c as usize].nodes[node as usize].name;
            c == class && param.name.rsplit_once('.').is_some_and(|(owner, _)| owner == name)
        })
    };
    let mut ties = model.classes.iter().flat_map(|c| &c.nodes).filter_map(|n| n.tied.as_ref());
    param.tied.is_some() || ties.any(owns)
}
