//! The numbers of NCCL's tuner by release: one list of changes, oldest first.
//!
//! Bandwidths are 10^9 bytes per second, latencies microseconds. Rows of bandwidth tables stand for classes of GPUs
//! (see [`GpuClass`]), columns for one node, two, and more.
//!
//! *Source*: NCCL's tables from 2.18.1 to 2.30.7, restated; `topo/testdata/nccl/` holds what they must give.

use crate::nccl::release::Release;

/// Class of GPUs by compute capability: the rows of the bandwidth tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GpuClass {
    /// Below 8.0.
    Volta,
    /// 8.0 to 8.9.
    Ampere,
    /// 9.x; before 2.25 all from 9.0.
    Hopper,
    /// 10.0 and later, from 2.25.
    Blackwell,
}

/// What joins two neighbours of a channel: the tables of hop latencies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HopClass {
    /// NVLink.
    NvLink,
    /// PCIe, and everything else inside a node.
    Pci,
    /// The network.
    Net,
}

/// A cap by class of GPUs and number of nodes.
pub(crate) type Caps = [[f64; 3]; 4];
/// Latency by algorithm and protocol.
pub(crate) type Latencies = [[f32; 3]; 7];

/// How the bandwidth of NVLS and NVLSTree is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NvlsRule {
    /// As for rings, NVLSTree x 0.70 (2.18).
    Plain,
    /// The smaller of the two bandwidths of a channel (2.19 to 2.26).
    Smaller,
    /// The same, all-gather and reduce-scatter apart (2.27).
    SmallerOrGathered,
    /// By the efficiency of the switch (from 2.28).
    Efficiency,
}

/// The constants of one release.
#[derive(Clone, Debug)]
pub(crate) struct Constants {
    /// Channels that a communicator can have.
    pub(crate) channels_max: u32,
    /// Whether there is a row for [`GpuClass::Blackwell`].
    pub(crate) has_blackwell: bool,
    /// Total of LL; the row is by CPU vendor on several nodes.
    pub(crate) ll_total: Caps,
    /// Per channel of a ring with LL128.
    pub(crate) ring_ll128: Caps,
    /// Per channel of a tree with LL128.
    pub(crate) tree_ll128: Caps,
    /// Per channel of a tree.
    pub(crate) tree: Caps,
    /// Per channel of NVLSTree.
    pub(crate) nvls_tree: Caps,
    /// Part of the links' bandwidth that NVLS reaches, by class.
    pub(crate) nvls_efficiency: [f64; 4],
    /// Rings with LL: part of the bandwidth on several nodes, or where something is reduced.
    pub(crate) ring_ll_reducing: f64,
    /// Rings with LL: part of the bandwidth otherwise.
    pub(crate) ring_ll: f64,
    /// Rings with LL128 and less than two GPUs per node: part of the bandwidth.
    pub(crate) ring_ll128_sparse: f64,
    /// Trees of pattern 3: part of the bandwidth.
    pub(crate) simple_tree: f64,
    /// PAT: part of the bandwidth; 0 where there is none.
    pub(crate) pat: f64,
    /// NVLS and NVLSTree.
    pub(crate) nvls: NvlsRule,
    /// NVLS before 2.28: from bus to algorithm bandwidth.
    pub(crate) nvls_ratio: f32,
    /// Base latencies.
    pub(crate) base: Latencies,
    /// Hop latencies by [`HopClass`].
    pub(crate) hop: [Latencies; 3],
    /// CollNetDirect: added per GPU of the node beyond the first.
    pub(crate) collnet_per_gpu: f32,
    /// All-reduce on several nodes: steps of a ring between nodes, less twice the number of nodes.
    pub(crate) inter_steps_less: u32,
    /// Whether one GPU per node takes the tree's latency between nodes for all algorithms.
    pub(crate) sparse_takes_tree_hop: bool,
    /// Entries of the trees' correction.
    pub(crate) tree_sizes: u32,
    /// Whether the correction applies to NVLSTree on Blackwell.
    pub(crate) corrects_nvls_tree: bool,
    /// Least traffic of a channel in bytes when one operation is cut.
    pub(crate) min_traffic: u64,
}

