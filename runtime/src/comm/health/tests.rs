//! Verdicts about peers, with real processes and a real segment.

use super::*;
use crate::config::Config;
use coordinator_lite::{Deadlines, Endpoint, Hello, Secret, Server};
use shmring::segment::{SegmentName, SegmentSpec, process_start_time};
use std::process::{Child, Command};

/// A process that has a pid and a start time, alive until killed.
fn sleeper() -> Child {
    Command::new("sleep").arg("600").spawn().unwrap()
}

fn member(pid: u32) -> Member {
    Member {
        pid,
        start_time: process_start_time(pid).unwrap(),
        host: "host".into(),
        pid_namespace: 0,
        node: "node0".into(),
        local_rank: 0,
        version: "0".into(),
    }
}

/// A job of this process (rank 0) and a child (rank 1); `dir` keeps the segment's file out of other tests' way.
fn job(dir: &std::path::Path, child: &Child) -> (Segment, Segment, Health) {
    let config = Config { shm_dir: dir.into(), ..Config::new(2) };
    let spec = SegmentSpec {
        dir: config.shm_dir.clone(),
        name: SegmentName::of_this_process(1),
        generation: 1,
        settings: 0,
        geometry: config.geometry(2).unwrap(),
    };
    let first = Segment::create(&spec).unwrap();
    let second = Segment::attach(&spec, 1, Duration::from_secs(5)).unwrap();
    let members = vec![member(std::process::id()), member(child.id())];
    (first, second, Health::new(members, 0, None))
}

/// Waiting in a barrier, for anyone.
fn waiting(seqno: u64) -> Waiting {
    Waiting { seqno, descriptor: barrier(), awaits: Some(Awaits::Anyone) }
}

fn barrier() -> Descriptor {
    Descriptor::from_words([2, 0])
}

fn kill(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

/// A dead rank is an error of those that wait in an operation that it has not finished, and of nobody else; the
/// verdict is in the segment for all to see.
#[test]
fn only_a_rank_that_is_still_needed_counts() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let child = sleeper();
    let pid = child.id();
    let (segment, _second, mut health) = job(dir.path(), &child);
    health.check(&segment, &waiting(7)).unwrap();
    kill(child);
    segment.member_record(1).identity.finished.store(7, Ordering::Relaxed);
    health.check(&segment, &waiting(7)).unwrap();
    assert_eq!(segment.header().aborted(), 0);
    match health.check(&segment, &waiting(8)) {
        Err(Error::PeerGone { dead: 1, how, rank: 0, seqno: 8 }) => {
            assert_eq!(how, format!("process {pid}, it died"));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(Verdict::from_word(segment.header().aborted(), 2), Verdict::Dead(1));
}

/// A rank that said that it leaves is told apart from one that died, before and after its process ends.
#[test]
fn leaving_is_not_dying() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let child = sleeper();
    let (segment, _second, mut health) = job(dir.path(), &child);
    segment.member_record(1).identity.set_state(MemberState::Left);
    match health.check(&segment, &waiting(1)) {
        Err(Error::PeerGone { dead: 1, how, .. }) => {
            assert!(how.ends_with("it left the communicator"), "{how}");
        }
        other => panic!("{other:?}"),
    }
    kill(child);
    let error = health.check(&segment, &waiting(1)).unwrap_err().to_string();
    assert!(error.contains("it left the communicator"), "{error}");
}

/// A member that has left, or died, after all had attached is no failure for one that still waits for all to attach: it
/// has met the others. Before that it is.
#[test]
fn leaving_after_all_have_met_is_no_failure() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let child = sleeper();
    let (segment, _second, mut health) = job(dir.path(), &child);
    segment.member_record(1).identity.set_state(MemberState::Left);
    assert!(health.check_attached(&segment).is_ok());
    kill(child);
    assert!(health.check_attached(&segment).is_ok());
    assert_eq!(segment.header().aborted(), 0);
    let child = sleeper();
    let geometry = Config::new(2).geometry(2).unwrap();
    let seats = Segment::seats(&geometry).unwrap();
    let alone = seats.into_iter().next().unwrap().take();
    alone.member_record(1).identity.set_state(MemberState::Left);
    let mut health = Health::new(vec![member(std::process::id()), member(child.id())], 0, None);
    assert!(matches!(health.check_attached(&alone), Err(Error::PeerGone { dead: 1, .. })));
    kill(child);
}

/// A process that took over a dead member's id does not pass for it.
#[test]
fn a_reused_id_is_noticed() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let child = sleeper();
    let (segment, _second, mut health) = job(dir.path(), &child);
    let mut members = health.members().to_vec();
    members[1].start_time += 1;
    health = Health::new(members, 0, None);
    assert!(matches!(health.check(&segment, &waiting(1)), Err(Error::PeerGone { dead: 1, .. })));
    kill(child);
}

/// Every verdict survives its packing, and every other word reads as some rank's failure.
#[test]
fn words_are_read_back() {
    for verdict in [
        Verdict::Dead(0),
        Verdict::Left(63),
        Verdict::Timeout(5),
        Verdict::Failed(1),
        Verdict::Aborted(2),
        Verdict::Revoked(3),
    ] {
        assert_eq!(Verdict::from_word(verdict.to_word(), 64), verdict);
    }
    for word in [1, u64::MAX, 9 << 32, (1 << 32) | 500] {
        let (Verdict::Dead(rank)
        | Verdict::Left(rank)
        | Verdict::Timeout(rank)
        | Verdict::Failed(rank)
        | Verdict::Aborted(rank)
        | Verdict::Mismatch(rank)
        | Verdict::Revoked(rank)
        | Verdict::Order(rank)) = Verdict::from_word(word, 64);
        assert!(rank < 64, "{word:#x}");
    }
}

