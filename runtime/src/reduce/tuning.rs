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
    /// The same for calls with plain stores.
    pub interleave_cached_bytes_min: usize,
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
            interleave_cached_bytes_min: 4 << 20,
            interleave_sources_max: 1,
        }
    }

    /// Whether a pass reads several pages at once.
    #[inline]
    pub(super) fn interleaves(&self, bytes: usize, sources: usize, stream: [bool; 2]) -> bool {
        let streams = stream != [false; 2];
        let bytes_min = if streams { self.interleave_bytes_min } else { self.interleave_cached_bytes_min };
        sources <= self.interleave_sources_max && bytes >= bytes_min
    }

    /// From how many bytes on a copy uses the line loop and not the platform's `memcpy`.
    #[inline]
    pub(super) fn copy_lines_min(&self, store: Store) -> usize {
        match store {
            Store::Streaming => self.stream_bytes_min,
            Store::Cached => self.interleave_cached_bytes_min,
        }
    }
}
