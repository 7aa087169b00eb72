//! The interface as its callers see it: structures and numbers as the header has them, and ranks that use it.

use ringccl_c::*;
use std::collections::BTreeSet;
use std::ffi::{CStr, c_void};
use std::ptr::null_mut;
// ATOMICS: counts calls of threads of this test, which are joined before it is read.
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

fn last_error() -> String {
    // SAFETY: the text is this thread's and stays until its next error.
    unsafe { CStr::from_ptr(ringccl_last_error()) }.to_string_lossy().into_owned()
}

/// Runs `act` as each of `nranks` ranks, on a thread of its own.
fn ranks(nranks: u32, timeout: Duration, act: impl Fn(u32, *mut Comm) + Sync) {
    let mut id = [0u8; ID_BYTES];
    let mut root = null_mut();
    // SAFETY: the buffers are as long as they must be.
    assert_eq!(unsafe { ringccl_root_new(id.as_mut_ptr(), &mut root) }, Status::Ok);
    let act = &act;
    std::thread::scope(|scope| {
        for rank in 0..nranks {
            scope.spawn(move || {
                let options = Options {
                    timeout_ns: timeout.as_nanos() as u64,
                    join_timeout_ns: 10_000_000_000,
                    reports: 0,
                    reserved: 0,
                };
                let mut comm = null_mut();
                // SAFETY: all pointers are to values of this frame.
                let status = unsafe { ringccl_comm_join(id.as_ptr(), rank, nranks, &options, &mut comm) };
                assert_eq!(status, Status::Ok, "{}", last_error());
                act(rank, comm);
                // SAFETY: it is freed once.
                unsafe { ringccl_comm_free(comm) };
            });
        }
    });
    // SAFETY: it is freed once.
    unsafe { ringccl_root_free(root) };
}

fn op(kind: Kind, send: *const f32, recv: *mut f32, count: usize) -> Op {
    Op {
        kind: kind as u32,
        dtype: 7,
        reduction: Reduction::Sum as u32,
        peer: 0,
        tag: 0,
        reserved: 0,
        send: send.cast(),
        recv: recv.cast(),
        count: count as u64,
        counts: std::ptr::null(),
        recv_counts: std::ptr::null(),
        factor: std::ptr::null(),
    }
}

/// Collectives run at once and started, messages from any rank, and what keeps their buffers is released once each.
#[test]
fn operations_run_and_release_what_they_used() {
    static RELEASED: AtomicU32 = AtomicU32::new(0);
    unsafe extern "C" fn release(context: *mut c_void) {
        // ORDERING: Relaxed; the threads are joined before it is read.
        RELEASED.fetch_add(context.addr() as u32, Ordering::Relaxed);
    }
    ranks(3, Duration::from_secs(20), |rank, comm| {
        let mut data = [rank as f32; 100];
        let at = data.as_mut_ptr();
        let mut reduce = op(Kind::AllReduce, at, at, 100);
        // SAFETY: the buffer lives longer than the operations, of which each is waited for.
        unsafe {
            assert_eq!(ringccl_comm_run(comm, &reduce), Status::Ok, "{}", last_error());
            assert_eq!(data, [3.0; 100]);
            let mut work = null_mut();
            let one = std::ptr::without_provenance_mut(1);
            assert_eq!(ringccl_comm_start(comm, &reduce, 1, Some(release), one, &mut work), Status::Ok);
            assert_eq!(ringccl_work_wait(work, u64::MAX >> 2), Status::Ok, "{}", last_error());
            ringccl_work_free(work);
            assert_eq!(data, [9.0; 100]);
            reduce.dtype = 99;
            assert_eq!(
                ringccl_comm_start(comm, &reduce, 1, Some(release), one, &mut work),
                Status::InvalidArgument
            );
            assert_eq!(last_error(), "99 is no element type");
            let mut message = op(if rank == 0 { Kind::Recv } else { Kind::Send }, at, at, 1);
            (message.peer, message.tag) = (if rank == 0 { -1 } else { 0 }, 5);
            let mut sources = BTreeSet::new();
            for _ in 0..if rank == 0 { 2 } else { 1 } {
                assert_eq!(ringccl_comm_start(comm, &message, 1, Some(release), one, &mut work), Status::Ok);
                assert_eq!(ringccl_work_wait(work, u64::MAX >> 2), Status::Ok, "{}", last_error());
                sources.insert(ringccl_work_source(work));
                ringccl_work_free(work);
            }
            assert_eq!(sources, if rank == 0 { BTreeSet::from([1, 2]) } else { BTreeSet::from([-1]) });
        }
    });
    // ORDERING: Relaxed, as above. Two each for collectives, four for messages.
    assert_eq!(RELEASED.load(Ordering::Relaxed), 10);
}

