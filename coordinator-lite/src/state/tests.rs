use super::*;
use crate::RankList;

mod model;
mod sessions;

const WAIT: Duration = Duration::from_secs(10);

fn state() -> State {
    let mut jobs = 0;
    State::new(move || {
        jobs += 1;
        format!("job{jobs}")
    })
}

fn hello(group: &str, rank: u32, nranks: u32) -> Hello {
    let member = Member {
        pid: rank.wrapping_add(100),
        start_time: 1,
        host: "h".into(),
        pid_namespace: 1,
        node: "n0".into(),
        local_rank: rank,
        version: "1".into(),
    };
    Hello { group: group.into(), rank, nranks, member }
}

/// The only answer's only receiver and its refusal.
fn refusal(answers: Vec<Answer>) -> (Vec<ConnId>, Refusal) {
    let [Answer { to, reply: Reply::Refused { refusal, .. } }] = answers.as_slice() else {
        panic!("a refusal was expected")
    };
    (to.clone(), refusal.clone())
}

fn welcome(answers: Vec<Answer>) -> (Vec<ConnId>, Welcome) {
    let [Answer { to, reply: Reply::Welcome(welcome) }] = answers.as_slice() else {
        panic!("a welcome was expected")
    };
    (to.clone(), welcome.clone())
}

fn destroyed(conn: u64, comm: CommId) -> Vec<Answer> {
    vec![Answer { to: vec![ConnId(conn)], reply: Reply::Destroyed { comm } }]
}

fn assert_empty(state: &State) {
    assert!(state.forming.is_empty() && state.forming_of.is_empty() && state.next_deadline().is_none());
    assert!(state.comms.is_empty() && state.seats_of.is_empty() && state.by_name.is_empty());
    assert_eq!((state.splitting.len(), state.seats), (0, 0));
}

#[test]
fn every_order_of_arrival_gives_rank_order() {
    // All 24 orders of four ranks end in one welcome with members by rank, and in an empty state.
    let now = Instant::now();
    for order in permutations(4) {
        let mut state = state();
        for &rank in &order[..3] {
            assert_eq!(state.init(now, ConnId(rank.into()), hello("g", rank, 4), WAIT), []);
        }
        let last = order[3];
        let (to, welcome) = welcome(state.init(now, ConnId(last.into()), hello("g", last, 4), WAIT));
        assert_eq!(to, (0..4).map(ConnId).collect::<Vec<_>>());
        assert_eq!(welcome.members.iter().map(|m| m.pid).collect::<Vec<_>>(), [100, 101, 102, 103]);
        assert_eq!((state.groups(), state.communicators()), (0, 1));
        let ends: Vec<_> = (0..4).map(ConnId).collect();
        assert_eq!(state.closed(&ends), [], "nobody is left to be told");
        assert_empty(&state);
    }
}

fn permutations(n: u32) -> Vec<Vec<u32>> {
    if n == 0 {
        return vec![Vec::new()];
    }
    let shorter = permutations(n - 1);
    let insert = |p: &Vec<u32>, at: usize| [&p[..at], &[n - 1], &p[at..]].concat();
    shorter.iter().flat_map(|p| (0..=p.len()).map(move |at| insert(p, at))).collect()
}

#[test]
fn a_single_rank_is_welcome_at_once_and_names_are_free_again() {
    // One rank is a whole group, and each instance of a name is a job of its own.
    let (now, mut state) = (Instant::now(), state());
    let first = welcome(state.init(now, ConnId(1), hello("g", 0, 1), WAIT)).1;
    let error = refusal(state.init(now, ConnId(2), hello("g", 0, 1), WAIT)).1;
    assert!(matches!(error, Refusal::DuplicateRank { rank: 0, .. }), "rank 0 is still in use: {error}");
    assert_eq!(state.destroy(ConnId(1), first.comm), destroyed(1, first.comm));
    let second = welcome(state.init(now, ConnId(2), hello("g", 0, 1), WAIT)).1;
    assert_eq!((first.job.as_str(), second.job.as_str()), ("job1", "job2"));
    assert_eq!(state.destroy(ConnId(2), second.comm), destroyed(2, second.comm));
    assert_empty(&state);
}

#[test]
fn groups_do_not_mix() {
    // Two groups of different size fill up side by side.
    let (now, mut state) = (Instant::now(), state());
    assert_eq!(state.init(now, ConnId(1), hello("a", 0, 2), WAIT), []);
    assert_eq!(state.init(now, ConnId(2), hello("b", 0, 3), WAIT), []);
    assert_eq!(state.groups(), 2);
    let (to, welcome) = welcome(state.init(now, ConnId(3), hello("a", 1, 2), WAIT));
    assert_eq!((to, welcome.group.as_str()), (vec![ConnId(1), ConnId(3)], "a"));
    assert_eq!(state.groups(), 1);
}

