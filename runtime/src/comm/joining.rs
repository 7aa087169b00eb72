//! Joining behind the caller's back.

use super::Communicator;
use super::init::Bootstrap;
use crate::config::Config;
use crate::error::Error;
use coordinator_lite::{Cancel, UniqueId};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// A communicator that is being joined on a thread of its own.
///
/// Dropping it cancels the join; then the other ranks are told that this one is gone, and the thread has ended when
/// the drop returns, which takes some hundredths of a second.
#[derive(Debug)]
#[must_use = "the join is cancelled when this is dropped"]
pub struct Joining {
    result: Receiver<Result<Communicator, Error>>,
    cancel: Cancel,
    thread: Option<JoinHandle<()>>,
    rank: u32,
}

impl Communicator {
    /// As [`Communicator::init`], on a thread that ends with it.
    ///
    /// # Errors
    /// [`Error::Setting`] for an impossible rank, [`Error::Rendezvous`] when no thread can be had; everything else
    /// comes from the result.
    pub fn init_nonblocking(id: &UniqueId, rank: u32, nranks: u32, config: Config) -> Result<Joining, Error> {
        let bootstrap = Bootstrap::from_id(id, rank, nranks)?;
        let cancel = Cancel::new();
        let (answer, result) = channel();
        let work = {
            let cancel = cancel.clone();
            move || {
                // Nobody wants the answer of a join that was dropped.
                let _ = answer.send(Self::join_unless(bootstrap, config, Some(&cancel)));
            }
        };
        let thread = std::thread::Builder::new().name("ringccl-join".into()).spawn(work);
        let thread = thread.map_err(coordinator_lite::Error::Start)?;
        Ok(Joining { result, cancel, thread: Some(thread), rank })
    }
}

impl Joining {
    /// The communicator or the error, once it is there; `None` before, and after it was taken. Never blocks.
    pub fn poll(&mut self) -> Option<Result<Communicator, Error>> {
        self.thread.as_ref()?;
        match self.result.try_recv() {
            Ok(outcome) => Some(self.take(outcome)),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(self.take(Err(Error::Cancelled { rank: self.rank }))),
        }
    }

    /// As [`Joining::poll`], but waits for it, for `timeout` at most.
    pub fn wait(&mut self, timeout: Duration) -> Option<Result<Communicator, Error>> {
        self.thread.as_ref()?;
        match self.result.recv_timeout(timeout) {
            Ok(outcome) => Some(self.take(outcome)),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(self.take(Err(Error::Cancelled { rank: self.rank }))),
        }
    }

    /// Gives the join up; the next [`Joining::poll`] or [`Joining::wait`] finds [`Error::Cancelled`], unless it was
    /// faster. Returns at once.
    pub fn cancel(&self) {
        self.cancel.cancel();
    }

    fn take(&mut self, outcome: Result<Communicator, Error>) -> Result<Communicator, Error> {
        self.end();
        // It is this thread that will communicate, not the one that has ended.
        outcome.inspect(|comm| comm.claim_core(comm.lineage.cores))
    }

    fn end(&mut self) {
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was printed when it happened; there is no result then.
            let _ = thread.join();
        }
    }
}

impl Drop for Joining {
    fn drop(&mut self) {
        self.cancel.cancel();
        self.end();
    }
}
