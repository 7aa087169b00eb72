//! What the machine knows: fibers, time, memory; and each rule of who runs next and what becomes visible.

use super::buffer::{Pending, is_release};
use super::fiber::{Blow, Fiber, Start, Status};
use super::knobs::{Knobs, Policy, Stores};
use super::trace::{Trace, What};
use crate::rng::Rng;
use shmring::sim::Word;
use shmring::sync::Ordering;

/// Accesses after which a run is taken to have no end.
const MOST_STEPS: u64 = 20_000_000;

/// Sleeps that are longer, in nanoseconds, wait for work and for nothing else.
const IDLE: u64 = 600_000_000_000;

/// What the main loop does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// This fiber runs.
    Run(usize),
    /// Nobody is left to run.
    Over,
}

/// Memory that was handed out to a fiber.
#[derive(Debug)]
pub(super) struct Lent {
    /// Who has it.
    pub(super) fiber: usize,
    /// The words it stands for.
    pub(super) words: Vec<Word>,
    /// Their values when it was handed out.
    pub(super) before: Vec<u64>,
    /// What the fiber reads and writes.
    pub(super) copy: Vec<u64>,
    /// Whether the fiber may write it.
    pub(super) write: bool,
}

/// The machine's state between two accesses.
#[derive(Debug)]
pub(super) struct State {
    /// How it behaves.
    pub(super) knobs: Knobs,
    /// Every draw of the run.
    pub(super) rng: Rng,
    /// Simulated time in nanoseconds.
    pub(super) clock: u64,
    /// Accesses of all fibers.
    pub(super) steps: u64,
    /// The running fiber.
    pub(super) current: usize,
    /// The one that runs next.
    next: usize,
    /// All fibers, ranks first.
    pub(super) fibers: Vec<Fiber>,
    /// Memory that fibers hold.
    pub(super) lent: Vec<Lent>,
    /// Memory that they have given back; kept, so that a late access reaches nothing else.
    pub(super) dead: Vec<Vec<u64>>,
    /// What is wrong, once something is.
    pub(super) failure: Option<String>,
    /// The last events, when they are wanted.
    pub(super) trace: Option<Trace>,
    /// Where the word lies that says why the communicator has ended.
    pub(super) abort_address: Option<usize>,
    /// Who has set it.
    ended_by: Option<usize>,
    /// Stores that wait in buffers.
    hidden: usize,
    /// The earliest moment at which something happens by itself.
    next_event: u64,
    /// The least number of accesses at which a fiber starts.
    next_start: u64,
    /// The lowest priority given so far.
    lowest: i64,
    /// Which servant is stalled, at which of its accesses, and for how long.
    pub(super) stalled_servant: Option<(u64, u64, u64)>,
}

impl State {
    /// A machine before its first access.
    pub(super) fn new(knobs: Knobs, mut rng: Rng, mut fibers: Vec<Fiber>) -> Self {
        for (index, fiber) in fibers.iter_mut().enumerate() {
            fiber.priority = rng.below(1 << 20) as i64;
            fiber.member = index as u32;
        }
        let mut state = Self {
            knobs,
            rng,
            clock: 0,
            steps: 0,
            current: 0,
            next: 0,
            fibers,
            lent: Vec::new(),
            dead: Vec::new(),
            failure: None,
            trace: None,
            abort_address: None,
            ended_by: None,
            hidden: 0,
            next_event: 0,
            next_start: 0,
            lowest: 0,
            stalled_servant: None,
        };
        state.find_next();
        state
    }

    /// Notes an event of the running fiber.
    #[inline]
    pub(super) fn note(&mut self, what: What) {
        self.note_of(self.current, what);
    }

    fn note_of(&mut self, fiber: usize, what: What) {
        if let Some(trace) = &mut self.trace {
            trace.add(self.clock, fiber, what);
        }
    }

    /// The first thing that goes wrong ends the run.
    pub(super) fn fail(&mut self, what: impl FnOnce() -> String) {
        if self.failure.is_none() {
            self.failure = Some(what());
        }
    }

    /// The running fiber comes to an access that costs `cost`: time passes, stores become visible, blows fall.
    /// Whether it must give its turn back.
    #[inline]
    pub(super) fn step(&mut self, cost: u64) -> bool {
        self.steps += 1;
        self.clock += cost;
        if self.clock >= self.next_event || self.steps >= self.next_start {
            self.advance();
        }
        if self.hidden > 0
            && let Stores::Late { commit, .. } = self.knobs.stores
            && self.rng.happens(commit)
        {
            self.commit_one();
        }
        let fiber = &mut self.fibers[self.current];
        fiber.steps += 1;
        if fiber.blow.is_some_and(|(at, _)| at == fiber.steps) {
            self.strike();
        }
        let next = match self.knobs.policy {
            Policy::Walk(switch) | Policy::Lame { switch, .. } => self.rng.happens(switch),
            Policy::Priorities(fall) => {
                if self.rng.happens(fall) {
                    self.demote();
                }
                true
            }
        };
        if next || !self.fibers[self.current].is_ready() {
            self.choose(false);
        }
        self.must_give_way()
    }

