//! Operations that run behind the caller's back, in order, on a thread that owns the communicator.

use crate::comm::Communicator;
use crate::error::Error;
use crate::reduce::{Element, ReduceOp};
use shmring::wait::usable_cores;
use std::sync::mpsc;
use std::thread::JoinHandle;

type Job = Box<dyn FnOnce(&mut Communicator) + Send>;

/// A queue of operations on one communicator.
///
/// Buffers move into the stream and come back with the result, so nothing can touch them meanwhile:
///
/// ```no_run
/// # fn backward(_: usize) -> Vec<f32> { vec![] }
/// # fn main() -> Result<(), ringccl::Error> {
/// let stream = ringccl::Stream::new(ringccl::Communicator::from_env()?)?;
/// let last = stream.all_reduce(backward(2), ringccl::ReduceOp::Avg)?; // runs during the next line
/// let first = stream.all_reduce(backward(1), ringccl::ReduceOp::Avg)?;
/// let gradients = [first.wait()?, last.wait()?];
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Stream {
    jobs: mpsc::Sender<Job>,
    worker: JoinHandle<Communicator>,
    rank: usize,
    nranks: usize,
    shares_cores: bool,
}

/// The result of an operation on a stream, once it is there.
#[derive(Debug)]
pub struct Pending<T> {
    result: mpsc::Receiver<Result<Vec<T>, Error>>,
    rank: usize,
}

impl<T> Pending<T> {
    /// Waits for the operation and gives the buffer back.
    ///
    /// # Errors
    /// The operation's own error; [`Error::StreamEnded`] when the stream's thread is gone. The wait is
    /// bounded by the communicator's time-out for each operation queued before this one.
    pub fn wait(self) -> Result<Vec<T>, Error> {
        self.result.recv().unwrap_or_else(|_| Err(ended(self.rank, "its thread is gone")))
    }
}

fn ended(rank: usize, why: &str) -> Error {
    Error::StreamEnded { rank: rank as u32, why: why.into() }
}

impl Stream {
    /// Starts the thread.
    ///
    /// # Errors
    /// [`Error::StreamEnded`] when no thread can be had.
    pub fn new(comm: Communicator) -> Result<Self, Error> {
        let (rank, nranks) = (comm.rank(), comm.nranks());
        let cores = usable_cores();
        let (jobs, queue) = mpsc::channel::<Job>();
        let worker = std::thread::Builder::new().name("ringccl-stream".into()).spawn(move || {
            let mut comm = comm;
            comm.claim_core(cores);
            for job in queue {
                job(&mut comm);
            }
            comm
        });
        let worker = worker.map_err(|e| ended(rank, &format!("no thread could be started: {e}")))?;
        Ok(Self { jobs, worker, rank, nranks, shares_cores: nranks > cores })
    }

    /// This rank's number.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Number of ranks.
    pub fn nranks(&self) -> usize {
        self.nranks
    }

    /// Queues an in-place all-reduce of `buffer`.
    ///
    /// # Errors
    /// [`Error::StreamEnded`] when the stream's thread is gone; errors of the operation come from the result.
    pub fn all_reduce<T: Element>(&self, mut buffer: Vec<T>, op: ReduceOp) -> Result<Pending<T>, Error> {
        self.queue(move |comm| comm.all_reduce_in_place(&mut buffer, op).map(|()| buffer))
    }

    /// Queues a broadcast of `buffer` from `root`.
    ///
    /// # Errors
    /// As [`Stream::all_reduce`].
    pub fn broadcast<T: Element>(&self, mut buffer: Vec<T>, root: usize) -> Result<Pending<T>, Error> {
        self.queue(move |comm| comm.broadcast(&mut buffer, root).map(|()| buffer))
    }

    /// Queues a barrier; its result is empty.
    ///
    /// # Errors
    /// As [`Stream::all_reduce`].
    pub fn barrier(&self) -> Result<Pending<u8>, Error> {
        self.queue(|comm| comm.barrier().map(|()| Vec::new()))
    }

    fn queue<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Communicator) -> Result<Vec<T>, Error> + Send + 'static,
    ) -> Result<Pending<T>, Error> {
        let (answer, result) = mpsc::channel();
        let job: Job = Box::new(move |comm| {
            // A caller that dropped its `Pending` does not want the answer.
            let _ = answer.send(work(comm));
        });
        self.jobs.send(job).map_err(|_| ended(self.rank, "its thread is gone"))?;
        // Where ranks share cores, the worker would first run when this thread next waits. Giving the core away
        // once lets the operation begin while this thread computes on.
        if self.shares_cores {
            std::thread::yield_now();
        }
        Ok(Pending { result, rank: self.rank })
    }

    /// Lets the queued operations finish, ends the thread and gives the communicator back.
    ///
    /// # Errors
    /// [`Error::StreamEnded`] when an operation panicked.
    pub fn into_communicator(self) -> Result<Communicator, Error> {
        let Self { jobs, worker, rank, .. } = self;
        drop(jobs);
        worker.join().map_err(|_| ended(rank, "an operation panicked"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    /// A job that panics ends the stream: it, what is queued behind it and what comes later say so, and the other ranks
    /// learn that this one has left.
    #[test]
    fn a_panic_ends_the_stream() {
        let mut comms = Communicator::init_all(2, &Config::new(2)).unwrap().into_iter();
        let (stream, mut other) = (Stream::new(comms.next().unwrap()).unwrap(), comms.next().unwrap());
        let first = stream.queue::<u8>(|_| panic!("on purpose")).unwrap();
        let behind = stream.barrier();
        for pending in [Ok(first), behind].into_iter().flatten() {
            assert!(matches!(pending.wait(), Err(Error::StreamEnded { rank: 0, .. })));
        }
        let error = other.barrier().unwrap_err().to_string();
        assert!(error.contains("it left the communicator"), "{error}");
        assert!(matches!(stream.barrier(), Err(Error::StreamEnded { .. })));
        assert!(matches!(stream.into_communicator(), Err(Error::StreamEnded { .. })));
    }
}
