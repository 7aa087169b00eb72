//! Groups: calls of two communicators, and messages, that start together and run side by side.
//!
//! ```sh
//! cargo build --release --package ringccl --example 05_groups
//! ringccl run -n 4 -- target/release/examples/05_groups
//! ```

use ringccl::{Communicator, Error, Group, ReduceOp};

fn main() -> Result<(), Error> {
    let mut world = Communicator::from_env()?;
    let (rank, n) = (world.rank(), world.nranks());
    // The ranks backwards: every communicator has a sequence of its own.
    let mut reversed = world.split(Some(0), -(rank as i32))?.expect("every rank has a colour");

    let (mine, mut sum) = ([rank as i64; 3], [0; 3]);
    let mut first = [reversed.rank() as i64];
    let (mut all, mut from_left) = (vec![0; n], [0i64]);

    let mut group = Group::new();
    group.all_reduce(&mut world, &mine, &mut sum, ReduceOp::Sum)?;
    group.broadcast(&mut reversed, &mut first, 0)?;
    // A group inside a group runs with it. Messages pass each other, whatever their order.
    let mut ring = Group::new();
    ring.send(&mut world, &mine[..1], (rank + 1) % n)?;
    ring.recv(&mut world, &mut from_left, (rank + n - 1) % n)?;
    group.append(ring);
    group.all_gather(&mut reversed, &mine[1..2], &mut all)?;
    group.run()?; // nothing has run before

    println!(
        "rank {rank}: sum {}, first of reversed {}, left {}, all {all:?}",
        sum[0], first[0], from_left[0]
    );

    // One wrong call fails the whole group, before anything of it has run.
    let mut wrong = Group::new();
    wrong.barrier(&mut world)?;
    let _ = wrong.send(&mut world, &mine, n);
    println!("rank {rank}: {}", wrong.run().expect_err("rank n does not exist"));

    reversed.finalize()?;
    world.finalize()
}
