//! Errors of the rendezvous, each with the values and the remedy.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::wire::WireError;

/// Why a rendezvous failed or could not be offered.
#[derive(Debug, thiserror::Error)]
#[rustfmt::skip] // rustfmt joins messages that are wrapped by hand
pub enum Error {
    /// Another program listens on the wanted port.
    #[error(
        "port {} of {} is in use; stop the program that holds it (`ss -ltnp`) or choose another \
         port, 0 for any free one",
        .0.port(), .0.ip()
    )]
    PortBusy(SocketAddr),
    /// The address cannot be listened on.
    #[error("cannot listen on {addr}: {cause}; use an address of this host and a port above 1023")]
    Bind {
        /// Address that was asked for.
        addr: SocketAddr,
        /// Answer of the system.
        cause: io::Error,
    },
    /// No random bytes for a secret.
    #[error("cannot read 32 random bytes from /dev/urandom: {0}; mount /dev in this container")]
    Entropy(io::Error),
    /// The server's thread or its wake-up could not be made.
    #[error(
        "cannot start the coordinator's thread: {0}; raise the limits on threads (`ulimit -u`) and \
         descriptors (`ulimit -n`)"
    )]
    Start(io::Error),
    /// The process cannot say who it is.
    #[error("cannot read {path}: {cause}; ranks need /proc and /dev/shm")]
    Identity {
        /// File that was read.
        path: &'static str,
        /// Answer of the system.
        cause: io::Error,
    },
    /// Nobody answered at the address until the deadline.
    #[error(
        "no coordinator at {addr} within {}: {cause}; is the launcher (or rank 0) still running, \
         and is the address right?",
        seconds(*.waited)
    )]
    Unreachable {
        /// Address that was tried.
        addr: SocketAddr,
        /// Time spent trying.
        waited: Duration,
        /// Last answer of the system.
        cause: io::Error,
    },
    /// The connection broke before an answer came.
    #[error("the coordinator at {addr} went away before it answered: {cause}; look for why it ended")]
    Lost {
        /// Address of the coordinator.
        addr: SocketAddr,
        /// What was seen.
        cause: io::Error,
    },
    /// The coordinator took the connection and never answered.
    #[error(
        "{addr} took the connection but did not answer within {}; is another program listening \
         there?",
        seconds(*.waited)
    )]
    Silent {
        /// Address of the coordinator.
        addr: SocketAddr,
        /// Time spent waiting.
        waited: Duration,
    },
    /// The answer is not one of ours.
    #[error(
        "the answer from {addr} is not a coordinator's: {cause}; another program may listen \
         there, or the builds differ"
    )]
    Protocol {
        /// Address of the peer.
        addr: SocketAddr,
        /// What was wrong with its bytes.
        cause: WireError,
    },
    /// The coordinator speaks another version of the protocol.
    #[error(
        "the coordinator at {addr} speaks wire version {theirs}, this build speaks {ours}; run \
         matching builds"
    )]
    WireVersion {
        /// Address of the coordinator.
        addr: SocketAddr,
        /// Version of this build.
        ours: u16,
        /// Version of the coordinator.
        theirs: u16,
    },
    /// The hello is larger than the protocol allows.
    #[error("the hello of rank {rank} is too large: {cause}; shorten the names of its group and node")]
    TooLarge {
        /// Rank that wanted to join.
        rank: u32,
        /// The bound and the size.
        cause: WireError,
    },
    /// The coordinator said no.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A unique id that this build did not make, or that was damaged.
    #[error("not a unique id: {0}; pass on all 128 bytes of the id that rank 0 made")]
    UniqueId(&'static str),
    /// A secret that is not 64 hex digits.
    #[error(
        "not a secret: expected 64 hex digits, found {found} characters; take RINGCCL_SECRET as \
         the launcher sets it"
    )]
    SecretText {
        /// Length of the text.
        found: usize,
    },
}

