//! The simulated machine: fibers, their scheduler, and memory whose stores become visible late.
//!
//! ```text
//!   fiber 0 .. n   a rank each, and threads beside them          corosensei
//!      | every access to shared memory, every sleep
//!   Machine        the `World` of shmring                        this file
//!      | who runs next, what becomes visible, what time it is
//!   State          fiber, buffer, knobs, trace                   state.rs
//! ```

mod buffer;
mod fiber;
mod knobs;
mod state;
mod trace;

pub use fiber::{Blow, Fiber, Start, Status};
pub use knobs::{Costs, Knobs, Mode, Policy, Stores};

use crate::rng::Rng;
use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use shmring::layout::SegmentHeader;
use shmring::sim::{self, Pause, Word, World};
use shmring::sync::Ordering;
use state::{Lent, State, Turn};
use std::any::Any;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::rc::Rc;
use std::time::{Duration, Instant};
use trace::{Trace, What};

/// What a fiber runs.
pub type Body = Box<dyn FnOnce()>;

/// Bytes of a fiber's stack. Without optimisation one function of the kernels alone takes 360 KiB.
const STACK: usize = 1 << 20;
/// What memory reads like once it has been given back.
const POISON: u64 = 0xa5a5_a5a5_a5a5_a5a5;

thread_local! {
    /// Stacks of ended fibers, for the next ones.
    static STACKS: RefCell<Vec<DefaultStack>> = const { RefCell::new(Vec::new()) };
}

/// A machine.
pub struct Machine {
    state: RefCell<State>,
    /// What threads run that were started meanwhile.
    spawned: RefCell<Vec<Body>>,
    /// The moment that simulated time counts from.
    base: Instant,
    /// Held for its `Drop`: it keeps the segment mapped until the last hidden store has reached it.
    _segment: Box<dyn Any>,
}

impl std::fmt::Debug for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Machine").field("state", &self.state).finish_non_exhaustive()
    }
}

impl Machine {
    /// A machine for `fibers`; `trace` is how many events it remembers.
    ///
    /// `segment` keeps the segment that this thread has made last; it is the one that the fibers share.
    pub fn new(knobs: Knobs, rng: Rng, fibers: Vec<Fiber>, segment: Box<dyn Any>, trace: usize) -> Rc<Self> {
        let mut state = State::new(knobs, rng, fibers);
        state.abort_address = sim::last_mapped().map(|(base, _)| base + SegmentHeader::ABORT_OFFSET);
        state.trace = (trace > 0).then(|| Trace::new(trace));
        Rc::new(Self {
            state: RefCell::new(state),
            spawned: RefCell::default(),
            base: Instant::now(),
            _segment: segment,
        })
    }

    /// Has a thread that is started meanwhile, the `which`th from 0, stop at one of its accesses for `time`
    /// nanoseconds.
    pub fn stall_servant(&self, which: u64, step: u64, time: u64) {
        self.state.borrow_mut().stalled_servant = Some((which, step, time));
    }

    /// Runs one body per fiber until all have ended or something is wrong.
    pub fn run(self: &Rc<Self>, bodies: Vec<Body>) {
        let mut fibers: Vec<_> =
            bodies.into_iter().enumerate().map(|(index, body)| self.start(index, body)).collect();
        let world: Rc<Self> = Rc::clone(self);
        sim::install(&*world, || {
            loop {
                let turn = self.state.borrow_mut().turn();
                let Turn::Run(index) = turn else { break };
                for body in std::mem::take(&mut *self.spawned.borrow_mut()) {
                    fibers.push(self.start(fibers.len(), body));
                }
                let fiber = &mut fibers[index];
                match catch_unwind(AssertUnwindSafe(|| fiber.resume(()))) {
                    Ok(CoroutineResult::Yield(())) => {}
                    Ok(CoroutineResult::Return(())) => self.end(index, Status::Done),
                    Err(panic) => {
                        self.end(index, Status::Done);
                        let text = panic_text(&*panic);
                        self.fail(|| format!("fiber {index} panicked: {text}"));
                    }
                }
            }
            let mut state = self.state.borrow_mut();
            for index in 0..state.fibers.len() {
                state.drain(index);
            }
        });
        // A run that was broken off leaves its streams in the middle of a call, which catches panics and would go on.
        let is_broken = self.failure().is_some() && self.state.borrow().fibers.iter().any(|f| f.serves);
        // Those that have not ended are unwound outside of the world: their destructors run as in a normal process.
        for mut fiber in fibers {
            if is_broken {
                std::mem::forget(fiber);
                continue;
            }
            if fiber.started() && !fiber.done() {
                fiber.force_unwind();
            }
            if fiber.done() {
                STACKS.with_borrow_mut(|stacks| stacks.push(fiber.into_stack()));
            }
        }
    }

