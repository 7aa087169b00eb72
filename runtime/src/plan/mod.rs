//! What an operation does, as a list of primitives: pure logic, no memory and no waiting.
//!
//! A [`Call`] becomes a [`Plan`]; the plan yields, for each channel, primitive number 0, 1, 2, ... as a
//! function of the index alone. The executor therefore needs one number per channel to resume, every rank
//! derives matching primitives from the same arguments, and tests can look at a plan without running it.

mod broadcast;
mod flat;
mod primitive;
mod ring;
mod select;
mod slice;
mod two_shot;

pub(crate) use primitive::{Own, Prim, Recv, Send};
pub use select::{Algorithm, Choice};
pub(crate) use select::{Limits, select};
pub(crate) use slice::Span;

use crate::reduce::{DType, ReduceOp};
use slice::{Channels, Chunks};

/// The collectives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Every rank gets the reduction of all inputs.
    AllReduce,
    /// Every rank gets the root's input.
    Broadcast {
        /// The rank whose input is sent.
        root: u32,
    },
    /// No data: nobody leaves before everybody has come.
    Barrier,
}

impl Kind {
    /// Name in reports and messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::AllReduce => "all_reduce",
            Self::Broadcast { .. } => "broadcast",
            Self::Barrier => "barrier",
        }
    }
}

/// The arguments of one operation, equal on every rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) kind: Kind,
    /// Elements of the buffer.
    pub(crate) count: usize,
    pub(crate) dtype: DType,
    pub(crate) op: ReduceOp,
}

impl Call {
    pub(crate) const BARRIER: Self =
        Self { kind: Kind::Barrier, count: 0, dtype: DType::F32, op: ReduceOp::Sum };

    pub(crate) fn bytes(&self) -> usize {
        self.count * self.dtype.size_bytes()
    }
}

/// One operation's primitives on one rank.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) call: Call,
    pub(crate) choice: Choice,
    rank: u32,
    nranks: u32,
    channels: Channels,
    /// Elements of the largest message.
    chunk: usize,
}

impl Plan {
    /// The plan of `call` on `rank` of `nranks` (at least 2) with an algorithm, protocol and sizes.
    pub(crate) fn new(call: Call, choice: Choice, rank: u32, nranks: u32) -> Self {
        let size = call.dtype.size_bytes();
        // A line of 64 bytes is the grain: no two ranks or channels share one.
        let grain = 64 / size;
        Self {
            call,
            choice,
            rank,
            nranks,
            channels: Channels::new(call.count, choice.channels as usize, grain),
            chunk: whole_grains(choice.chunk_bytes / size, grain),
        }
    }

    /// How many channels carry something; at least one.
    pub(crate) fn channels(&self) -> usize {
        self.channels.used()
    }

    /// Primitive number `index` on `channel`, `None` after the last one.
    #[inline]
    pub(crate) fn prim(&self, channel: usize, index: u64) -> Option<Prim> {
        let span = self.channels.span(channel);
        let chunks = Chunks::new(span, self.chunk);
        match (self.call.kind, self.choice.algorithm) {
            (Kind::Barrier, _) => flat::barrier(index),
            (Kind::Broadcast { root }, _) => broadcast::prim(chunks, index, self.rank, root),
            (Kind::AllReduce, Algorithm::Flat) => flat::all_reduce(chunks, index),
            (Kind::AllReduce, Algorithm::TwoShot) => {
                two_shot::prim(chunks, index, self.rank, self.nranks, 64 / self.call.dtype.size_bytes())
            }
            (Kind::AllReduce, Algorithm::Ring) => {
                ring::prim(span, self.chunk, index, self.rank, self.nranks, 64 / self.call.dtype.size_bytes())
            }
        }
    }
}

/// Elements of a message of at most `elements`: whole grains where there is room for one, so that pieces of
/// a chunk are never longer than the chunk.
fn whole_grains(elements: usize, grain: usize) -> usize {
    if elements < grain { elements.max(1) } else { elements / grain * grain }
}

#[cfg(test)]
mod tests;
