//! Buffers of other ranks, read and written where they are.

use super::primitive::Context;
use crate::plan::Span;
use crate::reduce::{Dst, Store};

impl Context<'_> {
    /// Element `at` of what `rank` has.
    pub(super) fn peer_input(&self, rank: u32, at: usize) -> *const u8 {
        self.operation.peers[rank as usize].input.wrapping_add(self.bytes(at))
    }

    /// Lists everybody's input from the primitive's first element on, in the order of ranks.
    pub(super) fn list_peers(&mut self) {
        self.scratch.start_list();
        for rank in 0..self.nranks {
            let address = self.peer_input(rank, self.prim.part);
            self.scratch.list(address);
        }
    }

    /// Reduces what every rank has into `span` of every rank's output, in one pass.
    ///
    /// # Safety
    /// - `Operation::peers` are as [`super::Operation`] says; nobody else writes this span of an output, or of an input
    ///   that is one.
    pub(super) unsafe fn reduce_for_all(&mut self, span: Span, store: Store) {
        self.list_peers();
        let offset = self.bytes(span.at);
        let outputs = self.operation.peers.iter().map(|peer| peer.output.wrapping_add(offset));
        self.scratch.list_outputs(outputs.map(|ptr| Dst { ptr, store }));
        let (sources, outputs) = self.scratch.lists();
        // SAFETY: the caller's contract; the span lies inside of all buffers, whose lengths were compared with the
        // call's (`comm/notices.rs`).
        unsafe { self.operation.reducer.fold(sources, None, outputs, span.len, self.prim.last) };
    }
}
