//! Exchanges: operations in which every rank sends all others one message of one line, and reads one of each.
//!
//! Small all-reduces, barriers, all-gathers, all-to-alls and reduce-scatters are of this shape. Their primitives are
//! listed once, when the plan is made, and run without the general machinery: nothing is copied out of the lines, all
//! messages are waited for before the first is used, and their arrival tells that the rank's earlier messages have been
//! read, so that credit costs no look at the receivers. What goes through the rings is the same either way.

use super::Progress;
use super::primitive::{Context, connected};
use crate::plan::{Own, Plan, Prim, Recv, Send};
use crate::reduce::{Dst, Reducer, Store};
use crate::transport::shm::Lane;
use shmring::doorbell::Awaits;
use shmring::layout::{LL_PAYLOAD, LL128_PAYLOAD};
use shmring::segment::Segment;
use shmring::{Error, Protocol, Receiver, Sender};

/// Primitives beyond which an operation is not looked at: a small one has at most two per rank.
const PRIMS_MAX: u64 = 4096;

/// The primitives of an exchange.
#[derive(Debug)]
pub(crate) struct Exchange {
    protocol: Protocol,
    send: Prim,
    /// What is sent is a part of the input, as it is.
    sends_input: bool,
    /// Bytes of the message sent.
    bytes: usize,
    /// What is done once all messages are here.
    rest: Box<[Prim]>,
}

impl Exchange {
    /// The exchange that a plan is, if it is one.
    pub(crate) fn of(plan: &Plan, reducer: &Reducer, rank: u32, nranks: u32) -> Option<Self> {
        let protocol = plan.choice.protocol;
        let room = match protocol {
            Protocol::Ll => LL_PAYLOAD,
            Protocol::Ll128 => LL128_PAYLOAD,
            Protocol::Simple => return None,
        };
        if plan.channels() != 1 || reducer.needs_pre_op() {
            return None;
        }
        let size = plan.call.dtype.size_bytes();
        let fits = |elements: usize| elements * size <= room;
        let mut prims = (0..PRIMS_MAX).map_while(|index| plan.prim(0, index));
        let send = prims.find(|prim| *prim != Prim::NOTHING)?;
        let rest: Box<[Prim]> = prims.by_ref().filter(|prim| *prim != Prim::NOTHING).collect();
        let mut heard = vec![0; nranks as usize];
        for prim in &rest {
            match prim.recv {
                Recv::None => {}
                Recv::From(from) => heard[from as usize] += 1,
                Recv::All => {
                    (0..nranks).filter(|from| *from != rank).for_each(|from| heard[from as usize] += 1)
                }
                Recv::Pair(_)
                | Recv::Pairs(_)
                | Recv::AllPairs
                | Recv::Relay(_)
                | Recv::Peer(_)
                | Recv::PeerOutput(_)
                | Recv::Peers => return None,
            }
        }
        let hears_each = (0..nranks).all(|from| heard[from as usize] == u32::from(from != rank));
        let is_one = send.send == Send::Fan
            && send.recv == Recv::None
            && fits(send.len)
            && hears_each
            && rest.iter().all(|prim| prim.send == Send::None && fits(prim.message));
        let sends_input = matches!(send.own, Some(Own::Span { hole, .. }) if hole.len == 0);
        is_one.then(|| Self { protocol, send, sends_input, bytes: send.len * size, rest })
    }
}

impl Exchange {
    /// The primitive that sends.
    #[inline]
    pub(super) fn sent(&self) -> &Prim {
        &self.send
    }
}

/// How far an exchange is.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Standing {
    sent: bool,
    /// Messages that have arrived, of the ranks after this one first.
    arrived: u32,
}

/// A look at a running exchange.
pub(super) struct Exchanging<'a> {
    pub(super) exchange: &'a Exchange,
    pub(super) standing: &'a mut Standing,
    pub(super) context: Context<'a>,
}