/// A rank that has entered another call under the same number is found at once, and both calls are told.
#[test]
fn another_call_is_found() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let child = sleeper();
    let (segment, _second, mut health) = job(dir.path(), &child);
    for seqno in 1..=8 {
        segment.member_record(0).journal.write(seqno, barrier().to_words());
    }
    let journal = &segment.member_record(1).journal;
    journal.write(7, barrier().to_words());
    health.check(&segment, &waiting(7)).unwrap();
    journal.write(8, [0, 5]);
    match health.check(&segment, &waiting(8)) {
        Err(Error::Mismatch { seqno: 8, first: 0, second: 1, first_call, second_call, .. }) => {
            assert_eq!(
                (first_call.as_str(), second_call.as_str()),
                ("barrier", "all_reduce of 5 x int8, sum")
            );
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(Verdict::from_word(segment.header().aborted(), 2), Verdict::Mismatch(0));
    kill(child);
}

/// A rank that is so far ahead that its journal does not reach back has called something else if this rank still
/// waits for it; that is said at the second look, and not while this rank waits for another.
#[test]
fn a_rank_far_ahead_is_suspect() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let child = sleeper();
    let (segment, _second, mut health) = job(dir.path(), &child);
    for seqno in 1..=40 {
        segment.member_record(1).journal.write(seqno, [0, 0]);
    }
    segment.member_record(1).identity.finished.store(40, Ordering::Relaxed);
    for _ in 0..3 {
        health.check(&segment, &waiting(3)).unwrap();
    }
    let for_it = Waiting { awaits: Some(Awaits::Member(1)), ..waiting(3) };
    health.check(&segment, &for_it).unwrap();
    health.check(&segment, &waiting(3)).unwrap();
    health.check(&segment, &for_it).unwrap();
    let error = health.check(&segment, &for_it).unwrap_err().to_string();
    assert!(error.contains("rank 1 called something else, which is no longer on record"), "{error}");
    kill(child);
}

/// Two sessions of one communicator at a coordinator of the test, the second for rank 1.
fn sessions(server: &Server) -> (Session, Session) {
    let deadlines = Deadlines { connect: Duration::from_secs(10), join: Duration::from_secs(10) };
    let endpoint: Endpoint = server.local_addr().into();
    let join = |rank| {
        let hello = Hello { group: "test".into(), rank, nranks: 2, member: member(std::process::id()) };
        Session::join(&endpoint, server.unique_id().secret(), hello, deadlines).unwrap().0
    };
    std::thread::scope(|scope| {
        let second = scope.spawn(|| join(1));
        (join(0), second.join().unwrap())
    })
}

/// Checks until the coordinator's news has come, or says after two seconds that none has.
fn check_for_news(health: &mut Health, segment: &Segment) -> Result<(), Error> {
    let end = clock::now() + Duration::from_secs(2);
    while clock::now() < end {
        health.check(segment, &waiting(1))?;
        std::thread::yield_now();
    }
    Ok(())
}

/// The coordinator's word that a rank is gone counts where the process cannot be seen, and not against one that can
/// be seen to live, whatever has become of its connection.
#[test]
fn the_coordinator_is_believed() {
    let server = Server::bind(([127, 0, 0, 1], 0).into(), Secret::random().unwrap()).unwrap();
    for (namespace, believed) in [(0, false), (77, true)] {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let child = sleeper();
        let (segment, _second, health) = job(dir.path(), &child);
        let mut members = health.members().to_vec();
        members[1].pid_namespace = namespace;
        let (first, second) = sessions(&server);
        let mut health = Health::new(members, 0, Some(first));
        health.check(&segment, &waiting(1)).unwrap();
        drop(second);
        match check_for_news(&mut health, &segment) {
            Err(Error::PeerGone { dead: 1, .. }) if believed => {}
            Ok(()) if !believed => {}
            other => panic!("namespace {namespace}: {other:?}"),
        }
        kill(child);
    }
}

/// An abort that comes by the coordinator ends the communicator; the coordinator's own end does not.
#[test]
fn an_abort_by_the_coordinator_counts_and_its_end_does_not() {
    let server = Server::bind(([127, 0, 0, 1], 0).into(), Secret::random().unwrap()).unwrap();
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let child = sleeper();
    let (segment, _second, health) = job(dir.path(), &child);
    let members = health.members().to_vec();
    let (first, second) = sessions(&server);
    let mut health = Health::new(members.clone(), 0, Some(first));
    second.abort("on purpose").unwrap();
    let error = check_for_news(&mut health, &segment).unwrap_err();
    assert!(matches!(error, Error::Aborted { by: 1, .. }), "{error}");
    drop((health, segment, second, server));

    let server = Server::bind(([127, 0, 0, 1], 0).into(), Secret::random().unwrap()).unwrap();
    let (segment, _second, _) = job(tempfile::tempdir_in("/dev/shm").unwrap().path(), &child);
    let (first, _second_session) = sessions(&server);
    let mut health = Health::new(members, 0, Some(first));
    drop(server);
    check_for_news(&mut health, &segment).unwrap();
    assert!(health.session.is_none(), "the end of the coordinator was not noticed");
    kill(child);
}
