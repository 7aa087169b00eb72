//! What `ringccl perf` and a communicator say when they cannot work: one line, the remedy, nothing left.

mod common;

use common::{ringccl, worker};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use std::path::Path;
use std::process::Command;
use verification::testkit::{Finished, Job, Meet, ShmDir, run, started_by};

fn perf(shm: &Path, args: &[&str]) -> Finished {
    let mut command = Command::new(ringccl());
    command.arg("perf").args(args).env("RINGCCL_SHM_DIR", shm);
    run(command)
}

/// No process of a job in this directory runs any more.
fn assert_nobody(shm: &Path) {
    assert_eq!(started_by("RINGCCL_SHM_DIR", &shm.display().to_string()), Vec::<i32>::new());
}

/// Arguments that make no sense: exit code not 0, exactly one line that says what would be right.
#[test]
fn perf_refuses_bad_arguments() {
    let shm = ShmDir::new();
    let cases: [(&[&str], &str); 8] = [
        (&["all_gatherings"], "use one of all_reduce"),
        (&["all_reduce", "-b", "0", "-e", "0"], "-b 0"),
        (&["all_reduce", "-n", "0"], "-n 0"),
        (&["all_reduce", "-n", "100000"], "-n 100000"),
        (&["all_reduce", "-n", "-1"], "-n -1"),
        (&["all_reduce", "-b", "1M", "-e", "8"], "is above -e"),
        (&["all_reduce", "-d", "float99"], "-d float99"),
        (&["all_reduce", "-n", "2", "-b", "1G", "-e", "8192G"], "bytes"),
    ];
    for (args, expected) in cases {
        let finished = perf(shm.path(), args);
        assert!(finished.code.is_some_and(|code| code != 0), "{args:?}: {finished:?}");
        assert_eq!(finished.stderr.lines().count(), 1, "{args:?}: {finished:?}");
        assert!(finished.stderr.contains(expected), "{args:?}: {finished:?}");
        assert_eq!(finished.stdout, "", "{args:?}");
        shm.assert_empty();
        assert_nobody(shm.path());
    }
}

/// Ranks that go by different tables of what is the fastest learn it when they meet, instead of waiting for messages
/// that nobody sends.
#[test]
fn different_tables_do_not_meet() {
    let shm = ShmDir::new();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tuning.yaml");
    let mut row = ringccl::Tuning::shipped().row(2).clone();
    row.zero_copy += 1;
    let table = ringccl::Tuning { machine: "another".into(), rows: vec![row] };
    std::fs::write(&path, table.text().unwrap()).unwrap();
    let job = Job::new(worker(), Meet::launcher(), 2, &["check"], &shm);
    let ended = job.with_rank(1, "RINGCCL_TUNING", path.display()).start_all().finish_all();
    let texts: Vec<&str> = ended.iter().map(|ended| ended.failure().1).collect();
    assert!(texts.iter().any(|text| text.contains("matching builds and settings on all ranks")), "{texts:?}");
    shm.assert_empty();
}

/// A small tmpfs, unmounted when dropped.
struct Tmpfs(ShmDir);

impl Tmpfs {
    /// `None` where this user may not mount.
    fn mount(options: &str) -> Option<Self> {
        let dir = ShmDir::new();
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        mount(Some("tmpfs"), dir.path(), Some("tmpfs"), flags, Some(options)).ok()?;
        Some(Self(dir))
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = umount2(self.0.path(), MntFlags::MNT_DETACH);
    }
}

/// No room for the rings: an error with the remedy, no SIGBUS, nothing left; enough room for few ranks works.
#[test]
fn a_full_tmpfs_is_an_error() {
    let Some(tmpfs) = Tmpfs::mount("size=16m") else {
        println!("SKIPPED: mounting a tmpfs is refused");
        return;
    };
    let dir = tmpfs.0.path();
    let finished = perf(dir, &["all_gather", "-n", "8", "-b", "64M", "-e", "64M", "-w", "1", "--iters", "1"]);
    println!("{}", finished.stderr);
    assert_eq!(finished.code, Some(1), "{finished:?}");
    let named = finished.stderr.lines().filter(|line| line.contains("no room in ")).collect::<Vec<_>>();
    assert_eq!(finished.stderr.lines().count(), 1, "{finished:?}");
    assert!(
        named.iter().all(|line| line.contains("remount,size=") && line.contains("are free")),
        "{named:?}"
    );
    assert!(named.iter().all(|line| line.matches("no room in ").count() == 1), "said twice: {named:?}");
    assert!(!finished.stderr.contains("SIGBUS") && !finished.stderr.contains("panicked"), "{finished:?}");
    tmpfs.0.assert_empty();
    assert_nobody(dir);
    let finished = perf(dir, &["all_reduce", "-n", "2", "-b", "8", "-e", "64K", "--iters", "1"]);
    assert_eq!(finished.code, Some(0), "{finished:?}");
}

/// Not even room for the header: the same, from the creator, before anybody waits for long.
#[test]
fn a_tmpfs_without_a_page_is_an_error() {
    let Some(tmpfs) = Tmpfs::mount("size=4k") else {
        println!("SKIPPED: mounting a tmpfs is refused");
        return;
    };
    let job = Job::new(worker(), Meet::launcher(), 2, &["check"], &tmpfs.0);
    let job = job.with("RINGCCL_JOIN_TIMEOUT_MS", 1500).start_all();
    for (rank, ended) in job.finish_all().iter().enumerate() {
        let error = ended.failure().1;
        let expected = if rank == 0 { "no room in " } else { "rank 0 (process " };
        assert!(error.contains(expected) && !error.contains('\n'), "{error}");
        assert_eq!(ended.code, Some(1));
    }
    tmpfs.0.assert_empty();
}

/// A directory that this user may not write: who, where and what to do, in one line.
#[test]
fn a_directory_without_permission_is_an_error() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    let shm = ShmDir::new();
    std::fs::set_permissions(shm.path(), std::fs::Permissions::from_mode(0o555)).unwrap();
    let mut job = Job::new(worker(), Meet::launcher(), 1, &["check"], &shm);
    let mut command = job.command(0);
    if nix::unistd::geteuid().is_root() {
        // Permissions do not bind root. The program may lie where only root can reach it.
        let copy = shm.path().with_extension("worker");
        std::fs::copy(worker(), &copy).unwrap();
        std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o755)).unwrap();
        let mut other = Command::new(&copy);
        other.args(command.get_args()).env_clear();
        other.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        other.stdin(std::process::Stdio::null()).uid(65534).gid(65534);
        command = other;
    }
    let ended = job.spawn(command).finish();
    let _ = std::fs::remove_file(shm.path().with_extension("worker"));
    let error = ended.failure().1;
    assert!(error.contains("cannot create segment") && error.contains("mode 1777"), "{error}");
    assert!(!error.contains('\n') && ended.code == Some(1), "{ended:?}");
    job.ranks.clear();
    std::fs::set_permissions(shm.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    shm.assert_empty();
}
