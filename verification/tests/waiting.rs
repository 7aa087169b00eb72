//! What waiting costs, and what 64 ranks on few cores take.

mod common;

use common::{ringccl, worker};
use std::process::Command;
use verification::report::Event;
use verification::testkit::{Ended, Job, Meet, ShmDir, run};

fn done(ended: &Ended) -> &Event {
    ended.assert_done();
    let found = ended.reports.iter().map(|report| &report.event);
    found.into_iter().find(|event| matches!(event, Event::Done { .. })).unwrap()
}

/// Ranks that wait a second for a late one sleep meanwhile: almost no CPU time.
#[test]
fn waiting_ranks_use_no_cpu() {
    let shm = ShmDir::new();
    let job = Job::new(worker(), Meet::launcher(), 3, &["late", "--late-ms", "1000"], &shm);
    for (rank, ended) in job.start_all().finish_all().iter().enumerate() {
        let Event::Done { cpu_ms, sleeps, .. } = *done(ended) else { unreachable!() };
        println!("rank {rank}: {cpu_ms:.1} ms of CPU time, {sleeps} sleeps");
        assert!(cpu_ms < 30.0, "rank {rank} used {cpu_ms} ms of CPU time in a second of waiting");
        assert!(rank == 1 || sleeps > 0, "rank {rank} never slept");
    }
    shm.assert_empty();
}

/// 64 ranks: right results, and memory that grows with the connections used only.
#[test]
fn many_ranks_work() {
    let shm = ShmDir::new();
    let mut command = Command::new(ringccl());
    command.args([
        "perf",
        "all_reduce",
        "-n",
        "64",
        "-b",
        "8",
        "-e",
        "64K",
        "--iters",
        "3",
        "-w",
        "1",
        "--json",
    ]);
    command.env("RINGCCL_SHM_DIR", shm.path());
    let finished = run(command);
    assert_eq!(finished.code, Some(0), "{finished:?}");
    let wrong = finished.stdout.matches(r#""wrong":0"#).count();
    assert_eq!(wrong, 2 * 14, "8 B to 64 KiB, out of place and in place: {finished:?}");
    println!("perf with 64 ranks: {:?}", finished.took);
    let job = Job::new(worker(), Meet::launcher(), 64, &["memory"], &shm).start_all();
    let (mut small, mut large, mut init) = (0, 0, 0f64);
    for ended in job.finish_all() {
        let Event::Done { shared_small, shared_large, .. } = *done(&ended) else { unreachable!() };
        (small, large) = (small.max(shared_small), large.max(shared_large));
        for report in &ended.reports {
            if let Event::Joined { init_ms } = report.event {
                init = init.max(init_ms);
            }
        }
    }
    println!("64 ranks: slowest init {init:.0} ms; shared memory {small} B, {large} B after 1 MiB");
    assert!(small < large && large < 64 << 20, "{small} {large}");
    shm.assert_empty();
}
