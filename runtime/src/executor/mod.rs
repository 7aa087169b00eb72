//! Runs plans: advances every channel as far as slots and credits allow, and never blocks.
//!
//! Who calls [`Executor::poll`] decides how an operation waits: the blocking calls of
//! [`Communicator`](crate::Communicator) poll in the caller's thread and sleep on the rank's doorbell; a
//! [`Group`](crate::Group) and the drivers of [`Stream`](crate::Stream)s poll many operations in turn.

mod exchange;
mod peers;
mod primitive;

use crate::plan::{Plan, Prim};
use crate::reduce::Reducer;
use crate::transport::shm::Lane;
pub(crate) use exchange::Exchange;
use exchange::{Exchanging, Standing};
use primitive::{Context, Scratch};
use shmring::doorbell::Awaits;
use shmring::segment::Segment;
use shmring::{Error, Stamp};

/// The caller's buffers; raw because they may be one and the same.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Buffers {
    /// Readable for what the plan reads: `Plan::input` elements.
    pub(crate) input: *const u8,
    /// Writable for what the plan writes, `Plan::output` elements; disjoint from the input but where the kind works in
    /// place, see `Communicator::run`.
    pub(crate) output: *mut u8,
}

/// An operation that is running.
#[derive(Debug)]
pub(crate) struct Operation<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) reducer: &'a Reducer,
    /// Its primitives, if it is an exchange.
    pub(crate) exchange: Option<&'a Exchange>,
    pub(crate) buffers: Buffers,
    /// What its messages are marked with: others do not arrive.
    pub(crate) stamp: Stamp,
    /// Where every rank's buffers are mapped here, if the plan reads them there: as [`Buffers`] says, from
    /// when the operation begins until its last message.
    pub(crate) peers: &'a [Buffers],
}

/// What a poll achieved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Some primitives have run; now every channel that is not done waits for a peer.
    Advanced,
    /// None could run: every channel that is not done waits for a peer; see [`Executor::awaits`].
    Blocked,
    /// Every primitive has run.
    Done,
}

/// Whom two blocked channels wait for.
fn either(first: Option<Awaits>, second: Awaits) -> Awaits {
    match first {
        Some(first) if first != second => Awaits::Anyone,
        _ => second,
    }
}

/// Where one channel stands.
#[derive(Clone, Copy, Debug)]
struct Cursor {
    /// Number of the current primitive.
    index: u64,
    /// The current primitive; `None` when the channel is done.
    prim: Option<Prim>,
    /// Messages of the current primitive that have arrived.
    arrived: u32,
}

impl Cursor {
    fn first(plan: &Plan, channel: usize) -> Self {
        Self { index: 0, prim: plan.prim(channel, 0), arrived: 0 }
    }
}

/// The state of a rank's running operation. One owner polls it: `&mut` is the token.
#[derive(Debug)]
pub(crate) struct Executor {
    cursors: Vec<Cursor>,
    /// Where an exchange stands, which has no cursors.
    standing: Standing,
    scratch: Scratch,
    rank: u32,
    nranks: u32,
}

/// Bytes after whose move sleeping peers are told at once instead of at the end of the poll.
const NOTIFY_BYTES: usize = 32 << 10;

impl Executor {
    pub(crate) fn new(rank: u32, nranks: u32) -> Self {
        Self {
            cursors: Vec::new(),
            standing: Standing::default(),
            scratch: Scratch::new(nranks),
            rank,
            nranks,
        }
    }

    /// Prepares for a new operation; the previous one is done or has failed.
    #[inline]
    pub(crate) fn start(&mut self, plan: &Plan, is_exchange: bool, lines: usize) {
        self.standing = Standing::default();
        self.scratch.reserve(plan.channels(), lines);
        if is_exchange {
            return;
        }
        self.cursors.clear();
        self.cursors.extend((0..plan.channels()).map(|channel| Cursor::first(plan, channel)));
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
        operation: &Operation<'_>,
        segment: &Segment,
        lanes: &mut [Lane],
    ) -> Result<Progress, Error> {
        if let Some(exchange) = operation.exchange {
            // SAFETY: the caller's contract.
            return unsafe { self.exchanging(exchange, operation, &mut lanes[0]).poll(segment) };
        }
        // SAFETY: the caller's contract.
        unsafe { self.poll_channels(operation, segment, lanes) }
    }