    /// Whether the running fiber must give its turn back.
    pub(super) fn must_give_way(&self) -> bool {
        self.next != self.current || !self.fibers[self.current].is_ready() || self.failure.is_some()
    }

    /// The running fiber lets others run. Whether it must give its turn back.
    pub(super) fn pause(&mut self) -> bool {
        self.demote();
        self.choose(true);
        self.must_give_way()
    }

    fn demote(&mut self) {
        self.lowest -= 1;
        self.fibers[self.current].priority = self.lowest;
    }

    /// Picks the next fiber among those that can run; leaves everything as it is when none can.
    fn choose(&mut self, other: bool) {
        let current = self.current;
        let ready = |(index, fiber): &(usize, &Fiber)| fiber.is_ready() && !(other && *index == current);
        let count = self.fibers.iter().enumerate().filter(ready).count();
        if count == 0 {
            return;
        }
        let chosen = match self.knobs.policy {
            Policy::Priorities(_) => {
                let all = self.fibers.iter().enumerate().filter(ready);
                all.max_by_key(|(_, fiber)| fiber.priority).map(|(index, _)| index)
            }
            Policy::Walk(_) | Policy::Lame { .. } => {
                let draw = self.rng.below(count as u64) as usize;
                self.fibers.iter().enumerate().filter(ready).nth(draw).map(|(index, _)| index)
            }
        };
        let Some(chosen) = chosen else { return };
        if let Policy::Lame { fiber, weight, .. } = self.knobs.policy
            && chosen == fiber
            && count > 1
            && self.rng.below(weight.into()) != 0
        {
            return self.choose(other);
        }
        self.next = chosen;
    }

    /// The blow that was meant for this access falls on the running fiber.
    fn strike(&mut self) {
        let clock = self.clock;
        let fiber = &mut self.fibers[self.current];
        let Some((_, blow)) = fiber.blow.take() else { return };
        fiber.struck_at = Some(clock);
        match blow {
            Blow::Death { known_after } => {
                fiber.status = Status::Dying(clock + known_after);
                self.note(What::Note("DIES"));
            }
            Blow::Stall(time) => {
                fiber.stalled_until = Some(clock + time);
                self.note(What::Note("IS STALLED"));
            }
        }
        self.find_next();
    }

    /// Lets everything happen whose time has come.
    fn advance(&mut self) {
        let (clock, steps) = (self.clock, self.steps);
        for index in 0..self.fibers.len() {
            let fiber = &mut self.fibers[index];
            if fiber.stalled_until.is_some_and(|until| until <= clock) {
                fiber.stalled_until = None;
                self.note_of(index, What::Note("goes on after its stall"));
            }
            let fiber = &mut self.fibers[index];
            match fiber.status {
                Status::Waiting(Start::At(at)) if at <= clock => fiber.status = Status::Ready,
                Status::Waiting(Start::After(count)) if count <= steps => fiber.status = Status::Ready,
                Status::Asleep(until) if until <= clock => fiber.status = Status::Ready,
                Status::Futex(until) if until <= clock => {
                    fiber.status = Status::Ready;
                    self.note_of(index, What::Note("its sleep times out"));
                }
                Status::Dying(known) if known <= clock => {
                    fiber.status = Status::Dead;
                    // The kernel tells of a process's end after its last store.
                    self.drain(index);
                    self.note_of(index, What::Note("is known to be dead"));
                }
                _ => {}
            }
        }
        self.find_next();
    }

    /// Adds a thread of the running fiber's member.
    pub(super) fn add_servant(&mut self) {
        let servants = self.fibers.iter().filter(|fiber| fiber.serves).count() as u64;
        let mut fiber = Fiber::servant(self.fibers[self.current].member);
        if let Some((which, step, time)) = self.stalled_servant
            && which == servants
        {
            fiber.blow = Some((step, Blow::Stall(time)));
        }
        fiber.priority = self.rng.below(1 << 20) as i64;
        self.fibers.push(fiber);
        self.find_next();
    }

    fn find_next(&mut self) {
        self.next_event = self.fibers.iter().filter_map(Fiber::next_event).min().unwrap_or(u64::MAX);
        let starts = self.fibers.iter().filter_map(|fiber| match fiber.status {
            Status::Waiting(Start::After(count)) => Some(count),
            _ => None,
        });
        self.next_start = starts.min().unwrap_or(u64::MAX);
    }

    /// Changes what a fiber does.
    pub(super) fn set_status(&mut self, fiber: usize, status: Status) {
        self.fibers[fiber].status = status;
        self.find_next();
    }

    /// Who runs when the running fiber has given its turn back; time jumps when nobody can.
    pub(super) fn turn(&mut self) -> Turn {
        while self.failure.is_none() {
            if self.fibers[self.next].is_ready() {
                if self.steps > MOST_STEPS {
                    self.fail(|| format!("no end after {MOST_STEPS} accesses"));
                    break;
                }
                self.current = self.next;
                return Turn::Run(self.current);
            }
            self.choose(false);
            if !self.fibers[self.next].is_ready() && !self.idle() {
                break;
            }
        }
        Turn::Over
    }

