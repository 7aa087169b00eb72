//! Operations that run behind the caller's back.

use crate::comm::Inner;
use crate::status::{Failure, Status, guard};
use ringccl::{Pending, Source, Stream};
use std::ffi::{c_char, c_void};
use std::sync::Arc;
use std::time::Duration;

/// Called when the buffers of started operations are not needed any more.
pub type ReleaseFn = Option<unsafe extern "C" fn(context: *mut c_void)>;

/// Called when started operations have ended: with a status, and with a text that is valid during the call.
pub type DoneFn = Option<unsafe extern "C" fn(context: *mut c_void, status: Status, text: *const c_char)>;

/// What keeps the buffers of operations.
#[derive(Debug)]
pub(crate) struct Keep {
    release: ReleaseFn,
    context: *mut c_void,
}

// SAFETY: whoever starts operations promises that `release` may be called from any thread.
unsafe impl Send for Keep {}

impl Keep {
    pub(crate) fn new(release: ReleaseFn, context: *mut c_void) -> Self {
        Self { release, context }
    }
}

impl Drop for Keep {
    fn drop(&mut self) {
        if let Some(release) = self.release.take() {
            // SAFETY: called once, as the caller was told.
            unsafe { release(self.context) };
        }
    }
}

#[derive(Debug)]
enum State {
    Running(Pending<Keep>),
    Ended(Result<(), Failure>),
    /// Whoever asked to be called is told, and nobody else.
    Calls,
}

/// Operations that were started.
#[derive(Debug)]
pub struct Work {
    state: State,
    sources: Vec<Source>,
    /// Of messages.
    stream: Option<Stream>,
    comm: Arc<Inner>,
}

impl Work {
    pub(crate) fn new(
        pending: Pending<Keep>,
        sources: Vec<Source>,
        stream: Option<Stream>,
        comm: Arc<Inner>,
    ) -> Self {
        Self { state: State::Running(pending), sources, stream, comm }
    }

    /// Waits for `limit` at most, and lets the operations go on meanwhile.
    fn wait(&mut self, limit: Duration) -> Result<Status, Failure> {
        match std::mem::replace(&mut self.state, State::Calls) {
            State::Running(pending) if limit.is_zero() && !pending.is_done() => {
                self.state = State::Running(pending);
            }
            State::Running(pending) => match pending.wait_for(limit) {
                Ok(result) => {
                    // The buffers are the caller's from here on.
                    self.state = State::Ended(result.map(drop).map_err(Failure::from));
                    if let Some(stream) = self.stream.take() {
                        self.comm.spare(stream);
                    }
                }
                Err(pending) => self.state = State::Running(pending),
            },
            state => self.state = state,
        }
        match &self.state {
            State::Running(_) => Ok(Status::Pending),
            State::Ended(Ok(())) => Ok(Status::Ok),
            State::Ended(Err(failure)) => Err(failure.clone()),
            State::Calls => Err(Failure::usage("the end of these operations is told by a call")),
        }
    }
}

/// Waits for `limit_ns` at most until the operations have ended; [`Status::Pending`] if they have not. With 0 it only
/// looks.
///
/// # Safety
/// - `work` comes from `ringccl_comm_start` and was not freed, and no other thread uses it now.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringccl_work_wait(work: *mut Work, limit_ns: u64) -> Status {
    guard(|| {
        // SAFETY: the caller's contract.
        let Some(work) = (unsafe { work.as_mut() }) else {
            return Err(Failure::argument("ringccl_work_wait: the work is null"));
        };
        work.wait(Duration::from_nanos(limit_ns))
    })
}

/// Has `done(context, status, text)` called when the operations have ended: on another thread, or in this call if they
/// have. It must not wait for operations. Nothing else can be asked of the work then but its source.
///
/// # Safety
/// - As [`ringccl_work_wait`]; `done` may be called from any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringccl_work_on_done(work: *mut Work, done: DoneFn, context: *mut c_void) -> Status {
    /// What is called, on whatever thread.
    struct Call(DoneFn, *mut c_void);
    // SAFETY: the caller promises that it may be called from any thread.
    unsafe impl Send for Call {}
    impl Call {
        fn call(self, result: &Result<(), Failure>) {
            let (status, text) = match result {
                Ok(()) => (Status::Ok, c"".into()),
                Err(failure) => (failure.status, failure.c_text()),
            };
            if let Some(done) = self.0 {
                // SAFETY: the caller's contract; the text lives as long as the call.
                unsafe { done(self.1, status, text.as_ptr()) };
            }
        }
    }
    guard(|| {
        // SAFETY: the caller's contract.
        let Some(work) = (unsafe { work.as_mut() }) else {
            return Err(Failure::argument("ringccl_work_on_done: the work is null"));
        };
        let call = Call(done, context);
        match std::mem::replace(&mut work.state, State::Calls) {
            State::Running(pending) => {
                let (stream, comm) = (work.stream.take(), Arc::clone(&work.comm));
                pending.on_done(move |result| {
                    if let Some(stream) = stream {
                        comm.spare(stream);
                    }
                    call.call(&result.map(drop).map_err(Failure::from));
                });
            }
            State::Ended(result) => {
                call.call(&result);
                work.state = State::Ended(result);
            }
            State::Calls => return Err(Failure::usage("somebody else is called when these operations end")),
        }
        Ok(Status::Ok)
    })
}

/// The rank whose message the first receive among the operations has got; -1 before it has, and without one.
///
/// # Safety
/// - `work` comes from `ringccl_comm_start` and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringccl_work_source(work: *const Work) -> i32 {
    // SAFETY: the caller's contract.
    let source = unsafe { work.as_ref() }.and_then(|work| work.sources.first()?.rank());
    source.and_then(|rank| i32::try_from(rank).ok()).unwrap_or(-1)
}

/// Frees a work object. The operations go on.
///
/// # Safety
/// - `work` is null, or comes from `ringccl_comm_start` and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringccl_work_free(work: *mut Work) {
    if work.is_null() {
        return;
    }
    // SAFETY: the caller's contract.
    let work = unsafe { Box::from_raw(work) };
    let _ = guard(|| {
        drop(work);
        Ok(Status::Ok)
    });
}
