//! One operation, as C describes it.

use crate::status::Failure;
use ringccl::{Communicator, DType, Group, ReduceOp, Scalar, Source};
use std::ffi::c_void;

// Counts of C are read as those of Rust.
const _: () = assert!(size_of::<usize>() == size_of::<u64>());

/// What to do.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the calls of `ringccl::Communicator`")]
pub enum Kind {
    AllReduce = 0,
    Broadcast = 1,
    Reduce = 2,
    AllGather = 3,
    ReduceScatter = 4,
    AllToAll = 5,
    Gather = 6,
    Scatter = 7,
    AllGatherV = 8,
    ReduceScatterV = 9,
    AllToAllV = 10,
    Barrier = 11,
    Send = 12,
    Recv = 13,
}

/// The number of an element type: that of NCCL's `ncclDataType_t`, 0 to 11.
pub type Dtype = u32;

/// What a reduction does.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of `ringccl::ReduceOp`")]
pub enum Reduction {
    Sum = 0,
    Prod = 1,
    Max = 2,
    Min = 3,
    Avg = 4,
    PreMulSum = 5,
    BitAnd = 6,
    BitOr = 7,
    BitXor = 8,
}

/// An operation and its buffers.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Op {
    /// A [`Kind`].
    pub kind: u32,
    /// The element type.
    pub dtype: Dtype,
    /// A [`Reduction`], for kinds that reduce.
    pub reduction: u32,
    /// The root, or the other rank of a message; -1 for a receive from any rank.
    pub peer: i32,
    /// The tag of a message.
    pub tag: u32,
    /// 0.
    pub reserved: u32,
    /// What is read.
    pub send: *const c_void,
    /// What is written.
    pub recv: *mut c_void,
    /// Elements: of the buffer, or of each rank's block.
    pub count: u64,
    /// A count for each rank: of the blocks of the V kinds; what `AllToAllV` sends.
    pub counts: *const u64,
    /// A count for each rank: what `AllToAllV` receives.
    pub recv_counts: *const u64,
    /// One element of `dtype`, the factor of `PreMulSum`.
    pub factor: *const c_void,
}

/// An operation whose numbers were checked.
#[derive(Debug)]
struct Checked<'a> {
    send: *const u8,
    recv: *mut u8,
    count: usize,
    dtype: DType,
    counts: &'a [usize],
    recv_counts: &'a [usize],
}

impl Op {
    fn kind(&self) -> Result<Kind, Failure> {
        use Kind::*;
        const ALL: [Kind; 14] = [
            AllReduce,
            Broadcast,
            Reduce,
            AllGather,
            ReduceScatter,
            AllToAll,
            Gather,
            Scatter,
            AllGatherV,
            ReduceScatterV,
            AllToAllV,
            Barrier,
            Send,
            Recv,
        ];
        let kind = ALL.get(self.kind as usize).copied();
        kind.ok_or_else(|| Failure::argument(format!("{} is no kind of operation", self.kind)))
    }

    /// # Safety
    /// - `factor` points to an element, for a sum with a factor.
    unsafe fn reduction(&self, dtype: DType) -> Result<ReduceOp, Failure> {
        Ok(match self.reduction {
            0 => ReduceOp::Sum,
            1 => ReduceOp::Prod,
            2 => ReduceOp::Max,
            3 => ReduceOp::Min,
            4 => ReduceOp::Avg,
            5 if self.factor.is_null() => return Err(Failure::argument("a sum with a factor has none")),
            // SAFETY: the caller's contract.
            5 => ReduceOp::PreMulSum(unsafe { Scalar::read(dtype, self.factor.cast()) }),
            6 => ReduceOp::BitAnd,
            7 => ReduceOp::BitOr,
            8 => ReduceOp::BitXor,
            other => return Err(Failure::argument(format!("{other} is no reduction"))),
        })
    }

