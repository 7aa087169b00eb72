//! Ranks as threads of the test process: each runs the same closure with its own communicator.

use ringccl::comm::Root;
use ringccl::{Communicator, Config};

/// Runs `body` on `nranks` threads and returns their results in rank order.
pub(crate) fn with_ranks<T: Send>(
    nranks: u32,
    config: &Config,
    body: impl Fn(Communicator) -> T + Sync,
) -> Vec<T> {
    let root = Root::new().unwrap();
    let id = root.unique_id();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..nranks)
            .map(|rank| {
                let (body, id, config) = (&body, &id, config.clone());
                scope.spawn(move || body(Communicator::init(id, rank, nranks, config).unwrap()))
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    })
}
