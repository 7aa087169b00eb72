//! Starts one rank.

use std::ffi::OsString;
use std::io::{self, ErrorKind, IsTerminal};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use nix::errno::Errno;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{Pid, getpid, getppid};

use super::job::Orders;

/// A rank that has been started.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) pid: Pid,
    pub(crate) stdout: OwnedFd,
    pub(crate) stderr: OwnedFd,
}

/// Why a rank could not be started, and the exit code that a shell would give for it.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) message: String,
    pub(crate) code: u8,
}

/// Starts rank `rank` of the job as the leader of its own process group, with `mask` as its blocked signals.
///
/// # Errors
///
/// A message with the remedy: the command does not exist or may not be run, or a limit is reached.
pub(crate) fn start(
    command: &[OsString],
    orders: &Orders,
    rank: usize,
    mask: SigSet,
) -> Result<Started, Failure> {
    let Some((program, args)) = command.split_first() else {
        return Err(Failure { message: "no command was given".into(), code: 2 });
    };
    let place = &orders.ranks[rank];
    let mut child = Command::new(program);
    child.args(args).envs(place.env(rank, orders.ranks.len())).process_group(0);
    child.stdin(stdin_of(rank)).stdout(Stdio::piped()).stderr(Stdio::piped());
    let (keeper, descriptors) = (getpid(), orders.descriptors);
    // SAFETY: the closure runs between fork and exec and calls prctl, getppid, two rlimit calls and
    // sigprocmask only, all of which are async-signal-safe; it allocates nothing and takes no lock.
    unsafe {
        child.pre_exec(move || {
            set_pdeathsig(Signal::SIGKILL)?;
            // A keeper that died before the line above would not be noticed any more.
            if getppid() != keeper {
                return Err(Errno::ESRCH.into());
            }
            if let Some(soft) = descriptors {
                let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
                setrlimit(Resource::RLIMIT_NOFILE, soft.min(hard), hard)?;
            }
            // What this process blocks to read from a descriptor must reach a rank as it always does.
            mask.thread_set_mask()?;
            Ok(())
        })
    };
    let child = child.spawn().map_err(|error| explain(program, rank, orders.ranks.len(), &error))?;
    let pid = Pid::from_raw(child.id() as i32);
    match (child.stdout, child.stderr) {
        (Some(stdout), Some(stderr)) => Ok(Started { pid, stdout: stdout.into(), stderr: stderr.into() }),
        _ => Err(Failure { message: format!("rank {rank} was started without pipes"), code: 1 }),
    }
}

/// Rank 0 reads our input, as under mpirun, unless that is a terminal: ranks run in the background,
/// where reading from a terminal would stop them.
fn stdin_of(rank: usize) -> Stdio {
    if rank == 0 && !io::stdin().is_terminal() { Stdio::inherit() } else { Stdio::null() }
}

fn explain(program: &OsString, rank: usize, ranks: usize, error: &io::Error) -> Failure {
    let program = program.to_string_lossy();
    let (why, code) = match error.kind() {
        ErrorKind::NotFound if program.contains('/') => {
            ("no such file, or the interpreter in its first line is missing; check the path", 127)
        }
        ErrorKind::NotFound => ("no such command; check its spelling and PATH", 127),
        ErrorKind::PermissionDenied => {
            ("permission denied; make the file executable (chmod +x) and its directories searchable", 126)
        }
        ErrorKind::WouldBlock => {
            ("no more processes; raise `ulimit -u` or the pids limit of the container", 1)
        }
        _ if error.raw_os_error() == Some(Errno::ENOEXEC as i32) => {
            ("not a program; a script needs an interpreter in its first line (#!/bin/sh)", 126)
        }
        _ if error.raw_os_error() == Some(Errno::EMFILE as i32) => {
            ("no more descriptors; raise `ulimit -n`", 1)
        }
        _ => {
            return Failure { message: format!("cannot start `{program}` as rank {rank}: {error}"), code: 1 };
        }
    };
    Failure { message: format!("cannot start `{program}` (rank {rank} of {ranks}): {why}"), code }
}
