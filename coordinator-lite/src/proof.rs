//! Proof of knowing a secret without showing it.
//!
//! ```text
//!   rank:         nonce c ------------------------------------------>
//!   coordinator:  <---- nonce s, HMAC(secret, "coordinator" | c | s)
//!   rank:         HMAC(secret, "rank" | c | s) --------------------->
//! ```
//!
//! Each side draws its nonce anew, so that no proof is good twice; the words keep one side's proof from being
//! sent back as the other's. The rank checks first and says nothing to an impostor that it could use. Whoever
//! can change the bytes between the two is not kept out: there is no encryption here.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use sha2::Sha256;

use crate::Secret;
use crate::unique_id::{hex, unhex};

const BYTES: usize = 32;
/// Block size of SHA-256; HMAC fills a shorter key up with zeros.
const BLOCK: usize = 64;

/// 32 random bytes, good for one talk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nonce(pub(crate) [u8; BYTES]);

/// What only somebody who knows the secret can make.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Proof([u8; BYTES]);

impl fmt::Debug for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Proof(..)")
    }
}

/// Who proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Coordinator,
    Rank,
}

/// The two nonces of one talk: the rank's and the coordinator's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Talk {
    pub(crate) rank: Nonce,
    pub(crate) coordinator: Nonce,
}

impl Talk {
    fn mac(&self, secret: &Secret, side: Side) -> Hmac<Sha256> {
        let word: &[u8] = match side {
            Side::Coordinator => b"ringccl coordinator 2|",
            Side::Rank => b"ringccl rank 2|",
        };
        let mut mac = keyed(secret);
        [word, &self.rank.0, &self.coordinator.0].iter().for_each(|part| mac.update(part));
        mac
    }

    /// The proof that `side` gives.
    pub(crate) fn prove(&self, secret: &Secret, side: Side) -> Proof {
        Proof(self.mac(secret, side).finalize().into_bytes().into())
    }

    /// Whether `proof` is `side`'s; takes the same time for every wrong one.
    pub(crate) fn holds(&self, secret: &Secret, side: Side, proof: &Proof) -> bool {
        self.mac(secret, side).verify_slice(&proof.0).is_ok()
    }
}

/// Whether two secrets are equal, in a time that does not depend on where they differ.
pub(crate) fn same_secret(a: &Secret, b: &Secret) -> bool {
    let word = b"ringccl same secret";
    let (mut theirs, mut ours) = (keyed(a), keyed(b));
    theirs.update(word);
    ours.update(word);
    ours.verify(&theirs.finalize().into_bytes()).is_ok()
}

fn keyed(secret: &Secret) -> Hmac<Sha256> {
    let mut block = [0; BLOCK];
    block[..Secret::BYTES].copy_from_slice(secret.as_bytes());
    Hmac::new(&block.into())
}

fn read_hex<'de, D: Deserializer<'de>>(deserializer: D) -> Result<[u8; BYTES], D::Error> {
    let text = String::deserialize(deserializer)?;
    unhex(&text).ok_or_else(|| de::Error::custom("expected 64 hex digits"))
}

impl Serialize for Nonce {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&hex(&self.0))
    }
}

impl<'de> Deserialize<'de> for Nonce {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read_hex(deserializer).map(Self)
    }
}

impl Serialize for Proof {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&hex(&self.0))
    }
}

impl<'de> Deserialize<'de> for Proof {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read_hex(deserializer).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mac_is_hmac_sha256() {
        // RFC 4231, test case 2, with its key filled up to 32 bytes, which HMAC does by itself.
        let mut key = [0; 32];
        key[..4].copy_from_slice(b"Jefe");
        let mut mac = keyed(&Secret::from_bytes(key));
        mac.update(b"what do ya want for nothing?");
        let expected = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        assert_eq!(hex(&mac.finalize().into_bytes()), expected);
    }

    #[test]
    fn a_proof_holds_for_its_secret_side_and_talk_only() {
        // Another secret, the other side's word, other nonces, exchanged nonces: nothing of it holds.
        let (secret, other) = (Secret::from_bytes([1; 32]), Secret::from_bytes([2; 32]));
        let (c, s) = (Nonce([3; 32]), Nonce([4; 32]));
        let talk = Talk { rank: c, coordinator: s };
        let proof = talk.prove(&secret, Side::Rank);
        assert!(talk.holds(&secret, Side::Rank, &proof));
        assert!(!talk.holds(&other, Side::Rank, &proof));
        assert!(!talk.holds(&secret, Side::Coordinator, &proof));
        assert!(!Talk { rank: s, coordinator: c }.holds(&secret, Side::Rank, &proof));
        assert!(!Talk { rank: c, coordinator: c }.holds(&secret, Side::Rank, &proof));
        assert!(same_secret(&secret, &secret.clone()) && !same_secret(&secret, &other));
    }
}
