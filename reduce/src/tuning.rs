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
    /// Streaming calls of at least this many bytes read several pages at once, line by line.
    pub interleave_bytes_min: usize,
    /// Calls with more sources than this never do: the sources are as many pages already.
    pub interleave_sources_max: usize,
}

impl Tuning {
    /// What the measurements in [the module's documentation](super) suggest for this CPU.
    #[must_use]
    #[inline]
    pub fn host() -> Self {
        Tuning {
            isa: Isa::detect(),
            stream_bytes_min: 4 << 10,
            interleave_bytes_min: 64 << 10,
            interleave_sources_max: 1,
        }
    }

    /// Whether a pass reads several pages at once.
    #[inline]
    pub(super) fn interleaves(&self, bytes: usize, sources: usize, stream: [bool; 2]) -> bool {
        stream != [false; 2] && sources <= self.interleave_sources_max && bytes >= self.interleave_bytes_min
    }

    /// Whether a copy to one destination uses the line loop and not the platform's `memcpy`, which the loop
    /// only beats by streaming.
    #[inline]
    pub(super) fn copies_lines(&self, store: Store, bytes: usize) -> bool {
        store == Store::Streaming && bytes >= self.stream_bytes_min
    }
}
