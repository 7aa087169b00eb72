//! `ringccl env`: the library is put in front, and the command takes the program's place.

use std::process::Command;

fn ringccl() -> Command {
    Command::new(env!("CARGO_BIN_EXE_ringccl"))
}

/// The command sees both variables, what was there before behind ours, and its exit code is the program's.
#[test]
fn the_command_sees_the_library() {
    let dir = tempfile::tempdir().unwrap();
    let library = dir.path().join("libnccl.so.2");
    // The loader says that it cannot load this, and goes on without it.
    std::fs::write(&library, "").unwrap();
    let output = ringccl()
        .args(["env", "--library"])
        .arg(&library)
        .args(["--", "sh", "-c", "echo $LD_PRELOAD; echo $LD_LIBRARY_PATH; exit 7"])
        .env("LD_LIBRARY_PATH", "/before")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let dir = dir.path().canonicalize().unwrap();
    let expected = format!("{}/libnccl.so.2\n{}:/before\n", dir.display(), dir.display());
    assert_eq!((text.as_str(), output.status.code()), (expected.as_str(), Some(7)));
}

/// Without the library the command is not started, and the message says how to get it.
#[test]
fn a_missing_library_is_told() {
    let output = ringccl().args(["env", "--library", "/nowhere/x.so", "--", "true"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success() && text.contains("/nowhere/x.so") && text.contains("cargo xtask nccl"),
        "{text}"
    );
}
