//! What the tests of the finished library share: the library under its name, NVIDIA's header, C programs.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The header's package and those of CUDA's headers that it includes.
const PACKAGES: [&str; 4] =
    ["nvidia-nccl-cu13==2.30.7", "nvidia-cuda-runtime", "nvidia-cuda-crt", "nvidia-cuda-cccl"];

/// Where cargo puts what belongs to these tests.
pub(crate) fn scratch() -> PathBuf {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("nccl");
    std::fs::create_dir_all(&dir).expect("scratch folder");
    dir
}

/// A folder with the library as `libnccl.so.2`: what cargo has built beside this test.
pub(crate) fn library() -> &'static Path {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    DIR.get_or_init(|| {
        let test = std::env::current_exe().expect("own path");
        let built = test.parent().expect("deps").join("libnccl.so");
        assert!(built.exists(), "cargo has not built {}", built.display());
        let dir = scratch().join("lib");
        std::fs::create_dir_all(&dir).expect("folder");
        // Tests run at the same time in other processes: the copy appears at once and whole.
        let draft = dir.join(format!("draft-{}", std::process::id()));
        std::fs::copy(&built, &draft).expect("copy");
        std::fs::rename(&draft, dir.join("libnccl.so.2")).expect("rename");
        dir
    })
}

/// The folders of NVIDIA's headers, or why there are none: then the test is skipped, and says so.
pub(crate) fn headers() -> Option<&'static [PathBuf]> {
    static DIRS: OnceLock<Option<Vec<PathBuf>>> = OnceLock::new();
    let dirs = DIRS.get_or_init(|| {
        let root = scratch().join("headers");
        let cuda = root.join("nvidia/cu13/include");
        let dirs = vec![root.join("nvidia/nccl/include"), cuda.join("cccl"), cuda];
        let is_there = || dirs[0].join("nccl.h").exists() && dirs[1].join("nv/target").exists();
        // Test processes that run at the same time fetch once.
        let lock = std::fs::File::create(scratch().join("headers.lock")).expect("lock");
        lock.lock().expect("lock");
        if !is_there() && !fetch(&root) && !is_there() {
            return None;
        }
        Some(dirs)
    });
    if dirs.is_none() {
        eprintln!("SKIPPED: {} cannot be fetched by pip", PACKAGES.join(" and "));
    }
    dirs.as_deref()
}

/// Fetches the headers; the libraries of the packages are not kept, so that no test can load NVIDIA's by mistake.
fn fetch(root: &Path) -> bool {
    let draft = root.with_extension(format!("draft-{}", std::process::id()));
    let mut pip = Command::new("pip");
    pip.args(["install", "--quiet", "--no-deps", "--no-compile", "--target"]).arg(&draft).args(PACKAGES);
    let fetched = run(&mut pip, Duration::from_secs(300)).status.success();
    if fetched {
        let _ = std::fs::remove_dir_all(draft.join("nvidia/nccl/lib"));
        let _ = std::fs::remove_dir_all(draft.join("nvidia/cu13/lib"));
        // Another test may have been faster.
        let _ = std::fs::rename(&draft, root);
    }
    let _ = std::fs::remove_dir_all(&draft);
    fetched
}

/// Compiles `tests/c/NAME.c` with NVIDIA's header against our library; `None` if there is no header.
pub(crate) fn compile(name: &str, flags: &[&str]) -> Option<PathBuf> {
    let headers = headers()?;
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(name).with_extension("c");
    let program = scratch().join(format!("{name}{}", flags.concat().replace(['/', ' '], "_")));
    // Threads of this test compile at the same time, and so do other processes.
    let draft =
        program.with_extension(format!("draft-{}-{:?}", std::process::id(), std::thread::current().id()));
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE", "-DNCCL_OS_LINUX"])
        .args(flags);
    // NVIDIA's headers have warnings of their own.
    headers.iter().for_each(|dir| {
        cc.arg("-isystem").arg(dir);
    });
    cc.arg(&source).arg("-o").arg(&draft).arg(library().join("libnccl.so.2")).args(["-lpthread", "-lm"]);
    let output = run(&mut cc, Duration::from_secs(60));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    std::fs::rename(&draft, &program).expect("rename");
    Some(program)
}

/// A command with our library in front of any other, and no variables of the machine's own.
pub(crate) fn with_library(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("NCCL_") {
            command.env_remove(name);
        }
    }
    command.env("LD_LIBRARY_PATH", library()).env("NCCL_CONF_FILE", "/dev/null").stdin(Stdio::null());
    command
}

/// Runs a command to its end, or ends it at the limit.
pub(crate) fn run(command: &mut Command, limit: Duration) -> Output {
    let mut child = match command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn() {
        Ok(child) => child,
        Err(cause) => panic!("cannot start {command:?}: {cause}"),
    };
    let readers = [
        child.stdout.take().map(|pipe| Box::new(pipe) as Box<dyn std::io::Read + Send>),
        child.stderr.take().map(|pipe| Box::new(pipe) as Box<dyn std::io::Read + Send>),
    ]
    .map(|pipe| {
        std::thread::spawn(move || {
            let mut text = Vec::new();
            if let Some(mut pipe) = pipe {
                let _ = pipe.read_to_end(&mut text);
            }
            text
        })
    });
    let until = Instant::now() + limit;
    let status = loop {
        if let Some(status) = child.try_wait().expect("wait") {
            break status;
        }
        if Instant::now() > until {
            let _ = child.kill();
            let status = child.wait().expect("wait");
            eprintln!("{command:?} did not end within {limit:?}");
            break status;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let [stdout, stderr] = readers.map(|reader| reader.join().expect("reader"));
    Output { status, stdout, stderr }
}

/// Runs a compiled program of `tests/c` and shows what it says when it fails.
pub(crate) fn check(name: &str, args: &[&str], limit: Duration) -> Option<String> {
    let program = compile(name, &[])?;
    let output = run(with_library(&program).args(args), limit);
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{name} {args:?}: {}\n{text}", output.status);
    Some(text)
}
