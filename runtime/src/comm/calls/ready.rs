//! Collectives that are ready to run: arguments checked, buffers known. Blocking calls, groups and streams all begin
//! here, so that they accept and refuse the same.

use super::super::Communicator;
use crate::error::Error;
use crate::executor::Buffers;
use crate::plan::{Call, Kind};
use crate::reduce::{DType, Element, ReduceOp};

/// A call whose arguments are right, and its buffers.
///
/// Made of slices, the buffers are as [`Buffers`] says for as long as these are borrowed; made of pointers, for as long
/// as who passed them promises.
#[derive(Debug)]
pub(crate) struct Ready {
    pub(crate) call: Call,
    pub(crate) buffers: Buffers,
}

impl Ready {
    fn apart<T>(call: Call, send: &[T], recv: &mut [T]) -> Self {
        Self { call, buffers: Buffers { input: send.as_ptr().cast(), output: recv.as_mut_ptr().cast() } }
    }

    /// Input and output are equal.
    fn in_place<T>(call: Call, buffer: &mut [T]) -> Self {
        let output: *mut u8 = buffer.as_mut_ptr().cast();
        Self { call, buffers: Buffers { input: output, output } }
    }

    pub(crate) fn barrier() -> Self {
        Self::in_place::<u64>(Call::BARRIER, &mut [])
    }

    pub(crate) fn all_reduce<T: Element>(
        comm: &Communicator,
        send: &[T],
        recv: &mut [T],
        op: ReduceOp,
    ) -> Result<Self, Error> {
        comm.same_length(Kind::AllReduce, send.len(), recv.len())?;
        Ok(Self::apart(Call::new(Kind::AllReduce, recv.len(), T::DTYPE, op), send, recv))
    }

    pub(crate) fn all_reduce_in_place<T: Element>(
        _: &Communicator,
        buffer: &mut [T],
        op: ReduceOp,
    ) -> Result<Self, Error> {
        Ok(Self::in_place(Call::new(Kind::AllReduce, buffer.len(), T::DTYPE, op), buffer))
    }

    pub(crate) fn broadcast<T: Element>(
        comm: &Communicator,
        buffer: &mut [T],
        root: usize,
    ) -> Result<Self, Error> {
        let kind = comm.rooted(root, |root| Kind::Broadcast { root })?;
        Ok(Self::in_place(Call::new(kind, buffer.len(), T::DTYPE, ReduceOp::Sum), buffer))
    }

    pub(crate) fn broadcast_from<T: Element>(
        comm: &Communicator,
        send: &[T],
        recv: &mut [T],
        root: usize,
    ) -> Result<Self, Error> {
        let kind = comm.rooted(root, |root| Kind::Broadcast { root })?;
        comm.same_length(kind, send.len(), recv.len())?;
        Ok(Self::apart(Call::new(kind, recv.len(), T::DTYPE, ReduceOp::Sum), send, recv))
    }

    /// `recv` counts on the root alone.
    pub(crate) fn reduce<T: Element>(
        comm: &Communicator,
        send: &[T],
        recv: &mut [T],
        op: ReduceOp,
        root: usize,
    ) -> Result<Self, Error> {
        let kind = comm.rooted(root, |root| Kind::Reduce { root })?;
        if root == comm.rank() {
            comm.same_length(kind, send.len(), recv.len())?;
        }
        Ok(Self::apart(Call::new(kind, send.len(), T::DTYPE, op), send, recv))
    }

    pub(crate) fn reduce_in_place<T: Element>(
        comm: &Communicator,
        buffer: &mut [T],
        op: ReduceOp,
        root: usize,
    ) -> Result<Self, Error> {
        let kind = comm.rooted(root, |root| Kind::Reduce { root })?;
        Ok(Self::in_place(Call::new(kind, buffer.len(), T::DTYPE, op), buffer))
    }

    pub(crate) fn all_gather<T: Element>(
        comm: &Communicator,
        send: &[T],
        recv: &mut [T],
    ) -> Result<Self, Error> {
        comm.block_each(Kind::AllGather, "receive", recv.len(), send.len())?;
        Ok(Self::apart(Call::new(Kind::AllGather, send.len(), T::DTYPE, ReduceOp::Sum), send, recv))
    }