impl Exchanging<'_> {
    /// Sends if nothing is sent yet, and finishes if all is here.
    ///
    /// # Errors
    /// A corrupt ring.
    ///
    /// # Safety
    /// As [`super::Executor::poll`].
    #[inline]
    pub(super) unsafe fn poll(&mut self, segment: &Segment) -> Result<Progress, Error> {
        let first = !self.standing.sent;
        if first {
            if !sender(self.context.lane).has_credit()? {
                return Ok(Progress::Blocked);
            }
            // SAFETY: the caller's contract; there is credit.
            unsafe { self.send() };
            self.standing.sent = true;
            segment.notify();
        }
        if self.awaits()?.is_some() {
            return Ok(if first { Progress::Advanced } else { Progress::Blocked });
        }
        // SAFETY: the caller's contract; every message has arrived.
        unsafe { self.finish() };
        Ok(Progress::Done)
    }

    /// Whom it waits for.
    ///
    /// # Errors
    /// A corrupt ring.
    #[inline]
    pub(super) fn awaits(&mut self) -> Result<Option<Awaits>, Error> {
        let Self { exchange, standing, context } = self;
        let (rank, nranks) = (context.rank, context.nranks);
        if !standing.sent {
            let credit = sender(context.lane).has_credit()?;
            return Ok((!credit).then_some(Awaits::Anyone));
        }
        let (protocol, stamp) = (exchange.protocol, context.operation.stamp);
        while standing.arrived < nranks - 1 {
            let next = rank + 1 + standing.arrived;
            let from = if next < nranks { next } else { next - nranks };
            if !receiver(context.lane, from).has_line(protocol, stamp)? {
                return Ok(Some(Awaits::Member(from)));
            }
            standing.arrived += 1;
        }
        Ok(None)
    }

    #[inline]
    unsafe fn send(&mut self) {
        let Self { exchange, context, .. } = self;
        let unproven = sender(context.lane).unproven();
        match exchange.send.own {
            Some(Own::Span { span, .. }) if exchange.sends_input => {
                let from = context.input(span);
                let stamp = context.operation.stamp;
                // SAFETY: the span lies inside the input, which is as `Buffers` says; it fits into a line.
                unsafe { sender(context.lane).send_lines(exchange.protocol, stamp, from, exchange.bytes) };
                // Own data that the output needs is put there at the end, when every message has been packed.
            }
            // SAFETY: the caller's contract; there is credit.
            _ => unsafe { context.run() },
        }
        sender(context.lane).expect_answers(unproven);
    }

    /// Uses every message and gives it back.
    #[inline]
    unsafe fn finish(&mut self) {
        let Self { exchange, context, .. } = self;
        let (rank, nranks, protocol) = (context.rank, context.nranks, exchange.protocol);
        // SAFETY: in each call the caller's contract: spans lie inside the buffers, messages have arrived, and what is
        // read of them has been sent by ranks that called the same.
        unsafe {
            if exchange.sends_input && exchange.send.dst.is_some() {
                copy(context, &exchange.send, None);
            }
            for prim in &exchange.rest {
                match prim.recv {
                    Recv::All if prim.len > 0 => fold(context, prim, protocol),
                    Recv::From(from) => copy(context, prim, Some((from, protocol))),
                    Recv::None => copy(context, prim, None),
                    _ => {}
                }
            }
        }
        for from in (0..nranks).filter(|from| *from != rank) {
            receiver(context.lane, from).release(protocol);
        }
        let sender = sender(context.lane);
        // Whoever has sent in this operation was done with all earlier ones, and has read this rank's message in each
        // of them that was an exchange: there it could not go on without. What it calls instead of other operations,
        // which may need nothing of this rank, is not known.
        sender.released_before(sender.step() - 1);
    }
}

/// Reduces a part of every message with own input, in the order of ranks.
#[inline]
unsafe fn fold(context: &mut Context<'_>, prim: &Prim, protocol: Protocol) {
    let (Some(Own::Span { span: own, .. }), Some(dst)) = (prim.own, prim.dst) else { return };
    let own = context.input(own);
    let part = context.bytes(prim.part);
    context.scratch.start_list();
    for from in 0..context.nranks {
        let source = if from == context.rank {
            own
        } else {
            // SAFETY: the message has arrived, and is released after its use.
            let line = unsafe { receiver(context.lane, from).read_line(protocol, |line| line) };
            line.wrapping_add(part)
        };
        context.scratch.list(source);
    }
    let to = Dst { ptr: context.output(dst), store: Store::Cached };
    // SAFETY: the caller's contract.
    unsafe { context.operation.reducer.fold(context.scratch.listed(), None, &[to], prim.len, prim.last) };
}

