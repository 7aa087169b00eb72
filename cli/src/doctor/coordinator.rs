//! Whether the coordinator that the variables name is there, and lets the ranks in.

use super::findings::{Finding, Level};
use coordinator_lite::{Endpoint, Error, Key, Secret};
use ringccl::settings::{CoordinatorAddr, Vars, coordinator, job_name, table};
use std::time::Duration;

/// How long it has to answer each question.
const ANSWERS_WITHIN: Duration = Duration::from_secs(2);

/// What a job would meet at its coordinator; nothing where the variables name none.
pub(super) fn ask(vars: &Vars) -> Vec<Finding> {
    // Bad values have their findings already.
    let Ok(Some(addr)) = coordinator(vars) else { return Vec::new() };
    let endpoint = match &addr {
        CoordinatorAddr::Unix(path) => Endpoint::unix(path),
        CoordinatorAddr::Tcp(addr) => Endpoint::from_parts("tcp", addr),
    };
    let variable = table::COORDINATOR_ADDR.find(vars).ok().flatten().map_or("", |found| found.name);
    let answer =
        endpoint.and_then(|endpoint| Ok((coordinator_lite::ping(&endpoint, ANSWERS_WITHIN)?, endpoint)));
    let (line, endpoint) = match answer {
        Ok(answer) => answer,
        Err(Error::Unreachable { endpoint, cause, .. }) => {
            let what = format!("no coordinator at {endpoint}, which {variable} names: {cause}");
            let remedy = format!("start it (ringccl coordinator --listen {endpoint}), or unset {variable}");
            return vec![Finding::new(Level::Error, what, remedy)];
        }
        Err(error) => return vec![Finding::new(Level::Error, format!("{variable}: {error}"), "")],
    };
    let mut findings =
        vec![Finding::new(Level::Note, format!("the coordinator at {endpoint} answers: {line}"), "")];
    match job_name(vars) {
        Ok(Some(name)) => {
            findings.push(Finding::new(Level::Note, format!("ranks meet there as job `{name}`"), ""));
        }
        Ok(None) => findings.push(Finding::new(
            Level::Note,
            "without a name of its own a job may meet another one there",
            "set RINGCCL_JOB, as `ringccl run` does",
        )),
        // A bad value has its finding already.
        Err(_) => {}
    }
    findings.extend(lets_in(&endpoint, vars));
    findings
}

/// What keeps ranks out although the coordinator answers.
fn lets_in(endpoint: &Endpoint, vars: &Vars) -> Option<Finding> {
    let secret = table::SECRET.get(vars).ok().flatten();
    let Some(secret) = secret else {
        return Some(match endpoint {
            Endpoint::Unix(_) => Finding::new(
                Level::Note,
                "ranks without RINGCCL_SECRET are let in only by a coordinator that trusts their user",
                "start it with --trust-uid, or set RINGCCL_SECRET",
            ),
            Endpoint::Tcp(_) => Finding::new(
                Level::Error,
                format!("{endpoint} lets no rank in without the secret"),
                "set RINGCCL_SECRET",
            ),
        });
    };
    let known = Secret::from_hex(&secret)
        .and_then(|secret| coordinator_lite::status(endpoint, &Key::Secret(secret), ANSWERS_WITHIN));
    known.err().map(|error| Finding::new(Level::Error, error.to_string(), ""))
}
