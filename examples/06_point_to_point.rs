//! Messages between two ranks: a token that goes round, and a shift of all buffers at once.
//!
//! ```sh
//! cargo build --release --package ringccl --example 06_point_to_point
//! ringccl run -n 4 -- target/release/examples/06_point_to_point
//! ```

use ringccl::{Communicator, Error};

fn main() -> Result<(), Error> {
    let mut comm = Communicator::from_env()?;
    let (rank, n) = (comm.rank(), comm.nranks());
    let (left, right) = ((rank + n - 1) % n, (rank + 1) % n);

    // The token starts at rank 0, and each rank adds its number. Rank 0 sends first and the others receive first:
    // if all sent first, long messages would wait for each other.
    let mut token = [100u32];
    if rank == 0 {
        comm.send(&token, right)?;
        comm.recv(&mut token, left)?;
        println!("rank 0: the token is back with {}", token[0]);
    } else {
        comm.recv(&mut token, left)?;
        token[0] += rank as u32;
        comm.send(&token, right)?;
    }

    // Sending and receiving at the same time: every rank gets the halo of its neighbours, of any size.
    let field = vec![rank as f64; 50_000];
    let (mut from_left, mut from_right) = (vec![0.0; 50_000], vec![0.0; 50_000]);
    comm.send_recv(&field, right, &mut from_left, left)?;
    comm.send_recv(&field, left, &mut from_right, right)?;
    println!("rank {rank}: between {} and {}", from_left[0], from_right[49_999]);
    comm.finalize()
}
