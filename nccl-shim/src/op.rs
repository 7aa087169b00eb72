//! One operation: what to do, with which memory, on which communicator.

use crate::comm::{Comm, lock};
use crate::failure::{Failure, Outcome};
use crate::redop::Reduction;
use crate::types::StreamHandle;
use crate::window::Window;
use ringccl::{Communicator, DType, Group};
use std::sync::Arc;
use topo::nccl::tuner::Collective;

/// What to do.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "NCCL's names")]
pub(crate) enum Verb {
    AllReduce(Reduction),
    Broadcast { root: usize },
    Reduce { op: Reduction, root: usize },
    AllGather,
    ReduceScatter(Reduction),
    AlltoAll,
    Gather { root: usize },
    Scatter { root: usize },
    Send { peer: usize },
    Recv { peer: usize },
    PutSignal { window: Arc<Window>, offset: usize, peer: usize },
    Signal { peer: usize },
    WaitSignal(Vec<(usize, u64)>),
}

/// An operation whose arguments were checked.
#[derive(Debug)]
pub(crate) struct Op {
    /// Its communicator.
    pub comm: Arc<Comm>,
    /// What to do.
    pub verb: Verb,
    /// What is read.
    pub send: *const u8,
    /// What is written.
    pub recv: *mut u8,
    /// Elements: of the buffer, or of each rank's block.
    pub count: usize,
    /// Their type.
    pub dtype: DType,
    /// The caller's stream.
    pub stream: StreamHandle,
}

/// When an operation of a batch runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// First: it waits for nobody.
    OneSided,
    /// Together with all others.
    Together,
    /// Last: it waits for what others do.
    Waits,
}

impl Op {
    /// When it runs.
    pub(crate) fn turn(&self) -> Turn {
        match self.verb {
            Verb::PutSignal { .. } | Verb::Signal { .. } => Turn::OneSided,
            Verb::WaitSignal(_) => Turn::Waits,
            _ => Turn::Together,
        }
    }

    /// Whether it is a message of a rank to itself.
    #[inline]
    pub(crate) fn is_to_self(&self) -> bool {
        match self.verb {
            Verb::Send { peer } | Verb::Recv { peer } => peer == self.comm.about.rank as usize,
            _ => false,
        }
    }

    /// The collective that the tuner knows it as.
    pub(crate) fn collective(&self) -> Option<Collective> {
        match self.verb {
            Verb::AllReduce(_) => Some(Collective::AllReduce),
            Verb::Broadcast { .. } => Some(Collective::Broadcast),
            Verb::Reduce { .. } => Some(Collective::Reduce),
            Verb::AllGather => Some(Collective::AllGather),
            Verb::ReduceScatter(_) => Some(Collective::ReduceScatter),
            _ => None,
        }
    }

    /// Bytes of `count` elements.
    pub(crate) fn bytes(&self) -> usize {
        self.count.saturating_mul(self.dtype.size_bytes())
    }

    /// Runs it at once and waits for it.
    ///
    /// # Safety
    /// - The memory is what NCCL's guide asks for, until this returns.
    #[inline]
    pub(crate) unsafe fn run(&self) -> Outcome {
        // SAFETY: the caller's contract.
        self.comm.with(|communicator| unsafe { self.run_on(communicator) })
    }

