//! Threads and channels of an operation.

use super::choice::Operation;
use super::names::{Algorithm, Collective, Protocol};
use super::table::Tuner;

/// Threads of a warp.
const WARP: u32 = 32;
/// Most threads of a block.
const THREADS_MAX: u32 = 640;
/// Bandwidth of a ring up to which 256 threads suffice, in 10^9 bytes per second.
const NARROW_RING: f32 = 12.0;

/// How an operation is spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spread {
    /// Channels that its size deserves.
    pub channels: u32,
    /// Threads of each.
    pub threads: u32,
    /// Last channel of `{0..hi}` when the operation is alone.
    pub last_channel: u32,
}

impl Tuner {
    /// Channels and threads of an operation with an algorithm and a protocol.
    pub fn spread(&self, operation: Operation, algorithm: Algorithm, protocol: Protocol) -> Spread {
        let (channels, threads) = self.channels_and_threads(operation.bytes, algorithm, protocol);
        let most = if algorithm.is_nvls() { self.setup.nvls_channels() } else { self.setup.channels() };
        let used = if self.constants.min_traffic == 0 {
            channels
        } else {
            self.channels_by_cells(operation, protocol, channels, most)
        };
        Spread { channels, threads, last_channel: used.max(1) - 1 }
    }

    fn channels_and_threads(&self, bytes: u64, algorithm: Algorithm, protocol: Protocol) -> (u32, u32) {
        let mut channels = self.setup.channels();
        let mut threads = self.threads_max(algorithm, protocol);
        if algorithm.is_nvls() {
            channels = match algorithm {
                Algorithm::Nvls if self.setup.nodes > 1 && self.setup.release.since(27, 0) => {
                    self.setup.nvls_channels().min(channels)
                }
                _ => self.setup.nvls_channels(),
            };
            return (channels, threads);
        }
        let threshold = self.threshold(algorithm, protocol);
        let fills =
            |channels: u32, threads: u32| bytes >= u64::from(channels) * u64::from(threads) * threshold;
        while !fills(channels, threads) && channels >= 2 {
            channels -= 1;
        }
        while !fills(channels, threads) && threads.is_multiple_of(128) {
            threads /= 2;
        }
        if protocol == Protocol::Simple {
            threads += match algorithm {
                Algorithm::Ring => WARP,
                Algorithm::Tree => 4 * WARP,
                _ => 0,
            };
        }
        let threads = match algorithm {
            Algorithm::Tree | Algorithm::Pat => THREADS_MAX,
            _ => threads.max(3 * WARP),
        };
        (channels, threads)
    }

    fn threads_max(&self, algorithm: Algorithm, protocol: Protocol) -> u32 {
        let ring = &self.setup.graphs.ring;
        let narrow = ring.channels as f32 * ring.bw_intra <= NARROW_RING;
        let default = match (algorithm, protocol) {
            (Algorithm::Ring, Protocol::Simple) if narrow => 256,
            (_, Protocol::Ll128) => THREADS_MAX,
            (Algorithm::Ring | Algorithm::Tree, _) => 512,
            _ => THREADS_MAX,
        };
        let asked = self.setup.environment.threads(protocol);
        let follows = matches!(algorithm, Algorithm::Ring | Algorithm::Tree);
        asked.filter(|_| follows).unwrap_or(default)
    }

    /// Bytes per thread and channel below which there are fewer of them.
    fn threshold(&self, algorithm: Algorithm, protocol: Protocol) -> u64 {
        let default = match (algorithm, protocol) {
            (Algorithm::Ring, Protocol::Ll) => 8 * u64::from(self.setup.ranks),
            (_, Protocol::Ll | Protocol::Ll128) => 8,
            (Algorithm::CollNetDirect | Algorithm::CollNetChain, Protocol::Simple) => 512,
            (_, Protocol::Simple) => 64,
        };
        self.setup.environment.threshold(algorithm, protocol).unwrap_or(default)
    }

