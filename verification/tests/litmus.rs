//! The hardware checks, for a moment; `cargo xtask litmus --seconds N` runs them longer.

use std::process::{Command, Output};

fn litmus(seconds: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_litmus")).args(["--seconds", seconds]).output().unwrap()
}

/// Threads and processes exchange nothing but right messages, and the control is caught.
#[test]
fn finds_nothing_but_the_control() {
    let output = litmus("4");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{errors}");
    for part in ["two threads, heap ring: ", "two processes, segment: "] {
        let line = text.lines().find(|line| line.starts_with(part)).unwrap_or_else(|| panic!("{text}"));
        assert!(line.ends_with(" 0 wrong"), "{line}");
    }
    assert!(text.contains("control"), "{text}");
}

/// A time that makes no sense is refused with what would be right.
#[test]
fn bad_times_are_refused() {
    for bad in ["0", "-1", "x"] {
        let output = litmus(bad);
        assert_eq!(output.status.code(), Some(2), "{bad}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("seconds"), "{bad}");
    }
}