const fn rows(volta: [f64; 3], ampere: [f64; 3], hopper: [f64; 3], blackwell: [f64; 3]) -> Caps {
    [volta, ampere, hopper, blackwell]
}

/// Latency where only Simple exists.
const fn simple(us: f32) -> [f32; 3] {
    [0.0, 0.0, us]
}

const NONE: [f32; 3] = [0.0; 3];
const NVLINK: usize = HopClass::NvLink as usize;
const PCI: usize = HopClass::Pci as usize;
const NET: usize = HopClass::Net as usize;
const TREE: usize = 0;
const COLLNET_DIRECT: usize = 2;
const COLLNET_CHAIN: usize = 3;
const NVLS: usize = 4;
const NVLS_TREE: usize = 5;
const PAT: usize = 6;
const SIMPLE: usize = 2;
const HOPPER: usize = 2;
const BLACKWELL: usize = 3;

/// NCCL 2.18.1.
const FIRST: Constants = Constants {
    channels_max: 32,
    has_blackwell: false,
    ll_total: rows([39.0, 39.0, 20.4], [87.7, 22.5, 19.0], [87.7, 22.5, 19.0], [0.0; 3]),
    ring_ll128: rows([20.0; 3], [20.0; 3], [36.7; 3], [0.0; 3]),
    tree_ll128: rows([20.0; 3], [20.0; 3], [36.7, 36.7, 29.0], [0.0; 3]),
    tree: rows([26.5, 18.5, 10.0], [24.0, 23.6, 17.8], [38.7, 41.4, 36.0], [0.0; 3]),
    nvls_tree: rows([26.5, 18.5, 10.0], [24.0, 23.6, 17.8], [0.0, 57.7, 45.5], [0.0; 3]),
    nvls_efficiency: [0.0, 0.0, 0.85, 0.74],
    ring_ll_reducing: 1.0 / 4.0,
    ring_ll: 1.0 / 3.0,
    ring_ll128_sparse: 0.7,
    simple_tree: 1.0,
    pat: 0.0,
    nvls: NvlsRule::Plain,
    nvls_ratio: 0.75,
    base: [
        [6.8, 14.0, 0.0],
        [6.6, 14.0, 8.4],
        [6.8, 14.0, 0.0],
        [6.8, 14.0, 0.0],
        simple(23.0),
        simple(23.0),
        NONE,
    ],
    hop: [
        [[0.6, 1.25, 28.0], [0.6, 1.9, 3.4], simple(8.0), simple(4.75), NONE, NONE, NONE],
        [[1.0, 1.9, 28.0], [1.0, 2.5, 5.7], simple(8.0), simple(8.0), NONE, NONE, NONE],
        [[5.0, 8.5, 28.0], [2.7, 4.0, 14.0], simple(10.7), simple(14.0), simple(18.0), simple(19.0), NONE],
    ],
    collnet_per_gpu: 0.5,
    inter_steps_less: 0,
    sparse_takes_tree_hop: false,
    tree_sizes: 23,
    corrects_nvls_tree: false,
    min_traffic: 0,
};

/// What changed, and in which release.
type Change = (Release, fn(&mut Constants));

const fn since(minor: u16, patch: u16) -> Release {
    Release::new(2, minor, patch)
}

/// Tree with Simple: latency of a hop by class.
fn set_tree_hops(constants: &mut Constants, us: [f32; 3]) {
    for (class, us) in constants.hop.iter_mut().zip(us) {
        class[TREE][SIMPLE] = us;
    }
}

