//! Who sends and gets what in a collective, as nccl-tests defines its size: what buffers hold, and where each part of
//! a result comes from.
//!
//! | collective | size: bytes of | count |
//! | --- | --- | --- |
//! | all_reduce, reduce, broadcast | the buffer | its elements |
//! | all_gather, gather | the receive buffer | elements of one rank's block |
//! | reduce_scatter, scatter, all_to_all | the send buffer | elements of one rank's block |
//! | all_gather_v, reduce_scatter_v | the buffer of all blocks | its elements; rank r has a part of r + 1 in it |
//!
//! nccl-tests also rounds blocks down to 16 bytes; here they are as long as the size allows, and at least one element.

use ringccl::Kind;
use std::ops::Range;

/// The collectives that can be measured; a root is filled in later.
pub(super) const KINDS: [Kind; 11] = [
    Kind::AllReduce,
    Kind::Broadcast { root: 0 },
    Kind::Reduce { root: 0 },
    Kind::AllGather,
    Kind::ReduceScatter,
    Kind::AllToAll,
    Kind::Gather { root: 0 },
    Kind::Scatter { root: 0 },
    Kind::AllGatherV,
    Kind::ReduceScatterV,
    Kind::Barrier,
];

/// The same collective with this root, if it has one.
pub(super) fn with_root(kind: Kind, root: u32) -> Kind {
    match kind {
        Kind::Broadcast { .. } => Kind::Broadcast { root },
        Kind::Reduce { .. } => Kind::Reduce { root },
        Kind::Gather { .. } => Kind::Gather { root },
        Kind::Scatter { .. } => Kind::Scatter { root },
        other => other,
    }
}

/// Whether the count is that of a block, of which every rank has one of the same length.
fn has_equal_blocks(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::AllGather | Kind::ReduceScatter | Kind::AllToAll | Kind::Gather { .. } | Kind::Scatter { .. }
    )
}

/// What nccl-tests multiplies the bandwidth of `ranks` with: the part of the size that must cross a link.
pub(super) fn bus_factor(kind: Kind, ranks: u32) -> f64 {
    let others = f64::from(ranks - 1) / f64::from(ranks);
    match kind {
        Kind::AllReduce => 2.0 * others,
        Kind::Broadcast { .. } | Kind::Reduce { .. } | Kind::Barrier => 1.0,
        Kind::AllGather
        | Kind::AllGatherV
        | Kind::ReduceScatter
        | Kind::ReduceScatterV
        | Kind::AllToAll
        | Kind::Gather { .. }
        | Kind::Scatter { .. } => others,
    }
}

/// Bytes of both buffers of one rank, at most, in an operation of `size` bytes.
pub(super) fn memory(kind: Kind, ranks: u32, size: u64) -> u64 {
    match kind {
        Kind::Barrier => 0,
        Kind::AllReduce | Kind::Broadcast { .. } | Kind::Reduce { .. } | Kind::AllToAll => 2 * size,
        // The highest rank has 2 / (n + 1) of everything.
        Kind::AllGatherV | Kind::ReduceScatterV => size + 2 * size / (u64::from(ranks) + 1),
        _ => size + size / u64::from(ranks),
    }
}

/// Where elements of a result come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// One rank's input.
    Rank(u64),
    /// The inputs of all, reduced.
    All,
}

/// A part of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// Where it is in the output.
    pub(super) at: Range<usize>,
    pub(super) source: Source,
    /// Its first element in the inputs.
    pub(super) first: usize,
}

/// One rank's side of an operation. All numbers are elements.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    /// What is told and called: of the buffer or a block, see the table above.
    pub(super) count: usize,
    /// Lengths of the ranks' blocks.
    pub(super) counts: Vec<usize>,
    pub(super) send: usize,
    pub(super) recv: usize,
    /// In place: where input and output begin in one buffer.
    pub(super) places: [usize; 2],
    /// The result, part by part; empty where a rank gets none.
    pub(super) parts: Vec<Part>,
    /// Elements of the size.
    pub(super) elements: usize,
}

