//! What NCCL would print of its choices, for programs that call this library and not NCCL's interface.
//!
//! `NCCL_DEBUG=INFO` with `NCCL_DEBUG_SUBSYS` that names `GRAPH`, `TUNING` or `ALL` has the first rank of each
//! communicator print these and those of `INIT` as NCCL does, to standard output or `NCCL_DEBUG_FILE`.

use crate::settings::Vars;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write};
// ATOMICS: private to this process; said once at the start, before anything is printed.
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};

/// Whether somebody else prints the lines.
static IS_LEFT: AtomicBool = AtomicBool::new(false);

/// Leaves the lines to the caller: the NCCL library has a log of its own.
pub(super) fn leave() {
    // ORDERING: Relaxed; the flag stands for itself.
    IS_LEFT.store(true, Ordering::Relaxed);
}

/// What a process prints.
#[derive(Debug)]
struct Log {
    shows: [bool; 3],
    file: Option<Mutex<File>>,
    host: String,
}

/// Parts of NCCL that print.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Release, size, channels.
    Init,
    /// The graphs.
    Graph,
    /// The table and the choices.
    Tuning,
}

impl Log {
    fn read(vars: &Vars) -> Option<Self> {
        let text = |name: &str| vars.get(name).map(|value| value.to_string_lossy().into_owned());
        let level = text("NCCL_DEBUG")?;
        let is_shown =
            ["INFO", "ABORT", "TRACE"].iter().any(|known| known.eq_ignore_ascii_case(level.trim()));
        let shows = chosen(&text("NCCL_DEBUG_SUBSYS")?);
        // Without tuning this is nobody's question: programs of this library have no NCCL.
        if !is_shown || !(shows[Part::Graph as usize] || shows[Part::Tuning as usize]) {
            return None;
        }
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let host = host.trim().split('.').next().unwrap_or_default().replace(['%', '/'], "-");
        let file = text("NCCL_DEBUG_FILE")
            .map(|path| path.replace("%h", &host).replace("%p", &std::process::id().to_string()));
        // Where the file cannot be made the lines go where they would without it.
        let file = file.and_then(|path| File::create(path).ok()).map(Mutex::new);
        Some(Self { shows, file, host })
    }

    /// Writes lines at once. A log that cannot be written is no reason to fail.
    fn write(&self, rank: u32, lines: &[String]) {
        let mut text = String::new();
        for line in lines {
            let (host, process) = (&self.host, std::process::id());
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{host}:{process}:{process} [{rank}] NCCL INFO {line}");
        }
        let _ = match &self.file {
            Some(file) => shmring::sync::lock(file).write_all(text.as_bytes()),
            None => io::stdout().lock().write_all(text.as_bytes()),
        };
    }
}

/// Which parts a list of subsystems has; `^` in front means all others.
fn chosen(list: &str) -> [bool; 3] {
    let (excludes, names) = list.strip_prefix('^').map_or((false, list), |names| (true, names));
    let has = |wanted: &str| {
        let named =
            |name: &str| name.trim().eq_ignore_ascii_case(wanted) || name.trim().eq_ignore_ascii_case("ALL");
        names.split(',').any(named) != excludes
    };
    ["INIT", "GRAPH", "TUNING"].map(has)
}

fn log() -> Option<&'static Log> {
    static LOG: OnceLock<Option<Log>> = OnceLock::new();
    // ORDERING: Relaxed, as above.
    if IS_LEFT.load(Ordering::Relaxed) {
        return None;
    }
    LOG.get_or_init(|| Log::read(&Vars::of_process())).as_ref()
}

/// Whether lines of a part are printed.
pub(super) fn says(part: Part) -> bool {
    log().is_some_and(|log| log.shows[part as usize])
}

/// Whether anything is printed.
pub(super) fn is_on() -> bool {
    log().is_some()
}

/// Prints lines of a part, if they are wanted.
pub(super) fn say(part: Part, rank: u32, lines: &[String]) {
    if let Some(log) = log().filter(|_| says(part)) {
        log.write(rank, lines);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lists, exclusions, everything; other levels and the default subsystems print nothing of this.
    #[test]
    fn subsystems_are_chosen_as_nccl_does() {
        assert_eq!(chosen("INIT,TUNING"), [true, false, true]);
        assert_eq!(chosen("graph, tuning"), [false, true, true]);
        assert_eq!(chosen("ALL"), [true, true, true]);
        assert_eq!(chosen("^GRAPH"), [true, false, true]);
        let vars = |pairs: &[(&'static str, &'static str)]| Vars::from_pairs(pairs.iter().copied());
        assert!(Log::read(&vars(&[("NCCL_DEBUG", "info"), ("NCCL_DEBUG_SUBSYS", "TUNING")])).is_some());
        assert!(Log::read(&vars(&[("NCCL_DEBUG", "WARN"), ("NCCL_DEBUG_SUBSYS", "TUNING")])).is_none());
        assert!(Log::read(&vars(&[("NCCL_DEBUG", "INFO")])).is_none());
    }
}
