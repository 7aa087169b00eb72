//! `ringccl coordinator` as a process: it starts, answers, ends, and leaves no socket.

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use common::{DEADLINE, output, ringccl, text, wait_for};
use coordinator_lite::{Deadlines, Endpoint, Hello, Key, Member, Notice, Secret, Session};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const SECRET: &str = "abababababababababababababababababababababababababababababababab";

/// A daemon that is killed if the test gives up on it.
struct Daemon {
    child: Child,
    out: BufReader<ChildStdout>,
    /// What it printed up to the line that says it is ready.
    lines: Vec<String>,
}

fn clean() -> Command {
    let mut command = ringccl();
    for name in ["RINGCCL_SECRET", "FAKEGPU_COORDINATOR_ADDR", "FAKEGPU_COORDINATOR_TRANSPORT"] {
        command.env_remove(name);
    }
    command.arg("coordinator");
    command
}

impl Daemon {
    fn start(arguments: &[&str], env: &[(&str, &str)]) -> Self {
        let mut command = clean();
        command.args(arguments).envs(env.iter().copied()).stdout(Stdio::piped()).stderr(Stdio::null());
        let started = Instant::now();
        let mut child = command.spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut lines: Vec<String> = Vec::new();
        while !lines.last().is_some_and(|line| line.starts_with("listening on ")) {
            let mut line = String::new();
            assert!(out.read_line(&mut line).unwrap() > 0, "it ended after {lines:?}");
            lines.push(line.trim_end().to_owned());
        }
        assert!(started.elapsed() < DEADLINE);
        println!("ready after {:?}", started.elapsed());
        Self { child, out, lines }
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
    }

