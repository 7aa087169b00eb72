//! Deadlocks told at once, and what is told of waits that only may be some: the texts of `docs/diagnosis.md`.

mod common;

use common::worker;
use std::time::Duration;
use verification::report::Event;
use verification::testkit::{Ended, Job, Meet, ShmDir};

/// Longest time from the last rank's first call to any rank's error.
const WITHIN: Duration = Duration::from_secs(1);
/// More than a mail ring holds.
const LARGE: &str = "64000000";

/// All ranks of a job that runs a script.
fn ends(nranks: u32, act: &str, calls: &str) -> Vec<Ended> {
    let shm = ShmDir::new();
    let args = [act, "--calls", &calls.replace("LARGE", LARGE)];
    let ended = Job::new(worker(), Meet::launcher(), nranks, &args, &shm).start_all().finish_all();
    shm.assert_empty();
    ended
}

/// The time from the last rank's start to a rank's error.
fn took(all: &[Ended], of: &Ended) -> Duration {
    let running = |ended: &Ended| {
        ended.reports.iter().find(|report| report.event == Event::Running).expect("it ran").at_ns
    };
    let last = all.iter().map(running).max().unwrap_or(0);
    Duration::from_nanos(of.failure().2.saturating_sub(last))
}

/// A text with `#` for every number, so that it can be compared with the page.
fn without_numbers(text: &str) -> String {
    let digits = |c: char| c.is_ascii_digit();
    let mut plain = String::new();
    for c in text.chars() {
        match digits(c) {
            true if plain.ends_with('#') => {}
            true => plain.push('#'),
            false => plain.push(c),
        }
    }
    plain
}

/// Panics unless the page quotes a text, but for its numbers.
fn assert_on_page(text: &str) {
    let page = include_str!("../../docs/diagnosis.md");
    // A quote goes over several lines; a line without the mark ends it.
    let joined: String =
        page.lines().map(|line| line.strip_prefix("> ").map_or("\n".into(), |q| format!("{q} "))).collect();
    let mut quotes = joined.lines().map(str::trim).filter(|quote| !quote.is_empty());
    let plain = without_numbers(text);
    assert!(quotes.any(|quote| plain.contains(&without_numbers(quote))), "not in docs/diagnosis.md: {text}");
}

/// Runs a script in which every rank fails in time, by a text with all of `parts`.
fn told(nranks: u32, calls: &str, parts: &[&str]) {
    let ended = ends(nranks, "script", calls);
    for rank in &ended {
        let (class, text, _) = rank.failure();
        let took = took(&ended, rank);
        assert!(took < WITHIN, "`{calls}`: {took:?}: {text}");
        assert_eq!(class, "InvalidUsage", "`{calls}`: {text}");
        if nranks == 2 && !calls.contains("2:") && !calls.contains("finalize") {
            assert_on_page(text);
        }
        for part in parts {
            assert!(text.contains(part), "`{calls}`: `{part}` is not in: {text}");
        }
    }
}

/// Ranks that send more than fits to each other before they receive, two of them and three in a circle.
#[test]
fn sends_in_a_circle() {
    told(
        2,
        "send/float/1/LARGE recv/float/1/LARGE|send/float/0/LARGE recv/float/0/LARGE",
        &[
            "deadlock: rank 0 is in send to rank 1 of communicator 1, rank 1 is in send to rank 0 of communicator 1, \
             and each waits for the other; send and receive together",
        ],
    );
    told(
        3,
        "send/float/1/LARGE|send/float/2/LARGE|send/float/0/LARGE",
        &[
            "deadlock: rank 0 is in send to rank 1 of communicator 1, rank 1 is in send to rank 2 of communicator 1, \
             rank 2 is in send to rank 0 of communicator 1, and each waits for the next, the last for the first",
        ],
    );
}

/// Ranks that all receive first, and a rank that receives from itself.
#[test]
fn receives_in_a_circle() {
    told(
        2,
        "recv/float/1/8|recv/float/0/8",
        &[
            "rank 0 is in recv from rank 1 of",
            "rank 1 is in recv from rank 0 of",
            "one of them must send first",
        ],
    );
    told(
        2,
        "recv/float/0/8|barrier",
        &["deadlock: rank 0 is in recv from rank 0 of communicator 1, and waits for itself; send before"],
    );
}

