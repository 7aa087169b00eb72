//! Communicators as C callers know them: a handle, and behind it a rank that may still be joining.
//!
//! ```text
//!  joining ----> ready <----> busy (work in the background)      calls other than GetAsyncError, Abort: when ready
//!     |            |
//!     v            v
//!   failed     finalized, revoked ----> destroyed or aborted: the handle is dead
//! ```

use crate::config::Settings;
use crate::failure::{Failure, Outcome};
use crate::handle::{Bad, Table};
use crate::redop::RedOps;
use crate::register::Registered;
use crate::result::Code;
use crate::roots;
use crate::types::CommHandle;
use crate::window::Windows;
use ringccl::comm::{AbortHandle, Joining};
use ringccl::{Communicator, Config, Stream};
use std::ffi::{c_int, c_void};
// ATOMICS: private to this process; what they announce is behind locks.
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// The handles of communicators.
pub(crate) static COMMS: Table<Comm> = Table::new(0x6e63);

/// How long an abort waits for another thread to leave a call.
const ABORT_LIMIT: Duration = Duration::from_secs(5);

/// Locks, also after a panic of another thread: what is behind our locks is whole at every step.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a rank communicates by.
#[derive(Debug)]
enum Lane {
    /// It will come by itself, or by the call that makes it.
    None,
    /// It is being joined behind the caller's back; this process may host the rendezvous.
    Joining(Joining, #[allow(dead_code, reason = "kept until all have joined")] Option<roots::Hosted>),
    /// It is there.
    Ready(Box<Communicator>),
}

/// Work in the background, of one communicator or of several.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    result: OnceLock<Option<Failure>>,
}

impl Progress {
    /// Says how it ended; the first counts.
    pub(crate) fn end(&self, outcome: Outcome) {
        let _ = self.result.set(outcome.err());
    }
}

/// What is known of a communicator from the start.
#[derive(Clone, Debug)]
pub(crate) struct About {
    /// This rank.
    pub rank: u32,
    /// Ranks.
    pub nranks: u32,
    /// The caller's number of the device; it means nothing here.
    pub device: c_int,
    /// A number that all ranks have for it.
    pub hash: u64,
    /// How it was configured.
    pub settings: Settings,
    /// The library's settings.
    pub config: Config,
    /// Which collectives the variables leave an algorithm for.
    pub usable: crate::algorithms::Usable,
}

/// A communicator.
#[derive(Debug)]
pub(crate) struct Comm {
    /// What does not change.
    pub about: About,
    lane: Mutex<Lane>,
    stop: OnceLock<AbortHandle>,
    /// How many reasons there are not to go ahead at once: joining, work in the background, a failure, a flag below.
    attention: AtomicU32,
    background: Mutex<Vec<Arc<Progress>>>,
    failed: OnceLock<Failure>,
    is_finalized: AtomicBool,
    is_revoked: AtomicBool,
    is_suspended: AtomicBool,
    /// Communicators made from it so far.
    children: AtomicU64,
    /// Operations, or groups of them, so far.
    launches: AtomicU64,
    stream: OnceLock<Stream>,
    /// Its handle, as log lines show it.
    handle: AtomicU64,
    /// The operators that were made for it.
    pub redops: Mutex<RedOps>,
    /// Memory that was registered with it.
    pub registered: Mutex<Registered>,
    /// Its windows.
    pub windows: Mutex<Windows>,
}

impl Comm {
    /// One that will be.
    pub(crate) fn expected(about: About) -> Arc<Self> {
        Arc::new(Self {
            about,
            lane: Mutex::new(Lane::None),
            stop: OnceLock::new(),
            attention: AtomicU32::new(0),
            background: Mutex::default(),
            failed: OnceLock::new(),
            is_finalized: AtomicBool::new(false),
            is_revoked: AtomicBool::new(false),
            is_suspended: AtomicBool::new(false),
            children: AtomicU64::new(0),
            launches: AtomicU64::new(0),
            stream: OnceLock::new(),
            handle: AtomicU64::new(0),
            redops: Mutex::default(),
            registered: Mutex::default(),
            windows: Mutex::default(),
        })
    }

