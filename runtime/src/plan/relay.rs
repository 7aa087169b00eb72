//! Relay all-reduce: a piece of shared memory goes round the ranks, and each adds its input to it.
//!
//! ```text
//! iteration i, step s of n:  s = 0       copySend            own part of piece r of block i
//!                            s < n - 1   recvReduceSend      piece r - s
//!                            s = n - 1   recvReduceCopySend  piece r + 1, which is final now
//!            between them:               recv                a finished piece of block i - 1, in turn
//!                            at the end  finish              block i - 1 is not needed any more
//! ```
//!
//! Bytes per rank: S read and S added to shared memory, S (n-1)/n copied out of it. The sums of all ranks take the
//! memory of one input, and stay in the cache; two-shot and ring keep every rank's input there. The price is n
//! hand-overs for a block, of which n are under way at a time. Piece q is summed in the order x[q], x[q+1], .., x[q-1]:
//! the same on every run, and all ranks copy the one result.

use super::primitive::{Prim, Recv, Send, Turn};
use super::slice::Chunks;

/// `blocks` are cut into a piece for each rank.
pub(super) fn all_reduce(blocks: Chunks, index: u64, rank: u32, nranks: u32, grain: usize) -> Option<Prim> {
    let count = blocks.count();
    let per_iteration = 2 * u64::from(nranks);
    let (iteration, phase) = (index / per_iteration, (index % per_iteration) as u32);
    if count == 0 || iteration > count {
        return None;
    }
    let span = |block: u64, piece: u32| blocks.get(block).piece(piece as usize, nranks as usize, grain);
    let (step, is_ours) = (phase / 2, phase % 2 == 0);
    Some(if is_ours && iteration < count {
        let (block, piece, turn) = (iteration, (rank + nranks - step) % nranks, step);
        let (span, to) = (span(block, piece), Send::Relay(Turn { block, piece, turn }));
        let from = |turn| Recv::Relay(Turn { block, piece, turn });
        match turn {
            0 => Prim::send(to, span),
            turn if turn < nranks - 1 => Prim::recv_reduce_send(from(turn - 1), span, to),
            turn => Prim::recv_reduce_copy_send(from(turn - 1), span, to),
        }
    } else if !is_ours && iteration > 0 {
        let block = iteration - 1;
        if step < nranks - 1 {
            // The piece after the one that this rank has finished itself, and so on.
            let piece = (rank + 2 + step) % nranks;
            let from = Recv::Relay(Turn { block, piece, turn: nranks - 1 });
            Prim::recv(from, span(block, piece))
        } else {
            Prim { send: Send::Finish, ..Prim::NOTHING }
        }
    } else {
        Prim::NOTHING
    })
}