impl Layout {
    /// The side of `rank` of `ranks` in an operation of `elements` at most.
    pub(super) fn new(kind: Kind, ranks: usize, rank: usize, elements: usize) -> Self {
        let counts = counts(kind, ranks, elements);
        let (one, all) = (counts[rank], counts.iter().sum());
        let first: usize = counts[..rank].iter().sum();
        let is_root = kind.root().is_none_or(|root| root as usize == rank);
        let on_root = |elements: usize| if is_root { elements } else { 0 };
        let whole = |source| vec![Part { at: 0..one, source, first: 0 }];
        let root = Source::Rank(kind.root().unwrap_or(0).into());
        let (send, recv, parts) = match kind {
            Kind::Barrier => (0, 0, vec![]),
            Kind::AllReduce => (one, one, whole(Source::All)),
            Kind::Broadcast { .. } => (one, one, whole(root)),
            Kind::Reduce { .. } => (one, on_root(one), whole(Source::All)),
            Kind::AllGather | Kind::AllGatherV => (one, all, blocks(&counts, 0)),
            Kind::Gather { .. } => (one, on_root(all), blocks(&counts, 0)),
            Kind::AllToAll => (all, all, blocks(&counts, first)),
            Kind::ReduceScatter | Kind::ReduceScatterV => {
                (all, one, vec![Part { at: 0..one, source: Source::All, first }])
            }
            Kind::Scatter { .. } => (on_root(all), one, vec![Part { at: 0..one, source: root, first }]),
        };
        let places = match kind {
            Kind::AllGather | Kind::AllGatherV => [first, 0],
            Kind::Gather { .. } => [on_root(first), 0],
            Kind::ReduceScatter | Kind::ReduceScatterV => [0, first],
            Kind::Scatter { .. } => [0, on_root(first)],
            _ => [0, 0],
        };
        let parts = if recv == 0 { vec![] } else { parts };
        let whole_blocks = has_equal_blocks(kind) || matches!(kind, Kind::AllGatherV | Kind::ReduceScatterV);
        let elements = if whole_blocks { all } else { one };
        let count = if has_equal_blocks(kind) { one } else { elements };
        Self { count, counts, send, recv, places, parts, elements }
    }

    /// Elements of the one buffer of a call in place.
    pub(super) fn in_place(&self) -> usize {
        (self.places[0] + self.send).max(self.places[1] + self.recv)
    }
}

/// How many elements each rank's block has, or the buffer on each rank.
fn counts(kind: Kind, ranks: usize, elements: usize) -> Vec<usize> {
    match kind {
        Kind::AllGatherV | Kind::ReduceScatterV => {
            let share = |rank: usize| elements as u128 * (rank * (rank + 1) / 2) as u128;
            let end = |rank: usize| (share(rank) / (ranks * (ranks + 1) / 2) as u128) as usize;
            (0..ranks).map(|rank| end(rank + 1) - end(rank)).collect()
        }
        Kind::Barrier => vec![0; ranks],
        _ if has_equal_blocks(kind) => vec![(elements / ranks).max(1); ranks],
        _ => vec![elements; ranks],
    }
}

/// A block from every rank, each with the elements of its input from `first` on.
fn blocks(counts: &[usize], first: usize) -> Vec<Part> {
    let mut end = 0;
    let block = |(rank, count): (usize, &usize)| {
        let at = end..end + count;
        end = at.end;
        Part { at, source: Source::Rank(rank as u64), first }
    };
    counts.iter().enumerate().map(block).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A result is covered from its first element to its last, and what one rank sends is what the others get.
    #[test]
    fn parts_cover_results() {
        for kind in KINDS.into_iter().flat_map(|kind| [with_root(kind, 0), with_root(kind, 2)]) {
            for (ranks, elements) in [(3, 1), (3, 10), (5, 1000), (8, 64)] {
                let sides: Vec<Layout> =
                    (0..ranks).map(|rank| Layout::new(kind, ranks, rank, elements)).collect();
                for side in &sides {
                    assert_eq!(side.counts, sides[0].counts);
                    let end = side.parts.iter().fold(0, |end, part| {
                        assert_eq!(part.at.start, end, "{kind:?}");
                        part.at.end
                    });
                    assert_eq!(end, side.recv, "{kind:?}");
                    for part in &side.parts {
                        let senders = match part.source {
                            Source::Rank(rank) => rank as usize..rank as usize + 1,
                            Source::All => 0..ranks,
                        };
                        for sender in senders {
                            assert!(part.first + part.at.len() <= sides[sender].send, "{kind:?} {part:?}");
                        }
                    }
                    assert!(side.elements <= elements.max(ranks));
                    let bytes = ((side.send + side.recv) * 4) as u64;
                    assert!(bytes <= memory(kind, ranks as u32, 4 * side.elements as u64) + 8, "{kind:?}");
                }
            }
        }
    }

    /// Size and count are nccl-tests', the factors too.
    #[test]
    fn sizes_are_those_of_nccl_tests() {
        let layout = |kind| Layout::new(kind, 4, 1, 1024);
        for kind in [Kind::AllReduce, Kind::Reduce { root: 0 }, Kind::Broadcast { root: 0 }] {
            assert_eq!((layout(kind).count, layout(kind).elements), (1024, 1024));
        }
        for kind in [Kind::AllGather, Kind::ReduceScatter, Kind::AllToAll, Kind::Gather { root: 3 }] {
            assert_eq!((layout(kind).count, layout(kind).elements), (256, 1024));
            assert!((bus_factor(kind, 4) - 0.75).abs() < 1e-9);
        }
        let uneven = layout(Kind::AllGatherV);
        assert_eq!((uneven.count, uneven.counts.as_slice()), (1024, &[102, 205, 307, 410][..]));
        assert!((bus_factor(Kind::AllReduce, 4) - 1.5).abs() < 1e-9);
        assert!((bus_factor(Kind::Reduce { root: 0 }, 4) - 1.0).abs() < 1e-9);
    }
}
