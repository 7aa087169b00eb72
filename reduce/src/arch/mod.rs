//! Instruction sets: which ones this CPU has, and the kernels of each.

use std::fmt;

use super::dtype::DType;
use super::kernel::Kernel;
use super::op::ReduceOp;

/// The choice of a kernel: a table of lines, from which `entry` makes kernels.
///
/// Each row names the line that compares and averages, the one that adds and multiplies, and how many lines a kernel
/// handles at once. Sums and products of signed integers serve unsigned ones as well.
macro_rules! kernels {
    ($entry:ident, bits $bits:ty, $at_once:literal; $($dtype:ident: $line:ty, $ring:ty, $unroll:literal;)*) => {
        /// The kernel for one element type and operation; bits are combined as bytes.
        pub(crate) fn kernel(dtype: DType, op: ReduceOp) -> Kernel {
            match (op, dtype) {
                (ReduceOp::BitAnd, _) => $entry::<$bits, BitAnd, $at_once>,
                (ReduceOp::BitOr, _) => $entry::<$bits, BitOr, $at_once>,
                (ReduceOp::BitXor, _) => $entry::<$bits, BitXor, $at_once>,
                $(
                    (ReduceOp::Sum, DType::$dtype) => $entry::<$ring, Sum, $unroll>,
                    (ReduceOp::Prod, DType::$dtype) => $entry::<$ring, Prod, $unroll>,
                    (ReduceOp::Min, DType::$dtype) => $entry::<$line, Min, $unroll>,
                    (ReduceOp::Max, DType::$dtype) => $entry::<$line, Max, $unroll>,
                    (ReduceOp::Avg | ReduceOp::PreMulSum(_), DType::$dtype) => {
                        $entry::<$line, ScaledSum, $unroll>
                    }
                )*
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod portable;

/// An instruction set that kernels exist for, from the plainest to the widest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Isa {
    /// What the build's target offers; no non-temporal stores.
    Portable,
    /// x86-64 with AVX2 and F16C.
    Avx2,
    /// x86-64 with AVX-512 F, BW, DQ and VL.
    Avx512,
    /// The same with FP16.
    Avx512Fp16,
}

impl Isa {
    /// Every instruction set that kernels exist for.
    pub const ALL: [Isa; 4] = [Isa::Portable, Isa::Avx2, Isa::Avx512, Isa::Avx512Fp16];

    /// The widest instruction set of this CPU.
    #[must_use]
    #[inline]
    pub fn detect() -> Self {
        Isa::ALL.into_iter().rev().find(|isa| isa.is_available()).unwrap_or(Isa::Portable)
    }

    /// Whether this CPU can run the kernels of this instruction set.
    #[must_use]
    #[inline]
    pub fn is_available(self) -> bool {
        match self {
            Isa::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c"),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => {
                is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("f16c")
            }
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512Fp16 => Isa::Avx512.is_available() && is_x86_feature_detected!("avx512fp16"),
            #[cfg(not(target_arch = "x86_64"))]
            _ => false,
        }
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Isa::Portable => "portable",
            Isa::Avx2 => "avx2",
            Isa::Avx512 => "avx512",
            Isa::Avx512Fp16 => "avx512-fp16",
        })
    }
}

/// The kernel for an instruction set, element type and operation; it may only be called on a CPU
/// for which `isa.is_available()`.
pub(super) fn kernel(isa: Isa, dtype: DType, op: ReduceOp) -> Kernel {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => avx2::kernel(dtype, op),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => avx512::kernel(dtype, op),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512Fp16 => avx512::fp16::kernel(dtype, op),
        _ => portable::kernel(dtype, op),
    }
}

/// The copy loop of an instruction set, under the same condition as [`kernel`].
pub(super) fn copy_kernel(isa: Isa) -> Option<super::copy::CopyKernel> {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => Some(avx2::copy_lines),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 | Isa::Avx512Fp16 => Some(avx512::copy_lines),
        _ => None,
    }
}

/// Orders earlier non-temporal stores before everything that follows.
#[inline(always)]
pub(super) fn fence_streams() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SFENCE is part of every x86-64 CPU and touches no memory.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}
