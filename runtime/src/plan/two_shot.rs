//! Two-shot all-reduce: each rank reduces its own piece of every chunk and sends the result to all others.
//!
//! ```text
//! iteration i:  send c[i]                    all pieces but the own one, into this rank's fan ring
//!               recvReduceCopySend c[i-1]    own piece of n - 1 slots + own input -> output and fan ring
//!               recv r[i-2] from each rank   their finished pieces -> output
//! ```
//!
//! Bytes per rank: S (n-1)/n written and read in the first shot, S/n written and S (n-1)/n read in the
//! second, whatever n is. The three stages work on successive chunks, so a rank that waits for one chunk has
//! another on its way; messages of each ring are produced and consumed in the same order c0 c1 r0 c2 r1 ...
//! Every element is reduced once, by one rank, in rank order, and copied to the others.

use super::primitive::{Prim, Recv, Send};
use super::slice::Chunks;

pub(super) fn prim(chunks: Chunks, index: u64, rank: u32, nranks: u32, grain: usize) -> Option<Prim> {
    let count = chunks.count();
    let per_iteration = u64::from(nranks) + 1;
    let (iteration, phase) = (index / per_iteration, index % per_iteration);
    if count == 0 || iteration >= count + 2 {
        return None;
    }
    let piece = |chunk: u64, of: u32| {
        let whole = chunks.get(chunk);
        (whole, whole.piece(of as usize, nranks as usize, grain))
    };
    Some(match phase {
        0 if iteration < count => {
            let (whole, own) = piece(iteration, rank);
            Prim::send_around(Send::Fan, whole, own)
        }
        1 if (1..=count).contains(&iteration) => {
            let (whole, own) = piece(iteration - 1, rank);
            Prim::recv_reduce_copy_send(Recv::All, own, Send::Fan).out_of(whole.len, own.at - whole.at)
        }
        2.. if iteration >= 2 => {
            // Each rank starts with its successor, so that not all read from the same one at once.
            let from = (rank + 1 + (phase as u32 - 2)) % nranks;
            let (_, theirs) = piece(iteration - 2, from);
            Prim::recv(Recv::From(from), theirs)
        }
        _ => Prim::NOTHING,
    })
}
