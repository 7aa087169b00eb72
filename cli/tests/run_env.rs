//! `ringccl run`: what ranks are told and what of their output is shown.

mod common;

use std::fs;
use std::process::Command;

use common::{output, run, sorted_lines, text};

#[test]
fn ranks_are_told_who_they_are() {
    // Every variable of every rank without a cluster file.
    let script = "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $GROUP_RANK $MASTER_ADDR \
                  $RINGCCL_NODE ${#RINGCCL_SECRET} ${RINGCCL_RENDEZVOUS%:*} $RINGCCL_JOIN_TIMEOUT_MS \
                  ${RINGCCL_CLUSTER_CONFIG-unset}";
    let output = output(run(&["-n", "2", "--timeout-start", "7.5"], script));
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(
        sorted_lines(&output),
        [
            "[0] 0 2 0 2 0 127.0.0.1 node0 64 127.0.0.1 7500 unset",
            "[1] 1 2 1 2 0 127.0.0.1 node0 64 127.0.0.1 7500 unset",
        ]
    );
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn every_job_has_a_name() {
    // A random one, the same on all ranks; the user's where there is one, unless the launcher is itself a rank.
    let names = |variables: &[(&str, &str)]| {
        let mut command = run(&["-n", "2", "--no-prefix"], "echo $RINGCCL_JOB");
        command.env_remove("RINGCCL_JOB").env_remove("RANK").envs(variables.iter().copied());
        let output = output(command);
        let lines = sorted_lines(&output);
        assert!(lines.len() == 2 && lines[0] == lines[1], "{lines:?} {}", text(&output.stderr));
        lines[0].clone()
    };
    let (first, second) = (names(&[]), names(&[]));
    assert!(first.starts_with("run-") && first.len() == 20 && first != second, "{first} {second}");
    assert_eq!(names(&[("RINGCCL_JOB", "mine")]), "mine");
    assert!(names(&[("RINGCCL_JOB", "outer"), ("RANK", "0")]).starts_with("run-"));
    let mut command = run(&["-n", "2"], "true");
    command.env("RINGCCL_JOB", "a b").env_remove("RANK");
    let told = text(&output(command).stderr);
    assert_eq!(told, "ringccl: RINGCCL_JOB=a b: not a name of 1 to 64 letters, digits, `-`, `.` and `_`\n");
}

#[test]
fn all_ranks_get_one_port_that_nobody_listens_on() {
    // MASTER_PORT belongs to the user; the rendezvous listens elsewhere.
    let script = "echo $MASTER_PORT ${RINGCCL_RENDEZVOUS#*:}";
    let lines = sorted_lines(&output(run(&["-n", "3", "--no-prefix"], script)));
    assert!(lines.len() == 3 && lines.iter().all(|line| *line == lines[0]), "{lines:?}");
    let (master, rendezvous) = lines[0].split_once(' ').unwrap();
    assert_ne!(master, rendezvous);
    // Port numbers in /proc/net/tcp are hexadecimal; 0A is the state of a listener.
    let script = "port=$(printf %04X $MASTER_PORT); grep -c \"0100007F:$port .* 0A \" /proc/net/tcp; true";
    assert_eq!(text(&output(run(&["-n", "1", "--no-prefix"], script)).stdout), "0\n");
}

const CLUSTER: &str = "version: 1
cluster: {name: lab, default_backend: nccl}
nodes:
  - {id: left, host: a, ranks: [0, 3], gpus: [{profile: a100}, {profile: a100}]}
  - {id: right, host: b, ranks: [2, 1, 4], gpus: [{profile: h100}, {profile: h100}, {profile: h100}]}
fabric:
  intra_node: {type: nvlink, bandwidth_gbps: 300}
  inter_node: {type: infiniband, bandwidth_gbps: 200}
";

#[test]
fn a_cluster_file_places_ranks_on_nodes() {
    // Local numbers follow the file's order; -n comes from the file; the path becomes absolute.
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("lab.yaml"), CLUSTER).unwrap();
    let script = "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $GROUP_RANK $RINGCCL_NODE \
                  $RINGCCL_CLUSTER_CONFIG";
    let mut command = run(&["--cluster", "lab.yaml", "--no-prefix"], script);
    command.current_dir(dir.path());
    let path = dir.path().join("lab.yaml");
    let expected =
        ["0 5 0 2 0 left", "1 5 1 3 1 right", "2 5 0 3 1 right", "3 5 1 2 0 left", "4 5 2 3 1 right"];
    let expected: Vec<String> = expected.iter().map(|line| format!("{line} {}", path.display())).collect();
    assert_eq!(sorted_lines(&output(command)), expected);

    // The variables of the environment name the file just as well.
    let mut command = run(&["-n", "5", "--no-prefix"], "echo $RINGCCL_NODE");
    command.env("FAKEGPU_CLUSTER_CONFIG", &path);
    assert_eq!(sorted_lines(&output(command)), ["left", "left", "right", "right", "right"]);

    let mut command = run(&["-n", "4", "--cluster", "lab.yaml"], "echo never");
    command.current_dir(dir.path());
    let output = output(command);
    assert!(!output.status.success() && output.stdout.is_empty());
    let error = text(&output.stderr);
    assert!(error.contains("-n 4 but `lab.yaml` has 5 ranks") && error.lines().count() == 1, "{error}");
}

