//! What this process may use of the machine.

use super::probe;
use nix::sched::{CpuSet, sched_getaffinity};
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::statfs::{TMPFS_MAGIC, statfs};
use nix::unistd::{AccessFlags, Pid, access};
use serde::Serialize;
use shmring::wait::usable_cores;
use std::fs;
use std::path::{Path, PathBuf};

/// The machine as this process sees it; what the system does not tell is `None`.
#[derive(Debug, Serialize)]
pub(crate) struct Machine {
    pub(crate) kernel: String,
    pub(crate) cores: Cores,
    pub(crate) shm: Shm,
    pub(crate) memory_available: Option<u64>,
    /// The control group's limit, in bytes.
    pub(crate) memory_limit: Option<u64>,
    /// Soft and hard limit of locked memory, in bytes; `u64::MAX` for none.
    pub(crate) locked_memory: Option<(u64, u64)>,
    /// Soft and hard limit of open files.
    pub(crate) open_files: Option<(u64, u64)>,
    pub(crate) io_uring: String,
    pub(crate) pidfd: String,
    /// Whether the kernel grants short time slices to ranks that share cores.
    pub(crate) short_slices: bool,
    /// Whether shared memory gets huge pages: the kernel's word for it.
    pub(crate) huge_pages: String,
}

/// Processor cores.
#[derive(Debug, Serialize)]
pub(crate) struct Cores {
    /// What ranks count with.
    pub(crate) usable: usize,
    /// Of the machine.
    pub(crate) online: Option<usize>,
    /// That this process may run on.
    pub(crate) affinity: Option<usize>,
    /// The control group's quota, in cores.
    pub(crate) quota: Option<f64>,
}

/// The directory of segments.
#[derive(Debug, Serialize)]
pub(crate) struct Shm {
    pub(crate) dir: PathBuf,
    /// Why it cannot be used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) problem: Option<String>,
    pub(crate) tmpfs: bool,
    pub(crate) size: u64,
    pub(crate) free: u64,
}

impl Machine {
    /// Looks at the machine; `shm_dir` is where segments are made.
    pub(super) fn look(shm_dir: &Path) -> Self {
        let limit = |resource| getrlimit(resource).ok();
        Self {
            kernel: first_line("/proc/sys/kernel/osrelease").unwrap_or_else(|| "unknown".into()),
            cores: Cores::look(),
            shm: Shm::look(shm_dir),
            memory_available: memory_available(),
            memory_limit: memory_limit(),
            locked_memory: limit(Resource::RLIMIT_MEMLOCK),
            open_files: limit(Resource::RLIMIT_NOFILE),
            io_uring: io_uring(),
            pidfd: probe::pidfd().map_or_else(|cause| format!("missing: {cause}"), |()| "works".into()),
            short_slices: ringccl::sched::grants_short_slices(),
            huge_pages: huge_pages(),
        }
    }
}

impl Cores {
    fn look() -> Self {
        let allowed = sched_getaffinity(Pid::from_raw(0)).ok();
        let count = |set: CpuSet| (0..CpuSet::count()).filter(|c| set.is_set(*c).unwrap_or(false)).count();
        Self {
            usable: usable_cores(),
            online: first_line("/sys/devices/system/cpu/online").and_then(|list| listed(&list)),
            affinity: allowed.map(count),
            quota: quota(),
        }
    }
}

impl Shm {
    fn look(dir: &Path) -> Self {
        let mut shm = Self { dir: dir.into(), problem: None, tmpfs: false, size: 0, free: 0 };
        match statfs(dir) {
            Ok(fs) => {
                let block = fs.block_size().unsigned_abs();
                shm.tmpfs = fs.filesystem_type() == TMPFS_MAGIC;
                shm.size = fs.blocks() * block;
                shm.free = fs.blocks_available() * block;
            }
            Err(errno) => shm.problem = Some(errno.desc().into()),
        }
        if shm.problem.is_none() && !dir.is_dir() {
            shm.problem = Some("it is not a directory".into());
        }
        if shm.problem.is_none() && access(dir, AccessFlags::W_OK | AccessFlags::X_OK).is_err() {
            shm.problem = Some("this user may not make files in it".into());
        }
        shm
    }
}

