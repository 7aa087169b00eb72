//! All-reduce: every rank brings a vector and gets the element-wise sum of all, the same bits on each.
//!
//! ```sh
//! cargo build --release --package ringccl --example 01_all_reduce
//! ringccl run -n 4 -- target/release/examples/01_all_reduce
//! ```

use ringccl::{Communicator, Error, ReduceOp};

fn main() -> Result<(), Error> {
    // Waits for the other ranks, which `ringccl run`, torchrun or RANK, WORLD_SIZE and MASTER_ADDR tell of.
    let mut comm = Communicator::from_env()?;

    let mine = vec![comm.rank() as f32 + 1.0; 1000];
    let mut sum = vec![0.0; 1000];
    comm.all_reduce(&mine, &mut sum, ReduceOp::Sum)?;
    let mut mean = vec![0.0; 1000];
    comm.all_reduce(&mine, &mut mean, ReduceOp::Avg)?;

    println!("rank {} of {}: sum {}, mean {}", comm.rank(), comm.nranks(), sum[999], mean[999]);
    // Leaves together with the others; a rank that goes without it is taken for one that has failed.
    comm.finalize()
}
