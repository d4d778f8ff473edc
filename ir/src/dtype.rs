//! Element types, and the precision recipe that says which of them a training run stores and computes in.

use crate::Bytes;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The type of one tensor element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DType {
    /// 32-bit IEEE float.
    F32,
    /// bfloat16.
    Bf16,
    /// 16-bit IEEE float.
    F16,
    /// 8-bit float (E4M3 forward, E5M2 backward).
    F8,
    /// 32-bit integer: token ids.
    I32,
    /// 8-bit integer: masks of dropout, 0 or 1.
    U8,
}

impl DType {
    /// Every type, in declaration order.
    pub const ALL: [DType; 6] = [DType::F32, DType::Bf16, DType::F16, DType::F8, DType::I32, DType::U8];

    /// Bytes of one element.
    pub fn width(self) -> u64 {
        match self {
            DType::F32 | DType::I32 => 4,
            DType::Bf16 | DType::F16 => 2,
            DType::F8 | DType::U8 => 1,
        }
    }
    /// Bytes of `n` elements.
    pub fn bytes(self, n: u64) -> Bytes {
        Bytes(n * self.width())
    }
    fn name(self) -> &'static str {
        match self {
            DType::F32 => "f32",
            DType::Bf16 => "bf16",
            DType::F16 => "f16",
            DType::F8 => "f8",
            DType::I32 => "i32",
            DType::U8 => "u8",
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
impl FromStr for DType {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        DType::ALL.into_iter().find(|d| d.name() == s).ok_or_else(|| format!("`{s}` is no element type"))
    }
}

/// Which types a run computes and stores in (Micikevicius et al. 2018 for the mixed ones: 16-bit compute, fp32 master
/// weights, gradients and optimizer state).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// Everything in fp32.
    Fp32,
    /// fp16 compute, fp32 master weights and gradients.
    Fp16,
    /// bf16 compute, fp32 master weights and gradients.
    Bf16,
    /// fp8 matrix products, bf16 elsewhere.
    Fp8,
}

impl Precision {
    /// The type of weights and activations in compute.
    pub fn compute(self) -> DType {
        match self {
            Precision::Fp32 => DType::F32,
            Precision::Fp16 => DType::F16,
            Precision::Bf16 | Precision::Fp8 => DType::Bf16,
        }
    }
    /// The type matrix products multiply in.
    pub fn matmul(self) -> DType {
        match self {
            Precision::Fp8 => DType::F8,
            other => other.compute(),
        }
    }
    /// Whether a separate fp32 master copy of the weights is kept.
    pub fn has_master(self) -> bool {
        self != Precision::Fp32
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Precision::Fp32 => "fp32",
            Precision::Fp16 => "fp16",
            Precision::Bf16 => "bf16",
            Precision::Fp8 => "fp8",
        })
    }
}
