//! Log lines in NCCL's shape, so that scripts that search them keep working.
//!
//! ```text
//!  host:pid:tid [dev] NCCL INFO text
//!  [2026-11-30 20:00:00] host:pid:tid [dev] NCCL WARN text       after an empty line
//! ```
//!
//! *Source*: prefixes, levels and subsystems as NCCL 2.30 prints them.

mod sink;
mod stamp;
mod subsys;

pub(crate) use subsys::Subsys;

use crate::env;
use ringccl::settings::Vars;
use sink::Sink;
use stamp::Stamp;
use std::fmt::{Arguments, Write as _};
// ATOMICS: private to this process; the level is only a hint, what it guards is behind a lock.
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// What is logged: the named level and those before it.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// Nothing.
    None,
    /// One line with the version.
    Version,
    /// Errors.
    Warn,
    /// What happens.
    Info,
    /// As `Info`.
    Abort,
    /// Every call.
    Trace,
}

impl Level {
    const NAMES: [(&'static str, Self); 5] = [
        ("VERSION", Self::Version),
        ("WARN", Self::Warn),
        ("INFO", Self::Info),
        ("ABORT", Self::Abort),
        ("TRACE", Self::Trace),
    ];

    fn named(text: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(name, _)| name.eq_ignore_ascii_case(text)).map(|(_, level)| *level)
    }
}

/// The level before it is read.
const UNREAD: u8 = u8::MAX;

static LEVEL: AtomicU8 = AtomicU8::new(UNREAD);
static LOG: RwLock<Option<Arc<Log>>> = RwLock::new(None);

#[derive(Debug)]
struct Log {
    level: Level,
    subsystems: Subsys,
    sink: Sink,
    stamp: Stamp,
    host: String,
    turns_up: bool,
}

impl Log {
    fn read(vars: &Vars) -> Self {
        let level = env::text(vars, "NCCL_DEBUG").and_then(|text| Level::named(text.trim()));
        let level = level.unwrap_or(Level::None);
        let host = host();
        let file = env::text(vars, "NCCL_DEBUG_FILE").filter(|_| level > Level::Version);
        Self {
            level,
            subsystems: Subsys::chosen(env::text(vars, "NCCL_DEBUG_SUBSYS").as_deref()),
            sink: Sink::open(file.as_deref(), &host),
            stamp: Stamp::chosen(
                env::text(vars, "NCCL_DEBUG_TIMESTAMP_FORMAT"),
                env::text(vars, "NCCL_DEBUG_TIMESTAMP_LEVELS"),
            ),
            host,
            turns_up: env::text(vars, "NCCL_WARN_ENABLE_DEBUG_INFO").as_deref() == Some("1"),
        }
    }

    fn prefix(&self, level: Level, device: i32) -> String {
        let stamp = self.stamp.of(level);
        let (host, pid, tid) = (&self.host, std::process::id(), thread());
        format!("{stamp}{host}:{pid}:{tid} [{device}] ")
    }
}

/// The host's name up to the first dot, without what a format or a path would take for its own.
fn host() -> String {
    let mut name = [0u8; 256];
    // SAFETY: the buffer has the length that is passed; its last byte stays 0.
    unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len() - 1) };
    let end = name.iter().position(|byte| *byte == 0 || *byte == b'.').unwrap_or(name.len());
    String::from_utf8_lossy(&name[..end]).replace(['%', '/'], "-")
}

fn thread() -> i32 {
    // SAFETY: the call has no arguments and cannot fail.
    unsafe { libc::gettid() }
}

fn log() -> Arc<Log> {
    if let Some(log) = &*LOG.read().unwrap_or_else(PoisonError::into_inner) {
        return Arc::clone(log);
    }
    let mut log = LOG.write().unwrap_or_else(PoisonError::into_inner);
    let log = log.get_or_insert_with(|| Arc::new(Log::read(&env_of_log())));
    // ORDERING: Relaxed; whoever sees an old level asks the log itself.
    LEVEL.store(log.level as u8, Ordering::Relaxed);
    Arc::clone(log)
}

/// Files of variables count too; they are read without logging.
fn env_of_log() -> Vars {
    env::vars()
}

/// Forgets the settings: the next line reads them again and opens the file again.
pub(crate) fn reset() {
    *LOG.write().unwrap_or_else(PoisonError::into_inner) = None;
    // ORDERING: Relaxed, as above.
    LEVEL.store(UNREAD, Ordering::Relaxed);
}

/// Whether lines of this level are written.
#[inline]
pub(crate) fn level_is(level: Level) -> bool {
    // ORDERING: Relaxed, as above.
    match LEVEL.load(Ordering::Relaxed) {
        UNREAD => log().level >= level,
        known => known >= level as u8,
    }
}

/// Whether `info` lines of a subsystem are written.
#[inline]
pub(crate) fn says(subsys: Subsys) -> bool {
    level_is(Level::Info) && log().subsystems.has(subsys)
}

/// Writes an INFO line of a subsystem.
pub(crate) fn info(subsys: Subsys, device: i32, text: Arguments<'_>) {
    if says(subsys) {
        let log = log();
        log.sink.write(&format!("{}NCCL INFO {text}\n", log.prefix(Level::Info, device)));
    }
}

/// Writes a WARN line.
#[cold]
pub(crate) fn warn(text: &str) {
    if !level_is(Level::Warn) {
        return;
    }
    let log = log();
    log.sink.write(&format!("\n{}NCCL WARN {text}\n", log.prefix(Level::Warn, 0)));
    if log.turns_up && log.level < Level::Info {
        // ORDERING: Relaxed, as above.
        LEVEL.store(Level::Info as u8, Ordering::Relaxed);
    }
}

/// Writes a line of the trace of calls: the level TRACE with the subsystem CALL.
pub(crate) fn call(text: Arguments<'_>) {
    if level_is(Level::Trace) && log().subsystems.has(Subsys::CALL) {
        let log = log();
        log.sink.write(&format!("{}:{}:{} NCCL CALL {text}\n", log.host, std::process::id(), thread()));
    }
}

/// Writes the version once per process: bare where nothing else of the start is shown, as INFO otherwise.
pub(crate) fn banner(rank: i32) {
    static ONCE: std::sync::Once = std::sync::Once::new();
    if !level_is(Level::Version) {
        return;
    }
    let log = log();
    if log.level < Level::Info && rank != 0 {
        return;
    }
    ONCE.call_once(|| {
        let mut line = String::new();
        if log.level >= Level::Info {
            line += &log.prefix(Level::Info, 0);
            line += "NCCL INFO ";
        }
        // Writing to a string cannot fail.
        let _ = writeln!(line, "NCCL version 2.30.7+ringccl{}", env!("CARGO_PKG_VERSION"));
        log.sink.write(&line);
    });
}
