//! Which connections a plan uses: the transport makes these, and no others, before the operation is polled.
//!
//! | plan | rings to all | pair rings |
//! | --- | --- | --- |
//! | flat and two-shot, but those to a root | yes | none |
//! | gather, flat reduce | no | from every other rank to the root |
//! | two-shot reduce | yes | from every other rank to the root |
//! | relay all-reduce | no, the relay | none |
//! | zero copy | yes, for the barrier behind it | none |
//! | tree | no | to and from parent and children |
//! | ring | no | to the next rank, from the previous one; none into the rank that begins a chain |

use super::ring::Seat;
use super::{Algorithm, Branch, Kind};

/// The connections of one rank on each channel of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wires {
    /// The rings from each rank to all others.
    pub(crate) fan: bool,
    /// The relay.
    pub(crate) relay: bool,
    /// Pair rings from this rank.
    pub(crate) to: Peers,
    /// Pair rings to this rank.
    pub(crate) from: Peers,
}

/// Some of the other ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peers {
    Nobody,
    One(u32),
    /// Parent and children in the channel's tree.
    Branch,
    Others,
}

impl Peers {
    /// The ranks, as seen from `rank` of `nranks` on a channel.
    #[inline]
    pub(crate) fn iter(self, channel: usize, rank: u32, nranks: u32) -> impl Iterator<Item = u32> {
        let (range, branch) = match self {
            Self::Nobody => (0..0, None),
            Self::One(peer) => (peer..peer + 1, None),
            Self::Others => (0..nranks, None),
            Self::Branch => (0..0, Some(Branch::of(channel, rank, nranks))),
        };
        let neighbours = branch.into_iter().flat_map(Branch::neighbours);
        range.filter(move |peer| *peer != rank).chain(neighbours)
    }
}

impl Wires {
    const FAN: Self = Self { fan: true, relay: false, to: Peers::Nobody, from: Peers::Nobody };

    pub(super) fn new(kind: Kind, algorithm: Algorithm, seat: Seat<'_>) -> Self {
        let (rank, next, prev) = (seat.rank, seat.next_rank(), seat.prev_rank());
        match (kind, algorithm) {
            (_, Algorithm::ZeroCopy) => Self::FAN,
            (Kind::Gather { root }, _) | (Kind::Reduce { root }, Algorithm::Flat | Algorithm::Tree) => {
                Self { fan: false, ..Self::into_root(rank, root) }
            }
            (Kind::AllReduce, Algorithm::Tree) => {
                Self { fan: false, to: Peers::Branch, from: Peers::Branch, ..Self::FAN }
            }
            (Kind::AllReduce, Algorithm::Relay) => Self { fan: false, relay: true, ..Self::FAN },
            (Kind::Reduce { root }, Algorithm::TwoShot | Algorithm::Relay) => Self::into_root(rank, root),
            // Chains: the ring without the connection behind the last rank.
            (Kind::Reduce { root }, Algorithm::Ring) => Self::chain(seat, prev == root, rank == root),
            (Kind::Broadcast { root }, Algorithm::Ring) => Self::chain(seat, rank == root, next == root),
            (Kind::Barrier | Kind::AllToAll | Kind::Scatter { .. }, _) => Self::FAN,
            (_, Algorithm::Ring) => {
                Self { fan: false, relay: false, to: Peers::One(next), from: Peers::One(prev) }
            }
            (_, Algorithm::Flat | Algorithm::TwoShot | Algorithm::Relay | Algorithm::Tree) => Self::FAN,
        }
    }

    fn into_root(rank: u32, root: u32) -> Self {
        let (to, from) =
            if rank == root { (Peers::Nobody, Peers::Others) } else { (Peers::One(root), Peers::Nobody) };
        Self { fan: true, relay: false, to, from }
    }

    /// A chain through all ranks in ring order, of which this rank is the first, the last or neither.
    fn chain(seat: Seat<'_>, is_first: bool, is_last: bool) -> Self {
        let to = if is_last { Peers::Nobody } else { Peers::One(seat.next_rank()) };
        let from = if is_first { Peers::Nobody } else { Peers::One(seat.prev_rank()) };
        Self { fan: false, relay: false, to, from }
    }
}
