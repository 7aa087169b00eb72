//! Messages between ranks and the coordinator: framing and text, without sockets.
//!
//! ```text
//!   0..4   magic "RCRV"
//!   4..6   wire version, little endian
//!   6..8   zero
//!   8..12  bytes of the body, little endian
//!  12..    body: JSON of a [`Request`](crate::messages::Request) or a [`Reply`](crate::messages::Reply)
//! ```
//!
//! The header never changes between versions, so that builds that do not match can say so.

use std::io::{self, ErrorKind, Read, Write};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Version of the messages in this file; raised with every change of their meaning.
pub const VERSION: u16 = 2;
/// Largest body of a request in bytes; an init is about 400.
pub const REQUEST_BYTES_MAX: u32 = 4096;
/// Largest body of a reply in bytes: a welcome of [`crate::state::RANKS_MAX`] of the largest members.
pub const REPLY_BYTES_MAX: u32 = (crate::state::RANKS_MAX + 32) * REQUEST_BYTES_MAX;

const MAGIC: [u8; 4] = *b"RCRV";
const HEADER_BYTES: usize = 12;

/// What can be wrong with the bytes of a peer.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// The connection failed.
    #[error("reading or writing failed: {0}")]
    Io(#[from] io::Error),
    /// The peer closed the connection between or inside messages.
    #[error("the connection was closed after {got} bytes of a message")]
    Closed {
        /// Bytes that had arrived.
        got: usize,
    },
    /// The first bytes are not ours.
    #[error("a message starts with {0:02x?}")]
    Magic([u8; 4]),
    /// The peer speaks another version.
    #[error("the peer speaks wire version {theirs}, this build speaks {VERSION}")]
    Version {
        /// Version of the peer.
        theirs: u16,
    },
    /// Bytes that must be zero are not.
    #[error("reserved bytes of a header are {0:#06x}, not 0")]
    Reserved(u16),
    /// The body is larger than allowed.
    #[error("a message of {bytes} bytes is over the limit of {limit}")]
    TooLong {
        /// Size of the body.
        bytes: u64,
        /// Largest size.
        limit: u32,
    },
    /// A message of ours that does not belong here.
    #[error("a message came out of turn")]
    OutOfTurn,
    /// The body is not the expected JSON.
    #[error("a message cannot be read: {0}")]
    Json(#[from] serde_json::Error),
}

/// Encodes one message with its header.
///
/// # Errors
///
/// [`WireError::TooLong`] if the body has more than `limit` bytes.
pub fn encode<T: Serialize>(message: &T, limit: u32) -> Result<Vec<u8>, WireError> {
    let mut frame = vec![0; HEADER_BYTES];
    serde_json::to_writer(&mut frame, message)?;
    let bytes = frame.len() - HEADER_BYTES;
    let Some(len) = u32::try_from(bytes).ok().filter(|&len| len <= limit) else {
        return Err(WireError::TooLong { bytes: bytes as u64, limit });
    };
    frame[..4].copy_from_slice(&MAGIC);
    frame[4..6].copy_from_slice(&VERSION.to_le_bytes());
    frame[8..12].copy_from_slice(&len.to_le_bytes());
    Ok(frame)
}

/// Writes one message to a blocking writer.
///
/// # Errors
///
/// [`WireError::TooLong`] before a byte is written, [`WireError::Io`] from the writer.
pub fn write_message<T: Serialize>(
    writer: &mut impl Write,
    message: &T,
    limit: u32,
) -> Result<(), WireError> {
    writer.write_all(&encode(message, limit)?)?;
    Ok(())
}

/// Collects the bytes of messages, one after the other, however they are cut.
#[derive(Debug)]
pub struct Reader {
    buffer: Vec<u8>,
    limit: u32,
}

impl Reader {
    /// A reader of messages with a body of at most `limit` bytes each.
    pub fn new(limit: u32) -> Self {
        Self { buffer: Vec::new(), limit }
    }

    /// A reader that begins with a byte that was read already.
    pub(crate) fn begun_with(byte: u8, limit: u32) -> Self {
        Self { buffer: vec![byte], limit }
    }

    /// Reads until the message is whole (`Some`) or the source has no more for now (`None`).
    ///
    /// Reads never pass the end of the message, and the buffer grows with the bytes that arrive,
    /// not with the length that a peer claims.
    ///
    /// # Errors
    ///
    /// Any [`WireError`]; the stream is of no use afterwards.
    pub fn poll<T: DeserializeOwned>(&mut self, source: &mut impl Read) -> Result<Option<T>, WireError> {
        loop {
            let wanted = match self.header()? {
                None => HEADER_BYTES,
                Some(body) if self.buffer.len() == HEADER_BYTES + body => {
                    let message = serde_json::from_slice(&self.buffer[HEADER_BYTES..])?;
                    // A large welcome must not stay allocated for the rest of a session.
                    self.buffer = Vec::new();
                    return Ok(Some(message));
                }
                Some(body) => HEADER_BYTES + body,
            };
            let mut piece = [0; 4096];
            let room = piece.len().min(wanted - self.buffer.len());
            match source.read(&mut piece[..room]) {
                Ok(0) => return Err(WireError::Closed { got: self.buffer.len() }),
                Ok(got) => self.buffer.extend_from_slice(&piece[..got]),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => return Ok(None),
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// Length of the body once the header has arrived; checks as soon as there is something to check.
    fn header(&self) -> Result<Option<usize>, WireError> {
        let seen = self.buffer.len().min(MAGIC.len());
        if self.buffer[..seen] != MAGIC[..seen] {
            let mut magic = [0; 4];
            magic[..seen].copy_from_slice(&self.buffer[..seen]);
            return Err(WireError::Magic(magic));
        }
        let Some((header, _)) = self.buffer.split_first_chunk::<HEADER_BYTES>() else {
            return Ok(None);
        };
        let [_, _, _, _, v0, v1, r0, r1, length @ ..] = *header;
        let (version, reserved) = (u16::from_le_bytes([v0, v1]), u16::from_le_bytes([r0, r1]));
        if version != VERSION {
            return Err(WireError::Version { theirs: version });
        }
        if reserved != 0 {
            return Err(WireError::Reserved(reserved));
        }
        let length = u32::from_le_bytes(length);
        if length > self.limit {
            return Err(WireError::TooLong { bytes: length.into(), limit: self.limit });
        }
        Ok(Some(length as usize))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::{Reply, Request};
    use crate::{RankList, Refusal};
    use proptest::prelude::*;

    fn sample() -> Reply {
        let missing = RankList::from_iter([2, 3, 8]);
        let refusal = Refusal::Timeout { group: "world".into(), rank: 1, waited_ms: 20, nranks: 9, missing };
        Reply::Refused { comm: None, refusal }
    }

    /// Gives one byte at a time and says "not now" before each.
    struct Trickle<'a>(&'a [u8], bool);

    impl Read for Trickle<'_> {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            self.1 = !self.1;
            if self.1 {
                return Err(ErrorKind::WouldBlock.into());
            }
            let Some((&first, rest)) = self.0.split_first() else { return Ok(0) };
            out[0] = first;
            self.0 = rest;
            Ok(1)
        }
    }

    #[test]
    fn messages_survive_any_cut() {
        // One byte per read gives the same message as all at once.
        let frame = encode(&sample(), REPLY_BYTES_MAX).unwrap();
        let whole: Reply = Reader::new(REPLY_BYTES_MAX).poll(&mut frame.as_slice()).unwrap().unwrap();
        assert_eq!(whole, sample());
        let (mut reader, mut source, mut pending) = (Reader::new(REPLY_BYTES_MAX), Trickle(&frame, false), 0);
        let slow: Reply = loop {
            match reader.poll(&mut source).unwrap() {
                Some(message) => break message,
                None => pending += 1,
            }
        };
        assert_eq!((slow, pending), (sample(), frame.len()));
    }

    #[test]
    fn bytes_behind_a_message_are_left_alone() {
        // A reader takes its own message only.
        let mut frame = encode(&sample(), REPLY_BYTES_MAX).unwrap();
        frame.extend_from_slice(b"tail");
        let mut source = frame.as_slice();
        assert!(Reader::new(REPLY_BYTES_MAX).poll::<Reply>(&mut source).unwrap().is_some());
        assert_eq!(source, b"tail");
    }

    #[test]
    fn messages_follow_each_other() {
        // One reader takes several messages, and does not keep the room of a large one.
        let mut frames = encode(&sample(), REPLY_BYTES_MAX).unwrap();
        frames.extend(encode(&Reply::Stopping, REPLY_BYTES_MAX).unwrap());
        let (mut reader, mut source) = (Reader::new(REPLY_BYTES_MAX), frames.as_slice());
        assert_eq!(reader.poll::<Reply>(&mut source).unwrap(), Some(sample()));
        assert_eq!(reader.buffer.capacity(), 0);
        assert_eq!(reader.poll::<Reply>(&mut source).unwrap(), Some(Reply::Stopping));
        assert!(matches!(reader.poll::<Reply>(&mut source).unwrap_err(), WireError::Closed { got: 0 }));
    }

    #[test]
    fn headers_are_checked_before_bodies() {
        // 4 GiB are refused by the header alone, as are other versions, marks and reserved bits.
        let header = |version: u16, reserved: u16, length: u32| {
            let mut frame = MAGIC.to_vec();
            frame.extend(version.to_le_bytes());
            frame.extend(reserved.to_le_bytes());
            frame.extend(length.to_le_bytes());
            Reader::new(100).poll::<Reply>(&mut frame.as_slice()).unwrap_err()
        };
        assert!(matches!(header(VERSION, 0, u32::MAX), WireError::TooLong { limit: 100, .. }));
        assert!(matches!(header(VERSION, 0, 101), WireError::TooLong { bytes: 101, .. }));
        assert!(matches!(header(VERSION, 0, 100), WireError::Closed { got: 12 }));
        assert!(matches!(header(7, 0, 1), WireError::Version { theirs: 7 }));
        assert!(matches!(header(VERSION, 3, 1), WireError::Reserved(3)));
        let text = Reader::new(100).poll::<Reply>(&mut b"GET".as_slice()).unwrap_err();
        assert!(matches!(text, WireError::Magic([b'G', b'E', b'T', 0])));
        let empty = Reader::new(100).poll::<Reply>(&mut [].as_slice()).unwrap_err();
        assert!(matches!(empty, WireError::Closed { got: 0 }));
    }

    #[test]
    fn overlong_messages_are_not_sent() {
        // The bound holds for the writer as well.
        assert!(matches!(encode(&sample(), 10), Err(WireError::TooLong { limit: 10, .. })));
        assert!(write_message(&mut Vec::new(), &sample(), 10).is_err());
    }

    proptest! {
        #[test]
        fn damaged_messages_never_panic(at in 0usize..200, flip in 1u8.., cut in 0usize..300) {
            let mut frame = encode(&sample(), REPLY_BYTES_MAX).unwrap();
            let at = at % frame.len();
            frame[at] ^= flip;
            frame.truncate(cut.max(1));
            let _ = Reader::new(REPLY_BYTES_MAX).poll::<Reply>(&mut frame.as_slice());
        }

        #[test]
        fn buffers_grow_with_what_arrives_only(
            head in proptest::collection::vec(any::<u8>(), 0..16),
            valid in prop_oneof![2 => Just(HEADER_BYTES), 1 => 0..HEADER_BYTES],
            claim in prop_oneof![2 => 0u32..16_384, 1 => any::<u32>()],
            body in prop_oneof![
                proptest::collection::vec(any::<u8>(), 0..64),
                proptest::collection::vec(any::<u8>(), 0..20_000),
            ],
            limit in 0u32..16_384,
        ) {
            // Whatever is claimed: no panic, and never more room than the bound or twice what has come.
            let mut frame = MAGIC.to_vec();
            frame.extend(VERSION.to_le_bytes());
            frame.extend([0, 0]);
            frame.extend(claim.to_le_bytes());
            frame.truncate(valid);
            frame.extend(head);
            frame.extend(body);
            let mut reader = Reader::new(limit);
            let mut source = frame.as_slice();
            while let Ok(Some(_)) = reader.poll::<Request>(&mut source) {}
            let room = HEADER_BYTES + limit as usize;
            prop_assert!(reader.buffer.len() <= room);
            prop_assert!(reader.buffer.capacity() <= 2 * room.max(HEADER_BYTES));
            prop_assert!(reader.buffer.capacity() <= 2 * frame.len().max(HEADER_BYTES));
        }

        #[test]
        fn hostile_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let mut frame = encode(&0u8, 10).unwrap();
            frame.truncate(8);
            frame.extend((bytes.len() as u32).to_le_bytes());
            frame.extend(&bytes);
            let _ = Reader::new(64).poll::<Request>(&mut frame.as_slice());
        }
    }
}
