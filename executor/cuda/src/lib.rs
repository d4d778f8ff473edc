//! The CUDA backend: programs on NVIDIA GPUs. **Nothing is built yet**, and nothing here needs or looks for CUDA. This page
//! says what will stand here, so that it lands in the right place. It is a crate of its own so that a build without it
//! links no driver, and `unsafe` for foreign calls stays behind one door.
//!
//! # What it will hold
//!
//! An implementation of `meshwright_executor::Backend` and its `Rank`, and of `Communicator` and `Link` over NCCL:
//!
//! - **Opening.** One rank per GPU. The arena is one device allocation of the role's planned size; buffers are its ranges, at
//!   the offsets that the program gives. The library allocates nothing further during a step.
//! - **Streams.** Each stream of the program is a CUDA stream. An instruction that another stream waits for records an event;
//!   each entry of `after` on another stream is a `cuStreamWaitEvent`. One host thread enqueues the listing in order.
//!   That is safe because the checker has proved progress for exactly this: listing order, one operation at a time.
//! - **Kernels.** Matrix products by cuBLAS; the rest by kernels of our own, compiled at run time, fused as the CPU's are. A
//!   test holds each to the CPU kernel, pass by pass.
//! - **Communication.** One NCCL communicator per group of axes and stages. The run's poison aborts communicators, so a failed
//!   rank wakes its peers here as it does among threads.
//! - **Measuring.** Spans from timed events, and one synchronisation at the end of a step: tracing must not serialise what it
//!   looks at. A profile of kernels and links in the form that calibration reads.
//!
//! # Rules
//!
//! - What is missing is an answer, not a panic. Each library is looked for before it is first called; no driver, no GPU, too
//!   few GPUs or too little memory is a message and exit code 2, before step 0.
//! - What a program needs and the backend lacks is refused by name: a kernel, a collective, an element type.
//! - It passes the suite that the CPU backend passes: the same losses within tolerance, every instruction once, memory within
//!   the planned peak.
//!
//! # What it will not hold
//!
//! No scheduling decision, no memory allocator, no cost: the program has all of that already. No second way to run a
//! program beside the listing.
