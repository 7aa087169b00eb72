//! Ranks that are processes, joined by the `ringccl` crate. The only module that names it.
//!
//! Buckets run on a communication stream, behind the back of the backward pass. The other exchanges are blocking calls,
//! which the communicator runs after the buckets.

use std::fmt::Display;

use ringccl::ReduceOp;

use super::{Extreme, GradientSync};
use crate::error::{Error, Result};

/// One rank of a job of processes.
#[derive(Debug)]
pub struct RingSync {
    rank: usize,
    nranks: usize,
    communicator: ringccl::Communicator,
    stream: ringccl::Stream,
}

impl RingSync {
    /// Joins the job that the environment describes (`RANK`, `WORLD_SIZE`, `MASTER_ADDR`, `MASTER_PORT`).
    ///
    /// # Errors
    /// [`Error::Sync`] if the ranks cannot be joined.
    pub fn from_env() -> Result<Self> {
        let communicator =
            ringccl::Communicator::from_env().map_err(|source| failed(0, "joining the ranks", source))?;
        let (rank, nranks) = (communicator.rank(), communicator.nranks());
        Ok(Self { rank, nranks, communicator, stream: ringccl::Stream::new() })
    }
}

fn failed(rank: usize, operation: &str, reason: impl Display) -> Error {
    Error::Sync { rank, operation: operation.into(), reason: reason.to_string() }
}

impl GradientSync for RingSync {
    type Handle = ringccl::Pending<Vec<f32>>;
    type Span = ringccl::trace::Span;

    fn rank(&self) -> usize {
        self.rank
    }

    fn nranks(&self) -> usize {
        self.nranks
    }

    fn start(&mut self, bucket: Vec<f32>) -> Result<Self::Handle> {
        let Self { rank, communicator, stream, .. } = self;
        let started = stream.all_reduce(communicator, bucket, ReduceOp::Avg);
        started.map_err(|source| failed(*rank, "starting a bucket", source))
    }

    fn wait(&mut self, handle: Self::Handle) -> Result<Vec<f32>> {
        handle.wait().map_err(|source| failed(self.rank, "averaging a bucket", source))
    }

    fn broadcast(&mut self, values: &mut [f32]) -> Result<()> {
        let (rank, operation) = (self.rank, "broadcasting the parameters");
        self.communicator.broadcast(values, 0).map_err(|source| failed(rank, operation, source))
    }

    fn sum(&mut self, values: &mut [f64]) -> Result<()> {
        let (rank, operation) = (self.rank, "summing the metrics");
        self.communicator
            .all_reduce_in_place(values, ReduceOp::Sum)
            .map_err(|source| failed(rank, operation, source))
    }

    fn extreme(&mut self, values: &mut [i64], which: Extreme) -> Result<()> {
        let (rank, operation) = (self.rank, "comparing the ranks");
        let op = match which {
            Extreme::Min => ReduceOp::Min,
            Extreme::Max => ReduceOp::Max,
        };
        self.communicator.all_reduce_in_place(values, op).map_err(|source| failed(rank, operation, source))
    }

    fn barrier(&mut self) -> Result<()> {
        let (rank, operation) = (self.rank, "waiting for all ranks");
        self.communicator.barrier().map_err(|source| failed(rank, operation, source))
    }

    fn span(&self, name: &str) -> Self::Span {
        ringccl::trace::span(name)
    }

    fn finish(self) -> Result<()> {
        let rank = self.rank;
        self.communicator.finalize().map_err(|source| failed(rank, "leaving the ranks", source))
    }
}
