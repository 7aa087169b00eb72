//! Division of integers by a fixed divisor, for the average's last step.

/// A divisor `n >= 1`, turned into a multiplication and a shift.
///
/// A hardware division of 64 bits takes 10 to 18 cycles an element and has no vector form. With
/// `k = ceil(log2 n) - 1` and `magic = ceil(2^(64+k) / n)`, the excess `magic * n - 2^(64+k)` is
/// below `n <= 2^(k+1)`, so for every `a <= 2^63` the product `a * magic` exceeds the true
/// `a * 2^(64+k) / n` by less than `2^(64+k) / n`, too little to reach the next quotient.
/// `n > 2^k` keeps `magic` within 64 bits.
///
/// Integers of up to 32 bits are divided as floats, which vectors can do: `a / n` differs from the next greater whole
/// number by at least `1/n`, far more than a float of twice the integer's bits is off.
#[derive(Clone, Copy, Debug)]
pub(super) struct Divider {
    divisor: u64,
    magic: u64,
    shift: u32,
    single: f32,
    double: f64,
}

impl Divider {
    /// Prepares division by `divisor`, which must be in `2..=2^63`.
    pub(super) fn new(divisor: u64) -> Self {
        debug_assert!((2..=1 << 63).contains(&divisor));
        let shift = (divisor - 1).ilog2();
        let magic = (1u128 << (64 + shift)).div_ceil(u128::from(divisor));
        debug_assert!(magic <= u128::from(u64::MAX));
        // Where these two are not exact, the divisor exceeds every integer that they are for.
        let (single, double) = (divisor as f32, divisor as f64);
        Divider { divisor, magic: magic as u64, shift, single, double }
    }

    /// The quotient of a value up to `2^63`.
    #[inline(always)]
    fn quotient(self, value: u64) -> u64 {
        let product = u128::from(value) * u128::from(self.magic);
        (product >> 64) as u64 >> self.shift
    }

    /// `value / divisor`, truncated toward zero.
    #[inline(always)]
    pub(super) fn i64(self, value: i64) -> i64 {
        let quotient = self.quotient(value.unsigned_abs()) as i64;
        if value < 0 { -quotient } else { quotient }
    }

    /// `value / divisor`.
    #[inline(always)]
    pub(super) fn u64(self, value: u64) -> u64 {
        // Half of the value is within the bound; the rest, below twice the divisor, tells the last bit.
        let even = 2 * self.quotient(value >> 1);
        even + u64::from(value - even * self.divisor >= self.divisor)
    }

    /// `value / divisor`, truncated toward zero, of the values of an 8-bit integer.
    #[inline(always)]
    pub(super) fn short(self, value: i16) -> i16 {
        debug_assert!((-128..=255).contains(&value));
        // SAFETY: the quotient is a number no larger than the value, since the divisor is at least 2.
        let quotient: i32 = unsafe { (f32::from(value) / self.single).to_int_unchecked() };
        quotient as i16
    }

    /// `value / divisor`, truncated toward zero, of the values of a 32-bit integer.
    #[inline(always)]
    pub(super) fn word(self, value: f64) -> i32 {
        debug_assert!((-2_147_483_648.0..=4_294_967_295.0).contains(&value));
        // SAFETY: the value is at most 2^32 - 1 and the divisor at least 2, so the quotient is below 2^31.
        unsafe { (value / self.double).to_int_unchecked() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Divisors that are small, near powers of two, and large.
    fn divisors() -> impl Iterator<Item = u64> {
        let large = [1000, 4095, 4096, 4097, u64::from(u32::MAX), 1 << 40, (1 << 62) - 1, 1 << 62, 1 << 63];
        (2..=260u64).chain(large)
    }

    #[test]
    fn equals_the_division_operator() {
        // Proves the quotient for every small divisor at the values where rounding could go wrong.
        for divisor in divisors() {
            let by = Divider::new(divisor);
            let (largest, largest_signed) =
                (u64::MAX / divisor * divisor, i64::MAX as u64 / divisor * divisor);
            let mut values =
                vec![0, 1, u64::MAX, u64::MAX - 1, 1 << 63, (1 << 63) - 1, (1 << 63) + 1, 1 << 31];
            for multiple in
                [divisor, divisor.wrapping_mul(3), largest, largest_signed, 7_777_777_777 / divisor * divisor]
            {
                values.extend([multiple.wrapping_sub(1), multiple, multiple.wrapping_add(1)]);
            }
            for value in values {
                assert_eq!(by.u64(value), value / divisor, "{value} / {divisor}");
                for signed in [value as i64, (value as i64).wrapping_neg()] {
                    let want = i128::from(signed) / i128::from(divisor);
                    assert_eq!(i128::from(by.i64(signed)), want, "{signed} / {divisor}");
                }
            }
        }
    }

    #[test]
    fn narrow_integers_divide_exactly() {
        // Proves the quotient of every 8-bit integer, and of 32-bit integers around multiples of the divisor.
        for divisor in divisors() {
            let by = Divider::new(divisor);
            for value in -128..=255i16 {
                assert_eq!(i128::from(by.short(value)), i128::from(value) / i128::from(divisor));
            }
            let steps = [1, 2, 3, 1000, 1 << 20, u64::from(u32::MAX) / divisor, (1 << 31) / divisor];
            for multiple in steps.map(|step| (step * (divisor % (1 << 33))) as i64) {
                for value in [multiple - 1, multiple, multiple + 1] {
                    for value in [value, -value].into_iter().filter(|v| (-(1 << 31)..1 << 32).contains(v)) {
                        let want = i128::from(value) / i128::from(divisor);
                        assert_eq!(i128::from(by.word(value as f64)), want, "{value} / {divisor}");
                    }
                }
            }
        }
    }
}
