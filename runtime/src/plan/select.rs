//! Which algorithm, protocol and sizes an operation runs with on this host.
//!
//! What is the fastest is in a table of measurements, [`Tuning`](super::Tuning). Everything here depends only on the
//! arguments and on settings that all ranks share, so all ranks choose alike.

use super::{Call, Kind, NcclCut, shares_messages, zero_copy};
use crate::config::Config;
use crate::model::Asked;
use crate::reduce::ReduceOp;
use serde::{Deserialize, Serialize};
use shmring::Protocol;

/// How the host plan moves data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Algorithm {
    /// Every rank reads every other rank's input.
    Flat,
    /// Each rank reduces a piece for all.
    TwoShot,
    /// NCCL's ring.
    Ring,
    /// NCCL's double binary tree.
    Tree,
    /// Each rank adds to pieces of shared memory that go round.
    Relay,
    /// Ranks read each other's registered memory. Not to be asked for: it is what large operations do where all buffers
    /// are registered.
    #[serde(skip)]
    ZeroCopy,
}

impl Algorithm {
    /// All algorithms that can be asked for.
    pub const ALL: [Self; 5] = [Self::Flat, Self::TwoShot, Self::Ring, Self::Tree, Self::Relay];

    /// Name in reports, settings and `perf`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Flat => "flat",
            Self::TwoShot => "twoshot",
            Self::Ring => "ring",
            Self::Tree => "tree",
            Self::Relay => "relay",
            Self::ZeroCopy => "zerocopy",
        }
    }

    /// Whether a kind of operation has it, and can be asked for it.
    pub fn serves(self, kind: Kind) -> bool {
        match kind {
            Kind::AllReduce => self != Self::ZeroCopy,
            Kind::Reduce { .. } => matches!(self, Self::Flat | Self::TwoShot | Self::Ring),
            Kind::Broadcast { .. }
            | Kind::AllGather
            | Kind::AllGatherV
            | Kind::ReduceScatter
            | Kind::ReduceScatterV => matches!(self, Self::Flat | Self::Ring),
            Kind::Barrier | Kind::AllToAll | Kind::Gather { .. } | Kind::Scatter { .. } => self == Self::Flat,
        }
    }

    /// Whether its messages are read in parts, or lie in place: lines of LL and LL128 do not.
    pub(crate) fn needs_simple(self) -> bool {
        matches!(self, Self::TwoShot | Self::Relay)
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
    /// What NCCL's cut of the buffer depends on, where sums follow NCCL's order.
    pub nccl: Option<NcclCut>,
}

/// What the rings of a communicator can carry, in bytes per message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) nranks: u32,
    pub(crate) fan: [usize; 3],
    pub(crate) pair: [usize; 3],
    /// A piece of the relay.
    pub(crate) relay: [usize; 3],
}

/// What is read at a time: between two chunks a rank looks after its other operations.
const ZERO_COPY_CHUNK: usize = 256 << 10;

/// Chooses for a call.
pub(crate) fn select(call: &Call, config: &Config, limits: &Limits) -> Choice {
    select_as(call, config, limits, None)
}

/// The same; `asked` is what the model of a cluster would run, where the host is to run that.
pub(crate) fn select_as(call: &Call, config: &Config, limits: &Limits, asked: Option<Asked>) -> Choice {
    let n = limits.nranks as usize;
    let nccl = config.nccl_cut().filter(|_| call.kind.reduces());
    // Order of sums, and an algorithm that the user names, come first.
    let asked = asked
        .filter(|asked| nccl.is_none() && config.algorithm.is_none() && asked.algorithm.serves(call.kind));
    let algorithm = match (nccl, asked) {
        (Some(_), _) => Algorithm::Ring,
        (None, Some(asked)) => asked.algorithm,
        (None, None) => algorithm(call, config, limits.nranks),
    };
    let lines = config.tuning.row(limits.nranks).lines;
    let bytes = message_bytes(call, algorithm, n);
    // A ring's message of an all-reduce is one n-th of the buffer.
    let ring = algorithm == Algorithm::Ring && call.kind == Kind::AllReduce;
    let message = if ring { bytes.div_ceil(n) } else { bytes };
    let capacity = capacity(call.kind, algorithm, limits);
    let may = |p: Protocol| config.protocols[p as usize];
    let fits = |p: Protocol| message <= capacity[p as usize];
    let protocol =
        match nccl.map(|nccl| nccl.protocol).or(asked.map(|asked| asked.protocol)).or(config.protocol) {
            // A protocol without slots of this size cannot be forced, nor one whose messages cannot be read in parts.
            Some(p) if capacity[p as usize] >= 64 && !algorithm.needs_simple() => p,
            Some(_) | None if algorithm.needs_simple() => Protocol::Simple,
            _ if may(Protocol::Ll) && message as u64 <= lines.ll && fits(Protocol::Ll) => Protocol::Ll,
            _ if may(Protocol::Ll128) && message as u64 <= lines.ll128 && fits(Protocol::Ll128) => {
                Protocol::Ll128
            }
            _ if may(Protocol::Simple) => Protocol::Simple,
            // The longest of the lines that are left: several messages carry what one cannot.
            _ if may(Protocol::Ll128) => Protocol::Ll128,
            _ => Protocol::Ll,
        };
    let chunk_bytes = chunk(algorithm, protocol, bytes, n, config, capacity[protocol as usize]);
    // Below a slot per channel more channels only add messages.
    let most = config.channels.max(1) as usize;
    let least = (config.min_channels as usize).clamp(1, most);
    let channels = match (nccl, asked) {
        // As many as NCCL's cut has parts.
        (Some(nccl), _) => nccl.channels as usize,
        (None, Some(asked)) => (asked.channels as usize).clamp(1, most),
        (None, None) => (bytes / chunk_bytes.max(1)).clamp(least, most),
    };
    Choice { algorithm, protocol, channels: channels as u32, chunk_bytes, nccl }
}