#[test]
fn contradictions_are_refused_alone_and_name_both_sides() {
    // The ranks that agree go on: after three refusals the group still becomes complete.
    let (now, mut state) = (Instant::now(), state());
    assert_eq!(state.init(now, ConnId(1), hello("g", 0, 2), WAIT), []);
    let mut twice = hello("g", 0, 2);
    twice.member.pid = 999;
    let (to, error) = refusal(state.init(now, ConnId(2), twice, WAIT));
    assert_eq!(to, [ConnId(2)]);
    assert_eq!(error, Refusal::DuplicateRank { group: "g".into(), rank: 0, first_pid: 100, pid: 999 });
    assert!(error.to_string().contains("100") && error.to_string().contains("999"));

    let (to, error) = refusal(state.init(now, ConnId(3), hello("g", 1, 3), WAIT));
    assert_eq!(to, [ConnId(3)]);
    assert_eq!(
        error,
        Refusal::WorldSize { group: "g".into(), rank: 1, nranks: 3, first_rank: 0, expected: 2 }
    );

    let mut other = hello("g", 1, 2);
    other.member.version = "2".into();
    let (to, error) = refusal(state.init(now, ConnId(4), other, WAIT));
    assert_eq!(to, [ConnId(4)]);
    assert!(error.to_string().contains("rank 1 runs version 2, rank 0 runs 1"), "{error}");

    for conn in 2..=4 {
        assert_eq!(state.closed(&[ConnId(conn)]), [], "a refused rank is no member");
    }
    assert_eq!(welcome(state.init(now, ConnId(5), hello("g", 1, 2), WAIT)).0, [ConnId(1), ConnId(5)]);
}

#[test]
fn impossible_ranks_and_names_are_refused() {
    // The bounds hold at 0, 1, the limit and one above it.
    let (now, mut state) = (Instant::now(), state());
    for (rank, nranks) in [(0, 0), (1, 1), (2, 1), (0, RANKS_MAX + 1), (u32::MAX, u32::MAX)] {
        let error = refusal(state.init(now, ConnId(1), hello("g", rank, nranks), WAIT)).1;
        assert!(matches!(error, Refusal::RankRange { .. }), "{rank} of {nranks}");
    }
    for name in ["", &"x".repeat(GROUP_NAME_BYTES_MAX + 1)] {
        let error = refusal(state.init(now, ConnId(1), hello(name, 0, 2), WAIT)).1;
        assert_eq!(error, Refusal::GroupName { found: name.len(), limit: GROUP_NAME_BYTES_MAX });
    }
    assert_empty(&state);
    let longest = "x".repeat(GROUP_NAME_BYTES_MAX);
    assert_eq!(state.init(now, ConnId(1), hello(&longest, RANKS_MAX - 1, RANKS_MAX), WAIT), []);
}

#[test]
fn the_number_of_waiting_groups_is_bounded() {
    // One group too many is refused, members of the others are not.
    let (now, mut state) = (Instant::now(), state());
    for i in 0..GROUPS_MAX {
        assert_eq!(state.init(now, ConnId(i as u64), hello(&i.to_string(), 0, 2), WAIT), []);
    }
    let error = refusal(state.init(now, ConnId(9999), hello("more", 0, 2), WAIT)).1;
    assert_eq!(error, Refusal::TooManyGroups { limit: GROUPS_MAX });
    welcome(state.init(now, ConnId(10_000), hello("7", 1, 2), WAIT));
}

#[test]
fn a_vanished_rank_is_named_to_the_others_at_once() {
    // The others get its number and process; the one that left gets nothing; the name is free.
    let (now, mut state) = (Instant::now(), state());
    for rank in 0..3 {
        assert_eq!(state.init(now, ConnId(rank.into()), hello("g", rank, 4), WAIT), []);
    }
    let (to, error) = refusal(state.closed(&[ConnId(1)]));
    assert_eq!(to, [ConnId(0), ConnId(2)]);
    assert_eq!(error, Refusal::Vanished { group: "g".into(), rank: 1, pid: 101 });
    assert_empty(&state);
    assert_eq!(state.closed(&[ConnId(1)]), [], "twice is harmless");
    assert_eq!(state.init(now, ConnId(7), hello("g", 1, 2), WAIT), [], "another size is fine now");
    assert_eq!(state.closed(&[ConnId(7)]), [], "nobody is left to be told");
}

#[test]
fn the_first_deadline_ends_the_group_with_the_missing_ranks() {
    // Before the deadline nothing happens, at the deadline every waiting rank gets the list.
    let (now, mut state) = (Instant::now(), state());
    let short = Duration::from_secs(3);
    assert_eq!(state.init(now, ConnId(0), hello("g", 0, 8), WAIT), []);
    assert_eq!(state.init(now, ConnId(5), hello("g", 5, 8), short), []);
    assert_eq!(state.init(now, ConnId(9), hello("other", 0, 2), WAIT), []);
    assert_eq!(state.next_deadline(), Some(now + short));
    assert_eq!(state.tick(now + short - Duration::from_nanos(1)), []);
    let (to, error) = refusal(state.tick(now + short));
    assert_eq!(to, [ConnId(0), ConnId(5)]);
    assert_eq!(
        error,
        Refusal::Timeout {
            group: "g".into(),
            rank: 5,
            waited_ms: 3000,
            nranks: 8,
            missing: RankList::from_iter([1, 2, 3, 4, 6, 7]),
        }
    );
    assert!(error.to_string().contains("6 of 8 ranks missing after 3 s (rank 5 gave up first): 1-4, 6, 7"));
    assert_eq!(state.next_deadline(), Some(now + WAIT));
    assert_eq!(refusal(state.tick(now + WAIT)).0, [ConnId(9)]);
    assert_empty(&state);
}

#[test]
fn a_wait_of_any_length_is_bounded() {
    // The largest duration cannot overflow the clock.
    let (now, mut state) = (Instant::now(), state());
    assert_eq!(state.init(now, ConnId(0), hello("g", 0, 2), Duration::MAX), []);
    assert_eq!(state.next_deadline(), Some(now + WAIT_MAX));
    assert_eq!(state.init(now, ConnId(1), hello("h", 0, 2), Duration::ZERO), []);
    assert_eq!(refusal(state.tick(now)).0, [ConnId(1)]);
}
