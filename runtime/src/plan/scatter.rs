//! Reduce-scatter, all-to-all and scatter: what a rank has for all others goes out in one message, of which each
//! reads its part.
//!
//! ```text
//! reduce-scatter, iteration i:  send c[i] of all blocks but the own one    into this rank's fan ring
//!                               recvReduceCopy c[i-1] of the own block     part r of n - 1 slots + own input -> output
//!
//! all-to-all, iteration i:      send c[i] of all blocks but the own one
//!                               copy c[i] of the own block to the output
//!                               recv c[i-1] from each other rank           part r of its slot -> its block
//!
//! scatter:  root                send c[i] of all blocks, copy c[i] of the own one
//!           others              recv c[i]                                  part r of the root's slot
//! ```
//!
//! Bytes per rank, S a block: (n - 1) S written and read; scatter's root writes (n - 1) S, the others read S. One
//! hand-over per chunk. Scatter goes over the root's fan ring rather than over pair rings: one message and one look at
//! credit for all ranks instead of n - 1, and no rings of its own.
//!
//! A reduction adds in the order of ranks, as the others do, so its bits repeat. An all-to-all may have its input for
//! output: what a message overwrites has been sent one iteration before, by this same rank. (Not where a chunk goes out
//! in several windows: `Plan::works_in_place`.)

use super::blocks::Cut;
use super::primitive::{Prim, Recv};
use super::slice::Span;

pub(super) fn reduce_scatter(cut: Cut<'_>, index: u64) -> Option<Prim> {
    let (iteration, phase) = (index / 2, index % 2);
    let rounds = cut.rounds();
    if rounds == 0 || iteration > rounds {
        return None;
    }
    Some(match phase {
        0 if iteration < rounds => send(cut, iteration),
        1 if iteration > 0 => {
            let stretch = cut.stretch(iteration - 1);
            let share = cut.share(stretch, cut.rank);
            let own = Span::new(cut.call.place(stretch.span, cut.rank).at, share.part.len);
            Prim::recv_reduce_copy(Recv::All, own)
                .out_of(share.message, share.part.at)
                .stored_at(cut.alone(own))
        }
        _ => Prim::NOTHING,
    })
}

pub(super) fn all_to_all(cut: Cut<'_>, index: u64) -> Option<Prim> {
    let per_iteration = u64::from(cut.nranks) + 1;
    let (iteration, phase) = (index / per_iteration, (index % per_iteration) as u32);
    let rounds = cut.rounds();
    if rounds == 0 || iteration > rounds {
        return None;
    }
    Some(match phase {
        0 if iteration < rounds => send(cut, iteration),
        1 if iteration < rounds => copy(cut, iteration, |own| own),
        2.. if iteration > 0 => {
            let from = (cut.rank + phase - 1) % cut.nranks;
            recv(cut, iteration - 1, from, |span| cut.call.place(span, from))
        }
        _ => Prim::NOTHING,
    })
}

pub(super) fn scatter(cut: Cut<'_>, index: u64, root: u32) -> Option<Prim> {
    let per_iteration = if cut.rank == root { 2 } else { 1 };
    let (iteration, phase) = (index / per_iteration, index % per_iteration);
    if iteration >= cut.rounds() {
        return None;
    }
    Some(match phase {
        _ if cut.rank != root => recv(cut, iteration, root, |span| cut.alone(cut.call.place(span, cut.rank))),
        0 => send(cut, iteration),
        _ => copy(cut, iteration, |own| cut.alone(own)),
    })
}

/// Sends what this rank has for all others in this round.
fn send(cut: Cut<'_>, round: u64) -> Prim {
    let stretch = cut.stretch(round);
    Prim::send_blocks(stretch, cut.share(stretch, cut.rank).message)
}

/// Copies what this rank has for itself in this round to the place that `into` gives.
fn copy(cut: Cut<'_>, round: u64, into: impl FnOnce(Span) -> Span) -> Prim {
    let stretch = cut.stretch(round);
    let len = cut.share(stretch, cut.rank).part.len;
    let own = Span::new(cut.call.place(stretch.span, cut.rank).at, len);
    if len == 0 { Prim::NOTHING } else { Prim::copy(own, into(own)) }
}

/// Takes this rank's part of the message of `from`, empty where the message is for others, to the place in the
/// output that `into` finds for a span of blocks.
fn recv(cut: Cut<'_>, round: u64, from: u32, into: impl FnOnce(Span) -> Span) -> Prim {
    let stretch = cut.stretch(round);
    let share = cut.share(stretch, cut.rank);
    let dst = Span::new(into(stretch.span).at, share.part.len);
    Prim::recv(Recv::From(from), dst).out_of(share.message, share.part.at)
}
