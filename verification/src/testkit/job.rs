//! The ranks of one job and how they meet.

use super::{Ended, Rank, ShmDir};
use crate::report::Event;
use coordinator_lite::messages::Status;
use coordinator_lite::{Secret, Server};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// How ranks find each other.
#[derive(Debug)]
pub enum Meet {
    /// By `MASTER_ADDR` and `MASTER_PORT`; rank 0 hosts the rendezvous.
    Port(u16),
    /// By a rendezvous of the test, as under `ringccl run`.
    Launcher(Server),
    /// By a unique id of the test, handed over on standard input.
    Id(Server),
}

/// A loopback port that nobody listens on now.
///
/// # Panics
/// When there is none.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    listener.local_addr().expect("its number").port()
}

fn server() -> Server {
    let secret = Secret::random().expect("random bytes");
    Server::bind((Ipv4Addr::LOCALHOST, 0).into(), secret).expect("a free port")
}

impl Meet {
    /// Rank 0 hosts, on a free port.
    pub fn port() -> Self {
        Self::Port(free_port())
    }

    /// The test hosts.
    pub fn launcher() -> Self {
        Self::Launcher(server())
    }

    /// The test hosts and hands over an id.
    pub fn id() -> Self {
        Self::Id(server())
    }
}

/// A job of workers: the program, its settings and the ranks that run.
#[derive(Debug)]
pub struct Job {
    worker: PathBuf,
    meet: Meet,
    nranks: u32,
    args: Vec<String>,
    env: Vec<(String, String)>,
    /// What one rank has besides.
    rank_env: Vec<(u32, String, String)>,
    /// The ranks by number; `None` where none runs.
    pub ranks: Vec<Option<Rank>>,
}

impl Job {
    /// A job of `nranks` that runs `worker` with `args` and has started nothing yet.
    pub fn new(worker: &Path, meet: Meet, nranks: u32, args: &[&str], shm: &ShmDir) -> Self {
        let args = args.iter().map(ToString::to_string).collect();
        let dir = shm.path().display().to_string();
        let env = vec![("RINGCCL_SHM_DIR".into(), dir), ("RINGCCL_JOIN_TIMEOUT_MS".into(), "30000".into())];
        let ranks = (0..nranks).map(|_| None).collect();
        Self { worker: worker.into(), meet, nranks, args, env, rank_env: Vec::new(), ranks }
    }

    /// The same with a setting; the last one of a name holds.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl ToString) -> Self {
        self.env.push((name.into(), value.to_string()));
        self
    }

    /// The same with a setting that one rank alone has.
    #[must_use]
    pub fn with_rank(mut self, rank: u32, name: &str, value: impl ToString) -> Self {
        self.rank_env.push((rank, name.into(), value.to_string()));
        self
    }

    /// The command of one rank, as this job would start it.
    pub fn command(&self, rank: u32) -> Command {
        let mut command = Command::new(&self.worker);
        // Nothing of the settings under which the tests run reaches the workers.
        command.env_clear().envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
        command.args(&self.args).stdin(Stdio::null());
        command.env("RANK", rank.to_string()).env("WORLD_SIZE", self.nranks.to_string());
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        let own = self.rank_env.iter().filter(|(of, ..)| *of == rank);
        command.envs(own.map(|(_, name, value)| (name, value)));
        match &self.meet {
            Meet::Port(port) => {
                command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", port.to_string());
            }
            Meet::Launcher(server) => {
                command.env("RINGCCL_RENDEZVOUS", server.local_addr().to_string());
                command.env("RINGCCL_SECRET", server.unique_id().secret().to_hex());
            }
            Meet::Id(_) => {
                command.arg("--id").stdin(Stdio::piped());
            }
        }
        command
    }

    /// How the ranks meet.
    pub fn meet(&self) -> &Meet {
        &self.meet
    }

    /// Starts one rank.
    pub fn start(&mut self, rank: u32) {
        let started = self.spawn(self.command(rank));
        self.ranks[rank as usize] = Some(started);
    }

    /// Starts a command made by [`Job::command`] beside the ranks of the job.
    pub fn spawn(&self, command: Command) -> Rank {
        let mut rank = Rank::start(command);
        if let Meet::Id(server) = &self.meet {
            rank.feed(&server.unique_id().to_bytes());
        }
        rank
    }

    /// Starts every rank.
    #[must_use]
    pub fn start_all(mut self) -> Self {
        for rank in 0..self.nranks {
            self.start(rank);
        }
        self
    }

    /// A rank that runs.
    ///
    /// # Panics
    /// When it does not.
    pub fn rank(&mut self, rank: u32) -> &mut Rank {
        self.ranks[rank as usize].as_mut().expect("the rank was started")
    }

    /// Waits until every started rank is in the middle of its loop.
    pub fn wait_running(&mut self) {
        for rank in self.ranks.iter_mut().flatten() {
            rank.wait_for("a running loop", |event| *event == Event::Running);
        }
    }

    /// Waits until the rendezvous of the test has heard of `ranks` ranks, which wait for the others.
    ///
    /// # Panics
    /// At the deadline, or when the test hosts no rendezvous.
    pub fn wait_meeting(&self, ranks: u32) {
        super::wait_for("the ranks to meet", || {
            self.status().waiting.first().is_some_and(|group| group.here == ranks)
        });
    }

    /// Waits until the rendezvous of the test has told all ranks that they are complete.
    ///
    /// # Panics
    /// As [`Job::wait_meeting`].
    pub fn wait_met(&self) {
        super::wait_for("the communicator", || !self.status().communicators.is_empty());
    }

    fn status(&self) -> Status {
        let (Meet::Launcher(server) | Meet::Id(server)) = &self.meet else {
            panic!("the ranks meet without the test");
        };
        let key = server.unique_id().secret().into();
        coordinator_lite::status(server.endpoint(), &key, super::DEADLINE).expect("the rendezvous answers")
    }

    /// Waits for the end of one rank.
    ///
    /// # Panics
    /// When it was not started.
    pub fn finish(&mut self, rank: u32) -> Ended {
        self.ranks[rank as usize].take().expect("the rank was started").finish()
    }

    /// Waits for the end of every started rank.
    pub fn finish_all(mut self) -> Vec<Ended> {
        self.ranks.iter_mut().filter_map(Option::take).map(Rank::finish).collect()
    }
}
