//! Messages of the rendezvous from a hostile peer, in both directions and cut anywhere.

use crate::input::Input;
use coordinator_lite::messages::{Reply, Request};
use coordinator_lite::wire::{REPLY_BYTES_MAX, REQUEST_BYTES_MAX, Reader, VERSION, WireError, encode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::io::{self, ErrorKind, Read};

/// Bytes before the body; the length of the body is in the last four.
const HEADER: usize = 12;

/// First byte: bit 0 the direction, bit 1 whether the rest is a body that gets a right header. Then four sizes of
/// pieces, used in turn; 0 is "nothing now".
pub(crate) fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let mode = input.byte();
    let pieces: [u8; 4] = input.array();
    let body = input.rest();
    let framed;
    let bytes = if mode & 2 != 0 {
        // The header of a message of ours, with the length of this body.
        let mut frame = encode(&0u8, 10).expect("a digit is a message");
        frame.truncate(HEADER - 4);
        frame.extend((body.len() as u32).to_le_bytes());
        frame.extend_from_slice(body);
        framed = frame;
        framed.as_slice()
    } else {
        body
    };
    if mode & 1 == 0 {
        check::<Request>(bytes, pieces, REQUEST_BYTES_MAX);
    } else {
        check::<Reply>(bytes, pieces, REPLY_BYTES_MAX);
    }
}

fn check<T: Serialize + DeserializeOwned + PartialEq + Debug>(bytes: &[u8], pieces: [u8; 4], limit: u32) {
    let whole = read::<T>(bytes, [255; 4], limit);
    let cut = read::<T>(bytes, pieces, limit);
    if let Some(expected) = header_error(bytes, limit) {
        assert!(whole.as_ref().is_err_and(|found| found.contains(expected)), "{expected}: {whole:?}");
    } else {
        let length = u32::from_le_bytes(bytes[HEADER - 4..HEADER].try_into().expect("four bytes"));
        let own = &bytes[..bytes.len().min(HEADER + length as usize)];
        assert_eq!(read::<T>(own, pieces, limit), whole, "what follows a message changes it");
    }
    match (&whole, &cut) {
        (Ok((a, used)), Ok((b, also_used))) => {
            assert_eq!((a, used), (b, also_used), "the cut changes a message");
            // Escapes are longer than what they stand for, so a message may grow beyond the limit when written.
            match encode(a, limit) {
                Ok(again) => {
                    let (back, _) = read::<T>(&again, pieces, limit).expect("our own message is readable");
                    assert_eq!(&back, a, "a message changes on the way");
                }
                Err(WireError::TooLong { .. }) => {}
                Err(other) => panic!("a message that was read cannot be written: {other}"),
            }
        }
        (Err(a), Err(b)) => assert_eq!(a, b, "the cut changes an error"),
        _ => panic!("the cut decides: {whole:?}, {cut:?}"),
    }
}

/// What the first twelve bytes must be refused for, whatever follows.
fn header_error(bytes: &[u8], limit: u32) -> Option<&'static str> {
    let ours = encode(&0u8, 10).expect("a digit is a message");
    let seen = bytes.len().min(4);
    if bytes[..seen] != ours[..seen] {
        return Some("magic");
    }
    let Some((header, _)) = bytes.split_first_chunk::<HEADER>() else { return Some("was closed after") };
    let [_, _, _, _, v0, v1, r0, r1, length @ ..] = *header;
    if u16::from_le_bytes([v0, v1]) != VERSION {
        return Some("wire version");
    }
    if (r0, r1) != (0, 0) {
        return Some("reserved");
    }
    (u32::from_le_bytes(length) > limit).then_some("over the limit")
}

/// Polls one message out of `bytes`, and says how many it took.
fn read<T: DeserializeOwned>(bytes: &[u8], pieces: [u8; 4], limit: u32) -> Result<(T, usize), String> {
    let mut source = Pieces { left: bytes, sizes: pieces, turn: 0 };
    let mut reader = Reader::new(limit);
    // Each poll takes at least a byte every four turns, or there is nothing to take.
    for _ in 0..=4 * (bytes.len() + 2) {
        match reader.poll::<T>(&mut source) {
            Ok(Some(message)) => return Ok((message, bytes.len() - source.left.len())),
            Ok(None) => {}
            // What had arrived when it was refused depends on the cut, the verdict does not.
            Err(WireError::Magic(_)) => return Err("magic".into()),
            Err(error) => return Err(error.to_string()),
        }
    }
    panic!("a message does not end");
}

/// A source that gives a few bytes at a time.
struct Pieces<'a> {
    left: &'a [u8],
    sizes: [u8; 4],
    turn: usize,
}

impl Read for Pieces<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let size = usize::from(self.sizes[self.turn % 4]);
        self.turn += 1;
        // Four times nothing would be for ever.
        if size == 0 && !self.turn.is_multiple_of(4) {
            return Err(ErrorKind::WouldBlock.into());
        }
        let count = size.max(1).min(out.len()).min(self.left.len());
        out[..count].copy_from_slice(&self.left[..count]);
        self.left = &self.left[count..];
        Ok(count)
    }
}
