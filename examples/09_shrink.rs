//! A rank dies in the middle of the work: the others learn who it was, and go on without it.
//!
//! ```sh
//! cargo build --release --package ringccl --example 09_shrink
//! ringccl run -n 4 --grace 20 -- target/release/examples/09_shrink
//! ```
//!
//! The launcher ends a job in which a rank has failed, and `--grace` is the time that it leaves the others.

use ringccl::comm::Shrink;
use ringccl::{Communicator, Error, ReduceOp};

/// The work: sums until the round is through.
fn work(comm: &mut Communicator, round: u32) -> Result<i64, Error> {
    let mut sum = [comm.rank() as i64];
    for step in 0..10 {
        if (round, comm.rank(), step) == (0, 2, 5) {
            std::process::abort();
        }
        sum = [comm.rank() as i64];
        comm.all_reduce_in_place(&mut sum, ReduceOp::Sum)?;
    }
    Ok(sum[0])
}

fn main() -> Result<(), Error> {
    let mut comm = Communicator::from_env()?;
    let name = comm.rank();
    for round in 0.. {
        match work(&mut comm, round) {
            Ok(sum) => {
                println!("rank {name}: round {round} is through on {} ranks, {sum}", comm.nranks());
                break;
            }
            // All survivors get the same name here, and must pass the same list.
            Err(Error::PeerGone { dead, .. }) => {
                println!("rank {name}: rank {dead} is gone");
                // The old communicator has ended for everybody; the new one has its ranks from 0 again.
                comm = comm.shrink(&[dead as usize], Shrink::Keep)?;
            }
            Err(other) => return Err(other),
        }
    }
    println!("rank {name} is rank {} now", comm.rank());
    comm.finalize()
}
