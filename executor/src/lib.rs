//! Program and backend to a measured Trace: CPU kernels, communicators, data, optimizers.

pub mod comm;
pub mod data;
pub mod init;
pub mod kernels;
pub mod microbench;
