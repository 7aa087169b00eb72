//! Runs each program of `examples/` and compares what its ranks print. A rank is a process, as under `ringccl run`; the
//! ranks find each other by the variables that launchers set.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Longest time that a job may take; far above what it takes on a busy machine.
const DEADLINE: Duration = Duration::from_secs(60);

/// The ranks of a job; those that still run are killed when a test gives up on them.
struct Job(Vec<Child>);

impl Drop for Job {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Cargo builds the examples of a package along with its tests, into a folder beside theirs.
fn program(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let path = test.parent().and_then(|deps| deps.parent()).unwrap().join("examples").join(name);
    assert!(path.is_file(), "{} is missing: build it by cargo build -p ringccl --examples", path.display());
    path
}

/// Runs an example as `ranks` processes and returns what each has printed and how it ended.
fn run(name: &str, ranks: usize) -> Vec<Output> {
    // Rank 0 takes the port over: nobody else gets one that was free a moment ago so soon.
    let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    let start = |rank: usize| {
        let mut command = Command::new(program(name));
        for (key, _) in std::env::vars_os() {
            if key.to_str().is_some_and(|key| key.starts_with("RINGCCL_") || key.starts_with("FAKEGPU_")) {
                command.env_remove(key);
            }
        }
        command.env("RANK", rank.to_string()).env("WORLD_SIZE", ranks.to_string());
        command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", port.to_string());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let mut job = Job((0..ranks).map(start).collect());
    let begun = Instant::now();
    // What a rank prints fits into its pipe, so it ends without a reader.
    while job.0.iter_mut().any(|child| child.try_wait().unwrap().is_none()) {
        assert!(begun.elapsed() < DEADLINE, "{name} on {ranks} ranks did not end");
        std::thread::sleep(Duration::from_millis(2));
    }
    job.0.drain(..).map(|child| child.wait_with_output().unwrap()).collect()
}

/// The lines of all ranks, in the order of ranks; each rank must have succeeded.
fn lines(name: &str, ranks: usize) -> Vec<String> {
    let outputs = run(name, ranks);
    for (rank, output) in outputs.iter().enumerate() {
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name}: rank {rank} of {ranks}: {:?}\n{told}", output.status);
    }
    outputs.iter().flat_map(printed).collect()
}

fn printed(output: &Output) -> Vec<String> {
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

/// Every rank prints the sum and the mean of all.
#[test]
fn all_reduce() {
    let wanted: Vec<_> = (0..4).map(|rank| format!("rank {rank} of 4: sum 10, mean 2.5")).collect();
    assert_eq!(lines("01_all_reduce", 4), wanted);
}

/// Each collective gives on each rank what its definition says.
#[test]
fn every_collective() {
    let wanted = [
        ("all_reduce", ["[3, 30]"; 3]),
        ("reduce to 1", ["[]", "[2, 0]", "[]"]),
        ("broadcast from 2", ["[14, 14]"; 3]),
        ("all_gather", ["[0, 1, 4]"; 3]),
        ("reduce_scatter", ["[3]", "[33]", "[63]"]),
        ("all_to_all", ["[0, 10, 20]", "[1, 11, 21]", "[2, 12, 22]"]),
        ("gather to 0", ["[100, 101, 102]", "[]", "[]"]),
        ("scatter from 0", ["[7]", "[8]", "[9]"]),
        ("all_gather_v", ["[0, 1, 1, 2, 2, 2]"; 3]),
        ("reduce_scatter_v", ["[3]", "[6, 9]", "[12, 15, 18]"]),
        ("all_to_all_v", ["[1, 2, 2]"; 3]),
    ];
    let of =
        |rank| wanted.iter().map(move |(name, results)| format!("rank {rank} {name}: {}", results[rank]));
    assert_eq!(lines("02_every_collective", 3), (0..3).flat_map(of).collect::<Vec<_>>());
}

/// Results in place, weighted and by address.
#[test]
fn in_place_and_raw() {
    let results = [
        "product: [2.0, 2.0, 2.0, 2.0]",
        "gathered: [5, 5, 6, 6]",
        "weighted: [4.0, 8.0]",
        "largest uint64: 41",
    ];
    let of = |rank| results.iter().map(move |result| format!("rank {rank} {result}"));
    assert_eq!(lines("03_in_place_and_raw", 2), (0..2).flat_map(of).collect::<Vec<_>>());
}

/// Streams, events, callbacks and waits with a limit give what blocking calls would.
#[test]
fn streams() {
    let results = [
        "layer 2: [3.0, 4.5, 6.0]",
        "layer 1: [1.5, 3.0, 4.5]",
        "layer 0: [0.0, 1.5, 3.0]",
        "event: all gradients are there",
        "weights: 0.5",
        "gathered: [0, 1]",
    ];
    let of = |rank| results.iter().map(move |result| format!("rank {rank} {result}"));
    assert_eq!(lines("04_streams", 2), (0..2).flat_map(of).collect::<Vec<_>>());
}

/// Two communicators and messages run in one group; a wrong call fails it with its own text.
#[test]
fn groups() {
    let of = |rank: usize| {
        let sums = format!("sum 6, first of reversed 0, left {}, all [3, 2, 1, 0]", (rank + 3) % 4);
        let call = format!("rank {rank}, send: there is no rank 4: there are 4");
        let refused = format!("the group was not run, because of a call in it: {call}");
        [format!("rank {rank}: {sums}"), format!("rank {rank}: {refused}")]
    };
    assert_eq!(lines("05_groups", 4), (0..4).flat_map(of).collect::<Vec<_>>());
}

/// The token has passed all ranks, and each has what its neighbours sent.
#[test]
fn point_to_point() {
    let mut wanted = vec!["rank 0: the token is back with 106".to_owned()];
    wanted
        .extend((0..4).map(|rank| format!("rank {rank}: between {} and {}", (rank + 3) % 4, (rank + 1) % 4)));
    assert_eq!(lines("06_point_to_point", 4), wanted);
}

/// All jobs are done once, however many workers there are.
#[test]
fn work_queue() {
    for ranks in [2, 4] {
        let wanted = [
            "rank 0: the squares from 1 to 40 add up to 22140",
            "rank 0: every farewell names its sender: true",
        ];
        assert_eq!(lines("07_work_queue", ranks), wanted);
    }
}

/// Each rank is in its row, its column and, in a corner, in the third communicator.
#[test]
fn rows_and_columns() {
    let of = |rank: usize| {
        let (row, column) = (rank / 3, rank % 3);
        let (in_row, in_column) = (if row == 0 { 3 } else { 12 }, 15 + 10 * column);
        let line = format!(
            "rank {rank}: {column} of 3 in row {row}, {row} of 2 in column {column}: {in_row} and {in_column}"
        );
        let corner = rank.is_multiple_of(5).then(|| format!("rank {rank} is a corner: 5"));
        [line].into_iter().chain(corner)
    };
    assert_eq!(lines("08_rows_and_columns", 6), (0..6).flat_map(of).collect::<Vec<_>>());
}

/// A rank dies by a signal; the others name it and finish without it.
#[test]
fn shrink() {
    let outputs = run("09_shrink", 4);
    for (rank, output) in outputs.iter().enumerate() {
        if rank == 2 {
            assert!(!output.status.success() && printed(output).is_empty());
            continue;
        }
        let wanted = [
            format!("rank {rank}: rank 2 is gone"),
            format!("rank {rank}: round 1 is through on 3 ranks, 3"),
            format!("rank {rank} is rank {} now", rank.min(2)),
        ];
        assert_eq!(printed(output), wanted, "{}", String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success());
    }
}

/// Ranks of one process, in one thread and in a thread each.
#[test]
fn one_process() {
    let wanted = [
        format!("one thread: {:?}", [28.0; 8]),
        "scattered: [1, 2, 3, 4, 5, 6, 7, 8]".to_owned(),
        format!("threads: {:?}", [21; 8]),
    ];
    assert_eq!(lines("10_one_process", 1), wanted);
}
