//! Runs plans: advances every channel as far as slots and credits allow, and never blocks.
//!
//! [`Executor::poll`] is the engine. Who calls it decides how an operation waits: the blocking calls of
//! [`Communicator`](crate::Communicator) poll in the caller's thread and sleep on the rank's doorbell, a
//! [`Stream`](crate::Stream) does the same on a thread of its own.

mod primitive;

use crate::plan::{Plan, Prim};
use crate::reduce::Reducer;
use crate::transport::shm::Lane;
use primitive::Scratch;
use shmring::Error;
use shmring::segment::Segment;

/// The caller's buffers; raw because they may be one and the same.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Buffers {
    /// Readable for the call's bytes.
    pub(crate) input: *const u8,
    /// Writable for the call's bytes; equal to `input` or disjoint from it.
    pub(crate) output: *mut u8,
}

/// An operation that is running.
#[derive(Debug)]
pub(crate) struct Operation {
    pub(crate) plan: Plan,
    pub(crate) reducer: Reducer,
    pub(crate) buffers: Buffers,
}

/// What a poll achieved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// At least one primitive ran; poll again.
    Progressed,
    /// Every channel waits for a peer.
    Blocked,
    /// Every primitive has run.
    Done,
}

/// Where one channel stands.
#[derive(Clone, Copy, Debug, Default)]
struct Cursor {
    /// Number of the current primitive.
    index: u64,
    /// Messages of the current primitive that have arrived.
    arrived: u32,
    done: bool,
}

/// The state of a rank's running operation. One owner polls it: `&mut` is the token.
#[derive(Debug)]
pub(crate) struct Executor {
    cursors: Vec<Cursor>,
    scratch: Scratch,
    rank: u32,
    nranks: u32,
}

/// Bytes after whose move sleeping peers are told at once instead of at the end of the poll.
const NOTIFY_BYTES: usize = 32 << 10;

impl Executor {
    pub(crate) fn new(rank: u32, nranks: u32) -> Self {
        Self { cursors: Vec::new(), scratch: Scratch::new(nranks), rank, nranks }
    }

    /// Prepares for a new operation; the previous one is done or has failed.
    #[inline]
    pub(crate) fn start(&mut self, plan: &Plan, lines: usize) {
        self.cursors.clear();
        self.cursors.resize(plan.channels(), Cursor::default());
        self.scratch.reserve(plan.channels(), lines);
    }

    /// Advances each channel in turn until all are blocked or done.
    ///
    /// # Errors
    /// A corrupt ring; the operation and its communicator cannot go on.
    ///
    /// # Safety
    /// - The buffers of `operation` are as [`Buffers`] says, until the operation is done or given up.
    /// - `start` was called for this operation, and `lanes` are connected for it.
    #[inline]
    pub(crate) unsafe fn poll(
        &mut self,
        operation: &Operation,
        segment: &Segment,
        lanes: &mut [Lane],
    ) -> Result<Progress, Error> {
        let mut ran = false;
        let mut moved = 0;
        loop {
            let mut advanced = false;
            let mut done = true;
            for channel in 0..self.cursors.len() {
                if self.cursors[channel].done {
                    continue;
                }
                // SAFETY: the caller's contract.
                if let Some(bytes) = unsafe { self.advance(channel, operation, &mut lanes[channel])? } {
                    advanced = true;
                    moved += bytes;
                    if moved >= NOTIFY_BYTES {
                        segment.notify();
                        moved = 0;
                    }
                }
                done &= self.cursors[channel].done;
            }
            ran |= advanced;
            if done || !advanced {
                if ran {
                    segment.notify();
                }
                return Ok(match (done, ran) {
                    (true, _) => Progress::Done,
                    (_, true) => Progress::Progressed,
                    _ => Progress::Blocked,
                });
            }
        }
    }

    /// Runs the channel's next primitive if it can; `Some` with the bytes it moved.
    #[inline]
    unsafe fn advance(
        &mut self,
        channel: usize,
        operation: &Operation,
        lane: &mut Lane,
    ) -> Result<Option<usize>, Error> {
        let cursor = &mut self.cursors[channel];
        let Some(prim) = operation.plan.prim(channel, cursor.index) else {
            cursor.done = true;
            return Ok(Some(0));
        };
        let context = primitive::Context {
            operation,
            prim: &prim,
            lane,
            rank: self.rank,
            nranks: self.nranks,
            channel,
        };
        // SAFETY: the caller's contract.
        if !unsafe { context.try_run(&mut cursor.arrived, &mut self.scratch)? } {
            return Ok(None);
        }
        cursor.index += 1;
        cursor.arrived = 0;
        cursor.done = operation.plan.prim(channel, cursor.index).is_none();
        Ok(Some(Self::bytes(&prim, operation)))
    }

    fn bytes(prim: &Prim, operation: &Operation) -> usize {
        prim.len * operation.reducer.dtype().size_bytes()
    }
}
