//! The report for people.

use super::Report;
use super::findings::Level;
use super::used::Range;
use std::fmt::Write;

/// The whole report.
pub(super) fn render(report: &Report) -> String {
    let mut text = String::from("settings\n");
    settings(&mut text, report);
    text.push_str("\nmachine\n");
    machine(&mut text, report);
    let _ = writeln!(text, "\nused by {} ranks", report.ranks);
    used(&mut text, report);
    text.push_str("\nfindings\n");
    if report.findings.is_empty() {
        text.push_str("  nothing to fix\n");
    }
    for finding in &report.findings {
        let level = match finding.level {
            Level::Error => "error",
            Level::Warning => "warning",
            Level::Note => "note",
        };
        let remedy = if finding.remedy.is_empty() { String::new() } else { format!(": {}", finding.remedy) };
        let _ = writeln!(text, "  {level:<8} {}{remedy}", finding.what);
    }
    text
}

fn settings(text: &mut String, report: &Report) {
    let value = |line: &super::Line| format!("{} {}", line.value, line.unit).trim_end().to_owned();
    let width =
        |of: &dyn Fn(&super::Line) -> usize| report.settings.iter().map(of).max().unwrap_or(0).min(48);
    let (names, values) = (width(&|line| line.name.len()), width(&|line| value(line).len()));
    for line in &report.settings {
        let note = line.note.as_ref().map(|note| format!(" ({note})")).unwrap_or_default();
        let _ = writeln!(text, "  {:<names$}  {:<values$}  {}{note}", line.name, value(line), line.origin);
    }
}

/// A number of bytes as people say it: exact where a unit divides it, else in a unit that leaves two digits at least.
fn bytes(count: u64) -> String {
    if count == u64::MAX {
        return "unlimited".into();
    }
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    let fits = |shift: i32| count >= 10 << shift || (count >= 1 << shift && count.is_multiple_of(1 << shift));
    match units.into_iter().find(|(shift, _)| fits(*shift)) {
        Some((shift, unit)) => format!("{} {unit}", count >> shift),
        None => format!("{count} B"),
    }
}

fn machine(text: &mut String, report: &Report) {
    let machine = &report.machine;
    let mut row = |name: &str, value: String| {
        let _ = writeln!(text, "  {name:<16} {value}");
    };
    let known = |number: Option<usize>| number.map_or("unknown".into(), |number| number.to_string());
    let limit = |limit: Option<(u64, u64)>, show: fn(u64) -> String| {
        limit.map_or("unknown".into(), |(soft, hard)| format!("{} (at most {})", show(soft), show(hard)))
    };
    let count = |count: u64| if count == u64::MAX { "unlimited".into() } else { count.to_string() };
    let optional = |number: Option<u64>, none: &str| number.map_or(none.into(), bytes);
    row("kernel", machine.kernel.clone());
    let cores = &machine.cores;
    let quota = cores.quota.map_or("none".into(), |quota| format!("{quota:.2}"));
    let (affinity, online) = (known(cores.affinity), known(cores.online));
    row("cores", format!("{} usable (allowed {affinity}, online {online}, quota {quota})", cores.usable));
    let shm = &machine.shm;
    let state = match &shm.problem {
        Some(problem) => problem.clone(),
        None => format!("{} of {} free", bytes(shm.free), bytes(shm.size)),
    };
    row("shared memory", format!("{}: {state}", shm.dir.display()));
    let (available, limited) =
        (optional(machine.memory_available, "unknown"), optional(machine.memory_limit, "no"));
    row("memory", format!("{available} available, {limited} limit"));
    row("locked memory", limit(machine.locked_memory, bytes));
    row("open files", limit(machine.open_files, count));
    row("io_uring", machine.io_uring.clone());
    row("pidfd", machine.pidfd.clone());
    let slices = if machine.short_slices { "granted" } else { "not granted: Linux 6.12 and later do" };
    row("short slices", slices.into());
    row("huge pages", format!("{} for shared memory", machine.huge_pages));
}

fn used(text: &mut String, report: &Report) {
    let Some(used) = &report.used else {
        text.push_str("  nothing: the settings are impossible\n");
        return;
    };
    let mut row = |name: &str, value: String| {
        let _ = writeln!(text, "  {name:<16} {value}");
    };
    row("transport", used.transport.into());
    for range in &used.all_reduce {
        let Range { up_to, algorithm, protocol, channels, chunk_bytes } = range;
        let size = up_to.map_or("any larger size".into(), |up_to| format!("up to {}", bytes(up_to as u64)));
        let chunk = bytes(*chunk_bytes as u64);
        row(
            "all-reduce",
            format!("{size}: {algorithm}, {protocol}, messages up to {chunk}, {channels} channel(s)"),
        );
    }
    if used.all_reduce.is_empty() {
        row("all-reduce", "a copy, with one rank".into());
    }
    row("staging", format!("at most {} per rank", bytes(used.staging_bytes_per_rank)));
    row("segment", format!("{} for all ranks", bytes(used.segment_bytes)));
    row("waiting", used.waiting.into());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sizes are exact where they can be, and short otherwise.
    #[test]
    fn bytes_are_said() {
        for (count, said) in [
            (0, "0 B"),
            (480, "480 B"),
            (1024, "1 KiB"),
            (1025, "1025 B"),
            (1 << 20, "1 MiB"),
            ((1 << 20) + 1024, "1025 KiB"),
            (25 << 30, "25 GiB"),
            (u64::MAX, "unlimited"),
        ] {
            assert_eq!(bytes(count), said);
        }
    }
}