/// Copies own data, or a part of the message of a rank, to the output.
#[inline]
unsafe fn copy(context: &mut Context<'_>, prim: &Prim, message: Option<(u32, Protocol)>) {
    let Some(dst) = prim.dst else { return };
    let from = match (message, prim.own) {
        (Some((from, protocol)), None) => {
            // SAFETY: the message has arrived, and is released after its use.
            let line = unsafe { receiver(context.lane, from).read_line(protocol, |line| line) };
            line.wrapping_add(context.bytes(prim.part))
        }
        (None, Some(Own::Span { span, .. })) => context.input(span),
        _ => return,
    };
    let (to, len) = (context.output(dst), context.bytes(prim.len));
    if to.cast_const() != from {
        // SAFETY: the caller's contract: both are valid for `len` bytes, and where they are not equal they lie apart.
        unsafe { std::ptr::copy_nonoverlapping(from, to, len) };
    }
}

#[inline]
fn sender(lane: &mut Lane) -> &mut Sender {
    connected(&mut lane.fan_out)
}

#[inline]
fn receiver(lane: &mut Lane, from: u32) -> &mut Receiver {
    connected(&mut lane.fan_in[from as usize])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::plan::{Algorithm, Call, Counts, Kind, Tuning, TuningLines, TuningStep, select};
    use crate::reduce::{DType, ReduceOp};
    use crate::transport::shm::Shm;

    fn is_exchange(call: Call, rank: u32, nranks: u32) -> bool {
        // The table may have other limits, or a ring above some size.
        let mut tuning = (*Tuning::shipped()).clone();
        for row in &mut tuning.rows {
            let flat = || vec![TuningStep { algorithm: Algorithm::Flat, up_to: None }];
            (row.all_reduce, row.all_gather, row.reduce_scatter) = (flat(), flat(), flat());
            row.lines = TuningLines { ll: 56, ll128: 480 };
        }
        let config = Config { tuning: tuning.into(), ..Config::new(nranks) };
        let choice = select(&call, &config, &Shm::limits(&config.geometry(nranks).unwrap()));
        let reducer = Reducer::new(call.dtype, call.op, nranks as usize);
        Exchange::of(&Plan::new(call, choice, rank, nranks), &reducer, rank, nranks).is_some()
    }

    /// Small operations between all ranks are exchanges on every rank, up to a line; none with a root is, none that
    /// scales what it sends, and none in which a rank sends nothing.
    #[test]
    fn what_is_an_exchange() {
        for nranks in 2..9 {
            for rank in 0..nranks {
                let is = |kind, count, op| is_exchange(Call::new(kind, count, DType::U8, op), rank, nranks);
                assert!(is_exchange(Call::BARRIER, rank, nranks));
                for (kind, longest) in [
                    (Kind::AllReduce, 120),
                    (Kind::AllGather, 120),
                    (Kind::ReduceScatter, 120 / nranks as usize),
                    (Kind::AllToAll, 120 / nranks as usize),
                ] {
                    assert!(is(kind, 1, ReduceOp::Sum) && is(kind, longest, ReduceOp::Sum), "{kind:?}");
                    assert!(!is(kind, 481, ReduceOp::Sum), "{kind:?}");
                }
                assert!(!is(Kind::AllReduce, 121, ReduceOp::Sum));
                for kind in [Kind::Broadcast { root: 0 }, Kind::Reduce { root: 0 }, Kind::Gather { root: 0 }]
                {
                    assert!(!is(kind, 1, ReduceOp::Sum), "{kind:?}");
                }
                let average = Call::new(Kind::AllReduce, 2, DType::F32, ReduceOp::Avg);
                assert!(!is_exchange(average, rank, nranks));
                for least in [0, 1] {
                    let counts: Vec<usize> = (0..nranks as usize).map(|r| r + least).collect();
                    let call =
                        |kind| Call::uneven(kind, Counts::new(&counts).unwrap(), DType::U8, ReduceOp::Sum);
                    assert_eq!(is_exchange(call(Kind::AllGatherV), rank, nranks), least == 1);
                }
            }
        }
    }
}
