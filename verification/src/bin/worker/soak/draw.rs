//! Numbers that are drawn, the same ones on every rank and in every run of a seed.

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
        super::data::hash(self.state, 1, 2)
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
