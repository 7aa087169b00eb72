//! Communicators: one rank's handle, for any thread.

use crate::fork::{self, Process};
use crate::op::Op;
use crate::root::ID_BYTES;
use crate::status::{Failure, Status, guard, told};
use crate::work::{Keep, ReleaseFn, Work};
use ringccl::comm::AbortHandle;
use ringccl::settings::Vars;
use ringccl::{Communicator, Config, Group, Stream, UniqueId};
use std::ffi::c_void;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Settings of a communicator, beside those of the environment. Equal on all ranks.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How long an operation may take, in ns; `RINGCCL_TIMEOUT_MS` may make it less.
    pub timeout_ns: u64,
    /// How long the ranks wait for each other here, in ns; `RINGCCL_JOIN_TIMEOUT_MS` may make it less.
    pub join_timeout_ns: u64,
    /// Not 0: this communicator writes the report that `RINGCCL_REPORT` asks for.
    pub reports: u32,
    /// 0.
    pub reserved: u32,
}

/// A communicator.
#[derive(Debug)]
pub struct Comm {
    inner: Arc<Inner>,
}

/// A communicator, for as long as its handle or a work object needs it.
#[derive(Debug)]
pub(crate) struct Inner {
    /// None once it was finalized.
    communicator: Mutex<Option<Communicator>>,
    abort: AbortHandle,
    /// Collectives, in the order of the calls.
    collectives: Stream,
    /// Streams for messages: each has one of its own, for it may have to wait for any other.
    messages: Mutex<Vec<Stream>>,
    process: Process,
}

/// Most streams that are kept for later messages.
const SPARE_STREAMS: usize = 64;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is behind our locks is whole at every step.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Inner {
    fn check(&self) -> Result<(), Failure> {
        if self.process == Process::current() { Ok(()) } else { Err(fork::refused()) }
    }

    fn with<R>(&self, act: impl FnOnce(&mut Communicator) -> Result<R, Failure>) -> Result<R, Failure> {
        self.check()?;
        match &mut *lock(&self.communicator) {
            Some(communicator) => act(communicator),
            None => Err(Failure::usage("the communicator was finalized")),
        }
    }

    fn message_stream(&self) -> Stream {
        lock(&self.messages).pop().unwrap_or_default()
    }

    /// Takes back the stream of a message that is over.
    pub(crate) fn spare(&self, stream: Stream) {
        let mut spare = lock(&self.messages);
        if spare.len() < SPARE_STREAMS {
            spare.push(stream);
        }
    }
}

impl Comm {
    /// Does something with the communicator, which nobody else uses meanwhile.
    pub(crate) fn with<R>(
        &self,
        act: impl FnOnce(&mut Communicator) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        self.inner.with(act)
    }
}

impl Drop for Comm {
    fn drop(&mut self) {
        if self.inner.process != Process::current() {
            // The segment is the parent's: this process must not leave in its name.
            std::mem::forget(Arc::clone(&self.inner));
        }
    }
}

/// The settings of a communicator of `nranks`.
fn config(options: &Options, nranks: u32) -> Result<Config, Failure> {
    let mut config = Config::from_env(nranks)?;
    let vars = Vars::of_process();
    let least = |name: &str, own: Duration, asked_ns: u64| {
        let asked = Duration::from_nanos(asked_ns.max(1));
        if vars.get(name).is_some() { own.min(asked) } else { asked }
    };
    config.timeout = least("RINGCCL_TIMEOUT_MS", config.timeout, options.timeout_ns);
    config.join_timeout = least("RINGCCL_JOIN_TIMEOUT_MS", config.join_timeout, options.join_timeout_ns);
    if vars.get("RINGCCL_FINALIZE_TIMEOUT_MS").is_none() {
        // Other ranks may have ended in their own way: leaving does not take as long as training may.
        config.finalize_timeout = Some(config.timeout.min(Duration::from_secs(30)));
    }
    let file = |path: PathBuf| if path.is_dir() { path.join("cluster_report.json") } else { path };
    config.report = config.report.filter(|_| options.reports != 0).map(file);
    Ok(config)
}

/// Joins as `rank` of `nranks` at the rendezvous of `id`, and waits for the others.
///
/// # Safety
/// - `id` has [`ID_BYTES`] bytes; `options` is readable; `out` points to a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringccl_comm_join(
    id: *const u8,
    rank: u32,
    nranks: u32,
    options: *const Options,
    out: *mut *mut Comm,
) -> Status {
    guard(|| {
        if id.is_null() || options.is_null() || out.is_null() {
            return Err(Failure::argument("ringccl_comm_join: a pointer is null"));
        }
        // SAFETY: the caller's contract.
        let (id, options) = unsafe { (&*id.cast::<[u8; ID_BYTES]>(), &*options) };
        let id = UniqueId::from_bytes(id)
            .map_err(|error| Failure::argument(format!("the id is none of this library: {error}")))?;
        let process = Process::watched();
        let communicator = Communicator::init(&id, rank, nranks, config(options, nranks)?)?;
        let inner = Inner {
            abort: communicator.abort_handle(),
            communicator: Mutex::new(Some(communicator)),
            collectives: Stream::new(),
            messages: Mutex::default(),
            process,
        };
        let comm = Box::into_raw(Box::new(Comm { inner: Arc::new(inner) }));
        // SAFETY: the caller's contract.
        unsafe { out.write(comm) };
        Ok(Status::Ok)
    })
}

