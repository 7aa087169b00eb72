//! What members hear of each other through a real coordinator.

use super::*;
use crate::{Notice, RankList};

/// Joins `n` ranks of one group, each with its session.
fn sessions(server: &Server, n: u32) -> Vec<Session> {
    let join = |rank| {
        let (endpoint, secret) = (server.endpoint().clone(), server.unique_id().secret().clone());
        thread::spawn(move || {
            let deadlines = Deadlines { connect: WAIT, join: WAIT };
            Session::join(&endpoint, secret, hello(rank, n), deadlines).unwrap().0
        })
    };
    let threads: Vec<_> = (0..n).map(join).collect();
    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
}

/// The first notices that come to a session.
fn notices(session: &Session) -> Vec<Notice> {
    let started = Instant::now();
    loop {
        let notices = session.poll();
        if !notices.is_empty() {
            return notices;
        }
        assert!(started.elapsed() < WAIT, "no notice came");
        thread::yield_now();
    }
}

#[test]
fn a_dropped_session_is_a_death_and_a_destroyed_one_is_not() {
    // Rank 1 goes in order and is not mentioned; rank 2 just goes, and the others hear of it at once.
    let server = server();
    let mut sessions = sessions(&server, 4);
    sessions.remove(1).destroy();
    drop(sessions.remove(1));
    let started = Instant::now();
    let expected = [Notice::PeerGone { rank: 2, pid: std::process::id() }];
    for session in &sessions {
        assert_eq!(notices(session), expected, "rank {}", session.rank());
    }
    println!("told of a death within {:?}", started.elapsed());
    assert!(sessions.iter().all(|session| session.poll().is_empty()));
}

#[test]
fn an_abort_is_told_to_the_others_with_its_reason() {
    // Not to the one that aborts; and it ends the split in which another waits.
    let server = server();
    let sessions = sessions(&server, 3);
    let error = thread::scope(|scope| {
        let waiting = scope.spawn(|| sessions[0].split(Some(0), 0, WAIT).unwrap_err());
        sessions[2].abort("rank 2 ran out of patience").unwrap();
        waiting.join().unwrap()
    });
    let reason = "rank 2 ran out of patience".to_owned();
    let refusal = Refusal::Aborted { group: "world".into(), by: 2, reason: reason.clone() };
    assert!(matches!(&error, Error::Refused(r) if *r == refusal), "{error}");
    for session in &sessions[..2] {
        assert_eq!(notices(session), [Notice::Aborted { by: 2, reason: reason.clone() }]);
    }
    assert!(sessions[2].poll().is_empty());
}

