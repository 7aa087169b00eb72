//! Streams: operations run behind the program's back while it computes; events order streams among each other.
//!
//! ```sh
//! cargo build --release --package ringccl --example 04_streams
//! ringccl run -n 2 -- target/release/examples/04_streams
//! ```

use ringccl::{Communicator, ReduceOp, Stream};
use std::sync::mpsc;
use std::time::Duration;

/// A layer's gradient, slowly computed.
fn backward(layer: usize, rank: usize) -> Vec<f32> {
    (0..100_000).map(|i| ((i % 7 + layer) * (rank + 1)) as f32).collect()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut comm = Communicator::from_env()?;
    let rank = comm.rank();
    let (gradients, others) = (Stream::new(), Stream::new());

    // A buffer moves into the stream and comes back with the result. Each exchange runs while the next layer computes.
    let mut pending = Vec::new();
    for layer in (0..3).rev() {
        pending.push((layer, gradients.all_reduce(&mut comm, backward(layer, rank), ReduceOp::Avg)?));
    }
    // What the other stream does from here on waits for the gradients, and this thread does not.
    let reduced = gradients.record()?;
    others.wait_for(&reduced)?;
    let (say, told) = mpsc::channel();
    others.call(move || say.send("all gradients are there").unwrap_or_default())?;
    let weights = others.broadcast(&mut comm, vec![rank as f32 + 0.5; 10], 0)?;

    for (layer, pending) in pending {
        let gradient = pending.wait()?;
        println!("rank {rank} layer {layer}: {:?}", &gradient[..3]);
    }
    assert!(reduced.wait(Duration::from_secs(30)), "an event is done when all before it is");
    println!("rank {rank} event: {}", told.recv()?);

    // A wait may have a limit: what is not there by then is given back, to wait again.
    let weights = match weights.wait_for(Duration::from_secs(30)) {
        Ok(result) => result?,
        Err(still_pending) => still_pending.wait()?,
    };
    println!("rank {rank} weights: {}", weights[9]);

    // Or a function is called with the result.
    let (send, results) = mpsc::channel();
    let gathered = gradients.all_gather(&mut comm, vec![rank as u8])?;
    gathered.on_done(move |result| send.send(result).unwrap_or_default());
    println!("rank {rank} gathered: {:?}", results.recv()??);
    comm.finalize()?;
    Ok(())
}
