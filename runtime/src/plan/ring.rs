//! NCCL's rings, as NCCL 2.30 src/device/*.h, runRing: a message goes from each rank to the next.
//!
//! ```text
//! all-reduce, per stride of n chunks, on rank r:
//!                                      1  send                chunk r - 1
//!                                  n - 2  recvReduceSend      chunk r - j, j = 2 .. n-1
//!                                      1  recvReduceCopySend  chunk r          (final here)
//!                                  n - 2  recvCopySend        chunk r - j, j = 1 .. n-2
//!                                      1  recv                chunk r + 1
//! reduce-scatter, per chunk:           1  send                block r - 1
//!                                  n - 2  recvReduceSend      block r - j, j = 2 .. n-1
//!                                      1  recvReduceCopy      block r          (final)
//! all-gather, per chunk:               1  copySend            block r
//!                                  n - 2  recvCopySend        block r - j, j = 1 .. n-2
//!                                      1  recv                block r + 1
//! reduce, per chunk:      root + 1: send; others: recvReduceSend; root: recvReduceCopy
//! broadcast, per chunk:   root: copySend; others: recvCopySend; root - 1: recv
//! ```
//!
//! Bytes sent per rank: all-reduce 2 S (n-1)/n of a buffer S; reduce-scatter and all-gather (n-1) S of a block S;
//! reduce and broadcast S. Chunk or block c is summed as ((x[c+1] + x[c+2]) + ...) + x[c], indices mod n, that of a
//! reduce likewise with the root for c. The last stride of an all-reduce shrinks its chunks to what is left, rounded
//! up to the grain. Chunks may be empty, and are sent all the same, because the ranks count messages and not bytes.

use super::blocks::Cut;
use super::primitive::{Prim, Recv, Send};
use super::slice::{Chunks, Span};

/// A rank's neighbours.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seat {
    pub(super) rank: u32,
    pub(super) nranks: u32,
}

impl Seat {
    fn next(self) -> Send {
        Send::Pair((self.rank + 1) % self.nranks)
    }

    fn prev(self) -> Recv {
        Recv::Pair((self.rank + self.nranks - 1) % self.nranks)
    }
}

pub(super) fn all_reduce(span: Span, chunk: usize, index: u64, seat: Seat, grain: usize) -> Option<Prim> {
    let (rank, n) = (seat.rank as usize, seat.nranks as usize);
    let (to, from) = (seat.next(), seat.prev());
    let per_stride = 2 * n - 1;
    let (stride, phase) = ((index / per_stride as u64) as usize, (index % per_stride as u64) as usize);
    let at = stride.saturating_mul(n * chunk);
    if at >= span.len {
        return None;
    }
    let whole = Span::new(span.at + at, (n * chunk).min(span.len - at));
    let piece = |index: usize| whole.piece(index % n, n, grain.min(chunk));
    Some(match phase {
        0 => Prim::send(to, piece(rank + n - 1)),
        p if p < n - 1 => Prim::recv_reduce_send(from, piece(rank + n - 1 - p), to),
        p if p == n - 1 => Prim::recv_reduce_copy_send(from, piece(rank), to),
        p if p < 2 * n - 2 => Prim::recv_copy_send(from, piece(rank + 2 * n - 1 - p), to),
        _ => Prim::recv(from, piece(rank + 1)),
    })
}

pub(super) fn reduce_scatter(cut: Cut<'_>, index: u64) -> Option<Prim> {
    let (seat, n) = (Seat { rank: cut.rank, nranks: cut.nranks }, cut.nranks);
    let (chunk, phase) = (index / u64::from(n), (index % u64::from(n)) as u32);
    if chunk >= cut.chunks.count() {
        return None;
    }
    let block = cut.chunk(chunk, cut.behind(phase + 1));
    Some(match phase {
        0 => Prim::send(seat.next(), block),
        p if p < n - 1 => Prim::recv_reduce_send(seat.prev(), block, seat.next()),
        _ => Prim::recv_reduce_copy(seat.prev(), block).stored_at(cut.alone(block)),
    })
}

pub(super) fn all_gather(cut: Cut<'_>, index: u64) -> Option<Prim> {
    let (seat, n) = (Seat { rank: cut.rank, nranks: cut.nranks }, cut.nranks);
    let (chunk, phase) = (index / u64::from(n), (index % u64::from(n)) as u32);
    if chunk >= cut.chunks.count() {
        return None;
    }
    let block = cut.chunk(chunk, cut.behind(phase));
    Some(match phase {
        0 => Prim::copy_send(seat.next(), cut.alone(block)).stored_at(block),
        p if p < n - 1 => Prim::recv_copy_send(seat.prev(), block, seat.next()),
        _ => Prim::recv(seat.prev(), block),
    })
}

pub(super) fn reduce(chunks: Chunks, index: u64, seat: Seat, root: u32) -> Option<Prim> {
    if index >= chunks.count() {
        return None;
    }
    let span = chunks.get(index);
    Some(if seat.rank == root {
        Prim::recv_reduce_copy(seat.prev(), span)
    } else if seat.rank == (root + 1) % seat.nranks {
        Prim::send(seat.next(), span)
    } else {
        Prim::recv_reduce_send(seat.prev(), span, seat.next())
    })
}

pub(super) fn broadcast(chunks: Chunks, index: u64, seat: Seat, root: u32) -> Option<Prim> {
    if index >= chunks.count() {
        return None;
    }
    let span = chunks.get(index);
    Some(if seat.rank == root {
        Prim::copy_send(seat.next(), span)
    } else if (seat.rank + 1) % seat.nranks == root {
        Prim::recv(seat.prev(), span)
    } else {
        Prim::recv_copy_send(seat.prev(), span, seat.next())
    })
}
