//! Lines of the ranks on their way to our stdout and stderr.
//!
//! Nothing here blocks: what the reader does not take waits in a queue, and the keeper stops
//! reading from ranks while a queue is long, so that a slow terminal slows the ranks down and the
//! keeper still sees signals and deaths.

use std::io;

use nix::errno::Errno;
use nix::sys::stat::fstat;
use nix::unistd::write;

/// Bytes in a queue from which on no more is read from ranks.
const QUEUE_BYTES_HIGH: usize = 1 << 20;
/// Bytes that a pipe which is ready for writing takes without blocking, on every Linux.
const WRITE_BYTES_MAX: usize = 4096;

/// Which of our two outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Out,
    Err,
}

/// Our two outputs; one queue if both lead to the same file, so that no line is torn.
#[derive(Debug)]
pub(crate) struct Output {
    out: Sink,
    err: Option<Sink>,
    prefix: bool,
}

#[derive(Debug)]
struct Sink {
    target: Target,
    queue: Vec<u8>,
    sent: usize,
    /// Why nothing more can be written.
    broken: Option<Errno>,
}

impl Output {
    /// The outputs of this process; lines start with their rank if `prefix`.
    pub(crate) fn new(prefix: bool) -> Self {
        let same = match (fstat(io::stdout()), fstat(io::stderr())) {
            (Ok(a), Ok(b)) => (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino),
            _ => false,
        };
        let err = (!same).then(|| Sink::new(Target::Err));
        Self { out: Sink::new(Target::Out), err, prefix }
    }

    /// Queues one line of a rank.
    pub(crate) fn rank_line(&mut self, rank: usize, target: Target, line: &[u8]) {
        let prefix = if self.prefix { format!("[{rank}] ") } else { String::new() };
        self.sink(target).line(prefix.as_bytes(), line);
    }

    /// Queues one line of our own for stderr.
    pub(crate) fn own_line(&mut self, line: &[u8]) {
        self.sink(Target::Err).line(b"", line);
    }

    /// Whether lines for `target` may be read from ranks.
    pub(crate) fn has_room(&self, target: Target) -> bool {
        match (&self.err, target) {
            (Some(err), Target::Err) => err.pending() < QUEUE_BYTES_HIGH,
            _ => self.out.pending() < QUEUE_BYTES_HIGH,
        }
    }

    /// The outputs that have something to send, for poll.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = Target> {
        [Some(&self.out), self.err.as_ref()]
            .into_iter()
            .flatten()
            .filter(|s| s.pending() > 0)
            .map(|s| s.target)
    }

    /// Sends some bytes to `target`, which poll has found ready.
    pub(crate) fn send(&mut self, target: Target) {
        self.sink(target).send();
    }

    /// Why nothing more can be written to our stdout, if so.
    pub(crate) fn broken(&self) -> Option<Errno> {
        self.out.broken
    }

    fn sink(&mut self, target: Target) -> &mut Sink {
        match (&mut self.err, target) {
            (Some(err), Target::Err) => err,
            _ => &mut self.out,
        }
    }
}

impl Sink {
    fn new(target: Target) -> Self {
        Self { target, queue: Vec::new(), sent: 0, broken: None }
    }

    fn pending(&self) -> usize {
        self.queue.len() - self.sent
    }

    fn line(&mut self, prefix: &[u8], line: &[u8]) {
        if self.broken.is_none() {
            self.queue.extend_from_slice(prefix);
            self.queue.extend_from_slice(line);
            self.queue.push(b'\n');
        }
    }

    fn send(&mut self) {
        let piece = &self.queue[self.sent..];
        let piece = &piece[..piece.len().min(WRITE_BYTES_MAX)];
        let written = match self.target {
            Target::Out => write(io::stdout(), piece),
            Target::Err => write(io::stderr(), piece),
        };
        match written {
            Ok(n) => self.sent += n,
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            Err(errno) => {
                self.broken = Some(errno);
                self.sent = self.queue.len();
            }
        }
        if self.pending() == 0 || self.sent >= QUEUE_BYTES_HIGH {
            self.queue.drain(..self.sent);
            self.sent = 0;
        }
    }
}
