//! What an operation does, as a list of primitives: pure logic, no memory and no waiting.
//!
//! A [`Call`] becomes a [`Plan`]; the plan yields, for each channel, primitive number 0, 1, 2, ... as a
//! function of the index alone. The executor therefore needs one number per channel to resume, every rank
//! derives matching primitives from the same arguments, and tests can look at a plan without running it.

mod blocks;
mod broadcast;
mod call;
mod flat;
mod gather;
pub(crate) mod nccl;
mod primitive;
mod reduce;
mod relay;
mod ring;
mod scatter;
mod select;
mod slice;
mod tree;
mod tuning;
mod two_shot;
mod wires;
mod zero_copy;

pub(crate) use blocks::Counts;
pub(crate) use call::Call;
pub use call::Kind;
pub use nccl::NcclCut;
pub(crate) use primitive::{Own, Prim, Recv, Send, Turn};
pub use select::{Algorithm, Choice};
pub(crate) use select::{Limits, select, select_as, without_copies};
pub(crate) use slice::{Span, Stretch};
pub(crate) use tree::Branch;
pub use tuning::{Tuning, TuningLines, TuningRow, TuningStep};
pub(crate) use wires::Wires;

use blocks::Cut;
use ring::Seat;
use shmring::Protocol;
use slice::{Channels, Chunks, Strides};
use std::sync::Arc;

/// One operation's primitives on one rank.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) call: Call,
    pub(crate) choice: Choice,
    /// The connections that it uses.
    pub(crate) wires: Wires,
    /// Elements of the caller's buffers that it reads and writes.
    pub(crate) input: usize,
    pub(crate) output: usize,
    rank: u32,
    nranks: u32,
    /// The order of ranks in a ring and which of them this one is, as a [`Seat`] has them.
    order: Option<Arc<[u32]>>,
    position: u32,
    /// Of the buffer, or of the longest block.
    channels: Channels,
    /// How many channels carry something.
    used: usize,
    /// Elements of the largest message, or of the longest chunk of one block in a message for several ranks.
    chunk: usize,
    /// Ranks whose chunks go into one message.
    window: u32,
}

impl Plan {
    /// The plan of `call` on `rank` of `nranks` (at least 2) with an algorithm, protocol and sizes.
    pub(crate) fn new(call: Call, choice: Choice, rank: u32, nranks: u32) -> Self {
        Self::on_ring(call, choice, rank, nranks, None)
    }

    /// The same where a ring has the ranks in this order, which names each once.
    pub(crate) fn on_ring(
        call: Call,
        choice: Choice,
        rank: u32,
        nranks: u32,
        order: Option<Arc<[u32]>>,
    ) -> Self {
        let size = call.dtype.size_bytes();
        // A line of 64 bytes is the grain: no two ranks or channels share one.
        let grain = 64 / size;
        let message = (choice.chunk_bytes / size).max(1);
        let (chunk, window) = if shares_messages(call.kind, choice.algorithm) {
            let chunk = whole_grains(message / nranks as usize, grain);
            (chunk, nranks.min((message / chunk) as u32))
        } else if call.kind == Kind::AllReduce && choice.algorithm == Algorithm::Relay {
            // A block: a piece for each rank.
            (whole_grains(message, grain).saturating_mul(nranks as usize), 1)
        } else {
            (whole_grains(message, grain), 1)
        };
        let cut = if call.kind.has_blocks() { call.longest_block() } else { call.count };
        let (input, output) = call.buffers(rank, nranks);
        let channels = match choice.nccl {
            Some(nccl) => Channels::Nccl(nccl.parts(call.kind, cut, size, nranks)),
            None => Channels::new(cut, choice.channels as usize, grain),
        };
        Self {
            wires: Wires::new(call.kind, choice.algorithm, Seat::new(rank, nranks, order.as_deref())),
            position: Seat::new(rank, nranks, order.as_deref()).position,
            order,
            used: channels.used(),
            channels,
            call,
            choice,
            input,
            output,
            rank,
            nranks,
            chunk,
            window,
        }
    }

    /// How many channels carry something; at least one.
    #[inline]
    pub(crate) fn channels(&self) -> usize {
        self.used
    }

    /// Primitive number `index` on `channel`, `None` after the last one.
    #[inline]
    pub(crate) fn prim(&self, channel: usize, index: u64) -> Option<Prim> {
        let span = self.channels.span(channel);
        let chunks = Chunks::new(span, self.chunk);
        match (self.call.kind, self.choice.algorithm) {
            (kind, Algorithm::ZeroCopy) => self.other_prim(kind, Algorithm::ZeroCopy, chunks, index),
            (Kind::AllReduce, Algorithm::Flat) => flat::all_reduce(chunks, index),
            (Kind::AllReduce, Algorithm::TwoShot) => {
                two_shot::prim(chunks, index, self.rank, self.nranks, self.grain())
            }
            (Kind::AllReduce, Algorithm::Relay) => {
                // A message may be shorter than a line.
                let grain = self.grain().min(self.chunk / self.nranks as usize);
                relay::all_reduce(chunks, index, self.rank, self.nranks, grain)
            }
            (Kind::AllReduce, Algorithm::Ring) => ring::all_reduce(&self.strides(span), index, self.seat()),
            (Kind::AllReduce, Algorithm::Tree) => {
                let branch = Branch::of(channel, self.rank, self.nranks);
                tree::all_reduce(chunks, index, branch, self.nranks)
            }
            (Kind::Barrier, _) => flat::barrier(index),
            (kind, algorithm) => self.other_prim(kind, algorithm, chunks, index),
        }
    }

