//! NCCL's rings, as NCCL 2.30 src/device/*.h, runRing: a message goes from each rank to the next.
//!
//! ```text
//! all-reduce, per round of n chunks, on rank r (its position in the ring, where the order is another one):
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
//!
//! A chunk of our own cut is one message. NCCL's own cut (`super::nccl`) has chunks of up to megabytes: there a stride
//! takes several rounds, each with the next message's worth of every chunk. An element's order of addition is that of
//! its chunk, whatever round it belongs to.

use super::blocks::Cut;
use super::primitive::{Prim, Recv, Send};
use super::slice::{Chunks, Strides};

/// A rank's place in a ring.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seat<'a> {
    pub(super) rank: u32,
    pub(super) nranks: u32,
    /// The ranks in the order of the ring; 0, 1, 2, ... if `None`.
    pub(super) order: Option<&'a [u32]>,
    /// Which of them this rank is.
    pub(super) position: u32,
}

impl<'a> Seat<'a> {
    /// The place of `rank`, which must be in `order`.
    pub(super) fn new(rank: u32, nranks: u32, order: Option<&'a [u32]>) -> Self {
        let found = order.and_then(|order| order.iter().position(|of| *of == rank));
        Self { rank, nranks, order, position: found.map_or(rank, |position| position as u32) }
    }

    /// The rank `distance`, at most the number of ranks, behind this one.
    pub(super) fn behind(self, distance: u32) -> u32 {
        let position = (self.position + self.nranks - distance) % self.nranks;
        self.order.map_or(position, |order| order[position as usize])
    }

    pub(super) fn next_rank(self) -> u32 {
        self.behind(self.nranks - 1)
    }

    pub(super) fn prev_rank(self) -> u32 {
        self.behind(1)
    }

    fn next(self) -> Send {
        Send::Pair(self.next_rank())
    }

    fn prev(self) -> Recv {
        Recv::Pair(self.prev_rank())
    }
}

pub(super) fn all_reduce(strides: &Strides, index: u64, seat: Seat<'_>) -> Option<Prim> {
    let (rank, n) = (seat.position as usize, seat.nranks as usize);
    let (to, from) = (seat.next(), seat.prev());
    let per_round = 2 * n - 1;
    let round = strides.round(index / per_round as u64)?;
    let phase = (index % per_round as u64) as usize;
    let piece = |chunk: usize| round.piece(chunk % n);
    Some(match phase {
        0 => Prim::send(to, piece(rank + n - 1)),
        p if p < n - 1 => Prim::recv_reduce_send(from, piece(rank + n - 1 - p), to),
        p if p == n - 1 => Prim::recv_reduce_copy_send(from, piece(rank), to),
        p if p < 2 * n - 2 => Prim::recv_copy_send(from, piece(rank + 2 * n - 1 - p), to),
        _ => Prim::recv(from, piece(rank + 1)),
    })
}

pub(super) fn reduce_scatter(cut: Cut<'_>, index: u64, seat: Seat<'_>) -> Option<Prim> {
    let n = seat.nranks;
    let (chunk, phase) = (index / u64::from(n), (index % u64::from(n)) as u32);
    if chunk >= cut.chunks.count() {
        return None;
    }
    let block = cut.chunk(chunk, seat.behind(phase + 1));
    Some(match phase {
        0 => Prim::send(seat.next(), block),
        p if p < n - 1 => Prim::recv_reduce_send(seat.prev(), block, seat.next()),
        _ => Prim::recv_reduce_copy(seat.prev(), block).stored_at(cut.alone(block)),
    })
}

pub(super) fn all_gather(cut: Cut<'_>, index: u64, seat: Seat<'_>) -> Option<Prim> {
    let n = seat.nranks;
    let (chunk, phase) = (index / u64::from(n), (index % u64::from(n)) as u32);
    if chunk >= cut.chunks.count() {
        return None;
    }
    let block = cut.chunk(chunk, seat.behind(phase));
    Some(match phase {
        0 => Prim::copy_send(seat.next(), cut.alone(block)).stored_at(block),
        p if p < n - 1 => Prim::recv_copy_send(seat.prev(), block, seat.next()),
        _ => Prim::recv(seat.prev(), block),
    })
}

pub(super) fn reduce(chunks: Chunks, index: u64, seat: Seat<'_>, root: u32) -> Option<Prim> {
    if index >= chunks.count() {
        return None;
    }
    let span = chunks.get(index);
    Some(if seat.rank == root {
        Prim::recv_reduce_copy(seat.prev(), span)
    } else if seat.prev_rank() == root {
        Prim::send(seat.next(), span)
    } else {
        Prim::recv_reduce_send(seat.prev(), span, seat.next())
    })
}

pub(super) fn broadcast(chunks: Chunks, index: u64, seat: Seat<'_>, root: u32) -> Option<Prim> {
    if index >= chunks.count() {
        return None;
    }
    let span = chunks.get(index);
    Some(if seat.rank == root {
        Prim::copy_send(seat.next(), span)
    } else if seat.next_rank() == root {
        Prim::recv(seat.prev(), span)
    } else {
        Prim::recv_copy_send(seat.prev(), span, seat.next())
    })
}
