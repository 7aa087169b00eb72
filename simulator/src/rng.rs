//! Random numbers that depend on a seed only.

/// A generator of 64-bit numbers: a counter whose values are scrambled.
#[derive(Clone, Debug)]
pub struct Rng {
    state: u64,
}

/// A probability, as a share of 2^32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chance(u32);

impl Chance {
    /// It never happens.
    pub const NEVER: Self = Self(0);

    /// One in `n`.
    pub const fn one_in(n: u32) -> Self {
        Self(u32::MAX / n)
    }
}

/// Scrambles a number, so that neighbours have nothing in common.
pub fn scramble(number: u64) -> u64 {
    let mut x = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

impl Rng {
    /// The generator of `seed`; `stream` tells apart generators of one seed.
    pub fn new(seed: u64, stream: u64) -> Self {
        Self { state: scramble(seed ^ scramble(stream)) }
    }

    /// The next number.
    #[inline]
    pub fn draw(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        scramble(self.state)
    }

    /// A number below `bound`, which is not 0.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        // The high half of the product: every number below the bound, equally often but for one in 2^32.
        ((self.draw() >> 32) * bound) >> 32
    }

    /// Whether something that has this chance happens now.
    #[inline]
    pub fn happens(&mut self, chance: Chance) -> bool {
        chance.0 != 0 && (self.draw() >> 32) as u32 <= chance.0
    }

    /// One of `all`, which is not empty.
    pub fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }

    /// A number from 1 to `2^bits - 1` whose order of magnitude is random.
    pub fn scale(&mut self, bits: u32) -> u64 {
        let top = 1 << (1 + self.below(bits.into()));
        1 + self.below(top - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Equal seeds give equal numbers, other seeds and streams other ones.
    #[test]
    fn numbers_follow_from_the_seed() {
        let of = |seed, stream| {
            let mut rng = Rng::new(seed, stream);
            [rng.draw(), rng.draw(), rng.draw()]
        };
        assert_eq!(of(1, 0), of(1, 0));
        assert_ne!(of(1, 0), of(2, 0));
        assert_ne!(of(1, 0), of(1, 1));
    }

    /// Bounds hold and are reached, and chances are met about as often as they say.
    #[test]
    fn bounds_and_chances() {
        let mut rng = Rng::new(7, 7);
        let drawn: Vec<u64> = (0..1000).map(|_| rng.below(5)).collect();
        assert!((0..5).all(|n| drawn.contains(&n)) && drawn.iter().all(|n| *n < 5));
        assert!((0..1000).all(|_| (1..1 << 12).contains(&rng.scale(12))));
        let hits = (0..10_000).filter(|_| rng.happens(Chance::one_in(4))).count();
        assert!((2200..2800).contains(&hits), "{hits}");
        assert!(!(0..1000).any(|_| rng.happens(Chance::NEVER)));
    }
}