/// Why the coordinator turned a rank away; travels over the wire.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[rustfmt::skip] // as above
pub enum Refusal {
    /// The secret is not the server's.
    #[error(
        "the coordinator refused this rank: wrong secret; use the unique id or RINGCCL_SECRET of \
         this very job"
    )]
    WrongSecret,
    /// The caller speaks another version of the protocol.
    #[error("the coordinator speaks wire version {ours}, this rank speaks {theirs}; run matching builds")]
    WireVersion {
        /// Version of the server.
        ours: u16,
        /// Version of the rank.
        theirs: u16,
    },
    /// The bytes were not a request.
    #[error("the coordinator could not read the request: {0}")]
    Malformed(String),
    /// Two processes claim one rank.
    #[error(
        "group `{group}`: rank {rank} joined twice, by process {first_pid} and by process {pid}; \
         give every process its own RANK"
    )]
    DuplicateRank {
        /// Name of the group.
        group: String,
        /// Rank claimed twice.
        rank: u32,
        /// Process that joined first.
        first_pid: u32,
        /// Process that was refused.
        pid: u32,
    },
    /// Two ranks disagree about the number of ranks.
    #[error(
        "group `{group}`: rank {rank} says {nranks} ranks, rank {first_rank} said {expected}; give \
         all ranks the same WORLD_SIZE"
    )]
    WorldSize {
        /// Name of the group.
        group: String,
        /// Rank that was refused.
        rank: u32,
        /// Its number of ranks.
        nranks: u32,
        /// Rank that joined first.
        first_rank: u32,
        /// Number of ranks that it said.
        expected: u32,
    },
    /// A rank outside of `0 .. nranks`, or a number of ranks outside of the supported range.
    #[error(
        "group `{group}`: rank {rank} of {nranks} is impossible; ranks go from 0 to the number of \
         ranks less 1, of which there may be 1 to {limit}"
    )]
    RankRange {
        /// Name of the group.
        group: String,
        /// Rank that was refused.
        rank: u32,
        /// Its number of ranks.
        nranks: u32,
        /// Largest number of ranks.
        limit: u32,
    },
    /// An empty or overlong group name.
    #[error("a group name has {found} bytes; use 1 to {limit}")]
    GroupName {
        /// Bytes of the name.
        found: usize,
        /// Largest number of bytes.
        limit: usize,
    },
    /// Too many groups are waiting for their ranks.
    #[error(
        "{limit} groups wait for ranks already; let some of them complete, or end the ranks that \
         wait in vain"
    )]
    TooManyGroups {
        /// Largest number of groups waiting at once.
        limit: usize,
    },
    /// Ranks run different versions of the library.
    #[error(
        "group `{group}`: rank {rank} runs version {version}, rank {first_rank} runs {expected}; \
         run matching builds"
    )]
    Version {
        /// Name of the group.
        group: String,
        /// Rank that was refused.
        rank: u32,
        /// Its version.
        version: String,
        /// Rank that joined first.
        first_rank: u32,
        /// Version of that rank.
        expected: String,
    },
    /// Some ranks did not come in time.
    #[error(
        "group `{group}`: {} of {nranks} ranks missing after {} (rank {rank} gave up first): \
         {missing}; look at their output for why they did not start",
        .missing.len(), seconds(Duration::from_millis(*.waited_ms))
    )]
    Timeout {
        /// Name of the group.
        group: String,
        /// Rank whose deadline passed first.
        rank: u32,
        /// How long that rank waited, in milliseconds.
        waited_ms: u64,
        /// Number of ranks of the group.
        nranks: u32,
        /// Ranks that have not joined.
        missing: RankList,
    },
    /// A rank that had joined went away before the group was complete.
    #[error(
        "group `{group}`: rank {rank} (process {pid}) went away while the others were still \
         joining; look at its output for why it ended"
    )]
    Vanished {
        /// Name of the group.
        group: String,
        /// Rank that went away.
        rank: u32,
        /// Its process.
        pid: u32,
    },
}

/// Sorted ranks, shown as `1, 3-7`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankList(Vec<(u32, u32)>);

impl RankList {
    /// Number of ranks in the list.
    pub fn len(&self) -> u64 {
        self.0.iter().map(|&(first, last)| u64::from(last.saturating_sub(first)) + 1).sum()
    }

    /// Whether the list holds no rank.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether `rank` is in the list.
    pub fn contains(&self, rank: u32) -> bool {
        self.0.iter().any(|&(first, last)| (first..=last).contains(&rank))
    }
}

impl FromIterator<u32> for RankList {
    /// Collects ranks that come in ascending order.
    fn from_iter<I: IntoIterator<Item = u32>>(ranks: I) -> Self {
        let mut runs: Vec<(u32, u32)> = Vec::new();
        for rank in ranks {
            match runs.last_mut() {
                Some((_, last)) if last.checked_add(1) == Some(rank) => *last = rank,
                _ => runs.push((rank, rank)),
            }
        }
        Self(runs)
    }
}

impl fmt::Display for RankList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, &(first, last)) in self.0.iter().enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            match last.saturating_sub(first) {
                0 => write!(f, "{comma}{first}")?,
                1 => write!(f, "{comma}{first}, {last}")?,
                _ => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

/// A duration as people say it: `0.25 s`, `30 s`.
fn seconds(duration: Duration) -> String {
    let text = format!("{:.2}", duration.as_secs_f64());
    format!("{} s", text.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rank_lists_are_shown_as_ranges() {
        // Ranges keep the message of 64 missing ranks on one line.
        let show = |ranks: &[u32]| ranks.iter().copied().collect::<RankList>().to_string();
        assert_eq!(show(&[]), "");
        assert_eq!(show(&[4]), "4");
        assert_eq!(show(&[1, 2, 5, 6, 7, u32::MAX]), "1, 2, 5-7, 4294967295");
        let list: RankList = [1, 2, 5].into_iter().collect();
        assert_eq!(list.len(), 3);
        assert!(list.contains(2) && !list.contains(3) && !list.is_empty());
    }

    #[test]
    fn durations_have_no_idle_zeros() {
        // Messages read like text.
        assert_eq!(seconds(Duration::from_millis(250)), "0.25 s");
        assert_eq!(seconds(Duration::from_secs(30)), "30 s");
        assert_eq!(seconds(Duration::ZERO), "0 s");
    }
}