    /// # Safety
    /// - The lists have a count for each of `nranks` ranks, or are null.
    unsafe fn checked<'a>(&'a self, nranks: usize) -> Result<Checked<'a>, Failure> {
        let list = |at: *const u64| -> &'a [usize] {
            if at.is_null() {
                return &[];
            }
            // SAFETY: the caller's contract; both types have 64 bits.
            unsafe { std::slice::from_raw_parts(at.cast(), nranks) }
        };
        let dtype = DType::from_nccl_code(self.dtype)
            .ok_or_else(|| Failure::argument(format!("{} is no element type", self.dtype)))?;
        Ok(Checked {
            send: self.send.cast(),
            recv: self.recv.cast(),
            count: self.count as usize,
            dtype,
            counts: list(self.counts),
            recv_counts: list(self.recv_counts),
        })
    }

    /// The other rank; none is a number that no communicator has.
    fn peer(&self) -> usize {
        usize::try_from(self.peer).unwrap_or(usize::MAX)
    }

    /// Runs it to its end.
    ///
    /// # Safety
    /// - Buffers and lists are what the kind needs, until this returns.
    #[inline]
    pub(crate) unsafe fn run(&self, comm: &mut Communicator) -> Result<(), Failure> {
        let kind = self.kind()?;
        let peer = self.peer();
        // SAFETY: the caller's contract, for each of them.
        unsafe {
            let Checked { send, recv, count, dtype, counts, recv_counts } = self.checked(comm.nranks())?;
            match kind {
                Kind::AllReduce => comm.all_reduce_raw(send, recv, count, dtype, self.reduction(dtype)?)?,
                Kind::Broadcast => comm.broadcast_raw(send, recv, count, dtype, peer)?,
                Kind::Reduce => comm.reduce_raw(send, recv, count, dtype, self.reduction(dtype)?, peer)?,
                Kind::AllGather => comm.all_gather_raw(send, recv, count, dtype)?,
                Kind::ReduceScatter => {
                    comm.reduce_scatter_raw(send, recv, count, dtype, self.reduction(dtype)?)?
                }
                Kind::AllToAll => comm.all_to_all_raw(send, recv, count, dtype)?,
                Kind::Gather => comm.gather_raw(send, recv, count, dtype, peer)?,
                Kind::Scatter => comm.scatter_raw(send, recv, count, dtype, peer)?,
                Kind::AllGatherV => comm.all_gather_v_raw(send, recv, counts, dtype)?,
                Kind::ReduceScatterV => {
                    comm.reduce_scatter_v_raw(send, recv, counts, dtype, self.reduction(dtype)?)?
                }
                Kind::AllToAllV => comm.all_to_all_v_raw(send, counts, recv, recv_counts, dtype)?,
                Kind::Barrier => comm.barrier()?,
                Kind::Send => comm.send_raw(send, count, dtype, peer, self.tag)?,
                Kind::Recv => {
                    comm.recv_tagged_raw(recv, count, dtype, self.source(), self.tag)?;
                }
            }
        }
        Ok(())
    }

    /// The rank that a receive is from; `None` for any.
    fn source(&self) -> Option<usize> {
        (self.peer >= 0).then(|| self.peer())
    }

    /// Adds it to a group; a receive says where its message will have come from.
    ///
    /// # Safety
    /// - Buffers are what the kind needs until the group has run or is dropped; lists until this returns.
    pub(crate) unsafe fn add_to(
        &self,
        group: &mut Group<'_>,
        comm: &mut Communicator,
    ) -> Result<Option<Source>, Failure> {
        let kind = self.kind()?;
        let peer = self.peer();
        // SAFETY: the caller's contract, for each of them.
        unsafe {
            let Checked { send, recv, count, dtype, counts, recv_counts } = self.checked(comm.nranks())?;
            match kind {
                Kind::AllReduce => {
                    group.all_reduce_raw(comm, send, recv, count, dtype, self.reduction(dtype)?)?
                }
                Kind::Broadcast => group.broadcast_raw(comm, send, recv, count, dtype, peer)?,
                Kind::Reduce => {
                    group.reduce_raw(comm, send, recv, count, dtype, self.reduction(dtype)?, peer)?
                }
                Kind::AllGather => group.all_gather_raw(comm, send, recv, count, dtype)?,
                Kind::ReduceScatter => {
                    group.reduce_scatter_raw(comm, send, recv, count, dtype, self.reduction(dtype)?)?
                }
                Kind::AllToAll => group.all_to_all_raw(comm, send, recv, count, dtype)?,
                Kind::Gather => group.gather_raw(comm, send, recv, count, dtype, peer)?,
                Kind::Scatter => group.scatter_raw(comm, send, recv, count, dtype, peer)?,
                Kind::AllGatherV => group.all_gather_v_raw(comm, send, recv, counts, dtype)?,
                Kind::ReduceScatterV => {
                    group.reduce_scatter_v_raw(comm, send, recv, counts, dtype, self.reduction(dtype)?)?
                }
                Kind::AllToAllV => group.all_to_all_v_raw(comm, send, counts, recv, recv_counts, dtype)?,
                Kind::Barrier => group.barrier(comm)?,
                Kind::Send => group.send_raw(comm, send, count, dtype, peer, self.tag)?,
                Kind::Recv => {
                    let source = self.source();
                    return Ok(Some(group.recv_tagged_raw(comm, recv, count, dtype, source, self.tag)?));
                }
            };
        }
        Ok(None)
    }

    /// Whether it is a message, which has no place in the order of the collectives.
    pub(crate) fn is_message(&self) -> bool {
        self.kind == Kind::Send as u32 || self.kind == Kind::Recv as u32
    }
}
