//! Buffers that hold a block of every rank: how these are cut into messages.
//!
//! All blocks are cut alike, as the longest is: chunk i begins at the same place of each. A shorter block has shorter
//! or empty chunks at its end. There are two kinds of messages:
//!
//! ```text
//!  a chunk of one block     all-gather, gather, and everything on a ring
//!  a chunk of each block    reduce-scatter, all-to-all, scatter: what a rank has for all others, in one message
//!                           | block 0: chunk i | block 1: chunk i | ... | block n-1: chunk i |
//! ```
//!
//! Where a message cannot hold even one element for each rank, it takes a *window* of ranks, and as many messages as
//! there are windows make up a chunk of all.

use super::call::Call;
use super::slice::{Chunks, Span, Stretch};

/// Lengths of the ranks' blocks where they differ, in elements.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Where each rank's block ends; the next one begins there.
    ends: Vec<usize>,
    longest: usize,
}

impl Counts {
    /// The blocks of these lengths, one after the other; `None` where their sum overflows.
    pub(crate) fn new(counts: &[usize]) -> Option<Self> {
        let mut end = 0usize;
        let mut ends = Vec::with_capacity(counts.len());
        for count in counts {
            end = end.checked_add(*count)?;
            ends.push(end);
        }
        Some(Self { ends, longest: counts.iter().copied().max().unwrap_or(0) })
    }

    pub(crate) fn block(&self, rank: u32) -> Span {
        let end = self.ends[rank as usize];
        let start = if rank == 0 { 0 } else { self.ends[rank as usize - 1] };
        Span::new(start, end - start)
    }

    pub(crate) fn longest(&self) -> usize {
        self.longest
    }

    /// Elements of all blocks.
    pub(crate) fn total(&self) -> usize {
        self.ends.last().copied().unwrap_or(0)
    }

    /// A number that differs for almost all different lists: for messages and stamps, never to decide that two lists
    /// are equal.
    pub(crate) fn hash(&self) -> u32 {
        let mixed = self.ends.iter().fold(self.ends.len() as u64, |hash, end| {
            (hash.rotate_left(5) ^ *end as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        });
        (mixed >> 32) as u32
    }
}

/// One channel's part of every rank's block, cut into chunks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut<'a> {
    pub(super) call: &'a Call,
    /// Of the longest block.
    pub(super) chunks: Chunks,
    pub(super) rank: u32,
    pub(super) nranks: u32,
    /// How many ranks' chunks go into a message that is for all of them.
    pub(super) window: u32,
}

/// What a rank finds in a message that is for all: `part` of it, `message` elements long.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    pub(super) message: usize,
    pub(super) part: Span,
}

impl Cut<'_> {
    /// Chunk `index` of the block of `rank`, in the buffer of all blocks.
    #[inline]
    pub(super) fn chunk(&self, index: u64, rank: u32) -> Span {
        self.call.place(self.chunks.get(index), rank)
    }

    /// A span of this rank's block, in a buffer that holds nothing but this block.
    #[inline]
    pub(super) fn alone(&self, span: Span) -> Span {
        Span::new(span.at - self.call.block(self.rank).at, span.len)
    }

    fn windows(&self) -> u64 {
        u64::from(self.nranks.div_ceil(self.window))
    }

    /// How many messages that are for all each rank sends.
    pub(super) fn rounds(&self) -> u64 {
        self.chunks.count() * self.windows()
    }

    /// What the message of round `index` is made of, whoever sends it.
    pub(super) fn stretch(&self, index: u64) -> Stretch {
        let first = (index % self.windows()) as u32 * self.window;
        let end = (first + self.window).min(self.nranks);
        Stretch { span: self.chunks.get(index / self.windows()), first, end }
    }

    /// The part for `rank` of a message of a stretch; empty when the message is not for it.
    pub(super) fn share(&self, stretch: Stretch, rank: u32) -> Share {
        let Stretch { span, first, end } = stretch;
        let (before, message) = if self.call.counts.is_none() {
            // Every block is as long as the longest.
            let at = (rank.clamp(first, end) - first) as usize * span.len;
            (at, (end - first) as usize * span.len)
        } else {
            let sum = |end: u32| (first..end).map(|r| self.call.place(span, r).len).sum();
            (sum(rank.clamp(first, end)), sum(end))
        };
        let is_inside = (first..end).contains(&rank);
        let len = if is_inside { self.call.place(span, rank).len } else { 0 };
        Share { message, part: Span::new(before, len) }
    }
}
