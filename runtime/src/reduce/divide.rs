//! Division of integers by a fixed divisor, for the average's last step.

/// A divisor `n >= 1`, turned into a multiplication and a shift.
///
/// A hardware division takes 10 to 18 cycles an element and has no vector form. With
/// `k = ceil(log2 n) - 1` and `magic = ceil(2^(64+k) / n)`, the excess `magic * n - 2^(64+k)` is
/// below `n <= 2^(k+1)`, so for every `a <= 2^63` the product `a * magic` exceeds the true
/// `a * 2^(64+k) / n` by less than `2^(64+k) / n`, too little to reach the next quotient.
/// `n > 2^k` keeps `magic` within 64 bits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Divider {
    magic: u64,
    shift: u32,
}

impl Divider {
    /// Prepares division by `divisor`, which must be in `2..=2^63`.
    pub(super) fn new(divisor: u64) -> Self {
        debug_assert!((2..=1 << 63).contains(&divisor));
        let shift = (divisor - 1).ilog2();
        let magic = (1u128 << (64 + shift)).div_ceil(u128::from(divisor));
        debug_assert!(magic <= u128::from(u64::MAX));
        Divider { magic: magic as u64, shift }
    }

    /// `value / divisor`, truncated toward zero.
    #[inline(always)]
    pub(super) fn divide(self, value: i64) -> i64 {
        let product = u128::from(value.unsigned_abs()) * u128::from(self.magic);
        let quotient = ((product >> 64) as u64 >> self.shift) as i64;
        if value < 0 { -quotient } else { quotient }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equals_the_division_operator() {
        // Proves the quotient for every small divisor at the values where rounding could go wrong.
        let divisors = (2..=130u64).chain([1000, 4095, 4096, 4097, u64::from(u32::MAX), 1 << 40, 1 << 62]);
        for divisor in divisors {
            let by = Divider::new(divisor);
            let d = divisor as i64;
            let largest = i64::MAX / d * d;
            let mut values = vec![0, i64::MAX, i64::MAX - 1, i64::MIN + 1, i64::MIN, i64::from(i32::MIN)];
            for multiple in [d, d.wrapping_mul(3), largest, -largest, 7_777_777_777 / d * d] {
                values.extend([multiple - 1, multiple, multiple.saturating_add(1)]);
            }
            for value in values {
                assert_eq!(by.divide(value), value / d, "{value} / {d}");
            }
        }
    }
}
