//! C programs, compiled with NVIDIA's published header, run against the finished library.

mod common;

use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

macro_rules! programs {
    ($($(#[doc = $doc:literal])* $test:ident: $name:literal $(, $arg:literal)*;)*) => { $(
        $(#[doc = $doc])*
        #[test]
        fn $test() {
            common::check($name, &[$($arg),*], LIMIT);
        }
    )* };
}

programs! {
    /// One thread drives all ranks by groups; every collective against its definition.
    one_thread_many_devices: "one_thread";
    /// A thread for each rank, which meet by an id.
    one_thread_per_device: "threads";
    /// A process for each rank, which get the id through a pipe.
    one_process_per_device: "processes";
    /// Joining in the background, operations in the background, and an abort of a join that nobody else comes to.
    nonblocking_with_abort: "nonblocking";
    /// Rows, columns and ranks that are left out.
    splits: "split";
    /// Exchanges made of sends and receives.
    exchanges: "exchanges";
    /// Shrink, grow, revoke, finalize; operators of a program; what is asked of a communicator.
    family: "family";
    /// Windows, puts and signals between processes, and memory that is not shared.
    windows: "windows";
    /// Every wrong call is answered by its code and a text that says what is wrong, in NCCL's order of checks.
    ladder: "ladder";
    /// A message between two of four ranks.
    pair_of_four: "patterns", "pair";
    /// A ring and pairs, all in groups.
    ring_and_pairs: "patterns", "ring";
    /// A gather that is made of sends and receives in a group.
    grouped_gather: "patterns", "gather";
    /// Operations of two communicators in one group.
    two_communicators: "patterns", "two";
    /// Several ranks of one communicator are made in one group of one thread.
    init_in_group: "patterns", "init";
    /// Ten thousand all-reduces in one group.
    many_in_group: "patterns", "many";
    /// A rank that comes 5 s late is waited for.
    late_rank: "patterns", "late";
    /// An abort wakes ranks that wait.
    abort_wakes: "patterns", "abort";
    /// A million operations in one job.
    a_million: "patterns", "million";
}
