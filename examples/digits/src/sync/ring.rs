//! Ranks that are processes, joined by the `ringccl` crate. The only module that names it.
//!
//! Buckets run on a communication stream: a worker thread that owns the communicator. The other exchanges
//! need the communicator itself, so the stream is opened with the first bucket of an epoch and closed by the
//! next exchange that is not a bucket. An error leaves no communicator behind, and every later call says so.

use std::fmt::Display;

use ringccl::ReduceOp;

use super::{Extreme, GradientSync};
use crate::error::{Error, Result};

/// One rank of a job of processes.
#[derive(Debug)]
pub struct RingSync {
    rank: usize,
    nranks: usize,
    /// At most one of these two is there: the stream owns the communicator while buckets travel.
    communicator: Option<ringccl::Communicator>,
    stream: Option<ringccl::Stream>,
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
        Ok(Self { rank, nranks, communicator: Some(communicator), stream: None })
    }

    fn communicator(&mut self, operation: &str) -> Result<&mut ringccl::Communicator> {
        let rank = self.rank;
        if let Some(stream) = self.stream.take() {
            let communicator =
                stream.into_communicator().map_err(|source| failed(rank, operation, source))?;
            return Ok(self.communicator.insert(communicator));
        }
        self.communicator.as_mut().ok_or_else(|| failed(rank, operation, LOST))
    }

    fn stream(&mut self, operation: &str) -> Result<&ringccl::Stream> {
        let rank = self.rank;
        if let Some(communicator) = self.communicator.take() {
            let stream =
                ringccl::Stream::new(communicator).map_err(|source| failed(rank, operation, source))?;
            return Ok(self.stream.insert(stream));
        }
        self.stream.as_ref().ok_or_else(|| failed(rank, operation, LOST))
    }
}

const LOST: &str = "the communicator was lost in an earlier error";

fn failed(rank: usize, operation: &str, reason: impl Display) -> Error {
    Error::Sync { rank, operation: operation.into(), reason: reason.to_string() }
}

impl GradientSync for RingSync {
    type Handle = ringccl::Pending<f32>;
    type Span = ringccl::trace::Span;

    fn rank(&self) -> usize {
        self.rank
    }

    fn nranks(&self) -> usize {
        self.nranks
    }

    fn start(&mut self, bucket: Vec<f32>) -> Result<Self::Handle> {
        let (rank, operation) = (self.rank, "starting a bucket");
        self.stream(operation)?
            .all_reduce(bucket, ReduceOp::Avg)
            .map_err(|source| failed(rank, operation, source))
    }

    fn wait(&mut self, handle: Self::Handle) -> Result<Vec<f32>> {
        handle.wait().map_err(|source| failed(self.rank, "averaging a bucket", source))
    }

    fn broadcast(&mut self, values: &mut [f32]) -> Result<()> {
        let (rank, operation) = (self.rank, "broadcasting the parameters");
        self.communicator(operation)?.broadcast(values, 0).map_err(|source| failed(rank, operation, source))
    }

    fn sum(&mut self, values: &mut [f64]) -> Result<()> {
        let (rank, operation) = (self.rank, "summing the metrics");
        let communicator = self.communicator(operation)?;
        communicator
            .all_reduce_in_place(values, ReduceOp::Sum)
            .map_err(|source| failed(rank, operation, source))
    }

    fn extreme(&mut self, values: &mut [i64], which: Extreme) -> Result<()> {
        let (rank, operation) = (self.rank, "comparing the ranks");
        let op = match which {
            Extreme::Min => ReduceOp::Min,
            Extreme::Max => ReduceOp::Max,
        };
        let communicator = self.communicator(operation)?;
        communicator.all_reduce_in_place(values, op).map_err(|source| failed(rank, operation, source))
    }

    fn barrier(&mut self) -> Result<()> {
        let (rank, operation) = (self.rank, "waiting for all ranks");
        self.communicator(operation)?.barrier().map_err(|source| failed(rank, operation, source))
    }

    fn span(&self, name: &str) -> Self::Span {
        ringccl::trace::span(name)
    }

    fn finish(mut self) -> Result<()> {
        let (rank, operation) = (self.rank, "leaving the ranks");
        self.communicator(operation)?;
        let communicator = self.communicator.take().ok_or_else(|| failed(rank, operation, LOST))?;
        communicator.finalize().map_err(|source| failed(rank, operation, source))
    }
}
