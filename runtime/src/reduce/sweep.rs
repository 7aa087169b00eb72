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
