//! What the host does where a framework issues every op from an interpreter (PyTorch without graphs): a number of
//! dispatches for each kernel of ours, since frameworks split some ops and join others, and something once per step.
//! Host work is written into a program as empty kernels on a stream of its own, which kernels wait for, so that the slower
//! of host and device sets the pace. The invariant: an empty kernel moves nothing and costs only host time.

use crate::CostModel;
use meshwright_ir::program::Kernel;
use meshwright_ir::{DType, Op, Time};

/// How many dispatches of the host stand for one kernel. Counted in Megatron-LM's eager layer of 2021 with an unfused
/// attention core; ops that it fuses into a neighbour (biases) are none. Backward walks autograd's tape in native code,
/// so each of its kernels is one dispatch.
pub fn dispatches(kernel: &Kernel) -> u64 {
    match kernel {
        Kernel::Op(k) => match &k.op {
            // Fused with the product before it or the residual after it.
            Op::Bias { .. } => 0,
            // Reshapes, scores, scale and mask and softmax, dropout, values, reshapes.
            Op::Attention { .. } | Op::LatentAttention { .. } | Op::Index { .. } => 6,
            // Scores, top-k, sort, permutation. A guess.
            Op::Route { .. } | Op::Dispatch { .. } | Op::Combine { .. } => 4,
            Op::CrossEntropy { .. } => 2,
            Op::Linear { .. }
            | Op::ExpertLinear { .. }
            | Op::ExpertBias { .. }
            | Op::Norm { .. }
            | Op::Add { .. }
            | Op::Dropout { .. }
            | Op::Activation { .. }
            | Op::Gate { .. }
            | Op::Rope { .. }
            | Op::Embedding { .. }
            | Op::Scale { .. }
            | Op::Spread { .. }
            | Op::Gain { .. }
            | Op::Conv { .. }
            | Op::Scan { .. } => 1,
            Op::Input { .. } => 0,
        },
        // Gradients are added, moved and updated by kernels that go with others or over many tensors at once.
        Kernel::Add { .. } | Kernel::Slice { .. } | Kernel::Pack { .. } | Kernel::Unpack { .. } => 0,
        Kernel::Load { .. } => 1,
        Kernel::SumSquares { .. } | Kernel::Update { .. } => 0,
    }
}

/// The empty kernel that stands for so many dispatches of the host.
pub fn dispatching(times: u64) -> Kernel {
    Kernel::Pack { outer: 0, parts: times, inner: 1, dtype: DType::I32 }
}

/// The empty kernel that stands for what the host does once per step.
pub fn once_per_step() -> Kernel {
    Kernel::Unpack { outer: 0, parts: 1, inner: 1, dtype: DType::I32 }
}

impl CostModel {
    /// Host time of an empty kernel; `None` for one with work.
    pub(crate) fn host_time(&self, kernel: &Kernel) -> Option<Time> {
        let host = &self.cluster().device.host;
        match kernel {
            Kernel::Pack { outer: 0, parts, .. } => Some(host.dispatch * *parts),
            Kernel::Unpack { outer: 0, .. } => Some(host.step),
            Kernel::Pack { .. }
            | Kernel::Unpack { .. }
            | Kernel::Op(_)
            | Kernel::Add { .. }
            | Kernel::Slice { .. }
            | Kernel::Load { .. }
            | Kernel::SumSquares { .. }
            | Kernel::Update { .. } => None,
        }
    }
}
