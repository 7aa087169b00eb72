//! Buffers of other ranks, read where they are.

use super::primitive::Context;

impl Context<'_> {
    /// Element `at` of what `rank` has.
    pub(super) fn peer_input(&self, rank: u32, at: usize) -> *const u8 {
        self.operation.peers[rank as usize].input.wrapping_add(self.bytes(at))
    }

    /// Element `at` of the result that `rank` has.
    pub(super) fn peer_output(&self, rank: u32, at: usize) -> *const u8 {
        self.operation.peers[rank as usize].output.cast_const().wrapping_add(self.bytes(at))
    }

    /// Lists everybody's input from the primitive's first element on, in the order of ranks.
    pub(super) fn list_peers(&mut self) {
        self.scratch.start_list();
        for rank in 0..self.nranks {
            let address = self.peer_input(rank, self.prim.part);
            self.scratch.list(address);
        }
    }
}
