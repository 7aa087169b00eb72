//! The sizes at which the kernels change their ways.

use super::Store;
use super::arch::Isa;

/// Which instruction set the kernels use and from which sizes on they stream and interleave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// The instruction set; all give the same bits.
    pub isa: Isa,
    /// Calls of fewer bytes than this use plain stores even where streaming is asked for.
    pub stream_bytes_min: usize,
    /// Calls of at least this many bytes read several pages at once, line by line.
    pub interleave_bytes_min: usize,
}

impl Tuning {
    /// What the measurements in [the module's documentation](super) suggest for this CPU.
    #[must_use]
    #[inline]
    pub fn host() -> Self {
        Tuning { isa: Isa::detect(), stream_bytes_min: 4096, interleave_bytes_min: 64 << 10 }
    }

    /// From how many bytes on a copy uses the line loop and not the platform's `memcpy`.
    #[inline]
    pub(super) fn copy_lines_min(&self, store: Store) -> usize {
        match store {
            Store::Streaming => self.stream_bytes_min,
            Store::Cached => self.interleave_bytes_min,
        }
    }
}
