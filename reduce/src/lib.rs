//! Reduction and copy kernels on host memory.
//!
//! Kernels take pointers and lengths, at any alignment: buffers lie in shared memory that a peer maps as
//! well, so that no reference to their bytes may exist. Every instruction set gives the same bits (the
//! payload of a NaN excepted), and a fold takes its sources in the order given.
//!
//! ```
//! use ringccl_reduce::{DType, Dst, ReduceOp, Reducer};
//!
//! let (a, b, mut out) = ([1.0f32, 2.0], [10.0f32, 20.0], [0.0f32; 2]);
//! let reducer = Reducer::new(DType::F32, ReduceOp::Sum, 2);
//! let srcs = [a.as_ptr().cast(), b.as_ptr().cast()];
//! // Sound: all three arrays hold two elements and none overlaps another.
//! unsafe { reducer.fold(&srcs, None, &[Dst::cached(out.as_mut_ptr().cast())], 2, true) };
//! assert_eq!(out, [11.0, 22.0]);
//! ```
//!
//! # Types and operations
//!
//! All twelve types of NCCL ([`DType`]) have all of its operations: sum, prod, max, min, avg and premulsum, a sum in
//! which each rank multiplies its own input by a scalar of its own. Integers also have PyTorch's band, bor and bxor.
//! PyTorch's booleans are bytes that are 0 or 1: their logical or is max or bor, their logical and min or band.
//! [`ReduceOp::check`] tells whether a pair is valid; [`Reducer::new`] panics if it is not.
//!
//! # Numbers
//!
//! As NCCL 2.30 src/device/reduce_kernel.h computes them: integers wrap; narrow floats are rounded to nearest
//! even after every hop, never fused or kept wide; a NaN loses a minimum or maximum against a number; a float
//! average multiplies each rank's own input by 1/nranks before the sum, an integer average divides the
//! wrapped sum once, toward zero. A hop of fp16 or bf16 is the binary32 operation rounded once more. That is
//! exact rounding, except for bf16 products whose binary32 value is subnormal.
//!
//! A hop of 8-bit floats is one of fp16 in NCCL, converted back to nearest even with saturation: what is beyond the
//! largest number becomes that, and so does an infinity of E5M2 in any operation, minimum and maximum included; a NaN
//! becomes 0x7f. The result is the same as that of rounding the exact one once, as a test shows for all pairs. An input
//! that is only copied keeps its bits.
//!
//! # What was measured
//!
//! `cargo bench -p ringccl-reduce --bench reduce` on a virtual Sapphire Rapids core with other work on the machine;
//! rates of all bytes read and written, as multiples of a `memcpy` of one buffer in the same run:
//!
//! | pass | plain | streaming | streaming, pages interleaved |
//! | --- | --- | --- | --- |
//! | copy 64 KiB, in the cache | 1.0 | 0.49 | 0.48 |
//! | copy 1 MiB, in the cache | 1.05-1.10 | 0.85-1.03 | 0.85-0.96 |
//! | copy 64 MiB | 0.93-1.02 | 1.5-1.75 | 1.7-2.0 |
//! | copy 64 MiB in pieces of 4 / 16 / 64 KiB | 0.85 / 0.96 / 0.96 | 1.06 / 1.40 / 1.51 | 1.14 / 1.42 / 1.64 |
//! | fold of 2 f32, 256 KiB | 1.25 | 0.65-0.72 | 0.66-0.71 |
//! | fold of 2 fp16 / bf16, 256 KiB | 1.25 / 0.73 | - | - |
//! | fold of 2 fp8 e4m3 / e5m2, 256 KiB | 0.37 / 0.52 | - | - |
//! | fold of 4 / 8 f32, 256 KiB | 1.12-1.44 / 0.55 | 0.82-0.92 / 0.63-0.73 | 0.78-0.91 / 0.60-0.68 |
//! | fold of 2 f32, 64 MiB | 1.05 | 1.55 | 1.55 |
//! | fold of 4 / 8 f32, 64 MiB | 1.2 / 1.15 | 1.5 / 1.26 | 1.45 / 1.25 |
//! | fold of 2 f32, 64 MiB, in place | 1.5 | 1.3 (forced) | - |
//! | fold of 2 fp16 / bf16, 64 MiB | 1.03 / 1.05 | 1.65 / 1.28 | 1.26 / 1.24 |
//! | fold of 2 fp8 e4m3 / e5m2, 64 MiB | - | 1.09 / 1.15 | - |
//!
//! Hence:
//!
//! - The caller picks the store by the size of the whole operation, not of the call: streaming halves the
//!   rate of data that the cache holds and gains by half beyond it, even in pieces of 4 KiB, the least that a
//!   streaming call acts on.
//! - Streaming into a source is a plain store: its lines are in the cache, and evicting them costs 1.15x.
//! - Interleaving is for one source, streaming, from 64 KiB on: it gains 1.1x there, nothing with two sources
//!   and loses with more. With plain stores it cost 1.02-1.3x.
//! - A copy without streaming is the platform's `memcpy`.
//! - A fold of two sources of 1 to 15 floats takes 6 ns with AVX-512, and of 1 or 2 floats with any path; 64
//!   floats take 13 ns.

mod arch;
mod copy;
mod divide;
mod dtype;
mod fp8;
mod kernel;
mod line;
mod op;
mod reducer;
mod scalar;
mod sweep;
mod tuning;

pub use arch::Isa;
pub use copy::{copy, copy_with};
pub use dtype::{DType, Element};
pub use fp8::{F8E4M3, F8E5M2};
pub use op::{InvalidOp, ReduceOp};
pub use reducer::Reducer;
pub use scalar::Scalar;
pub use tuning::Tuning;

/// How results are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    /// Through the caches: for results that somebody reads soon.
    Cached,
    /// Around the caches, where the destination can be aligned, is no source, and the call is large enough;
    /// as [`Store::Cached`] otherwise.
    Streaming,
}

/// One destination of a fold or a copy.
#[derive(Clone, Copy, Debug)]
pub struct Dst {
    /// The first byte to write.
    pub ptr: *mut u8,
    /// How to write it.
    pub store: Store,
}

impl Dst {
    /// A destination written through the caches.
    #[must_use]
    pub const fn cached(ptr: *mut u8) -> Self {
        Dst { ptr, store: Store::Cached }
    }

    /// A destination written around the caches.
    #[must_use]
    pub const fn streaming(ptr: *mut u8) -> Self {
        Dst { ptr, store: Store::Streaming }
    }
}

/// A name of a data type or reduction that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown {what} `{given}`; use one of {accepted}")]
pub struct ParseNameError {
    what: &'static str,
    given: String,
    accepted: String,
}

impl ParseNameError {
    #[cold]
    fn new(what: &'static str, given: &str, accepted: &[&str]) -> Self {
        ParseNameError { what, given: given.to_owned(), accepted: accepted.join(", ") }
    }
}
