//! All ranks of a communicator as threads of this process, for all-reduces of floats that are timed.

use crate::cores;
use crate::crew::Crew;
use anyhow::{Context, Result, ensure};
use ringccl::{Choice, Communicator, Config, ReduceOp, SharedMemory};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// What an operation may take; a rank that does not come is named after it.
const OPERATION_LIMIT: Duration = Duration::from_secs(10);
/// What a job of many operations may take.
const JOB_LIMIT: Duration = Duration::from_secs(60);
/// Bytes of an element.
const ELEMENT: usize = size_of::<f32>();

/// Where the ranks' buffers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// Each rank's own.
    Private,
    /// Registered with the communicator: collectives copy nothing.
    Registered,
}

/// One rank's input and output.
#[derive(Debug)]
enum Buffers {
    Private { input: Vec<f32>, output: Vec<f32> },
    Registered { input: SharedMemory, output: SharedMemory },
}

impl Buffers {
    fn both(&mut self) -> (&mut [f32], &mut [f32]) {
        match self {
            Self::Private { input, output } => (input, output),
            Self::Registered { input, output } => (input.as_mut_slice(), output.as_mut_slice()),
        }
    }
}

/// A rank: what its thread needs.
#[derive(Debug)]
struct Rank {
    comm: Communicator,
    buffers: Buffers,
    /// What the operation that was checked last ran with.
    choice: Option<Choice>,
}

/// The ranks; the calling thread is rank 0. Bound evenly to the cores.
#[derive(Debug)]
pub struct Ranks {
    crew: Crew<Rank>,
    /// Bytes of the operation that was checked last.
    checked: Option<usize>,
}

impl Ranks {
    /// A communicator of `nranks` with room for operations of `bytes_max` bytes.
    ///
    /// # Errors
    /// When it, its threads or its memory cannot be had.
    pub fn new(config: &Config, nranks: usize, bytes_max: usize, memory: Memory) -> Result<Self> {
        let config = Config { timeout: OPERATION_LIMIT, ..config.clone() };
        cores::unbind(); // how ranks wait depends on the cores that they may use
        let comms = Communicator::init_all(u32::try_from(nranks)?, &config)?;
        let comms: Mutex<Vec<Option<Communicator>>> = Mutex::new(comms.into_iter().map(Some).collect());
        let places: Vec<usize> = (0..nranks).map(|rank| cores::even(rank, nranks)).collect();
        let crew = Crew::new(&places, JOB_LIMIT, move |rank| {
            let taken = comms.lock().ok().and_then(|mut comms| comms.get_mut(rank)?.take());
            let mut comm = taken.context("no communicator for this rank")?;
            let mut buffers = match memory {
                Memory::Private => {
                    let len = bytes_max / ELEMENT;
                    Buffers::Private { input: vec![0.0; len], output: vec![0.0; len] }
                }
                Memory::Registered => {
                    let (input, output) = (SharedMemory::new(bytes_max)?, SharedMemory::new(bytes_max)?);
                    for memory in [&input, &output] {
                        ensure!(comm.register(memory)?.is_mapped(), "the ranks cannot map their memory");
                    }
                    Buffers::Registered { input, output }
                }
            };
            let (input, output) = buffers.both();
            output.fill(-1.0);
            (0..).zip(input).for_each(|(i, value)| *value = part(rank, i));
            Ok(Rank { comm, buffers, choice: None })
        })?;
        Ok(Self { crew, checked: None })
    }

    /// The time of `iters` all-reduces of `bytes` bytes, from when all ranks are ready until all are done. The first of
    /// each size is not timed: every element of its result is checked on every rank.
    ///
    /// # Errors
    /// When an operation fails, takes too long, or has a wrong result.
    pub fn all_reduce(&mut self, bytes: usize, iters: u64) -> Result<Duration> {
        if self.checked != Some(bytes) {
            self.crew.run_all(move |rank| check(rank, bytes))?;
            self.checked = Some(bytes);
        }
        self.crew.run(move |rank| repeat(rank, bytes, iters).map(drop), |rank| repeat(rank, bytes, iters))
    }

    /// What operations of the last size ran with.
    ///
    /// # Errors
    /// When there were none.
    pub fn choice(&mut self) -> Result<Choice> {
        let choice = self.crew.run(|_| Ok(()), |rank| Ok(rank.choice))?;
        choice.context("no operation has moved data")
    }
}

/// Element `i` of a rank's input: small whole numbers, so that sums are exact.
fn part(rank: usize, i: usize) -> f32 {
    ((rank + 1) * (1 + i % 5)) as f32
}

/// The part of a buffer that an operation of so many bytes has.
fn first(buffer: &mut [f32], bytes: usize) -> Result<&mut [f32]> {
    buffer.get_mut(..bytes / ELEMENT).with_context(|| format!("buffers have less than {bytes} bytes"))
}

fn repeat(rank: &mut Rank, bytes: usize, iters: u64) -> Result<Duration> {
    let Rank { comm, buffers, .. } = rank;
    let (input, output) = buffers.both();
    let (input, output) = (first(input, bytes)?, first(output, bytes)?);
    comm.barrier()?;
    let start = Instant::now();
    for _ in 0..iters {
        comm.all_reduce(input, output, ReduceOp::Sum)?;
    }
    comm.barrier()?;
    Ok(start.elapsed())
}

fn check(rank: &mut Rank, bytes: usize) -> Result<()> {
    let Rank { comm, buffers, choice } = rank;
    let (input, output) = buffers.both();
    let (input, output) = (first(input, bytes)?, first(output, bytes)?);
    output.fill(-1.0);
    comm.all_reduce(input, output, ReduceOp::Sum)?;
    *choice = comm.last_choice();
    let n = comm.nranks();
    let wrong = (0..).zip(&*output).find(|(i, sum)| **sum != part(n * (n + 1) / 2 - 1, *i));
    if let Some((i, sum)) = wrong {
        let should = part(n * (n + 1) / 2 - 1, i);
        anyhow::bail!("element {i} of {bytes} bytes is {sum}, not {should}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringccl::Algorithm;

    /// Ranks on private and on registered memory sum up right and say what they ran; a second size is checked anew.
    #[test]
    fn sums_are_timed_and_checked() {
        for memory in [Memory::Private, Memory::Registered] {
            let mut ranks = Ranks::new(&Config::new(3), 3, 1 << 20, memory).unwrap();
            for bytes in [8, 1 << 20] {
                assert!(ranks.all_reduce(bytes, 3).unwrap() > Duration::ZERO);
            }
            let algorithm = ranks.choice().unwrap().algorithm;
            assert_eq!(algorithm == Algorithm::ZeroCopy, memory == Memory::Registered);
            assert!(ranks.all_reduce(2 << 20, 1).unwrap_err().to_string().contains("member"));
        }
    }

    /// A wrong element is found, and named with what it should be.
    #[test]
    fn wrong_results_are_found() {
        let mut ranks = Ranks::new(&Config::new(2), 2, 4096, Memory::Private).unwrap();
        let spoil = |rank: &mut Rank| {
            rank.buffers.both().0[7] = 0.5;
            Ok(())
        };
        ranks.crew.run(spoil, |_| Ok(())).unwrap();
        let text = format!("{:#}", ranks.all_reduce(4096, 1).unwrap_err());
        assert!(text.contains("element 7 of 4096 bytes is 3.5, not 9"), "{text}");
    }
}
