//! What pricing costs, in instructions: a child is single-stepped through operations with and without a cluster.
//!
//! Times on a shared machine tell nothing of a few nanoseconds, and hardware counters are rarely allowed. Stepping an
//! own child needs no privilege; where even that is forbidden the test says that it is skipped.

use ringccl::model::World;
use ringccl::{Communicator, Config, Group, ReduceOp};
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
/// Operations after which equal ones are booked together, and of which one looks at the others.
const PERIOD: usize = 64;
/// Operations that are counted: the last of a period, then the first of the next one. Few, for each instruction costs
/// two changes of processes.
const COUNTED: usize = 1;

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
    for _ in 0..PERIOD - COUNTED {
        run();
    }
    // SAFETY: a plain system call; the parent traces this thread from here on, and nothing else changes.
    assert_eq!(unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) }, 0, "not to be traced");
    // SAFETY: the process stops itself; the parent lets it go on, and ends it at the last mark.
    let mark = || unsafe { libc::raise(libc::SIGSTOP) };
    for _ in 0..2 {
        mark();
        for _ in 0..COUNTED {
            run();
        }
    }
    mark();
}

/// Instructions of an operation of a rank, over a period; `None` where a child cannot be stepped.
fn instructions(bytes: usize, cluster: &str) -> Option<f64> {
    // On one core the two hand over fastest.
    // SAFETY: plain system calls on a set of this function.
    unsafe {
        let mut one: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(libc::sched_getcpu().max(0) as usize, &mut one);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &one);
    }
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--test-threads=1", "--nocapture"])
        .env(TASK, format!("{bytes},{cluster}"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let (mut status, mut counts) = (0, Vec::new());
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
            steps += 1;
            if libc::WSTOPSIG(status) == libc::SIGSTOP {
                counts.push(std::mem::take(&mut steps));
                if counts.len() == 2 {
                    break;
                }
            }
        }
    }
    child.kill().ok();
    child.wait().ok();
    let [with_books, without] = counts[..] else { return None };
    let rest = (PERIOD / COUNTED - 1) as u64;
    Some((with_books + rest * without) as f64 / (2 * PERIOD) as f64)
}

/// Pricing an operation costs at most 2 % at 64 KiB, and below that a bounded number of instructions.
#[test]
#[ignore = "steps take minutes on a machine that others load: run it alone, with --ignored"]
fn pricing_costs_few_instructions() {
    let Some(plain) = instructions(8, "none") else {
        println!("SKIPPED: this system does not let a process step its own child (ptrace)");
        return;
    };
    let small = instructions(8, "cluster").unwrap() - plain;
    let large_plain = instructions(64 << 10, "none").unwrap();
    let large = instructions(64 << 10, "cluster").unwrap() - large_plain;
    println!("8 B: {plain:.0} and {small:.0} for the price; 64 KiB: {large_plain:.0} and {large:.0}");
    assert!(small > 0.0 && large > 0.0, "nothing was priced: {small} {large}");
    assert!(small <= 200.0, "{small} instructions an operation of 8 bytes");
    assert!(large <= 0.02 * large_plain, "{large} of {large_plain} instructions at 64 KiB");
}
