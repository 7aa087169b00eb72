//! Streams of a CUDA runtime of our own: operations on them are queued, on all other handles they are done at once.

use nccl::api::{
    pncclAllReduce, pncclBroadcast, pncclCommDestroy, pncclCommInitAll, pncclGroupEnd, pncclGroupStart,
};
use nccl::streams::{Streams, register};
use nccl::types::{CommHandle, StreamHandle};
use ringccl::Stream;
use std::sync::Arc;
use std::time::Duration;

const FLOAT: i32 = 7;
const SUM: i32 = 0;

struct Runtime(Arc<Stream>);

fn ours() -> StreamHandle {
    std::ptr::without_provenance_mut(0x77)
}

impl Streams for Runtime {
    fn find(&self, handle: StreamHandle) -> Option<Arc<Stream>> {
        (handle == ours()).then(|| Arc::clone(&self.0))
    }
}

/// What is queued on a stream that we know waits for what is before it there, and is done when the stream has got
/// there.
#[test]
fn known_streams_are_queued_on() {
    let stream = Arc::new(Stream::new());
    assert!(register(Box::new(Runtime(Arc::clone(&stream)))));
    let mut comms: [CommHandle; 2] = [std::ptr::null_mut(); 2];
    // SAFETY: two places for two communicators; the buffers live until the stream was waited for.
    unsafe {
        assert_eq!(pncclCommInitAll(comms.as_mut_ptr(), 2, std::ptr::null()), 0);
        let (gate, opened) = std::sync::mpsc::channel::<()>();
        // A function of a stream may wait for its own program, not for ranks.
        stream
            .call(move || {
                let _ = opened.recv_timeout(Duration::from_secs(20));
            })
            .expect("call");
        let mut data = [[1.0f32, 2.0], [10.0, 20.0]];
        let at: [*mut f32; 2] = [data[0].as_mut_ptr(), data[1].as_mut_ptr()];
        assert_eq!(pncclGroupStart(), 0);
        for (comm, at) in comms.iter().zip(at) {
            assert_eq!(pncclAllReduce(at.cast(), at.cast(), 2, FLOAT, SUM, *comm, ours()), 0);
        }
        assert_eq!(pncclGroupEnd(), 0);
        assert_eq!(at[0].read(), 1.0, "the stream has not got there");
        gate.send(()).expect("open");
        assert!(stream.synchronize(Duration::from_secs(20)).expect("synchronize"));
        assert_eq!([at[0].read(), at[1].add(1).read()], [11.0, 22.0]);
        // On any other handle the result is there at the end of the group.
        let other = std::ptr::without_provenance_mut(0x78);
        assert_eq!(pncclGroupStart(), 0);
        for (comm, at) in comms.iter().zip(at) {
            assert_eq!(pncclBroadcast(at.cast(), at.cast(), 1, FLOAT, 1, *comm, other), 0);
        }
        assert_eq!(pncclGroupEnd(), 0);
        assert_eq!(at[0].read(), 11.0);
        for comm in comms {
            assert_eq!(pncclCommDestroy(comm), 0);
        }
    }
}