    /// Its exit code, within the deadline.
    fn wait(&mut self) -> Option<i32> {
        let mut status = None;
        wait_for("the daemon to end", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        let mut rest = String::new();
        self.out.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "", "nothing is printed after the ready line");
        status.unwrap().code()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn unix(path: &Path) -> String {
    format!("unix:{}", path.display())
}

/// Joins as rank `rank` of 2 or 1.
fn join(endpoint: &str, key: impl Into<Key>, rank: u32, nranks: u32) -> Session {
    let endpoint: Endpoint = endpoint.parse().unwrap();
    let hello = Hello { group: "world".into(), rank, nranks, member: Member::current("n0", rank).unwrap() };
    let deadlines = Deadlines { connect: DEADLINE, join: DEADLINE };
    Session::join(&endpoint, key, hello, deadlines).unwrap().0
}

/// Runs a question to its end: exit code, stdout, stderr.
fn ask(arguments: &[&str], env: &[(&str, &str)]) -> (Option<i32>, String, String) {
    let mut command = clean();
    command.args(arguments).envs(env.iter().copied());
    let output = output(command);
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// A question that fails with one line on stderr.
fn fails(arguments: &[&str], env: &[(&str, &str)], expected: &str) {
    let (code, out, err) = ask(arguments, env);
    assert_eq!((code, out.as_str()), (Some(1), ""), "{arguments:?}: {err}");
    assert!(err.contains(expected) && err.trim_end().lines().count() == 1, "{arguments:?}: {err}");
}

#[test]
fn a_daemon_answers_shows_its_members_and_ends_when_told() {
    // Start, ping, status with a live communicator, shutdown; the socket is private and gone at the end.
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    let listen = unix(&path);
    let mut daemon = Daemon::start(&["--listen", &listen], &[("RINGCCL_SECRET", SECRET)]);
    assert_eq!(daemon.lines, [format!("listening on {listen}")], "a secret that was given is not printed");
    let meta = fs::symlink_metadata(&path).unwrap();
    assert!(meta.file_type().is_socket() && meta.mode() & 0o777 == 0o600);

    let (code, out, _) = ask(&["ping", "--listen", &listen], &[]);
    assert_eq!((code, out.as_str()), (Some(0), "OK ringccl status=ready version=1 transport=unix\n"));

    let secret = Secret::from_hex(SECRET).unwrap();
    let member = join(&listen, secret, 0, 1);
    let (code, out, err) = ask(&["status", "--listen", &listen], &[]);
    assert_eq!(code, Some(0), "{err}");
    assert!(out.contains("communicator 1 `world`") && out.contains("1 ranks, 1 active"), "{out}");
    let (_, out, _) = ask(&["status", "--listen", &listen, "--json"], &[]);
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&json["communicators"][0]["nranks"], &json["unproved"]), (&1.into(), &1.into()));
    assert_eq!(json["pid"], daemon.child.id());

    let (code, out, err) = ask(&["shutdown", "--listen", &listen], &[]);
    assert_eq!((code, out), (Some(0), format!("{listen} is ending\n")), "{err}");
    assert_eq!(daemon.wait(), Some(0));
    assert!(!path.exists());
    wait_for("the news", || member.poll() == [Notice::CoordinatorGone]);
    fails(&["ping", "--listen", &listen], &[], &format!("no coordinator at {listen}: "));
}

#[test]
fn every_signal_that_asks_for_an_end_removes_the_socket() {
    // SIGTERM, SIGINT, SIGHUP and SIGQUIT: exit code 0, nothing left.
    let directory = tempfile::tempdir().unwrap();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT] {
        let path = directory.path().join("s");
        let mut daemon = Daemon::start(&["--listen", &unix(&path), "--trust-uid"], &[]);
        assert!(path.exists());
        daemon.signal(signal);
        assert_eq!(daemon.wait(), Some(0), "{signal}");
        assert!(!path.exists(), "{signal}");
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn a_killed_daemon_leaves_a_socket_that_the_next_one_replaces() {
    // And a second daemon on a live socket is refused in one line, without harm to the first.
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    let listen = unix(&path);
    let mut first = Daemon::start(&["--listen", &listen, "--trust-uid"], &[]);
    fails(&["--listen", &listen, "--trust-uid"], &[], "listens on");
    assert_eq!(ask(&["ping", "--listen", &listen], &[]).0, Some(0));
    first.signal(Signal::SIGKILL);
    assert_eq!(first.wait(), None);
    assert!(path.exists(), "nobody could remove it");
    let mut second = Daemon::start(&["--listen", &listen, "--trust-uid"], &[]);
    join(&listen, Key::SameUser, 0, 1).destroy();
    second.signal(Signal::SIGTERM);
    assert_eq!(second.wait(), Some(0));
    assert!(!path.exists());
}

#[test]
fn a_death_in_a_process_is_told_by_the_daemon() {
    // Rank 1 lives in a process of its own, a shell's child with the socket, and is killed.
    let directory = tempfile::tempdir().unwrap();
    let listen = unix(&directory.path().join("s"));
    let _daemon = Daemon::start(&["--listen", &listen, "--trust-uid"], &[]);
    let mut other = Command::new(std::env::current_exe().unwrap())
        .args(["rank_one_in_a_process_of_its_own", "--exact", "--ignored", "--nocapture"])
        .env("TEST_LISTEN", &listen)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let session = join(&listen, Key::SameUser, 0, 2);
    assert!(session.poll().is_empty());
    let started = Instant::now();
    other.kill().unwrap();
    let pid = other.id();
    let mut seen = Vec::new();
    wait_for("news of the death", || {
        seen = session.poll();
        !seen.is_empty()
    });
    println!("told of the death within {:?}", started.elapsed());
    assert_eq!(seen, [Notice::PeerGone { rank: 1, pid }]);
    other.wait().unwrap();
}

#[test]
#[ignore = "run by a_death_in_a_process_is_told_by_the_daemon"]
fn rank_one_in_a_process_of_its_own() {
    // Joins and waits to be killed; without its variable there is nothing to do.
    let Ok(listen) = std::env::var("TEST_LISTEN") else { return };
    let session = join(&listen, Key::SameUser, 1, 2);
    let started = Instant::now();
    while session.poll().is_empty() && started.elapsed() < DEADLINE {
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn tcp_needs_the_secret_for_all_but_ping() {
    // The made secret is printed with a unique id; --secret-file brings it to the questions.
    let directory = tempfile::tempdir().unwrap();
    let mut daemon = Daemon::start(&["--listen", "tcp:127.0.0.1:0"], &[]);
    let secret = daemon.lines[0].strip_prefix("secret ").unwrap().to_owned();
    let id: coordinator_lite::UniqueId = daemon.lines[1].strip_prefix("unique id ").unwrap().parse().unwrap();
    let listen = daemon.lines[2].strip_prefix("listening on ").unwrap().to_owned();
    assert_eq!((id.secret().to_hex(), format!("tcp:{}", id.addr())), (secret.clone(), listen.clone()));
    assert_eq!(ask(&["ping", "--listen", &listen], &[]).0, Some(0));
    fails(&["status", "--listen", &listen], &[], "needs proof of the job's secret");
    fails(&["shutdown", "--listen", &listen], &[], "needs proof of the job's secret");
    fails(&["shutdown", "--listen", &listen], &[("RINGCCL_SECRET", SECRET)], "wrong secret");
    let file = directory.path().join("secret");
    fs::write(&file, format!("{secret}\n")).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let file = file.to_str().unwrap();
    assert_eq!(ask(&["status", "--listen", &listen, "--secret-file", file], &[]).0, Some(0));
    assert_eq!(ask(&["shutdown", "--listen", &listen], &[("RINGCCL_SECRET", &secret)]).0, Some(0));
    assert_eq!(daemon.wait(), Some(0));
}

#[test]
fn fakegpu_starts_and_asks_it_in_its_own_words() {
    // Its flags, its variables, and its text lines by hand.
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    let address = path.to_str().unwrap();
    let mut daemon = Daemon::start(&["--transport", "unix", "--address", address, "--trust-uid"], &[]);
    assert_eq!(ask(&["ping"], &[("FAKEGPU_COORDINATOR_ADDR", address)]).0, Some(0));
    let mut stream = UnixStream::connect(&path).unwrap();
    stream.write_all(b"SHUTDOWN\n").unwrap();
    assert_eq!(read_line(stream), "OK ringccl status=stopping version=1 transport=unix\n");
    assert_eq!(daemon.wait(), Some(0));

    let env = [
        ("FAKEGPU_COORDINATOR_ADDR", "127.0.0.1:0"),
        ("FAKEGPU_COORDINATOR_TRANSPORT", "tcp"),
        ("RINGCCL_SECRET", SECRET),
    ];
    let mut daemon = Daemon::start(&[], &env);
    let listen = daemon.lines[0].strip_prefix("listening on tcp:").unwrap().to_owned();
    let say = |text: &str| {
        let mut stream = TcpStream::connect(&listen).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        read_line(stream)
    };
    assert_eq!(say("PING\n"), "OK ringccl status=ready version=1 transport=tcp\n");
    assert!(say("SHUTDOWN\n").starts_with("ERROR SHUTDOWN needs the secret"));
    assert!(say(&format!("SHUTDOWN {SECRET}\n")).starts_with("OK ringccl status=stopping"));
    assert_eq!(daemon.wait(), Some(0));
}

fn read_line(stream: impl Read) -> String {
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    line
}

#[test]
fn a_made_secret_can_go_to_a_file() {
    // Mode 0600, not printed, good for a member; a file that exists is not overwritten, and no socket is left.
    let directory = tempfile::tempdir().unwrap();
    let (path, file) = (directory.path().join("s"), directory.path().join("secret"));
    let arguments = ["--listen", &unix(&path), "--new-secret-file", file.to_str().unwrap()];
    let mut daemon = Daemon::start(&arguments, &[("RINGCCL_SECRET", SECRET)]);
    assert_eq!(daemon.lines.len(), 1);
    assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
    let secret = Secret::from_hex(fs::read_to_string(&file).unwrap().trim()).unwrap();
    assert_ne!(secret.to_hex(), SECRET);
    join(&unix(&path), secret, 0, 1).destroy();
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.wait(), Some(0));
    fails(&arguments, &[], "cannot write the secret file");
    assert!(!path.exists());
}

#[test]
fn bad_places_and_secrets_are_one_line_each() {
    // Each names what was given and what would be right.
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "abc").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let (file, socket) = (file.to_str().unwrap(), unix(&directory.path().join("s")));
    fails(&[], &[], "give --listen");
    fails(&["--listen", "udp:x"], &[], "an endpoint is");
    fails(&["--listen", "unix:relative"], &[], "must start with `/`");
    fails(&["--listen", "tcp:127.0.0.1:99999"], &[], "number from 0 to 65535");
    fails(&["--transport", "shm", "--address", "/x"], &[], "`unix` or `tcp`");
    fails(&["--listen", "unix:/nonexistent-directory/s"], &[], "directory that exists");
    fails(&["--listen", &format!("unix:{file}")], &[], "is not a socket");
    fails(&["--listen", "tcp:127.0.0.1:0", "--trust-uid"], &[], "needs a Unix socket");
    fails(&["--listen", &socket, "--secret-file", file], &[], "bad secret file");
    fails(&["--listen", &socket], &[("RINGCCL_SECRET", "12")], "64 hex digits");
    assert_eq!(fs::read(file).unwrap(), b"abc");
}

#[test]
fn a_directory_that_may_not_be_written_is_named() {
    // Checked as another user, since root may write everywhere; skipped where that user cannot be had.
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let listen = unix(&directory.path().join("s"));
    if !nix::unistd::geteuid().is_root() {
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o555)).unwrap();
        return fails(&["--listen", &listen, "--trust-uid"], &[], "may be written");
    }
    // The binary may lie where that user cannot look: a copy lies where it can.
    let copies = tempfile::tempdir().unwrap();
    fs::set_permissions(copies.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let binary = copies.path().join("ringccl");
    fs::copy(env!("CARGO_BIN_EXE_ringccl"), &binary).unwrap();
    let mut command = Command::new(&binary);
    command.args(["coordinator", "--listen", &listen, "--trust-uid"]).env_clear();
    std::os::unix::process::CommandExt::uid(&mut command, 65534);
    let output = output(command);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("may be written") && error.contains(&listen), "{error}");
}
