//! Kernel times by a roofline with efficiency curves (Williams, Waterman and Patterson 2009; curves as in Calculon and
//! SimuMax): matrix work takes the longer of its operations and its bytes, everything else its bytes, and a launch is
//! added. The invariant: time never falls as work grows, whatever the curve.

use crate::CostModel;
use meshwright_algebra::{Work, kernel_work};
use meshwright_ir::program::Kernel;
use meshwright_ir::{Bandwidth, Bytes, Curve, DType, DeviceKind, FlopRate, Flops, Op, Time, WorkClass};

/// What one kernel costs on one rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelCost {
    /// Running alone, launch included.
    pub time: Time,
    /// Bytes through memory while it runs.
    pub bytes: Bytes,
}

impl CostModel {
    /// Cost of a kernel that has its rank's device (for a CPU: one core) to itself.
    pub fn kernel(&self, kernel: &Kernel) -> KernelCost {
        if let Some(time) = self.host_time(kernel) {
            return KernelCost { time, bytes: Bytes::ZERO };
        }
        let mut work = kernel_work(kernel);
        if self.cluster().device.kind != DeviceKind::Cpu && misaligned(kernel) {
            // As much work as takes so much longer: no less than aligned work of the same size.
            work.flops = Flops((work.flops.get() as f64 / MISALIGNED).round() as u64);
        }
        self.work(&work)
    }

    /// Cost of counted work, launch included.
    pub fn work(&self, work: &Work) -> KernelCost {
        let seconds = match work.class {
            WorkClass::Matmul | WorkClass::Attention | WorkClass::AttentionBackward => {
                let compute = shaped(work.flops.get() as f64, self.curve(work.class));
                let memory = work.bytes.f64() / self.rank_bandwidth().get();
                (compute / self.peak(work.dtype).get()).max(memory)
            }
            WorkClass::Memory
            | WorkClass::Norm
            | WorkClass::Activation
            | WorkClass::Rope
            | WorkClass::Embedding
            | WorkClass::Loss
            | WorkClass::Optimizer => {
                shaped(work.bytes.f64(), self.memory_curve(work.class)) / self.rank_bandwidth().get()
            }
        };
        KernelCost { time: Time::from_seconds(seconds) + self.cluster().device.launch, bytes: work.bytes }
    }

    /// Peak rate of dense products in `dtype` on one rank's device (a CPU: one core). A type without its own peak runs
    /// at that of the nearest type at least as wide, and where there is none at the slowest the device has.
    pub fn peak(&self, dtype: DType) -> FlopRate {
        let peak = &self.cluster().device.peak;
        let wider: &[DType] = match dtype {
            DType::F8 => &[DType::F8, DType::Bf16, DType::F16, DType::F32],
            DType::Bf16 => &[DType::Bf16, DType::F16, DType::F32],
            DType::F16 => &[DType::F16, DType::Bf16, DType::F32],
            DType::F32 | DType::I32 | DType::U8 => &[DType::F32],
        };
        let own = wider.iter().find_map(|d| peak.get(d).copied());
        let slowest = || peak.values().copied().min_by(|a, b| a.get().total_cmp(&b.get()));
        own.or_else(slowest).expect("a checked device has a peak")
    }

    /// Memory bandwidth that one rank draws alone: the device's, or one core's of a CPU.
    pub fn rank_bandwidth(&self) -> Bandwidth {
        let device = &self.cluster().device;
        match (device.kind, device.core_bandwidth) {
            (DeviceKind::Cpu, Some(core)) if core.get() < device.memory_bandwidth.get() => core,
            (DeviceKind::Cpu | DeviceKind::Gpu | DeviceKind::Npu, _) => device.memory_bandwidth,
        }
    }

    fn curve(&self, class: WorkClass) -> Option<&Curve> {
        self.cluster().device.curves.iter().find(|c| c.class == class)
    }

    fn memory_curve(&self, class: WorkClass) -> Option<&Curve> {
        self.curve(class).or_else(|| self.curve(WorkClass::Memory))
    }
}

/// Efficiency of a matrix product whose rows do not start at multiples of 16 bytes, against one whose rows do. NVIDIA's
/// guide to matrix products asks for multiples of 8 elements in 16 bits, without which tensor cores load element by
/// element; the factor is fitted to the vocabulary layer of runs with GPT-2's own 50,257 tokens.
const MISALIGNED: f64 = 0.3;

/// Whether a matrix product has rows that do not start at multiples of 16 bytes.
fn misaligned(kernel: &Kernel) -> bool {
    let Kernel::Op(k) = kernel else { return false };
    let Op::Linear { .. } = k.op else { return false };
    let rows = 16 / k.dtype.width().clamp(1, 16);
    k.extents[2..4].iter().any(|n| !n.is_multiple_of(rows))
}

/// Work divided by its efficiency: the peak-rate work that takes as long. Never less than that of a smaller amount: on
/// each piece of a log-linear curve x/y falls and then rises, so its largest earlier values lie at the curve's points.
fn shaped(x: f64, curve: Option<&Curve>) -> f64 {
    let Some(curve) = curve.filter(|_| x > 0.0) else { return x };
    let earlier = curve.points.iter().take_while(|p| p.0 <= x).map(|p| p.0 / p.1);
    earlier.fold(x / curve.at(x), f64::max)
}