/// Ranks that all receive from any rank, or wait otherwise for one that does; a rank that has left is not waited for.
#[test]
fn receives_from_any_rank() {
    told(
        2,
        "recv/float/any/8",
        &["deadlock: rank 0 is in recv from any rank of communicator 1, rank 1 is in recv from any rank of \
             communicator 1, and nobody is left to send; one of them must send first"],
    );
    told(
        3,
        "recv/float/any/8|recv/float/any:7/8|barrier",
        &[
            "rank 1 is in recv from any rank with tag 7 of",
            "rank 2 is in operation 2 of communicator 1",
            "nobody is left to send",
        ],
    );
    let ended = ends(3, "script", "recv/float/any/8|recv/float/any/8|drop sleep/1500");
    for rank in &ended[..2] {
        assert!(rank.failure().1.contains("and nobody is left to send"), "{rank:?}");
    }
}

/// Of ranks that receive from any rank, while all others do so too or have died, the dead one is told at once.
#[test]
fn receives_from_any_rank_and_a_death() {
    for waits in ["recv/float/any/8|recv/float/any/8", "recv/float/any/8|recv/float/0/8"] {
        let ended = ends(3, "script", &format!("{waits}|exit"));
        for rank in &ended[..2] {
            let (class, text, _) = rank.failure();
            let took = took(&ended[..2], rank);
            assert!(took < WITHIN, "{waits}: {took:?}: {text}");
            assert_eq!(class, "Remote", "{text}");
            assert!(text.starts_with("rank 2 (process ") && text.contains("it died"), "{waits}: {text}");
        }
    }
}

/// A rank whose messages come in under other tags than are asked for has sent: both tags are told, and not that it must
/// send first. Also where the receive is from any rank, in a circle with a collective, or from the rank itself.
#[test]
fn messages_under_other_tags() {
    let remedy = "receive with the tags that were sent, or send with those that are asked for";
    let came = "rank 1 is in recv from rank 0 with tag 4 (what has come in has tag 3) of communicator 1";
    told(2, "send/float/1:3/8 recv/float/1/8|recv/float/0:4/8 send/float/0/8", &[came, remedy]);
    told(
        3,
        "send/float/1:3/8 send/float/1/8 recv/float/1:2/8|recv/float/any:4/8|recv/float/0/8",
        &["rank 1 is in recv from any rank with tag 4 (what has come in has tag 0 and others) of", remedy],
    );
    told(3, "send/float/1:3/8 barrier|recv/float/0:4/8|barrier", &[came, remedy]);
    told(
        3,
        "send/float/0:3/8 recv/float/0/8|barrier|barrier",
        &["rank 0 is in recv from rank 0 with tag 0 (what has come in has tag 3) of", remedy],
    );
    told(
        3,
        "recv/float/1:5/8|recv/float/0:6/8|recv/float/0/8",
        &["with tag 5 of", "one of them must send first"],
    );
    told(
        3,
        "send/float/1:3/LARGE|send/float/0:4/LARGE|barrier",
        &["rank 0 is in send to rank 1 with tag 3 of"],
    );
}

/// A rank in a collective or in finalize, and one that waits for a message of it, in one communicator.
#[test]
fn a_collective_and_a_message() {
    told(
        2,
        "barrier|recv/float/0/8",
        &[
            "deadlock: rank 0 is in operation 2 of communicator 1 and waits for rank 1, rank 1 is in recv from rank 0 \
             of communicator 1, and each waits for the other; make the calls that belong together in the same order",
        ],
    );
    told(
        3,
        "barrier|send/float/0/LARGE|barrier",
        &["rank 1 is in send to rank 0 of communicator 1", "each waits"],
    );
    told(2, "recv/float/1/8|finalize", &["finalize (operation 2)", "rank 0 is in recv from rank 1"]);
    told(
        2,
        "2:barrier|recv/float/0/8",
        &["operation 2 of communicator 2", "recv from rank 0 of communicator 1"],
    );
}

/// One thread that calls for one of two ranks of its process, with nobody who could call for the other.
#[test]
fn a_thread_for_two_ranks() {
    let ended = ends(1, "one-thread", "");
    let (class, text, _) = ended[0].failure();
    assert!(took(&ended, &ended[0]) < WITHIN, "{text}");
    assert_eq!(class, "InvalidUsage", "{text}");
    assert_on_page(text);
    for part in [
        "deadlock: rank 0 is in operation 1 of communicator 2 and waits for rank 1, whose calls are made by the thread \
         that waits (rank 1 is in the same process)",
        "give each rank of a process a thread of its own, or put the calls of all of them into one Group, or on a Stream for each rank",
    ] {
        assert!(text.contains(part), "{text}");
    }
}

