//! Ring all-reduce, as NCCL 2.30 src/device/all_reduce.h, runRing: each chunk travels around the ring twice.
//!
//! ```text
//! per stride of n chunks, on rank r:   1  send                chunk r - 1
//!                                  n - 2  recvReduceSend      chunk r - j, j = 2 .. n-1
//!                                      1  recvReduceCopySend  chunk r          (final here)
//!                                  n - 2  recvCopySend        chunk r - j, j = 1 .. n-2
//!                                      1  recv                chunk r + 1
//! ```
//!
//! Bytes per rank: 2 S (n-1)/n sent. Chunk c is summed as ((x[c+1] + x[c+2]) + ...) + x[c], indices mod n.
//! The last stride shrinks its chunks to what is left, rounded up to the grain; chunks may be empty, and are
//! sent all the same, because the ranks count messages and not bytes.

use super::primitive::{Prim, Recv, Send};
use super::slice::Span;

pub(super) fn prim(
    span: Span,
    chunk: usize,
    index: u64,
    rank: u32,
    nranks: u32,
    grain: usize,
) -> Option<Prim> {
    let (rank, n) = (rank as usize, nranks as usize);
    let per_stride = 2 * n - 1;
    let (stride, phase) = ((index / per_stride as u64) as usize, (index % per_stride as u64) as usize);
    let from = stride * n * chunk;
    if from >= span.len {
        return None;
    }
    let whole = Span::new(span.at + from, (n * chunk).min(span.len - from));
    let piece = |index: usize| whole.piece(index % n, n, grain.min(chunk));
    Some(match phase {
        0 => Prim::send(Send::Next, piece(rank + n - 1)),
        p if p < n - 1 => Prim::recv_reduce_send(Recv::Prev, piece(rank + n - 1 - p), Send::Next),
        p if p == n - 1 => Prim::recv_reduce_copy_send(Recv::Prev, piece(rank), Send::Next),
        p if p < 2 * n - 2 => Prim::recv_copy_send(Recv::Prev, piece(rank + 2 * n - 1 - p), Send::Next),
        _ => Prim::recv(Recv::Prev, piece(rank + 1)),
    })
}
