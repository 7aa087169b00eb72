//! The secret of a job, and the 128 bytes that carry it with the address of the rendezvous.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::str::FromStr;

use crate::Error;

/// 32 random bytes that a rank must know to join; never shown by `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; Self::BYTES]);

impl Secret {
    /// Size of a secret in bytes.
    pub const BYTES: usize = 32;

    /// Draws a secret from the system's random cause.
    ///
    /// # Errors
    ///
    /// [`Error::Entropy`] if `/dev/urandom` cannot be read.
    pub fn random() -> Result<Self, Error> {
        random_bytes().map(Self)
    }

    /// Takes a secret made elsewhere.
    pub fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }

    /// The bytes, for the code that proves knowledge of them.
    pub(crate) fn as_bytes(&self) -> &[u8; Self::BYTES] {
        &self.0
    }

    /// The secret as 64 hex digits, for an environment variable.
    pub fn to_hex(&self) -> String {
        hex(&self.0)
    }

    /// Reads 64 hex digits.
    ///
    /// # Errors
    ///
    /// [`Error::SecretText`], which names the length but never the text.
    pub fn from_hex(text: &str) -> Result<Self, Error> {
        unhex(text).map(Self).ok_or(Error::SecretText { found: text.chars().count() })
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Where to join and the secret to show there, in the 128 bytes of an `ncclUniqueId`.
///
/// ```text
///   0..8    magic            16..32  IPv6 address, or IPv4 in the first 4 bytes
///   8..10   version, LE      32..36  IPv6 scope, LE
///  10       family, 4 or 6   36..64  zero
///  11       zero             64..96  secret
///  12..14   port, LE         96..120 zero
///  14..16   zero            120..128 checksum of 0..120, LE
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct UniqueId {
    addr: SocketAddr,
    secret: Secret,
}

const MAGIC: [u8; 8] = *b"RINGCCL\0";
const VERSION: u16 = 1;
const ZEROED: [std::ops::Range<usize>; 4] = [11..12, 14..16, 36..64, 96..120];

impl UniqueId {
    /// Size of an id in bytes, as NCCL_UNIQUE_ID_BYTES.
    pub const BYTES: usize = 128;

    /// Joins an address and a secret into an id.
    ///
    /// The flow label of an IPv6 address is dropped: it does not name an endpoint.
    pub fn new(addr: SocketAddr, secret: Secret) -> Self {
        let addr = match addr {
            SocketAddr::V6(v6) => SocketAddrV6::new(*v6.ip(), v6.port(), 0, v6.scope_id()).into(),
            v4 @ SocketAddr::V4(_) => v4,
        };
        Self { addr, secret }
    }

    /// Address of the coordinator.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Secret of the coordinator.
    pub fn secret(&self) -> &Secret {
        &self.secret
    }

    /// The id as bytes to be handed to other ranks.
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut out = [0; Self::BYTES];
        out[..8].copy_from_slice(&MAGIC);
        out[8..10].copy_from_slice(&VERSION.to_le_bytes());
        out[12..14].copy_from_slice(&self.addr.port().to_le_bytes());
        match self.addr {
            SocketAddr::V4(v4) => {
                out[10] = 4;
                out[16..20].copy_from_slice(&v4.ip().octets());
            }
            SocketAddr::V6(v6) => {
                out[10] = 6;
                out[16..32].copy_from_slice(&v6.ip().octets());
                out[32..36].copy_from_slice(&v6.scope_id().to_le_bytes());
            }
        }
        out[64..96].copy_from_slice(&self.secret.0);
        let sum = checksum(&out[..120]);
        out[120..].copy_from_slice(&sum.to_le_bytes());
        out
    }

    /// Reads an id that came from anywhere.
    ///
    /// # Errors
    ///
    /// [`Error::UniqueId`] with what is wrong: every bit of the input is checked.
    pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Result<Self, Error> {
        let refuse = |why| Err(Error::UniqueId(why));
        if bytes[..8] != MAGIC {
            return refuse("it does not start with RingCCL's mark");
        }
        if u16::from_le_bytes(array(bytes, 8)) != VERSION {
            return refuse("it was made by another version of RingCCL");
        }
        if u64::from_le_bytes(array(bytes, 120)) != checksum(&bytes[..120]) {
            return refuse("its checksum does not fit, so it was damaged on the way");
        }
        if ZEROED.iter().any(|range| bytes[range.clone()].iter().any(|&byte| byte != 0)) {
            return refuse("bytes that must be zero are not");
        }
        let port = u16::from_le_bytes(array(bytes, 12));
        if port == 0 {
            return refuse("its port is 0");
        }
        let addr = match bytes[10] {
            4 if bytes[20..36].iter().any(|&byte| byte != 0) => {
                return refuse("bytes behind its IPv4 address");
            }
            4 => SocketAddr::from((Ipv4Addr::from(array::<4>(bytes, 16)), port)),
            6 => {
                let scope = u32::from_le_bytes(array(bytes, 32));
                SocketAddrV6::new(Ipv6Addr::from(array::<16>(bytes, 16)), port, 0, scope).into()
            }
            _ => return refuse("its address is neither IPv4 nor IPv6"),
        };
        Ok(Self { addr, secret: Secret(array(bytes, 64)) })
    }
}

