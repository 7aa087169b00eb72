//! The keeper's side: ranks, their output, and the end of both.

mod summary;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsFd, FromRawFd, OwnedFd, RawFd};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl::{set_child_subreaper, set_name};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

use super::children::{self, Exit};
use super::ending::{Ending, Step};
use super::job::Orders;
use super::lines::{Lines, Tail};
use super::output::{Output, Target};
use super::signals::Signals;
use super::spawn;
use summary::Summary;

/// Time that processes have to end after SIGKILL when the launcher is gone.
const END_WITHIN: Duration = Duration::from_secs(10);
/// Two SIGINT within this time are one, sent to the process and to its group.
const SAME_SIGINT: Duration = Duration::from_millis(20);
/// Most bytes of orders; 4096 ranks with long names take half a megabyte.
const ORDERS_BYTES_MAX: u32 = 64 << 20;

/// Arguments of the hidden subcommand.
#[derive(clap::Args)]
pub(crate) struct KeeperArgs {
    /// Descriptor of the launcher's pipe
    #[arg(long)]
    control: RawFd,
    /// The command that each rank runs, and its arguments
    #[arg(required = true, last = true)]
    command: Vec<OsString>,
}

/// Runs the ranks of a job for the launcher at the other end of `--control`.
pub(crate) fn main(args: KeeperArgs) -> Result<ExitCode> {
    ensure!(args.control > 2, "this command is for `ringccl run` only; call that instead");
    // SAFETY: the launcher opened this descriptor for us alone and passed its number; nothing else
    // in this process knows it. A number made up by hand fails in the next call and is never used.
    let control = unsafe { OwnedFd::from_raw_fd(args.control) };
    fcntl(&control, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).context("no launcher at the other end")?;
    let mut control = File::from(control);
    let orders = read_orders(&mut control).context("cannot read what to start")?;
    set_child_subreaper(true).context("cannot become a subreaper; ranks could outlive the job")?;
    let _ = set_name(c"ringccl-keeper"); // only for people who read `ps`
    let signals = Signals::new()?;
    let mut keeper = Keeper::new(orders, control, signals);
    let result = match keeper.start(&args.command) {
        Ok(()) => keeper.run(),
        Err(spawn::Failure { message, code }) => {
            eprintln!("ringccl: {message}");
            Ok(code)
        }
    };
    // However it went, nothing below may outlive us.
    if let Err(left) = children::end_all(Instant::now() + END_WITHIN) {
        eprintln!("ringccl: these processes do not end, look for a hung device: {left:?}");
    }
    result.map(ExitCode::from)
}

fn read_orders(control: &mut File) -> Result<Orders> {
    let mut length = [0; 4];
    control.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length);
    ensure!(length <= ORDERS_BYTES_MAX, "{length} bytes of orders are too many");
    let mut text = Vec::new();
    control.take(length.into()).read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}

/// One rank and what became of it.
#[derive(Debug)]
struct Process {
    pid: Pid,
    exit: Option<Exit>,
    tail: Tail,
}

/// One of the two pipes of a rank.
#[derive(Debug)]
struct Stream {
    rank: usize,
    target: Target,
    pipe: File,
    lines: Lines,
}

struct Keeper {
    orders: Orders,
    control: File,
    signals: Signals,
    output: Output,
    processes: Vec<Process>,
    streams: Vec<Stream>,
    ending: Ending,
    summary: Summary,
    last_sigint: Option<Instant>,
    /// Whether this process has no child left at all.
    none_left: bool,
}

/// What one read has given.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Some,
    Nothing,
    End,
}

/// What poll has found.
#[derive(Debug, Default)]
struct Ready {
    control: bool,
    signals: bool,
    targets: Vec<Target>,
    /// Indices of streams, ascending.
    streams: Vec<usize>,
}

impl Keeper {
    fn new(orders: Orders, control: File, signals: Signals) -> Self {
        Self {
            output: Output::new(orders.prefix),
            orders,
            control,
            signals,
            processes: Vec::new(),
            streams: Vec::new(),
            ending: Ending::default(),
            summary: Summary::default(),
            last_sigint: None,
            none_left: false,
        }
    }

    fn start(&mut self, command: &[OsString]) -> Result<(), spawn::Failure> {
        for rank in 0..self.orders.ranks.len() {
            let started = spawn::start(command, &self.orders, rank, self.signals.before())?;
            self.processes.push(Process { pid: started.pid, exit: None, tail: Tail::default() });
            for (target, pipe) in [(Target::Out, started.stdout), (Target::Err, started.stderr)] {
                let unready = |error: Errno| spawn::Failure {
                    message: format!("cannot read the output of rank {rank}: {error}"),
                    code: 1,
                };
                fcntl(&pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).map_err(unready)?;
                self.streams.push(Stream { rank, target, pipe: pipe.into(), lines: Lines::default() });
            }
        }
        Ok(())
    }