#[test]
fn output_goes_where_it_came_from_line_by_line() {
    // Both streams keep their place; empty lines, odd bytes and a last line without an end survive.
    let script = r"printf 'a\n\nb\377\n'; printf 'no end'; printf 'to stderr\n' >&2";
    let output = output(run(&["-n", "1"], script));
    assert_eq!(output.stdout, b"[0] a\n[0] \n[0] b\xff\n[0] no end\n");
    assert_eq!(output.stderr, b"[0] to stderr\n");
}

#[test]
fn lines_of_many_ranks_are_never_torn() {
    // 8 ranks write 500 long lines each, in two pieces per line and to one common pipe.
    let script = r#"i=0
        while [ $i -lt 500 ]; do printf "$RANK:%0300d" $i; printf ":end\n"; i=$((i+1)); done
        echo "$RANK:last" >&2"#;
    let mut command = Command::new("/bin/sh");
    command
        .args(["-c", &format!("{} run -n 8 -- /bin/sh -c '{script}' 2>&1", env!("CARGO_BIN_EXE_ringccl"))]);
    let lines = sorted_lines(&output(command));
    assert_eq!(lines.len(), 8 * 501);
    for line in &lines {
        let rank = &line[1..2];
        let whole = format!("[{rank}] {rank}:");
        assert!(
            line.starts_with(&whole)
                && (line.ends_with(":end") && line.len() == 310 || line.ends_with(":last")),
            "{line}"
        );
    }
}

#[test]
fn nothing_is_lost_of_a_large_output() {
    // 4 MB through pipes of 64 KB, with the last bytes right before the exit.
    let script = "head -c 4000000 /dev/zero | tr '\\0' x | fold -w 999; echo; echo done";
    let output = output(run(&["-n", "2", "--no-prefix"], script));
    let stdout = text(&output.stdout);
    assert_eq!(stdout.matches('x').count(), 8_000_000);
    assert_eq!(stdout.matches("done\n").count(), 2);
}

#[test]
fn rank_0_reads_our_input_and_the_others_read_nothing() {
    // As under mpirun; nobody waits for a terminal.
    let mut command = run(&["-n", "2"], "read line; echo \"<$line>\"");
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("in"), "hello\n").unwrap();
    command.stdin(fs::File::open(dir.path().join("in")).unwrap());
    assert_eq!(sorted_lines(&output(command)), ["[0] <hello>", "[1] <>"]);
}
