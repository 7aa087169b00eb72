//! The verbs that all collectives are made of, with NCCL's names.
//!
//! A primitive waits for what it receives and for credit where it sends, combines received data with the
//! rank's own, and stores the result in the output, in a slot for the next rank, or in both. One routine in
//! the executor runs all of them; the constructors here name the combinations in use.

use super::slice::Span;

/// Which message a primitive waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recv {
    None,
    /// From the previous rank, on the pair ring.
    Prev,
    /// From one rank, on its fan ring.
    From(u32),
    /// From every other rank, on their fan rings.
    All,
}

/// Where a primitive sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Send {
    None,
    /// To the next rank, on the pair ring.
    Next,
    /// To every other rank, on this rank's fan ring.
    Fan,
}

/// A part of the caller's input that takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Own {
    pub(crate) span: Span,
    /// A part of `span` that no receiver reads and that is left out of the slot.
    pub(crate) hole: Span,
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
    const NOTHING: Self = Self {
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
        Some(Own { span, hole: Span::default() })
    }

    /// Sends own input.
    pub(crate) fn send(send: Send, span: Span) -> Self {
        Self { own: Self::input(span), send, len: span.len, ..Self::NOTHING }
    }

    /// Sends own input except `hole`, which nobody reads.
    pub(crate) fn send_around(send: Send, span: Span, hole: Span) -> Self {
        let own = Some(Own { span, hole });
        Self { own, send, len: span.len, ..Self::NOTHING }
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
        Self {
            recv,
            message: span.len,
            own: Self::input(span),
            dst: Some(span),
            len: span.len,
            last: true,
            ..Self::NOTHING
        }
    }

    /// Reduces a message with own input into the output and sends the result, which is final.
    pub(crate) fn recv_reduce_copy_send(recv: Recv, span: Span, send: Send) -> Self {
        Self { send, ..Self::recv_reduce_copy(recv, span) }
    }

    /// The same, taking part `piece` out of messages that cover `whole`.
    pub(crate) fn recv_reduce_copy_send_part(recv: Recv, whole: Span, piece: Span, send: Send) -> Self {
        Self {
            message: whole.len,
            part: piece.at - whole.at,
            ..Self::recv_reduce_copy_send(recv, piece, send)
        }
    }
}
