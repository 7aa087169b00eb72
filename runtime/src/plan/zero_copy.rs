//! Zero copy: what a rank wants it reads where the others have it, in registered memory, without a slot in between.
//!
//! ```text
//! all-reduce        piece r of all inputs, reduced    -> piece r of the own output
//!                   then send nothing, recv nothing from all
//!                   each other rank's piece of its output -> the own output
//! reduce-scatter    block r of all inputs, reduced    -> own output
//! all-gather        each rank's input                 -> its block of the own output
//! all-to-all        block r of each rank's input      -> the block of that rank in the own output
//! broadcast         the root's input                  -> own output; scatter: block r of it
//! gather            root: each rank's input           -> its block
//!                   then send nothing, recv nothing from all: nobody may change its buffers before
//! ```
//!
//! A rank writes to its own buffers alone. One that was stopped, and goes on after the others have given up, changes
//! nothing that these use again; what it reads then counts for nothing, since it learns of the end before it is done
//! (`Engine::advance`).
//!
//! Bytes per rank of an all-reduce: S + S (n-1)/n read, S written. One hand-over before, in which the ranks tell where
//! their buffers are (`comm/notices.rs`), and one behind each part. Sums are made in the order of ranks.

use super::blocks::Cut;
use super::call::Kind;
use super::primitive::{Prim, Recv, Send};
use super::slice::{Chunks, Span};

/// Elements of a chunk are those of `cut`; `grain` is of pieces.
pub(super) fn prim(cut: Cut<'_>, index: u64, grain: usize) -> Option<Prim> {
    let mut index = index;
    for work in [Some(Work::of(cut, grain)), Work::after(cut, grain)].into_iter().flatten() {
        let count = work.count();
        match index.checked_sub(count) {
            None => return Some(work.get(index)),
            // Everybody's buffers are in use until everybody is done.
            Some(0) => return Some(Prim::send(Send::Fan, Span::default())),
            Some(1) => return Some(Prim::recv(Recv::All, Span::default())),
            Some(more) => index = more - 2,
        }
    }
    None
}

/// Whether the kind has a form without copies.
pub(super) fn has(kind: Kind) -> bool {
    !matches!(kind, Kind::Barrier | Kind::Reduce { .. })
}

/// What this rank does with the data.
#[derive(Debug)]
enum Work<'a> {
    /// Reduces chunks of a span of everybody's input into the own output: to the same place, or to its start.
    Reduce {
        chunks: Chunks,
        in_its_place: bool,
    },
    /// Takes every other rank's piece of the result.
    Pieces {
        cut: Cut<'a>,
        grain: usize,
    },
    /// Takes chunks of one span of the root's input.
    Take {
        from: u32,
        chunks: Chunks,
    },
    /// Copies its own input, where that is not the output.
    Keep {
        from: Span,
        to: Span,
    },
    /// Takes a block of each rank, its own first.
    Collect {
        cut: Cut<'a>,
    },
    Nothing,
}

impl<'a> Work<'a> {
    fn of(cut: Cut<'a>, grain: usize) -> Self {
        let Cut { call, chunks, rank, .. } = cut;
        let whole = chunks.whole();
        match call.kind {
            Kind::AllReduce => Self::Reduce { chunks: piece(cut, rank, grain), in_its_place: true },
            Kind::ReduceScatter | Kind::ReduceScatterV => {
                Self::Reduce { chunks: chunks.of(call.block(rank)), in_its_place: false }
            }
            Kind::Broadcast { root } if root == rank => Self::Keep { from: whole, to: whole },
            Kind::Broadcast { root } => Self::Take { from: root, chunks },
            Kind::Scatter { root } => {
                let block = call.block(rank);
                if root == rank {
                    Self::Keep { from: block, to: cut.alone(block) }
                } else {
                    Self::Take { from: root, chunks: chunks.of(block) }
                }
            }
            Kind::AllGather | Kind::AllGatherV | Kind::AllToAll => Self::Collect { cut },
            Kind::Gather { root } if root == rank => Self::Collect { cut },
            Kind::Gather { .. } | Kind::Barrier | Kind::Reduce { .. } => Self::Nothing,
        }
    }

    /// What it does once all have done that.
    fn after(cut: Cut<'a>, grain: usize) -> Option<Self> {
        (cut.call.kind == Kind::AllReduce).then_some(Self::Pieces { cut, grain })
    }

    fn count(&self) -> u64 {
        match self {
            Self::Reduce { chunks, .. } | Self::Take { chunks, .. } => chunks.count(),
            Self::Keep { .. } => 1,
            // As many for each rank as for the first, whose piece is the longest.
            Self::Pieces { cut, grain } => piece(*cut, 0, *grain).count() * u64::from(cut.nranks - 1),
            Self::Collect { cut } => cut.chunks.count() * u64::from(cut.nranks),
            Self::Nothing => 0,
        }
    }

    fn get(&self, index: u64) -> Prim {
        match *self {
            Self::Reduce { ref chunks, in_its_place } => {
                let (from, first) = (chunks.get(index), chunks.whole().at);
                let to = if in_its_place { from.at } else { from.at - first };
                Prim::reduce_peers(from, Span::new(to, from.len))
            }
            Self::Pieces { cut, grain } => {
                let others = u64::from(cut.nranks - 1);
                let from = (cut.rank + 1 + (index % others) as u32) % cut.nranks;
                let chunks = piece(cut, from, grain);
                if index / others >= chunks.count() {
                    return Prim::NOTHING;
                }
                let span = chunks.get(index / others);
                Prim::recv(Recv::PeerOutput(from), span).out_of(span.len, span.at)
            }
            Self::Take { from, ref chunks } => {
                let (span, first) = (chunks.get(index), chunks.whole().at);
                // Of a broadcast the output has all, of a scatter the block alone: each begins where the span does.
                Prim::recv(Recv::Peer(from), Span::new(span.at - first, span.len)).out_of(span.len, span.at)
            }
            Self::Keep { from, to } => Prim::copy(from, to),
            Self::Collect { cut } => {
                let n = u64::from(cut.nranks);
                let (chunk, step) = (cut.chunks.get(index / n), (index % n) as u32);
                // Each rank goes on to its successor, so that not all read from the same one at once.
                let from = (cut.rank + step) % cut.nranks;
                let to = cut.call.place(chunk, from);
                let source = if cut.call.kind == Kind::AllToAll {
                    cut.call.place(chunk, cut.rank).at
                } else {
                    chunk.at
                };
                match (to.len, step) {
                    (0, _) => Prim::NOTHING,
                    (len, 0) => Prim::copy(Span::new(source, len), to),
                    (len, _) => Prim::recv(Recv::Peer(from), to).out_of(len, source),
                }
            }
            Self::Nothing => Prim::NOTHING,
        }
    }
}

/// The piece of an all-reduce that `rank` reduces, in chunks.
fn piece(cut: Cut<'_>, rank: u32, grain: usize) -> Chunks {
    cut.chunks.of(cut.chunks.whole().piece(rank as usize, cut.nranks as usize, grain))
}
