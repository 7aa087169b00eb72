//! An input as a source of decisions; where it ends, every decision is 0.

/// What is left of an input.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Input<'a> {
    left: &'a [u8],
}

impl<'a> Input<'a> {
    pub(crate) fn new(data: &'a [u8]) -> Self {
        Self { left: data }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.left.is_empty()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.left.split_first() else { return 0 };
        self.left = rest;
        first
    }

    /// A number from 0 to below `end`, which is at most 65,536.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        let number: usize =
            if end <= 256 { self.byte().into() } else { u16::from_le_bytes(self.array()).into() };
        if end == 0 { 0 } else { number % end }
    }

    pub(crate) fn array<const N: usize>(&mut self) -> [u8; N] {
        std::array::from_fn(|_| self.byte())
    }

    /// A word of the kind that breaks things: near a limit, near `hint`, or anything.
    pub(crate) fn word(&mut self, hint: u64) -> u64 {
        let kind = self.byte();
        let small = u64::from(kind >> 3);
        match kind & 7 {
            0 => small,
            1 => u64::MAX - small,
            2 => hint.wrapping_add(small),
            3 => hint.wrapping_sub(small),
            4 => (1 << 63) | small,
            5 => 1 << (small * 2),
            _ => u64::from_le_bytes(self.array()),
        }
    }

    pub(crate) fn rest(self) -> &'a [u8] {
        self.left
    }
}