#[test]
fn splits_give_children_with_their_own_news() {
    // Odd and even ranks, in reverse; a child's death is told in the child and in the parent.
    let server = server();
    let parents = sessions(&server, 4);
    let mut children: Vec<(Session, crate::messages::Child)> = thread::scope(|scope| {
        let split = |s: &Session| s.split(Some(s.rank() % 2), -(s.rank() as i32), WAIT).unwrap().unwrap();
        let threads: Vec<_> = parents.iter().map(|session| scope.spawn(move || split(session))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(children.iter().map(|(child, _)| child.rank()).collect::<Vec<_>>(), [1, 1, 0, 0]);
    assert_eq!(children[0].1.parent_ranks, [2, 0]);
    assert_eq!(children[3].1.welcome.members[0].local_rank, 3);
    assert_ne!(children[0].0.comm(), children[1].0.comm());

    // Dropping one handle of two leaves that communicator only.
    let (child, _) = children.remove(0);
    drop(child);
    let peer = &children.iter().find(|(_, c)| c.parent_ranks == [2, 0]).unwrap().0;
    assert!(matches!(notices(peer)[..], [Notice::PeerGone { rank: 1, .. }]));
    assert!(parents.iter().all(|parent| parent.poll().is_empty()));

    // Without a colour there is no child.
    let none = thread::scope(|scope| {
        let split = |s: &Session| s.split(None, 0, WAIT).unwrap().is_none();
        let threads: Vec<_> = parents.iter().map(|session| scope.spawn(move || split(session))).collect();
        threads.into_iter().all(|thread| thread.join().unwrap())
    });
    assert!(none);
}

#[test]
fn a_split_names_those_that_do_not_take_part() {
    // The rank that waits gets the list from the coordinator, and its session stays usable.
    let server = server();
    let sessions = sessions(&server, 3);
    let error = sessions[1].split(Some(0), 0, Duration::from_millis(50)).unwrap_err();
    let missing: RankList = [0, 2].into_iter().collect();
    assert!(
        matches!(&error, Error::Refused(Refusal::SplitTimeout { rank: 1, missing: m, .. }) if *m == missing),
        "{error}"
    );
    assert!(sessions[1].poll().is_empty());
}

#[test]
fn nothing_that_runs_needs_the_coordinator() {
    // When it goes, sessions hear that once; destroying is no error, splitting is one that says why.
    let server = server();
    let mut sessions = sessions(&server, 2);
    drop(server);
    for session in &sessions {
        assert_eq!(notices(session), [Notice::CoordinatorGone]);
        assert!(session.poll().is_empty());
        assert!(matches!(session.split(Some(0), 0, WAIT).unwrap_err(), Error::CoordinatorGone));
    }
    let started = Instant::now();
    sessions.remove(0).destroy();
    drop(sessions);
    assert!(started.elapsed() < Duration::from_millis(900), "nobody waits for an answer that cannot come");
}

#[test]
fn a_rank_that_is_still_in_use_is_not_given_away() {
    // A second rank 0 of a complete group is refused at once; once the first has left, the name is free.
    let server = server();
    let mut sessions = sessions(&server, 1);
    let id = server.unique_id();
    let error = join(id.addr(), id.secret(), hello(0, 1), WAIT).unwrap_err();
    assert!(matches!(error, Error::Refused(Refusal::DuplicateRank { rank: 0, .. })), "{error}");
    sessions.remove(0).destroy();
    assert!(join(id.addr(), id.secret(), hello(0, 1), WAIT).is_ok());
}

#[test]
fn a_member_that_does_not_read_costs_the_others_nothing() {
    // 300 answers and a notice wait for it, while another group joins; none is lost.
    let server = server();
    let mut deaf = silent_member(&server, hello(0, 2));
    let mut other = silent_member(&server, hello(1, 2));
    assert!(matches!(hear(&mut other), Reply::Welcome(_)));
    for _ in 0..300 {
        say(&mut deaf, &Request::Destroy { comm: crate::CommId(u64::MAX) });
    }
    drop(other);
    let id = server.unique_id();
    let another = Hello { group: "another".into(), ..hello(0, 1) };
    assert!(join(id.addr(), id.secret(), another, WAIT).is_ok());
    assert!(matches!(hear(&mut deaf), Reply::Welcome(_)));
    let (mut refused, mut gone) = (0, 0);
    for _ in 0..301 {
        match hear(&mut deaf) {
            Reply::Refused { refusal: Refusal::UnknownCommunicator { .. }, .. } => refused += 1,
            Reply::PeersGone { .. } => gone += 1,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((refused, gone), (300, 1));
}

#[test]
fn sessions_may_be_used_from_several_threads() {
    // A communicator's health check and its abort come from different threads.
    fn is_shared<T: Send + Sync>() {}
    is_shared::<Session>();
}

#[test]
#[ignore = "a measurement: cargo test -p coordinator-lite --release -- --ignored --nocapture four_thousand"]
fn four_thousand_ranks_join() {
    // Prints the time from the first connection to the last welcome, and of the news of a death.
    let server = server();
    let ranks = 4096;
    let started = Instant::now();
    let join = |rank| {
        let (endpoint, secret) = (server.endpoint().clone(), server.unique_id().secret().clone());
        let hello = hello(rank, ranks);
        let deadlines = Deadlines { connect: 6 * WAIT, join: 6 * WAIT };
        let body = move || Session::join(&endpoint, secret, hello, deadlines).unwrap().0;
        thread::Builder::new().stack_size(256 * 1024).spawn(body).unwrap()
    };
    let threads: Vec<_> = (0..ranks).map(join).collect();
    let mut sessions: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    println!("{ranks} ranks joined in {:?}", started.elapsed());
    let started = Instant::now();
    drop(sessions.pop());
    sessions.iter().for_each(|session| assert!(matches!(notices(session)[..], [Notice::PeerGone { .. }])));
    println!("all told of a death within {:?}", started.elapsed());
}
