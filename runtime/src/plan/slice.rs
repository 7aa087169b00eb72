//! How a buffer is cut: into channels, chunks and pieces. The only place that computes such offsets.

/// A range of elements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    /// First element.
    pub(crate) at: usize,
    /// Number of elements.
    pub(crate) len: usize,
}

impl Span {
    pub(crate) fn new(at: usize, len: usize) -> Self {
        Self { at, len }
    }

    pub(crate) fn end(self) -> usize {
        self.at + self.len
    }

    /// Part `index` of `parts`, all but the last ones of equal length, a multiple of `grain`; may be empty.
    pub(crate) fn piece(self, index: usize, parts: usize, grain: usize) -> Self {
        let each = self.len.div_ceil(parts).next_multiple_of(grain);
        let from = (index * each).min(self.len);
        let to = (from + each).min(self.len);
        Self::new(self.at + from, to - from)
    }
}

/// The same span of several ranks' blocks; where a block is shorter, what there is of it.
///
/// ```text
///  buffer   | block 0        | block 1     | block 2            |
///  stretch       |####|           |####|        |####|             span 5..10 of ranks 0..3
///  message  |####|####|####|
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stretch {
    /// Counted from the start of each block.
    pub(crate) span: Span,
    /// The first of the ranks.
    pub(crate) first: u32,
    /// The rank behind the last.
    pub(crate) end: u32,
}

/// The spans of the channels: contiguous, in order, together the whole buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Channels {
    all: Span,
    parts: usize,
    grain: usize,
}

impl Channels {
    pub(crate) fn new(count: usize, channels: usize, grain: usize) -> Self {
        Self { all: Span::new(0, count), parts: channels.max(1), grain }
    }

    /// Channels that carry at least one element; 1 for an empty buffer.
    pub(crate) fn used(&self) -> usize {
        let each = self.all.len.div_ceil(self.parts).next_multiple_of(self.grain).max(1);
        self.all.len.div_ceil(each).max(1)
    }

    #[inline]
    pub(crate) fn span(&self, channel: usize) -> Span {
        if self.parts == 1 { self.all } else { self.all.piece(channel, self.parts, self.grain) }
    }
}

/// A span cut into chunks of at most `chunk` elements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chunks {
    span: Span,
    chunk: usize,
}

impl Chunks {
    pub(crate) fn new(span: Span, chunk: usize) -> Self {
        Self { span, chunk }
    }

    /// Number of chunks.
    pub(crate) fn count(&self) -> u64 {
        self.span.len.div_ceil(self.chunk) as u64
    }

    /// Chunk `index`, below [`Chunks::count`].
    #[inline]
    pub(crate) fn get(&self, index: u64) -> Span {
        let from = index as usize * self.chunk;
        Span::new(self.span.at + from, self.chunk.min(self.span.len - from))
    }
}
