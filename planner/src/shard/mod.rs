//! Large sharding problems: thousands of nodes, memory limited at every time (*iopddl*, Moffitt and Fegade 2025). The
//! invariant: what comes out was scored by [`evaluate`], which shares nothing with the solver.
//!
//! [`parse`] reads one, [`solve`] answers it. Inside: `net` and `presolve` reduce exactly, `core` lays out what is left,
//! `dual` and `ascent` bound it, `search` improves choices with `profile` watching memory, `branch` finishes small ones.

mod ascent;
mod branch;
mod core;
mod dual;
mod instance;
mod matrix;
mod net;
mod parse;
mod presolve;
mod profile;
mod rows;
mod search;
mod solve;

pub use instance::{Instance, Link, Node, RULED_OUT, Score, evaluate};
pub use parse::parse;
pub use solve::{Answer, Effort, solve};
