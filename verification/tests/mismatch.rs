//! Ranks that do not call the same: every field of every kind, missing and doubled calls, orders of communicators.

mod common;

use common::worker;
use std::time::Duration;
use verification::report::Event;
use verification::testkit::{Ended, Job, Meet, ShmDir};

/// Longest time from the last rank's first call to any rank's error.
const WITHIN: Duration = Duration::from_secs(1);

/// What rank 1 calls, what the others call, what every message must contain, and the number of the operation.
struct Case {
    odd: &'static str,
    others: &'static str,
    told: [&'static str; 3],
    seqno: u32,
}

const fn case(odd: &'static str, others: &'static str, told: [&'static str; 3], seqno: u32) -> Case {
    Case { odd, others, told, seqno }
}

const X: &str = "all_reduce/float/sum/8";
/// The barrier before the calls is operation 1.
const CASES: [Case; 45] = [
    // Kind.
    case("barrier", X, ["called barrier", "called all_reduce of 8 x float, sum", "the calls differ"], 2),
    case(
        "broadcast/float/0/8",
        X,
        ["broadcast of 8 x float from rank 0", "called all_reduce", "calls differ"],
        2,
    ),
    case(
        "broadcast/float/1/8",
        X,
        ["broadcast of 8 x float from rank 1", "called all_reduce", "calls differ"],
        2,
    ),
    case("barrier", "broadcast/float/1/8", ["called barrier", "from rank 1", "the calls differ"], 2),
    case("broadcast/float/1/8", "barrier", ["called barrier", "from rank 1", "the calls differ"], 2),
    case("", X, ["called finalize", "called all_reduce", "the calls differ"], 2),
    case("", "barrier", ["called finalize", "called barrier", "the calls differ"], 2),
    // Count, within a protocol and across protocols and algorithms, and none at all.
    case("all_reduce/float/sum/9", X, ["8 x float", "9 x float", "count "], 2),
    case("all_reduce/float/sum/100", X, ["8 x float", "100 x float", "count "], 2),
    case("all_reduce/float/sum/1000", X, ["8 x float", "1000 x float", "count "], 2),
    case("all_reduce/float/sum/1000000", X, ["8 x float", "1000000 x float", "count "], 2),
    case(
        "all_reduce/float/sum/1000001",
        "all_reduce/float/sum/1000000",
        ["1000000 x", "1000001 x", "count "],
        2,
    ),
    case("all_reduce/float/sum/0", X, ["8 x float", "0 x float", "count "], 2),
    case("broadcast/float/1/9", "broadcast/float/1/8", ["8 x float", "9 x float", "count "], 2),
    case("broadcast/float/0/300000", "broadcast/float/0/8", ["8 x float", "300000 x float", "count "], 2),
    // Type, of equal and of other size.
    case("all_reduce/int32/sum/8", X, ["8 x int32", "8 x float", "type "], 2),
    case("all_reduce/double/sum/8", X, ["8 x double", "8 x float", "type "], 2),
    case("all_reduce/half/sum/8", "all_reduce/bfloat16/sum/8", ["8 x half", "8 x bfloat16", "type "], 2),
    case("broadcast/int64/0/8", "broadcast/double/0/8", ["8 x int64", "8 x double", "type "], 2),
    // Reduction.
    case("all_reduce/float/max/8", X, ["float, max", "float, sum", "reduction "], 2),
    case(
        "all_reduce/int64/min/70000",
        "all_reduce/int64/avg/70000",
        ["int64, min", "int64, avg", "reduction "],
        2,
    ),
    // Root.
    case("broadcast/float/1/8", "broadcast/float/0/8", ["from rank 0", "from rank 1", "root "], 2),
    case("broadcast/float/0/90000", "broadcast/float/1/90000", ["from rank 0", "from rank 1", "root "], 2),
    // Other kinds with the same fields, and each field of those that have blocks or a root.
    case(
        "all_gather/float/-/8",
        X,
        ["all_gather of 8 x float per rank", "all_reduce of 8", "calls differ"],
        2,
    ),
    case(
        "reduce_scatter/float/sum/8",
        X,
        ["reduce_scatter of 8 x float per rank, sum", "all_reduce of 8", "differ"],
        2,
    ),
    case(
        "gather/float/1/8",
        "scatter/float/1/8",
        ["per rank to rank 1", "per rank from rank 1", "calls differ"],
        2,
    ),
    case("all_gather/float/-/9", "all_gather/float/-/8", ["8 x float", "9 x float", "count "], 2),
    case("all_gather/int32/-/70000", "all_gather/float/-/70000", ["x float", "x int32", "type "], 2),
    case(
        "reduce_scatter/float/max/8",
        "reduce_scatter/float/sum/8",
        ["rank, max", "rank, sum", "reduction "],
        2,
    ),
    case(
        "reduce_scatter/half/sum/90000",
        "reduce_scatter/half/sum/8",
        ["8 x half", "90000 x half", "count "],
        2,
    ),
    case(
        "all_to_all/float/-/9",
        "all_to_all/float/-/8",
        ["8 x float per pair", "9 x float per pair", "count "],
        2,
    ),
    case("all_to_all/int64/-/30000", "all_to_all/double/-/30000", ["x int64", "x double", "type "], 2),
    case("reduce/float/sum:1/8", "reduce/float/sum:0/8", ["sum to rank 0", "sum to rank 1", "root "], 2),
    case("reduce/float/min:0/8", "reduce/float/sum:0/8", ["min to rank 0", "sum to rank 0", "reduction "], 2),
    case("reduce/float/sum:1/300000", "reduce/float/sum:0/300000", ["to rank 0", "to rank 1", "root "], 2),
    case("gather/float/0/9", "gather/float/0/8", ["8 x float per", "9 x float per", "count "], 2),
    case("gather/float/1/90000", "gather/float/0/90000", ["to rank 0", "to rank 1", "root "], 2),
    case("scatter/float/1/8", "scatter/float/0/8", ["from rank 0", "from rank 1", "root "], 2),
    case("scatter/half/0/40000", "scatter/bfloat16/0/40000", ["x half", "x bfloat16", "type "], 2),
    // Uneven counts with the same sum, and with another one.
    case(
        "all_gather_v/float/1/8",
        "all_gather_v/float/0/8",
        ["in all, counts #", "all_gather_v", "counts of the ranks differ"],
        2,
    ),
    case(
        "all_gather_v/float/0/9",
        "all_gather_v/float/0/8",
        ["sum of the counts ", "all_gather_v", "counts of the ranks"],
        2,
    ),
    case(
        "reduce_scatter_v/float/sum:1/9000",
        "reduce_scatter_v/float/sum:0/9000",
        ["in all, counts #", "sum", "counts of the ranks differ"],
        2,
    ),
    // A call that is missing, and one that is made twice.
    case(
        "barrier",
        "barrier all_reduce/float/sum/8 barrier",
        ["called finalize", "called all_reduce", "differ"],
        3,
    ),
    case("all_reduce/float/sum/8 barrier", "barrier", ["called barrier", "called all_reduce", "differ"], 2),
    case(
        "all_reduce/int32/sum/4 all_reduce/int32/sum/4 barrier",
        "all_reduce/int32/sum/4 barrier",
        ["called barrier", "called all_reduce of 4 x int32, sum", "the calls differ"],
        3,
    ),
];

/// All ranks of a job whose rank 1 calls something else.
fn ends(nranks: u32, others: &str, odd: &str) -> Vec<Ended> {
    let shm = ShmDir::new();
    let args = ["calls", "--calls", others, "--odd-calls", odd];
    let ended = Job::new(worker(), Meet::launcher(), nranks, &args, &shm).start_all().finish_all();
    shm.assert_empty();
    ended
}

/// Each rank's error, which came within a second of the last rank's start.
fn errors(ended: &[Ended]) -> Vec<&str> {
    let running = |ended: &Ended| {
        ended.reports.iter().find(|report| report.event == Event::Running).expect("it ran").at_ns
    };
    let last = ended.iter().map(running).max().unwrap_or(0);
    let error = |ended: &'_ Ended| {
        let at_ns = ended.failure().2;
        let took = Duration::from_nanos(at_ns.saturating_sub(last));
        assert!(took < WITHIN, "{took:?}: {ended:?}");
    };
    ended.iter().for_each(error);
    ended.iter().map(|ended| ended.failure().1).collect()
}

fn check(nranks: u32) {
    for case in CASES {
        let what = format!("{nranks} ranks, rank 1 calls `{}`, the others `{}`", case.odd, case.others);
        let ended = ends(nranks, case.others, case.odd);
        for (error, ended) in errors(&ended).into_iter().zip(&ended) {
            assert_eq!(ended.failure().0, "InvalidUsage", "{what}: {error}");
            let start = format!("operation {} does not match: rank ", case.seqno);
            assert!(error.starts_with(&start) && error.contains("rank 1 called "), "{what}: {error}");
            for part in case.told {
                assert!(error.contains(part), "{what}: `{part}` is not in: {error}");
            }
        }
    }
}

/// Every difference between two ranks, told on both within a second.
#[test]
fn two_ranks() {
    check(2);
}

/// The same on three ranks: also on the one that called what most did.
#[test]
fn three_ranks() {
    check(3);
}

/// The same on eight ranks, more than most machines of tests have cores.
#[test]
fn eight_ranks() {
    check(8);
}

/// Communicators that one rank uses in another order than the others: told on every rank within a second.
#[test]
fn orders_of_communicators() {
    let pairs = [
        ("barrier 2:barrier", "2:barrier barrier"),
        (
            "all_reduce/float/sum/8 2:all_reduce/float/sum/8",
            "2:all_reduce/float/sum/8 all_reduce/float/sum/8",
        ),
        ("all_reduce/half/max/90000 2:barrier", "2:barrier all_reduce/half/max/90000"),
    ];
    for (others, odd) in pairs {
        for nranks in [2, 3, 8] {
            for error in errors(&ends(nranks, others, odd)) {
                assert!(
                    error.starts_with("communicators are used in different orders: "),
                    "{nranks}: {error}"
                );
                for communicator in [1, 2] {
                    let told = format!("is in operation 2 of communicator {communicator}");
                    assert!(error.contains(&told), "{nranks} ranks, rank 1 `{odd}`: {error}");
                }
            }
        }
    }
}

/// The same calls on every rank, of all kinds and on both communicators, are no mismatch.
#[test]
fn equal_calls_match() {
    let calls = "barrier all_reduce/float/sum/8 2:broadcast/half/1/9 broadcast/int64/0/0 all_reduce/double/avg/0 \
                 2:all_reduce/int32/max/70000 broadcast/bfloat16/1/300000 2:barrier reduce/float/sum:2/9 \
                 all_gather/half/-/70 2:reduce_scatter/int32/max/7000 all_to_all/float/-/8 gather/double/1/100 \
                 2:scatter/float/0/30000 all_gather_v/float/2/5 reduce_scatter_v/int64/min:1/500 barrier";
    for ended in ends(3, calls, calls) {
        ended.assert_done();
    }
}
