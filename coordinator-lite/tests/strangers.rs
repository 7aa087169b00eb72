//! Floods and half-open talks: members stay, memory is bounded, new ranks get in.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use coordinator_lite::messages::Request;
use coordinator_lite::{Deadlines, Hello, Member, Nonce, Proof, Secret, Server, Session, status, wire};

const WAIT: Duration = Duration::from_secs(20);
/// Connections without a proof that the coordinator keeps.
const UNPROVED_MAX: u64 = 512;
/// Memory that a flood may cost, in KiB, the flooding side's own included, which lives in this process.
const GROWTH_KIB_MAX: u64 = 8 * 1024;

/// Memory is the whole process's, so the tests of this file take turns.
static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn server() -> Server {
    Server::bind("127.0.0.1:0".parse().unwrap(), Secret::from_bytes([7; 32])).unwrap()
}

/// Resident memory of this process in KiB.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_ascii_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Descriptors that this process may have open.
fn descriptors() -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    line.split_ascii_whitespace().nth(3).unwrap().parse().unwrap()
}

fn named(group: &str, rank: u32, nranks: u32) -> Hello {
    Hello { group: group.into(), rank, nranks, member: Member::current("node0", rank).unwrap() }
}

fn deadlines() -> Deadlines {
    Deadlines { connect: WAIT, join: WAIT }
}

/// A member that must not be disturbed.
fn member(server: &Server) -> Session {
    let secret = server.unique_id().secret().clone();
    Session::join(server.endpoint(), secret, named("member", 0, 1), deadlines()).unwrap().0
}

/// Two ranks join, and say how long it took.
fn join_pair(server: &Server, group: &str) -> Duration {
    let started = Instant::now();
    thread::scope(|scope| {
        let join = |rank| {
            let secret = server.unique_id().secret().clone();
            Session::join(server.endpoint(), secret, named(group, rank, 2), deadlines()).unwrap().0.destroy();
        };
        (0..2).for_each(|rank| drop(scope.spawn(move || join(rank))));
    });
    started.elapsed()
}

/// Everything that the server sends until it closes.
fn read_all(mut stream: TcpStream) -> Vec<u8> {
    stream.set_read_timeout(Some(WAIT)).unwrap();
    let mut bytes = Vec::new();
    // A reset after the answer counts as closed.
    let _ = stream.read_to_end(&mut bytes);
    bytes
}

/// Runs `flood` on a thread, over and over, while members work and new ranks join; returns how often it ran.
fn under(flood: impl Fn(SocketAddr) + Send + 'static, joins: usize) -> u64 {
    let (_turn, server) = (turn(), server());
    let (member, secret) = (member(&server), server.unique_id().secret().clone());
    let (addr, before) = (server.local_addr(), resident_kib());
    let (stop, stopped) = mpsc::channel::<()>();
    let flooding = thread::spawn(move || {
        let mut times = 0;
        while stopped.try_recv() == Err(mpsc::TryRecvError::Empty) {
            flood(addr);
            times += 1;
        }
        times
    });
    let slowest = (0..joins).map(|i| join_pair(&server, &format!("g{i}"))).max().unwrap();
    let growth = resident_kib().saturating_sub(before);
    let seen = status(server.endpoint(), &(&secret).into(), WAIT).unwrap();
    drop(stop);
    let times = flooding.join().unwrap();
    println!("{times} floods; slowest join {slowest:?}; memory +{growth} KiB; unproved {}", seen.unproved);
    assert!(slowest < Duration::from_secs(1), "{slowest:?}");
    assert!(growth < GROWTH_KIB_MAX, "{growth} KiB");
    assert!(seen.unproved <= UNPROVED_MAX, "{seen:?}");
    assert_eq!(seen.communicators.iter().filter(|c| c.group == "member" && c.active == 1).count(), 1);
    assert!(member.poll().is_empty(), "the member was not disturbed");
    member.destroy();
    times
}

