//! The rendezvous that this process hosts, for the ids that it has given out.
//!
//! One goes when a rank of this process has joined by its id: then all ranks have met. Of those whose id nobody of this
//! process uses, the oldest go when there are too many.

use crate::comm::lock;
use crate::env;
use crate::failure::Failure;
use crate::types::UNIQUE_ID_BYTES;
use ringccl::UniqueId;
use ringccl::comm::Root;
use ringccl::settings::Vars;
use std::collections::BTreeSet;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Mutex;

/// A rendezvous, until it is dropped.
#[derive(Debug)]
pub(crate) struct Hosted {
    _root: Root,
}

/// Most rendezvous that wait for ranks of other processes.
const HOSTED_MAX: usize = 256;
/// Most ids of which is known that they were used.
const USED_MAX: usize = 1 << 16;

static HOSTED: Mutex<Vec<([u8; UNIQUE_ID_BYTES], Root)>> = Mutex::new(Vec::new());
static USED: Mutex<BTreeSet<(u64, u32)>> = Mutex::new(BTreeSet::new());

/// The address of `NCCL_COMM_ID`, if it is set.
///
/// # Errors
/// `ncclInvalidArgument` for what is no address.
fn fixed(vars: &Vars) -> Result<Option<SocketAddr>, Failure> {
    let Some(text) = env::text(vars, "NCCL_COMM_ID") else { return Ok(None) };
    let addr = text.to_socket_addrs().ok().and_then(|mut addrs| addrs.next());
    addr.map(Some).ok_or_else(|| {
        Failure::argument(format!(
            "NCCL_COMM_ID={text} is no host:port, [ipv6]:port or name:port of this host"
        ))
    })
}

/// Whether ids come from `NCCL_COMM_ID`.
pub(crate) fn is_fixed(vars: &Vars) -> bool {
    vars.get("NCCL_COMM_ID").is_some()
}

/// A new id: of a rendezvous that begins now, or of the one that rank 0 will start where `NCCL_COMM_ID` says.
pub(crate) fn new_id() -> Result<[u8; UNIQUE_ID_BYTES], Failure> {
    if let Some(addr) = fixed(&env::vars())? {
        return Ok(Root::id_at(addr).to_bytes());
    }
    let root = Root::new()?;
    let id = root.unique_id().to_bytes();
    let mut hosted = lock(&HOSTED);
    let too_many = hosted.len().saturating_sub(HOSTED_MAX - 1);
    let old: Vec<_> = hosted.drain(..too_many).collect();
    hosted.push((id, root));
    drop(hosted);
    // Ending a rendezvous joins its thread: not under the lock.
    drop(old);
    Ok(id)
}

/// A rank of this process has joined by the id.
pub(crate) fn used(id: &[u8; UNIQUE_ID_BYTES]) {
    let mut hosted = lock(&HOSTED);
    let place = hosted.iter().position(|(other, _)| other == id);
    let gone = place.map(|place| hosted.swap_remove(place));
    drop(hosted);
    drop(gone);
}

/// What a rank joins by, and the rendezvous if it has to start that itself.
///
/// # Errors
/// `ncclInvalidArgument` for bytes that are no id; `ncclInvalidUsage` for an id that this rank has used before.
pub(crate) fn prepare(
    bytes: &[u8; UNIQUE_ID_BYTES],
    rank: u32,
) -> Result<(UniqueId, Option<Hosted>), Failure> {
    if let Some(addr) = fixed(&env::vars())? {
        let hosted = (rank == 0).then(|| Root::at(addr)).transpose()?;
        return Ok((Root::id_at(addr), hosted.map(|root| Hosted { _root: root })));
    }
    let id = UniqueId::from_bytes(bytes).map_err(|error| {
        Failure::argument(format!(
            "the unique id is none that this library's ncclGetUniqueId has made: {error}"
        ))
    })?;
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[64..72]);
    let mut used = lock(&USED);
    if used.len() >= USED_MAX {
        used.pop_first();
    }
    if !used.insert((u64::from_ne_bytes(number), rank)) {
        return Err(Failure::usage(format!(
            "rank {rank} has joined by this unique id before: each communicator needs an id of its own"
        )));
    }
    Ok((id, None))
}

/// A number for log lines that all who join by the id have.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// A number that no other call of this process gets, for communicators that have no id.
pub(crate) fn new_number() -> u128 {
    static NEXT: Mutex<u64> = Mutex::new(0);
    let mut next = lock(&NEXT);
    *next += 1;
    u128::from(std::process::id()) << 64 | u128::from(*next)
}