    /// The input is the own block of `buffer`.
    pub(crate) fn all_gather_in_place<T: Element>(
        comm: &Communicator,
        buffer: &mut [T],
    ) -> Result<Self, Error> {
        let count = comm.block_of(Kind::AllGather, buffer.len())?;
        let output = buffer.as_mut_ptr();
        // SAFETY: the slice holds a block of every rank, so the own one begins inside it (at its end if empty).
        let input = unsafe { output.add(comm.rank() * count) };
        let buffers = Buffers { input: input.cast(), output: output.cast() };
        Ok(Self { call: Call::new(Kind::AllGather, count, T::DTYPE, ReduceOp::Sum), buffers })
    }

    pub(crate) fn reduce_scatter<T: Element>(
        comm: &Communicator,
        send: &[T],
        recv: &mut [T],
        op: ReduceOp,
    ) -> Result<Self, Error> {
        comm.block_each(Kind::ReduceScatter, "send", send.len(), recv.len())?;
        Ok(Self::apart(Call::new(Kind::ReduceScatter, recv.len(), T::DTYPE, op), send, recv))
    }

    /// The output is the own block of `buffer`.
    pub(crate) fn reduce_scatter_in_place<T: Element>(
        comm: &Communicator,
        buffer: &mut [T],
        op: ReduceOp,
    ) -> Result<Self, Error> {
        let count = comm.block_of(Kind::ReduceScatter, buffer.len())?;
        let input = buffer.as_mut_ptr();
        // SAFETY: the slice holds a block of every rank, so the own one begins inside it (at its end if empty).
        let output = unsafe { input.add(comm.rank() * count) };
        let buffers = Buffers { input: input.cast(), output: output.cast() };
        Ok(Self { call: Call::new(Kind::ReduceScatter, count, T::DTYPE, op), buffers })
    }

    pub(crate) fn all_to_all<T: Element>(
        comm: &Communicator,
        send: &[T],
        recv: &mut [T],
    ) -> Result<Self, Error> {
        comm.same_length(Kind::AllToAll, send.len(), recv.len())?;
        let count = comm.block_of(Kind::AllToAll, send.len())?;
        Ok(Self::apart(Call::new(Kind::AllToAll, count, T::DTYPE, ReduceOp::Sum), send, recv))
    }

    pub(crate) fn all_to_all_in_place<T: Element>(
        comm: &Communicator,
        buffer: &mut [T],
    ) -> Result<Self, Error> {
        let count = comm.block_of(Kind::AllToAll, buffer.len())?;
        Ok(Self::in_place(Call::new(Kind::AllToAll, count, T::DTYPE, ReduceOp::Sum), buffer))
    }

    /// `recv` counts on the root alone.
    pub(crate) fn gather<T: Element>(
        comm: &Communicator,
        send: &[T],
        recv: &mut [T],
        root: usize,
    ) -> Result<Self, Error> {
        let kind = comm.rooted(root, |root| Kind::Gather { root })?;
        if root == comm.rank() {
            comm.block_each(kind, "receive", recv.len(), send.len())?;
        }
        Ok(Self::apart(Call::new(kind, send.len(), T::DTYPE, ReduceOp::Sum), send, recv))
    }

    /// `send` counts on the root alone.
    pub(crate) fn scatter<T: Element>(
        comm: &Communicator,
        send: &[T],
        recv: &mut [T],
        root: usize,
    ) -> Result<Self, Error> {
        let kind = comm.rooted(root, |root| Kind::Scatter { root })?;
        if root == comm.rank() {
            comm.block_each(kind, "send", send.len(), recv.len())?;
        }
        Ok(Self::apart(Call::new(kind, recv.len(), T::DTYPE, ReduceOp::Sum), send, recv))
    }

    pub(crate) fn all_gather_v<T: Element>(
        comm: &Communicator,
        send: &[T],
        recv: &mut [T],
        counts: &[usize],
    ) -> Result<Self, Error> {
        let kind = Kind::AllGatherV;
        let blocks = comm.counts(kind, counts)?;
        comm.has(kind, "send buffer", send.len(), counts[comm.rank()])?;
        comm.has(kind, "receive buffer", recv.len(), blocks.total())?;
        Ok(Self::apart(Call::uneven(kind, blocks, T::DTYPE, ReduceOp::Sum), send, recv))
    }

