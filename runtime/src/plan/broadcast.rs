//! Broadcast: the root writes each chunk once, every other rank reads it from there.
//!
//! ```text
//! root:    copySend c[i]       S written to the fan ring (and to the output, when it is another buffer)
//! others:  recv c[i]           S read from the root's slots
//! ```
//!
//! The root runs ahead by as many chunks as there are slots.

use super::primitive::{Prim, Recv, Send};
use super::slice::Chunks;

pub(super) fn prim(chunks: Chunks, index: u64, rank: u32, root: u32) -> Option<Prim> {
    if index >= chunks.count() {
        return None;
    }
    let span = chunks.get(index);
    Some(if rank == root { Prim::copy_send(Send::Fan, span) } else { Prim::recv(Recv::From(root), span) })
}
