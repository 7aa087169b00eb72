//! Whether what the ranks returned is allowed.

use crate::machine::Machine;
use crate::ranks::Ending;
use crate::scenario::{Fault, MS, Scenario};
use ringccl::Error;

/// From a death or an abort to the last error: naps of 20 ms, a hold-back of 220 ms for the cause to go first, and room
/// for slow yields.
const REACTION: u64 = 500 * MS;
/// Longest simulated time of a run without a fault that holds it up; calls that do not match are told within it.
const WHOLE_RUN: u64 = 1000 * MS;

/// Longest simulated time of a group, or of what is queued in streams at once.
const STREAMED: u64 = 20 * WHOLE_RUN;

/// Looks at every ending.
///
/// # Errors
/// What is not allowed.
pub fn judge(scenario: &Scenario, machine: &Machine, endings: &[Ending]) -> Result<(), String> {
    for (rank, ending) in endings.iter().enumerate() {
        allowed(scenario, rank, ending, endings)?;
    }
    let limit = match scenario.fault {
        Fault::None | Fault::Mismatch { .. } => WHOLE_RUN,
        Fault::Death { rank, second, .. } => {
            let struck = [Some(rank), second.map(|(rank, _)| rank)].into_iter().flatten();
            let last = struck.filter_map(|rank| machine.fate(rank).0).max();
            last.map_or(WHOLE_RUN, |at| at + REACTION)
        }
        Fault::Abort { .. } => machine.fate(scenario.nranks).1.map_or(WHOLE_RUN, |at| at + REACTION),
        Fault::Stall { time, .. } | Fault::Late { time, .. } => time + WHOLE_RUN,
    };
    let besides = match scenario.mixes() {
        _ if scenario.others.is_empty() => 0,
        0 => WHOLE_RUN,
        // The threads of streams give each other the one core, in the worst machine a tenth of a millisecond at a time;
        // a rank that gets every hundredth turn then makes a hundred accesses a second.
        mixes => STREAMED * mixes,
    };
    let limit = limit
        + besides
        + scenario.pause.map_or(0, |(.., time)| time)
        + scenario.servant.map_or(0, |(.., time)| time);
    for rank in 0..scenario.nranks {
        let ended = machine.fate(rank).1.unwrap_or(0);
        if ended > limit {
            let late = (ended - limit) / MS;
            return Err(format!("rank {rank} returned {late} ms too late, at {} ms", ended / MS));
        }
    }
    Ok(())
}

fn allowed(scenario: &Scenario, rank: usize, ending: &Ending, all: &[Ending]) -> Result<(), String> {
    let (call, error) = match ending {
        Ending::Right if matches!(scenario.fault, Fault::Mismatch { .. }) => {
            return Err(format!("rank {rank} noticed nothing"));
        }
        Ending::Right => return Ok(()),
        Ending::Open => {
            return if dies(scenario, rank) { Ok(()) } else { Err(format!("rank {rank} never returned")) };
        }
        Ending::Failed { call, error, stays: false } => {
            return Err(format!("rank {rank}: call {call} failed and the next did not: {error}"));
        }
        Ending::Failed { call, error, .. } => (call, error),
    };
    let right = match (scenario.fault, error) {
        (Fault::Death { .. }, Error::PeerGone { dead, .. }) => {
            dies(scenario, *dead as usize) && all.iter().filter_map(dead_named).all(|named| named == *dead)
        }
        (Fault::Abort { rank: culprit, .. }, Error::Aborted { by, reason, .. }) => {
            *by as usize == culprit && reason.contains("called abort")
        }
        (Fault::Stall { rank: culprit, .. }, Error::Timeout { standing, .. }) => {
            scenario.stalls_too_long() && rank != culprit && standing.contains(&format!("rank {culprit}"))
        }
        (Fault::Stall { .. }, Error::Aborted { by, .. }) => {
            let timed_out =
                |ending: &Ending| matches!(ending, Ending::Failed { error: Error::Timeout { .. }, .. });
            scenario.stalls_too_long() && timed_out(&all[*by as usize])
        }
        (Fault::Mismatch { rank: culprit, .. }, Error::Mismatch { seqno, first, second, .. }) => {
            let pair = [*first as usize, *second as usize];
            Some(*seqno) == scenario.first_difference() && pair.contains(&culprit) && first < second
        }
        _ => false,
    };
    if right { Ok(()) } else { Err(format!("rank {rank}: call {call} returned: {error}")) }
}

/// Whether a rank may die.
fn dies(scenario: &Scenario, rank: usize) -> bool {
    match scenario.fault {
        Fault::Death { rank: first, second, .. } => {
            first == rank || second.is_some_and(|(second, _)| second == rank)
        }
        _ => false,
    }
}

/// The rank that an ending calls dead.
fn dead_named(ending: &Ending) -> Option<u32> {
    match ending {
        Ending::Failed { error: Error::PeerGone { dead, .. }, .. } => Some(*dead),
        _ => None,
    }
}
