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
mod strategy;

pub use ceiling::{Ceiling, ceilings, countable};
pub use conversions::class_plan;
pub use convert::{Converter, Price, apply, step_elements};
pub use count::{Work, kernel_work, model_flops};
pub use expand::{BlockAction, BlockCode, BlockInstruction, Home, Scope, Tensor, expand};
pub use expr::{Dim, Expr, Extent, Index};
pub use memory::{
    ALIGNMENT, BlockPlace, GradientGroup, ParamPlace, StageMemory, StageShape, accumulates, stage_memory,
};
pub use per_token::{Convention, PerToken, per_token};
pub use recompute::recompute;
pub use signature::{Signature, Slot, gradient_aliases, signature};
pub use strategy::{OpLayouts, Shapes, layouts, may_cut, strategies};
