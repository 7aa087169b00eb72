//! Names that look like settings and are none; what is told to the user of values used otherwise than they say.

use super::env::Vars;
use super::near::nearest;
use super::table::{ALL, LOG, LogLevel, OF_SCRIPTS};
use std::sync::{Once, OnceLock};

const PREFIX: &str = "RINGCCL_";

/// A line for each variable that begins like ours and is no setting, with the name that was probably meant.
pub fn unknown(vars: &Vars) -> Vec<String> {
    let known: Vec<&str> = ALL.iter().flat_map(|setting| setting.variables()).collect();
    let is_known = |name: &str| known.contains(&name) || OF_SCRIPTS.contains(&name);
    let strange = vars.names().filter(|name| name.starts_with(PREFIX) && !is_known(name));
    let line = |name: &str| {
        let ours = known.iter().copied().filter(|name| name.starts_with(PREFIX));
        let remedy = match nearest(name, PREFIX, ours) {
            Some(near) => format!("did you mean {near}?"),
            None => "`ringccl doctor` lists all settings".into(),
        };
        format!("{} is not a setting: {remedy}", super::shown(name.as_ref()))
    };
    strange.map(line).collect()
}

/// A line for each variable that is set without effect, because another one of the same setting counts more.
pub fn beaten(vars: &Vars) -> Vec<String> {
    let mut lines = Vec::new();
    for setting in ALL {
        let variables = setting.variables();
        let mut set = variables.iter().filter_map(|name| Some((*name, vars.get(name)?)));
        let Some((first, _)) = set.next() else { continue };
        for (name, text) in set {
            lines.push(format!("{name}={} is not used: {first} counts more", super::shown(text)));
        }
    }
    lines
}

/// Tells the log of something that a program may have got into.
#[cold]
pub(crate) fn warn(line: &str) {
    // Simulated ranks wait for simulated time; nobody reads what they say of it.
    #[cfg(ringccl_sim)]
    if shmring::sim::with(|_| ()).is_some() {
        return;
    }
    let level = || LOG.get(&Vars::of_process()).ok().flatten().unwrap_or(LogLevel::Warn);
    if !nobody_listens() {
        tracing::warn!("{line}");
    } else if level() >= LogLevel::Warn {
        eprintln!("ringccl: warning: {line}");
    }
}

/// Tells the log what somebody wants to know who asked for details; what is told costs a look at a flag otherwise.
pub(crate) fn detail(line: impl FnOnce() -> String) {
    static PRINTS: OnceLock<bool> = OnceLock::new();
    #[cfg(ringccl_sim)]
    if shmring::sim::with(|_| ()).is_some() {
        return;
    }
    let level = || LOG.get(&Vars::of_process()).ok().flatten().unwrap_or(LogLevel::Warn);
    if tracing::enabled!(tracing::Level::DEBUG) {
        tracing::debug!("{}", line());
    } else if *PRINTS.get_or_init(|| level() >= LogLevel::Debug) && nobody_listens() {
        eprintln!("ringccl: {}", line());
    }
}

/// Whether the program has no log of its own, so that what is written there would be seen by nobody.
fn nobody_listens() -> bool {
    tracing::dispatcher::get_default(|log| log.is::<tracing::subscriber::NoSubscriber>())
}

/// Tells the log, once per process, of unknown names and of `notes`.
pub(crate) fn announce(vars: &Vars, notes: &[String]) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let nobody_listens = nobody_listens();
        let level = LOG.get(vars).ok().flatten().unwrap_or(LogLevel::Warn);
        for line in unknown(vars) {
            if !nobody_listens {
                tracing::warn!("{line}");
            } else if level >= LogLevel::Warn {
                eprintln!("ringccl: warning: {line}");
            }
        }
        for note in notes {
            if !nobody_listens {
                tracing::debug!("{note}");
            } else if level >= LogLevel::Debug {
                eprintln!("ringccl: {note}");
            }
        }
    });
}