    /// # Safety
    /// - As [`Op::run`].
    #[inline]
    unsafe fn run_on(&self, comm: &mut Communicator) -> Outcome {
        let Self { send, recv, count, dtype, .. } = *self;
        // SAFETY: the caller's contract, for each of them; no memory is read for a length of 0.
        unsafe {
            match &self.verb {
                Verb::AllReduce(op) => comm.all_reduce_raw(send, recv, count, dtype, op.now())?,
                Verb::Broadcast { root } => comm.broadcast_raw(send, recv, count, dtype, *root)?,
                Verb::Reduce { op, root } => comm.reduce_raw(send, recv, count, dtype, op.now(), *root)?,
                Verb::AllGather => comm.all_gather_raw(send, recv, count, dtype)?,
                Verb::ReduceScatter(op) => comm.reduce_scatter_raw(send, recv, count, dtype, op.now())?,
                Verb::AlltoAll => comm.all_to_all_raw(send, recv, count, dtype)?,
                Verb::Gather { root } => comm.gather_raw(send, recv, count, dtype, *root)?,
                Verb::Scatter { root } => comm.scatter_raw(send, recv, count, dtype, *root)?,
                // Messages are matched by their bytes, whatever the types.
                Verb::Send { peer } => comm.send(bytes_at(send, self.bytes()), *peer)?,
                Verb::Recv { peer } => comm.recv(bytes_at_mut(recv, self.bytes()), *peer)?,
                Verb::PutSignal { window, offset, peer } => {
                    if count > 0 {
                        let (window, at) = window.target(*peer, *offset, self.bytes())?;
                        comm.put(bytes_at(send, self.bytes()), window, *peer, at)?;
                    }
                    comm.signal(*peer)?;
                }
                Verb::Signal { peer } => comm.signal(*peer)?,
                Verb::WaitSignal(signals) => {
                    for (peer, count) in signals {
                        comm.wait_signal(*peer, *count)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Adds it to a group.
    ///
    /// # Safety
    /// - The memory is what NCCL's guide asks for, until the group has run or is dropped.
    pub(crate) unsafe fn add_to(&self, group: &mut Group<'_>) -> Outcome {
        let Self { send, recv, count, dtype, .. } = *self;
        let bytes = self.bytes();
        // SAFETY: the caller's contract, for each of them.
        self.comm.with(|comm| unsafe {
            match &self.verb {
                Verb::AllReduce(op) => group.all_reduce_raw(comm, send, recv, count, dtype, op.now())?,
                Verb::Broadcast { root } => group.broadcast_raw(comm, send, recv, count, dtype, *root)?,
                Verb::Reduce { op, root } => {
                    group.reduce_raw(comm, send, recv, count, dtype, op.now(), *root)?
                }
                Verb::AllGather => group.all_gather_raw(comm, send, recv, count, dtype)?,
                Verb::ReduceScatter(op) => {
                    group.reduce_scatter_raw(comm, send, recv, count, dtype, op.now())?
                }
                Verb::AlltoAll => group.all_to_all_raw(comm, send, recv, count, dtype)?,
                Verb::Gather { root } => group.gather_raw(comm, send, recv, count, dtype, *root)?,
                Verb::Scatter { root } => group.scatter_raw(comm, send, recv, count, dtype, *root)?,
                Verb::Send { peer } => group.send_raw(comm, send, bytes, DType::U8, *peer, 0)?,
                Verb::Recv { peer } => group.recv_raw(comm, recv, bytes, DType::U8, *peer, 0)?,
                // They have turns of their own.
                Verb::PutSignal { .. } | Verb::Signal { .. } | Verb::WaitSignal(_) => group,
            };
            Ok(())
        })
    }

    /// Whether a source of one-sided operations lies in a window.
    pub(crate) fn is_in_window(comm: &Comm, address: *const u8, bytes: usize) -> bool {
        lock(&comm.windows).hold(address.addr(), bytes, comm.about.rank as usize)
    }
}

/// # Safety
/// - `bytes` bytes at `from` are readable, if there are any, as long as the slice is used.
unsafe fn bytes_at<'a>(from: *const u8, bytes: usize) -> &'a [u8] {
    if bytes == 0 {
        return &[];
    }
    // SAFETY: the caller's contract; the arguments were checked for null.
    unsafe { std::slice::from_raw_parts(from, bytes) }
}

/// # Safety
/// - `bytes` bytes at `at` are writable, if there are any, as long as the slice is used, and nobody else uses them.
unsafe fn bytes_at_mut<'a>(at: *mut u8, bytes: usize) -> &'a mut [u8] {
    if bytes == 0 {
        return &mut [];
    }
    // SAFETY: the caller's contract; the arguments were checked for null.
    unsafe { std::slice::from_raw_parts_mut(at, bytes) }
}

/// Pairs the messages of ranks to themselves. Those from a buffer to itself have nothing to do and go.
///
/// # Errors
/// `ncclInvalidUsage` for one without another half; `ncclInvalidArgument` for buffers that overlap.
pub(crate) fn pair_own_messages(ops: &mut Vec<Op>) -> Outcome {
    let mut open: Vec<usize> = Vec::new();
    let mut idle: Vec<usize> = Vec::new();
    for at in 0..ops.len() {
        let op = &ops[at];
        if !op.is_to_self() {
            continue;
        }
        let is_other_half = |other: &Op| {
            Arc::ptr_eq(&other.comm, &op.comm) && sends(other) != sends(op) && other.bytes() == op.bytes()
        };
        let Some(place) = open.iter().position(|other| is_other_half(&ops[*other])) else {
            open.push(at);
            continue;
        };
        let other = open.remove(place);
        match overlap((own_buffer(&ops[other]), op.bytes()), (own_buffer(op), op.bytes())) {
            Overlap::None => {}
            Overlap::Same => idle.extend([other, at]),
            Overlap::Part => {
                return Err(Failure::argument(
                    "the buffers of a message to the own rank overlap without being one",
                ));
            }
        }
    }
    if let Some(at) = open.first() {
        let (this, other) = if sends(&ops[*at]) { ("send", "recv") } else { ("recv", "send") };
        return Err(Failure::usage(format!(
            "a {this} of {} bytes to the own rank has no matching {other} in the same group",
            ops[*at].bytes()
        )));
    }
    if !idle.is_empty() {
        let mut at = 0;
        ops.retain(|_| {
            at += 1;
            !idle.contains(&(at - 1))
        });
    }
    Ok(())
}

fn sends(op: &Op) -> bool {
    matches!(op.verb, Verb::Send { .. })
}

fn own_buffer(op: &Op) -> usize {
    if sends(op) { op.send.addr() } else { op.recv.addr() }
}

/// How two pieces of memory lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overlap {
    /// Apart.
    None,
    /// One and the same.
    Same,
    /// Otherwise.
    Part,
}

/// How two pieces of memory lie, by address and bytes.
#[inline]
pub(crate) fn overlap((a, a_bytes): (usize, usize), (b, b_bytes): (usize, usize)) -> Overlap {
    if a_bytes == 0 || b_bytes == 0 || a >= b.saturating_add(b_bytes) || b >= a.saturating_add(a_bytes) {
        return Overlap::None;
    }
    if a == b && a_bytes == b_bytes { Overlap::Same } else { Overlap::Part }
}

impl Op {
    /// Whether the buffers of a collective are apart, or one in the way that NCCL calls in place.
    #[inline]
    pub(crate) fn check_buffers(&self, call: &str) -> Outcome {
        let about = &self.comm.about;
        let (ranks, rank) = (about.nranks as usize, about.rank as usize);
        let block = self.bytes();
        let all = block.saturating_mul(ranks);
        let (sent, received) = match self.verb {
            Verb::AllGather => (block, all),
            Verb::ReduceScatter(_) => (all, block),
            Verb::AlltoAll => (all, all),
            Verb::Gather { root } if root == rank => (block, all),
            Verb::Scatter { root } if root == rank => (all, block),
            Verb::AllReduce(_) => (block, block),
            Verb::Broadcast { root } | Verb::Reduce { root, .. } if root == rank => (block, block),
            // One of the buffers does not count.
            _ => return Ok(()),
        };
        let (send, recv) = (self.send.addr(), self.recv.addr());
        if overlap((send, sent), (recv, received)) != Overlap::Part {
            return Ok(());
        }
        // The own block of the other buffer.
        let is_in_place = match self.verb {
            Verb::AllGather | Verb::Gather { .. } => send == recv.wrapping_add(rank * block),
            Verb::ReduceScatter(_) | Verb::Scatter { .. } => recv == send.wrapping_add(rank * block),
            _ => false,
        };
        if is_in_place { Ok(()) } else { Err(overlapping(call)) }
    }
}

#[cold]
fn overlapping(call: &str) -> Failure {
    Failure::argument(format!("{call} : sendbuff and recvbuff overlap, and not in the way that is in place"))
}