#[test]
fn ten_thousand_connections_at_once_push_out_each_other_only() {
    // As many as descriptors allow, then more in turn, 10,000 in all: the member stays, ranks join within 1 s,
    // and no more than the bound is kept.
    let (_turn, server) = (turn(), server());
    let (member, secret) = (member(&server), server.unique_id().secret().clone());
    let before = resident_kib();
    let room = (descriptors() / 2).saturating_sub(200).min(9_000);
    let mut held = VecDeque::new();
    let mut slowest = Duration::ZERO;
    for i in 0..10_000 {
        held.push_back(TcpStream::connect(server.local_addr()).unwrap());
        if held.len() > room {
            held.pop_front();
        }
        if i % 1000 == 999 {
            slowest = slowest.max(join_pair(&server, "late"));
        }
    }
    let growth = resident_kib().saturating_sub(before);
    let seen = status(server.endpoint(), &(&secret).into(), WAIT).unwrap();
    println!(
        "{} held; slowest join {slowest:?}; memory +{growth} KiB; unproved {}",
        held.len(),
        seen.unproved
    );
    assert!(slowest < Duration::from_secs(1), "{slowest:?}");
    assert!(growth < GROWTH_KIB_MAX, "{growth} KiB");
    assert!(seen.unproved <= UNPROVED_MAX && seen.connections <= 2 + UNPROVED_MAX, "{seen:?}");
    assert!(member.poll().is_empty());
    drop(held);
    member.destroy();
}

#[test]
fn connections_that_come_and_go_delay_nobody() {
    // Each flood is 100 connections that are closed at once.
    let flood = |addr| (0..100).for_each(|_| drop(TcpStream::connect(addr)));
    assert!(under(flood, 20) > 0);
}

#[test]
fn garbage_and_huge_lengths_delay_nobody() {
    // Random words, 4 GiB, another version, a text: each is answered or dropped.
    let mut huge = wire::encode(&0u8, 10).unwrap();
    huge[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
    let mut newer = wire::encode(&0u8, 10).unwrap();
    newer[4..6].copy_from_slice(&9u16.to_le_bytes());
    let flood = move |addr| {
        for bytes in
            [&huge[..], &newer[..], b"\x00\xff\x13garbage\n", b"GET / HTTP/1.1\r\n\r\n", b"RCRVgarbage-more"]
        {
            let Ok(mut stream) = TcpStream::connect(addr) else { continue };
            let _ = stream.write_all(bytes);
            let _ = stream.write_all(&[0x52; 65536]);
        }
    };
    assert!(under(flood, 20) > 0);
}

#[test]
fn wrong_secrets_and_stolen_proofs_delay_nobody() {
    // Hellos with made-up proofs, and inits without any.
    let flood = |addr| {
        let Ok(mut stream) = TcpStream::connect(addr) else { return };
        let hex = format!("\"{}\"", "03".repeat(32));
        let nonce: Nonce = serde_json::from_str(&hex).unwrap();
        let proof: Proof = serde_json::from_str(&hex).unwrap();
        for request in [
            Request::Hello { nonce, same_user: false },
            Request::Prove { proof },
            Request::Init { wait_ms: 1, hello: named("stranger", 0, 1) },
        ] {
            let _ = wire::write_message(&mut stream, &request, wire::REQUEST_BYTES_MAX);
        }
        let heard = String::from_utf8_lossy(&read_all(stream)).into_owned();
        assert!(!heard.contains("Welcome"), "{heard}");
    };
    assert!(under(flood, 10) > 0);
}

#[test]
fn slow_drips_are_pushed_out_and_delay_nobody() {
    // 100 more half-open talks each time, of which some get one byte more: they stay until newer ones come.
    let held = Mutex::new(VecDeque::new());
    let flood = move |addr| {
        let mut held = held.lock().unwrap();
        for i in 0..100usize {
            let Ok(mut stream) = TcpStream::connect(addr) else { continue };
            let _ = stream.write_all(&b"RCRV\x02\x00\x00\x00\xff"[..i % 9]);
            held.push_back(stream);
        }
        for stream in held.iter_mut().rev().take(50) {
            let _ = (&*stream).write(&[0]);
        }
        while held.len() > 2000 {
            held.pop_front();
        }
    };
    assert!(under(flood, 20) > 0);
}
