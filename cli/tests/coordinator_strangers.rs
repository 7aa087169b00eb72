//! The daemon's own memory and descriptors under strangers, seen from outside.

mod common;

use std::collections::VecDeque;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use common::DEADLINE;
use coordinator_lite::{Deadlines, Endpoint, Hello, Key, Member, Secret, Session, status};

const SECRET: &str = "cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd";
/// Memory that 10,000 strangers may cost the daemon, in KiB.
const GROWTH_KIB_MAX: u64 = 8 * 1024;

struct Daemon {
    child: Child,
    endpoint: Endpoint,
}

impl Daemon {
    /// A daemon on TCP with at most `descriptors` descriptors.
    fn start(descriptors: u32) -> Self {
        let script = format!("ulimit -n {descriptors} && exec \"$0\" coordinator --listen tcp:127.0.0.1:0");
        let mut child = std::process::Command::new("/bin/sh")
            .args(["-c", &script, env!("CARGO_BIN_EXE_ringccl")])
            .env("RINGCCL_SECRET", SECRET)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let endpoint =
            line.trim_end().strip_prefix("listening on ").expect("the ready line").parse().unwrap();
        Self { child, endpoint }
    }

    fn addr(&self) -> SocketAddr {
        self.endpoint.addr().unwrap()
    }

    fn resident_kib(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_ascii_whitespace().nth(1).unwrap().parse().unwrap()
    }

    fn join(&self, group: &str) -> Session {
        let member = Member::current("n0", 0).unwrap();
        let hello = Hello { group: group.into(), rank: 0, nranks: 1, member };
        let deadlines = Deadlines { connect: DEADLINE, join: DEADLINE };
        Session::join(&self.endpoint, Secret::from_hex(SECRET).unwrap(), hello, deadlines).unwrap().0
    }

    /// Joins as a new rank, and says how long it took.
    fn timed_join(&self, group: &str) -> Duration {
        let started = Instant::now();
        self.join(group).destroy();
        started.elapsed()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Opens `count` connections, of which `hold` stay open, some with half a message; ranks join meanwhile.
fn flood(daemon: &Daemon, count: usize, hold: usize) {
    let member = daemon.join("member");
    let before = daemon.resident_kib();
    let (mut held, mut slowest, mut most) = (VecDeque::new(), Duration::ZERO, 0);
    for i in 0..count {
        let mut stream = TcpStream::connect_timeout(&daemon.addr(), DEADLINE).unwrap();
        // It may have been pushed out already.
        let _ = stream.write_all(&b"RCRV\x02\x00\x00\x00\xff\x0f\x00\x00{\"Hello\":"[..i % 20]);
        held.push_back(stream);
        if held.len() > hold {
            held.pop_front();
        }
        if i % 500 == 499 {
            slowest = slowest.max(daemon.timed_join(&format!("g{i}")));
            most = most.max(daemon.resident_kib());
        }
    }
    let key = Key::Secret(Secret::from_hex(SECRET).unwrap());
    let seen = status(&daemon.endpoint, &key, DEADLINE).unwrap();
    let growth = most.saturating_sub(before);
    println!(
        "{count} strangers, {hold} at once: daemon {before} KiB, +{growth} KiB; slowest join {slowest:?}"
    );
    println!("kept at the end: {} of {} connections unproved", seen.unproved, seen.connections);
    assert!(slowest < Duration::from_secs(1), "{slowest:?}");
    assert!(growth < GROWTH_KIB_MAX, "{growth} KiB");
    assert_eq!((seen.communicators.len(), seen.communicators[0].active), (1, 1));
    assert!(member.poll().is_empty(), "the member was not disturbed");
    member.destroy();
}

#[test]
fn ten_thousand_strangers_cost_the_daemon_little() {
    // One after the other, then thousands at once: bounded memory, ranks join within 1 s, the member stays.
    let daemon = Daemon::start(1024);
    flood(&daemon, 10_000, 1);
    flood(&daemon, 10_000, 5_000);
}

#[test]
fn strangers_cannot_use_up_the_descriptors() {
    // With 64 descriptors, 300 strangers at once: the oldest of them go, and ranks still get in.
    let daemon = Daemon::start(64);
    let members: Vec<Session> = (0..20).map(|i| daemon.join(&format!("m{i}"))).collect();
    let mut held = Vec::new();
    for i in 0..300 {
        held.push(TcpStream::connect_timeout(&daemon.addr(), DEADLINE).unwrap());
        if i % 50 == 49 {
            let took = daemon.timed_join("late");
            assert!(took < Duration::from_secs(1), "{took:?}");
        }
    }
    assert!(members.iter().all(|member| member.poll().is_empty()));
    members.into_iter().for_each(Session::destroy);
}
