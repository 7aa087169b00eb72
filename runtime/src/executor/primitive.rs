//! The one routine that runs every primitive: wait for credit and messages, combine, store, post, release.
//!
//! | protocol | received data is read | the result is written |
//! | --- | --- | --- |
//! | Simple | in the slot, where the sender put it | straight into the slot |
//! | LL, LL128 | from scratch (or the output), where the lines were unpacked as they arrived | to scratch (or the output), then packed into lines |

use super::Operation;
use crate::plan::{Own, Prim, Recv, Send, Span, Stretch, Turn};
use crate::reduce::{self, Dst, Store};
use crate::transport::shm::Lane;
use shmring::doorbell::Awaits;
use shmring::{Error, Protocol, Receiver, Sender};

/// Operations of at least this size write their output past the cache: it would not stay there.
const STREAMING_BYTES: usize = 1 << 20;

/// Private memory for messages in lines, and the list of sources of the running primitive.
#[derive(Debug)]
pub(super) struct Scratch {
    nranks: usize,
    /// Bytes of one message, rounded up to words.
    stride: usize,
    /// One message per channel and rank; the own rank's holds what is sent.
    words: Vec<u64>,
    sources: Vec<Source>,
}

/// An address that is used only while the primitive that listed it runs.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
struct Source(*const u8);

// SAFETY: between primitives the list is dead, so moving it to another thread moves nothing that is used.
unsafe impl core::marker::Send for Source {}

impl Scratch {
    pub(super) fn new(nranks: u32) -> Self {
        Self {
            nranks: nranks as usize,
            stride: 0,
            words: Vec::new(),
            sources: Vec::with_capacity(nranks as usize),
        }
    }

    /// Makes room for line messages of `bytes`; 0 when the operation has none.
    #[inline]
    pub(super) fn reserve(&mut self, channels: usize, bytes: usize) {
        let stride = bytes.next_multiple_of(64);
        let words = channels * self.nranks * stride / 8;
        if self.stride != stride || self.words.len() < words {
            self.stride = stride;
            self.words.resize(words.max(self.words.len()), 0);
        }
    }

    /// Forgets the listed sources.
    #[inline]
    pub(super) fn start_list(&mut self) {
        self.sources.clear();
    }

    /// Lists a source of the running primitive.
    #[inline]
    pub(super) fn list(&mut self, source: *const u8) {
        self.sources.push(Source(source));
    }

    /// The sources in the order in which they were listed.
    #[inline]
    pub(super) fn listed(&self) -> &[*const u8] {
        // SAFETY: `Source` is transparent, so the vector holds exactly these pointers.
        unsafe { std::slice::from_raw_parts(self.sources.as_ptr().cast(), self.sources.len()) }
    }

    #[inline]
    fn message(&mut self, channel: usize, rank: u32) -> *mut u8 {
        let at = (channel * self.nranks + rank as usize) * self.stride / 8;
        self.words[at..][..self.stride / 8].as_mut_ptr().cast()
    }
}

/// One attempt at one primitive.
pub(super) struct Context<'a> {
    pub(super) operation: &'a Operation<'a>,
    pub(super) prim: &'a Prim,
    pub(super) lane: &'a mut Lane,
    pub(super) scratch: &'a mut Scratch,
    pub(super) rank: u32,
    pub(super) nranks: u32,
    pub(super) channel: usize,
    /// The piece of the relay that the primitive adds to.
    pub(super) piece: *mut u8,
}

impl<'a> Context<'a> {
    /// An attempt by `rank` of `nranks`.
    #[inline]
    pub(super) fn new(
        operation: &'a Operation<'a>,
        prim: &'a Prim,
        lane: &'a mut Lane,
        scratch: &'a mut Scratch,
        (rank, nranks): (u32, u32),
        channel: usize,
    ) -> Self {
        Self { operation, prim, lane, scratch, rank, nranks, channel, piece: std::ptr::null_mut() }
    }
}