/// Runs one operation to its end. Meanwhile other threads wait with theirs.
///
/// # Safety
/// - `comm` comes from [`ringccl_comm_join`] and was not freed; `op` is readable.
/// - The operation's buffers and lists are what its kind needs, until this returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringccl_comm_run(comm: *const Comm, op: *const Op) -> Status {
    guard(|| {
        // SAFETY: the caller's contract.
        let (Some(comm), Some(op)) = (unsafe { (comm.as_ref(), op.as_ref()) }) else {
            return Err(Failure::argument("ringccl_comm_run: a pointer is null"));
        };
        // SAFETY: the caller's contract.
        comm.with(|communicator| unsafe { op.run(communicator) })?;
        Ok(Status::Ok)
    })
}

/// Starts `count` operations, which run at the same time: collectives after those that were started before, messages
/// beside everything else. `release(context)` is called once, when none of their buffers is needed any more, from any
/// thread; also if this fails.
///
/// # Safety
/// - `comm` comes from [`ringccl_comm_join`] and was not freed; `ops` are readable; `out` points to a pointer.
/// - The operations' lists are what their kinds need until this returns, and the buffers until `release` is called.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringccl_comm_start(
    comm: *const Comm,
    ops: *const Op,
    count: u64,
    release: ReleaseFn,
    context: *mut c_void,
    out: *mut *mut Work,
) -> Status {
    let keep = Keep::new(release, context);
    guard(|| {
        // SAFETY: the caller's contract.
        let Some(comm) = (unsafe { comm.as_ref() }) else {
            return Err(Failure::argument("ringccl_comm_start: the communicator is null"));
        };
        if out.is_null() || (ops.is_null() && count > 0) {
            return Err(Failure::argument("ringccl_comm_start: a pointer is null"));
        }
        let ops = match count {
            0 => &[],
            // SAFETY: the caller's contract.
            _ => unsafe { std::slice::from_raw_parts(ops, count as usize) },
        };
        let inner = &comm.inner;
        let is_message = ops.iter().all(Op::is_message);
        let mut group = Group::new();
        let mut sources = Vec::new();
        // Collectives are queued in the order in which they take their turns: under one lock.
        let work = inner.with(|communicator| {
            for op in ops {
                // SAFETY: the caller's contract; the group is dropped, or launched with what keeps the buffers.
                sources.extend(unsafe { op.add_to(&mut group, communicator)? });
            }
            let stream = is_message.then(|| inner.message_stream());
            let queue = stream.as_ref().unwrap_or(&inner.collectives);
            // SAFETY: `keep` keeps the buffers, by the caller's contract.
            let pending = unsafe { queue.launch_with(group, keep)? };
            Ok(Work::new(pending, sources, stream, Arc::clone(inner)))
        })?;
        // SAFETY: the caller's contract.
        unsafe { out.write(Box::into_raw(Box::new(work))) };
        Ok(Status::Ok)
    })
}

/// Ends the communicator on every rank: whoever waits in it wakes up with an error. Returns at once.
///
/// # Safety
/// - `comm` is null, or comes from [`ringccl_comm_join`] and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringccl_comm_abort(comm: *const Comm) {
    let _ = guard(|| {
        // SAFETY: the caller's contract.
        if let Some(comm) = unsafe { comm.as_ref() } {
            comm.inner.check()?;
            comm.inner.abort.abort();
        }
        Ok(Status::Ok)
    });
}

/// Whether the communicator has ended, without waiting for the next operation to say so, and why.
///
/// # Safety
/// - `comm` comes from [`ringccl_comm_join`] and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringccl_comm_error(comm: *const Comm) -> Status {
    guard(|| {
        // SAFETY: the caller's contract.
        let Some(comm) = (unsafe { comm.as_ref() }) else {
            return Err(Failure::argument("ringccl_comm_error: the communicator is null"));
        };
        comm.inner.check()?;
        Ok(match comm.inner.abort.async_error() {
            Some(error) => told(&error.into()),
            None => Status::Ok,
        })
    })
}

/// Collectives that this rank has begun, after waiting for those that are queued; 0 for what has gone.
///
/// # Safety
/// - `comm` comes from [`ringccl_comm_join`] and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringccl_comm_seqno(comm: *const Comm) -> u64 {
    let mut seqno = 0;
    let _ = guard(|| {
        // SAFETY: the caller's contract.
        if let Some(comm) = unsafe { comm.as_ref() } {
            seqno = comm.with(|communicator| Ok(communicator.seqno()))?;
        }
        Ok(Status::Ok)
    });
    seqno
}

/// Leaves together with the other ranks: waits for what is queued and for them, and writes report and trace if they
/// are asked for.
///
/// # Safety
/// - `comm` comes from [`ringccl_comm_join`] and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringccl_comm_finalize(comm: *const Comm) -> Status {
    guard(|| {
        // SAFETY: the caller's contract.
        let Some(comm) = (unsafe { comm.as_ref() }) else {
            return Err(Failure::argument("ringccl_comm_finalize: the communicator is null"));
        };
        comm.inner.check()?;
        let communicator = lock(&comm.inner.communicator).take();
        if let Some(communicator) = communicator {
            communicator.finalize()?;
        }
        Ok(Status::Ok)
    })
}

/// Leaves without waiting for anybody, unless that was done. Operations that were started run to their ends.
///
/// # Safety
/// - `comm` is null, or comes from [`ringccl_comm_join`] and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringccl_comm_free(comm: *mut Comm) {
    if comm.is_null() {
        return;
    }
    // SAFETY: the caller's contract.
    let comm = unsafe { Box::from_raw(comm) };
    let _ = guard(|| {
        if comm.inner.check().is_ok() {
            let communicator = lock(&comm.inner.communicator).take();
            drop(communicator);
        }
        drop(comm);
        Ok(Status::Ok)
    });
}