/// One thread that calls for two of three ranks of its process in a group.
#[test]
fn a_thread_for_a_group_of_ranks() {
    let ended = ends(1, "one-thread", "group");
    let (class, text, _) = ended[0].failure();
    assert!(took(&ended, &ended[0]) < WITHIN, "{text}");
    assert_eq!(class, "InvalidUsage", "{text}");
    assert_on_page(text);
    assert!(text.contains(" and waits for rank 2, whose calls are made by the thread that waits"), "{text}");
}

/// Groups, of one operation and of several, wait in circles as calls do: with others, and with each other.
#[test]
fn groups_in_a_circle() {
    let came =
        "recv from rank 0 of communicator 1, and each waits for the other; one of them must send first";
    told(2, "group:recv/float/1/8|group:recv/float/0/8", &[came]);
    told(2, "group:recv/float/1/8+recv/float/1:5/8|recv/float/0/8", &["one of them must send first"]);
    told(
        3,
        "group:recv/float/1/8+send/float/1/LARGE|barrier|barrier",
        &["rank 1 is in operation 2 of communicator 1"],
    );
}

/// A rank that is gone without the operation that others wait in: in a call, in a group, on a stream, in a message.
#[test]
fn a_rank_that_does_not_come() {
    let waits =
        ["barrier", "all_reduce/float/sum/8", "group:all_reduce", "stream:all_reduce", "recv/float/1/8"];
    for wait in waits {
        for (left, how) in [("exit", "it died"), ("drop sleep/1000", "it left the communicator")] {
            let ended = ends(2, "script", &format!("{wait}|{left}"));
            let (class, text, _) = ended[0].failure();
            let took = took(&ended[..1], &ended[0]);
            assert!(took < WITHIN, "{wait}, {left}: {took:?}");
            assert_eq!(class, "Remote", "{text}");
            assert!(text.starts_with("rank 1 (process ") && text.contains(how), "{wait}, {left}: {text}");
            if left == "exit" {
                assert_on_page(text);
            }
        }
    }
}

/// Another thread in the process cannot use a handle that a blocking call has: certain all the same.
#[test]
fn other_threads_cannot_help_a_call() {
    let ended = ends(2, "threaded-script", "send/float/1/LARGE|send/float/0/LARGE");
    for rank in &ended {
        assert!(rank.failure().1.starts_with("deadlock: rank 0 is in send to rank 1 of"), "{rank:?}");
        assert!(took(&ended, rank) < WITHIN, "{rank:?}");
    }
}

/// What one rank wrote to standard error, and its error's text, in a job whose operations may take two seconds.
fn suspected(nranks: u32, act: &str, calls: &str) -> (String, String) {
    let shm = ShmDir::new();
    let args = [act, "--calls", &calls.replace("LARGE", LARGE)];
    let job = Job::new(worker(), Meet::launcher(), nranks, &args, &shm)
        .with("RINGCCL_TIMEOUT_MS", 60_000)
        .with_rank(0, "RINGCCL_TIMEOUT_MS", 2000);
    let ended = job.start_all().finish(0);
    let text = ended.failure().1.to_string();
    (ended.stderr, text)
}

/// What may be a deadlock, since another thread could help, is told once after a quarter of the time, and again at
/// the time-out.
#[test]
fn what_is_not_certain_is_suspected() {
    let cases = [
        ("threaded-script", "barrier|2:barrier", "suspected: communicators used in different orders: "),
        (
            "threaded-script",
            "group:all_reduce|recv/float/0/8",
            "suspected: deadlock: rank 0 is in operation 2 of",
        ),
        (
            "one-thread-of-two",
            "",
            "suspected: deadlock: rank 0 is in operation 1 of communicator 2 and waits for rank 1",
        ),
    ];
    for (act, calls, told) in cases {
        let (stderr, text) = suspected(if calls.is_empty() { 1 } else { 2 }, act, calls);
        assert_eq!(stderr.matches("ringccl: warning: ").count(), 1, "{act} {calls}: {stderr}");
        assert!(
            stderr.contains("on rank 0 has not finished within ") && stderr.contains(told),
            "{act} {calls}: {stderr}"
        );
        assert!(text.contains(" did not finish within 2s; ") && text.contains(told), "{act} {calls}: {text}");
    }
}

/// A rank that calls nothing for a quarter of the time is told of, with its last operation and where it is.
#[test]
fn a_quiet_rank_is_told_of() {
    let quiet = "suspected: rank 1 has not gone on for ";
    let (stderr, text) = suspected(2, "script", "barrier|sleep/5000");
    assert!(stderr.contains(quiet), "{stderr}");
    let last = "has not called operation 2 (its last was operation 1 (barrier))";
    assert!(stderr.contains(last) && text.contains(&format!("rank 1 {last}; raise")), "{stderr}: {text}");
    let (stderr, _) = suspected(2, "script", "recv/float/1/8|sleep/5000");
    assert!(stderr.contains("suspected: rank 1 has not sent for "), "{stderr}");
}

