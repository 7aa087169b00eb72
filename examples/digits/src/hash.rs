//! A 64-bit hash that names a replica, a data set or a set of options.

/// FNV-1a over 64 bits: small, the same on every machine, and enough to tell replicas apart by accident (not
/// by malice).
#[derive(Debug, Clone, Copy)]
pub struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    /// Takes `bytes` in.
    #[must_use]
    pub fn bytes(mut self, bytes: &[u8]) -> Self {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        self
    }

    /// Takes the exact bits of `values` in, so that 0.0 and -0.0 differ.
    #[must_use]
    pub fn floats(self, values: &[f32]) -> Self {
        values.iter().fold(self, |hash, value| hash.bytes(&value.to_bits().to_le_bytes()))
    }

    /// The hash of all that was taken in.
    pub fn finish(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::Fnv;

    #[test]
    fn published_vectors() {
        // Proves that this is FNV-1a: the published values for "", "a" and "foobar".
        assert_eq!(Fnv::default().finish(), 0xcbf2_9ce4_8422_2325);
        assert_eq!(Fnv::default().bytes(b"a").finish(), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(Fnv::default().bytes(b"foobar").finish(), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn one_bit_changes_the_hash() {
        // Proves that a single differing bit of a single parameter is seen, the sign of zero included.
        assert_ne!(Fnv::default().floats(&[1.0, 0.0]).finish(), Fnv::default().floats(&[1.0, -0.0]).finish());
    }
}
