//! Collectives.

use super::check;
use crate::comm::Comm;
use crate::export::export;
use crate::failure::Outcome;
use crate::group;
use crate::op::{Op, Verb};
use crate::trace;
use crate::types::{CommHandle, StreamHandle};
use std::ffi::{c_int, c_void};
use std::sync::Arc;

/// What all collectives are called with.
struct Args {
    call: &'static str,
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    dtype: c_int,
    /// The caller's operator or root, for the log.
    op: c_int,
    root: c_int,
    stream: StreamHandle,
}

/// Which buffers a rank needs.
#[derive(Clone, Copy)]
struct Needs {
    send: bool,
    recv: bool,
}

const BOTH: Needs = Needs { send: true, recv: true };

impl Args {
    /// Checks type and buffers and hands on.
    ///
    /// # Safety
    /// - As [`group::submit`].
    #[inline]
    unsafe fn submit(
        self,
        comm: Arc<Comm>,
        needs: Needs,
        verb: impl FnOnce(&Comm, ringccl::DType) -> Result<Verb, crate::failure::Failure>,
    ) -> Outcome {
        let dtype = check::dtype(self.dtype, self.call)?;
        let verb = verb(&comm, dtype)?;
        if needs.send {
            check::buffer(self.send, self.count, "sendbuff", self.call)?;
        }
        if needs.recv {
            check::buffer(self.recv, self.count, "recvbuff", self.call)?;
        }
        let op = Op {
            comm,
            verb,
            send: self.send.cast(),
            recv: self.recv.cast(),
            count: self.count,
            dtype,
            stream: self.stream,
        };
        op.check_buffers(self.call)?;
        op.comm.about.usable.check(op.collective(), dtype.name())?;
        trace::call(self.call, &op, self.op, self.root);
        // SAFETY: the caller's contract.
        unsafe { group::submit(op) }
    }
}