/// So are ranks of which any might send, and what waits behind a group that is not run; a rank whose messages come
/// in, though none that fits, is not said to send nothing.
#[test]
fn quiet_ranks_and_groups_are_told_of() {
    let (stderr, text) = suspected(3, "script", "recv/float/any/8|sleep/5000|recv/float/1/8");
    let standing =
        "rank 1 is in no collective (it has finished 1), rank 2 is in recv from rank 1 of communicator 1 ";
    assert!(stderr.contains("suspected: no rank has sent for ") && stderr.contains(standing), "{stderr}");
    assert!(text.starts_with("recv from any rank on rank 0 ") && text.contains(standing), "{text}");
    let sends = "sleep/150 send/float/0:1/8 ".repeat(30);
    for from in ["1", "any"] {
        let (stderr, text) = suspected(2, "script", &format!("recv/float/{from}:7/8|{sends}"));
        assert!(!stderr.contains("has sent for") && !stderr.contains("has not sent for"), "{stderr}");
        let rank = if from == "any" { "any rank" } else { "rank 1" };
        let other =
            format!("suspected: no message with tag 7 has come from {rank}, but there are some with tag 1, ");
        assert!(stderr.matches(&other).count() == 1 && text.contains(&other), "{stderr}: {text}");
        if from == "1" {
            assert_on_page(&stderr);
        }
    }
    let held = "does not run: run or drop the group that it is in";
    for call in ["barrier", "seqno barrier"] {
        let (stderr, _) = suspected(2, "script", &format!("held {call}|sleep/4000"));
        let turn = "an operation's turn on rank 0 has not come within ";
        assert!(stderr.contains(turn) && stderr.matches(held).count() >= 1, "{stderr}");
        let unknown =
            stderr.contains("seqno on rank 0 is not known: an operation's turn on rank 0 did not finish");
        assert_eq!(unknown, call != "barrier", "{stderr}");
    }
}

/// A rank that leaves with messages that it has not received says so in one line, by finalize and by drop; one that has
/// received all says nothing.
#[test]
fn unread_messages_are_told_of() {
    let told = |calls: &str| {
        let ended = ends(3, "script", calls);
        let told = |rank: &Ended| {
            rank.stderr.lines().find(|line| line.contains("has not received")).map(String::from)
        };
        ended.iter().map(told).collect::<Vec<_>>()
    };
    let sends = "send/float/1:3/8 send/float/1:4/1500 send/float/1:4/1";
    let line = "ringccl: warning: rank 1 leaves communicator 1 and has not received ";
    let all = told(&format!("{sends} barrier|barrier|barrier"));
    let text = all[1].as_deref().unwrap_or_default();
    assert!(text.contains(&format!("{line}3 messages from rank 0 with tags 3, 4;")), "{all:?}");
    assert!(all[0].is_none() && all[2].is_none(), "{all:?}");
    assert_on_page(text);
    let some =
        told("send/float/1:3/8 send/float/1/8 barrier|recv/float/0/8 barrier|send/float/1:9/8 barrier");
    let text = some[1].as_deref().unwrap_or_default();
    assert!(text.contains(&format!("{line}2 messages from ranks 0, 2 with tags 3, 9;")), "{some:?}");
    let dropped =
        told("send/float/1:3/8 send/float/1/8 barrier drop|recv/float/0/8 barrier drop|barrier drop");
    assert!(
        dropped[1].as_deref().is_some_and(|text| text.contains("1 message from rank 0 with tag 3;")),
        "{dropped:?}"
    );
    let none = told(
        "send/float/1:3/8 send/float/0/8 recv/float/0/8|recv/float/0:3/8|barrier"
            .replace("|barrier", "|sleep/1")
            .as_str(),
    );
    assert!(none.iter().all(Option::is_none), "{none:?}");
}

/// A time-out says where a rank is that has not come: in another call, and what it finished last.
#[test]
fn a_time_out_tells_where_the_others_are() {
    let (_, text) = suspected(3, "script", "barrier|recv/float/2/8|sleep/6000");
    for part in [
        "rank 1 has not called operation 2 (its last was operation 1 (barrier); it is in recv from rank 2 of communicator 1)",
        "rank 2 has not called operation 2 (its last was operation 1 (barrier))",
    ] {
        assert!(text.contains(part), "{text}");
    }
}
