//! Clients that find the library as programs do: by its name.

mod common;

use std::path::Path;
use std::time::Duration;

/// A Python program that calls every collective by ctypes, with a process for each rank.
#[test]
fn ctypes() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python/client.py");
    let output = common::run(common::with_library("python3").arg(script), Duration::from_secs(60));
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && text.contains("done"), "{}\n{text}", output.status);
}

/// The log has the lines that scripts look for, in the file that `NCCL_DEBUG_FILE` names.
#[test]
fn logs() {
    let Some(program) = common::compile("one_thread", &[]) else { return };
    let dir = common::scratch().join(format!("logs-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("folder");
    let mut command = common::with_library(&program);
    command
        .env("NCCL_DEBUG", "info")
        .env("NCCL_DEBUG_SUBSYS", "ALL")
        .env("NCCL_DEBUG_FILE", dir.join("log.%h.%p"))
        .env("NCCL_DEBUG_TIMESTAMP_LEVELS", "INFO");
    let output = common::run(&mut command, Duration::from_secs(60));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "done\n");
    let files: Vec<_> = std::fs::read_dir(&dir).expect("folder").filter_map(Result::ok).collect();
    assert_eq!(files.len(), 1);
    let log = std::fs::read_to_string(files[0].path()).expect("log");
    let _ = std::fs::remove_dir_all(&dir);
    for part in [
        "NCCL version 2.30.7+",
        "rank 3 nranks 4 cudaDev 3",
        "Init START",
        "Init COMPLETE",
        "via SHM/direct",
        "Connected all rings",
        " coll channels, ",
        "AllReduce: opCount 0 sendbuff 0x",
        "AllReduce: opCount 1 sendbuff 0x",
        "[nranks=4] stream 0",
        "Destroy COMPLETE",
        "NCCL INFO",
        "[20",
    ] {
        assert!(log.contains(part), "`{part}` is not in the log:\n{log}");
    }
}

/// Errors are logged at WARN, the version at VERSION, and nothing by default.
#[test]
fn levels_of_the_log() {
    let Some(program) = common::compile("ladder", &[]) else { return };
    let log = |level: &str| {
        let output =
            common::run(common::with_library(&program).env("NCCL_DEBUG", level), Duration::from_secs(60));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert_eq!(log(""), "done\n");
    let version = log("VERSION");
    assert!(version.starts_with("NCCL version 2.30.7+") && version.lines().count() == 2, "{version}");
    let warn = log("warn");
    assert!(warn.contains("NCCL WARN AllReduce : comm argument is NULL") && !warn.contains("INFO"), "{warn}");
    assert!(warn.contains("\n\n[20"), "a warning begins with an empty line and the time: {warn}");
}

/// Files of variables count less than the environment, and are read where `NCCL_CONF_FILE` says.
#[test]
fn conf_file() {
    let Some(program) = common::compile("one_thread", &[]) else { return };
    let file = common::scratch().join(format!("conf-{}", std::process::id()));
    std::fs::write(&file, "# ours\nNCCL_DEBUG=INFO\nNCCL_DEBUG_SUBSYS=DESTROY\n").expect("file");
    let run = |level: Option<&str>| {
        let mut command = common::with_library(&program);
        command.env("NCCL_CONF_FILE", &file);
        if let Some(level) = level {
            command.env("NCCL_DEBUG", level);
        }
        let output = common::run(&mut command, Duration::from_secs(60));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let (of_file, of_environment) = (run(None), run(Some("WARN")));
    let _ = std::fs::remove_file(&file);
    assert!(of_file.contains("Destroy COMPLETE") && !of_file.contains("Init COMPLETE"), "{of_file}");
    assert!(!of_environment.contains("INFO"), "{of_environment}");
}

/// Variables that leave no algorithm fail the call, and lists that are none the start.
#[test]
fn algorithms() {
    let Some(program) = common::compile("one_thread", &[]) else { return };
    let run = |name: &str, value: &str| {
        let output = common::run(common::with_library(&program).env(name, value), Duration::from_secs(60));
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for (name, value, says) in [
        ("NCCL_ALGO", "NVLS", "no usable algorithm with NCCL_ALGO=NVLS"),
        ("NCCL_ALGO", "Tree", "no usable algorithm with NCCL_ALGO=Tree"),
        ("NCCL_ALGO", "Bus", "Bus"),
        ("NCCL_PROTO", "LL64", "LL64"),
    ] {
        let (is_good, text) = run(name, value);
        assert!(!is_good && text.contains(says), "{name}={value}: {text}");
        assert!(text.contains(": 5, "), "{name}={value} is invalid usage: {text}");
    }
    for (name, value) in
        [("NCCL_ALGO", "Ring"), ("NCCL_PROTO", "LL"), ("NCCL_ALGO", "^NVLS"), ("NCCL_BUFFSIZE", "x")]
    {
        assert!(run(name, value).0, "{name}={value}");
    }
}

/// nccl4py's bindings, with a stand-in for the CUDA driver that they look for first. What they cannot do without a
/// driver is their package `nccl.core`, whose devices and streams are those of `cuda.core`.
#[test]
fn nccl4py() {
    let site = common::scratch().join("nccl4py");
    if !site.join("nccl/bindings").exists() {
        let draft = site.with_extension(format!("draft-{}", std::process::id()));
        let mut pip = std::process::Command::new("pip");
        pip.args(["install", "--quiet", "--no-compile", "--target"]).arg(&draft).arg("nccl4py==0.3.1");
        let output = common::run(&mut pip, Duration::from_secs(300));
        let fetched = output.status.success() && std::fs::rename(&draft, &site).is_ok();
        let _ = std::fs::remove_dir_all(&draft);
        if !fetched && !site.exists() {
            eprintln!("SKIPPED: nccl4py 0.3.1 cannot be installed by pip");
            return;
        }
    }
    let stub = common::scratch().join("cuda-stub");
    std::fs::create_dir_all(&stub).expect("folder");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/cuda_stub.c");
    let mut cc = std::process::Command::new("cc");
    cc.args(["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o"])
        .arg(stub.join("libcuda.so.1"))
        .arg(source);
    assert!(common::run(&mut cc, Duration::from_secs(60)).status.success());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python/nccl4py_client.py");
    let mut python = common::with_library("python3");
    let paths = format!("{}:{}", common::library().display(), stub.display());
    python.arg(script).env("PYTHONPATH", &site).env("LD_LIBRARY_PATH", paths);
    python.env("LD_PRELOAD", common::library().join("libnccl.so.2"));
    let output = common::run(&mut python, Duration::from_secs(120));
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if text.contains("ModuleNotFoundError") || text.contains("No module named 'nccl.bindings") {
        eprintln!("SKIPPED: nccl4py has no build for this Python");
        return;
    }
    assert!(output.status.success() && text.contains("done"), "{}\n{text}", output.status);
}

/// `import torch` works with the library in front of NVIDIA's, and torch reports its version. PyTorch with CUDA has 3
/// GB, so it is not fetched: `RINGCCL_TEST_TORCH` names a folder of `pip install --target`.
#[test]
fn torch_loads() {
    let Some(site) = std::env::var_os("RINGCCL_TEST_TORCH") else {
        eprintln!("SKIPPED: RINGCCL_TEST_TORCH names no folder with PyTorch");
        return;
    };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python/torch_client.py");
    let mut python = common::with_library("python3");
    python.arg(script).env("PYTHONPATH", site).env("LD_PRELOAD", common::library().join("libnccl.so.2"));
    python.env("LD_BIND_NOW", "1");
    let output = common::run(&mut python, Duration::from_secs(110));
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && text.contains("done with torch"), "{}\n{text}", output.status);
}
