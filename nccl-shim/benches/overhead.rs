//! What the C interface costs over the library's own: the same operation on one rank, by both, in turns.
//!
//! One rank, so that nothing is waited for: what is left is the calls' own time.

use nccl::api::{pncclAllReduce, pncclCommDestroy, pncclCommInitAll};
use nccl::types::CommHandle;
use ringccl::{Communicator, Config, DType, ReduceOp};
use std::hint::black_box;
use std::time::Instant;

const CALLS: u32 = 100_000;
const ROUNDS: usize = 21;

fn main() {
    let mut handle: CommHandle = std::ptr::null_mut();
    // SAFETY: one place for one communicator.
    let made = unsafe { pncclCommInitAll(&mut handle, 1, std::ptr::null()) };
    assert_eq!(made, 0);
    let mut comm = Communicator::init_all(1, &Config::new(1)).expect("a communicator").remove(0);
    let (send, mut recv) = ([1.0f32; 2], [0.0f32; 2]);
    let (from, to) = (send.as_ptr(), recv.as_mut_ptr());
    let mut rust = || {
        let start = Instant::now();
        for _ in 0..CALLS {
            // SAFETY: both buffers have two elements.
            unsafe {
                comm.all_reduce_raw(black_box(from.cast()), to.cast(), 2, DType::F32, ReduceOp::Sum)
                    .expect("all-reduce");
            }
        }
        start.elapsed().as_nanos() as f64 / f64::from(CALLS)
    };
    let c = || {
        let start = Instant::now();
        for _ in 0..CALLS {
            // SAFETY: as above.
            let result = unsafe {
                pncclAllReduce(black_box(from.cast()), to.cast(), 2, 7, 0, handle, std::ptr::null_mut())
            };
            assert_eq!(result, 0);
        }
        start.elapsed().as_nanos() as f64 / f64::from(CALLS)
    };
    let mut pairs: Vec<(f64, f64)> = (0..ROUNDS).map(|_| (rust(), c())).collect();
    pairs.sort_by(|a, b| (a.1 - a.0).total_cmp(&(b.1 - b.0)));
    let (rust, c) = pairs[ROUNDS / 2];
    println!("all-reduce of 8 bytes on one rank: Rust {rust:.0} ns, C {c:.0} ns, {:.0} ns more", c - rust);
    // SAFETY: the handle is of this library.
    assert_eq!(unsafe { pncclCommDestroy(handle) }, 0);
}
