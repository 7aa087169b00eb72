//! Who is behind, in words: for the messages of time-outs.

use super::descriptor::Descriptor;
use super::peers::Peers;
use super::stuck;
use super::tangle::number_of;
use crate::error::Stage;
use shmring::layout::{MemberRecord, MemberState, Record};
use shmring::segment::Segment;
use shmring::sync::Ordering;
use std::time::Duration;

/// Ranks that one message names; the rest is counted.
const NAMED: usize = 8;

/// What the ranks other than `rank` that have not done with `stage` are doing, stopped ones first, if there are any.
pub(super) fn standing(segment: &Segment, peers: &Peers, rank: u32, stage: Stage) -> Option<String> {
    let needed = |other: u32| match stage {
        Stage::Send { to: peer } | Stage::Recv { from: Some(peer) } | Stage::Signal { from: peer } => {
            other == peer
        }
        Stage::Recv { from: None } | Stage::Join | Stage::Turn | Stage::Operation(_) | Stage::Finalize(_) => {
            true
        }
    };
    let others = (0..peers.members().len() as u32).filter(|other| {
        // A stopped rank may hold up the one that is waited for.
        *other != rank && (needed(*other) || peers.is_stopped(*other))
    });
    let mut late: Vec<(bool, String)> = others
        .filter_map(|other| {
            let text = place(segment, other, stage)?;
            let stopped = peers.is_stopped(other);
            let hint = if stopped {
                format!(
                    " and its process {} is stopped: send it SIGCONT, or look who stopped it",
                    peers.pid(other)
                )
            } else {
                String::new()
            };
            Some((!stopped, format!("rank {other} {text}{hint}")))
        })
        .collect();
    late.sort_by_key(|(running, _)| *running);
    let rest = late.len().saturating_sub(NAMED);
    let mut texts: Vec<String> = late.into_iter().take(NAMED).map(|(_, text)| text).collect();
    if rest > 0 {
        texts.push(format!("and so are {rest} more"));
    }
    (!texts.is_empty()).then(|| texts.join(", "))
}

/// Where one rank is, if it has not done with `stage`.
fn place(segment: &Segment, rank: u32, stage: Stage) -> Option<String> {
    let record = segment.member_record(rank);
    if stage == Stage::Join {
        let is_absent = record.identity.state() == MemberState::Absent;
        return is_absent.then(|| "has not attached to the segment".into());
    }
    // ORDERING: Relaxed; the numbers are only printed.
    let started = record.identity.started.load(Ordering::Relaxed);
    let finished = record.identity.finished.load(Ordering::Relaxed);
    let (Stage::Operation(seqno) | Stage::Finalize(seqno)) = stage else {
        return Some(match wait(record, rank) {
            Some(wait) => format!("{wait} ({})", last(record, finished)),
            None if started > finished => format!("is in operation {started}{}", call(record, started)),
            None => format!("is in no collective (it has finished {finished})"),
        });
    };
    (finished < seqno).then(|| match started {
        s if s >= seqno => format!("is in operation {seqno} too"),
        s if s > finished => format!("is in operation {s}{}", call(record, s)),
        _ => {
            let missing = finished.saturating_add(1);
            let elsewhere = wait(record, rank).map(|wait| format!("; it {wait}")).unwrap_or_default();
            format!("has not called operation {missing} ({}{elsewhere})", last(record, finished))
        }
    })
}

/// What a rank called as operation `seqno`, if that is on record.
fn call(record: &MemberRecord, seqno: u64) -> String {
    match record.journal.read(seqno) {
        Record::Here(words) => format!(" ({})", Descriptor::from_words(words)),
        Record::NotYet | Record::Overwritten => String::new(),
    }
}

/// The last operation that a rank has finished.
fn last(record: &MemberRecord, finished: u64) -> String {
    match finished {
        0 => "it has finished none".into(),
        _ => format!("its last was operation {finished}{}", call(record, finished)),
    }
}

/// Where the thread that has a rank waits, as it says itself, in a communicator that this process knows. It may be
/// there as another rank, of this communicator too, where a thread has several.
fn wait(record: &MemberRecord, rank: u32) -> Option<String> {
    let stuck = stuck::read(record).filter(|stuck| stuck.job != stuck::MAKING)?;
    let as_another = if stuck.rank == rank { String::new() } else { format!(" as rank {}", stuck.rank) };
    Some(match number_of(stuck.job) {
        0 => format!("is in {stuck} of another communicator{as_another}"),
        number => format!("is in {stuck} of communicator {number}{as_another}"),
    })
}

/// Ranks of which any might send, and none has for so long, in words.
pub(super) fn all_quiet(
    segment: &Segment,
    peers: &Peers,
    rank: u32,
    stage: Stage,
    time: Duration,
) -> Option<String> {
    let standing = standing(segment, peers, rank, stage)?;
    Some(format!("suspected: no rank has sent for {time:.1?}: {standing}"))
}

/// A rank that has called nothing for so long although it is waited for, in words; `None` if it has called what is
/// waited in, and waits itself.
pub(super) fn quiet(segment: &Segment, rank: u32, stage: Stage, time: Duration) -> Option<String> {
    if let Stage::Operation(seqno) | Stage::Finalize(seqno) = stage {
        // ORDERING: Relaxed; the number is only looked at to tell.
        let started = segment.member_record(rank).identity.started.load(Ordering::Relaxed);
        if started >= seqno {
            return None;
        }
    }
    let place = place(segment, rank, stage)?;
    let missing = match stage {
        Stage::Send { .. } => "has not received",
        Stage::Recv { .. } => "has not sent",
        Stage::Signal { .. } => "has not signalled",
        Stage::Operation(_) | Stage::Finalize(_) | Stage::Join | Stage::Turn => "has not gone on",
    };
    Some(format!("suspected: rank {rank} {missing} for {time:.1?}: it {place}"))
}
