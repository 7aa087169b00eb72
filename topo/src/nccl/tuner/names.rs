//! Collectives, algorithms and protocols by the numbers and names that NCCL gives them.

use std::fmt;
use std::str::FromStr;

/// A collective that the tuner chooses for, in the order of its tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Collective {
    /// One rank's buffer to all.
    Broadcast,
    /// The reduction of all buffers to one rank.
    Reduce,
    /// All buffers, one behind the other, to all.
    AllGather,
    /// One part of the reduction to each rank.
    ReduceScatter,
    /// The reduction of all buffers to all.
    AllReduce,
}

impl Collective {
    /// Every collective in table order.
    pub const ALL: [Self; 5] =
        [Self::Broadcast, Self::Reduce, Self::AllGather, Self::ReduceScatter, Self::AllReduce];

    /// The name that NCCL prints.
    pub fn name(self) -> &'static str {
        match self {
            Self::Broadcast => "Broadcast",
            Self::Reduce => "Reduce",
            Self::AllGather => "AllGather",
            Self::ReduceScatter => "ReduceScatter",
            Self::AllReduce => "AllReduce",
        }
    }

    /// Whether the tuner's bytes are those of all ranks together, not of one rank's buffer.
    pub fn counts_all_ranks(self) -> bool {
        matches!(self, Self::AllGather | Self::ReduceScatter)
    }

    /// Steps of a ring of `ranks` ranks.
    pub(crate) fn ring_steps(self, ranks: u32) -> u32 {
        match self {
            Self::AllReduce => 2 * (ranks - 1),
            Self::AllGather | Self::ReduceScatter => ranks - 1,
            Self::Broadcast | Self::Reduce => ranks,
        }
    }
}

/// An algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// Up a tree and down again.
    Tree,
    /// Round a ring.
    Ring,
    /// The network reduces, all GPUs of a node hand over directly.
    CollNetDirect,
    /// The network reduces, the GPUs of a node form a chain.
    CollNetChain,
    /// The NVSwitch reduces.
    Nvls,
    /// The NVSwitch reduces in a node, trees between nodes.
    NvlsTree,
    /// Parallel aggregated trees.
    Pat,
}

impl Algorithm {
    /// Every algorithm by id.
    pub const ALL: [Self; 7] = [
        Self::Tree,
        Self::Ring,
        Self::CollNetDirect,
        Self::CollNetChain,
        Self::Nvls,
        Self::NvlsTree,
        Self::Pat,
    ];

    /// The number that NCCL prints up to 2.23.
    pub fn id(self) -> usize {
        self as usize
    }

    /// The name of the tables and of `NCCL_ALGO`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tree => "Tree",
            Self::Ring => "Ring",
            Self::CollNetDirect => "CollNetDirect",
            Self::CollNetChain => "CollNetChain",
            Self::Nvls => "NVLS",
            Self::NvlsTree => "NVLSTree",
            Self::Pat => "PAT",
        }
    }

    /// The name in the line of an operation from 2.24 on.
    pub fn line_name(self) -> &'static str {
        match self {
            Self::Tree => "TREE",
            Self::Ring => "RING",
            Self::CollNetDirect => "COLLNET_DIRECT",
            Self::CollNetChain => "COLLNET_CHAIN",
            Self::Nvls => "NVLS",
            Self::NvlsTree => "NVLS_TREE",
            Self::Pat => "PAT",
        }
    }

    /// Whether the NVSwitch reduces.
    pub fn is_nvls(self) -> bool {
        matches!(self, Self::Nvls | Self::NvlsTree)
    }

    /// Whether the network reduces.
    pub fn is_collnet(self) -> bool {
        matches!(self, Self::CollNetDirect | Self::CollNetChain)
    }
}

/// A protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// Lines of 8 bytes, half of them flags.
    Ll,
    /// Lines of 128 bytes with 8 bytes of flag.
    Ll128,
    /// Slots, with counters apart.
    Simple,
}

impl Protocol {
    /// Every protocol by id.
    pub const ALL: [Self; 3] = [Self::Ll, Self::Ll128, Self::Simple];

    /// The number that NCCL prints up to 2.23.
    pub fn id(self) -> usize {
        self as usize
    }

    /// The name of the tables and of `NCCL_PROTO`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ll => "LL",
            Self::Ll128 => "LL128",
            Self::Simple => "Simple",
        }
    }

    /// The name in the line of an operation from 2.24 on.
    pub fn line_name(self) -> &'static str {
        match self {
            Self::Simple => "SIMPLE",
            other => other.name(),
        }
    }
}

impl fmt::Display for Collective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A text that names no collective.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no collective of the tuner; name all_reduce, broadcast, reduce, all_gather or reduce_scatter"
)]
pub struct UnknownCollective(pub String);

impl FromStr for Collective {
    type Err = UnknownCollective;

    /// Reads NCCL's names and those of commands: case, `_` and `-` do not matter.
    fn from_str(text: &str) -> Result<Self, UnknownCollective> {
        let unknown = || UnknownCollective(text.chars().take(32).collect());
        if text.len() > 32 {
            return Err(unknown());
        }
        let bare = text.replace(['_', '-'], "");
        Self::ALL.into_iter().find(|one| one.name().eq_ignore_ascii_case(&bare)).ok_or_else(unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_those_of_nccl_and_names_return() {
        // Positions in the lists are the ids that logs print; a collective is read in every spelling.
        assert!(Algorithm::ALL.into_iter().map(Algorithm::id).eq(0..7));
        assert!(Protocol::ALL.into_iter().map(Protocol::id).eq(0..3));
        for (text, meant) in [
            ("all_reduce", Collective::AllReduce),
            ("AllReduce", Collective::AllReduce),
            ("reduce-scatter", Collective::ReduceScatter),
            ("BROADCAST", Collective::Broadcast),
        ] {
            assert_eq!(text.parse(), Ok(meant));
        }
        for text in ["", "all", "all_to_all", &"all_reduce".repeat(100)] {
            assert!(text.parse::<Collective>().is_err(), "{text}");
        }
    }

    #[test]
    fn steps_of_rings() {
        // Reduce-scatter and all-gather make an all-reduce; a chain passes every rank.
        let steps = |collective: Collective| collective.ring_steps(8);
        assert_eq!(Collective::ALL.map(steps), [8, 8, 7, 7, 14]);
    }
}
