//! The collectives of groups: each adds what the call of the same name on a communicator does at once.

use super::Group;
use crate::comm::{Communicator, Ready};
use crate::error::Error;
use crate::reduce::{DType, Element, ReduceOp};

impl Group<'_> {
    /// Adds a barrier, as [`Communicator::barrier`].
    ///
    /// # Errors
    /// None today.
    pub fn barrier(&mut self, comm: &mut Communicator) -> Result<&mut Self, Error> {
        // SAFETY: the call has no elements.
        unsafe { self.collective(comm, Ok(Ready::barrier())) }
    }
}

/// A method for each collective: its name and arguments are those of [`Communicator`].
macro_rules! of_slices {
    ($($name:ident($($arg:ident: $type:ty),*);)*) => {
        impl<'a> Group<'a> { $(
            #[doc = concat!("Adds what [`Communicator::", stringify!($name), "`] does.")]
            ///
            /// # Errors
            /// [`Error::Argument`] as there; the group fails then.
            pub fn $name<T: Element>(
                &mut self,
                comm: &mut Communicator,
                $($arg: $type),*
            ) -> Result<&mut Self, Error> {
                let ready = Ready::$name(comm, $($arg),*);
                // SAFETY: the slices that the buffers are parts of are borrowed until the group is gone.
                unsafe { self.collective(comm, ready) }
            }
        )* }
    };
}
of_slices! {
    all_reduce(send: &'a [T], recv: &'a mut [T], op: ReduceOp);
    all_reduce_in_place(buffer: &'a mut [T], op: ReduceOp);
    broadcast(buffer: &'a mut [T], root: usize);
    broadcast_from(send: &'a [T], recv: &'a mut [T], root: usize);
    reduce(send: &'a [T], recv: &'a mut [T], op: ReduceOp, root: usize);
    reduce_in_place(buffer: &'a mut [T], op: ReduceOp, root: usize);
    all_gather(send: &'a [T], recv: &'a mut [T]);
    all_gather_in_place(buffer: &'a mut [T]);
    reduce_scatter(send: &'a [T], recv: &'a mut [T], op: ReduceOp);
    reduce_scatter_in_place(buffer: &'a mut [T], op: ReduceOp);
    all_to_all(send: &'a [T], recv: &'a mut [T]);
    all_to_all_in_place(buffer: &'a mut [T]);
    gather(send: &'a [T], recv: &'a mut [T], root: usize);
    scatter(send: &'a [T], recv: &'a mut [T], root: usize);
    all_gather_v(send: &'a [T], recv: &'a mut [T], counts: &[usize]);
    reduce_scatter_v(send: &'a [T], recv: &'a mut [T], counts: &[usize], op: ReduceOp);
}

/// The same for buffers that are known by their addresses.
macro_rules! of_pointers {
    ($($name:ident($($arg:ident: $type:ty),*);)*) => {
        impl Group<'_> { $(
            #[doc = concat!("Adds what [`Communicator::", stringify!($name), "`] does.")]
            ///
            /// # Errors
            /// [`Error::Argument`] as there; the group fails then.
            ///
            /// # Safety
            #[doc = concat!("- What [`Communicator::", stringify!($name), "`] requires of the buffers holds, for any")]
            ///   thread, from here until the group has run or is dropped.
            /// - Until then nobody else writes to `send` or uses `recv`; no two operations of the group share memory
            ///   that one of them writes.
            #[allow(clippy::too_many_arguments, reason = "NCCL's arguments, and the communicator")]
            pub unsafe fn $name(
                &mut self,
                comm: &mut Communicator,
                send: *const u8,
                recv: *mut u8,
                $($arg: $type),*
            ) -> Result<&mut Self, Error> {
                let ready = Ready::$name(comm, send, recv, $($arg),*);
                // SAFETY: the caller's contract.
                unsafe { self.collective(comm, ready) }
            }
        )* }
    };
}
of_pointers! {
    all_reduce_raw(count: usize, dtype: DType, op: ReduceOp);
    broadcast_raw(count: usize, dtype: DType, root: usize);
    reduce_raw(count: usize, dtype: DType, op: ReduceOp, root: usize);
    all_gather_raw(count: usize, dtype: DType);
    reduce_scatter_raw(count: usize, dtype: DType, op: ReduceOp);
    all_to_all_raw(count: usize, dtype: DType);
    gather_raw(count: usize, dtype: DType, root: usize);
    scatter_raw(count: usize, dtype: DType, root: usize);
    all_gather_v_raw(counts: &[usize], dtype: DType);
    reduce_scatter_v_raw(counts: &[usize], dtype: DType, op: ReduceOp);
}