    /// Gives it what it communicates by.
    pub(crate) fn install(&self, communicator: Communicator) {
        let _ = self.stop.set(communicator.abort_handle());
        *lock(&self.lane) = Lane::Ready(Box::new(communicator));
    }

    /// It is being joined: polls see to it.
    pub(crate) fn install_joining(&self, joining: Joining, hosted: Option<roots::Hosted>) {
        *lock(&self.lane) = Lane::Joining(joining, hosted);
        self.attend();
    }

    /// A handle for it.
    pub(crate) fn publish(self: &Arc<Self>) -> Result<CommHandle, Failure> {
        let handle = COMMS.insert(Arc::clone(self));
        let handle = handle.ok_or_else(|| {
            Failure::new(Code::SystemError, "there are more communicators than handles; destroy some")
        })?;
        // ORDERING: Relaxed; log lines show it.
        self.handle.store(handle.addr() as u64, Ordering::Relaxed);
        Ok(handle)
    }

    /// Its handle as a number.
    pub(crate) fn number(&self) -> u64 {
        // ORDERING: Relaxed, as in `publish`.
        self.handle.load(Ordering::Relaxed)
    }

    fn attend(&self) {
        // ORDERING: Release pairs with the Acquire in `is_quiet`: who sees the count sees the reason.
        self.attention.fetch_add(1, Ordering::Release);
    }

    /// Whether nothing keeps a call from going ahead.
    #[inline]
    pub(crate) fn is_quiet(&self) -> bool {
        // ORDERING: Acquire pairs with the Release in `attend`.
        self.attention.load(Ordering::Acquire) == 0
    }

    /// Joining or work in the background is over.
    fn settle(&self) {
        // ORDERING: Release, as in `attend`.
        self.attention.fetch_sub(1, Ordering::Release);
    }

    /// Notes a failure that lasts.
    pub(crate) fn fail(&self, failure: Failure) {
        if self.failed.set(failure).is_ok() {
            self.attend();
        }
    }

    /// Uses what it communicates by.
    #[inline]
    pub(crate) fn with<R>(
        &self,
        work: impl FnOnce(&mut Communicator) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        match &mut *lock(&self.lane) {
            Lane::Ready(communicator) => work(communicator),
            Lane::Joining(..) => Err(not_ready()),
            Lane::None => Err(self.gone()),
        }
    }

    #[cold]
    fn gone(&self) -> Failure {
        self.failed.get().cloned().unwrap_or_else(|| Failure::argument("the communicator was finalized"))
    }

    /// Its state: `Success`, `InProgress` or why it has failed.
    pub(crate) fn poll(&self) -> Outcome {
        if !self.is_quiet() {
            self.poll_joining()?;
            self.poll_background()?;
        }
        if let Some(failure) = self.failed.get() {
            return Err(failure.clone());
        }
        match self.stop.get().and_then(AbortHandle::async_error) {
            // That the caller has revoked it is no error of it.
            Some(ringccl::Error::Revoked { .. }) | None => Ok(()),
            Some(error) => Err(error.into()),
        }
    }

    fn poll_joining(&self) -> Outcome {
        let Ok(mut lane) = self.lane.try_lock() else { return Ok(()) };
        let Lane::Joining(joining, _) = &mut *lane else { return Ok(()) };
        match joining.poll() {
            None => return Err(Failure::in_progress()),
            Some(Ok(communicator)) => {
                let _ = self.stop.set(communicator.abort_handle());
                *lane = Lane::Ready(Box::new(communicator));
                drop(lane);
                crate::create::tell_complete(self, "ncclCommInitRankConfig");
            }
            Some(Err(error)) => {
                *lane = Lane::None;
                drop(lane);
                self.fail(error.into());
            }
        }
        self.settle();
        Ok(())
    }

