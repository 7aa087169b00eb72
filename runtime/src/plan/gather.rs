//! All-gather and gather: blocks travel whole, from the rank that has one to those that want it.
//!
//! ```text
//! all-gather, iteration i:  copySend own c[i]      into this rank's fan ring, and to its place in the output
//!                           recv c[i-1] of each    n - 1 blocks, the successor's first
//!
//! gather:  root             copy own c[i], recv c[i] of each other rank
//!          others           send c[i]              over the pair ring to the root
//! ```
//!
//! Bytes per rank, S a block: all-gather writes S and reads (n - 1) S; gather writes S, and its root reads (n - 1) S.
//! One hand-over per chunk. A rank sends its next chunk before it waits for the others' last ones. Empty chunks are
//! left out on both sides: all ranks know all lengths.

use super::blocks::Cut;
use super::primitive::{Prim, Recv, Send};

pub(super) fn all_gather(cut: Cut<'_>, index: u64) -> Option<Prim> {
    let n = u64::from(cut.nranks);
    let (iteration, phase) = (index / n, (index % n) as u32);
    let count = cut.chunks.count();
    if count == 0 || iteration > count {
        return None;
    }
    Some(match phase {
        0 if iteration < count => {
            let own = cut.chunk(iteration, cut.rank);
            if own.len == 0 {
                Prim::NOTHING
            } else {
                Prim::copy_send(Send::Fan, cut.alone(own)).stored_at(own)
            }
        }
        1.. if iteration > 0 => {
            // Each rank starts with its successor, so that not all read from the same one at once.
            let from = (cut.rank + phase) % cut.nranks;
            let block = cut.chunk(iteration - 1, from);
            if block.len == 0 { Prim::NOTHING } else { Prim::recv(Recv::From(from), block) }
        }
        _ => Prim::NOTHING,
    })
}

pub(super) fn gather(cut: Cut<'_>, index: u64, root: u32) -> Option<Prim> {
    let per_iteration = if cut.rank == root { u64::from(cut.nranks) } else { 1 };
    let (iteration, phase) = (index / per_iteration, (index % per_iteration) as u32);
    if iteration >= cut.chunks.count() {
        return None;
    }
    let from = (cut.rank + phase) % cut.nranks;
    let block = cut.chunk(iteration, from);
    Some(if cut.rank != root {
        Prim::send(Send::Pair(root), cut.alone(block))
    } else if from == root {
        Prim::copy(cut.alone(block), block)
    } else {
        Prim::recv(Recv::Pair(from), block)
    })
}