const CHANGES: &[Change] = &[
    (since(18, 3), |c| {
        c.simple_tree = 0.85;
        c.nvls_ratio = 5.0 / 6.0;
        set_tree_hops(c, [4.0, 6.0, 14.0]);
    }),
    (since(19, 0), |c| {
        set_tree_hops(c, [28.0; 3]);
        c.nvls = NvlsRule::Smaller;
        for algorithm in [COLLNET_DIRECT, COLLNET_CHAIN, NVLS, NVLS_TREE] {
            c.base[algorithm] = NONE;
        }
        for (class, [direct, chain]) in [(NVLINK, [3.7, 2.8]), (PCI, [3.7, 2.8]), (NET, [31.0, 30.0])] {
            c.hop[class][COLLNET_DIRECT] = simple(direct);
            c.hop[class][COLLNET_CHAIN] = simple(chain);
        }
        c.hop[NVLINK][NVLS] = simple(23.0);
        c.hop[NVLINK][NVLS_TREE] = simple(23.0);
        c.hop[NET][NVLS_TREE] = simple(14.0);
        c.collnet_per_gpu = 0.4;
    }),
    (since(21, 0), |c| {
        c.ring_ll_reducing = 0.5;
        c.ring_ll = 0.5;
        c.ll_total[HOPPER] = [141.0, 45.0, 35.0];
        c.hop[NVLINK][NVLS] = simple(25.0);
        c.hop[NVLINK][NVLS_TREE] = simple(25.0);
    }),
    (since(22, 0), |c| c.min_traffic = 512),
    (since(23, 0), |c| {
        c.base[TREE][SIMPLE] = 8.4;
        c.base[PAT] = [8.0; 3];
        set_tree_hops(c, [4.0, 4.0, 14.0]);
        c.inter_steps_less = 2;
        c.ring_ll128_sparse = 0.92;
        c.sparse_takes_tree_hop = true;
        c.pat = 0.85;
        c.min_traffic = 16384;
    }),
    (since(24, 0), |c| c.pat = 0.75),
    (since(25, 0), |c| {
        c.channels_max = 64;
        c.has_blackwell = true;
        c.ll_total[BLACKWELL] = [282.0, 90.0, 70.0];
        c.ring_ll128[BLACKWELL] = [73.4; 3];
        c.tree_ll128[BLACKWELL] = [73.4, 73.4, 58.0];
        c.tree[BLACKWELL] = [77.4, 82.8, 72.0];
    }),
    (since(27, 0), |c| c.nvls = NvlsRule::SmallerOrGathered),
    (since(28, 0), |c| {
        c.nvls = NvlsRule::Efficiency;
        c.tree_ll128[BLACKWELL] = [55.6, 31.67, 20.0];
        c.tree[BLACKWELL] = [70.0, 42.8, 24.0];
        c.nvls_tree[BLACKWELL] = [0.0, 96.0, 43.1];
        c.hop[NVLINK][PAT] = simple(4.0);
        c.hop[PCI][PAT] = simple(4.0);
        c.hop[NET][PAT] = simple(14.0);
    }),
    (since(28, 7), |c| c.ring_ll128[BLACKWELL] = [73.4, 34.6, 73.4]),
    (since(28, 9), |c| {
        c.nvls_tree[BLACKWELL] = [0.0, 96.0, 43.8];
        c.hop[NET][NVLS_TREE] = simple(20.9);
    }),
    (since(29, 2), |c| {
        c.ring_ll128[BLACKWELL] = [34.5, 34.6, 34.5];
        c.corrects_nvls_tree = true;
        c.tree_sizes = 24;
        c.min_traffic = 32768;
    }),
    (since(29, 7), |c| c.ring_ll128[BLACKWELL] = [40.0; 3]),
    (since(30, 0), |c| c.nvls_tree[BLACKWELL] = [0.0, 96.0, 80.0]),
];

/// Part of a tree's bandwidth by protocol and power of two, from 64 bytes on.
pub(crate) const TREE_CORRECTION: [[f32; 24]; 3] = [
    [
        1.0, 1.0, 1.0, 1.0, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5, 0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0,
        1.0, 1.0, 1.0, 1.0,
    ],
    [
        1.0, 1.0, 1.0, 1.0, 1.0, 0.9, 0.8, 0.8, 0.8, 0.7, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.8, 0.9, 0.9, 0.9,
        0.9, 1.0, 1.0, 1.0,
    ],
    [
        0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.8, 0.7, 0.6, 0.6, 0.5, 0.5, 0.5, 0.5, 0.6, 0.7, 0.8, 0.7, 0.7,
        0.8, 0.9, 0.9, 0.9,
    ],
];

