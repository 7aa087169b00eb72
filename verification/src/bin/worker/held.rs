//! What a process holds: memory, descriptors, threads.

use anyhow::Context;
use verification::report::Event;

/// What this process holds now.
pub(super) fn held(after: String) -> anyhow::Result<Event> {
    let status = std::fs::read_to_string("/proc/self/status").context("cannot read /proc/self/status")?;
    let field = |name: &str| -> anyhow::Result<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).context(format!("no {name}"))?;
        Ok(line.trim().trim_end_matches(" kB").parse()?)
    };
    // Reading the directory opens it: one less.
    let descriptors = std::fs::read_dir("/proc/self/fd").context("no /proc/self/fd")?.count() as u64 - 1;
    let maps = std::fs::read("/proc/self/maps").context("cannot read /proc/self/maps")?;
    Ok(Event::Held {
        after,
        resident_kb: field("VmRSS:")?,
        shared_kb: field("RssShmem:")?,
        descriptors,
        threads: field("Threads:")?,
        mappings: maps.iter().filter(|byte| **byte == b'\n').count() as u64,
    })
}
