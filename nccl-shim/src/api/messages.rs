//! Messages between two ranks, and one-sided operations.

use super::check;
use crate::comm::Comm;
use crate::export::export;
use crate::failure::{Failure, Outcome};
use crate::group;
use crate::op::{Op, Verb};
use crate::trace;
use crate::types::{CommHandle, StreamHandle, WaitSignalDesc, WindowHandle};
use crate::window;
use ringccl::DType;
use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;

export! {
    /// Sends to a rank.
    ncclSend = pncclSend(
        buffer: *const c_void, count: usize, dtype: c_int, peer: c_int, comm: CommHandle, stream: StreamHandle,
    ) {
        const CALL: &str = "Send";
        group::call(|| {
            let comm = check::comm(comm, CALL)?;
            let to = check::rank(&comm, peer, "peer", CALL)?;
            let dtype = check::dtype(dtype, CALL)?;
            check::buffer(buffer, count, "sendbuff", CALL)?;
            let send = buffer.cast();
            let verb = Verb::Send { peer: to };
            let op = Op { comm, verb, send, recv: std::ptr::null_mut(), count, dtype, stream };
            trace::call(CALL, &op, 0, peer);
            // SAFETY: the caller's contract.
            unsafe { group::submit(op) }
        })
    }

    /// Receives from a rank.
    ncclRecv = pncclRecv(
        buffer: *mut c_void, count: usize, dtype: c_int, peer: c_int, comm: CommHandle, stream: StreamHandle,
    ) {
        const CALL: &str = "Recv";
        group::call(|| {
            let comm = check::comm(comm, CALL)?;
            let from = check::rank(&comm, peer, "peer", CALL)?;
            let dtype = check::dtype(dtype, CALL)?;
            check::buffer(buffer, count, "recvbuff", CALL)?;
            let recv = buffer.cast();
            let verb = Verb::Recv { peer: from };
            let op = Op { comm, verb, send: std::ptr::null(), recv, count, dtype, stream };
            trace::call(CALL, &op, 0, peer);
            // SAFETY: the caller's contract.
            unsafe { group::submit(op) }
        })
    }

    /// Writes into a rank's window and signals it.
    ncclPutSignal = pncclPutSignal(
        local: *const c_void, count: usize, dtype: c_int, peer: c_int, peer_win: WindowHandle, offset: usize,
        sig_idx: c_int, ctx: c_int, flags: c_uint, comm: CommHandle, stream: StreamHandle,
    ) {
        group::call(|| {
            // SAFETY: the caller's contract.
            unsafe { put(local, (count, dtype), peer, (peer_win, offset), (sig_idx, ctx, flags), comm, stream) }
        })
    }

    /// Signals a rank.
    ncclSignal = pncclSignal(
        peer: c_int, sig_idx: c_int, ctx: c_int, flags: c_uint, comm: CommHandle, stream: StreamHandle,
    ) {
        const CALL: &str = "Signal";
        group::call(|| {
            let comm = check::comm(comm, CALL)?;
            let to = check::rank(&comm, peer, "peer", CALL)?;
            one_sided(&comm, CALL)?;
            zero(sig_idx, ctx, flags, CALL)?;
            // SAFETY: there is no memory.
            unsafe { group::submit(without_memory(comm, Verb::Signal { peer: to }, stream)) }
        })
    }

    /// Waits for signals of ranks.
    ncclWaitSignal = pncclWaitSignal(
        n_desc: c_int, descs: *mut WaitSignalDesc, comm: CommHandle, stream: StreamHandle,
    ) {
        const CALL: &str = "WaitSignal";
        group::call(|| {
            let comm = check::comm(comm, CALL)?;
            one_sided(&comm, CALL)?;
            let count = usize::try_from(n_desc).ok().filter(|count| *count > 0 && !descs.is_null());
            let count = count.ok_or_else(|| Failure::argument(format!("{CALL} : {n_desc} descriptors at {descs:p}")))?;
            // SAFETY: not null; the caller's contract.
            let descs = unsafe { std::slice::from_raw_parts(descs, count) };
            let mut signals = Vec::with_capacity(count);
            for desc in descs {
                let peer = check::rank(&comm, desc.peer, "peer", CALL)?;
                zero(desc.sig_idx, desc.ctx, 0, CALL)?;
                let wanted = u64::try_from(desc.op_cnt).ok().filter(|count| *count > 0);
                let wanted = wanted
                    .ok_or_else(|| Failure::argument(format!("{CALL} : opCnt is {}; it is 1 or more", desc.op_cnt)))?;
                signals.push((peer, wanted));
            }
            // SAFETY: there is no memory.
            unsafe { group::submit(without_memory(comm, Verb::WaitSignal(signals), stream)) }
        })
    }
}

/// Whether the communicator has one-sided operations.
fn one_sided(comm: &Comm, call: &str) -> Outcome {
    if comm.about.settings.rma_contexts == 0 {
        return Err(Failure::argument(format!(
            "{call} : one-sided operations are switched off (numRmaCtx or NCCL_NUM_RMA_CTX is 0)"
        )));
    }
    Ok(())
}

/// What NCCL keeps for later.
fn zero(sig_idx: c_int, ctx: c_int, flags: c_uint, call: &str) -> Outcome {
    if (sig_idx, ctx, flags) != (0, 0, 0) {
        return Err(Failure::argument(format!(
            "{call} : sigIdx {sig_idx}, ctx {ctx}, flags {flags:#x}; all three must be 0"
        )));
    }
    Ok(())
}

fn without_memory(comm: Arc<Comm>, verb: Verb, stream: StreamHandle) -> Op {
    let (send, recv) = (std::ptr::null(), std::ptr::null_mut());
    Op { comm, verb, send, recv, count: 0, dtype: DType::U8, stream }
}

/// # Safety
/// - As [`group::submit`].
unsafe fn put(
    local: *const c_void,
    (count, dtype): (usize, c_int),
    peer: c_int,
    (peer_win, offset): (WindowHandle, usize),
    (sig_idx, ctx, flags): (c_int, c_int, c_uint),
    comm: CommHandle,
    stream: StreamHandle,
) -> Outcome {
    const CALL: &str = "PutSignal";
    let comm = check::comm(comm, CALL)?;
    let to = check::rank(&comm, peer, "peer", CALL)?;
    let dtype = check::dtype(dtype, CALL)?;
    one_sided(&comm, CALL)?;
    zero(sig_idx, ctx, flags, CALL)?;
    if peer_win.is_null() || local.is_null() {
        return Err(Failure::argument(format!("{CALL} : peerWin or localbuff is NULL")));
    }
    let window = window::find(&comm, peer_win, CALL)?;
    let bytes = count.checked_mul(dtype.size_bytes());
    let bytes = bytes
        .ok_or_else(|| Failure::argument(format!("{CALL} : {count} elements are more than memory has")))?;
    if !Op::is_in_window(&comm, local.cast(), bytes) {
        return Err(Failure::argument(format!(
            "{CALL} : the {bytes} bytes at {local:p} are in no window of this communicator: allocate them by ncclMemAlloc \
             and register them by ncclCommWindowRegister"
        )));
    }
    window.target(to, offset, bytes)?;
    let verb = Verb::PutSignal { window, offset, peer: to };
    let op = Op { comm, verb, send: local.cast(), recv: std::ptr::null_mut(), count, dtype, stream };
    // SAFETY: the caller's contract.
    unsafe { group::submit(op) }
}
