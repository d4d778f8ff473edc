//! Communication between ranks: what an executor asks of a transport, and the transport between threads of
//! one process. Invariant: every wait ends, either because all peers came or because the [`Poison`] of the
//! run was told a cause; and a call that returned no longer touches, nor lets a peer touch, the caller's
//! buffers.

mod link;
mod poison;
pub mod threads;

use std::sync::Arc;

pub use poison::Poison;

/// How elements of several ranks become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduce {
    /// Their sum, in rank order.
    Sum,
    /// The largest.
    Max,
}

/// Why a communication did not complete.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommError {
    /// Another rank failed first; its own error is the one to show.
    #[error("stopped because of a failure elsewhere: {cause}")]
    Poisoned {
        /// The first failure of the run.
        cause: Arc<str>,
    },
    /// This rank's own work panicked.
    #[error("panicked: {message}")]
    Panicked {
        /// What the panic said.
        message: Arc<str>,
    },
    /// Buffers of one call do not fit one another, locally or between ranks.
    #[error("{call} on rank {rank}: {actual} elements where {expected} are needed")]
    SizeMismatch {
        /// The operation.
        call: &'static str,
        /// Rank within the group whose buffer does not fit.
        rank: usize,
        /// Elements that the rest of the call asks for.
        expected: usize,
        /// Elements it has.
        actual: usize,
    },
    /// Two ranks of a group are in different operations.
    #[error("rank {rank} is in {call} while rank {peer} is in {peer_call}")]
    CallMismatch {
        /// Rank within the group that noticed.
        rank: usize,
        /// Its operation.
        call: String,
        /// A rank in another operation.
        peer: usize,
        /// The other operation.
        peer_call: String,
    },
    /// One object was used by two threads at a time.
    #[error("{call} on rank {rank} began before the rank's last call ended")]
    Busy {
        /// The operation.
        call: &'static str,
        /// Rank within the group.
        rank: usize,
    },
}

/// One rank's place in one group. All ranks of the group make the same calls in the same order; sizes are in
/// elements; a group's results are bitwise equal on all its ranks. After an error the group is of no more
/// use.
///
/// How other transports implement it:
/// - **NCCL** is stream-ordered. One rank makes a unique id, the others get it out of band, and all build the
///   communicator from it. A call enqueues `ncclAllReduce` and its kin (all_to_all is a grouped send/receive)
///   on the communicator's stream and returns when an event behind it has passed; a runner that wants overlap
///   calls from the thread that owns the stream. The poison's watcher calls `ncclCommAbort`, which ends the
///   event wait.
/// - **MPI** has one `MPI_Comm_split` communicator a group. A call is the blocking collective, or, so that
///   the poison can be heard, `MPI_Iallreduce` and its kin with `MPI_Test` between looks at the poison; a
///   failed run ends in `MPI_Abort`. Ranks are processes there, so the poison itself travels as a message.
pub trait Communicator: Send + Sync {
    /// This rank within the group, from 0.
    fn rank(&self) -> usize;

    /// Ranks in the group.
    fn size(&self) -> usize;

    /// buffer = the reduction of all ranks' buffers, which have one length.
    fn all_reduce(&self, buffer: &mut [f32], op: Reduce) -> Result<(), CommError>;

    /// whole = all ranks' parts, one after another in rank order.
    fn all_gather(&self, part: &[f32], whole: &mut [f32]) -> Result<(), CommError>;

    /// part = this rank's share (the rank-th of equal parts) of the sum of all ranks' `whole`.
    fn reduce_scatter(&self, whole: &[f32], part: &mut [f32]) -> Result<(), CommError>;

    /// Share j of this rank's `send` becomes share `rank` of rank j's `receive`.
    fn all_to_all(&self, send: &[f32], receive: &mut [f32]) -> Result<(), CommError>;

    /// buffer = rank `root`'s buffer.
    fn broadcast(&self, buffer: &mut [f32], root: usize) -> Result<(), CommError>;
}

/// One end of a two-ended connection between neighbouring stages.
///
/// NCCL: `ncclSend` and `ncclRecv` of one call inside one group, then an event wait. MPI: `MPI_Issend` and
/// `MPI_Irecv`, then `MPI_Testall` between looks at the poison.
pub trait Link: Send + Sync {
    /// Sends, receives, or both at once. A send completes only when the peer has received it, a receive when
    /// the message is in its buffer, and the call when all its halves have; halves match the peer's halves in
    /// order, so an exchange may meet an exchange or a send and a receive made one after the other.
    fn exchange(&self, send: Option<&[f32]>, receive: Option<&mut [f32]>) -> Result<(), CommError>;
}
