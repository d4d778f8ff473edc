//! Program and backend to a measured Trace. [`train`] is the run: data, parameters, steps, losses. Below it a
//! [`Backend`] walks the program on devices and [`comm`] carries what ranks tell each other. The crate knows no cost and
//! no plan: it does what the program says, and measures.

pub mod backend;
pub mod comm;
mod cpu;
pub mod data;
pub mod init;
pub mod kernels;
pub mod microbench;
mod run;
mod wires;

pub use backend::{Backend, Measured, Rank, RunError, Samples, StepSettings, Wires};
pub use cpu::Cpu;
pub use run::{RunOptions, RunOutcome, train};
