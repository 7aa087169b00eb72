//! The program as users start it.

use std::io::Write;
use std::process::{Command, Output};

fn digits(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_digits-ddp"));
    // The variables of a job that this test may run in must not make it a part of that job.
    for name in ["RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "RINGCCL_TRACE"] {
        command.env_remove(name);
    }
    command.args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn prints_a_line_per_epoch_and_the_hash() {
    // Proves the format of the output, and that two runs end with the same hash.
    let arguments = ["--threads", "4", "--epochs", "2", "--min-accuracy", "50"];
    let (first, second) = (digits(&arguments), digits(&arguments));
    assert!(first.status.success(), "{}", text(&first.stderr));
    let lines: Vec<String> = text(&first.stdout).lines().map(String::from).collect();
    assert_eq!(lines.len(), 3);
    for (index, line) in lines[..2].iter().enumerate() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let fixed: Vec<&str> = [0, 1, 2, 4, 5, 7, 9, 10, 12].map(|place| words[place]).to_vec();
        let epoch = (index + 1).to_string();
        assert_eq!(
            fixed,
            ["epoch", &epoch, "loss", "test", "accuracy", "%", "samples/s", "communication", "%"]
        );
        for place in [3, 6, 8, 11] {
            assert!(words[place].parse::<f64>().is_ok_and(|number| number >= 0.0), "{line}");
        }
        assert!(words[13].starts_with('(') && words[14] == "s)", "{line}");
    }
    assert!(lines[2].starts_with("replicas identical: hash "), "{}", lines[2]);
    assert_eq!(text(&second.stdout).lines().last(), Some(lines[2].as_str()));
}

#[test]
fn too_low_an_accuracy_fails() {
    // Proves that a run that did not learn enough has an exit code that says so.
    let output = digits(&["--epochs", "1", "--min-accuracy", "100"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("replicas identical"));
    assert!(text(&output.stderr).contains("at least 100 % was asked for"), "{}", text(&output.stderr));
}

#[test]
fn bad_input_is_one_line() {
    // Proves that wrong options and data end with one line that names what is wrong, and nothing is trained.
    let mut file = tempfile::NamedTempFile::new().unwrap();
    writeln!(file, "{}3", "0,".repeat(64)).unwrap();
    writeln!(file, "{}banana", "0,".repeat(64)).unwrap();
    let path = file.path().to_str().unwrap();
    let bad_file = digits(&["--data", path]);
    assert_eq!(bad_file.status.code(), Some(1));
    let error = text(&bad_file.stderr);
    assert!(error.contains(&format!("`{path}`, line 2, field 65: found `banana`")), "{error}");
    let missing = text(&digits(&["--data", "/nonexistent/file.csv"]).stderr);
    assert!(
        missing.contains("cannot read `/nonexistent/file.csv`") && missing.contains("No such file"),
        "{missing}"
    );
    let accuracy = text(&digits(&["--min-accuracy", "101"]).stderr);
    assert!(accuracy.contains("--min-accuracy is 101"), "{accuracy}");
    for error in [error, missing, accuracy] {
        assert_eq!(error.lines().count(), 1, "{error}");
    }
    assert!(bad_file.stdout.is_empty());
    assert_eq!(digits(&["--threads", "0"]).status.code(), Some(2));
}