    /// Watches over the ranks to the end and returns the exit code of the job.
    fn run(&mut self) -> Result<u8> {
        let mut buffer = vec![0; 64 << 10];
        while !self.none_left {
            let now = Instant::now();
            match self.ending.tick(now) {
                None => {}
                Some(Step::Terminate) => self.terminate(),
                Some(Step::Kill) => children::signal_children(Signal::SIGKILL),
                Some(Step::GiveUp) => break,
            }
            let ready = self.wait(true)?;
            if ready.signals {
                self.take_signals();
            }
            if ready.control && !self.take_control() {
                return Ok(1); // nobody is left to see the code
            }
            // Forward to read, so that what a rank says on stderr follows its stdout in the tail;
            // backward to close, so that indices stay true.
            let ended: Vec<usize> = ready
                .streams
                .iter()
                .copied()
                .filter(|&i| self.read(i, &mut buffer) == Outcome::End)
                .collect();
            ended.into_iter().rev().for_each(|i| self.close(i));
            self.send(&ready);
        }
        self.drain(&mut buffer);
        self.flush()?;
        if let Some(why) = self.output.broken() {
            self.summary.output_broke(why);
        }
        if !self.orders.ranks_explain || !self.summary.is_explained() {
            for line in self.summary.lines(&self.orders.ranks, &self.processes) {
                self.output.own_line(&line);
            }
        }
        self.flush()?;
        Ok(self.summary.code())
    }