    /// [`Plan::prim`] of the kinds that are not all-reduce: apart, so that the shortest operation stays short.
    fn other_prim(&self, kind: Kind, algorithm: Algorithm, chunks: Chunks, index: u64) -> Option<Prim> {
        let Self { rank, nranks, window, .. } = *self;
        let cut = Cut { call: &self.call, chunks, rank, nranks, window };
        match (kind, algorithm) {
            (_, Algorithm::ZeroCopy) => zero_copy::prim(cut, index, self.grain()),
            (Kind::AllReduce | Kind::Barrier, _) => None,
            (Kind::Broadcast { root }, Algorithm::Ring) => ring::broadcast(chunks, index, self.seat(), root),
            (Kind::Broadcast { root }, _) => broadcast::prim(chunks, index, rank, root),
            (Kind::Reduce { root }, Algorithm::Flat | Algorithm::Tree) => {
                reduce::flat(chunks, index, rank, root)
            }
            (Kind::Reduce { root }, Algorithm::TwoShot | Algorithm::Relay) => {
                reduce::two_shot(chunks, index, self.seat(), root, self.grain())
            }
            (Kind::Reduce { root }, Algorithm::Ring) => ring::reduce(chunks, index, self.seat(), root),
            (Kind::AllGather | Kind::AllGatherV, Algorithm::Ring) => {
                ring::all_gather(cut, index, self.seat())
            }
            (Kind::AllGather | Kind::AllGatherV, _) => gather::all_gather(cut, index),
            (Kind::ReduceScatter | Kind::ReduceScatterV, Algorithm::Ring) => {
                ring::reduce_scatter(cut, index, self.seat())
            }
            (Kind::ReduceScatter | Kind::ReduceScatterV, _) => scatter::reduce_scatter(cut, index),
            (Kind::AllToAll, _) => scatter::all_to_all(cut, index),
            (Kind::Gather { root }, _) => gather::gather(cut, index, root),
            (Kind::Scatter { root }, _) => scatter::scatter(cut, index, root),
        }
    }

    /// Whether the output may be the input, or its own block, as NCCL defines it for the kind.
    ///
    /// All kinds may, but an all-to-all only if each message has something for every rank: if not, what comes from a
    /// rank would take the place of what is yet to be sent to it.
    #[inline]
    pub(crate) fn works_in_place(&self) -> bool {
        self.call.kind != Kind::AllToAll || self.window == self.nranks
    }

    /// Bytes of the longest message in lines; 0 where none has any.
    #[inline]
    pub(crate) fn line_bytes(&self) -> usize {
        match self.choice.protocol {
            Protocol::Ll | Protocol::Ll128 if self.choice.algorithm != Algorithm::ZeroCopy => {
                self.choice.chunk_bytes
            }
            _ => 0,
        }
    }

    /// How a ring's all-reduce goes through a channel's span.
    fn strides(&self, span: Span) -> Strides {
        let (ranks, message) = (self.nranks as usize, self.chunk);
        match self.choice.nccl {
            Some(nccl) => {
                let size = self.call.dtype.size_bytes();
                let (chunk, grain) = (nccl.chunk(self.call.kind, size), nccl::line(size));
                Strides { span, ranks, chunk, grain, message }
            }
            None => Strides { span, ranks, chunk: message, grain: self.grain().min(message), message },
        }
    }

    fn seat(&self) -> Seat<'_> {
        let Self { rank, nranks, position, .. } = *self;
        Seat { rank, nranks, order: self.order.as_deref(), position }
    }

    /// Elements of a line.
    fn grain(&self) -> usize {
        64 / self.call.dtype.size_bytes()
    }
}

/// Whether one message carries a chunk of several ranks' blocks.
fn shares_messages(kind: Kind, algorithm: Algorithm) -> bool {
    match kind {
        Kind::ReduceScatter | Kind::ReduceScatterV => {
            !matches!(algorithm, Algorithm::Ring | Algorithm::ZeroCopy)
        }
        Kind::AllToAll | Kind::Scatter { .. } => algorithm != Algorithm::ZeroCopy,
        _ => false,
    }
}

/// Elements of a message of at most `elements`: whole grains where there is room for one, so that pieces of
/// a chunk are never longer than the chunk.
fn whole_grains(elements: usize, grain: usize) -> usize {
    if elements < grain { elements.max(1) } else { elements / grain * grain }
}

#[cfg(test)]
mod tests;
