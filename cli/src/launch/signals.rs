//! Signals as events: blocked and read from a descriptor, so that no handler runs anywhere.

use std::os::fd::{AsFd, BorrowedFd};

use anyhow::{Context, Result};
use nix::sys::signal::{SigHandler, SigSet, Signal, signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// Signals that are passed on to ranks; those that end ranks go to all that a rank started.
pub(crate) const FORWARDED: [Signal; 6] =
    [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGUSR1, Signal::SIGUSR2];

/// Signals that stop and continue a job from the keyboard.
pub(crate) const JOB_CONTROL: [Signal; 2] = [Signal::SIGTSTP, Signal::SIGCONT];

/// The signals of this process from `new` to `drop`, which brings back the mask of before.
pub(crate) struct Signals {
    fd: SignalFd,
    before: SigSet,
}

impl Signals {
    /// Blocks the signals above and SIGCHLD in this thread and in those that it starts.
    ///
    /// # Errors
    ///
    /// If the descriptor cannot be made.
    pub(crate) fn new() -> Result<Self> {
        let mut set = SigSet::empty();
        set.extend(FORWARDED.into_iter().chain(JOB_CONTROL).chain([Signal::SIGCHLD]));
        // SAFETY: the default disposition runs no code of ours. It is set because a parent may
        // have left SIGCHLD ignored, and then children vanish without being waited for.
        unsafe { signal(Signal::SIGCHLD, SigHandler::SigDfl) }.context("cannot reset SIGCHLD")?;
        let before = SigSet::thread_get_mask().context("cannot read the signal mask")?;
        set.thread_block().context("cannot block signals")?;
        let fd = SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
            .context("cannot watch signals; if descriptors ran out, raise `ulimit -n`")?;
        Ok(Self { fd, before })
    }

    /// The mask of before, which programs that are started from here must get back.
    pub(crate) fn before(&self) -> SigSet {
        self.before
    }

    /// Readable when a signal has come.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The signals that have come, SIGCHLD included.
    pub(crate) fn take(&self) -> Vec<Signal> {
        let next = || self.fd.read_signal().ok().flatten();
        std::iter::from_fn(next).filter_map(|info| Signal::try_from(info.ssi_signo as i32).ok()).collect()
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // Failing is impossible for a mask that was in force before.
        let _ = self.before.thread_set_mask();
    }
}
