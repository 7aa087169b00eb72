//! What can be measured: the collectives, and what is made of messages.

use ringccl::Kind;

/// An operation of every rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// A collective.
    Collective(Kind),
    /// Every rank sends to the next one and receives from the one before.
    SendRecv,
    /// Every rank sends a part of its own length to every rank.
    AllToAllV,
}

use What::Collective;

impl What {
    /// All of them; a root is filled in later.
    pub(super) const ALL: [Self; 13] = [
        Collective(Kind::AllReduce),
        Collective(Kind::Broadcast { root: 0 }),
        Collective(Kind::Reduce { root: 0 }),
        Collective(Kind::AllGather),
        Collective(Kind::ReduceScatter),
        Collective(Kind::AllToAll),
        Self::AllToAllV,
        Collective(Kind::Gather { root: 0 }),
        Collective(Kind::Scatter { root: 0 }),
        Collective(Kind::AllGatherV),
        Collective(Kind::ReduceScatterV),
        Self::SendRecv,
        Self::BARRIER,
    ];

    pub(super) const BARRIER: Self = Collective(Kind::Barrier);

    /// Its name on the command line and in tables.
    pub(super) fn name(self) -> &'static str {
        match self {
            Collective(kind) => kind.name(),
            Self::SendRecv => "sendrecv",
            Self::AllToAllV => "all_to_all_v",
        }
    }

    /// The same operation with this root, if it has one.
    pub(super) fn with_root(self, root: u32) -> Self {
        match self {
            Collective(Kind::Broadcast { .. }) => Collective(Kind::Broadcast { root }),
            Collective(Kind::Reduce { .. }) => Collective(Kind::Reduce { root }),
            Collective(Kind::Gather { .. }) => Collective(Kind::Gather { root }),
            Collective(Kind::Scatter { .. }) => Collective(Kind::Scatter { root }),
            other => other,
        }
    }

    /// The rank that it comes from or goes to, if there is one.
    pub(super) fn root(self) -> Option<u32> {
        match self {
            Collective(kind) => kind.root(),
            Self::SendRecv | Self::AllToAllV => None,
        }
    }

    /// Whether it combines elements of different ranks.
    pub(super) fn reduces(self) -> bool {
        matches!(self, Collective(kind) if kind.reduces())
    }

    /// Whether it consists of messages between two ranks each, for which no algorithm is chosen.
    pub(super) fn is_messages(self) -> bool {
        matches!(self, Self::SendRecv | Self::AllToAllV)
    }

    /// Whether nccl-tests runs it in place as well: a message needs a buffer of its own.
    pub(super) fn has_in_place(self) -> bool {
        !self.is_messages() && self != Self::BARRIER
    }

    /// What nccl-tests multiplies the bandwidth of `ranks` with: the part of the size that must cross a link.
    pub(super) fn bus_factor(self, ranks: u32) -> f64 {
        let others = f64::from(ranks - 1) / f64::from(ranks);
        match self {
            Collective(Kind::AllReduce) => 2.0 * others,
            Collective(Kind::Broadcast { .. } | Kind::Reduce { .. } | Kind::Barrier) | Self::SendRecv => 1.0,
            Collective(
                Kind::AllGather
                | Kind::AllGatherV
                | Kind::ReduceScatter
                | Kind::ReduceScatterV
                | Kind::AllToAll
                | Kind::Gather { .. }
                | Kind::Scatter { .. },
            )
            | Self::AllToAllV => others,
        }
    }

    /// Bytes of both buffers of one rank, at most, in an operation of `size` bytes.
    pub(super) fn memory(self, ranks: u32, size: u64) -> u64 {
        match self {
            Self::BARRIER => 0,
            Self::SendRecv | Self::AllToAllV => 2 * size,
            Collective(Kind::AllReduce | Kind::Broadcast { .. } | Kind::Reduce { .. } | Kind::AllToAll) => {
                2 * size
            }
            // The highest rank has 2 / (n + 1) of everything.
            Collective(Kind::AllGatherV | Kind::ReduceScatterV) => size + 2 * size / (u64::from(ranks) + 1),
            _ => size + size / u64::from(ranks),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The factors are those of nccl-tests.
    #[test]
    fn factors_are_those_of_nccl_tests() {
        let factor = |what: What| what.bus_factor(4);
        let is = |found: f64, wanted: f64| (found - wanted).abs() < 1e-9;
        assert!(is(factor(Collective(Kind::AllReduce)), 1.5));
        for kind in [Kind::Reduce { root: 0 }, Kind::Broadcast { root: 2 }] {
            assert!(is(factor(Collective(kind)), 1.0));
        }
        assert!(is(factor(What::SendRecv), 1.0) && is(What::SendRecv.bus_factor(1), 1.0));
        for kind in [Kind::AllGather, Kind::ReduceScatter, Kind::AllToAll, Kind::Gather { root: 3 }] {
            assert!(is(factor(Collective(kind)), 0.75));
        }
        assert!(is(factor(What::AllToAllV), 0.75));
    }

    /// Every operation of the library can be asked for, by a name of its own.
    #[test]
    fn names_differ() {
        let names = What::ALL.map(What::name);
        assert!(names.iter().all(|name| names.iter().filter(|other| *other == name).count() == 1));
    }
}