    fn poll_background(&self) -> Outcome {
        let mut background = lock(&self.background);
        let mut ended = Vec::new();
        background.retain(|progress| match progress.result.get() {
            Some(result) => {
                ended.push(result.clone());
                false
            }
            None => true,
        });
        let is_running = !background.is_empty();
        drop(background);
        for result in ended {
            if let Some(failure) = result {
                self.fail(failure);
            }
            self.settle();
        }
        if is_running { Err(Failure::in_progress()) } else { Ok(()) }
    }

    /// Adds work in the background.
    pub(crate) fn watch(&self, progress: &Arc<Progress>) {
        self.attend();
        lock(&self.background).push(Arc::clone(progress));
    }

    /// Whether a call may go ahead: nothing of before is in progress and nothing has failed.
    #[inline]
    pub(crate) fn check_ready(&self) -> Outcome {
        if self.is_quiet() { Ok(()) } else { self.check_slowly() }
    }

    #[cold]
    fn check_slowly(&self) -> Outcome {
        match self.poll() {
            Err(failure) if failure.code() == Code::InProgress => Err(not_ready()),
            Err(failure) => Err(failure),
            Ok(()) if self.is(&self.is_suspended) => {
                Err(Failure::usage("the communicator is suspended: call ncclCommResume first"))
            }
            Ok(()) => Ok(()),
        }
    }

    fn is(&self, flag: &AtomicBool) -> bool {
        // ORDERING: Acquire pairs with the Release in `raise`.
        flag.load(Ordering::Acquire)
    }

    /// Whether it was revoked by this rank.
    #[inline]
    pub(crate) fn is_revoked(&self) -> bool {
        !self.is_quiet() && self.is(&self.is_revoked)
    }

    /// Whether it has ended, by an error or a revocation of any rank.
    pub(crate) fn has_ended(&self) -> bool {
        self.stop.get().is_some_and(AbortHandle::is_aborted)
    }

    /// Whether it was finalized.
    pub(crate) fn is_finalized(&self) -> bool {
        self.is(&self.is_finalized)
    }

    /// Whether it is suspended.
    pub(crate) fn is_suspended(&self) -> bool {
        self.is(&self.is_suspended)
    }

    /// Raises a flag; whether it was down.
    fn raise(&self, flag: &AtomicBool) -> bool {
        // ORDERING: AcqRel; one of two threads that raise it sees that it was the first.
        let was_up = flag.swap(true, Ordering::AcqRel);
        if !was_up {
            self.attend();
        }
        !was_up
    }

    /// Suspends it; whether it was not.
    pub(crate) fn suspend(&self) -> bool {
        self.raise(&self.is_suspended)
    }

    /// Ends a suspension.
    pub(crate) fn resume(&self) {
        // ORDERING: AcqRel, as in `raise`.
        if self.is_suspended.swap(false, Ordering::AcqRel) {
            self.settle();
        }
    }

    /// Ends every operation on every rank; the communicator can be shrunk, destroyed and aborted.
    pub(crate) fn revoke(&self) -> bool {
        let is_first = self.raise(&self.is_revoked);
        if is_first && let Some(stop) = self.stop.get() {
            stop.revoke();
        }
        is_first
    }