    /// From 2.22 an operation is cut into cells, which fill one channel after the other.
    fn channels_by_cells(&self, operation: Operation, protocol: Protocol, channels: u32, most: u32) -> u32 {
        let release = self.setup.release;
        let ranks = u64::from(self.setup.ranks);
        let min_traffic = self.constants.min_traffic;
        let (bytes, mut per_byte) = match operation.collective {
            Collective::AllReduce => (operation.bytes, 2),
            Collective::AllGather | Collective::ReduceScatter => (operation.bytes / ranks, ranks),
            Collective::Broadcast | Collective::Reduce => (operation.bytes, 1),
        };
        if protocol == Protocol::Ll && release.since(26, 0) {
            per_byte *= 4;
        }
        let first_form = !release.since(23, 0);
        let mut traffic = bytes.saturating_mul(per_byte);
        if !first_form {
            traffic = traffic.max(min_traffic);
        }
        let share = traffic / u64::from(channels.min(most));
        let per_channel =
            if release.since(29, 2) { share.next_multiple_of(16) } else { share.max(min_traffic) }.max(1);
        let cell = if first_form { 16 } else { min_traffic.div_ceil(per_byte).next_multiple_of(16) };
        let cells = bytes.div_ceil(cell);
        let cell_traffic = cell * per_byte;
        let per_middle = cells.min(per_channel.div_ceil(cell_traffic)).max(1);
        let first = match most {
            1 => cells,
            _ if first_form => cells.min(per_channel / cell_traffic),
            _ => cells.min(per_channel.div_ceil(cell_traffic)),
        };
        let (middle, last) = ((cells - first) / per_middle, (cells - first) % per_middle);
        let used = u64::from(first > 0) + middle + u64::from(last > 0);
        used.min(most.into()) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nccl::tuner::Setup;
    use crate::nccl::tuner::tests::{Sample, sample, tuner};

    fn hi(
        tuner: &Tuner,
        collective: Collective,
        bytes: u64,
        algorithm: Algorithm,
        protocol: Protocol,
    ) -> u32 {
        tuner.spread(Operation::new(collective, bytes), algorithm, protocol).last_channel
    }

    #[test]
    fn ranges_of_the_reference() {
        // The last channels that logs of 2.30 and 2.29.7 show for these sizes.
        let h100 = tuner(sample(Sample::H100x8), "2.30.7");
        let all_reduce =
            |bytes, algorithm, protocol| hi(&h100, Collective::AllReduce, bytes, algorithm, protocol);
        assert_eq!(all_reduce(4096, Algorithm::Ring, Protocol::Ll), 0);
        assert_eq!(all_reduce(1 << 20, Algorithm::Ring, Protocol::Ll), 23);
        assert_eq!(all_reduce(2 << 20, Algorithm::Nvls, Protocol::Simple), 15);
        assert_eq!(all_reduce(1 << 30, Algorithm::Nvls, Protocol::Simple), 15);

        let mut setup: Setup = sample(Sample::V100x4);
        setup.ranks = 2;
        setup.nodes = 2;
        for graph in [&mut setup.graphs.ring, &mut setup.graphs.tree] {
            (graph.channels, graph.bw_intra, graph.bw_inter) = (2, 6.0, 6.0);
        }
        let pair = tuner(setup, "2.29.7");
        assert_eq!(pair.setup().channels(), 4);
        let broadcast = |bytes, protocol| hi(&pair, Collective::Broadcast, bytes, Algorithm::Ring, protocol);
        assert_eq!([8, 16].map(|kib| broadcast(kib << 10, Protocol::Ll)), [0, 1]);
        assert_eq!([32, 64, 128].map(|kib| broadcast(kib << 10, Protocol::Simple)), [0, 1, 3]);
    }

    #[test]
    fn threads_shrink_after_channels() {
        // A small operation keeps one channel and few threads; trees and PAT always have all.
        let v100 = tuner(sample(Sample::V100x4), "2.22.3");
        let spread = |bytes, algorithm, protocol| {
            let spread = v100.spread(Operation::new(Collective::AllReduce, bytes), algorithm, protocol);
            (spread.channels, spread.threads)
        };
        assert_eq!(spread(8, Algorithm::Ring, Protocol::Ll), (1, 96));
        assert_eq!(spread(8, Algorithm::Tree, Protocol::Ll), (1, 640));
        assert_eq!(spread(64 << 20, Algorithm::Ring, Protocol::Simple), (12, 544));
        assert_eq!(spread(1 << 20, Algorithm::Ring, Protocol::Ll128), (12, 640));
        assert_eq!(spread(100_000, Algorithm::Ring, Protocol::Simple), (3, 544));
    }

    #[test]
    fn no_size_needs_more_channels_than_there_are() {
        // Every size from nothing to 16 TiB, every release: at least one channel, at most the communicator's.
        for release in ["2.21.5", "2.22.3", "2.23.4", "2.28.9", "2.30.7"] {
            let tuner = tuner(sample(Sample::H100x16), release);
            for collective in Collective::ALL {
                for size in (0..44).flat_map(|power| [(1u64 << power) - 1, 1 << power, (1 << power) + 1]) {
                    for protocol in Protocol::ALL {
                        let last = hi(&tuner, collective, size, Algorithm::Ring, protocol);
                        assert!(last < tuner.setup().channels(), "{release} {collective} {size} {protocol}");
                    }
                }
            }
        }
    }
}
