//! The protocol against a model library: ranks are threads, and memory is behind one lock.

use std::sync::{Arc, Barrier, Mutex};

use super::*;

/// What a model library may get wrong.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// The last element of rank 1's result.
    LastElement,
    /// The call after this many others does nothing.
    SkipsLate,
}

struct Shared {
    barrier: Barrier,
    sums: Mutex<Vec<f32>>,
    /// Every rank's send buffer.
    inputs: Mutex<Vec<Vec<f32>>>,
    maxima: Mutex<Vec<f64>>,
}

struct ThreadPeer {
    rank: usize,
    nranks: usize,
    shared: Arc<Shared>,
    fault: Fault,
    calls: usize,
}

impl ThreadPeer {
    /// Block operations, by their definitions.
    fn by_blocks(&self, op: Op, buffers: &mut Buffers) {
        self.shared.inputs.lock().unwrap()[self.rank] = buffers.send.as_slice().to_vec();
        self.shared.barrier.wait();
        let inputs = self.shared.inputs.lock().unwrap().clone();
        let recv = buffers.recv.as_mut_slice();
        let block = if op == Op::ReduceScatter { recv.len() } else { recv.len() / op.blocks(self.nranks).1 };
        for (i, to) in recv.iter_mut().enumerate() {
            *to = match op {
                Op::AllGather => inputs[i / block][i % block],
                Op::AllToAll => inputs[i / block][self.rank * block + i % block],
                Op::SendRecv => inputs[self.rank ^ 1][i],
                _ => inputs.iter().map(|input| input[self.rank * block + i]).sum(),
            };
        }
        self.shared.barrier.wait();
    }

    /// Combines every rank's `values` in `board`, and hands the result to every rank.
    fn combine<T: Copy>(&self, board: &Mutex<Vec<T>>, values: &mut [T], with: impl Fn(T, T) -> T) {
        if self.rank == 0 {
            board.lock().unwrap().clear();
        }
        self.shared.barrier.wait();
        {
            let mut board = board.lock().unwrap();
            if board.is_empty() {
                board.extend_from_slice(values);
            } else {
                board.iter_mut().zip(values.iter()).for_each(|(all, &mine)| *all = with(*all, mine));
            }
        }
        self.shared.barrier.wait();
        values.copy_from_slice(&board.lock().unwrap());
        self.shared.barrier.wait();
    }
}

impl Peer for ThreadPeer {
    fn rank(&self) -> usize {
        self.rank
    }

    fn nranks(&self) -> usize {
        self.nranks
    }

    fn run(&mut self, op: Op, buffers: &mut Buffers) -> Result<()> {
        self.calls += 1;
        if op == Op::Barrier {
            self.shared.barrier.wait();
            return Ok(());
        }
        if self.fault == Fault::SkipsLate && self.calls > 10 {
            return Ok(());
        }
        if op.has_blocks() || op == Op::SendRecv {
            self.by_blocks(op, buffers);
            if self.fault == Fault::LastElement && self.rank == 1 {
                *buffers.recv.as_mut_slice().last_mut().unwrap() += 1.0;
            }
            return Ok(());
        }
        if op == Op::AllReduce {
            buffers.recv.as_mut_slice().copy_from_slice(buffers.send.as_slice());
        }
        let root_only = op == Op::Broadcast && self.rank > 0;
        if root_only {
            buffers.recv.as_mut_slice().fill(0.0);
        }
        self.combine(&self.shared.sums, buffers.recv.as_mut_slice(), |a, b| a + b);
        if self.fault == Fault::LastElement && self.rank == 1 {
            *buffers.recv.as_mut_slice().last_mut().unwrap() += 1.0;
        }
        Ok(())
    }

    fn memory(&self, len: usize) -> Result<Memory> {
        Ok(Memory::private(len))
    }

    fn adopt(&mut self, _: &Buffers) -> Result<()> {
        Ok(())
    }

    fn release(&mut self) -> Result<()> {
        Ok(())
    }

    fn max(&mut self, values: &mut [f64]) -> Result<()> {
        self.combine(&self.shared.maxima, values, f64::max);
        Ok(())
    }
}

/// Runs `work` on three ranks; the results in rank order.
fn on_three_ranks<T: Send>(fault: Fault, work: impl Fn(&mut ThreadPeer) -> T + Sync) -> Vec<T> {
    on_ranks(3, fault, work)
}