/// How a call runs whose buffers are all registered, if that is faster than any other way.
pub(crate) fn without_copies(call: &Call, config: &Config, nranks: u32) -> Option<Choice> {
    // A factor is of each rank's own input, which the others would have to apply.
    let scales = call.kind.reduces()
        && match call.op {
            ReduceOp::PreMulSum(_) => true,
            ReduceOp::Avg => call.dtype.is_float(),
            _ => false,
        };
    let follows_nccl = call.kind.reduces() && config.nccl_cut().is_some();
    let may = zero_copy::has(call.kind) && !scales && !follows_nccl && config.algorithm.is_none();
    let least = config.tuning.row(nranks).zero_copy;
    (may && call.bytes(nranks) as u64 >= least).then_some(Choice {
        algorithm: Algorithm::ZeroCopy,
        protocol: Protocol::Ll,
        channels: 1,
        chunk_bytes: ZERO_COPY_CHUNK,
        nccl: None,
    })
}

/// The algorithm that is asked for, where the kind has it, or the fastest one.
fn algorithm(call: &Call, config: &Config, nranks: u32) -> Algorithm {
    let asked = config.algorithm.filter(|algorithm| algorithm.serves(call.kind));
    asked.unwrap_or_else(|| config.tuning.row(nranks).algorithm(call.kind, call.bytes(nranks)))
}

/// Bytes that one rank would send at once if there were room: the buffer, a block, or all blocks.
fn message_bytes(call: &Call, algorithm: Algorithm, n: usize) -> usize {
    let elements = if shares_messages(call.kind, algorithm) {
        // An upper bound for uneven blocks, of which only the longest counts.
        call.longest_block().saturating_mul(n)
    } else if call.kind.has_blocks() {
        call.longest_block()
    } else {
        call.count
    };
    elements.saturating_mul(call.dtype.size_bytes())
}

/// What one message can carry in each protocol: the least of the rings that the operation uses.
fn capacity(kind: Kind, algorithm: Algorithm, limits: &Limits) -> [usize; 3] {
    let n = limits.nranks as usize;
    match (kind, algorithm) {
        (Kind::AllReduce, Algorithm::Relay) => limits.relay,
        (_, Algorithm::Ring | Algorithm::Tree)
        | (Kind::Gather { .. } | Kind::Reduce { .. }, Algorithm::Flat) => limits.pair,
        // Pieces of a chunk, in whole lines, also go over pair rings.
        (Kind::Reduce { .. }, Algorithm::TwoShot) => {
            std::array::from_fn(|p| limits.fan[p].min((limits.pair[p] / 64 * 64).saturating_mul(n)))
        }
        (_, Algorithm::Flat | Algorithm::TwoShot | Algorithm::Relay | Algorithm::ZeroCopy) => limits.fan,
    }
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
        // Two blocks, so that one is read while the other is on its way.
        Algorithm::Relay => {
            bytes.div_ceil(2 * n).next_multiple_of(64).clamp((16 << 10).min(capacity), capacity)
        }
        // Every level works on another chunk, there and back.
        Algorithm::Tree => {
            let levels = n.next_power_of_two().ilog2() as usize;
            let part = bytes.div_ceil(4 * levels.max(1)).next_multiple_of(64);
            part.clamp((16 << 10).min(capacity), capacity)
        }
        Algorithm::Flat | Algorithm::Ring | Algorithm::ZeroCopy => config.chunk_bytes,
    };
    wanted.min(capacity).max(8)
}
