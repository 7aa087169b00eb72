//! Tags and receiving from any rank: rank 0 hands out jobs to whoever asks, the others work until there is none.
//!
//! ```sh
//! cargo build --release --package ringccl --example 07_work_queue
//! ringccl run -n 4 -- target/release/examples/07_work_queue
//! ```

use ringccl::{Communicator, Error, Group};

/// A worker to rank 0: the result of its last job, or 0.
const ASK: u32 = 1;
/// Rank 0 to a worker: the next job, or -1 when there is none.
const JOB: u32 = 2;
/// A worker's last message: its number. With the tag of a request it would be taken for one.
const FAREWELL: u32 = 3;
const JOBS: i64 = 40;

fn main() -> Result<(), Error> {
    let mut comm = Communicator::from_env()?;
    if comm.rank() == 0 {
        hand_out(&mut comm)?
    } else {
        work(&mut comm)?
    }
    comm.finalize()
}

fn hand_out(comm: &mut Communicator) -> Result<(), Error> {
    let (mut next, mut total, mut working) = (1, 0, comm.nranks() - 1);
    while working > 0 {
        let mut result = [0i64];
        let worker = comm.recv_tagged(&mut result, None, ASK)?;
        total += result[0];
        let job = if next <= JOBS { next } else { -1 };
        comm.send_tagged(&[job], worker, JOB)?;
        next += 1;
        working -= usize::from(job < 0);
    }
    println!("rank 0: the squares from 1 to {JOBS} add up to {total}");

    // The same in a group: who sent what is known when it has run.
    let mut words = vec![[0i64]; comm.nranks() - 1];
    let mut group = Group::new();
    let mut sources = Vec::new();
    for word in &mut words {
        sources.push(group.recv_tagged(comm, word, None, FAREWELL)?);
    }
    group.run()?;
    let is_right = |(source, word): (&ringccl::Source, &[i64; 1])| source.rank() == Some(word[0] as usize);
    println!("rank 0: every farewell names its sender: {}", sources.iter().zip(&words).all(is_right));
    Ok(())
}

fn work(comm: &mut Communicator) -> Result<(), Error> {
    let mut result = [0i64];
    loop {
        comm.send_tagged(&result, 0, ASK)?;
        let mut job = [0i64];
        comm.recv_tagged(&mut job, Some(0), JOB)?;
        if job[0] < 0 {
            return comm.send_tagged(&[comm.rank() as i64], 0, FAREWELL);
        }
        result = [job[0] * job[0]];
    }
}
