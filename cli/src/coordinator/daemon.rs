//! The daemon: a coordinator that lasts until it is told to end.

use std::io::Write;
use std::os::fd::AsFd;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use coordinator_lite::{Access, Coordinator, Endpoint, Secret, UniqueId};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use super::{DaemonArgs, write_secret};

/// Signals that end the daemon in order.
const ENDING: [Signal; 4] = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT];

pub(super) fn main(args: &DaemonArgs) -> Result<ExitCode> {
    let endpoint = args.place.endpoint()?;
    ensure!(
        !args.trust_uid || endpoint.path().is_some(),
        "--trust-uid needs a Unix socket: over {endpoint} nobody's user id can be checked"
    );
    let given = match &args.new_secret_file {
        Some(_) => None,
        None => args.place.secret()?,
    };
    let is_made = given.is_none();
    let secret = given.map_or_else(Secret::random, Ok)?;
    // Before any thread starts, so that a signal never meets its default, which would leave the socket behind.
    let signals = block_signals()?;
    let access = Access { secret: secret.clone(), trust_uid: args.trust_uid };
    let coordinator = Coordinator::open(&endpoint, access)?;
    if let Some(path) = &args.new_secret_file {
        write_secret(path, &secret)?;
    } else if is_made && !args.trust_uid {
        // Whoever starts the daemon must get it from somewhere.
        say(&format!("secret {}", secret.to_hex()))?;
        if let Endpoint::Tcp(addr) = coordinator.endpoint() {
            say(&format!("unique id {}", UniqueId::new(*addr, secret)))?;
        }
    }
    say(&format!("listening on {}", coordinator.endpoint()))?;
    wait(&signals, &coordinator)?;
    Ok(ExitCode::SUCCESS)
}

fn block_signals() -> Result<SignalFd> {
    let mut set = SigSet::empty();
    set.extend(ENDING);
    set.thread_block().context("cannot block signals")?;
    SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
        .context("cannot watch signals; if descriptors ran out, raise `ulimit -n`")
}

/// Waits for a signal or for the coordinator's own end.
fn wait(signals: &SignalFd, coordinator: &Coordinator) -> Result<()> {
    loop {
        let ended = coordinator.ended_fd();
        let watched = [Some(signals.as_fd()), ended].into_iter().flatten();
        let mut fds: Vec<PollFd<'_>> = watched.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) => return Ok(()),
            Err(nix::Error::EINTR) => {}
            Err(error) => return Err(error).context("cannot wait for signals"),
        }
    }
}

/// Prints a line at once: whoever started the daemon waits for it.
fn say(line: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).context("cannot write to stdout")
}