    /// Sleeps until something happens or the next step of the ending is due; both only matter
    /// `with_ranks`.
    fn wait(&self, with_ranks: bool) -> Result<Ready> {
        let (out, err) = (io::stdout(), io::stderr());
        let mut fds = vec![
            PollFd::new(self.control.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.signals.as_fd(), PollFlags::POLLIN),
        ];
        let targets: Vec<Target> = self.output.waiting().collect();
        fds.extend(targets.iter().map(|target| match target {
            Target::Out => PollFd::new(out.as_fd(), PollFlags::POLLOUT),
            Target::Err => PollFd::new(err.as_fd(), PollFlags::POLLOUT),
        }));
        let streams =
            self.streams.iter().enumerate().filter(|(_, s)| with_ranks && self.output.has_room(s.target));
        let (indices, pipes): (Vec<usize>, Vec<PollFd<'_>>) =
            streams.map(|(i, stream)| (i, PollFd::new(stream.pipe.as_fd(), PollFlags::POLLIN))).unzip();
        fds.extend(pipes);
        let timeout = if with_ranks { self.timeout() } else { PollTimeout::NONE };
        match poll(&mut fds, timeout) {
            Ok(_) => {}
            Err(Errno::EINTR) => return Ok(Ready::default()),
            Err(error) => return Err(error).context("cannot wait for the ranks"),
        }
        let found = |fd: &PollFd<'_>| fd.any().unwrap_or(true);
        let (own, rest) = fds.split_at(2);
        let (outputs, pipes) = rest.split_at(targets.len());
        Ok(Ready {
            control: found(&own[0]),
            signals: found(&own[1]),
            targets: targets.into_iter().zip(outputs).filter(|(_, fd)| found(fd)).map(|(t, _)| t).collect(),
            streams: indices.into_iter().zip(pipes).filter(|(_, fd)| found(fd)).map(|(i, _)| i).collect(),
        })
    }

    fn timeout(&self) -> PollTimeout {
        let Some(next) = self.ending.next() else { return PollTimeout::NONE };
        // A millisecond more, since poll rounds down and would spin through the rest.
        let wait = next.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
        PollTimeout::try_from(wait).unwrap_or(PollTimeout::MAX)
    }

    fn take_signals(&mut self) {
        for signal in self.signals.take() {
            if signal == Signal::SIGCHLD { self.reap() } else { self.forward(signal) }
        }
    }

    /// Takes signals from the launcher; `false` if there is no launcher any more.
    fn take_control(&mut self) -> bool {
        let mut bytes = [0; 64];
        match self.control.read(&mut bytes) {
            Ok(0) => false,
            Ok(got) => {
                let signals = bytes[..got].iter().filter_map(|&byte| Signal::try_from(i32::from(byte)).ok());
                signals.for_each(|signal| self.forward(signal));
                true
            }
            Err(error) => error.kind() == ErrorKind::Interrupted,
        }
    }

    fn forward(&mut self, signal: Signal) {
        let now = Instant::now();
        if signal == Signal::SIGINT {
            let before = self.last_sigint.replace(now);
            if before.is_some_and(|before| now.duration_since(before) >= SAME_SIGINT) {
                self.summary.killed_by_user();
                self.ending.kill_now(now);
                return;
            }
        }
        self.summary.signalled(signal);
        for process in self.processes.iter().filter(|process| process.exit.is_none()) {
            // The rank is not reaped, so its number and its group's are its own; it may have left
            // its group, and then the group is empty and the signal goes nowhere.
            let _ = match signal {
                Signal::SIGUSR1 | Signal::SIGUSR2 => kill(process.pid, signal),
                Signal::SIGTSTP => killpg(process.pid, Signal::SIGSTOP),
                other => killpg(process.pid, other),
            };
        }
    }

    /// Asks ranks, or what they left behind, to end; stopped ones must run to do so.
    fn terminate(&self) {
        let mut alive = self.processes.iter().filter(|process| process.exit.is_none()).peekable();
        if alive.peek().is_none() {
            children::signal_children(Signal::SIGTERM);
            return children::signal_children(Signal::SIGCONT);
        }
        for process in alive {
            let _ = killpg(process.pid, Signal::SIGTERM);
            let _ = killpg(process.pid, Signal::SIGCONT);
        }
    }

    fn reap(&mut self) {
        let now = Instant::now();
        let reaped = children::reap();
        self.none_left = reaped.none_left;
        let mut failed: Vec<(usize, Exit)> = Vec::new();
        for &(pid, exit) in &reaped.ended {
            let rank = self.processes.iter().position(|process| process.pid == pid && process.exit.is_none());
            let Some(rank) = rank else { continue };
            self.processes[rank].exit = Some(exit);
            if !exit.is_success() {
                failed.push((rank, exit));
            }
        }
        // Of those seen at once, one that was killed is more likely to be the cause than one that
        // returned an error about it.
        failed.sort_by_key(|&(rank, exit)| (matches!(exit, Exit::Code(_)), rank));
        if let Some(&(rank, exit)) = failed.first() {
            self.summary.rank_failed(rank, exit);
            self.ending.rank_failed(now, self.orders.grace);
        }
        if self.ending.is_killing() && !reaped.ended.is_empty() {
            self.ending.kill_now(now); // orphans of the dead are ours by now
        }
        if self.processes.iter().all(|process| process.exit.is_some()) {
            self.ending.ranks_gone(now);
        }
    }

    /// Reads once from a stream.
    fn read(&mut self, i: usize, buffer: &mut [u8]) -> Outcome {
        let Stream { rank, target, pipe, lines } = &mut self.streams[i];
        match pipe.read(buffer) {
            Ok(0) => Outcome::End,
            Ok(got) => {
                let (output, tail) = (&mut self.output, &mut self.processes[*rank].tail);
                lines.push(&buffer[..got], |line| {
                    output.rank_line(*rank, *target, line);
                    tail.push(line);
                });
                Outcome::Some
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                Outcome::Nothing
            }
            Err(_) => Outcome::End,
        }
    }

    /// Forgets a stream after showing what it left without an end of line.
    fn close(&mut self, i: usize) {
        let Stream { rank, target, mut lines, .. } = self.streams.remove(i);
        lines.finish(|line| {
            self.output.rank_line(rank, target, line);
            self.processes[rank].tail.push(line);
        });
    }

    fn send(&mut self, ready: &Ready) {
        for &target in &ready.targets {
            self.output.send(target);
        }
        if let Some(why) = self.output.broken()
            && self.summary.output_broke(why)
        {
            self.ending.rank_failed(Instant::now(), self.orders.grace);
        }
    }

    /// Shows what is left in the pipes; nobody writes to them any more.
    fn drain(&mut self, buffer: &mut [u8]) {
        for i in 0..self.streams.len() {
            while self.read(i, buffer) == Outcome::Some {}
        }
        (0..self.streams.len()).rev().for_each(|i| self.close(i));
    }

    /// Sends what is queued, unless the launcher dies or is interrupted meanwhile.
    fn flush(&mut self) -> Result<()> {
        let last_sigint = self.last_sigint;
        while self.output.waiting().next().is_some() {
            let ready = self.wait(false)?;
            if ready.signals {
                self.take_signals();
            }
            if (ready.control && !self.take_control()) || self.last_sigint != last_sigint {
                return Ok(());
            }
            ready.targets.into_iter().for_each(|target| self.output.send(target));
        }
        Ok(())
    }
}
