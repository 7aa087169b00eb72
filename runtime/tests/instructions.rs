//! What pricing costs, in instructions: a child is single-stepped through operations with and without a cluster.
//!
//! Times on a shared machine tell nothing of a few nanoseconds, and hardware counters are rarely allowed. Stepping an
//! own child needs no privilege; where even that is forbidden the test says that it is skipped.

use ringccl::model::World;
use ringccl::{Communicator, Config, Group, ReduceOp};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use topo::Cluster;

const CLUSTER: &str = "version: 1
cluster: {name: lab, default_backend: nccl}
nodes: [{id: a, host: a, machine: 4xv100-nv2, ranks: [0, 1]}]
fabric:
  intra_node: {type: nvlink, bandwidth_gbps: 300}
  inter_node: {type: infiniband, bandwidth_gbps: 200}
";
/// How the child is told what to do: `BYTES,cluster` or `BYTES,none`.
const TASK: &str = "RINGCCL_TEST_STEPS";
/// Operations that are counted: two times the number after which equal ones are booked together.
const OPERATIONS: usize = 128;

/// The child: both ranks of a communicator in one thread, so that nothing depends on who runs when.
#[test]
fn child() {
    let Some(task) = std::env::var_os(TASK) else { return };
    let task = task.into_string().unwrap();
    let (bytes, cluster) = task.split_once(',').unwrap();
    let elements = bytes.parse::<usize>().unwrap() / 4;
    let world = World::of(Cluster::parse("lab", CLUSTER).unwrap(), &[]);
    let cluster = (cluster == "cluster").then(|| Arc::new(world));
    let config = Config { cluster, ..Config::new(2) };
    let [mut one, mut two]: [Communicator; 2] =
        Communicator::init_all(2, &config).unwrap().try_into().unwrap();
    let input = vec![1.0f32; elements];
    let (mut first, mut second) = (input.clone(), input.clone());
    let mut run = || {
        let mut group = Group::new();
        group.all_reduce(&mut one, &input, &mut first, ReduceOp::Sum).unwrap();
        group.all_reduce(&mut two, &input, &mut second, ReduceOp::Sum).unwrap();
        group.run().unwrap();
    };
    for _ in 0..OPERATIONS {
        run();
    }
    // SAFETY: plain system calls; the parent traces this thread from here on, and nothing else changes.
    unsafe {
        assert_eq!(libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0), 0, "not to be traced");
        libc::raise(libc::SIGSTOP);
    }
    for _ in 0..OPERATIONS {
        run();
    }
    // SAFETY: the second mark, at which the parent ends this process.
    unsafe { libc::raise(libc::SIGSTOP) };
}

/// Instructions of the counted operations of both ranks; `None` where a child cannot be stepped.
fn instructions(bytes: usize, cluster: &str) -> Option<u64> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--test-threads=1", "--nocapture"])
        .env(TASK, format!("{bytes},{cluster}"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let (mut status, mut count) = (0, None);
    // The thread that runs the test need not be the process's first.
    // SAFETY: waits for children of this thread alone; `status` is an i32 to write to.
    let thread = unsafe { libc::waitpid(-1, &mut status, libc::__WALL | libc::__WNOTHREAD) };
    if libc::WIFSTOPPED(status) && libc::WSTOPSIG(status) == libc::SIGSTOP {
        let mut steps = 0u64;
        loop {
            // SAFETY: `thread` is a stopped thread of an own child that has asked to be traced.
            let stepped = unsafe { libc::ptrace(libc::PTRACE_SINGLESTEP, thread, 0, 0) };
            // SAFETY: as above.
            let waited = unsafe { libc::waitpid(thread, &mut status, libc::__WALL) };
            if stepped != 0 || waited != thread || !libc::WIFSTOPPED(status) {
                break;
            }
            if libc::WSTOPSIG(status) == libc::SIGSTOP {
                count = Some(steps);
                break;
            }
            steps += 1;
        }
    }
    child.kill().ok();
    let ended = child.wait().ok();
    count.filter(|_| ended.is_some_and(|ended| ended.signal().is_some() || ended.success()))
}

/// Pricing an operation costs at most 2 % at 64 KiB, and below that a bounded number of instructions.
#[test]
fn pricing_costs_few_instructions() {
    let per_rank = |bytes, cluster| {
        let all = instructions(bytes, cluster)?;
        Some(all as f64 / (2 * OPERATIONS) as f64)
    };
    let Some(plain) = per_rank(8, "none") else {
        println!("SKIPPED: this system does not let a process step its own child (ptrace)");
        return;
    };
    let small = per_rank(8, "cluster").unwrap() - plain;
    let large_plain = per_rank(64 << 10, "none").unwrap();
    let large = per_rank(64 << 10, "cluster").unwrap() - large_plain;
    println!("8 B: {plain:.0} and {small:.0} for the price; 64 KiB: {large_plain:.0} and {large:.0}");
    assert!(small > 0.0 && large > 0.0, "nothing was priced: {small} {large}");
    assert!(small <= 200.0, "{small} instructions an operation of 8 bytes");
    assert!(large <= 0.02 * large_plain, "{large} of {large_plain} instructions at 64 KiB");
}