impl Constants {
    /// The constants of `release`: the first ones with every change up to it.
    pub(crate) fn of(release: Release) -> Self {
        let mut constants = FIRST;
        for (_, change) in CHANGES.iter().take_while(|(from, _)| *from <= release) {
            change(&mut constants);
        }
        constants
    }

    /// Class of GPUs with this compute capability.
    pub(crate) fn class(&self, compute_capability: u32) -> GpuClass {
        match compute_capability {
            0..80 => GpuClass::Volta,
            80..90 => GpuClass::Ampere,
            100.. if self.has_blackwell => GpuClass::Blackwell,
            _ => GpuClass::Hopper,
        }
    }

    /// Latency of a hop.
    pub(crate) fn hop_latency(&self, class: HopClass, algorithm: usize, protocol: usize) -> f32 {
        self.hop[class as usize][algorithm][protocol]
    }
}

/// Column of the bandwidth tables for a number of nodes.
pub(crate) fn column(nodes: u32) -> usize {
    match nodes {
        0 | 1 => 0,
        2 => 1,
        _ => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_in_order_and_each_takes_effect() {
        // The list is sorted, so `take_while` sees all that apply; each release is told apart from the one before.
        assert!(CHANGES.is_sorted_by(|(a, _), (b, _)| a < b));
        for (from, _) in CHANGES {
            let before = match from.patch {
                0 => Release::new(2, from.minor - 1, 99),
                patch => Release::new(2, from.minor, patch - 1),
            };
            let (old, new) = (format!("{:?}", Constants::of(before)), format!("{:?}", Constants::of(*from)));
            assert_ne!(old, new, "{from}");
        }
    }

    #[test]
    fn exceptions_of_single_releases() {
        // Values that no golden row holds, because tables exist for three releases only.
        let tree = |minor, patch| Constants::of(since(minor, patch)).hop.map(|class| class[TREE][SIMPLE]);
        assert_eq!(tree(18, 1), [28.0; 3]);
        assert_eq!(tree(18, 6), [4.0, 6.0, 14.0]);
        assert_eq!(tree(19, 4), [28.0; 3]);
        assert_eq!(tree(23, 4), [4.0, 4.0, 14.0]);
        let nvls = |minor, patch| Constants::of(since(minor, patch)).hop[NVLINK][NVLS][SIMPLE];
        assert_eq!([nvls(18, 5), nvls(20, 5), nvls(21, 5)], [0.0, 23.0, 25.0]);
        let between = |minor, patch| Constants::of(since(minor, patch)).hop[NET][NVLS_TREE][SIMPLE];
        assert_eq!([between(18, 6), between(28, 7), between(28, 9)], [19.0, 14.0, 20.9]);
        let ring = |minor, patch| Constants::of(since(minor, patch)).ring_ll128[BLACKWELL][1];
        assert_eq!([ring(25, 1), ring(28, 7), ring(29, 3), ring(29, 7)], [73.4, 34.6, 34.6, 40.0]);
        assert_eq!(Constants::of(since(20, 5)).ll_total[HOPPER][0], 87.7);
        assert_eq!([Constants::of(since(23, 4)).pat, Constants::of(since(24, 3)).pat], [0.85, 0.75]);
    }

    #[test]
    fn classes_follow_compute_capability_and_release() {
        // Blackwell GPUs count as Hopper until they have a row.
        let (old, new) = (Constants::of(since(24, 3)), Constants::of(since(25, 1)));
        assert_eq!(
            (old.class(100), new.class(100), new.class(120)),
            (GpuClass::Hopper, GpuClass::Blackwell, GpuClass::Blackwell)
        );
        assert_eq!([70, 75, 80, 89, 90].map(|cc| new.class(cc) as usize), [0, 0, 1, 1, 2]);
        assert_eq!([1, 2, 3, 16].map(column), [0, 1, 2, 2]);
    }
}