    fn start(self: &Rc<Self>, index: usize, body: Body) -> Coroutine<(), (), ()> {
        let machine: Rc<Self> = Rc::clone(self);
        let stack = STACKS
            .with_borrow_mut(Vec::pop)
            .unwrap_or_else(|| DefaultStack::new(STACK).expect("there is memory for the stack of a fiber"));
        Coroutine::with_stack(stack, move |yielder: &Yielder<(), ()>, ()| {
            machine.state.borrow_mut().fibers[index].yielder = Some(NonNull::from(yielder));
            body();
        })
    }

    fn end(&self, index: usize, status: Status) {
        let mut state = self.state.borrow_mut();
        state.note(What::Note("has ended"));
        state.fibers[index].ended_at = Some(state.clock);
        state.fibers[index].yielder = None;
        state.set_status(index, status);
    }

    /// Ends the run for a reason.
    pub fn fail(&self, what: impl FnOnce() -> String) {
        self.state.borrow_mut().fail(what);
    }

    /// Why the run has ended early, if it has.
    pub fn failure(&self) -> Option<String> {
        self.state.borrow().failure.clone()
    }

    /// Simulated time since the start, in nanoseconds.
    pub fn clock(&self) -> u64 {
        self.state.borrow().clock
    }

    /// Accesses of all fibers so far.
    pub fn steps(&self) -> u64 {
        self.state.borrow().steps
    }

    /// When a fiber's blow fell and when the fiber ended, in nanoseconds.
    pub fn fate(&self, index: usize) -> (Option<u64>, Option<u64>) {
        let state = self.state.borrow();
        (state.fibers[index].struck_at, state.fibers[index].ended_at)
    }

    /// The last events, one a line.
    pub fn events(&self) -> String {
        let state = self.state.borrow();
        let label = |index: usize| match state.fibers[index].is_rank {
            true => format!("rank {index}"),
            false if state.fibers[index].serves => format!("driver {}", state.fibers[index].member),
            false => "aborter".into(),
        };
        state.trace.as_ref().map_or_else(String::new, |trace| trace.render(sim::last_mapped(), label))
    }

    /// A scheduling point.
    #[inline]
    fn point(&self, cost: impl FnOnce(&Costs) -> u64) {
        let switch = {
            let mut state = self.state.borrow_mut();
            let cost = cost(&state.knobs.costs);
            state.step(cost)
        };
        if switch {
            self.give_turn_back();
        }
    }

    /// The main loop goes on; returns when it is this fiber's turn again.
    fn give_turn_back(&self) {
        let yielder = {
            let state = self.state.borrow();
            state.fibers[state.current].yielder
        };
        if let Some(yielder) = yielder {
            // SAFETY: the yielder lives on the stack of the running fiber, which is the one that calls this.
            unsafe { yielder.as_ref() }.suspend(());
        }
    }

    /// The running fiber sleeps as `status` says, and goes on when it has been made ready again.
    fn block(&self, status: Status) {
        {
            let mut state = self.state.borrow_mut();
            let current = state.current;
            state.set_status(current, status);
        }
        self.give_turn_back();
    }

    fn after(&self, time: Duration) -> u64 {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.clock().saturating_add(nanos)
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a message").into()
}

impl World for Machine {
    fn load(&self, word: Word, order: Option<Ordering>) -> u64 {
        self.point(|costs| costs.access);
        let mut state = self.state.borrow_mut();
        let value = state.read(word);
        state.note(What::Load(word, order, value));
        value
    }

    fn store(&self, word: Word, value: u64, order: Option<Ordering>) {
        self.point(|costs| costs.access);
        self.state.borrow_mut().write(word, value, order);
    }

    fn update(&self, word: Word, order: Ordering, change: &mut dyn FnMut(u64) -> Option<u64>) -> u64 {
        self.point(|costs| costs.access);
        self.state.borrow_mut().update(word, order, change)
    }

    fn fence(&self, order: Ordering) {
        self.point(|costs| costs.access);
        let mut state = self.state.borrow_mut();
        state.note(What::Fence(order));
        state.fence(order);
    }

    fn peek(&self, word: Word) -> u64 {
        self.state.borrow().read(word)
    }

