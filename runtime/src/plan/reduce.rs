//! Reduce: the root gets the reduction of all inputs.
//!
//! ```text
//! flat:      others  send c[i]                      over the pair ring to the root
//!            root    recvReduceCopy c[i]            n - 1 slots + own input, in rank order -> output
//!
//! two-shot, iteration i, each rank:
//!                    send c[i]                      all pieces but the own one, into this rank's fan ring
//!                    recvReduceSend c[i-1]          own piece, in rank order -> pair ring to the root
//!            root    recvReduceCopy c[i-1]          own piece -> output
//!                    recv r[i-2] from each rank     their finished pieces -> output
//! ```
//!
//! Bytes, S the buffer: flat writes S on each rank, and the root reads n S; two-shot reads S on each rank and spreads
//! the reduction over all of them for a second hand-over and S (n-1)/n more on the root. Both add in the order of
//! ranks, with the same bits.

use super::primitive::{Prim, Recv, Send};
use super::ring::Seat;
use super::slice::Chunks;

pub(super) fn flat(chunks: Chunks, index: u64, rank: u32, root: u32) -> Option<Prim> {
    if index >= chunks.count() {
        return None;
    }
    let span = chunks.get(index);
    Some(if rank == root {
        Prim::recv_reduce_copy(Recv::AllPairs, span)
    } else {
        Prim::send(Send::Pair(root), span)
    })
}

pub(super) fn two_shot(chunks: Chunks, index: u64, seat: Seat<'_>, root: u32, grain: usize) -> Option<Prim> {
    let Seat { rank, nranks, .. } = seat;
    let count = chunks.count();
    let (per_iteration, iterations) =
        if rank == root { (u64::from(nranks) + 1, count + 2) } else { (2, count + 1) };
    let (iteration, phase) = (index / per_iteration, (index % per_iteration) as u32);
    if count == 0 || iteration >= iterations {
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
            let reduce = if rank == root {
                Prim::recv_reduce_copy(Recv::All, own)
            } else {
                Prim { last: true, ..Prim::recv_reduce_send(Recv::All, own, Send::Pair(root)) }
            };
            reduce.out_of(whole.len, own.at - whole.at)
        }
        2.. if iteration >= 2 => {
            let from = (rank + phase - 1) % nranks;
            let (_, theirs) = piece(iteration - 2, from);
            Prim::recv(Recv::Pair(from), theirs)
        }
        _ => Prim::NOTHING,
    })
}