impl Context<'_> {
    /// Whom the primitive waits for: for credit, or for a message; `None` when it can run.
    ///
    /// # Safety
    /// - The operation's buffers are valid as [`super::Buffers`] says, and the lane is connected.
    #[inline]
    pub(super) unsafe fn awaits(&mut self, arrived: &mut u32) -> Result<Option<Awaits>, Error> {
        let (credit, from) = match self.prim.send {
            Send::None => (true, Awaits::Anyone),
            Send::Pair(to) => {
                (connected(&mut self.lane.pair_out[to as usize]).has_credit()?, Awaits::Member(to))
            }
            Send::Pairs([one, other]) => {
                // Of both: the one that has none.
                let credit = connected(&mut self.lane.pair_out[one as usize]).has_credit()?;
                let from = if credit { other } else { one };
                let both = credit && connected(&mut self.lane.pair_out[other as usize]).has_credit()?;
                (both, Awaits::Member(from))
            }
            // The slowest receiver may be any of them.
            Send::Fan => (connected(&mut self.lane.fan_out).has_credit()?, Awaits::Anyone),
            // Whoever has not done with the block before the last ones may be any of them.
            Send::Relay(Turn { block, turn: 0, .. }) => {
                (connected(&mut self.lane.relay).has_credit(block)?, Awaits::Anyone)
            }
            Send::Relay(_) | Send::Finish => (true, Awaits::Anyone),
        };
        if !credit {
            return Ok(Some(from));
        }
        // SAFETY: the caller's contract.
        Ok(unsafe { self.receive(arrived)? }.map(Awaits::Member))
    }

    /// Runs the primitive: combines, posts, gives the slots back.
    ///
    /// # Safety
    /// - As [`Context::awaits`], which has answered `None`.
    #[inline]
    pub(super) unsafe fn run(&mut self) {
        // SAFETY: the caller's contract; credit and messages are there.
        unsafe { self.combine() };
        self.release();
    }

    fn protocol(&self) -> Protocol {
        self.operation.plan.choice.protocol
    }

    #[inline]
    pub(super) fn bytes(&self, elements: usize) -> usize {
        elements * self.operation.reducer.dtype().size_bytes()
    }

    /// Looks for the messages that have not arrived yet; lines are unpacked on the way. Returns the rank whose
    /// message is missing.
    #[inline]
    unsafe fn receive(&mut self, arrived: &mut u32) -> Result<Option<u32>, Error> {
        let (wanted, first) = match self.prim.recv {
            Recv::None | Recv::Peer(_) | Recv::PeerOutput(_) | Recv::Peers => return Ok(None),
            Recv::From(rank) | Recv::Pair(rank) => (1, rank),
            Recv::Pairs([one, _]) => (2, one),
            Recv::All | Recv::AllPairs => (self.nranks - 1, (self.rank + 1) % self.nranks),
            Recv::Relay(Turn { block, piece, turn }) => {
                let relay = connected(&mut self.lane.relay);
                let passed = relay.has_passed(block, piece, turn, self.operation.stamp)?;
                return Ok((!passed).then_some((piece + turn) % self.nranks));
            }
        };
        let (protocol, len) = (self.protocol(), self.bytes(self.prim.message));
        let stamp = self.operation.stamp;
        while *arrived < wanted {
            let from = match self.prim.recv {
                Recv::Pairs(pair) => pair[*arrived as usize],
                _ => (first + *arrived) % self.nranks,
            };
            let to = self.line_target(from);
            let receiver = receiver(self.lane, self.prim.recv, from);
            let here = match protocol {
                Protocol::Simple => receiver.is_posted(stamp)?,
                // SAFETY: the target has room for a message: scratch by `reserve`, the output by the plan's span.
                _ => unsafe { receiver.read_lines(protocol, stamp, to, len)? },
            };
            if !here {
                return Ok(Some(from));
            }
            *arrived += 1;
        }
        Ok(None)
    }

    /// Where the lines of a message are unpacked: in the output if all of them belong there as they are.
    #[inline]
    fn line_target(&mut self, from: u32) -> *mut u8 {
        match (self.protocol(), self.prim.own, self.prim.dst) {
            (Protocol::Simple, _, _) => std::ptr::null_mut(),
            (_, None, Some(span)) if self.prim.message == span.len => self.output(span),
            _ => self.scratch.message(self.channel, from),
        }
    }

    #[inline]
    pub(super) fn output(&self, span: Span) -> *mut u8 {
        debug_assert!(span.end() <= self.operation.plan.output, "{span:?} of {:?}", self.operation.plan);
        // The plan's spans lie inside the buffers, which the caller of the operation vouched for.
        self.operation.buffers.output.wrapping_add(self.bytes(span.at))
    }

    #[inline]
    pub(super) fn input(&self, span: Span) -> *const u8 {
        debug_assert!(span.end() <= self.operation.plan.input, "{span:?} of {:?}", self.operation.plan);
        self.operation.buffers.input.wrapping_add(self.bytes(span.at))
    }

    /// Stores the result in the output, in the slot to be sent, or both, and posts it.
    #[inline]
    unsafe fn combine(&mut self) {
        let (protocol, stamp) = (self.protocol(), self.operation.stamp);
        let bytes = self.bytes(self.prim.len);
        let streams = self.bytes(self.operation.plan.output) >= STREAMING_BYTES;
        let store = if streams { Store::Streaming } else { Store::Cached };
        let output = self.prim.dst.map(|span| Dst { ptr: self.output(span), store });
        // SAFETY: in each call below the caller's contract; slots and scratch hold a whole message.
        unsafe {
            match (self.prim.send, protocol) {
                (Send::Finish, _) => connected(&mut self.lane.relay).finish(),
                (Send::Relay(Turn { block, piece, turn }), _) => {
                    let at = connected(&mut self.lane.relay).piece(block, piece, true, |at, room| {
                        assert!(bytes <= room, "{bytes} bytes in a piece of {room}");
                        at
                    });
                    self.piece = at;
                    let piece_dst = Dst { ptr: at, store: Store::Cached };
                    match output {
                        Some(dst) => self.fill(&[piece_dst, dst]),
                        None => self.fill(&[piece_dst]),
                    }
                    connected(&mut self.lane.relay).pass(block, piece, turn, stamp);
                }
                (Send::None, _) => output.map_or((), |dst| self.fill(&[dst])),
                (Send::Pairs(to), Protocol::Simple) => self.post_to_two(to, output, bytes),
                (_, Protocol::Simple) => {
                    let slot = self.sender().write_slot(|to, room| {
                        assert!(bytes <= room, "{bytes} bytes in a slot of {room}");
                        Dst { ptr: to, store: Store::Cached }
                    });
                    match output {
                        Some(dst) => self.fill(&[slot, dst]),
                        None => self.fill(&[slot]),
                    }
                    self.sender().post(stamp);
                }
                (_, _) => {
                    let packed = match (output, self.prim.own) {
                        (Some(dst), _) => {
                            self.fill(&[dst]);
                            dst.ptr.cast_const()
                        }
                        // Own data that needs no change is packed from where it is.
                        (None, Some(Own::Span { span, .. }))
                            if self.prim.recv == Recv::None && !self.scales() =>
                        {
                            self.input(span)
                        }
                        (None, _) => {
                            let to = self.scratch.message(self.channel, self.rank);
                            self.fill(&[Dst { ptr: to, store: Store::Cached }]);
                            to.cast_const()
                        }
                    };
                    if let Send::Pairs(to) = self.prim.send {
                        for to in to {
                            let sender = connected(&mut self.lane.pair_out[to as usize]);
                            sender.send_lines(protocol, stamp, packed, bytes);
                        }
                    } else {
                        self.sender().send_lines(protocol, stamp, packed, bytes);
                    }
                }
            }
        }
    }

    /// Stores the result in two slots, and in the output if it belongs there, and posts it.
    unsafe fn post_to_two(&mut self, to: [u32; 2], output: Option<Dst>, bytes: usize) {
        let stamp = self.operation.stamp;
        // SAFETY: the caller's contract; a slot holds a whole message.
        unsafe {
            let slots = to.map(|to| {
                connected(&mut self.lane.pair_out[to as usize]).write_slot(|to, room| {
                    assert!(bytes <= room, "{bytes} bytes in a slot of {room}");
                    Dst { ptr: to, store: Store::Cached }
                })
            });
            self.fill(&slots);
            if let Some(dst) = output {
                // Two places are written at a time; the third gets what is in the cache by now.
                reduce::copy(slots[0].ptr.cast_const(), &[dst], bytes);
            }
        }
        to.into_iter().for_each(|to| connected(&mut self.lane.pair_out[to as usize]).post(stamp));
    }

    /// Whether reading own input applies the operation's scale.
    fn scales(&self) -> bool {
        self.operation.reducer.needs_pre_op()
    }

    /// Writes the primitive's result to every destination.
    #[inline]
    unsafe fn fill(&mut self, dsts: &[Dst]) {
        let prim = self.prim;
        if prim.len == 0 {
            return;
        }
        // SAFETY: sources are own data, posted slots or scratch, each valid for `prim.len` elements from the
        // part on; destinations are the output's span or a slot with credit. They overlap only where the
        // caller's output is the input, element for element.
        unsafe {
            match (prim.recv, prim.own) {
                (Recv::None, Some(own)) => self.copy_own(own, dsts),
                (Recv::Peers, _) => {
                    self.list_peers();
                    self.operation.reducer.fold(self.scratch.listed(), None, dsts, prim.len, prim.last);
                }
                (_, None) => {
                    let from = self.single_source();
                    if dsts.iter().any(|dst| dst.ptr.cast_const() == from) {
                        return; // Lines were unpacked where they belong.
                    }
                    reduce::copy(from, dsts, self.bytes(prim.len));
                }
                (_, Some(Own::Blocks(_))) => unreachable!("no primitive reduces several blocks"),
                (_, Some(Own::Span { span, .. })) => {
                    let own_index = self.list_sources(span);
                    let scaled = self.scales().then_some(own_index);
                    self.operation.reducer.fold(self.scratch.listed(), scaled, dsts, prim.len, prim.last);
                }
            }
        }
    }

    /// Copies own data, but for what is left out, scaled if the operation wants it.
    unsafe fn copy_own(&self, own: Own, dsts: &[Dst]) {
        // SAFETY: in each call the caller's contract; the parts lie one after the other in the message.
        unsafe {
            match own {
                Own::Span { span, hole } if hole.len == 0 => self.copy_part(span, 0, dsts),
                Own::Span { span, hole } => {
                    let behind = Span::new(hole.end(), span.end() - hole.end());
                    self.copy_part(Span::new(span.at, hole.at - span.at), 0, dsts);
                    self.copy_part(behind, behind.at - span.at, dsts);
                }
                Own::Blocks(Stretch { span, first, end }) => {
                    let mut at = 0;
                    for rank in first..end {
                        let part = self.operation.plan.call.place(span, rank);
                        if rank != self.rank {
                            self.copy_part(part, at, dsts);
                        }
                        at += part.len;
                    }
                }
            }
        }
    }

    /// Copies a part of the input to element `at` of the result.
    unsafe fn copy_part(&self, part: Span, at: usize, dsts: &[Dst]) {
        let (from, offset) = (self.input(part), self.bytes(at));
        let mut to = [Dst { ptr: std::ptr::null_mut(), store: Store::Cached }; 2];
        let mut used = 0;
        for dst in dsts {
            let ptr = dst.ptr.wrapping_add(offset);
            // In place, the output holds the data already.
            if ptr.cast_const() != from || self.scales() {
                to[used] = Dst { ptr, store: dst.store };
                used += 1;
            }
        }
        if part.len == 0 || used == 0 {
            return;
        }
        // SAFETY: the caller's contract; the part lies inside the input, and its place inside the result.
        unsafe {
            if self.scales() {
                self.operation.reducer.fold(&[from], Some(0), &to[..used], part.len, false);
            } else {
                reduce::copy(from, &to[..used], self.bytes(part.len));
            }
        }
    }

    /// The message of a primitive that receives one and adds nothing.
    fn single_source(&mut self) -> *const u8 {
        let from = match self.prim.recv {
            Recv::From(rank) | Recv::Pair(rank) => rank,
            Recv::Relay(turn) => return self.relayed(turn),
            Recv::Peer(rank) => return self.peer_input(rank, self.prim.part),
            Recv::PeerOutput(rank) => return self.peer_output(rank, self.prim.part),
            Recv::None | Recv::All | Recv::AllPairs | Recv::Pairs(_) | Recv::Peers => {
                unreachable!("no such primitive has an output")
            }
        };
        self.source(from)
    }

    /// A piece of the relay: the one that this primitive adds to, or a finished one.
    fn relayed(&mut self, Turn { block, piece, .. }: Turn) -> *const u8 {
        if matches!(self.prim.send, Send::Relay(_)) {
            return self.piece.cast_const();
        }
        // SAFETY: `receive` found the last turn passed, and the block is finished only later.
        unsafe { connected(&mut self.lane.relay).piece(block, piece, false, |at, _| at.cast_const()) }
    }

    fn source(&mut self, from: u32) -> *const u8 {
        let start = match self.protocol() {
            // SAFETY: `receive` found the message posted, and it is released only after `combine`.
            Protocol::Simple => unsafe { receiver(self.lane, self.prim.recv, from).read_slot(|at, _| at) },
            _ => self.line_target(from).cast_const(),
        };
        start.wrapping_add(self.bytes(self.prim.part))
    }

    /// Lists messages and own data in the order of reduction; returns the position of own data.
    ///
    /// From all: rank order, the same on every rank. From one rank or two: the received values first.
    #[inline]
    fn list_sources(&mut self, own: Span) -> usize {
        self.scratch.start_list();
        let own_address = self.input(own);
        if matches!(self.prim.recv, Recv::All | Recv::AllPairs) {
            for rank in 0..self.nranks {
                let address = if rank == self.rank { own_address } else { self.source(rank) };
                self.scratch.list(address);
            }
            self.rank as usize
        } else if let Recv::Pairs(pair) = self.prim.recv {
            for from in pair {
                let address = self.source(from);
                self.scratch.list(address);
            }
            self.scratch.list(own_address);
            2
        } else {
            let received = self.single_source();
            self.scratch.list(received);
            self.scratch.list(own_address);
            1
        }
    }

    /// Gives back the slots that were read.
    #[inline]
    fn release(&mut self) {
        let protocol = self.protocol();
        match self.prim.recv {
            Recv::None | Recv::Peer(_) | Recv::PeerOutput(_) | Recv::Peers => {}
            Recv::Relay(Turn { block, piece, .. }) => connected(&mut self.lane.relay).give_back(block, piece),
            Recv::Pair(rank) => connected(&mut self.lane.pair_in[rank as usize]).release(protocol),
            Recv::Pairs(pair) => {
                let ends = pair.into_iter();
                ends.for_each(|rank| connected(&mut self.lane.pair_in[rank as usize]).release(protocol));
            }
            Recv::From(rank) => connected(&mut self.lane.fan_in[rank as usize]).release(protocol),
            Recv::All => self.lane.fan_in.iter_mut().flatten().for_each(|r| r.release(protocol)),
            Recv::AllPairs => {
                let others = (0..self.nranks).filter(|rank| *rank != self.rank);
                others.for_each(|rank| connected(&mut self.lane.pair_in[rank as usize]).release(protocol));
            }
        }
    }

    fn sender(&mut self) -> &mut Sender {
        match self.prim.send {
            Send::Pair(to) => connected(&mut self.lane.pair_out[to as usize]),
            _ => connected(&mut self.lane.fan_out),
        }
    }
}

#[inline]
fn receiver(lane: &mut Lane, recv: Recv, from: u32) -> &mut Receiver {
    match recv {
        Recv::Pair(_) | Recv::Pairs(_) | Recv::AllPairs => connected(&mut lane.pair_in[from as usize]),
        _ => connected(&mut lane.fan_in[from as usize]),
    }
}

#[inline]
pub(super) fn connected<T>(end: &mut Option<T>) -> &mut T {
    end.as_mut().expect("the operation's connections are made before it is polled")
}