/// A wait that is shorter than the operation says so, a late rank is named at the communicator's limit, and the end can
/// be told by a call.
#[test]
fn limits_and_calls() {
    ranks(2, Duration::from_millis(600), |rank, comm| {
        let barrier = op(Kind::Barrier, std::ptr::null(), null_mut(), 0);
        if rank == 1 {
            // SAFETY: the communicator is open; the calls have no buffers.
            unsafe {
                assert_eq!(ringccl_comm_run(comm, &barrier), Status::Ok, "{}", last_error());
                while ringccl_comm_error(comm) == Status::Ok {
                    std::thread::yield_now();
                }
            }
            return;
        }
        // SAFETY: as above; what is called outlives the work.
        unsafe {
            let mut work = null_mut();
            assert_eq!(ringccl_comm_start(comm, &barrier, 1, None, null_mut(), &mut work), Status::Ok);
            assert_eq!(ringccl_work_wait(work, u64::MAX >> 2), Status::Ok);
            ringccl_work_free(work);
            assert_eq!(ringccl_comm_start(comm, &barrier, 1, None, null_mut(), &mut work), Status::Ok);
            assert_eq!(ringccl_work_wait(work, 1_000_000), Status::Pending);
            let (sender, receiver) = std::sync::mpsc::channel::<(Status, String)>();
            unsafe extern "C" fn done(context: *mut c_void, status: Status, text: *const std::ffi::c_char) {
                let sender: Box<std::sync::mpsc::Sender<(Status, String)>> =
                    // SAFETY: the pointer is the box's, and this is called once.
                    unsafe { Box::from_raw(context.cast()) };
                // SAFETY: the text is valid during the call.
                let text = unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
                sender.send((status, text)).unwrap();
            }
            let context = Box::into_raw(Box::new(sender)).cast();
            assert_eq!(ringccl_work_on_done(work, Some(done), context), Status::Ok);
            let (status, text) = receiver.recv_timeout(Duration::from_secs(10)).unwrap();
            assert_eq!(status, Status::Timeout, "{text}");
            assert!(text.contains("rank 1"), "{text}");
            ringccl_work_free(work);
        }
    });
}

/// Every function that the library exports is declared in the header, and the other way round; so are the numbers.
#[test]
fn the_header_is_the_interface() {
    let header = include_str!("../include/ringccl.h");
    let names = |text: &str, before: &str, after: char| -> BTreeSet<String> {
        let places = text.match_indices(before);
        let word = |at: usize| {
            text[at..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>()
        };
        let all = places.map(|(at, _)| (at, word(at)));
        all.filter(|(at, word)| text[at + word.len()..].starts_with(after)).map(|(_, word)| word).collect()
    };
    let sources = [
        include_str!("../src/lib.rs"),
        include_str!("../src/comm.rs"),
        include_str!("../src/memory.rs"),
        include_str!("../src/root.rs"),
        include_str!("../src/status.rs"),
        include_str!("../src/work.rs"),
    ];
    let exported: BTreeSet<String> = sources
        .iter()
        .flat_map(|text| text.split("extern \"C\" fn ").skip(1))
        .map(|rest| rest.chars().take_while(|c| *c != '(').collect::<String>())
        .filter(|name| name.starts_with("ringccl_"))
        .collect();
    let declared = names(header, "ringccl_", '(');
    assert_eq!(declared.difference(&exported).collect::<Vec<_>>(), Vec::<&String>::new());
    assert_eq!(exported.difference(&declared).collect::<Vec<_>>(), Vec::<&String>::new());
    for (line, value) in [
        (format!("#define RINGCCL_ABI {ABI}"), ABI),
        (format!("#define RINGCCL_ID_BYTES {ID_BYTES}"), 128),
        (format!("RINGCCL_RECV = {}", Kind::Recv as u32), 13),
        (format!("RINGCCL_BIT_XOR = {}", Reduction::BitXor as u32), 8),
        (format!("RINGCCL_PENDING = {}", Status::Pending as u32), 7),
    ] {
        assert!(header.contains(&line), "{line}");
        assert!(line.ends_with(&value.to_string()), "{line}");
    }
    assert_eq!((size_of::<Op>(), size_of::<Options>()), (72, 24));
}
