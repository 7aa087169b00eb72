//! Unique ids from anywhere, as bytes and as text.

use crate::input::Input;
use coordinator_lite::UniqueId;

/// First byte: bit 0 whether the checksum is made right, bit 1 whether the rest is a text as it stands.
pub(crate) fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let mode = input.byte();
    if mode & 2 != 0 {
        let Ok(text) = std::str::from_utf8(input.rest()) else { return };
        if let Ok(id) = text.parse::<UniqueId>() {
            assert_eq!(id.to_string(), text.to_ascii_lowercase(), "an id reads as another text");
        }
        return;
    }
    let mut bytes: [u8; UniqueId::BYTES] = input.array();
    if mode & 1 != 0 {
        let sum = checksum(&bytes[..120]);
        bytes[120..].copy_from_slice(&sum.to_le_bytes());
    }
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    match (UniqueId::from_bytes(&bytes), hex.parse::<UniqueId>()) {
        (Ok(id), Ok(of_text)) => {
            assert_eq!(id, of_text);
            assert_eq!(id.to_bytes(), bytes, "a bit of an id has no meaning");
            assert_eq!(id.to_string(), hex);
            assert_ne!(id.addr().port(), 0, "nobody listens on port 0");
            assert!(!format!("{id:?}").contains(&hex[128..192]), "a secret is shown");
        }
        (Err(of_bytes), Err(of_text)) => assert_eq!(of_bytes.to_string(), of_text.to_string()),
        (of_bytes, of_text) => panic!("bytes and text differ: {of_bytes:?}, {of_text:?}"),
    }
}

/// FNV-1a, as the id has it.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
