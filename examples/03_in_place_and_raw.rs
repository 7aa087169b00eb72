//! Results in the buffer of the input, a scalar of each rank's own, and buffers that are known by their addresses.
//!
//! ```sh
//! cargo build --release --package ringccl --example 03_in_place_and_raw
//! ringccl run -n 2 -- target/release/examples/03_in_place_and_raw
//! ```

use ringccl::{Communicator, DType, Element, Error, ReduceOp};

fn main() -> Result<(), Error> {
    let mut comm = Communicator::from_env()?;
    let (rank, n) = (comm.rank(), comm.nranks());

    let mut gradient = vec![rank as f64 + 1.0; 4];
    comm.all_reduce_in_place(&mut gradient, ReduceOp::Prod)?;
    println!("rank {rank} product: {gradient:?}");

    // In place, an all-gather takes each rank's block from its place in the buffer of all.
    let mut all = vec![0i64; 2 * n];
    all[2 * rank..][..2].fill(rank as i64 + 5);
    comm.all_gather_in_place(&mut all)?;
    println!("rank {rank} gathered: {all:?}");

    // Each rank weighs what it brings: 0.25 of rank 0, 0.75 of rank 1.
    let weight = [0.25f32, 0.75][rank % 2];
    let mut mixed = [4.0f32, 8.0];
    comm.all_reduce_in_place(&mut mixed, ReduceOp::PreMulSum(weight.scalar()))?;
    println!("rank {rank} weighted: {mixed:?}");

    // What a binding to another language has: addresses, a count and a type that is known at run time.
    let (bytes, dtype) = (u64::to_ne_bytes(40 + rank as u64), DType::U64);
    let mut largest = [0u8; 8];
    // SAFETY: both buffers have one element of 8 bytes, and they do not overlap.
    unsafe { comm.all_reduce_raw(bytes.as_ptr(), largest.as_mut_ptr(), 1, dtype, ReduceOp::Max)? };
    println!("rank {rank} largest {dtype}: {}", u64::from_ne_bytes(largest));
    comm.finalize()
}
