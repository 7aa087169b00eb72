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
pub(crate) enum Channels {
    /// All but the last ones of equal length.
    Even { all: Span, parts: usize, grain: usize },
    /// As NCCL cuts it.
    Nccl(Parts),
}

impl Channels {
    pub(crate) fn new(count: usize, channels: usize, grain: usize) -> Self {
        Self::Even { all: Span::new(0, count), parts: channels.max(1), grain }
    }

    /// Channels that carry at least one element; 1 for an empty buffer.
    pub(crate) fn used(&self) -> usize {
        match *self {
            Self::Even { all, parts, grain } => {
                let each = all.len.div_ceil(parts).next_multiple_of(grain).max(1);
                all.len.div_ceil(each).max(1)
            }
            Self::Nccl(parts) => parts.used(),
        }
    }

    #[inline]
    pub(crate) fn span(&self, channel: usize) -> Span {
        match *self {
            Self::Even { all, parts: 1, .. } => all,
            Self::Even { all, parts, grain } => all.piece(channel, parts, grain),
            Self::Nccl(parts) => parts.span(channel),
        }
    }
}

/// Spans of which the first and the last differ in length from those between.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parts {
    /// Elements of the first.
    pub(crate) low: usize,
    /// Elements of each one between.
    pub(crate) middle: usize,
    /// How many lie between.
    pub(crate) middles: usize,
    /// Elements of the last; 0 if there is only one.
    pub(crate) high: usize,
}

impl Parts {
    fn used(self) -> usize {
        1 + self.middles + usize::from(self.high > 0)
    }

    fn span(self, index: usize) -> Span {
        match index {
            0 => Span::new(0, self.low),
            i if i <= self.middles => Span::new(self.low + (i - 1) * self.middle, self.middle),
            _ => Span::new(self.low + self.middles * self.middle, self.high),
        }
    }
}

/// A channel's span as a ring's all-reduce goes through it: in strides of a chunk for each rank, and through a stride
/// in rounds of a message for each chunk.
///
/// ```text
///  span     | chunk 0    | chunk 1    | chunk 2    | chunk 0    | chunk 1    | chunk 2    |0   |1   |2   |
///  round    |0   |1   |2 |0   |1   |2 |0   |1   |2 |3   |4   |5 |3   |4   |5 |3   |4   |5 |6   |6   |6   |
/// ```
#[derive(Clone, Copy, Debug)]
pub(crate) struct Strides {
    pub(crate) span: Span,
    pub(crate) ranks: usize,
    /// Elements of a chunk of all strides but the last, whose chunks are as long as is left for each.
    pub(crate) chunk: usize,
    /// Chunks of the last stride are multiples of this many elements; divides `chunk`.
    pub(crate) grain: usize,
    /// Elements of the longest message.
    pub(crate) message: usize,
}

impl Strides {
    /// Round `index`; `None` behind the last one.
    pub(crate) fn round(&self, index: u64) -> Option<Round> {
        let stride = self.ranks * self.chunk;
        let whole = (self.span.len / stride) as u64;
        let per_stride = self.chunk.div_ceil(self.message) as u64;
        let (number, part) = if index < whole * per_stride {
            (index / per_stride, index % per_stride)
        } else {
            (whole, index - whole * per_stride)
        };
        let at = number as usize * stride;
        let len = stride.min(self.span.len - at);
        let each = len.div_ceil(self.ranks).next_multiple_of(self.grain);
        let from = usize::try_from(part).ok()?.checked_mul(self.message).filter(|from| *from < each)?;
        let to = each.min(from + self.message);
        Some(Round { stride: Span::new(self.span.at + at, len), each, from, to })
    }
}

/// One message's worth of every chunk of a stride.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Round {
    stride: Span,
    /// Elements of a chunk.
    each: usize,
    /// Where the messages begin and end, counted from the start of each chunk.
    from: usize,
    to: usize,
}

impl Round {
    /// The message of chunk `index`; shorter or empty at the end of the last stride.
    #[inline]
    pub(crate) fn piece(&self, index: usize) -> Span {
        let inside = |at: usize| (index * self.each + at).min(self.stride.len);
        let (from, to) = (inside(self.from), inside(self.to));
        Span::new(self.stride.at + from, to - from)
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

    /// Chunks as long, of another span.
    pub(crate) fn of(self, span: Span) -> Self {
        Self { span, ..self }
    }

    /// What is cut.
    pub(crate) fn whole(&self) -> Span {
        self.span
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
