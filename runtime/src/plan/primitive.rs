//! The verbs that all collectives are made of, with NCCL's names.
//!
//! A primitive waits for what it receives and for credit where it sends, combines received data with the
//! rank's own, and stores the result in the output, in a slot for the next rank, or in both. One routine in
//! the executor runs all of them; the constructors here name the combinations in use.
//!
//! Spans of own data count elements of the input, those of `dst` elements of the output: the same numbers for a
//! buffer that every rank has alike, different ones where one of the buffers has a block of every rank.

use super::slice::{Span, Stretch};

/// Which message a primitive waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recv {
    None,
    /// From one rank, on the pair ring from there.
    Pair(u32),
    /// From two ranks, on the pair rings from there.
    Pairs([u32; 2]),
    /// From one rank, on its fan ring.
    From(u32),
    /// From every other rank, on their fan rings.
    All,
    /// From every other rank, on the pair rings from there.
    AllPairs,
    /// From the rank that has this turn on a piece of the relay.
    Relay(Turn),
    /// Nothing: what one rank has is read where that rank has it, `Prim::part` elements into its input.
    Peer(u32),
    /// The same of its output.
    PeerOutput(u32),
    /// Nothing: what every rank has, this one included, is read there.
    Peers,
}

/// Where a primitive sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Send {
    None,
    /// To one rank, on the pair ring to it.
    Pair(u32),
    /// To two ranks, on the pair rings to them.
    Pairs([u32; 2]),
    /// To every other rank, on this rank's fan ring.
    Fan,
    /// To the rank with the next turn on a piece of the relay, or after the last one to all.
    Relay(Turn),
    /// Nothing but the news that this rank needs the relay's oldest block no more.
    Finish,
}

/// A turn on a piece of a relay. Piece `q` begins with rank `q`, and goes to the next rank with each turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    /// Counted from the first of the operation.
    pub(crate) block: u64,
    pub(crate) piece: u32,
    pub(crate) turn: u32,
}

/// The part of the caller's input that takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Own {
    /// A span, but for `hole`: a part of it that no receiver reads and that is left out of the slot.
    Span { span: Span, hole: Span },
    /// A stretch of the blocks of several ranks, one after the other. The rank's own block is left out of the slot,
    /// but keeps its place there, so that a receiver finds its part at one place in every sender's message.
    Blocks(Stretch),
}

/// One primitive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Prim {
    pub(crate) recv: Recv,
    /// Elements of each message received.
    pub(crate) message: usize,
    /// First element of the received message that takes part.
    pub(crate) part: usize,
    pub(crate) own: Option<Own>,
    /// Where the result is stored in the output.
    pub(crate) dst: Option<Span>,
    pub(crate) send: Send,
    /// Elements of the result.
    pub(crate) len: usize,
    /// Whether this is the last reduction of these elements, after which they are final.
    pub(crate) last: bool,
}

impl Prim {
    /// Waits for nothing and does nothing: the place of a primitive that some rank or round does not have.
    pub(crate) const NOTHING: Self = Self {
        recv: Recv::None,
        message: 0,
        part: 0,
        own: None,
        dst: None,
        send: Send::None,
        len: 0,
        last: false,
    };

    fn input(span: Span) -> Option<Own> {
        Some(Own::Span { span, hole: Span::default() })
    }

    /// Sends own input.
    pub(crate) fn send(send: Send, span: Span) -> Self {
        Self { own: Self::input(span), send, len: span.len, ..Self::NOTHING }
    }

    /// Sends own input except `hole`, which nobody reads.
    pub(crate) fn send_around(send: Send, span: Span, hole: Span) -> Self {
        Self { own: Some(Own::Span { span, hole }), send, len: span.len, ..Self::NOTHING }
    }

    /// Sends a stretch of the blocks of several ranks, `len` elements in all, to all of them.
    pub(crate) fn send_blocks(stretch: Stretch, len: usize) -> Self {
        Self { own: Some(Own::Blocks(stretch)), send: Send::Fan, len, ..Self::NOTHING }
    }

    /// Copies own input to the output.
    pub(crate) fn copy(span: Span, dst: Span) -> Self {
        Self { own: Self::input(span), dst: Some(dst), len: span.len, ..Self::NOTHING }
    }

    /// Copies own input to the output and sends it.
    pub(crate) fn copy_send(send: Send, span: Span) -> Self {
        Self { dst: Some(span), ..Self::send(send, span) }
    }

    /// Stores a message in the output.
    pub(crate) fn recv(recv: Recv, span: Span) -> Self {
        Self { recv, message: span.len, dst: Some(span), len: span.len, ..Self::NOTHING }
    }

    /// Stores a message in the output and passes it on.
    pub(crate) fn recv_copy_send(recv: Recv, span: Span, send: Send) -> Self {
        Self { send, ..Self::recv(recv, span) }
    }

    /// Reduces a message with own input and passes the result on.
    pub(crate) fn recv_reduce_send(recv: Recv, span: Span, send: Send) -> Self {
        Self { recv, message: span.len, own: Self::input(span), send, len: span.len, ..Self::NOTHING }
    }

    /// Reduces messages with own input into the output: the result is final.
    pub(crate) fn recv_reduce_copy(recv: Recv, span: Span) -> Self {
        Self { dst: Some(span), last: true, ..Self::recv_reduce_send(recv, span, Send::None) }
    }

    /// Reduces a message with own input into the output and sends the result, which is final.
    pub(crate) fn recv_reduce_copy_send(recv: Recv, span: Span, send: Send) -> Self {
        Self { send, ..Self::recv_reduce_copy(recv, span) }
    }

    /// Reduces `from` of every rank's input into `to` of the own output.
    pub(crate) fn reduce_peers(from: Span, to: Span) -> Self {
        let (part, len) = (from.at, from.len);
        Self { recv: Recv::Peers, part, dst: Some(to), len, last: true, ..Self::NOTHING }
    }

    /// The same, out of messages of `message` elements from element `part` on.
    pub(crate) fn out_of(self, message: usize, part: usize) -> Self {
        Self { message, part, ..self }
    }

    /// The same, stored at `dst` of the output.
    pub(crate) fn stored_at(self, dst: Span) -> Self {
        Self { dst: Some(dst), ..self }
    }
}
