//! CPU kernels in f32 over plain slices: row-major `[batch, sequence, features]`, one thread each, no allocation
//! in the hot loops. Invariant: a kernel reads every element of its inputs and writes every element of its
//! outputs (gradients of weights say with `first` whether they overwrite or add). Elementwise arithmetic uses no
//! fused multiply-add and a fixed order of reduction, so its bits do not depend on the machine; matrix products
//! come from the `gemm` crate and do depend on it. Wrong lengths are broken invariants and panic.

/// Compiles one kernel body twice, for the baseline target and for AVX2, and chooses at run time, so that a
/// default x86-64 build still uses the wide registers of the machine it runs on.
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
                #[target_feature(enable = "avx2")]
                #[allow(clippy::too_many_arguments)]
                fn avx2($($arg: $ty),*) $(-> $ret)? {
                    body($($arg),*)
                }
                if is_x86_feature_detected!("avx2") {
                    // SAFETY: the one requirement of `avx2` is the instruction set that was just detected.
                    #[allow(unsafe_code)]
                    return unsafe { avx2($($arg),*) };
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
pub mod elementwise;
pub mod embedding;
pub mod gemm;
pub mod linear;
pub mod math;
pub mod norm;
pub mod optimizer;
pub mod rearrange;
pub mod rope;
