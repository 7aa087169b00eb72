//! The order in which a kernel visits a buffer, shared by folds and copies.
//!
//! ```text
//! destination   |..head..|line|line|line| ... |line|.tail.|
//!                        ^ 64-byte aligned
//! in order      blocks of U neighbouring lines
//! interleaved   U pages at once, one line of each: 0, 64, 128 of page 0 alternate with those of page 1..
//! ```

use super::line::LINE;
use super::{Dst, Store, Tuning};

/// Distance between the lines of an interleaved block.
const PAGE: usize = 4096;
/// Below this size the head that aligns the destination costs more than it saves.
pub(super) const ALIGN_BYTES_MIN: usize = 1024;

/// One pass over a buffer, in units of lines and of parts of a line.
pub(super) trait Work {
    /// Bytes of one element; a part is counted in elements.
    const ELEM: usize;

    /// Handles `U` lines at byte offsets `at`, `at + stride`, ...
    ///
    /// # Safety
    ///
    /// Those lines lie within every buffer of the pass.
    unsafe fn lines<const U: usize>(&self, at: usize, stride: usize);

    /// Handles `elems` elements, fewer than a line has, at byte offset `at`.
    ///
    /// # Safety
    ///
    /// Those elements lie within every buffer of the pass.
    unsafe fn part(&self, at: usize, elems: usize);
}

/// Where the aligned middle of a pass starts (in bytes), and which destinations take non-temporal stores.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub(super) head: usize,
    pub(super) stream: [bool; 2],
}

impl Layout {
    /// A pass too short to align or stream.
    pub(super) const SHORT: Layout = Layout { head: 0, stream: [false; 2] };

    /// Decides for `bytes` bytes of elements of `elem` bytes; `in_place` says which destinations are
    /// also sources: their lines are in the cache already, so that bypassing it does not pay.
    pub(super) fn plan(
        dsts: &[Dst],
        in_place: [bool; 2],
        bytes: usize,
        elem: usize,
        tuning: &Tuning,
    ) -> Self {
        if bytes < ALIGN_BYTES_MIN {
            return Layout::SHORT;
        }
        let large = bytes >= tuning.stream_bytes_min;
        let wants = |i: usize| large && dsts[i].store == Store::Streaming && !in_place[i];
        let leader = usize::from(dsts.len() == 2 && !wants(0) && wants(1));
        let distance = (dsts[leader].ptr as usize).wrapping_neg() % LINE;
        let head = if distance.is_multiple_of(elem) { distance } else { 0 };
        let mut stream = [false; 2];
        for (i, dst) in dsts.iter().enumerate().take(2) {
            stream[i] = wants(i) && (dst.ptr as usize).wrapping_add(head).is_multiple_of(LINE);
        }
        Layout { head, stream }
    }
}

/// Runs `work` over the `bytes` bytes from offset `start` on, `U` lines at a time.
///
/// # Safety
///
/// Every buffer of the pass has `start + bytes` bytes; `bytes` is a multiple of `W::ELEM`.
#[inline(always)]
pub(super) unsafe fn sweep<W: Work, const U: usize>(work: &W, start: usize, bytes: usize, interleave: bool) {
    let mut at = start;
    let mut left = bytes;
    // SAFETY: `left` is what remains from `at` on, and each step takes at most that much.
    unsafe {
        loop {
            let paged = interleave && left >= U * PAGE;
            let (blocks, step, stride) =
                if paged { (PAGE / LINE, LINE, PAGE) } else { (left / (U * LINE), U * LINE, LINE) };
            for block in 0..blocks {
                work.lines::<U>(at + block * step, stride);
            }
            at += blocks * U * LINE;
            left -= blocks * U * LINE;
            if !paged {
                break;
            }
        }
        while left >= LINE {
            work.lines::<1>(at, LINE);
            at += LINE;
            left -= LINE;
        }
        if left > 0 {
            work.part(at, left / W::ELEM);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An address that is only looked at.
    fn dst(address: usize, store: Store) -> Dst {
        Dst { ptr: std::ptr::without_provenance_mut(address), store }
    }

    fn plan(dsts: &[Dst], in_place: [bool; 2], bytes: usize) -> (usize, [bool; 2]) {
        let layout = Layout::plan(dsts, in_place, bytes, 4, &Tuning::host());
        (layout.head, layout.stream)
    }

    #[test]
    fn streams_only_where_it_can_and_pays() {
        // Proves each reason to fall back to plain stores: size, alignment, in place.
        let aligned = dst(0x10_0040, Store::Streaming);
        assert_eq!(plan(&[aligned], [false; 2], 4096), (0, [true, false]));
        assert_eq!(plan(&[aligned], [false; 2], 4092), (0, [false; 2]));
        assert_eq!(plan(&[aligned], [true, false], 4096), (0, [false; 2]));
        assert_eq!(plan(&[dst(0x10_0044, Store::Streaming)], [false; 2], 4096), (60, [true, false]));
        assert_eq!(plan(&[dst(0x10_0042, Store::Streaming)], [false; 2], 4096), (0, [false; 2]));
        assert_eq!(plan(&[dst(0x10_0044, Store::Cached)], [false; 2], 4096), (60, [false; 2]));
        assert_eq!(plan(&[dst(0x10_0044, Store::Cached)], [false; 2], 1000), (0, [false; 2]));
    }

    #[test]
    fn the_streaming_destination_sets_the_alignment() {
        // Proves that of two destinations the one that streams is aligned, and the other streams only if it
        // happens to share that alignment.
        let plain = dst(0x10_0044, Store::Cached);
        assert_eq!(plan(&[plain, dst(0x20_0048, Store::Streaming)], [false; 2], 8192), (56, [false, true]));
        let [first, same, other] =
            [0x10_0044, 0x20_0044, 0x20_0048].map(|address| dst(address, Store::Streaming));
        assert_eq!(plan(&[first, same], [false; 2], 8192), (60, [true, true]));
        assert_eq!(plan(&[first, other], [false; 2], 8192), (60, [true, false]));
        assert_eq!(plan(&[first, other], [true, false], 8192), (56, [false, true]));
    }
}
