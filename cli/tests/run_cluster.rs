//! Cluster files on the command line: the job's size comes from the file or must match it, and `ringccl topo`.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::{output, ringccl, run, sorted_lines, text};
use tempfile::TempDir;

const CLUSTER: &str = "version: 1
cluster: {name: lab, default_backend: nccl}
nodes:
  - {id: left, host: a, ranks: [0, 1, 2], gpus: [{profile: a100}, {profile: a100}, {profile: l4}]}
  - {id: right, host: \u{e4}b, ranks: [4, 3], gpus: [{profile: h100}, {profile: h100}]}
fabric:
  intra_node: {type: nvlink, bandwidth_gbps: 300}
  inter_node: {type: infiniband, bandwidth_gbps: 200, latency_us: 1.5, oversubscription: 2}
";

fn file(content: &str) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lab.yaml");
    fs::write(&path, content).unwrap();
    (dir, path)
}

/// stderr of a command that must fail before it starts anything.
fn refusal(command: std::process::Command) -> String {
    let output = output(command);
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(1), ""));
    text(&output.stderr)
}

fn topo(command: &str, path: &Path) -> std::process::Command {
    let mut ringccl = ringccl();
    ringccl.args(["topo", command]).arg(path);
    ringccl
}

#[test]
fn the_world_size_must_match_the_file() {
    // Another -n is refused with both numbers, wherever the file comes from; the right one and none are taken.
    let (_dir, path) = file(CLUSTER);
    let option = path.to_str().unwrap();
    for asked in ["1", "4", "6"] {
        let error = refusal(run(&["-n", asked, "--cluster", option], "echo never"));
        let expected = format!("-n {asked} but `{option}` has 5 ranks; leave -n out");
        assert!(error.contains(&expected) && error.lines().count() == 1, "{error}");
    }
    for variable in ["RINGCCL_CLUSTER_CONFIG", "FAKEGPU_CLUSTER_CONFIG"] {
        let mut command = run(&["-n", "4"], "echo never");
        command.env(variable, &path);
        let error = refusal(command);
        assert!(error.contains(&format!("-n 4 but `{option}` ({variable}) has 5 ranks")), "{error}");
        let mut command = run(&["--no-prefix"], "echo $RANK $WORLD_SIZE $RINGCCL_NODE $LOCAL_RANK");
        command.env(variable, &path);
        let expected = ["0 5 left 0", "1 5 left 1", "2 5 left 2", "3 5 right 1", "4 5 right 0"];
        assert_eq!(sorted_lines(&output(command)), expected);
    }
    assert!(output(run(&["-n", "5", "--cluster", option], "true")).status.success());
}

#[test]
fn a_wrong_file_starts_nothing() {
    // Problems of the file, all of them, and files that are none, end the command before any rank runs.
    let (dir, path) = file(&CLUSTER.replace("h100", "h1000").replace("300", "-300"));
    let marker = dir.path().join("started");
    let script = format!("touch {}", marker.display());
    let error = refusal(run(&["--cluster", path.to_str().unwrap()], &script));
    assert!(
        error.contains("has 3 problems") && error.contains(":5: nodes[1].gpus[1].profile: no GPU"),
        "{error}"
    );
    assert!(
        error.contains(":7: fabric.intra_node.bandwidth_gbps: found `-300`; write a number above 0"),
        "{error}"
    );
    let error = refusal(run(&["--cluster", dir.path().to_str().unwrap()], &script));
    assert!(error.contains("this is a directory"), "{error}");
    let mut command = run(&[], &script);
    command.env("FAKEGPU_CLUSTER_CONFIG", dir.path().join("none"));
    let error = refusal(command);
    assert!(error.contains("No such file") && error.contains("(FAKEGPU_CLUSTER_CONFIG names it)"), "{error}");
    assert!(!marker.exists());
}

#[test]
fn check_lists_every_problem() {
    // Exit code 1 and one line per problem; a good file is one line and exit code 0.
    let (_dir, path) = file(CLUSTER);
    let good = output(topo("check", &path));
    assert_eq!((good.status.code(), text(&good.stderr).as_str()), (Some(0), ""));
    assert_eq!(text(&good.stdout), format!("{}: ok, 2 nodes, 5 ranks\n", path.display()));
    let (_dir, path) = file(&CLUSTER.replace("version: 1", "version: 0").replace("[4, 3]", "[4, 5]"));
    let name = path.display();
    assert_eq!(
        refusal(topo("check", &path)),
        format!(
            "cluster file `{name}` has 2 problems:\n{name}:1: version: found `0`; write `version: 1`\n\
             {name}:3: nodes: ranks go up to 5 but 3 is on no node; number them from 0 without gaps\n"
        )
    );
    assert!(refusal(topo("check", Path::new("/none"))).contains("No such file"));
    let mut without = ringccl();
    without.args(["topo", "check"]);
    assert!(refusal(without).contains("which cluster file?"));
}

#[test]
fn show_draws_nodes_and_links() {
    // Every rank, GPU and number of the file, in aligned columns; the environment may name the file.
    let (_dir, path) = file(CLUSTER);
    let shown = output(topo("show", &path));
    let expected = "\
cluster lab: 2 nodes, 5 ranks, backend nccl, version 1

node   host  ranks  GPUs
left   a     0-2    2 x a100, 1 x l4
right  \u{e4}b    4, 3   2 x h100

links          type        bandwidth   latency  oversubscription
within a node  nvlink      300 Gbit/s  0 us     1
between nodes  infiniband  200 Gbit/s  1.5 us   2
";
    assert_eq!(text(&shown.stdout), expected);
    let mut command = ringccl();
    command.args(["topo", "show"]).env("FAKEGPU_CLUSTER_CONFIG", &path);
    assert_eq!(text(&output(command).stdout), expected);
    let (_dir, path) = file("- 1\n");
    assert!(refusal(topo("show", &path)).contains("found a list"));
}

#[test]
fn a_run_prints_what_nccl_would_and_infer_reads_it() {
    // Ranks of our own library under NCCL_DEBUG: the table, the channels and every choice, from which the inputs are
    // found again without a line that is left; the report has the prices.
    let dir = tempfile::tempdir().unwrap();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/predict/v100_cluster.yaml");
    let report = dir.path().join("report.json");
    let script = format!(
        "exec {} perf all_reduce -n 4 -b 64 -e 64M -f 4 --iters 1 -w 0 --as-rank",
        env!("CARGO_BIN_EXE_ringccl")
    );
    let mut command = run(&["--no-prefix", "--cluster", path.to_str().unwrap()], &script);
    command
        .env("NCCL_DEBUG", "INFO")
        .env("NCCL_DEBUG_SUBSYS", "INIT,GRAPH,TUNING")
        .env("RINGCCL_REPORT", &report);
    let printed = output(command);
    let log = text(&printed.stdout);
    assert!(
        log.contains("NCCL INFO 67108864 Bytes -> Algo 1 proto 2 time 867.660767"),
        "{log}{}",
        text(&printed.stderr)
    );
    let file = dir.path().join("nccl.log");
    fs::write(&file, &log).unwrap();
    let mut infer = ringccl();
    infer.args(["topo", "infer"]).arg(&file);
    let found = output(infer);
    let told = text(&found.stdout);
    assert!(found.status.success() && !told.contains("not explained"), "{told}{}", text(&found.stderr));
    assert!(told.contains("2.22.3 (from the log)"), "{told}");
    let report = fs::read_to_string(&report).unwrap();
    assert!(
        report.contains("\"predicted_time_us_total\"") && report.contains("\"virtual_time_us\""),
        "{report}"
    );
}
