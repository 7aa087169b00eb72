//! Where the ranks' buffers are: what they tell each other before an operation without copies.
//!
//! ```text
//!  begin    every rank    notice: window and offset of its input and output, 0 if they are in none
//!           all-gather of the notices, one line from each rank
//!  settle   every rank    sees the same notices, so all choose alike:
//!                         the plan without copies if every buffer that it needs is registered, the ordinary one if not
//! ```
//!
//! Only communicators with windows do this, and only in operations that may be done without copies: both are the same
//! on every rank, since registering is collective. What a notice says is compared with the length of the window that it
//! names, on every rank with the same result.

use crate::config::Config;
use crate::executor::{Buffers, Exchange};
use crate::plan::{Call, Choice, Kind, Limits, Plan, select, without_copies};
use crate::reduce::{DType, ReduceOp, Reducer};
use crate::window::Mapped;
use std::cell::Cell;
use std::sync::Arc;

/// Words of a notice: window and offset of the input, and of the output.
const WORDS: usize = 4;

/// A communicator's windows, and what its ranks have said of the operation that runs.
#[derive(Debug)]
pub(crate) struct Notices {
    /// By number; `None` where one was taken back.
    windows: Vec<Option<Arc<Mapped>>>,
    rank: u32,
    nranks: u32,
    /// How notices are gathered; made with the first window.
    gather: Option<Gather>,
    /// Where the buffers of what runs are, if all are registered.
    peers: Vec<Buffers>,
    /// The plan of the last call that was run without copies.
    plan: Option<Plan>,
}

#[derive(Debug)]
struct Gather {
    plan: Plan,
    exchange: Option<Exchange>,
    reducer: Reducer,
    own: Box<[u64; WORDS]>,
    /// Written by the executor, through pointers.
    all: Box<[Cell<u64>]>,
}

// SAFETY: the addresses of peers' buffers are used as `Running`'s are, by whichever thread advances the operation.
unsafe impl Send for Notices {}

/// What gathers notices: a plan, how it is run, its reduction, its buffers.
pub(super) type Gathering<'a> = (&'a Plan, Option<&'a Exchange>, &'a Reducer, Buffers);

impl Notices {
    pub(super) fn new(rank: u32, nranks: u32) -> Self {
        Self { windows: Vec::new(), rank, nranks, gather: None, peers: Vec::new(), plan: None }
    }

    /// Adds a window that every rank adds now; its number.
    pub(super) fn add(&mut self, window: Arc<Mapped>, config: &Config, limits: &Limits) -> usize {
        let Self { rank, nranks, .. } = *self;
        self.gather.get_or_insert_with(|| {
            let call = Call::new(Kind::AllGather, WORDS, DType::U64, ReduceOp::Sum);
            // Not by an algorithm or protocol that was asked for: it is no operation of the program.
            let config = Config { algorithm: None, protocol: None, ..config.clone() };
            let choice = select(&call, &config, limits);
            let plan = Plan::new(call, choice, rank, nranks);
            let reducer = Reducer::new(DType::U64, ReduceOp::Sum, nranks as usize);
            Gather {
                exchange: Exchange::of(&plan, &reducer, rank, nranks),
                plan,
                reducer,
                own: Box::new([0; WORDS]),
                all: vec![Cell::new(0); WORDS * nranks as usize].into(),
            }
        });
        self.windows.push(Some(window));
        self.windows.len() - 1
    }

    /// Takes a window back, as every rank does now.
    pub(super) fn remove(&mut self, number: usize) {
        if let Some(window) = self.windows.get_mut(number) {
            *window = None;
        }
    }

    /// Whether the ranks tell each other where their buffers are before this call. Once there was a window they do, so
    /// that all do the same.
    #[inline]
    pub(super) fn concern(&self, call: &Call, config: &Config) -> bool {
        self.gather.is_some() && without_copies(call, config, self.nranks).is_some()
    }

    /// Prepares this rank's notice of its buffers, which it uses in `call`.
    pub(super) fn write(&mut self, call: &Call, buffers: Buffers) {
        let (input, output) = self.bytes(call, self.rank);
        let place = |address: *const u8, bytes: usize| {
            let found = (1u64..).zip(&self.windows).find_map(|(number, window)| {
                Some([number, window.as_ref()?.offset_of(address, bytes)? as u64])
            });
            found.unwrap_or([0, 0])
        };
        // What comes from a rank would take the place of what is yet to be read by it.
        let collides = call.kind == Kind::AllToAll && buffers.input == buffers.output.cast_const();
        let input = if collides { [0, 0] } else { place(buffers.input, input) };
        let output = place(buffers.output.cast_const(), output);
        if let Some(gather) = &mut self.gather {
            *gather.own = [input[0], input[1], output[0], output[1]];
        }
    }

    /// What gathers the notices.
    #[inline]
    pub(super) fn gathering(&self) -> Option<Gathering<'_>> {
        let Gather { plan, exchange, reducer, own, all } = self.gather.as_ref()?;
        // Cells may be written behind a shared reference; the turn that the engine is in keeps others away.
        let output = all.as_ptr().cast_mut().cast();
        Some((plan, exchange.as_ref(), reducer, Buffers { input: own.as_ptr().cast(), output }))
    }

    /// Reads the notices: the plan without copies if every buffer that it needs is registered.
    pub(super) fn settle(&mut self, call: &Call, config: &Config, own: Buffers) -> bool {
        self.peers.clear();
        let Some(choice) = without_copies(call, config, self.nranks) else { return false };
        for rank in 0..self.nranks {
            let Some(peer) = self.locate(call, rank) else { return false };
            self.peers.push(peer);
        }
        // Its own buffers it knows by the addresses that it was given.
        self.peers[self.rank as usize] = own;
        if self.plan.as_ref().is_none_or(|plan| plan.call != *call) {
            self.plan = Some(Plan::new(call.clone(), choice, self.rank, self.nranks));
        }
        true
    }

    /// Where the buffers of `rank` are mapped here; `None` if one that the others need is not registered.
    fn locate(&self, call: &Call, rank: u32) -> Option<Buffers> {
        let gather = self.gather.as_ref()?;
        let [input, from, output, to] = gather.all.chunks_exact(WORDS).nth(rank as usize)? else {
            return None;
        };
        let [input, from, output, to] = [input, from, output, to].map(Cell::get);
        let (reads, writes) = self.bytes(call, rank);
        let find = |number: u64, offset: u64, bytes: usize| {
            let index = usize::try_from(number.checked_sub(1)?).ok()?;
            self.windows.get(index)?.as_ref()?.address(rank, offset, bytes)
        };
        let nothing = std::ptr::null_mut();
        let input = if reads == 0 { nothing } else { find(input, from, reads)? };
        // Of an all-reduce the others read the output too. Of all other kinds only its own rank uses it.
        let output = if call.kind == Kind::AllReduce { find(output, to, writes)? } else { nothing };
        Some(Buffers { input, output })
    }

    /// Bytes that `rank` reads and writes in a call.
    fn bytes(&self, call: &Call, rank: u32) -> (usize, usize) {
        let (input, output) = call.buffers(rank, self.nranks);
        (input * call.dtype.size_bytes(), output * call.dtype.size_bytes())
    }

    /// The plan without copies that `settle` has made or kept, and where everybody's buffers are.
    #[inline]
    pub(super) fn direct(&self) -> Option<(&Plan, &[Buffers])> {
        Some((self.plan.as_ref()?, &self.peers))
    }

    /// How the last call without copies was run.
    pub(super) fn choice(&self) -> Option<Choice> {
        self.plan.as_ref().map(|plan| plan.choice)
    }
}