    pub(crate) fn reduce_scatter_v<T: Element>(
        comm: &Communicator,
        send: &[T],
        recv: &mut [T],
        counts: &[usize],
        op: ReduceOp,
    ) -> Result<Self, Error> {
        let kind = Kind::ReduceScatterV;
        let blocks = comm.counts(kind, counts)?;
        comm.has(kind, "send buffer", send.len(), blocks.total())?;
        comm.has(kind, "receive buffer", recv.len(), counts[comm.rank()])?;
        Ok(Self::apart(Call::uneven(kind, blocks, T::DTYPE, op), send, recv))
    }
}

/// The same of pointers: `count` elements of `dtype`, of the buffer or of each rank's block.
impl Ready {
    fn raw(
        comm: &Communicator,
        kind: Kind,
        (send, recv): (*const u8, *mut u8),
        count: usize,
        (dtype, op): (DType, ReduceOp),
    ) -> Result<Self, Error> {
        let call = comm.addressable(Call::new(kind, count, dtype, op))?;
        Ok(Self { call, buffers: Buffers { input: send, output: recv } })
    }

    fn raw_v(
        comm: &Communicator,
        kind: Kind,
        (send, recv): (*const u8, *mut u8),
        counts: &[usize],
        (dtype, op): (DType, ReduceOp),
    ) -> Result<Self, Error> {
        let call = comm.addressable(Call::uneven(kind, comm.counts(kind, counts)?, dtype, op))?;
        Ok(Self { call, buffers: Buffers { input: send, output: recv } })
    }
}

/// A constructor of pointers for each kind: `NAME(arguments) => kind, function, arguments of that`.
macro_rules! raw {
    ($(
        $name:ident($comm:ident, $send:ident, $recv:ident $(, $arg:ident: $type:ty)*)
            => $form:ident($kind:expr, $count:ident, $dtype:ident, $op:expr);
    )*) => {
        impl Ready { $(
            pub(crate) fn $name(
                $comm: &Communicator,
                $send: *const u8,
                $recv: *mut u8
                $(, $arg: $type)*
            ) -> Result<Self, Error> {
                Self::$form($comm, $kind, ($send, $recv), $count, ($dtype, $op))
            }
        )* }
    };
}
raw! {
    all_reduce_raw(comm, send, recv, count: usize, dtype: DType, op: ReduceOp)
        => raw(Kind::AllReduce, count, dtype, op);
    broadcast_raw(comm, send, recv, count: usize, dtype: DType, root: usize)
        => raw(comm.rooted(root, |root| Kind::Broadcast { root })?, count, dtype, ReduceOp::Sum);
    reduce_raw(comm, send, recv, count: usize, dtype: DType, op: ReduceOp, root: usize)
        => raw(comm.rooted(root, |root| Kind::Reduce { root })?, count, dtype, op);
    all_gather_raw(comm, send, recv, count: usize, dtype: DType)
        => raw(Kind::AllGather, count, dtype, ReduceOp::Sum);
    reduce_scatter_raw(comm, send, recv, count: usize, dtype: DType, op: ReduceOp)
        => raw(Kind::ReduceScatter, count, dtype, op);
    all_to_all_raw(comm, send, recv, count: usize, dtype: DType)
        => raw(Kind::AllToAll, count, dtype, ReduceOp::Sum);
    gather_raw(comm, send, recv, count: usize, dtype: DType, root: usize)
        => raw(comm.rooted(root, |root| Kind::Gather { root })?, count, dtype, ReduceOp::Sum);
    scatter_raw(comm, send, recv, count: usize, dtype: DType, root: usize)
        => raw(comm.rooted(root, |root| Kind::Scatter { root })?, count, dtype, ReduceOp::Sum);
    all_gather_v_raw(comm, send, recv, counts: &[usize], dtype: DType)
        => raw_v(Kind::AllGatherV, counts, dtype, ReduceOp::Sum);
    reduce_scatter_v_raw(comm, send, recv, counts: &[usize], dtype: DType, op: ReduceOp)
        => raw_v(Kind::ReduceScatterV, counts, dtype, op);
}
