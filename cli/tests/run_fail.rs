//! `ringccl run`: ranks that fail, and jobs that cannot start.

mod common;

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Output;
use std::time::Instant;

use common::{assert_gone, output, pids, ringccl, run, text};

/// The only line of stderr of a job that could not start.
fn refusal(output: &Output) -> String {
    let error = text(&output.stderr);
    assert!(!output.status.success(), "{error}");
    assert_eq!((text(&output.stdout).as_str(), error.lines().count()), ("", 1), "{error}");
    error
}

#[test]
fn one_failing_rank_ends_all_with_its_code_and_last_lines() {
    // Rank 2 fails; the others, which would sleep for an hour, are gone; its last ten lines are shown.
    let dir = tempfile::tempdir().unwrap();
    let script = format!(
        "echo $$ > {0}/$RANK.tmp; mv {0}/$RANK.tmp {0}/$RANK.pid; \
         if [ $RANK = 2 ]; then \
           while [ ! -e {0}/0.pid -o ! -e {0}/1.pid -o ! -e {0}/3.pid ]; do sleep 0.01; done; \
           i=0; while [ $i -lt 15 ]; do echo line $i; i=$((i+1)); done; echo why >&2; exit 7; \
         fi; \
         sleep 3600",
        dir.path().display()
    );
    let started = Instant::now();
    let output = output(run(&["-n", "4", "--grace", "0.4"], &script));
    assert_eq!(output.status.code(), Some(7));
    assert_gone(&pids(dir.path(), 4));
    assert!(started.elapsed().as_secs() < 20);
    let error = text(&output.stderr);
    let summary = error.lines().find(|line| line.starts_with("ringccl: ")).unwrap();
    assert!(
        summary.contains("rank 2 (pid ") && summary.contains("node node0) failed first: exit code 7"),
        "{error}"
    );
    let tail: Vec<&str> = error.lines().filter(|line| line.starts_with("    ")).collect();
    assert_eq!(tail.len(), 10, "{error}");
    assert!(
        tail.contains(&"    why") && tail.contains(&"    line 14") && !tail.contains(&"    line 4"),
        "{error}"
    );
}

#[test]
fn a_killed_rank_is_128_plus_the_signal() {
    // As a shell reports it.
    let output = output(run(&["-n", "2", "--grace", "0.2"], "[ $RANK = 1 ] && kill -9 $$; sleep 3600"));
    assert_eq!(output.status.code(), Some(137));
    assert!(text(&output.stderr).contains("rank 1 (pid "), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("killed by SIGKILL; it printed nothing"));
}

#[test]
fn survivors_may_say_what_the_failure_means_for_them() {
    // A rank that ends by itself shortly after the failure is not killed; its words are shown.
    let script = "if [ $RANK = 0 ]; then exit 3; fi; sleep 0.1; echo rank 0 is gone >&2; exit 1";
    let output = output(run(&["-n", "2"], script));
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stderr).contains("[1] rank 0 is gone"), "{}", text(&output.stderr));
}

#[test]
fn ranks_that_ignore_sigterm_are_killed_after_the_grace() {
    // Half of the grace, SIGTERM, the other half, SIGKILL.
    let dir = tempfile::tempdir().unwrap();
    let script = format!(
        "trap 'echo asked' TERM; echo $$ > {0}/$RANK.tmp; mv {0}/$RANK.tmp {0}/$RANK.pid; \
         [ $RANK = 0 ] && while [ ! -e {0}/1.pid ]; do sleep 0.01; done && exit 1; \
         while :; do sleep 0.05; done",
        dir.path().display()
    );
    let output = output(run(&["-n", "2", "--grace", "0.6"], &script));
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("[1] asked"), "{}", text(&output.stdout));
    assert_gone(&pids(dir.path(), 2));
}

#[test]
fn success_is_silent_and_early_ends_are_no_failure() {
    // A rank may end with 0 long before the others.
    let output = output(run(&["-n", "3"], "[ $RANK = 1 ] && sleep 0.2; exit 0"));
    assert!(output.status.success() && output.stderr.is_empty() && output.stdout.is_empty());
}

#[test]
fn commands_that_cannot_run_are_one_line_with_the_remedy() {
    // Unknown, missing, not executable, a directory, not a program: the codes are a shell's.
    let dir = tempfile::tempdir().unwrap();
    let plain = dir.path().join("plain");
    fs::write(&plain, "data").unwrap();
    let missing = dir.path().join("missing");
    let cases = [
        ("no-such-command-here", 127, "PATH"),
        (missing.to_str().unwrap(), 127, "no such file"),
        (plain.to_str().unwrap(), 126, "chmod +x"),
        (dir.path().to_str().unwrap(), 126, "permission denied"),
    ];
    for (program, code, words) in cases {
        let mut command = ringccl();
        command.args(["run", "-n", "64", "--", program]);
        let output = output(command);
        assert_eq!(output.status.code(), Some(code), "{program}");
        let error = refusal(&output);
        assert!(error.contains(program) && error.contains(words), "{error}");
    }
}

#[test]
fn numbers_of_ranks_are_refused_with_the_range() {
    // Nothing starts for 0, too many, negative, no number, or none at all.
    for n in ["0", "4097", "100000", "-3", "many"] {
        let error = refusal(&output(run(&["-n", n], "echo never")));
        assert!(error.contains(n) && error.contains("1 to 4096"), "{error}");
    }
    assert!(refusal(&output(run(&[], "echo never"))).contains("-n N"));
}

#[test]
fn a_bad_cluster_file_is_named() {
    // The file's own problems are shown; a missing one is one line.
    let error = refusal(&output(run(&["--cluster", "/no/such.yaml"], "echo never")));
    assert!(error.contains("/no/such.yaml"), "{error}");
}

#[test]
fn too_few_descriptors_are_an_error_before_anything_starts() {
    // The hard limit is below what 64 ranks need; a soft limit alone is raised, and given back to ranks.
    let mut command = std::process::Command::new("/bin/sh");
    let binary = env!("CARGO_BIN_EXE_ringccl");
    command.args(["-c", &format!("ulimit -n 100; {binary} run -n 64 -- true")]);
    let error = refusal(&output(command));
    assert!(error.contains("64 ranks need 192 descriptors, the hard limit is 100"), "{error}");
    let mut command = std::process::Command::new("/bin/sh");
    command.args(["-c", &format!("ulimit -Sn 100; {binary} run -n 64 --no-prefix -- sh -c 'ulimit -n'")]);
    let output = output(command);
    assert_eq!(text(&output.stdout), "100\n".repeat(64), "{}", text(&output.stderr));
}

#[test]
fn the_hidden_subcommand_refuses_people() {
    // A keeper without a launcher says so and touches nothing.
    for fd in ["0", "77"] {
        let mut command = ringccl();
        command.args(["__keeper", "--control", fd, "--", "true"]);
        refusal(&output(command));
    }
    let mut renamed = ringccl();
    renamed.arg0("x").args(["run", "-n", "1", "--", "true"]);
    assert!(output(renamed).status.success());
}