export! {
    /// Reduces all buffers; every rank gets the result.
    ncclAllReduce = pncclAllReduce(
        send: *const c_void, recv: *mut c_void, count: usize, dtype: c_int, op: c_int, comm: CommHandle,
        stream: StreamHandle,
    ) {
        const CALL: &str = "AllReduce";
        group::call(|| {
            let comm = check::comm(comm, CALL)?;
            let args = Args { call: CALL, send, recv, count, dtype, op, root: 0, stream };
            // SAFETY: the caller's contract.
            unsafe {
                args.submit(comm, BOTH, |comm, dtype| Ok(Verb::AllReduce(check::reduction(comm, op, dtype, CALL)?)))
            }
        })
    }

    /// Sends the root's buffer to all, in place.
    ncclBcast = pncclBcast(
        buffer: *mut c_void, count: usize, dtype: c_int, root: c_int, comm: CommHandle, stream: StreamHandle,
    ) {
        // SAFETY: the caller's contract.
        group::call(|| unsafe { broadcast(buffer, buffer, count, dtype, root, comm, stream) })
    }

    /// Sends the root's buffer to all.
    ncclBroadcast = pncclBroadcast(
        send: *const c_void, recv: *mut c_void, count: usize, dtype: c_int, root: c_int, comm: CommHandle,
        stream: StreamHandle,
    ) {
        // SAFETY: the caller's contract.
        group::call(|| unsafe { broadcast(send, recv, count, dtype, root, comm, stream) })
    }

    /// Reduces all buffers; the root gets the result.
    ncclReduce = pncclReduce(
        send: *const c_void, recv: *mut c_void, count: usize, dtype: c_int, op: c_int, root: c_int, comm: CommHandle,
        stream: StreamHandle,
    ) {
        const CALL: &str = "Reduce";
        group::call(|| {
            let comm = check::comm(comm, CALL)?;
            let at = check::rank(&comm, root, "root", CALL)?;
            let needs = Needs { send: true, recv: at == comm.about.rank as usize };
            let args = Args { call: CALL, send, recv, count, dtype, op, root, stream };
            let verb = |comm: &Comm, dtype| Ok(Verb::Reduce { op: check::reduction(comm, op, dtype, CALL)?, root: at });
            // SAFETY: the caller's contract.
            unsafe { args.submit(comm, needs, verb) }
        })
    }

    /// Gathers all buffers on every rank.
    ncclAllGather = pncclAllGather(
        send: *const c_void, recv: *mut c_void, count: usize, dtype: c_int, comm: CommHandle, stream: StreamHandle,
    ) {
        const CALL: &str = "AllGather";
        group::call(|| {
            let comm = check::comm(comm, CALL)?;
            let args = Args { call: CALL, send, recv, count, dtype, op: 0, root: 0, stream };
            // SAFETY: the caller's contract.
            unsafe { args.submit(comm, BOTH, |_, _| Ok(Verb::AllGather)) }
        })
    }

    /// Reduces all buffers; each rank gets its block of the result.
    ncclReduceScatter = pncclReduceScatter(
        send: *const c_void, recv: *mut c_void, count: usize, dtype: c_int, op: c_int, comm: CommHandle,
        stream: StreamHandle,
    ) {
        const CALL: &str = "ReduceScatter";
        group::call(|| {
            let comm = check::comm(comm, CALL)?;
            let args = Args { call: CALL, send, recv, count, dtype, op, root: 0, stream };
            let verb = |comm: &Comm, dtype| Ok(Verb::ReduceScatter(check::reduction(comm, op, dtype, CALL)?));
            // SAFETY: the caller's contract.
            unsafe { args.submit(comm, BOTH, verb) }
        })
    }

    /// Sends a block to each rank and gets one from each; also in place.
    ncclAlltoAll = pncclAlltoAll(
        send: *const c_void, recv: *mut c_void, count: usize, dtype: c_int, comm: CommHandle, stream: StreamHandle,
    ) {
        const CALL: &str = "AlltoAll";
        group::call(|| {
            let comm = check::comm(comm, CALL)?;
            let args = Args { call: CALL, send, recv, count, dtype, op: 0, root: 0, stream };
            // SAFETY: the caller's contract.
            unsafe { args.submit(comm, BOTH, |_, _| Ok(Verb::AlltoAll)) }
        })
    }

    /// Gathers all buffers on the root.
    ncclGather = pncclGather(
        send: *const c_void, recv: *mut c_void, count: usize, dtype: c_int, root: c_int, comm: CommHandle,
        stream: StreamHandle,
    ) {
        const CALL: &str = "Gather";
        group::call(|| {
            let comm = check::comm(comm, CALL)?;
            let at = check::rank(&comm, root, "root", CALL)?;
            let needs = Needs { send: true, recv: at == comm.about.rank as usize };
            let args = Args { call: CALL, send, recv, count, dtype, op: 0, root, stream };
            // SAFETY: the caller's contract.
            unsafe { args.submit(comm, needs, |_, _| Ok(Verb::Gather { root: at })) }
        })
    }

    /// Sends each rank its block of the root's buffer.
    ncclScatter = pncclScatter(
        send: *const c_void, recv: *mut c_void, count: usize, dtype: c_int, root: c_int, comm: CommHandle,
        stream: StreamHandle,
    ) {
        const CALL: &str = "Scatter";
        group::call(|| {
            let comm = check::comm(comm, CALL)?;
            let at = check::rank(&comm, root, "root", CALL)?;
            let needs = Needs { send: at == comm.about.rank as usize, recv: true };
            let args = Args { call: CALL, send, recv, count, dtype, op: 0, root, stream };
            // SAFETY: the caller's contract.
            unsafe { args.submit(comm, needs, |_, _| Ok(Verb::Scatter { root: at })) }
        })
    }
}

/// # Safety
/// - As [`group::submit`].
unsafe fn broadcast(
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    dtype: c_int,
    root: c_int,
    comm: CommHandle,
    stream: StreamHandle,
) -> Outcome {
    const CALL: &str = "Broadcast";
    let comm = check::comm(comm, CALL)?;
    let at = check::rank(&comm, root, "root", CALL)?;
    let needs = Needs { send: at == comm.about.rank as usize, recv: true };
    let args = Args { call: CALL, send, recv, count, dtype, op: 0, root, stream };
    // SAFETY: the caller's contract.
    unsafe { args.submit(comm, needs, |_, _| Ok(Verb::Broadcast { root: at })) }
}
