//! NCCL's own cut of a buffer, so that sums have the bits of NCCL's ring.
//!
//! ```text
//!  buffer    | channel 0 (low)  | channel 1 (middle) | ... | last channel (high) |     in whole cells
//!  channel   | stride: n chunks | stride             | ... | rest in n equal chunks |
//! ```
//!
//! From NCCL 2.30: src/enqueue.cc, `scheduleCollTasksToPlan` (cells and channels) and `calcCollChunking` (chunks);
//! src/include/device.h, `ncclProtoGrainSize` and `ncclCollCbdPart`; src/include/collectives.h (steps of a chunk);
//! src/device/all_reduce.h, `runRing` (strides). What is left out: several operations of one NCCL group share the
//! channels, where here each is cut as if it were alone; and NCCL's tuner, which chooses protocol and channels.
//!
//! The cut decides the bits of an all-reduce only. A block of a reduce-scatter, and a reduce, are added up from one
//! rank on wherever they are cut; they take NCCL's channels all the same, for what a channel carries to be the same.

use super::call::Kind;
use super::slice::Parts;
use shmring::Protocol;

/// Slots of NCCL's connections (NCCL_STEPS).
const STEPS: u64 = 8;
/// Traffic below which NCCL gives an operation no second channel, in bytes (MinTrafficPerChannel).
const CELL_TRAFFIC: u64 = 32 << 10;

/// What NCCL's cut of a buffer depends on beside the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NcclCut {
    /// NCCL's protocol.
    pub protocol: Protocol,
    /// Channels that NCCL may use.
    pub channels: u32,
    /// Bytes of the protocol's buffer: NCCL_BUFFSIZE, NCCL_LL_BUFFSIZE or NCCL_LL128_BUFFSIZE.
    pub buffer_bytes: u64,
}

/// Bytes of the protocol's buffer where no variable says otherwise (src/init.cc: 4 MiB; src/include/device.h: 8 slots
/// of 512 threads x 8 lines x 16 bytes for LL, of 640 threads x 120 words for LL128).
pub(crate) fn default_buffer(protocol: Protocol) -> u64 {
    match protocol {
        Protocol::Simple => 4 << 20,
        Protocol::Ll => STEPS * 512 * 8 * 16,
        Protocol::Ll128 => STEPS * 640 * 120 * 8,
    }
}

/// Elements of the 16 bytes to which chunks of the last stride are rounded up.
pub(super) fn line(size: usize) -> usize {
    (16 / size).max(1)
}

/// Bytes of payload that the protocol's chunks are multiples of.
fn grain(protocol: Protocol) -> u64 {
    match protocol {
        Protocol::Simple => 512,
        Protocol::Ll => 16,
        // A warp's share, 15 words of each line of 16.
        Protocol::Ll128 => 32 * 8 / 16 * 15 * 8,
    }
}

impl NcclCut {
    /// Elements of a chunk of `size` bytes each.
    pub(super) fn chunk(self, kind: Kind, size: usize) -> usize {
        let slot = self.buffer_bytes / STEPS;
        let payload = match self.protocol {
            // A reduction to one rank passes slot by slot, the others half a buffer at once.
            Protocol::Simple if matches!(kind, Kind::Reduce { .. }) => slot,
            Protocol::Simple => slot * (STEPS / 2),
            Protocol::Ll => slot / 2,
            Protocol::Ll128 => slot / 16 * 15,
        };
        let grain = grain(self.protocol);
        // A buffer below one grain for each slot would leave nothing; settings refuse it, code may set it.
        let grains = (payload / grain).max(1) as usize;
        grains * (grain as usize / size)
    }

    /// The channels' parts of `count` elements (of a block, where the kind has blocks) of `size` bytes.
    pub(super) fn parts(self, kind: Kind, count: usize, size: usize, nranks: u32) -> Parts {
        let per_byte = match kind {
            Kind::AllReduce => 2,
            Kind::ReduceScatter | Kind::ReduceScatterV => u64::from(nranks),
            _ => 1,
        };
        let per_byte = if self.protocol == Protocol::Ll { 4 * per_byte } else { per_byte };
        let cell_bytes = CELL_TRAFFIC.div_ceil(per_byte).next_multiple_of(16);
        let cell = cell_bytes as usize / size;
        let cells = (count * size).div_ceil(cell_bytes as usize);
        let channels = self.channels.max(1) as usize;
        let each = share(count * size, per_byte, cell_bytes, channels).min(cells);
        if channels == 1 || cells <= each {
            return Parts { low: count, ..Parts::default() };
        }
        let rest = cells - each;
        // Whole channels behind the first; the last one takes what is left, or is a whole one itself.
        let (each_middle, middles, last) = if 1 + rest.div_ceil(each) > channels {
            // The division by channels lost a fraction of a cell: the last channel takes more than the others.
            let behind = channels - 1;
            (rest / behind, behind - 1, rest / behind + rest % behind)
        } else if rest.is_multiple_of(each) {
            (each, rest / each - 1, each)
        } else {
            (each, rest / each, rest % each)
        };
        let beyond = cells * cell - count;
        let middle = if middles > 0 { each_middle * cell } else { 0 };
        Parts { low: each * cell, middle, middles, high: last * cell - beyond }
    }
}

/// Cells that a channel should carry. In wide numbers, because traffic is several times the memory.
fn share(bytes: usize, per_byte: u64, cell_bytes: u64, channels: usize) -> usize {
    let traffic = (bytes as u128 * u128::from(per_byte)).max(u128::from(CELL_TRAFFIC));
    let share = (traffic / channels as u128).next_multiple_of(16);
    usize::try_from(share.div_ceil(u128::from(cell_bytes * per_byte))).unwrap_or(usize::MAX)
}
