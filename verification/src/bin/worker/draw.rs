//! Numbers that are drawn, the same ones on every rank and in every run of a seed.

/// A number in no relation to its arguments.
pub(super) fn hash(key: u64, a: u64, b: u64) -> u64 {
    let mut x = key ^ a.wrapping_mul(0xd6e8_feb8_6659_fd93) ^ b.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    x ^ (x >> 29)
}

#[derive(Clone, Debug)]
pub(super) struct Draw {
    state: u64,
}

impl Draw {
    pub(super) fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    pub(super) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        hash(self.state, 1, 2)
    }

    /// A number below `limit`, or 0 if that is 0.
    pub(super) fn below(&mut self, limit: usize) -> usize {
        (self.next() >> 16) as usize % limit.max(1)
    }

    /// Elements of a buffer: mostly few, now and then up to `most`.
    pub(super) fn count(&mut self, most: usize) -> usize {
        let limit = match self.below(100) {
            0..70 => 80,
            70..92 => 2000,
            92..99 => 20_000,
            _ => 300_000,
        };
        self.below(limit.min(most) + 1)
    }

    pub(super) fn shuffle<T>(&mut self, all: &mut [T]) {
        for at in (1..all.len()).rev() {
            all.swap(at, self.below(at + 1));
        }
    }
}
