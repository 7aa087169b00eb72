//! What happens to a communicator after its welcome.

use super::*;

/// A communicator `g` of `n` ranks on connections 0 .. n.
fn communicator(state: &mut State, n: u32) -> CommId {
    let now = Instant::now();
    let mut answers = Vec::new();
    for rank in 0..n {
        answers = state.init(now, ConnId(rank.into()), hello("g", rank, n), WAIT);
    }
    welcome(answers).1.comm
}

fn split(state: &mut State, conn: u64, comm: CommId, colour: Option<u32>, key: i32) -> Vec<Answer> {
    state.split(Instant::now(), ConnId(conn), Split { comm, colour, key }, WAIT)
}

fn refused(answers: Vec<Answer>) -> Refusal {
    refusal(answers).1
}

#[test]
fn members_that_end_together_are_told_of_together() {
    // Two deaths are one notice to the two survivors, and none to the dead.
    let mut state = state();
    let comm = communicator(&mut state, 4);
    let gone = vec![Gone { rank: 1, pid: 101 }, Gone { rank: 3, pid: 103 }];
    let notice = Answer { to: vec![ConnId(0), ConnId(2)], reply: Reply::PeersGone { comm, gone } };
    assert_eq!(state.closed(&[ConnId(3), ConnId(1)]), [notice]);
    assert_eq!(state.closed(&[ConnId(1)]), [], "once");
    assert_eq!(state.destroy(ConnId(0), comm), destroyed(0, comm));
    assert_eq!(state.closed(&[ConnId(0)]), [], "who has destroyed may go");
    assert_eq!(state.closed(&[ConnId(2)]), [], "nobody is left");
    assert_empty(&state);
}

#[test]
fn destroying_twice_and_strange_numbers_are_told_apart() {
    // Unknown, no member, twice, ended: each has its own refusal, and none of them hurts the members.
    let mut state = state();
    let comm = communicator(&mut state, 2);
    let unknown = refused(state.destroy(ConnId(0), CommId(7)));
    assert_eq!(unknown, Refusal::UnknownCommunicator { comm: CommId(7) });
    assert_eq!(
        refused(state.destroy(ConnId(0), CommId(0))),
        Refusal::UnknownCommunicator { comm: CommId(0) }
    );
    assert!(matches!(refused(state.destroy(ConnId(9), comm)), Refusal::NotMember { .. }));
    assert!(matches!(refused(state.abort(ConnId(9), comm, "x")), Refusal::NotMember { .. }));
    assert!(matches!(refused(split(&mut state, 9, comm, None, 0)), Refusal::NotMember { .. }));
    assert_eq!(state.destroy(ConnId(0), comm), destroyed(0, comm));
    assert!(matches!(refused(state.destroy(ConnId(0), comm)), Refusal::DoubleDestroy { rank: 0, .. }));
    assert!(matches!(refused(state.abort(ConnId(0), comm, "x")), Refusal::DoubleDestroy { .. }));
    assert!(matches!(refused(split(&mut state, 0, comm, None, 0)), Refusal::DoubleDestroy { .. }));
    assert!(matches!(refused(split(&mut state, 1, comm, None, 0)), Refusal::PeerLeft { rank: 0, .. }));
    assert_eq!(state.destroy(ConnId(1), comm), destroyed(1, comm));
    assert_eq!(refused(state.destroy(ConnId(1), comm)), Refusal::Ended { comm });
    assert_empty(&state);
}

#[test]
fn an_abort_reaches_all_others_once() {
    // The first reason stands, cut to its bound between characters; split is refused with it.
    let mut state = state();
    let comm = communicator(&mut state, 3);
    let long = format!("x{}", "ä".repeat(1000));
    let reason = long[..511].to_owned();
    let notice = Answer {
        to: vec![ConnId(0), ConnId(2)],
        reply: Reply::Aborted { comm, by: 1, reason: reason.clone() },
    };
    assert_eq!(state.abort(ConnId(1), comm, &long), [notice]);
    assert_eq!(state.abort(ConnId(2), comm, "me too"), []);
    let expected = Refusal::Aborted { group: "g".into(), by: 1, reason };
    assert_eq!(refused(split(&mut state, 0, comm, Some(1), 0)), expected);
}

#[test]
fn a_split_orders_by_key_and_then_by_rank() {
    // Two colours and one rank without: the children's members and parent ranks are as NCCL defines them.
    let mut state = state();
    let parent = communicator(&mut state, 5);
    let asks = [(Some(7), 2), (Some(7), -1), (None, 0), (Some(3), 0), (Some(7), 2)];
    for conn in [4, 0, 2, 1] {
        let (colour, key) = asks[conn as usize];
        assert_eq!(split(&mut state, conn, parent, colour, key), []);
    }
    let answers = split(&mut state, 3, parent, asks[3].0, asks[3].1);
    let child = |answer: &Answer| match &answer.reply {
        Reply::Split { parent: p, child } if *p == parent => child.clone(),
        other => panic!("{other:?}"),
    };
    let seen: Vec<_> =
        answers.iter().map(|a| (a.to.iter().map(|c| c.0).collect::<Vec<_>>(), child(a))).collect();
    let (to, low) = (&seen[0].0, seen[0].1.as_ref().unwrap());
    assert_eq!((to, &low.parent_ranks, low.welcome.comm), (&vec![3], &vec![3], CommId(2)));
    let (to, high) = (&seen[1].0, seen[1].1.as_ref().unwrap());
    assert_eq!((to, &high.parent_ranks), (&vec![1, 0, 4], &vec![1, 0, 4]));
    assert_eq!(high.welcome.members.iter().map(|m| m.pid).collect::<Vec<_>>(), [101, 100, 104]);
    assert_eq!((high.welcome.group.as_str(), low.welcome.group.as_str()), ("g#3", "g#2"));
    assert_ne!(high.welcome.job, low.welcome.job);
    assert_eq!(seen[2], (vec![2], None));
    // A grandchild is named after the root, so that names stay short.
    for conn in [1, 0] {
        assert_eq!(split(&mut state, conn, CommId(3), Some(0), 0), []);
    }
    let answers = split(&mut state, 4, CommId(3), Some(0), 0);
    let Reply::Split { parent: CommId(3), child: Some(grandchild) } = &answers[0].reply else {
        panic!("{answers:?}")
    };
    assert_eq!(grandchild.welcome.group, "g#4");
    assert_eq!(state.communicators(), 4);
}

