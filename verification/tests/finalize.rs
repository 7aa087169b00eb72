//! What `finalize` waits for.

mod common;

use common::worker;
use verification::testkit::{Job, Meet, ShmDir};

/// Messages that streams still send when all ranks have called `finalize` come whole: their senders stay until then.
#[test]
fn messages_of_streams_arrive_after_finalize() {
    for nranks in [2, 3] {
        // Far more than the rings hold, and some 10 ms of work: the barrier of `finalize` is over long before.
        for bytes in [8 << 20, 64 << 20] {
            let shm = ShmDir::new();
            let args = ["mail-at-end", "--bytes", &bytes.to_string()];
            for ended in Job::new(worker(), Meet::launcher(), nranks, &args, &shm).start_all().finish_all() {
                assert_eq!(ended.code, Some(0), "{nranks} ranks, {bytes} bytes: {ended:?}");
            }
            shm.assert_empty();
        }
    }
}
