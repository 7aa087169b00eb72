//! A timeline of this rank in Chrome's trace format, written when `RINGCCL_TRACE` names a directory.
//!
//! Each rank writes `DIR/trace-RANK.json`: an array of complete events, times in microseconds of the
//! machine's monotonic clock, so that the ranks' files line up. Open them in Perfetto or `chrome://tracing`.

use crate::error::Error;
use crate::plan::{Choice, Kind};
use crate::settings::{Vars, table};
use serde::Serialize;
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Instant;

/// Events kept; later ones are counted, and their number is told when the trace is written.
const MAX_EVENTS: usize = 1 << 20;

#[derive(Debug, Serialize)]
struct Event {
    name: String,
    ph: &'static str,
    ts: f64,
    dur: f64,
    pid: u32,
    tid: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    args: Option<Args>,
}

#[derive(Debug, Serialize)]
struct Args {
    seqno: u64,
    bytes: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    algo: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    proto: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    channels: Option<u32>,
}

#[derive(Debug)]
struct Trace {
    dir: PathBuf,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    events: Vec<Event>,
    /// Events that found no room.
    dropped: u64,
}

#[inline]
fn trace() -> Option<&'static Trace> {
    static TRACE: OnceLock<Option<Trace>> = OnceLock::new();
    TRACE
        .get_or_init(|| {
            let dir = table::TRACE.get(&Vars::of_process()).ok()??;
            Some(Trace { dir, kept: Mutex::default() })
        })
        .as_ref()
}

/// Microseconds of the monotonic clock, which all processes of a host share.
fn now_us() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes one timespec to a valid place; this clock always exists on Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

fn thread_id() -> i32 {
    nix::unistd::gettid().as_raw()
}

fn record(trace: &Trace, name: String, begun: &Begun, args: Option<Args>) {
    let dur = begun.since.elapsed().as_nanos() as f64 / 1e3;
    let event = Event { name, ph: "X", ts: begun.ts, dur, pid: std::process::id(), tid: thread_id(), args };
    let mut kept = trace.kept.lock().unwrap_or_else(PoisonError::into_inner);
    if kept.events.len() < MAX_EVENTS {
        kept.events.push(event);
    } else {
        kept.dropped += 1;
    }
}

/// When something began.
#[derive(Debug)]
pub(crate) struct Begun {
    ts: f64,
    since: Instant,
}

/// The time now, if a trace is being written.
#[inline]
pub(crate) fn begin() -> Option<Begun> {
    trace().map(|_| Begun::now())
}

impl Begun {
    #[cold]
    fn now() -> Self {
        Self { ts: now_us(), since: Instant::now() }
    }
}

/// Records a collective that has ended.
pub(crate) fn end_operation(begun: Begun, kind: Kind, bytes: usize, seqno: u64, choice: Option<Choice>) {
    if let Some(trace) = trace() {
        let args = Args {
            seqno,
            bytes,
            algo: choice.map(|c| c.algorithm.name()),
            proto: choice.map(|c| c.protocol.name()),
            channels: choice.map(|c| c.channels),
        };
        record(trace, kind.name().into(), &begun, Some(args));
    }
}

/// A stretch of the program's own work on the timeline, from [`span`] to its drop.
#[derive(Debug)]
#[must_use = "the span ends when this is dropped"]
pub struct Span(Option<(String, Begun)>);

/// Begins a span of the program's own work; costs a look at a flag when no trace is written.
pub fn span(name: impl Into<String>) -> Span {
    Span(begin().map(|begun| (name.into(), begun)))
}

impl Drop for Span {
    fn drop(&mut self) {
        if let (Some((name, begun)), Some(trace)) = (self.0.take(), trace()) {
            record(trace, name, &begun, None);
        }
    }
}

/// Writes the events so far, if a trace is being written.
pub(crate) fn write(rank: u32) -> Result<(), Error> {
    let Some(trace) = trace() else { return Ok(()) };
    let path = trace.dir.join(format!("trace-{rank}.json"));
    let output = |cause| Error::Output { what: "trace", path: path.display().to_string(), cause };
    // Only the directory itself is made: a path that does not exist above it is more likely a mistake.
    match std::fs::create_dir(&trace.dir) {
        Err(cause) if cause.kind() != std::io::ErrorKind::AlreadyExists => return Err(output(cause)),
        _ => {}
    }
    let kept = trace.kept.lock().unwrap_or_else(PoisonError::into_inner);
    if kept.dropped > 0 {
        eprintln!(
            "ringccl: rank {rank}: the trace keeps {MAX_EVENTS} events; {} later ones are missing",
            kept.dropped
        );
    }
    let text = serde_json::to_string(&kept.events).map_err(|e| output(e.into()))?;
    std::fs::write(&path, text).map_err(output)
}
