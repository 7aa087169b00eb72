//! Every collective once, on three ranks with a few elements, so that each result can be followed by hand.
//!
//! ```sh
//! cargo build --release --package ringccl --example 02_every_collective
//! ringccl run -n 3 -- target/release/examples/02_every_collective
//! ```

use ringccl::{Communicator, Error, ReduceOp};

fn main() -> Result<(), Error> {
    let mut comm = Communicator::from_env()?;
    let (rank, n) = (comm.rank(), comm.nranks());
    assert_eq!(n, 3, "this example is for 3 ranks");
    let show = |name: &str, result: &[i32]| println!("rank {rank} {name}: {result:?}");
    let me = rank as i32;

    let mut two = [0; 2];
    comm.all_reduce(&[me, 10], &mut two, ReduceOp::Sum)?;
    show("all_reduce", &two);

    // The result is on one rank: elsewhere the receive buffer is not looked at.
    let mut most = vec![0; if rank == 1 { 2 } else { 0 }];
    comm.reduce(&[me, -me], &mut most, ReduceOp::Max, 1)?;
    show("reduce to 1", &most);

    let mut word = [me * 7; 2];
    comm.broadcast(&mut word, 2)?;
    show("broadcast from 2", &word);

    // A block of every rank, in the order of ranks.
    let mut all = vec![0; n];
    comm.all_gather(&[me * me], &mut all)?;
    show("all_gather", &all);

    let mut own = [0];
    comm.reduce_scatter(&[me, me + 10, me + 20], &mut own, ReduceOp::Sum)?;
    show("reduce_scatter", &own);

    // Element i goes to rank i.
    let mut exchanged = vec![0; n];
    comm.all_to_all(&[10 * me, 10 * me + 1, 10 * me + 2], &mut exchanged)?;
    show("all_to_all", &exchanged);

    let mut gathered = vec![0; if rank == 0 { n } else { 0 }];
    comm.gather(&[me + 100], &mut gathered, 0)?;
    show("gather to 0", &gathered);

    let parts: &[i32] = if rank == 0 { &[7, 8, 9] } else { &[] };
    comm.scatter(parts, &mut own, 0)?;
    show("scatter from 0", &own);

    // Blocks of different lengths: rank r has r + 1 elements.
    let counts = [1, 2, 3];
    let mut uneven = [0; 6];
    comm.all_gather_v(&vec![me; counts[rank]], &mut uneven, &counts)?;
    show("all_gather_v", &uneven);

    let mut block = vec![0; counts[rank]];
    comm.reduce_scatter_v(&[1, 2, 3, 4, 5, 6], &mut block, &counts, ReduceOp::Sum)?;
    show("reduce_scatter_v", &block);

    // Parts of any length between any two: here r elements to each, so that rank i's part has i.
    let mut received = [0; 3];
    comm.all_to_all_v(&vec![me; 3 * rank], &[rank; 3], &mut received, &counts.map(|count| count - 1))?;
    show("all_to_all_v", &received);

    comm.barrier()?;
    comm.finalize()
}