fn first_line(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.lines().next()?.trim().to_owned())
}

/// How many numbers a list as `0-3,5` names.
fn listed(list: &str) -> Option<usize> {
    let ranges = list.split(',').map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        (last.parse::<usize>().ok()? + 1).checked_sub(first.parse().ok()?)
    });
    ranges.sum()
}

/// Files named `name` of this process's control group and of those around it, read.
fn of_groups(controller: &str, name: &str) -> Vec<String> {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let mut found = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        let root = match controllers {
            "" => PathBuf::from("/sys/fs/cgroup"),
            named if named.split(',').any(|one| one == controller) => {
                Path::new("/sys/fs/cgroup").join(controller)
            }
            _ => continue,
        };
        let group = root.join(path.trim_start_matches('/'));
        // In a container the path may be that of the host: its root is what counts then.
        let around = group.ancestors().take_while(|folder| folder.starts_with(&root));
        found.extend(around.filter_map(|folder| fs::read_to_string(folder.join(name)).ok()));
    }
    found
}

/// The least quota of processor time, in cores.
fn quota() -> Option<f64> {
    let v2 = of_groups("cpu", "cpu.max");
    let quotas = v2.iter().filter_map(|text| {
        let (quota, period) = text.trim().split_once(' ')?;
        Some(quota.parse::<f64>().ok()? / period.parse::<f64>().ok().filter(|period| *period > 0.0)?)
    });
    let v1 = of_groups("cpu", "cpu.cfs_quota_us").into_iter().zip(of_groups("cpu", "cpu.cfs_period_us"));
    let old = v1.filter_map(|(quota, period)| {
        let quota = quota.trim().parse::<f64>().ok().filter(|quota| *quota > 0.0)?;
        Some(quota / period.trim().parse::<f64>().ok().filter(|period| *period > 0.0)?)
    });
    quotas.chain(old).min_by(f64::total_cmp)
}

fn memory_limit() -> Option<u64> {
    let texts =
        of_groups("memory", "memory.max").into_iter().chain(of_groups("memory", "memory.limit_in_bytes"));
    // The old interface writes "no limit" as a number near 2^63.
    texts.filter_map(|text| text.trim().parse().ok()).filter(|limit| *limit < 1 << 60).min()
}

fn memory_available() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()? << 10)
}

fn io_uring() -> String {
    let disabled = first_line("/proc/sys/kernel/io_uring_disabled").filter(|text| text != "0");
    match probe::io_uring() {
        Ok(()) => "works".into(),
        Err(cause) => match (cause.raw_os_error(), disabled) {
            (Some(libc::ENOSYS), _) => "absent: this kernel has none".into(),
            (Some(libc::EPERM), Some(value)) => format!("forbidden: kernel.io_uring_disabled is {value}"),
            (Some(libc::EPERM), None) => "forbidden: by a seccomp filter, as containers have".into(),
            _ => format!("refused: {cause}"),
        },
    }
}

/// The word in brackets of the kernel's list.
fn huge_pages() -> String {
    let list = first_line("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
    let chosen = list.as_ref().and_then(|list| Some(list.split_once('[')?.1.split_once(']')?.0.to_owned()));
    chosen.unwrap_or_else(|| "absent".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lists of cores are counted, and what is no list is not.
    #[test]
    fn cores_are_counted() {
        for (list, count) in
            [("0", Some(1)), ("0-1", Some(2)), ("0-3,5,8-9", Some(7)), ("", None), ("3-1", None)]
        {
            assert_eq!(listed(list), count, "{list}");
        }
    }

    /// A directory that is none, or that does not exist, is a problem in words; a real one has sizes.
    #[test]
    fn directories_are_judged() {
        assert!(Shm::look(Path::new("/nowhere/at/all")).problem.is_some());
        let file = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(Shm::look(file.path()).problem.as_deref(), Some("it is not a directory"));
        let dir = tempfile::tempdir().unwrap();
        let shm = Shm::look(dir.path());
        assert!(shm.problem.is_none() && shm.size >= shm.free && shm.size > 0, "{shm:?}");
    }
}
