//! `ringccl topo infer`: from lines of a log back to what NCCL was told.

mod common;

use common::{output, ringccl, text};
use std::fs;
use std::process::Output;

fn command(arguments: &[&str]) -> Output {
    let mut command = ringccl();
    command.args(arguments).env_clear();
    output(command)
}

/// A log as rank 0 writes it: graphs, then operations of many sizes, all taken from predictions for a machine.
fn log() -> String {
    let mut lines = vec!["NCCL version 2.22.3+cuda12.4".to_owned()];
    for power in [10u32, 14, 17, 20, 23, 26, 30] {
        let size = (1u64 << power).to_string();
        let predicted = command(&[
            "predict",
            "--profile",
            "4xa100-nv4",
            "--nodes",
            "2",
            "--nccl",
            "2.22.3",
            "--bytes",
            &size,
        ]);
        let predicted = text(&predicted.stdout);
        lines.extend(predicted.lines().next().map(str::to_owned));
        if power == 10 {
            let patterns = predicted.lines().filter(|line| line.trim_start().starts_with("Pattern"));
            lines.extend(patterns.map(|line| line.trim().to_owned()));
        }
    }
    lines.insert(1, "comm 0x1 rank 0 nRanks 8 nNodes 2 localRanks 4 localRank 0 MNNVL 0".to_owned());
    lines.iter().map(|line| format!("node1:77:91 [0] NCCL INFO {line}\n")).collect()
}

#[test]
fn inputs_and_unexplained_lines_are_told() {
    // The model's own log is explained whole; a line that is false is named with its number.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("nccl.log");
    let name = file.to_str().unwrap();
    fs::write(&file, log()).unwrap();
    let said = text(&command(&["topo", "infer", name]).stdout);
    for line in
        ["NCCL               2.22.3 (from the log)", "CPU                amd", "explains 7 of 7 lines;"]
    {
        assert!(said.contains(line), "{line}\n{said}");
    }
    fs::write(&file, log() + "NCCL INFO 4096 Bytes -> Algo 4 proto 2 time 1.000000\n").unwrap();
    let said = text(&command(&["topo", "infer", name]).stdout);
    assert!(
        said.contains("line 12: not explained; the model says 4096 Bytes -> Algo 0 proto 0 time "),
        "{said}"
    );
    let json = command(&["topo", "infer", name, "--json"]).stdout;
    let value: serde_json::Value = serde_json::from_slice(&json).unwrap();
    assert_eq!((&value["cpu"], &value["unexplained"][0]["line"]), (&"amd".into(), &12.into()));
}

#[test]
fn what_is_no_log_is_refused() {
    // Missing files, folders, and files without a line of the tuner; the last with the variables to set.
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().join("empty");
    fs::write(&empty, "hello\n\u{0}\u{7f}\n").unwrap();
    for (name, says) in [
        (folder.path().join("none"), "cannot read"),
        (folder.path().to_owned(), "is no file"),
        (empty, "NCCL_DEBUG_SUBSYS=INIT,GRAPH,TUNING"),
    ] {
        let output = command(&["topo", "infer", name.to_str().unwrap()]);
        let error = text(&output.stderr);
        assert!(!output.status.success() && error.contains(says), "{name:?}: {error}");
    }
}
