//! Questions to a running coordinator.

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::{Context, Result};
use coordinator_lite::messages::{CommStatus, Status};

use super::AskArgs;
use crate::print;

pub(super) fn ping(args: &AskArgs) -> Result<ExitCode> {
    let line = coordinator_lite::ping(&args.place.endpoint()?, args.timeout)?;
    print(&format!("{line}\n"))
}

pub(super) fn status(args: &AskArgs, json: bool) -> Result<ExitCode> {
    let status = coordinator_lite::status(&args.place.endpoint()?, &args.place.key()?, args.timeout)?;
    if json {
        let text = serde_json::to_string_pretty(&status).context("cannot write the status as JSON")?;
        return print(&format!("{text}\n"));
    }
    print(&text(&status))
}

pub(super) fn shutdown(args: &AskArgs) -> Result<ExitCode> {
    let endpoint = args.place.endpoint()?;
    coordinator_lite::shutdown(&endpoint, &args.place.key()?, args.timeout)?;
    print(&format!("{endpoint} is ending\n"))
}

fn print(text: &str) -> Result<ExitCode> {
    print::print(text)?;
    Ok(ExitCode::SUCCESS)
}

/// The status for people: one line for each thing.
fn text(status: &Status) -> String {
    let Status { version, wire_version, endpoint, pid, connections, unproved, .. } = status;
    let mut out = format!(
        "coordinator on {endpoint}: process {pid}, version {version}, wire version {wire_version}\n\
         {connections} connections, {unproved} of them unproved\n"
    );
    for group in &status.waiting {
        // Writing to a String cannot fail.
        let name = group.group.escape_debug();
        let _ = writeln!(out, "group `{name}` waits: {} of {} ranks are here", group.here, group.nranks);
    }
    for comm in &status.communicators {
        out.push_str(&communicator(comm));
    }
    if status.omitted > 0 {
        let _ = writeln!(out, "and {} more", status.omitted);
    }
    out
}

fn communicator(comm: &CommStatus) -> String {
    let CommStatus { comm: id, nranks, active, destroyed, gone, job, .. } = comm;
    let name = comm.group.escape_debug();
    let mut line = format!("communicator {id} `{name}` job {job}: {nranks} ranks, {active} active");
    let counts = [(*destroyed, "done"), (*gone, "gone"), (comm.splitting, "in a split")];
    for (count, what) in counts.into_iter().filter(|&(count, _)| count > 0) {
        let _ = write!(line, ", {count} {what}");
    }
    if let Some(rank) = comm.aborted_by {
        let _ = write!(line, ", aborted by rank {rank}");
    }
    line + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use coordinator_lite::CommId;
    use coordinator_lite::messages::WaitingStatus;

    #[test]
    fn a_status_is_one_line_for_each_thing() {
        // Names from ranks cannot break lines, and zeros are left out.
        let comm = CommStatus {
            comm: CommId(3),
            group: "a\nb".into(),
            job: "00ff".into(),
            nranks: 4,
            active: 2,
            destroyed: 0,
            gone: 2,
            aborted_by: Some(1),
            splitting: 0,
        };
        let status = Status {
            waiting: vec![WaitingStatus { group: "world".into(), nranks: 8, here: 3 }],
            communicators: vec![comm],
            omitted: 5,
            ..Status::default()
        };
        let text = text(&status);
        let lines: Vec<&str> = text.lines().skip(2).collect();
        let expected = [
            "group `world` waits: 3 of 8 ranks are here",
            "communicator 3 `a\\nb` job 00ff: 4 ranks, 2 active, 2 gone, aborted by rank 1",
            "and 5 more",
        ];
        assert_eq!(lines, expected);
    }
}
