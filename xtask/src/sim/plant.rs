//! Planting errors in a copy of the code, one after the other, until a seed finds each.

use super::mutants::{ALL, Mutant};
use crate::plant::WorkspaceCopy;
use crate::run::{self, Watched};
use anyhow::{Context, Result, bail};
use std::process::Command;
use std::time::Duration;

/// The folders whose copies are changed, and those they need.
const COPIED: [&str; 6] = ["shmring", "reduce", "runtime", "coordinator-lite", "topo", "simulator"];
/// How long an error may stay hidden.
const SEARCH_SECONDS: u64 = 60;
/// Longest time for building and searching: a hang proves nothing.
const DEADLINE: Duration = Duration::from_secs(400);
/// Seeds that the unchanged copy must pass.
const UNCHANGED_SEEDS: u64 = 5000;

/// Plants every mutant whose name contains `only` and prints a table. Returns how many there were.
///
/// # Errors
/// When the unchanged copy fails, a mutant does not apply or does not compile, or one is not found.
pub(super) fn run(only: &str) -> Result<usize> {
    let chosen: Vec<&Mutant> = ALL.iter().filter(|mutant| mutant.name.contains(only)).collect();
    if chosen.is_empty() {
        bail!("no planted error's name contains `{only}`; see xtask/src/sim/mutants.rs");
    }
    let copy = WorkspaceCopy::make("sim-mutants", &COPIED)?;
    let mut command = search(&copy, "mixed");
    let unchanged = run::watch(command.args(["--seeds", &UNCHANGED_SEEDS.to_string()]), DEADLINE * 3)?;
    if !unchanged.status.is_some_and(|status| status.success()) {
        bail!("the unchanged copy must pass, and did not:\n{}", unchanged.output);
    }
    println!("unchanged copy: {UNCHANGED_SEEDS} seeds pass");
    println!("{:<56} {:>6} {:>7}  how it shows", "planted error", "time", "seeds");
    let mut missed = Vec::new();
    for &mutant in &chosen {
        let mut command = search(&copy, mutant.store_buffer);
        let watched = copy.with(mutant.edits, || run::watch(&mut command, DEADLINE));
        let watched = watched.and_then(|watched| watched).with_context(|| mutant.name)?;
        match judge(&watched).with_context(|| format!("planted error `{}`", mutant.name))? {
            Some(Found { seconds, seeds, how }) => {
                println!("{:<56} {seconds:>5}s {seeds:>7}  {how}", mutant.name);
            }
            None => {
                println!("{:<56} {:>6} {:>7}  MISSED", mutant.name, "", "");
                missed.push(mutant.name);
            }
        }
    }
    if !missed.is_empty() {
        bail!("{} of {} planted errors were missed: {}", missed.len(), chosen.len(), missed.join("; "));
    }
    Ok(chosen.len())
}

/// The same seeds for every mutant, so that its row repeats.
fn search(copy: &WorkspaceCopy, store_buffer: &str) -> Command {
    let mut command = super::simulator(copy.folder());
    command.args(["--first", "1", "--seconds", &SEARCH_SECONDS.to_string(), "--store-buffer", store_buffer]);
    command
}

/// What a campaign printed about its failure.
#[derive(Debug, PartialEq, Eq)]
struct Found {
    seconds: String,
    seeds: String,
    how: String,
}

/// What was found; `None` if nothing was.
fn judge(watched: &Watched) -> Result<Option<Found>> {
    let output = &watched.output;
    let Some(status) = watched.status else { bail!("no end within {DEADLINE:?}:\n{output}") };
    let Some(summary) = output.lines().find(|line| line.contains(" seeds from ")) else {
        bail!("failed before the first seed:\n{output}");
    };
    if status.success() {
        return Ok(None);
    }
    let failure = output.lines().find_map(|line| line.strip_prefix("seed ")?.split_once(": "));
    let Some((_, how)) = failure else { bail!("failed for another reason than a seed:\n{output}") };
    let seconds = summary.split_once(" on in ").and_then(|(_, rest)| rest.split(' ').next()).unwrap_or("?");
    Ok(Some(Found {
        seconds: seconds.into(),
        seeds: summary.split(' ').next().unwrap_or("?").into(),
        how: how.chars().take(70).collect(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only a failing seed is a find; a build error or a crash before the first seed is an error.
    #[test]
    fn only_failing_seeds_are_finds() {
        use std::os::unix::process::ExitStatusExt;
        let watched = |code: Option<i32>, output: &str| Watched {
            status: code.map(|code| std::process::ExitStatus::from_raw(code << 8)),
            output: output.into(),
        };
        let summary = "812 seeds from 1 on in 0.4 s: 2000 seeds/s\n";
        assert_eq!(judge(&watched(Some(0), summary)).unwrap(), None);
        let failing = format!("{summary}seed 811: lost wake-up: x\n");
        let found = judge(&watched(Some(1), &failing)).unwrap().unwrap();
        assert_eq!((found.seconds.as_str(), found.seeds.as_str()), ("0.4", "812"));
        assert_eq!(found.how, "lost wake-up: x");
        assert!(judge(&watched(Some(1), summary)).is_err());
        assert!(judge(&watched(Some(101), "error[E0308]: mismatched types")).is_err());
        assert!(judge(&watched(None, summary)).is_err());
    }
}
