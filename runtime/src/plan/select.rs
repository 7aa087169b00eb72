//! Which algorithm, protocol and sizes an operation runs with on this host.
//!
//! The limits were measured with `ringccl perf`, see `docs/benchmarks.md`. Everything here depends only on
//! the arguments and on settings that all ranks share, so all ranks choose alike.

use super::{Call, Kind};
use crate::config::Config;
use shmring::Protocol;

/// How the host plan moves data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// Every rank reads every other rank's input.
    Flat,
    /// Each rank reduces a piece for all.
    TwoShot,
    /// NCCL's ring.
    Ring,
}

impl Algorithm {
    /// All algorithms.
    pub const ALL: [Self; 3] = [Self::Flat, Self::TwoShot, Self::Ring];

    /// Name in reports, settings and `perf`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Flat => "flat",
            Self::TwoShot => "twoshot",
            Self::Ring => "ring",
        }
    }
}

impl std::fmt::Display for Algorithm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// What was chosen for one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Algorithm.
    pub algorithm: Algorithm,
    /// Layout of its messages.
    pub protocol: Protocol,
    /// Channels.
    pub channels: u32,
    /// Bytes of the largest message.
    pub chunk_bytes: usize,
}

/// What the rings of a communicator can carry, in bytes per message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) nranks: u32,
    pub(crate) fan: [usize; 3],
    pub(crate) pair: [usize; 3],
}

/// Largest message in LL lines: one line, one cache-line transfer.
const LL_BYTES: usize = 56;
/// Largest message in LL128 lines. Up to here LL, LL128 and Simple differ by less than a tenth; above, unpacking
/// costs more than the counter's cache line (2 KiB: 1.6 times at 2 ranks, 1.3 at 8).
const LL128_BYTES: usize = 480;

pub(crate) fn select(call: &Call, config: &Config, limits: &Limits) -> Choice {
    let bytes = call.bytes();
    let algorithm = match call.kind {
        Kind::AllReduce => config.algorithm.unwrap_or_else(|| all_reduce(bytes, limits.nranks)),
        Kind::Broadcast { .. } | Kind::Barrier => Algorithm::Flat,
    };
    let n = limits.nranks as usize;
    let (capacity, message) = match algorithm {
        Algorithm::Flat => (limits.fan, bytes),
        Algorithm::TwoShot => (limits.fan, bytes),
        // A ring's message is one n-th of the buffer.
        Algorithm::Ring => (limits.pair, bytes.div_ceil(n)),
    };
    let may = |p: Protocol| config.protocols[p as usize];
    let fits = |p: Protocol| message <= capacity[p as usize];
    let protocol = match config.protocol {
        // A protocol without slots of this size (or a piecewise read, for two-shot) cannot be forced.
        Some(p) if capacity[p as usize] >= 64 && algorithm != Algorithm::TwoShot => p,
        Some(_) | None if algorithm == Algorithm::TwoShot => Protocol::Simple,
        _ if may(Protocol::Ll) && message <= LL_BYTES && fits(Protocol::Ll) => Protocol::Ll,
        _ if may(Protocol::Ll128) && message <= LL128_BYTES && fits(Protocol::Ll128) => Protocol::Ll128,
        _ if may(Protocol::Simple) => Protocol::Simple,
        // The longest of the lines that are left: several messages carry what one cannot.
        _ if may(Protocol::Ll128) => Protocol::Ll128,
        _ => Protocol::Ll,
    };
    let chunk_bytes = chunk(algorithm, protocol, bytes, n, config, capacity[protocol as usize]);
    // Below a slot per channel more channels only add messages.
    let most = config.channels.max(1) as usize;
    let least = (config.min_channels as usize).clamp(1, most);
    let channels = (bytes / chunk_bytes.max(1)).clamp(least, most);
    Choice { algorithm, protocol, channels: channels as u32, chunk_bytes }
}

fn all_reduce(bytes: usize, nranks: u32) -> Algorithm {
    // One hand-over beats two until the (n - 1)-fold reads outweigh it.
    let flat = match nranks {
        2 => 128 << 10,
        _ => 16 << 10,
    };
    if bytes <= flat { Algorithm::Flat } else { Algorithm::TwoShot }
}

fn chunk(
    algo: Algorithm,
    proto: Protocol,
    bytes: usize,
    n: usize,
    config: &Config,
    capacity: usize,
) -> usize {
    // Whole lines, so that no element is split and pieces stay aligned.
    let capacity = if proto == Protocol::Simple { capacity } else { capacity / 8 * 8 };
    let wanted = match algo {
        // In stages: at least four chunks for the stages to overlap, none so small that hand-overs dominate.
        Algorithm::TwoShot => {
            let quarter = (bytes / 4).next_multiple_of(64 * n);
            quarter.clamp((32 << 10).min(capacity), config.chunk_bytes)
        }
        Algorithm::Flat | Algorithm::Ring => config.chunk_bytes,
    };
    wanted.min(capacity).max(8)
}