    fn lend(&self, words: &[Word], write: bool) -> *mut u8 {
        let load = |word: &Word| if write { self.peek(*word) } else { self.load(*word, None) };
        let before: Vec<u64> = words.iter().map(load).collect();
        let mut copy = before.clone();
        let address = copy.as_mut_ptr();
        let mut state = self.state.borrow_mut();
        let fiber = state.current;
        state.lent.push(Lent { fiber, words: words.to_vec(), before, copy, write });
        address.cast()
    }

    fn give_back(&self, address: usize) {
        loop {
            let mut state = self.state.borrow_mut();
            let current = state.current;
            let same = |lent: &Lent| {
                lent.fiber == current && lent.words.first().is_some_and(|word| word.address() == address)
            };
            let Some(index) = state.lent.iter().position(same) else { return };
            let Lent { words, before, mut copy, write, .. } = state.lent.swap_remove(index);
            drop(state);
            if write {
                for (at, word) in words.iter().enumerate().filter(|(at, _)| before[*at] != copy[*at]) {
                    self.store(*word, copy[at], None);
                }
            } else if let Some(word) =
                words.iter().zip(&before).find(|(word, old)| self.peek(**word) != **old)
            {
                let name = trace::name_of(*word.0, sim::last_mapped());
                self.fail(|| format!("{name} was written while fiber {current} read it"));
            }
            copy.fill(POISON);
            self.state.borrow_mut().dead.push(copy);
        }
    }

    fn pause(&self, pause: Pause) {
        let switch = {
            let mut state = self.state.borrow_mut();
            let cost =
                if pause == Pause::Yield { state.knobs.costs.yielding } else { 2 * state.knobs.costs.access };
            state.step(cost) | state.pause()
        };
        if switch {
            self.give_turn_back();
        }
    }

    fn futex_wait(&self, word: Word, seen: u32, timeout: Duration) {
        self.futex_wait_any(&[(word, seen)], timeout);
    }

    fn futex_wait_any(&self, words: &[(Word, u32)], timeout: Duration) {
        self.point(|costs| costs.call);
        // The kernel compares the words one by one, but is woken by those that it has compared: as if at once.
        let goes_on = {
            let mut state = self.state.borrow_mut();
            let spurious = state.knobs.spurious;
            words.iter().any(|(word, seen)| state.read(*word) != u64::from(*seen))
                || state.rng.happens(spurious)
        };
        if !goes_on {
            let until = self.after(timeout);
            let mut state = self.state.borrow_mut();
            words.iter().for_each(|(word, _)| state.note(What::Sleep(*word)));
            let current = state.current;
            state.fibers[current].sleeps_on = words.iter().map(|(word, _)| word.address()).collect();
            drop(state);
            self.block(Status::Futex(until));
        }
    }

    fn futex_wake(&self, word: Word) {
        self.point(|costs| costs.call);
        let mut state = self.state.borrow_mut();
        state.note(What::Wake(word));
        for index in 0..state.fibers.len() {
            let fiber = &state.fibers[index];
            if matches!(fiber.status, Status::Futex(_)) && fiber.sleeps_on.contains(&word.address()) {
                state.set_status(index, Status::Ready);
            }
        }
    }

    fn now(&self) -> Instant {
        self.base + Duration::from_nanos(self.clock())
    }

    fn sleep(&self, time: Duration) {
        let until = self.after(time);
        self.block(Status::Asleep(until));
    }

    fn cores(&self) -> usize {
        self.state.borrow().knobs.cores
    }

    fn running(&self) -> u32 {
        let state = self.state.borrow();
        state.fibers[state.current].member
    }

    fn thread(&self) -> u32 {
        self.state.borrow().current as u32
    }

    fn spawn(&self, body: Body) {
        self.state.borrow_mut().add_servant();
        self.spawned.borrow_mut().push(body);
    }

    fn ended(&self) -> Vec<u32> {
        let mut state = self.state.borrow_mut();
        let over = |fiber: &Fiber| fiber.is_rank && matches!(fiber.status, Status::Dead | Status::Done);
        let ended: Vec<usize> = (0..state.fibers.len()).filter(|i| over(&state.fibers[*i])).collect();
        for index in &ended {
            // The kernel tells of a process's end after its last store.
            state.drain(*index);
        }
        ended.into_iter().map(|index| index as u32).collect()
    }

    fn is_stopped(&self, member: u32) -> bool {
        self.state.borrow().fibers[member as usize].stalled_until.is_some()
    }
}

#[cfg(test)]
mod tests;