impl fmt::Debug for UniqueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UniqueId").field("addr", &self.addr).field("secret", &self.secret).finish()
    }
}

/// The whole id, secret included, as 256 hex digits.
impl fmt::Display for UniqueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.to_bytes()))
    }
}

impl FromStr for UniqueId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let bytes = unhex(text).ok_or(Error::UniqueId("its text is not 256 hex digits"))?;
        Self::from_bytes(&bytes)
    }
}

/// The address that a rank on this host connects to for a server bound to `addr`.
pub(crate) fn reachable(mut addr: SocketAddr) -> SocketAddr {
    match addr.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => addr.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => addr.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    addr
}

/// The system's random cause, kept open so that it still works when descriptors have run out.
#[derive(Debug)]
pub(crate) struct Entropy(File);

impl Entropy {
    pub(crate) fn new() -> Result<Self, Error> {
        File::open("/dev/urandom").map(Self).map_err(Error::Entropy)
    }

    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        self.0.try_clone().map(Self)
    }

    /// The next `N` bytes.
    pub(crate) fn bytes<const N: usize>(&self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        (&self.0).read_exact(&mut bytes)?;
        Ok(bytes)
    }
}

/// `N` bytes from the system's random cause.
pub(crate) fn random_bytes<const N: usize>() -> Result<[u8; N], Error> {
    Entropy::new()?.bytes().map_err(Error::Entropy)
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    use fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}"); // writing to a String cannot fail
        text
    })
}

/// Reads exactly `2 * N` hex digits.
pub(crate) fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let text = text.as_bytes();
    if text.len() != 2 * N {
        return None;
    }
    let mut out = [0; N];
    for (byte, pair) in out.iter_mut().zip(text.chunks_exact(2)) {
        let digit = |c: u8| char::from(c).to_digit(16).and_then(|d| u8::try_from(d).ok());
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(out)
}

/// The `N` bytes at `from`; both are constants of the layout above.
fn array<const N: usize>(bytes: &[u8; UniqueId::BYTES], from: usize) -> [u8; N] {
    std::array::from_fn(|i| bytes[from + i])
}

/// FNV-1a over 64 bits: finds damage, not malice; the secret stands against malice.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample(addr: &str) -> UniqueId {
        UniqueId::new(addr.parse().unwrap(), Secret([0xa5; 32]))
    }

    #[test]
    fn ids_survive_bytes_and_text() {
        // An id read back is the id that was written, for both families.
        for addr in ["127.0.0.1:1", "10.1.2.3:65535", "[::1]:29500", "[fe80::1%3]:7"] {
            let id = sample(addr);
            assert_eq!(UniqueId::from_bytes(&id.to_bytes()).unwrap(), id);
            assert_eq!(id.to_string().len(), 256);
            assert_eq!(id.to_string().parse::<UniqueId>().unwrap(), id);
        }
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        // Damage anywhere in the 128 bytes is refused.
        let good = sample("127.0.0.1:29500").to_bytes();
        for bit in 0..good.len() * 8 {
            let mut bad = good;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(UniqueId::from_bytes(&bad).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn well_summed_nonsense_is_refused() {
        // A right checksum does not make port 0, a strange family or trailing bytes acceptable.
        for (at, value) in [(10, 5), (12, 0), (21, 1), (50, 1), (100, 1), (11, 1), (8, 9)] {
            let mut bytes = sample("127.0.0.1:7").to_bytes();
            bytes[at] = value;
            let sum = checksum(&bytes[..120]);
            bytes[120..].copy_from_slice(&sum.to_le_bytes());
            assert!(UniqueId::from_bytes(&bytes).is_err(), "byte {at}");
        }
    }

    #[test]
    fn secrets_stay_secret() {
        // Neither Debug nor an error about a bad text shows a secret.
        let id = sample("127.0.0.1:7");
        assert!(!format!("{id:?}").contains("a5"));
        let text = "a5".repeat(31);
        assert!(!Secret::from_hex(&text).unwrap_err().to_string().contains("a5a5"));
        assert_eq!(Secret::from_hex(&id.secret().to_hex()).unwrap(), *id.secret());
        assert_ne!(Secret::random().unwrap(), Secret::random().unwrap());
    }

    #[test]
    fn unspecified_addresses_become_loopback() {
        // Nobody can connect to 0.0.0.0 everywhere.
        assert_eq!(reachable("0.0.0.0:5".parse().unwrap()), "127.0.0.1:5".parse().unwrap());
        assert_eq!(reachable("[::]:5".parse().unwrap()), "[::1]:5".parse().unwrap());
        assert_eq!(reachable("10.0.0.1:5".parse().unwrap()), "10.0.0.1:5".parse().unwrap());
    }

    proptest! {
        #[test]
        fn hostile_input_never_panics(bytes in proptest::collection::vec(any::<u8>(), 128), text in ".*") {
            let bytes: [u8; 128] = bytes.try_into().unwrap();
            prop_assert!(UniqueId::from_bytes(&bytes).is_err());
            prop_assert!(text.parse::<UniqueId>().is_err());
        }
    }
}
