//! The Python package: its wheel, its tests in a virtual environment with PyTorch, and PyTorch's own tests.

use crate::run;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The version that the tests are written for.
const TORCH: &str = "torch==2.15.*";
/// What pip may take to fetch and unpack it: 3 GB.
const PIP_LIMIT: Duration = Duration::from_secs(900);
/// Seconds after which the bounded run of PyTorch's tests begins no more.
const SUITE_SECONDS: &str = "35";

/// Options of the wheel.
#[derive(Debug, clap::Args)]
pub(crate) struct Wheel {
    /// The interpreter whose torch the wheel gets a shim for
    #[arg(long, default_value = "python3")]
    python: PathBuf,
    /// Folder of the wheel [default: `wheel` in cargo's target folder]
    #[arg(long)]
    out: Option<PathBuf>,
}

/// Options of PyTorch's tests.
#[derive(Debug, clap::Args)]
pub(crate) struct Conformance {
    /// Numbers of ranks
    #[arg(long, default_values_t = [2, 4])]
    ranks: Vec<u32>,
    /// Folder of the results [default: `conformance` in cargo's target folder]
    #[arg(long)]
    out: Option<PathBuf>,
}

/// Builds the wheel and prints where it is.
pub(crate) fn wheel(options: &Wheel) -> Result<()> {
    let out = options.out.clone().unwrap_or_else(|| target().join("wheel"));
    let mut command = Command::new(&options.python);
    command.current_dir(run::root()).env("PYTHONDONTWRITEBYTECODE", "1");
    run::show(command.arg("python/ringccl_build.py").arg(out))
}

/// PyTorch's whole suite with gloo, with "ringccl", and with "ringccl" under gloo's name: what passes with gloo must
/// pass under its name, and nothing may fail.
pub(crate) fn conformance(options: &Conformance) -> Result<()> {
    let Some(python) = environment("release")? else {
        bail!("{TORCH} cannot be installed: see pip's messages above");
    };
    let out = options.out.clone().unwrap_or_else(|| target().join("conformance"));
    std::fs::create_dir_all(&out).with_context(|| format!("cannot make {}", out.display()))?;
    for ranks in &options.ranks {
        let file = |name: &str| out.join(format!("{name}-{ranks}.json"));
        suite(&python, *ranks, &["--backend", "gloo"], &file("gloo"))?;
        suite(&python, *ranks, &[], &file("ringccl"))?;
        suite(&python, *ranks, &["--as", "gloo"], &file("as-gloo"))?;
        let mut compare = Command::new(&python);
        compare.current_dir(run::root()).arg("python/tests/torch_suite.py").arg("--compare");
        run::show(compare.args([file("gloo"), file("as-gloo")]))?;
    }
    println!("results are in {}", out.display());
    Ok(())
}

fn suite(python: &Path, ranks: u32, options: &[&str], out: &Path) -> Result<()> {
    let mut command = Command::new(python);
    command.current_dir(run::root()).env("PYTHONDONTWRITEBYTECODE", "1");
    command.args(["python/tests/torch_suite.py", "--ranks", &ranks.to_string(), "--out"]);
    run::show(command.arg(out).args(options))
}

/// The package's own tests and the first part of PyTorch's; `None` if torch cannot be had.
pub(crate) fn tests() -> Result<Option<run::Shown>> {
    // The library as the other tests use it, which is built already.
    let Some(python) = environment("dev")? else { return Ok(None) };
    let mut own = Command::new(&python);
    own.current_dir(run::root()).env("PYTHONDONTWRITEBYTECODE", "1").env("OMP_NUM_THREADS", "1");
    let shown = run::tee(own.args(["-m", "unittest", "discover", "-s", "python/tests"]))?;
    if shown.status.success() {
        let mut theirs = Command::new(&python);
        theirs.current_dir(run::root()).env("PYTHONDONTWRITEBYTECODE", "1");
        theirs.args([
            "python/tests/torch_suite.py",
            "--ranks",
            "2",
            "--as",
            "gloo",
            "--budget",
            SUITE_SECONDS,
        ]);
        run::show(&mut theirs)?;
    }
    Ok(Some(shown))
}

/// A virtual environment with PyTorch and the package as it is now: its interpreter, or `None` without a network.
fn environment(profile: &str) -> Result<Option<PathBuf>> {
    let folder = target().join("pytorch-venv");
    let python = folder.join("bin/python");
    if !python.exists() {
        run::show(Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
    }
    let has = |module: &str| {
        let status = Command::new(&python).args(["-c", &format!("import {module}")]).output();
        status.is_ok_and(|output| output.status.success())
    };
    if !(has("torch") && has("numpy") && has("expecttest")) {
        println!("installing {TORCH} into {}: 3 GB, some minutes", folder.display());
        let mut pip = Command::new(&python);
        pip.args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            TORCH,
            "numpy",
            "expecttest",
        ]);
        let done = run::watch(&mut pip, PIP_LIMIT)?;
        if !done.status.is_some_and(|status| status.success()) {
            println!("{}", done.output);
            return Ok(None);
        }
    }
    let mut pip = Command::new(&python);
    pip.current_dir(run::root()).env("CARGO_TARGET_DIR", target());
    pip.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "--force-reinstall",
    ]);
    run::show(pip.args(["--config-settings", &format!("profile={profile}"), "./python"]))?;
    Ok(Some(python))
}

/// Where cargo builds.
fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| run::root().join("target"), PathBuf::from)
}
