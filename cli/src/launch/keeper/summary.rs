//! What the job came to: the exit code, and for a failed job which rank failed first and how.

use nix::errno::Errno;
use nix::libc::SIGPIPE;
use nix::sys::signal::Signal;

use super::super::children::Exit;
use super::super::job::Rank;
use super::Process;

/// The first thing that went wrong decides.
#[derive(Debug, Default)]
pub(super) struct Summary {
    cause: Option<Cause>,
    /// The first signal of a user that asks ranks to end.
    signalled: Option<Signal>,
    killed_by_user: bool,
}

#[derive(Clone, Copy, Debug)]
enum Cause {
    Rank { rank: usize, exit: Exit, after: Option<Signal> },
    OutputBroke(Errno),
}

impl Summary {
    pub(super) fn rank_failed(&mut self, rank: usize, exit: Exit) {
        let after = self.signalled;
        self.cause.get_or_insert(Cause::Rank { rank, exit, after });
    }

    /// Our stdout takes no more; `true` if that is the first thing that went wrong.
    pub(super) fn output_broke(&mut self, why: Errno) -> bool {
        let first = self.cause.is_none();
        self.cause.get_or_insert(Cause::OutputBroke(why));
        first
    }

    /// A signal was passed on to the ranks.
    pub(super) fn signalled(&mut self, signal: Signal) {
        let ends = matches!(signal, Signal::SIGINT | Signal::SIGTERM | Signal::SIGHUP | Signal::SIGQUIT);
        if ends {
            self.signalled.get_or_insert(signal);
        }
    }

    /// The user asked twice.
    pub(super) fn killed_by_user(&mut self) {
        self.killed_by_user = true;
    }

    /// Whether a rank that explains its failures could do so: it ended by itself.
    pub(super) fn is_explained(&self) -> bool {
        matches!(self.cause, Some(Cause::Rank { exit: Exit::Code(_), .. }))
    }

    /// The exit code of the job.
    pub(super) fn code(&self) -> u8 {
        match self.cause {
            _ if self.killed_by_user => Exit::Signal(Signal::SIGINT).code(),
            None => 0,
            Some(Cause::Rank { exit, .. }) => exit.code(),
            Some(Cause::OutputBroke(Errno::EPIPE)) => 128 + u8::try_from(SIGPIPE).unwrap_or(0),
            Some(Cause::OutputBroke(_)) => 1,
        }
    }

    /// What the user is told, line by line; nothing if all went well.
    pub(super) fn lines(&self, ranks: &[Rank], processes: &[Process]) -> Vec<Vec<u8>> {
        if self.killed_by_user {
            return vec![b"ringccl: interrupted twice; all ranks were killed".to_vec()];
        }
        let (rank, exit, after) = match self.cause {
            Some(Cause::Rank { rank, exit, after }) => (rank, exit, after),
            // A reader that has gone wants no message; anything else it would like to know.
            None | Some(Cause::OutputBroke(Errno::EPIPE)) => return Vec::new(),
            Some(Cause::OutputBroke(why)) => {
                let text = format!(
                    "ringccl: cannot write to standard output: {}; lines of ranks are lost",
                    why.desc()
                );
                return vec![text.into_bytes()];
            }
        };
        let how = match exit {
            Exit::Code(code) => format!("exit code {code}"),
            Exit::Signal(signal) => format!("killed by {signal}"),
        };
        let (node, pid) = (&ranks[rank].node, processes[rank].pid);
        if let Some(signal) = after {
            let text = format!(
                "ringccl: ended after {signal}; rank {rank} (pid {pid}, node {node}) was first: {how}"
            );
            return vec![text.into_bytes()];
        }
        let tail = &processes[rank].tail;
        let colon = if tail.is_empty() { "; it printed nothing" } else { "; its last lines:" };
        let text = format!("ringccl: rank {rank} (pid {pid}, node {node}) failed first: {how}{colon}");
        let last = tail.lines().map(|line| [b"    ", line].concat());
        std::iter::once(text.into_bytes()).chain(last).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::lines::Tail;
    use nix::unistd::Pid;

    fn lines(summary: &Summary) -> String {
        let rank = Rank { node: "n7".into(), node_index: 0, local_rank: 0, local_world_size: 1 };
        let mut tail = Tail::default();
        tail.push(b"boom");
        let process = Process { pid: Pid::from_raw(42), exit: None, tail };
        let lines = summary.lines(&[rank], &[process]);
        lines.iter().map(|line| String::from_utf8_lossy(line) + "\n").collect()
    }

    #[test]
    fn the_first_failure_decides() {
        // Code and text are those of the first rank, whatever follows.
        let mut summary = Summary::default();
        assert_eq!((summary.code(), lines(&summary).as_str()), (0, ""));
        summary.rank_failed(0, Exit::Signal(Signal::SIGSEGV));
        summary.rank_failed(0, Exit::Code(3));
        assert!(!summary.output_broke(Errno::EPIPE));
        assert_eq!(summary.code(), 139);
        let expected =
            "ringccl: rank 0 (pid 42, node n7) failed first: killed by SIGSEGV; its last lines:\n    boom\n";
        assert_eq!(lines(&summary), expected);
    }

    #[test]
    fn what_the_user_asked_for_is_one_line() {
        // After SIGTERM the ends of the ranks are no news; after the second SIGINT even less.
        let mut summary = Summary::default();
        summary.signalled(Signal::SIGUSR1);
        summary.signalled(Signal::SIGTERM);
        summary.rank_failed(0, Exit::Code(5));
        assert_eq!(
            lines(&summary),
            "ringccl: ended after SIGTERM; rank 0 (pid 42, node n7) was first: exit code 5\n"
        );
        assert_eq!(summary.code(), 5);
        summary.killed_by_user();
        assert_eq!((summary.code(), lines(&summary).lines().count()), (130, 1));
    }

    #[test]
    fn a_closed_stdout_counts_as_sigpipe() {
        // `ringccl run ... | head` ends like any other command before `head`.
        let mut summary = Summary::default();
        assert!(summary.output_broke(Errno::EPIPE));
        assert_eq!((summary.code(), lines(&summary).as_str()), (141, ""));
        // A full disk is no such thing: it is told.
        let mut summary = Summary::default();
        assert!(summary.output_broke(Errno::ENOSPC));
        assert_eq!(summary.code(), 1);
        assert!(lines(&summary).contains("standard output: No space left"), "{}", lines(&summary));
    }
}
