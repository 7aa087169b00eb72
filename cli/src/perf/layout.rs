//! Who sends and gets what in a collective, as nccl-tests defines its size: what buffers hold, and where each part of
//! a result comes from.
//!
//! | collective | size: bytes of | count |
//! | --- | --- | --- |
//! | all_reduce, reduce, broadcast | the buffer | its elements |
//! | all_gather, gather | the receive buffer | elements of one rank's block |
//! | reduce_scatter, scatter, all_to_all | the send buffer | elements of one rank's block |
//! | all_gather_v, reduce_scatter_v | the buffer of all blocks | its elements; rank r has a part of r + 1 in it |
//! | all_to_all_v | the send buffer | its elements; what rank i sends to rank j is a part of (i + j) mod n + 1 of it |
//! | sendrecv | the message that every rank sends to the next one | its elements |
//!
//! nccl-tests also rounds blocks down to 16 bytes; here they are as long as the size allows, and at least one element.

use super::what::What;
use ringccl::Kind;
use std::ops::Range;

/// Whether the count is that of a block, of which every rank has one of the same length.
fn has_equal_blocks(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::AllGather | Kind::ReduceScatter | Kind::AllToAll | Kind::Gather { .. } | Kind::Scatter { .. }
    )
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
    /// Lengths of the ranks' blocks; of an uneven exchange, of what this rank sends to each.
    pub(super) counts: Vec<usize>,
    /// Of an uneven exchange, lengths of what this rank gets from each.
    pub(super) recv_counts: Vec<usize>,
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
    pub(super) fn new(what: What, ranks: usize, rank: usize, elements: usize) -> Self {
        match what {
            What::Collective(kind) => Self::of_collective(kind, ranks, rank, elements),
            What::SendRecv => {
                let source = Source::Rank(((rank + ranks - 1) % ranks) as u64);
                let parts = vec![Part { at: 0..elements, source, first: 0 }];
                Self::of_messages(elements, vec![], vec![], parts)
            }
            What::AllToAllV => {
                // What two ranks send each other is equally long.
                let lengths: Vec<usize> =
                    (0..ranks).map(|peer| between(ranks, rank, peer, elements)).collect();
                let before =
                    |from: usize| (0..rank).map(|to| between(ranks, from, to, elements)).sum::<usize>();
                let mut parts = blocks(&lengths, 0);
                parts.iter_mut().enumerate().for_each(|(from, part)| part.first = before(from));
                Self::of_messages(elements, lengths.clone(), lengths, parts)
            }
        }
    }

    /// One with buffers of `elements` that are apart.
    fn of_messages(elements: usize, counts: Vec<usize>, recv_counts: Vec<usize>, parts: Vec<Part>) -> Self {
        let (send, recv, places) = (elements, elements, [0, 0]);
        Self { count: elements, counts, recv_counts, send, recv, places, parts, elements }
    }

    fn of_collective(kind: Kind, ranks: usize, rank: usize, elements: usize) -> Self {
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
        Self { count, counts, recv_counts: vec![], send, recv, places, parts, elements }
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

/// How many of a rank's elements in an uneven exchange are for another: every rank has each share once.
fn between(ranks: usize, from: usize, to: usize, elements: usize) -> usize {
    let of = |share: usize| (elements as u128 * share as u128 / (ranks * (ranks + 1) / 2) as u128) as usize;
    match (from + to) % ranks + 1 {
        // The largest share has what is left over.
        share if share == ranks => elements - (1..ranks).map(of).sum::<usize>(),
        share => of(share),
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
        for kind in What::ALL.into_iter().flat_map(|what| [what.with_root(0), what.with_root(2)]) {
            for (ranks, elements) in [(3, 1), (3, 10), (5, 1000), (8, 64)] {
                let sides: Vec<Layout> =
                    (0..ranks).map(|rank| Layout::new(kind, ranks, rank, elements)).collect();
                for side in &sides {
                    if !kind.is_messages() {
                        assert_eq!(side.counts, sides[0].counts);
                    }
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
                    assert!(bytes <= kind.memory(ranks as u32, 4 * side.elements as u64) + 8, "{kind:?}");
                }
            }
        }
    }

    /// Size and count are nccl-tests'.
    #[test]
    fn sizes_are_those_of_nccl_tests() {
        let layout = |kind| Layout::new(What::Collective(kind), 4, 1, 1024);
        for kind in [Kind::AllReduce, Kind::Reduce { root: 0 }, Kind::Broadcast { root: 0 }] {
            assert_eq!((layout(kind).count, layout(kind).elements), (1024, 1024));
        }
        for kind in [Kind::AllGather, Kind::ReduceScatter, Kind::AllToAll, Kind::Gather { root: 3 }] {
            assert_eq!((layout(kind).count, layout(kind).elements), (256, 1024));
        }
        let uneven = layout(Kind::AllGatherV);
        assert_eq!((uneven.count, uneven.counts.as_slice()), (1024, &[102, 205, 307, 410][..]));
        let message = Layout::new(What::SendRecv, 4, 1, 1024);
        assert_eq!((message.count, message.elements, message.parts[0].source), (1024, 1024, Source::Rank(0)));
        let exchange = Layout::new(What::AllToAllV, 4, 1, 1024);
        assert_eq!((exchange.count, exchange.counts.as_slice()), (1024, &[204, 307, 411, 102][..]));
    }

    /// What a rank sends to another in an uneven exchange is what the other gets from it, also where little is sent.
    #[test]
    fn both_ends_of_an_exchange_agree() {
        for ranks in [1, 2, 3, 8] {
            for elements in [0, 1, 5, 1000] {
                let side = |rank| Layout::new(What::AllToAllV, ranks, rank, elements);
                for (from, to) in (0..ranks).flat_map(|from| (0..ranks).map(move |to| (from, to))) {
                    assert_eq!(side(from).counts[to], side(to).recv_counts[from]);
                }
                assert!((0..ranks).all(|rank| side(rank).counts.iter().sum::<usize>() == elements));
            }
        }
    }
}