#[test]
fn a_split_that_cannot_complete_is_refused_to_all_that_wait() {
    // A death, a destroy, an abort: each ends it at once with its own reason; the parent goes on.
    for how in 0..3 {
        let mut state = state();
        let comm = communicator(&mut state, 3);
        assert_eq!(split(&mut state, 0, comm, Some(1), 0), []);
        assert!(matches!(
            refused(split(&mut state, 0, comm, Some(1), 0)),
            Refusal::SplitTwice { rank: 0, .. }
        ));
        let answers = match how {
            0 => state.closed(&[ConnId(2)]),
            1 => state.destroy(ConnId(2), comm),
            _ => state.abort(ConnId(2), comm, "enough"),
        };
        let refusals: Vec<_> = answers
            .iter()
            .filter_map(|a| match &a.reply {
                Reply::Refused { comm: Some(c), refusal } if *c == comm => {
                    Some((a.to.clone(), refusal.clone()))
                }
                _ => None,
            })
            .collect();
        let expected = match how {
            0 => Refusal::PeerGone { group: "g".into(), rank: 2, pid: 102 },
            1 => Refusal::PeerLeft { group: "g".into(), rank: 2 },
            _ => Refusal::Aborted { group: "g".into(), by: 2, reason: "enough".into() },
        };
        assert_eq!(refusals, [(vec![ConnId(0)], expected)]);
        assert!(state.next_deadline().is_none());
        assert_eq!(state.communicators(), 1);
    }
}

#[test]
fn a_late_split_names_the_missing_and_can_be_tried_again() {
    // The first deadline counts, and a second round works.
    let (now, mut state) = (Instant::now(), state());
    let comm = communicator(&mut state, 4);
    let ask = Split { comm, colour: Some(0), key: 0 };
    assert_eq!(state.split(now, ConnId(3), ask, WAIT), []);
    assert_eq!(state.split(now, ConnId(1), ask, Duration::from_secs(1)), []);
    assert_eq!(state.next_deadline(), Some(now + Duration::from_secs(1)));
    let (to, error) = refusal(state.tick(now + Duration::from_secs(1)));
    assert_eq!(to, [ConnId(1), ConnId(3)]);
    assert!(
        error.to_string().contains("2 of 4 ranks missing after 1 s (rank 1 gave up first): 0, 2"),
        "{error}"
    );
    for conn in 0..3 {
        assert_eq!(split(&mut state, conn, comm, None, 0), []);
    }
    let answers = split(&mut state, 3, comm, None, 0);
    assert_eq!(answers.len(), 1);
    assert_eq!(answers[0].to.len(), 4);
}

#[test]
fn a_member_may_leave_one_communicator_and_stay_in_another() {
    // Leaving is told like a death, in that communicator only.
    let mut state = state();
    let parent = communicator(&mut state, 2);
    assert_eq!(split(&mut state, 0, parent, Some(0), 0), []);
    assert_eq!(split(&mut state, 1, parent, Some(0), 0).len(), 1);
    let gone = vec![Gone { rank: 0, pid: 100 }];
    let notice = Answer { to: vec![ConnId(1)], reply: Reply::PeersGone { comm: parent, gone } };
    assert_eq!(state.leave(ConnId(0), parent), [notice]);
    assert!(state.is_bound(ConnId(0)));
    assert_eq!(state.destroy(ConnId(0), CommId(2)), destroyed(0, CommId(2)));
    assert_eq!(state.destroy(ConnId(1), CommId(2)), destroyed(1, CommId(2)));
    assert_eq!(state.closed(&[ConnId(0), ConnId(1)]), []);
    assert_empty(&state);
}

#[test]
fn the_number_of_members_is_bounded() {
    // The bound on seats refuses a group that would pass it, before its ranks wait in vain.
    let (now, mut state) = (Instant::now(), state());
    let comms = SEATS_MAX as u64 / u64::from(RANKS_MAX);
    let mut conn = 0;
    for i in 0..comms {
        for rank in 0..RANKS_MAX {
            conn += 1;
            state.init(now, ConnId(conn), hello(&i.to_string(), rank, RANKS_MAX), WAIT);
        }
    }
    assert_eq!((state.communicators() as u64, state.seats), (comms, SEATS_MAX));
    let error = refused(state.init(now, ConnId(conn + 1), hello("more", 0, 1), WAIT));
    assert!(matches!(error, Refusal::TooManyCommunicators { .. }), "{error}");
}