/// Runs `work` on so many ranks; the results in rank order.
fn on_ranks<T: Send>(nranks: usize, fault: Fault, work: impl Fn(&mut ThreadPeer) -> T + Sync) -> Vec<T> {
    let shared = Arc::new(Shared {
        barrier: Barrier::new(nranks),
        sums: Mutex::default(),
        inputs: Mutex::new(vec![Vec::new(); nranks]),
        maxima: Mutex::default(),
    });
    std::thread::scope(|scope| {
        let start = |rank| {
            let mut peer = ThreadPeer { rank, nranks, shared: Arc::clone(&shared), fault, calls: 0 };
            let work = &work;
            scope.spawn(move || work(&mut peer))
        };
        let ranks: Vec<_> = (0..nranks).map(start).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

fn measured(fault: Fault, op: &str, bytes: usize) -> Vec<Measured> {
    let nranks = if op == "sendrecv" { 2 } else { 3 };
    on_ranks(nranks, fault, |peer| match measure(peer, "model", op, bytes, Duration::ZERO).unwrap().outcome {
        Outcome::Measured(figures) => figures,
        Outcome::NotOffered { note, .. } => panic!("{op}: {note}"),
    })
}

/// Proves that a right library passes on every rank and for every operation, also for sizes that
/// are not whole floats, and that the figures agree between the ranks.
#[test]
fn right_results_pass() {
    let points = [
        ("allreduce", 4000),
        ("allreduce_ip", 8),
        ("broadcast", 6),
        ("barrier", 0),
        ("allgather", 4000),
        ("reducescatter", 8),
        ("alltoall", 4001),
        ("sendrecv", 4000),
    ];
    for (op, bytes) in points {
        let rows = measured(Fault::None, op, bytes);
        for row in &rows {
            assert!(row.ok, "{op}");
            assert!(row.samples == 3 && row.batch >= 1 && row.median_us > 0.0, "{op}: {row:?}");
            assert!(row.min_us <= row.median_us && row.median_us <= row.p99_us, "{op}: {row:?}");
            assert_eq!((row.cpu_us, row.median_us), (rows[0].cpu_us, rows[0].median_us), "{op}");
        }
    }
}

/// Proves that one wrong element on one rank fails the point on all of them.
#[test]
fn one_wrong_element_fails() {
    for op in ["allreduce", "allreduce_ip", "broadcast", "allgather", "reducescatter", "alltoall", "sendrecv"]
    {
        assert!(measured(Fault::LastElement, op, 4000).iter().all(|row| !row.ok), "{op}");
    }
}

/// Proves that a library which is right at first and stops working in the timed loop fails.
#[test]
fn late_faults_fail() {
    assert!(measured(Fault::SkipsLate, "allreduce", 64).iter().all(|row| !row.ok));
}

/// Proves that CPU time is summed over ranks, not taken from one.
#[test]
fn sums_over_ranks() {
    let sums = on_three_ranks(Fault::None, |peer| sum_over_ranks(peer, peer.rank() as f64 + 1.0).unwrap());
    assert_eq!(sums, [6.0, 6.0, 6.0]);
}

/// Proves that the pattern is bench.h's (values from its `pattern` in C).
#[test]
fn pattern_is_that_of_bench_h() {
    let got = [pattern(0, 0), pattern(0, 1), pattern(3, 7), pattern(63, 123_456_789)];
    assert_eq!(got, [0.0, 632.0, 917.0, 467.0]);
}

/// Proves median, minimum and nearest-rank percentile for odd, even and many samples.
#[test]
fn summary_of_samples() {
    assert_eq!(summary(&mut [7.0]), (7.0, 7.0, 7.0));
    assert_eq!(summary(&mut [4.0, 1.0, 3.0, 2.0]), (2.5, 1.0, 4.0));
    let mut many: Vec<f64> = (1..=101).rev().map(f64::from).collect();
    assert_eq!(summary(&mut many), (51.0, 1.0, 100.0));
}

/// Proves the row of an operation that is not offered, and that `peer` opens the line.
#[test]
fn row_of_an_operation_not_offered() {
    let rows = on_three_ranks(Fault::None, |peer| {
        serde_json::to_string(&measure(peer, "model", "sendrecv", 64, Duration::ZERO).unwrap()).unwrap()
    });
    let want = r#"{"peer":"model","op":"sendrecv","ranks":3,"bytes":64,"ok":false,"note":"not offered by this peer"}"#;
    assert_eq!(rows[0], want);
}

/// Proves that buffers of any length begin on a page and have that length.
#[test]
fn buffers_begin_on_a_page() {
    for len in [0, 1, 1023, 1024, 1025] {
        let buffer = Memory::private(len);
        assert_eq!(buffer.as_slice().len(), len);
        assert_eq!(buffer.as_slice().as_ptr().addr() % Memory::PAGE_BYTES, 0);
    }
}

/// Proves that malformed arguments are refused by name.
#[test]
fn malformed_arguments_are_refused() {
    assert_eq!(parse_budget("0.25").unwrap(), Duration::from_millis(250));
    for arg in ["", "-1", "NaN", "inf", "1s"] {
        assert!(parse_budget(arg).unwrap_err().to_string().contains("seconds"), "{arg}");
    }
    assert_eq!(parse_point("broadcast:64").unwrap(), ("broadcast".to_owned(), 64));
    for arg in ["", "allreduce", ":8", "allreduce:", "allreduce:-1", "allreduce:8K"] {
        assert!(parse_point(arg).unwrap_err().to_string().contains("op:bytes"), "{arg}");
    }
}
