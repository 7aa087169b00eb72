//! Flat all-reduce: every rank sends its input to all others, every rank reduces all inputs.
//!
//! ```text
//! per chunk:  send c                    one copy into this rank's fan ring
//!             recvReduceCopy c          reads n - 1 slots, in rank order
//! ```
//!
//! Bytes per rank: S written, (n - 1) S read. One hand-over per chunk: the fastest for small messages. All
//! ranks reduce in rank order with the same kernel, so they get the same bits.

use super::primitive::{Prim, Recv, Send};
use super::slice::{Chunks, Span};

pub(super) fn all_reduce(chunks: Chunks, index: u64) -> Option<Prim> {
    let (chunk, phase) = (index / 2, index % 2);
    if chunk >= chunks.count() {
        return None;
    }
    let span = chunks.get(chunk);
    Some(match phase {
        0 => Prim::send(Send::Fan, span),
        _ => Prim::recv_reduce_copy(Recv::All, span),
    })
}

/// A flat operation on empty messages: whoever has received all of them knows that everybody has come.
pub(super) fn barrier(index: u64) -> Option<Prim> {
    let empty = Span::default();
    match index {
        0 => Some(Prim::send(Send::Fan, empty)),
        1 => Some(Prim::recv(Recv::All, empty)),
        _ => None,
    }
}
