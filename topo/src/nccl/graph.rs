//! The graphs of a communicator: what NCCL's search finds and its log prints as `Pattern` lines.

use std::fmt;
use std::str::FromStr;

use super::release::Release;

/// What the search of one communicator yields, agreed between its ranks.
#[derive(Clone, Debug, PartialEq)]
pub struct Graphs {
    /// The ring.
    pub ring: Graph,
    /// The tree; it has as many channels as the ring.
    pub tree: Graph,
    /// The NVLink-SHARP graph, if the node's switches can reduce.
    pub nvls: Option<Graph>,
}

/// One graph: channels alike, and the worst paths among them.
#[derive(Clone, Debug, PartialEq)]
pub struct Graph {
    /// Shape of a channel.
    pub pattern: Pattern,
    /// Channels that the search found; the communicator may double them.
    pub channels: u32,
    /// Bandwidth of a channel inside a node in 10^9 bytes per second.
    pub bw_intra: f32,
    /// Bandwidth of a channel between nodes in 10^9 bytes per second.
    pub bw_inter: f32,
    /// Worst path between GPUs of a node.
    pub type_intra: PathType,
    /// Worst path between a GPU and its network card.
    pub type_inter: PathType,
    /// Whether all channels visit the GPUs in one order.
    pub same_channels: bool,
    /// Whether a channel may leave a node by another network card than it came in; 2 if it did so where it may.
    pub cross_nic: u8,
}

/// Shape of a graph's channels, by the ids that NCCL prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pattern {
    /// A tree whose two children sit on two GPUs near the card.
    BalancedTree = 1,
    /// A tree that enters a node at one GPU and leaves it at another.
    SplitTree = 2,
    /// A tree that has all its links between nodes at one GPU.
    Tree = 3,
    /// A ring.
    Ring = 4,
    /// All GPUs through the NVSwitch.
    Nvls = 5,
    /// All GPUs to the heads, and these to the network's reduction.
    CollNetDirect = 6,
}

impl Pattern {
    /// Every pattern by id.
    pub const ALL: [Self; 6] =
        [Self::BalancedTree, Self::SplitTree, Self::Tree, Self::Ring, Self::Nvls, Self::CollNetDirect];

    /// The number that NCCL prints.
    pub fn id(self) -> u32 {
        self as u32
    }

    /// The pattern with this number, if there is one.
    pub fn from_id(id: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|pattern| pattern.id() == id)
    }
}

/// How two devices are joined, as NCCL spells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PathType {
    /// The same device.
    Loc,
    /// NVLink.
    Nvl,
    /// NVLink through one other GPU.
    Nvb,
    /// A chip-to-chip link to a CPU.
    C2c,
    /// One PCIe switch.
    Pix,
    /// Several PCIe switches.
    Pxb,
    /// A network card through an NVLink peer that is near it.
    Pxn,
    /// A network card through a CPU with a chip-to-chip link.
    P2c,
    /// Through the CPU.
    Phb,
    /// Between CPUs.
    Sys,
    /// Through the network.
    Net,
    /// Not joined.
    Dis,
}

impl PathType {
    /// Every type, in the order of releases from 2.27 back.
    pub const ALL: [Self; 12] = [
        Self::Loc,
        Self::Nvl,
        Self::Nvb,
        Self::C2c,
        Self::Pix,
        Self::Pxb,
        Self::Pxn,
        Self::P2c,
        Self::Phb,
        Self::Sys,
        Self::Net,
        Self::Dis,
    ];

    /// The name that NCCL prints.
    pub fn name(self) -> &'static str {
        match self {
            Self::Loc => "LOC",
            Self::Nvl => "NVL",
            Self::Nvb => "NVB",
            Self::C2c => "C2C",
            Self::Pix => "PIX",
            Self::Pxb => "PXB",
            Self::Pxn => "PXN",
            Self::P2c => "P2C",
            Self::Phb => "PHB",
            Self::Sys => "SYS",
            Self::Net => "NET",
            Self::Dis => "DIS",
        }
    }

    /// Place in `release`'s order, the nearest first: P2C comes before PXN from 2.28.
    ///
    /// Types that a release does not know keep a place; only C2C (2.26) and P2C (2.27) are newer than 2.18.
    pub fn distance(self, release: Release) -> u8 {
        let swapped = release >= Release::new(2, 28, 0);
        match self {
            Self::Pxn if swapped => Self::P2c as u8,
            Self::P2c if swapped => Self::Pxn as u8,
            other => other as u8,
        }
    }

    /// Whether the path is `limit` or nearer in `release`'s order.
    pub fn within(self, limit: Self, release: Release) -> bool {
        self.distance(release) <= limit.distance(release)
    }

    /// Whether `release` can print this type.
    pub fn exists_in(self, release: Release) -> bool {
        match self {
            Self::C2c => release >= Release::new(2, 26, 0),
            Self::P2c => release >= Release::new(2, 27, 0),
            _ => true,
        }
    }
}

impl fmt::Display for PathType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A text that names no type of path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no type of path; NCCL prints LOC, NVL, NVB, C2C, PIX, PXB, PXN, P2C, PHB, SYS, NET or DIS")]
pub struct UnknownPathType(pub String);

impl FromStr for PathType {
    type Err = UnknownPathType;

    fn from_str(text: &str) -> Result<Self, UnknownPathType> {
        let found = Self::ALL.into_iter().find(|kind| kind.name().eq_ignore_ascii_case(text));
        // What is quoted is bounded: the text may be of any length.
        found.ok_or_else(|| UnknownPathType(text.chars().take(32).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_return() {
        // Every type and pattern comes back from what is printed of it; nothing else is taken.
        for kind in PathType::ALL {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        for pattern in Pattern::ALL {
            assert_eq!(Pattern::from_id(pattern.id()), Some(pattern));
        }
        assert_eq!((Pattern::from_id(0), Pattern::from_id(7)), (None, None));
        for text in ["", "NV", "NVLX", "é"] {
            assert!(text.parse::<PathType>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_order_of_types_depends_on_the_release() {
        // P2C and PXN change places at 2.28, all others stay where they are.
        let (old, new) = (Release::new(2, 27, 7), Release::new(2, 28, 3));
        assert!(PathType::Pxn.within(PathType::P2c, old) && !PathType::P2c.within(PathType::Pxn, old));
        assert!(PathType::P2c.within(PathType::Pxn, new) && !PathType::Pxn.within(PathType::P2c, new));
        for kind in PathType::ALL.into_iter().filter(|kind| !matches!(kind, PathType::Pxn | PathType::P2c)) {
            assert_eq!(kind.distance(old), kind.distance(new));
        }
        let mut places: Vec<u8> = PathType::ALL.iter().map(|kind| kind.distance(new)).collect();
        places.sort_unstable();
        assert_eq!(places, (0..12).collect::<Vec<u8>>());
    }
}
