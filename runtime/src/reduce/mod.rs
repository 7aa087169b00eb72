//! Reduction and copy kernels on host memory.
//!
//! Kernels take pointers and lengths, at any alignment: buffers lie in shared memory that a peer maps as
//! well, so that no reference to their bytes may exist. Every instruction set gives the same bits (the
//! payload of a NaN excepted), and a fold adds its sources in the order given.

mod arch;
mod copy;
mod divide;
mod dtype;
mod kernel;
mod line;
mod op;
mod reducer;
mod sweep;
mod tuning;

pub use arch::Isa;
pub use copy::{copy, copy_with};
pub use dtype::{DType, Element};
pub use op::ReduceOp;
pub use reducer::Reducer;
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