    unsafe fn poll_channels(
        &mut self,
        operation: &Operation<'_>,
        segment: &Segment,
        lanes: &mut [Lane],
    ) -> Result<Progress, Error> {
        let mut ran = false;
        let mut moved = 0;
        loop {
            let (mut advanced, mut done) = (false, true);
            for (channel, lane) in lanes.iter_mut().enumerate().take(self.cursors.len()) {
                if self.cursors[channel].prim.is_none() {
                    continue;
                }
                // SAFETY: the caller's contract.
                match unsafe { self.advance(channel, operation, lane)? } {
                    Some(bytes) => {
                        advanced = true;
                        moved += bytes;
                        if moved >= NOTIFY_BYTES {
                            segment.notify();
                            moved = 0;
                        }
                        done &= self.cursors[channel].prim.is_none();
                    }
                    None => done = false,
                }
            }
            ran |= advanced;
            if done || !advanced {
                if ran {
                    segment.notify();
                }
                return Ok(match (done, ran) {
                    (true, _) => Progress::Done,
                    (false, true) => Progress::Advanced,
                    (false, false) => Progress::Blocked,
                });
            }
        }
    }

    /// Whom the operation waits for, or `None` when a channel can run. Moves no data but lines that arrive.
    ///
    /// # Errors
    /// A corrupt ring.
    ///
    /// # Safety
    /// As [`Executor::poll`].
    #[inline]
    pub(crate) unsafe fn awaits(
        &mut self,
        operation: &Operation<'_>,
        lanes: &mut [Lane],
    ) -> Result<Option<Awaits>, Error> {
        if let Some(exchange) = operation.exchange {
            return self.exchanging(exchange, operation, &mut lanes[0]).awaits();
        }
        // SAFETY: the caller's contract.
        unsafe { self.channels_await(operation, lanes) }
    }

    unsafe fn channels_await(
        &mut self,
        operation: &Operation<'_>,
        lanes: &mut [Lane],
    ) -> Result<Option<Awaits>, Error> {
        let mut all = None;
        for (channel, lane) in lanes.iter_mut().enumerate().take(self.cursors.len()) {
            if let Some((mut context, arrived)) = self.context(channel, operation, lane) {
                // SAFETY: the caller's contract.
                let Some(one) = (unsafe { context.awaits(arrived)? }) else { return Ok(None) };
                all = Some(either(all, one));
            }
        }
        Ok(all)
    }

    #[inline]
    fn exchanging<'a>(
        &'a mut self,
        exchange: &'a Exchange,
        operation: &'a Operation<'a>,
        lane: &'a mut Lane,
    ) -> Exchanging<'a> {
        let Self { standing, scratch, rank, nranks, .. } = self;
        let (prim, rank, nranks) = (exchange.sent(), *rank, *nranks);
        let context = Context::new(operation, prim, lane, scratch, (rank, nranks), 0);
        Exchanging { exchange, standing, context }
    }

    /// The current primitive of a channel and how many of its messages have arrived.
    #[inline]
    fn context<'a>(
        &'a mut self,
        channel: usize,
        operation: &'a Operation<'a>,
        lane: &'a mut Lane,
    ) -> Option<(Context<'a>, &'a mut u32)> {
        let Self { cursors, scratch, rank, nranks, .. } = self;
        let Cursor { prim, arrived, .. } = &mut cursors[channel];
        let (rank, nranks) = (*rank, *nranks);
        let prim = prim.as_ref()?;
        Some((Context::new(operation, prim, lane, scratch, (rank, nranks), channel), arrived))
    }

    /// Runs the channel's next primitive; the bytes it moved, or `None` if it must wait.
    #[inline]
    unsafe fn advance(
        &mut self,
        channel: usize,
        operation: &Operation<'_>,
        lane: &mut Lane,
    ) -> Result<Option<usize>, Error> {
        let Some((mut context, arrived)) = self.context(channel, operation, lane) else { return Ok(Some(0)) };
        // SAFETY: the caller's contract.
        if unsafe { context.awaits(arrived)? }.is_some() {
            return Ok(None);
        }
        let prim = *context.prim;
        // The cursor moves on before the primitive runs: a copy of the next one made after the stores to shared
        // lines would have to wait until those have left the store buffer (8 B at 2 ranks: a tenth of the time).
        let cursor = &mut self.cursors[channel];
        cursor.index += 1;
        cursor.arrived = 0;
        cursor.prim = operation.plan.prim(channel, cursor.index);
        let Self { scratch, rank, nranks, .. } = self;
        let (prim, ranks) = (&prim, (*rank, *nranks));
        let mut context = Context::new(operation, prim, lane, scratch, ranks, channel);
        // SAFETY: the caller's contract; `awaits` has answered `None`.
        unsafe { context.run() };
        Ok(Some(Self::bytes(prim, operation)))
    }

    fn bytes(prim: &Prim, operation: &Operation<'_>) -> usize {
        prim.len * operation.reducer.dtype().size_bytes()
    }
}