    /// Nobody can run: what is late happens now. False when nothing is.
    fn idle(&mut self) -> bool {
        for fiber in 0..self.fibers.len() {
            self.drain(fiber);
        }
        if self.next_start != u64::MAX {
            self.steps = self.steps.max(self.next_start);
            self.advance();
            return true;
        }
        // Those that serve sleep until somebody wants something.
        if self.next_event == u64::MAX || self.fibers.iter().all(Fiber::is_over) {
            return false;
        }
        self.look_for_lost_wake_up();
        self.clock = self.clock.max(self.next_event);
        self.advance();
        true
    }

    /// Nobody can run and no store is hidden. If nobody is dead, stopped or yet to come either, whoever sleeps now
    /// would sleep until its time is over. So would a rank that sleeps although another has ended the communicator.
    fn look_for_lost_wake_up(&mut self) {
        let told = self.ended_by.is_some_and(|by| {
            let fiber = &self.fibers[by];
            fiber.stalled_until.is_none() && !matches!(fiber.status, Status::Dying(_) | Status::Dead)
        });
        if !told && self.fibers.iter().any(Fiber::is_held) {
            return;
        }
        // A servant without work sleeps for an hour.
        let has_work = |until: u64| until < self.clock.saturating_add(IDLE);
        let sleeps = |fiber: &Fiber| match fiber.status {
            Status::Futex(until) => fiber.stalled_until.is_none() && (!fiber.serves || has_work(until)),
            _ => false,
        };
        let asleep: Vec<usize> = (0..self.fibers.len()).filter(|i| sleeps(&self.fibers[*i])).collect();
        if !asleep.is_empty() {
            let why = if told { "the communicator has ended" } else { "nobody is left to wake them" };
            self.fail(|| format!("lost wake-up: fibers {asleep:?} sleep and {why}"));
        }
    }

    /// A fence of the running fiber.
    pub(super) fn fence(&mut self, order: Ordering) {
        match order {
            Ordering::SeqCst => self.drain(self.current),
            Ordering::Release | Ordering::AcqRel => self.fibers[self.current].buffer.fence(),
            _ => {}
        }
    }

    /// Memory as the running fiber sees it.
    #[inline]
    pub(super) fn read(&self, word: Word) -> u64 {
        let buffer = &self.fibers[self.current].buffer;
        let own = if buffer.is_empty() { None } else { buffer.forward(word) };
        // SAFETY: words lie in the segment, which the machine keeps mapped; all fibers share this thread.
        own.unwrap_or_else(|| unsafe { word.read() })
    }

    /// A store of the running fiber.
    #[inline]
    pub(super) fn write(&mut self, word: Word, value: u64, order: Option<Ordering>) {
        match self.knobs.stores {
            Stores::AtOnce => {
                self.note(What::Store(word, order, value));
                // SAFETY: as in `read`.
                unsafe { word.write(value) };
            }
            Stores::Late { room, .. } => {
                self.note(What::Buffered(word, order, value));
                self.hidden += 1;
                let buffer = &mut self.fibers[self.current].buffer;
                buffer.push(Pending { word, value, release: order.is_some_and(is_release) });
                if buffer.len() > room {
                    self.commit(self.current, 0);
                }
                if order == Some(Ordering::SeqCst) {
                    self.drain(self.current);
                }
            }
        }
    }

    /// A change of memory by the running fiber in one step.
    pub(super) fn update(
        &mut self,
        word: Word,
        order: Ordering,
        change: &mut dyn FnMut(u64) -> Option<u64>,
    ) -> u64 {
        if is_release(order) {
            self.drain(self.current);
        }
        while let Some(pending) = self.fibers[self.current].buffer.take_for(word) {
            self.show(self.current, pending);
        }
        // SAFETY: as in `read`.
        let found = unsafe { word.read() };
        let next = change(found);
        self.note(What::Update(word, order, found, next));
        if let Some(next) = next {
            if Some(word.address()) == self.abort_address {
                self.ended_by = Some(self.current);
            }
            // SAFETY: as in `read`.
            unsafe { word.write(next) };
        }
        found
    }

    /// Makes every store of a fiber visible.
    pub(super) fn drain(&mut self, fiber: usize) {
        while !self.fibers[fiber].buffer.is_empty() {
            self.commit(fiber, 0);
        }
    }

    /// Some store of some fiber becomes visible.
    fn commit_one(&mut self) {
        let mut choice = self.rng.below(self.hidden as u64) as usize;
        for fiber in 0..self.fibers.len() {
            let len = self.fibers[fiber].buffer.len();
            if choice < len {
                return self.commit(fiber, choice);
            }
            choice -= len;
        }
    }

    fn commit(&mut self, fiber: usize, choice: usize) {
        let pending = self.fibers[fiber].buffer.take(choice);
        self.show(fiber, pending);
    }

    fn show(&mut self, fiber: usize, pending: Pending) {
        self.hidden -= 1;
        self.note_of(fiber, What::Visible(pending.word, pending.value));
        // SAFETY: as in `read`.
        unsafe { pending.word.write(pending.value) };
    }
}
