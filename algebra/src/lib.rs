//! The shared semantics under planner, lowering, simulator and executor: what ops mean on a mesh, counted in integers,
//! without devices and without time. Index expressions give layouts; layouts give conversions; a block's expansion gives
//! the instructions and buffers that everyone else prices, lowers and runs, so there is one accountant for all of them.

mod ceiling;
pub mod collectives;
mod conversions;
mod convert;
mod count;
mod expand;
mod expr;
mod memory;
mod per_token;
mod recompute;
pub mod schedules;
mod signature;
mod storage;
mod strategy;
mod turns;

pub use ceiling::{Ceiling, ceilings, countable};
pub use conversions::class_plan;
pub use convert::{Converter, Price, apply, step_elements};
pub use count::{Work, kernel_work, model_flops};
pub use expand::{BlockAction, BlockCode, BlockInstruction, Home, Scope, Tensor, expand, scopes};
pub use expr::{Aux, Dim, Expr, Extent, Index, Store};
pub use memory::{
    ALIGNMENT, BlockPlace, GradientGroup, ParamPlace, Scattered, StageBlock, StageMemory, StageShape,
    accumulates, gradient_groups, stage_memory,
};
pub use per_token::{Convention, PerToken, per_token};
pub use recompute::recompute;
pub use signature::{Signature, Slot, gradient_aliases, signature};
pub use storage::{may_store, storages, storages_of};
pub use strategy::{OpLayouts, Shapes, layouts, may_cut, strategies};
pub use turns::{Turn, turns};
