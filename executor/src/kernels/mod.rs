//! CPU kernels in f32 over plain slices: row-major `[batch, sequence, features]`, one thread each, no
//! allocation in the hot loops. Invariant: a kernel reads every element of its inputs and writes every
//! element of its outputs (gradients of weights say with `first` whether they overwrite or add). Elementwise
//! arithmetic uses no fused multiply-add and a fixed order of reduction, so its bits do not depend on the
//! machine; matrix products come from the `gemm` crate and do depend on it. Wrong lengths are broken
//! invariants and panic.

/// Compiles one kernel body three times, for the baseline target, AVX2 and AVX-512, and chooses at run time,
/// so that a default x86-64 build still uses the wide registers of the machine it runs on.
macro_rules! simd {
    ($(#[$meta:meta])* $vis:vis fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? $body:block) => {
        $(#[$meta])*
        // The bodies are kernels over several buffers: many arguments are their nature.
        #[allow(clippy::too_many_arguments)]
        $vis fn $name($($arg: $ty),*) $(-> $ret)? {
            #[inline(always)]
            #[allow(clippy::too_many_arguments)]
            fn body($($arg: $ty),*) $(-> $ret)? $body

            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw")]
                #[allow(clippy::too_many_arguments)]
                fn avx512($($arg: $ty),*) $(-> $ret)? {
                    body($($arg),*)
                }
                #[target_feature(enable = "avx2")]
                #[allow(clippy::too_many_arguments)]
                fn avx2($($arg: $ty),*) $(-> $ret)? {
                    body($($arg),*)
                }
                // SAFETY: the one requirement of either copy is its instruction set, which was just detected.
                #[allow(unsafe_code)]
                match $crate::kernels::Width::detect() {
                    $crate::kernels::Width::Avx512 => return unsafe { avx512($($arg),*) },
                    $crate::kernels::Width::Avx2 => return unsafe { avx2($($arg),*) },
                    $crate::kernels::Width::Baseline => {}
                }
            }
            body($($arg),*)
        }
    };
}

pub mod activation;
pub mod attention;
pub mod bias;
pub mod cross_entropy;
pub mod dropout;
pub mod eager;
pub mod elementwise;
pub mod embedding;
pub mod gain;
pub mod gemm;
pub mod linear;
pub mod math;
pub mod norm;
pub mod optimizer;
pub mod rearrange;
pub mod rope;

/// The copy of a kernel that this machine runs.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Width {
    /// AVX-512 foundation with the vector-length, doubleword and byte extensions.
    Avx512,
    /// AVX2.
    Avx2,
    /// What every x86-64 has.
    Baseline,
}

#[cfg(target_arch = "x86_64")]
impl Width {
    /// Cheap: the standard library keeps the answers of `cpuid`.
    fn detect() -> Self {
        let wide = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512bw");
        match (wide, is_x86_feature_detected!("avx2")) {
            (true, _) => Self::Avx512,
            (false, true) => Self::Avx2,
            (false, false) => Self::Baseline,
        }
    }
}
