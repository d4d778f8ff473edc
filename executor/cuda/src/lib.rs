//! The CUDA backend: streams, events, NCCL (see this crate's page for what it will hold).
