//! Operations in streams, whose results are looked at later.

use super::data::{Guarded, Small, part, plain, reduced};
use crate::draw::Draw;
use anyhow::{Context, ensure};
use ringccl::{Communicator, Error, Group, Pending, ReduceOp, Stream};
use std::collections::VecDeque;
use std::sync::mpsc;
use std::time::Duration;

/// Streams of a process.
const STREAMS: usize = 3;
/// Largest buffers, in elements.
const ELEMENTS: usize = 100_000;
/// Longest wait for a callback.
const DEADLINE: Duration = Duration::from_secs(120);

/// Looks at a result.
type Check = Box<dyn FnOnce() -> anyhow::Result<()>>;

pub(super) struct Queued {
    streams: Vec<Stream>,
    checks: VecDeque<Check>,
}

impl Queued {
    pub(super) fn new() -> Self {
        Self { streams: (0..STREAMS).map(|_| Stream::new()).collect(), checks: VecDeque::new() }
    }

    /// Looks at results until only `keep` are left.
    pub(super) fn check_all_but(&mut self, keep: usize) -> anyhow::Result<()> {
        while self.checks.len() > keep {
            let check = self.checks.pop_front().context("no check")?;
            check()?;
        }
        Ok(())
    }

    /// Queues an operation of a communicator; ranks that do not belong to it queue nothing.
    pub(super) fn add<T: Small>(
        &mut self,
        comm: Option<&mut Communicator>,
        n: usize,
        draw: &mut Draw,
    ) -> anyhow::Result<()> {
        let (kind, key, how) = (draw.below(13), draw.next(), draw.below(5));
        let (at, len) = (draw.below(STREAMS), draw.count(ELEMENTS));
        // Another one, so that no message waits behind what waits for it.
        let before = (at + 1 + draw.below(STREAMS - 1)) % STREAMS;
        let (root, shift) = (draw.below(n), draw.below(n));
        let stream = &self.streams[at];
        if draw.below(4) == 0 {
            stream.wait_for(&self.streams[before].record()?)?;
        }
        let Some(comm) = comm else { return Ok(()) };
        let rank = comm.rank();
        match kind {
            0..=3 => {
                let op = [ReduceOp::Sum, ReduceOp::Max, ReduceOp::Prod][kind % 3];
                let mine = (0..len).map(|i| T::small(part(op, key, rank, i, n))).collect();
                let pending = stream.all_reduce::<T>(comm, mine, op)?;
                self.expect(pending, how, len, move |i| reduced(op, key, i, n))
            }
            4 | 5 => {
                let mine = (0..len).map(|i| T::small(plain(key, rank, i))).collect();
                let pending = stream.broadcast::<T>(comm, mine, root)?;
                self.expect(pending, how, len, move |i| plain(key, root, i))
            }
            6 => {
                let pending = stream.barrier(comm)?;
                self.checks.push_back(Box::new(move || Ok(pending.wait()?)));
                Ok(())
            }
            10.. => self.launch::<T>(comm, at, len, (key, root, shift)),
            _ => {
                // A ring of messages, each in a stream and received in another, or the other way round.
                let (to, from) = ((rank + shift) % n, (rank + n - shift) % n);
                let other = &self.streams[before];
                let mine = (0..len).map(|i| T::small(plain(key, rank, i))).collect();
                let got = vec![T::small(7); len];
                let (sent, received) = if (rank + kind).is_multiple_of(2) {
                    let received = other.recv::<T>(comm, got, from)?;
                    (stream.send::<T>(comm, mine, to)?, received)
                } else {
                    let sent = stream.send::<T>(comm, mine, to)?;
                    (sent, other.recv::<T>(comm, got, from)?)
                };
                self.expect(sent, how, len, move |i| plain(key, rank, i))?;
                self.expect(received, 0, len, move |i| plain(key, from, i))
            }
        }
    }

    #[allow(unsafe_code, reason = "whose buffers a launched group uses is not known to the compiler")]
    /// Launches a group in a stream: a reduction, a broadcast and a ring of messages at the same time.
    fn launch<T: Small>(
        &mut self,
        comm: &mut Communicator,
        at: usize,
        len: usize,
        (key, root, shift): (u64, usize, usize),
    ) -> anyhow::Result<()> {
        struct Buffers<T> {
            sum: Guarded<T>,
            root: Guarded<T>,
            sent: Guarded<T>,
            got: Guarded<T>,
        }
        let (rank, n) = (comm.rank(), comm.nranks());
        let (to, from) = ((rank + shift) % n, (rank + n - shift) % n);
        let own = move |at| plain(key, rank, at);
        let mut buffers = Buffers::<T> {
            sum: Guarded::new(len, |at| part(ReduceOp::Sum, key, rank, at, n)),
            root: Guarded::new(len / 2, own),
            sent: Guarded::new(len, own),
            got: Guarded::blank(len),
        };
        let mut group = Group::new();
        let Buffers { sum, root: cast, sent, got } = &mut buffers;
        // Half of the ranks have the messages first.
        if rank.is_multiple_of(2) {
            group.recv(comm, got.get(), from)?.send(comm, sent.get(), to)?;
            group.all_reduce_in_place(comm, sum.get(), ReduceOp::Sum)?.broadcast(comm, cast.get(), root)?;
        } else {
            group.all_reduce_in_place(comm, sum.get(), ReduceOp::Sum)?.broadcast(comm, cast.get(), root)?;
            group.send(comm, sent.get(), to)?.recv(comm, got.get(), from)?;
        }
        // SAFETY: the check below has the buffers and touches them, or frees them, when the result is there; after an
        // error, or where it is never run, they are never freed.
        let pending = unsafe { self.streams[at].launch(group) };
        let buffers = std::mem::ManuallyDrop::new(buffers);
        let pending = pending?;
        self.checks.push_back(Box::new(move || {
            pending.wait()?;
            // All of it has ended: the buffers are ours again.
            let Buffers { sum, root: cast, sent, got } = std::mem::ManuallyDrop::into_inner(buffers);
            sum.check(|at| reduced(ReduceOp::Sum, key, at, n))?;
            cast.check(|at| plain(key, root, at))?;
            sent.check(own)?;
            got.check(|at| plain(key, from, at))
        }));
        Ok(())
    }

    /// Has a result looked at later: by waiting for it, in one way or the other, by a callback, or not at all.
    fn expect<T: Small>(
        &mut self,
        pending: Pending<Vec<T>>,
        how: usize,
        len: usize,
        of: impl Fn(usize) -> u32 + 'static,
    ) -> anyhow::Result<()> {
        let check = move |got: Result<Vec<T>, Error>| {
            let got = got?;
            ensure!(got.len() == len, "{} elements, not {len}", got.len());
            let wrong = got.iter().enumerate().find(|(at, found)| **found != T::small(of(*at)));
            ensure!(wrong.is_none(), "element {wrong:?} of {len} is wrong");
            Ok(())
        };
        match how {
            0 | 1 => self.checks.push_back(Box::new(move || check(pending.wait()))),
            2 => {
                let (tell, told) = mpsc::channel();
                // The one who is told may be gone after an error.
                pending.on_done(move |result| drop(tell.send(result)));
                self.checks.push_back(Box::new(move || check(told.recv_timeout(DEADLINE)?)));
            }
            3 => {
                self.checks.push_back(Box::new(move || match pending.wait_for(Duration::from_micros(50)) {
                    Ok(result) => check(result),
                    Err(pending) => check(pending.wait()),
                }));
            }
            _ => drop(pending),
        }
        Ok(())
    }
}
