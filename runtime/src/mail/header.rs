//! The first line of a message.

use super::Letter;
use crate::reduce::DType;
use shmring::layout::LL_PAYLOAD;

/// A line: what the message is, and its first bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    pub(super) count: u64,
    /// The type's number; unknown numbers are kept to be told.
    pub(super) dtype: u32,
    pub(super) tag: u32,
    pub(super) inline: [u8; Header::INLINE],
}

impl Header {
    /// Bytes of the message that are in the line.
    pub(super) const INLINE: usize = LL_PAYLOAD - 16;
    pub(super) const BYTES: usize = LL_PAYLOAD;

    pub(super) fn new(letter: Letter) -> Self {
        let Letter { count, dtype, tag } = letter;
        Self { count: count as u64, dtype: dtype.nccl_code(), tag, inline: [0; Self::INLINE] }
    }

    pub(super) fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.count.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.dtype.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.tag.to_le_bytes());
        bytes[16..].copy_from_slice(&self.inline);
        bytes
    }

    pub(super) fn from_bytes(bytes: &[u8; Self::BYTES]) -> Self {
        let mut inline = [0; Self::INLINE];
        inline.copy_from_slice(&bytes[16..]);
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let count = u64::from(word(4)) << 32 | u64::from(word(0));
        Self { count, dtype: word(8), tag: word(12), inline }
    }

    /// The type, if there is such a number.
    fn dtype(&self) -> Option<DType> {
        DType::from_nccl_code(self.dtype)
    }

    /// What the message says it is; `None` if no correct peer would say so.
    pub(super) fn letter(&self) -> Option<Letter> {
        let dtype = self.dtype()?;
        let count = usize::try_from(self.count).ok()?;
        let bytes = count.checked_mul(dtype.size_bytes())?;
        isize::try_from(bytes).ok()?;
        Some(Letter { count, dtype, tag: self.tag })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What is written is read back, and what a correct peer does not write is no letter.
    #[test]
    fn headers_are_read_back() {
        for dtype in DType::ALL {
            let letter = Letter { count: 0x1_0000_0005, dtype, tag: 7 };
            let header = Header { inline: [3; Header::INLINE], ..Header::new(letter) };
            let read = Header::from_bytes(&header.to_bytes());
            assert_eq!((read.letter(), read.inline), (Some(letter), header.inline));
        }
        let strange = Header { dtype: 1000, ..Header::new(Letter { count: 1, dtype: DType::F32, tag: 0 }) };
        assert_eq!(strange.letter(), None);
        let huge =
            Header { count: u64::MAX / 4, ..Header::new(Letter { count: 1, dtype: DType::F64, tag: 0 }) };
        assert_eq!(huge.letter(), None);
    }

    proptest! {
        /// No line of any content is taken for more bytes than a buffer can have.
        #[test]
        fn any_line_is_bounded(bytes: [[u8; 8]; 7]) {
            let line: [u8; Header::BYTES] = bytes.concat().try_into().unwrap();
            if let Some(letter) = Header::from_bytes(&line).letter() {
                prop_assert!(isize::try_from(letter.bytes()).is_ok());
            }
        }
    }
}
