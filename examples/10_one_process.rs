//! Many ranks in one process: communicators made all at once and driven by one thread, or by a thread each.
//!
//! ```sh
//! cargo run --release --package ringccl --example 10_one_process
//! ```

use ringccl::{Communicator, Config, Error, Group, ReduceOp};

fn main() -> Result<(), Error> {
    let mut comms = Communicator::init_all(8, &Config::from_env(8)?)?;

    // One thread: a blocking call would wait for the other ranks for ever, so the calls of all go into a group.
    let mut buffers: Vec<Vec<f32>> = (0..8).map(|rank| vec![rank as f32; 1000]).collect();
    let mut group = Group::new();
    for (comm, buffer) in comms.iter_mut().zip(&mut buffers) {
        group.all_reduce_in_place(comm, buffer, ReduceOp::Sum)?;
    }
    group.run()?;
    println!("one thread: {:?}", buffers.iter().map(|buffer| buffer[999]).collect::<Vec<_>>());

    // Different calls of different ranks may be in one group too, as long as each rank makes those of its communicator.
    let (chunks, mut got) = ([1u8, 2, 3, 4, 5, 6, 7, 8], [[0u8; 1]; 8]);
    let mut group = Group::new();
    for ((rank, comm), got) in comms.iter_mut().enumerate().zip(&mut got) {
        group.scatter(comm, if rank == 3 { &chunks } else { &[] }, got, 3)?;
    }
    group.run()?;
    println!("scattered: {:?}", got.concat());

    // A thread for each: every call blocks until its result is there, as in a process of its own.
    let results = std::thread::scope(|scope| {
        let work = |mut comm: Communicator| -> Result<i32, Error> {
            let mut most = [comm.rank() as i32 * 3];
            comm.all_reduce_in_place(&mut most, ReduceOp::Max)?;
            comm.finalize()?;
            Ok(most[0])
        };
        let threads: Vec<_> = comms.into_iter().map(|comm| scope.spawn(move || work(comm))).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("no rank panics"))
            .collect::<Result<Vec<_>, _>>()
    })?;
    println!("threads: {results:?}");
    Ok(())
}
