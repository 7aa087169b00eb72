//! The launcher's side: rendezvous, signals, and an eye on the keeper.

use std::io::{PipeWriter, Write, pipe};
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use coordinator_lite::{Secret, Server};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl::set_child_subreaper;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::{Pid, getpid};
use ringccl::settings::{Vars, coordinator, table};

use super::KEEPER;
use super::children::{self, Exit};
use super::job::{Job, Orders};
use super::port::free_port;
use super::signals::Signals;

/// Time that processes have to end after SIGKILL when the keeper is gone.
const END_WITHIN: Duration = Duration::from_secs(10);
/// Descriptors that launcher and keeper need beside those of the ranks.
const DESCRIPTORS_OWN: u64 = 64;
/// Descriptors per rank: two pipes in the keeper, one connection in the launcher.
const DESCRIPTORS_PER_RANK: u64 = 2;

/// Runs `job` to its end and returns the exit code for it: 0, or that of the first rank that failed.
///
/// Takes over SIGINT, SIGTERM and their like meanwhile, and adopts every orphan below this process,
/// which must have no other children.
///
/// # Errors
///
/// If the job cannot be started; nothing is left behind then.
pub(crate) fn launch(job: &Job) -> Result<u8> {
    let descriptors = raise_descriptors(job.ranks.len() as u64)?;
    set_child_subreaper(true).context("cannot become a subreaper; ranks could outlive the job")?;
    let signals = Signals::new()?;
    let server = Server::bind((Ipv4Addr::LOCALHOST, 0).into(), Secret::random()?)?;
    let (mut keeper, mut control) = start_keeper(job, &server, signals.before())?;
    let ranks = job.ranks.clone();
    let Job { prefix, grace, ranks_explain, .. } = *job;
    let orders = Orders { ranks, prefix, grace, ranks_explain, descriptors };
    if let Err(error) = send_orders(&mut control, &orders) {
        // The keeper's own message says more, if it lived to print one.
        let status = keeper.wait().context("cannot wait for the keeper")?;
        ensure!(!status.success(), "cannot tell the keeper what to start: {error:#}");
        return Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1));
    }
    let exit = watch(&signals, &keeper, control)?;
    finish(exit)
}

/// What is left to do once the keeper has ended.
fn finish(exit: Exit) -> Result<u8> {
    if let Exit::Signal(signal) = exit {
        eprintln!("ringccl: the keeper of the ranks was killed by {signal}; ending all ranks");
        if let Err(left) = children::end_all(Instant::now() + END_WITHIN) {
            eprintln!("ringccl: these processes do not end, look for a hung device: {left:?}");
        }
    }
    Ok(exit.code())
}

/// Allows as many open descriptors as the ranks need; returns the former limit if it was changed.
fn raise_descriptors(ranks: u64) -> Result<Option<u64>> {
    let needed = DESCRIPTORS_OWN + ranks * DESCRIPTORS_PER_RANK;
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).context("cannot read the limit on descriptors")?;
    if soft >= needed {
        return Ok(None);
    }
    ensure!(
        hard >= needed,
        "{ranks} ranks need {needed} descriptors, the hard limit is {hard}; raise it (`ulimit -Hn`) or start \
         fewer ranks"
    );
    setrlimit(Resource::RLIMIT_NOFILE, needed, hard).context("cannot raise the limit on descriptors")?;
    Ok(Some(soft))
}

/// Starts the keeper with the environment of the ranks; the pipe's write end stays here.
fn start_keeper(job: &Job, server: &Server, mask: SigSet) -> Result<(Child, PipeWriter)> {
    let (reader, writer) = pipe().context("cannot make a pipe; if descriptors ran out, raise `ulimit -n`")?;
    // This one descriptor is meant for the keeper, which closes it to the ranks again.
    fcntl(&reader, FcntlArg::F_SETFD(FdFlag::empty())).context("cannot hand a pipe to the keeper")?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.subsec_nanos());
    let port = free_port(now ^ std::process::id())?;
    // The link names the file that runs now, even if it has been replaced on disk.
    let mut keeper = Command::new("/proc/self/exe");
    keeper.arg0("ringccl").arg(KEEPER).arg("--control").arg(reader.as_raw_fd().to_string());
    keeper.arg("--").args(&job.command);
    keeper
        .env("MASTER_ADDR", "127.0.0.1")
        .env("MASTER_PORT", port.to_string())
        .envs(job.env.iter().map(|(name, value)| (name, value)));
    let vars = Vars::of_process();
    keeper.envs(job_name(&vars)?.map(|name| ("RINGCCL_JOB", name)));
    // Ranks that are sent to a coordinator meet there, by its secret.
    if coordinator(&vars)?.is_none() {
        keeper.env("RINGCCL_RENDEZVOUS", server.local_addr().to_string());
        keeper.env("RINGCCL_SECRET", server.unique_id().secret().to_hex());
    }
    // A group of its own: signals from the keyboard reach the ranks once, through the launcher.
    keeper.process_group(0);
    // SAFETY: the closure runs between fork and exec and calls sigprocmask only, which is async-signal-safe.
    unsafe { keeper.pre_exec(move || Ok(mask.thread_set_mask()?)) };
    let keeper = keeper.spawn().context("cannot start the keeper of the ranks; is /proc mounted?")?;
    Ok((keeper, writer))
}

/// A name of its own for the job, unless the user gave it one. A launcher that is itself a rank of a job, and so has
/// that one's name, starts another.
fn job_name(vars: &Vars) -> Result<Option<String>> {
    if vars.get(table::JOB.name()).is_some() && vars.get(table::RANK.name()).is_none() {
        table::JOB.get(vars)?;
        return Ok(None);
    }
    // A part of what a secret has is enough to tell jobs apart.
    Ok(Some(format!("run-{}", &Secret::random()?.to_hex()[..16])))
}

fn send_orders(control: &mut PipeWriter, orders: &Orders) -> Result<()> {
    let text = serde_json::to_vec(orders)?;
    let length = u32::try_from(text.len())?;
    control.write_all(&length.to_le_bytes())?;
    control.write_all(&text)?;
    Ok(())
}

/// Passes signals on until the keeper has ended.
fn watch(signals: &Signals, keeper: &Child, mut control: PipeWriter) -> Result<Exit> {
    let keeper = Pid::from_raw(keeper.id() as i32);
    loop {
        let mut fds = [PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error).context("cannot wait for signals"),
        }
        for signal in signals.take() {
            if signal == Signal::SIGCHLD {
                let ended = children::reap().ended;
                if let Some(&(_, exit)) = ended.iter().find(|(pid, _)| *pid == keeper) {
                    return Ok(exit);
                }
                continue;
            }
            // A keeper that is gone is reported by SIGCHLD; the byte may get lost then.
            let _ = control.write_all(&[signal as i32 as u8]);
            if signal == Signal::SIGTSTP {
                // The ranks are stopped by the keeper; we stop as the keyboard asked.
                kill(getpid(), Signal::SIGSTOP).context("cannot stop on SIGTSTP")?;
            }
        }
    }
}