    /// The number of the next communicator that is made from it.
    pub(crate) fn next_child(&self) -> u64 {
        // ORDERING: Relaxed; a number for log lines.
        self.children.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The number of the next operation or group.
    #[inline]
    pub(crate) fn next_launch(&self) -> u64 {
        // ORDERING: Relaxed; a number for log lines.
        self.launches.fetch_add(1, Ordering::Relaxed)
    }

    /// The number of operations or groups so far.
    pub(crate) fn launches(&self) -> u64 {
        // ORDERING: Relaxed; a number for log lines.
        self.launches.load(Ordering::Relaxed)
    }

    /// The stream of its work in the background.
    pub(crate) fn stream(&self) -> &Stream {
        self.stream.get_or_init(Stream::new)
    }

    /// Leaves the others: after this rank's own work, without waiting for them.
    pub(crate) fn finalize(&self) -> Outcome {
        if !self.raise(&self.is_finalized) {
            return Err(Failure::argument("the communicator was finalized before"));
        }
        self.wait_for_background();
        self.leave()
    }

    /// Waits until no work is in the background; its operations have deadlines.
    fn wait_for_background(&self) {
        while let Err(failure) = self.poll()
            && failure.code() == Code::InProgress
        {
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// Drops what it communicates by. Where a report or a trace is wanted, and this process is one rank, all ranks meet
    /// for it, as their parts are collected; ranks of one process cannot, as one thread may finalize them in turn.
    fn leave(&self) -> Outcome {
        let lane = std::mem::replace(&mut *lock(&self.lane), Lane::None);
        *lock(&self.windows) = Windows::default();
        let Lane::Ready(communicator) = lane else { return Ok(()) };
        if crate::create::is_reported(self) && !self.is_revoked() && self.poll().is_ok() {
            if let Err(error) = communicator.finalize() {
                // The others have left in another way; what could be written was written.
                crate::log::warn(&format!("finalize: {error}"));
            }
            return Ok(());
        }
        drop(communicator);
        Ok(())
    }

    /// Destroys it: its handle is dead already.
    pub(crate) fn destroy(&self) -> Outcome {
        if self.is_finalized() {
            return Ok(());
        }
        self.finalize()
    }

    /// Ends it on every rank and forgets it: its handle is dead already.
    pub(crate) fn abort(&self) {
        if let Some(stop) = self.stop.get()
            && !self.is_finalized()
        {
            stop.abort();
        }
        self.raise(&self.is_finalized);
        let until = Instant::now() + ABORT_LIMIT;
        // A thread that is in a call of it wakes up by the abort and leaves. What it still holds after the limit goes
        // with its own reference.
        while Instant::now() < until {
            if let Ok(mut lane) = self.lane.try_lock() {
                let lane = std::mem::replace(&mut *lane, Lane::None);
                drop(lane);
                break;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        *lock(&self.windows) = Windows::default();
    }
}

/// The failure of a call on a communicator that has something in progress.
#[cold]
pub(crate) fn not_ready() -> Failure {
    Failure::argument(
        "attempt to use communicator before previous operation returned success: poll ncclCommGetAsyncError until it \
         is not ncclInProgress",
    )
}

/// What a handle stands for; the failure names the call.
#[inline]
pub(crate) fn find(handle: *const c_void, call: &str) -> Result<Arc<Comm>, Failure> {
    if let Ok(comm) = COMMS.get(handle)
        && !crate::fork::is_child()
    {
        return Ok(comm);
    }
    find_slowly(handle, call)
}

#[cold]
fn find_slowly(handle: *const c_void, call: &str) -> Result<Arc<Comm>, Failure> {
    COMMS.get(handle).map_err(|bad| bad_comm(bad, call, handle)).and_then(|comm| {
        if crate::fork::is_child() {
            return Err(Failure::usage(format!(
                "{call}: this process was forked after the communicator was made; make one in the child"
            )));
        }
        Ok(comm)
    })
}

/// The failure of a handle that stands for nothing.
#[cold]
pub(crate) fn bad_comm(bad: Bad, call: &str, handle: *const c_void) -> Failure {
    Failure::argument(match bad {
        Bad::Null => format!("{call} : comm argument is NULL"),
        Bad::Gone => {
            format!("{call} : comm {handle:p} was destroyed or aborted: corrupted comm object detected")
        }
        Bad::Foreign => {
            format!(
                "{call} : comm {handle:p} is no communicator of this library: corrupted comm object detected"
            )
        }
    })
}
