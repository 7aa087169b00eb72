//! What is wrong or worth knowing, each with its remedy.

use super::machine::Machine;
use super::used::Used;
use ringccl::Config;
use ringccl::settings::{Resolved, Vars, beaten, coordinator, table, unknown};
use serde::Serialize;
use std::path::Path;
use topo::Cluster;

/// How bad a finding is, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    /// Keeps a job from running.
    Error,
    /// Is probably not what was meant, or costs time.
    Warning,
    /// Is good to know.
    Note,
}

/// Something found.
#[derive(Debug, Serialize)]
pub(crate) struct Finding {
    pub(crate) level: Level,
    pub(crate) what: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) remedy: String,
}

impl Finding {
    pub(super) fn new(level: Level, what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { level, what: what.into(), remedy: remedy.into() }
    }
}

/// Bad values, all of them; unknown names; values used otherwise than they say.
pub(super) fn of_settings(vars: &Vars, resolved: &Resolved) -> Vec<Finding> {
    let mut bad: Vec<String> = resolved.problems.iter().map(ToString::to_string).collect();
    let others = table::ALL.iter().filter_map(|setting| setting.look(vars).err());
    let mut told: Vec<String> =
        others.chain(coordinator(vars).err()).map(|error| error.to_string()).collect();
    told.dedup();
    told.retain(|text| !bad.contains(text));
    bad.extend(told);
    // The messages carry their remedies.
    let mut findings: Vec<Finding> =
        bad.into_iter().map(|text| Finding::new(Level::Error, text, "")).collect();
    findings.extend(unknown(vars).into_iter().map(|line| {
        let (what, remedy) = line.split_once(": ").unwrap_or((&line, ""));
        Finding::new(Level::Warning, what, remedy)
    }));
    findings.extend(beaten(vars).into_iter().map(|line| Finding::new(Level::Warning, line, "unset it")));
    findings.extend(resolved.notes.iter().map(|note| Finding::new(Level::Note, note, "")));
    findings
}

/// The cluster file that the variables name.
pub(super) fn cluster(vars: &Vars) -> Option<Result<Cluster, topo::ConfigError>> {
    // A bad value has its finding already.
    table::CLUSTER_CONFIG.get(vars).ok().flatten().map(Cluster::load)
}

/// Files that are to be read or written.
pub(super) fn of_files(
    config: &Config,
    vars: &Vars,
    cluster: Option<Result<Cluster, topo::ConfigError>>,
    asked: Option<u32>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let trace = table::TRACE.get(vars).ok().flatten();
    for (what, path) in [("report", &config.report), ("trace", &trace)] {
        let Some(path) = path else { continue };
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if !parent.is_dir() {
            let (path, parent) = (path.display(), parent.display());
            let what = format!("the {what} `{path}` cannot be written: `{parent}` is not a directory");
            findings.push(Finding::new(
                Level::Error,
                what,
                format!("make it (mkdir -p {parent}), or name another"),
            ));
        }
    }
    match cluster {
        Some(Err(error)) => findings.push(Finding::new(Level::Error, error.to_string(), "correct the file")),
        Some(Ok(file)) if asked.is_some_and(|ranks| ranks != file.world_size()) => {
            let what =
                format!("`{}` has {} ranks, -n is another number", file.path().display(), file.world_size());
            findings.push(Finding::new(
                Level::Error,
                what,
                "leave -n out, or use a file for that many ranks",
            ));
        }
        _ => {}
    }
    findings
}

/// What the machine lacks for a job of `ranks`.
pub(super) fn of_machine(machine: &Machine, used: Option<&Used>, ranks: u32) -> Vec<Finding> {
    let mut findings = shared_memory(machine, used, ranks);
    let mut add = |level, what: String, remedy: &str| findings.push(Finding::new(level, what, remedy));
    let cores = &machine.cores;
    if ranks as usize > cores.usable {
        let what =
            format!("{ranks} ranks share {} usable cores, so they yield instead of spinning", cores.usable);
        let remedy = if cores.affinity.zip(cores.online).is_some_and(|(ours, all)| ours < all) {
            "small operations are slower than with a core for each; the machine has more (taskset, cpuset)"
        } else if cores.quota.is_some() {
            "small operations are slower than with a core for each; the control group's quota bounds them (docker --cpus)"
        } else {
            "small operations are slower than with a core for each"
        };
        add(Level::Note, what, remedy);
    }
    // A process descriptor of each peer, and what a process has open anyway.
    let needed = u64::from(ranks) + 32;
    if let Some((soft, hard)) = machine.open_files.filter(|(soft, _)| *soft < needed) {
        let remedy = if hard >= needed {
            format!("ulimit -n {needed}")
        } else {
            "raise the hard limit (limits.conf, docker --ulimit nofile)".into()
        };
        add(Level::Warning, format!("a rank needs about {needed} open files, the limit is {soft}"), &remedy);
    }
    if machine.pidfd != "works" {
        let what = format!("process descriptors are {}: deaths are seen by the process table", machine.pidfd);
        add(Level::Note, what, "use Linux 5.3 or later, and a seccomp filter that knows pidfd_open");
    }
    if machine.io_uring != "works" {
        add(
            Level::Note,
            format!("io_uring is {}", machine.io_uring),
            "nothing to do: the transport of this version, shm, does not use it",
        );
    }
    findings
}

fn shared_memory(machine: &Machine, used: Option<&Used>, ranks: u32) -> Vec<Finding> {
    let shm = &machine.shm;
    let dir = shm.dir.display();
    if let Some(problem) = &shm.problem {
        let what = format!("no segment can be made in `{dir}`: {problem}");
        return vec![Finding::new(
            Level::Error,
            what,
            "set RINGCCL_SHM_DIR to a directory on a tmpfs, as /dev/shm",
        )];
    }
    let mut findings = Vec::new();
    if !shm.tmpfs {
        let what = format!("`{dir}` is not a tmpfs: shared pages may be written to a disk");
        findings.push(Finding::new(
            Level::Warning,
            what,
            "set RINGCCL_SHM_DIR to a directory on a tmpfs, as /dev/shm",
        ));
    }
    let Some(used) = used else { return findings };
    let needed = used.segment_bytes;
    if needed > shm.free {
        let what = format!("{ranks} ranks need {needed} bytes in `{dir}`, {} are free", shm.free);
        let bound = (shm.free / u64::from(ranks)) >> 12 << 12;
        let remedy = format!(
            "enlarge it (mount -o remount,size=1G {dir}; docker run --shm-size=1g), or set RINGCCL_STAGING_MAX_BYTES={bound}"
        );
        findings.push(Finding::new(Level::Error, what, remedy));
    }
    let room = [machine.memory_available, machine.memory_limit].into_iter().flatten().min();
    if let Some(room) = room.filter(|room| needed > *room) {
        let what = format!("{ranks} ranks need {needed} bytes of shared memory, this process may use {room}");
        findings.push(Finding::new(
            Level::Error,
            what,
            "raise the limit (docker --memory), or use a smaller RINGCCL_CHUNK_BYTES",
        ));
    }
    findings
}
