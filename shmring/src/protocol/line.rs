//! Messages in lines that carry their own flag.

use crate::error::Error;
use crate::layout::{Ll128Line, LlLine};
use crate::sync::{AtomicU64, Ordering, PayloadWord, read_words, write_words};

/// A line of payload with a flag behind it.
pub(crate) trait Line {
    /// Payload bytes.
    const PAYLOAD: usize;
    fn data(&self) -> &[PayloadWord];
    fn flag(&self) -> &AtomicU64;
}

macro_rules! impl_line {
    ($line:ty, $payload:expr) => {
        impl Line for $line {
            const PAYLOAD: usize = $payload;
            #[inline]
            fn data(&self) -> &[PayloadWord] {
                &self.data
            }
            #[inline]
            fn flag(&self) -> &AtomicU64 {
                &self.flag
            }
        }
    };
}
impl_line!(LlLine, crate::layout::LL_PAYLOAD);
impl_line!(Ll128Line, crate::layout::LL128_PAYLOAD);

/// Flags of so many steps beyond the one that is due are taken for nonsense and not for very old ones.
const FLAGS_AHEAD: u32 = 64;

/// How far a receiver has copied the message at its head.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    lines: usize,
}

/// Lines of a message of `len` bytes; an empty message is one line, for its flag.
#[inline]
fn lines_of<L: Line>(len: usize) -> usize {
    len.div_ceil(L::PAYLOAD).max(1)
}

/// Writes a message and publishes it line by line.
///
/// # Safety
/// - The slot is the sender's (it has credit).
/// - `payload` is readable for `len` bytes, and `len` fits into `lines`.
#[inline]
pub(crate) unsafe fn write_lines<L: Line>(lines: &[L], flag: u64, payload: *const u8, len: usize) {
    for (i, line) in lines[..lines_of::<L>(len)].iter().enumerate() {
        let at = i * L::PAYLOAD;
        let part = L::PAYLOAD.min(len - at);
        // SAFETY: the line is ours by the caller's credit; `part` bytes remain at `payload + at` and fit.
        unsafe { write_words(line.data(), |to| copy_part::<L>(payload.add(at), to, part)) };
        // ORDERING: Release pairs with the Acquire in `read_lines`: the line's payload comes with the flag.
        line.flag().store(flag, Ordering::Release);
    }
}

/// Whether a line has arrived.
///
/// # Errors
/// [`Error::Corrupt`] when its flag belongs to a step that the sender cannot have reached.
#[inline]
pub(crate) fn is_here<L: Line>(line: &L, flag: u64) -> Result<bool, Error> {
    // ORDERING: Acquire pairs with the Release in `write_lines`.
    let found = line.flag().load(Ordering::Acquire);
    if found == flag {
        return Ok(true);
    }
    // Flags of older steps or other stamps wait here to be overwritten; those of the next steps were never sent, since
    // that takes our credit.
    let ahead = (found as u32).wrapping_sub(flag as u32);
    if (1..=FLAGS_AHEAD).contains(&ahead) {
        return Err(Error::corrupt("a line's flag", found, flag));
    }
    Ok(false)
}

/// Copies the lines that have arrived; true when all have.
///
/// # Safety
/// - `to` is writable for `len` bytes, and `len` fits into `lines`.
#[inline]
pub(crate) unsafe fn read_lines<L: Line>(
    lines: &[L],
    flag: u64,
    to: *mut u8,
    len: usize,
    reading: &mut Reading,
) -> Result<bool, Error> {
    let count = lines_of::<L>(len);
    while reading.lines < count {
        let line = &lines[reading.lines];
        if !is_here(line, flag)? {
            return Ok(false);
        }
        let at = reading.lines * L::PAYLOAD;
        let part = L::PAYLOAD.min(len - at);
        // SAFETY: the flag says that the line is ours until we release the step; `part` bytes fit at `to + at`.
        unsafe { read_words(line.data(), |from| copy_part::<L>(from, to.add(at), part)) };
        reading.lines += 1;
    }
    Ok(true)
}

/// Copies `part` bytes; a whole line by fixed-size moves, which the compiler turns into vector registers.
///
/// # Safety
/// - `from` is readable and `to` writable for `part` bytes, at most `L::PAYLOAD`; they do not overlap.
#[inline]
unsafe fn copy_part<L: Line>(from: *const u8, to: *mut u8, part: usize) {
    // SAFETY: the caller's contract, in each branch for exactly `part` bytes.
    unsafe {
        if part == L::PAYLOAD {
            std::ptr::copy_nonoverlapping(from, to, L::PAYLOAD);
        } else if part == 8 {
            std::ptr::copy_nonoverlapping(from, to, 8);
        } else {
            std::ptr::copy_nonoverlapping(from, to, part);
        }
    }
}
