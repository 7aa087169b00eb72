//! `cargo xtask fuzz`: the fuzz targets of `fuzz/` under libFuzzer, guided by coverage.

use crate::run;
use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

/// Options of the fuzzer.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The target; all of them, one after the other, if none is named
    #[arg(long, value_name = "NAME")]
    target: Option<String>,
    /// How long each target runs
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// Random seed, to repeat a run of a target that uses no threads
    #[arg(long)]
    seed: Option<u32>,
    /// Run the target once on this input instead, such as one that has failed
    #[arg(long, value_name = "FILE", requires = "target")]
    replay: Option<PathBuf>,
    /// What `cargo xtask test` runs: every target for some seconds, from the same seed
    #[arg(long, conflicts_with_all = ["target", "seed"])]
    smoke: bool,
    /// Add to `fuzz/corpus/` what the campaign has found and no kept input covers
    #[arg(long, conflicts_with_all = ["replay", "smoke"])]
    keep: bool,
}

/// A target's name, and how many inputs a smoke run tries: some seconds' worth.
const TARGETS: &[(&str, u32)] = &[
    ("wire", 60_000),
    ("cluster", 15_000),
    ("nodes", 10_000),
    ("unique_id", 150_000),
    ("header", 20_000),
    ("ring", 15_000),
    ("pair", 100),
];

/// When a smoke run that has not ended by its own limits is killed.
const SMOKE_ENDS: Duration = Duration::from_secs(180);

/// Flags by which the compiler counts edges and compared values; all of them are stable.
const COVERAGE: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares";

/// Where builds, campaigns and failing inputs lie.
fn folder() -> PathBuf {
    run::root().join("target/fuzz")
}

/// Runs a campaign, or replays one input.
pub(crate) fn run(options: &Options) -> Result<()> {
    if !has_cpp() {
        bail!("libFuzzer is C++: install a compiler, such as the package g++, or set CXX");
    }
    if options.smoke {
        return smoke().map(drop);
    }
    let chosen: Vec<&str> = match &options.target {
        None => TARGETS.iter().map(|(name, _)| *name).collect(),
        Some(wanted) => vec![known(wanted)?],
    };
    let fuzzer = build()?;
    if let (Some(file), Some(target)) = (&options.replay, chosen.first()) {
        let file = file.canonicalize().with_context(|| format!("cannot read `{}`", file.display()))?;
        return run::show(fuzzer.command(target).arg("-timeout=60").arg(file));
    }
    for target in chosen {
        println!("== {target}");
        let campaign = folder().join("campaign").join(target);
        fs::create_dir_all(&campaign)?;
        let mut limits = vec![format!("-max_total_time={}", options.seconds)];
        limits.extend(options.seed.map(|seed| format!("-seed={seed}")));
        let shown = run::tee(&mut fuzzer.start(target, &campaign, &limits)?)?;
        judge(target, Some(shown.status), &shown.output)?;
        if options.keep {
            fuzzer.keep(target, &campaign)?;
        }
    }
    Ok(())
}

/// What a smoke run did.
pub(crate) enum Smoke {
    /// So many targets ran and none failed.
    Passed(u64),
    /// There is no C++ compiler to build the engine.
    NoCompiler,
}

/// Runs every target for some seconds, always with the same seed and from the kept inputs.
pub(crate) fn smoke() -> Result<Smoke> {
    if !has_cpp() {
        return Ok(Smoke::NoCompiler);
    }
    let fuzzer = build()?;
    for (target, inputs) in TARGETS {
        let fresh = folder().join("smoke").join(target);
        if fresh.exists() {
            fs::remove_dir_all(&fresh).with_context(|| format!("cannot clear {}", fresh.display()))?;
        }
        fs::create_dir_all(&fresh)?;
        // The number of inputs ends the run; the time only bounds it on a machine that is far too busy.
        let limits = ["-seed=1".to_owned(), format!("-runs={inputs}"), "-max_total_time=10".to_owned()];
        let watched = run::watch(&mut fuzzer.start(target, &fresh, &limits)?, SMOKE_ENDS)?;
        judge(target, watched.status, &watched.output).inspect_err(|_| println!("{}", watched.output))?;
        println!("{target}: {}", summary(&watched.output));
    }
    Ok(Smoke::Passed(TARGETS.len() as u64))
}

/// Turns the end of a run into a result. The engine says which input failed.
fn judge(target: &str, status: Option<ExitStatus>, output: &str) -> Result<()> {
    if status.is_some_and(|status| status.success()) {
        return Ok(());
    }
    let how = status.map_or_else(|| "no end".to_owned(), |status| status.to_string());
    let written = "Test unit written to ";
    let Some(file) = output.lines().find_map(|line| line.split_once(written)).map(|(_, file)| file) else {
        bail!("target `{target}` ended with {how} and left no input");
    };
    let replay = format!("cargo xtask fuzz --target {target} --replay {file}");
    bail!("target `{target}` failed ({how}); the input is in {file}\nreplay: {replay}")
}

/// How many inputs ran, and how fast.
fn summary(output: &str) -> String {
    let value = |key: &str| {
        let line = output.lines().find_map(|line| line.strip_prefix(key));
        line.map_or("?", str::trim).to_owned()
    };
    let (inputs, rate) = (value("stat::number_of_executed_units:"), value("stat::average_exec_per_sec:"));
    format!("{inputs} inputs, {rate} a second, {} new", value("stat::new_units_added:"))
}

fn known(wanted: &str) -> Result<&'static str> {
    let names: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
    let found = names.iter().find(|name| **name == wanted).copied();
    found.with_context(|| format!("no target is called `{wanted}`; there are {}", names.join(", ")))
}

/// Whether there is what the build of the engine calls.
fn has_cpp() -> bool {
    let compiler = std::env::var_os("CXX").unwrap_or_else(|| OsString::from("c++"));
    Command::new(compiler).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// The built fuzzer.
struct Fuzzer {
    path: PathBuf,
}

fn build() -> Result<Fuzzer> {
    let host = host()?;
    let mut command = run::cargo();
    command.args(["build", "--quiet", "--package", "ringccl-fuzz", "--bin", "fuzz", "--features", "engine"]);
    // With a target named, the flags leave build scripts and macros alone, which could not be linked.
    command.args(["--profile", "fuzz", "--target", &host, "--target-dir"]).arg(folder());
    run::show(command.env("RUSTFLAGS", COVERAGE).env_remove("CARGO_ENCODED_RUSTFLAGS"))?;
    Ok(Fuzzer { path: folder().join(host).join("fuzz/fuzz") })
}

/// The triple of the machine, as the compiler calls it.
fn host() -> Result<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output =
        Command::new(rustc).arg("-vV").current_dir(run::root()).output().context("cannot start rustc")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(line.context("rustc does not say for which machine it compiles")?.to_owned())
}

impl Fuzzer {
    fn command(&self, target: &str) -> Command {
        let mut command = Command::new(&self.path);
        command.current_dir(run::root()).env("RINGCCL_FUZZ_TARGET", target);
        command
    }

    /// The command that fuzzes one target from its kept inputs; what is found new goes to `campaign`.
    fn start(&self, target: &str, campaign: &Path, limits: &[String]) -> Result<Command> {
        let failures = folder().join("failures");
        fs::create_dir_all(&failures)?;
        let prefix = format!("{}/{target}-", failures.display());
        let mut command = self.command(target);
        command.args(["-max_len=4096", "-timeout=30", "-rss_limit_mb=1024", "-detect_leaks=0"]);
        command.args(["-verbosity=0", "-print_funcs=0", "-print_final_stats=1"]);
        command.arg(format!("-artifact_prefix={prefix}")).args(limits);
        let dictionary = run::root().join("fuzz").join("dictionaries").join(format!("{target}.dict"));
        if dictionary.exists() {
            command.arg(format!("-dict={}", dictionary.display()));
        }
        command.arg(campaign).args(seeds(target));
        Ok(command)
    }

    /// Merges what a campaign has found into the kept inputs.
    fn keep(&self, target: &str, campaign: &Path) -> Result<()> {
        let kept = run::root().join("fuzz/corpus").join(target);
        fs::create_dir_all(&kept)?;
        run::show(self.command(target).args(["-merge=1", "-verbosity=0"]).arg(kept).arg(campaign))
    }
}

/// Folders with inputs to begin with.
fn seeds(target: &str) -> Vec<PathBuf> {
    let mut folders = vec![run::root().join("fuzz/corpus").join(target)];
    if target == "cluster" {
        folders.extend(["valid", "invalid"].map(|name| run::root().join("topo/testdata").join(name)));
    }
    folders.retain(|folder| folder.exists());
    folders
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The targets here are those of `fuzz/src/lib.rs`, in the same order.
    #[test]
    fn targets_are_those_of_the_crate() {
        let source = fs::read_to_string(run::root().join("fuzz/src/lib.rs")).unwrap();
        let names = source.lines().filter_map(|line| line.trim().strip_prefix("Target { name: \""));
        let names: Vec<&str> = names.filter_map(|rest| rest.split('"').next()).collect();
        assert_eq!(names, TARGETS.iter().map(|(name, _)| *name).collect::<Vec<_>>());
        assert!(known("ring").is_ok() && known("rings").is_err());
    }

    /// A failure names the input and how to replay it; a run that was killed is a failure too.
    #[test]
    fn failures_name_their_input() {
        let output = "x\nartifact_prefix='t/'; Test unit written to t/ring-crash-1\nBase64: AA\n";
        let text = judge("ring", None, output).unwrap_err().to_string();
        assert!(
            text.contains("failed (no end)") && text.contains("--target ring --replay t/ring-crash-1"),
            "{text}"
        );
        assert!(judge("ring", None, "").unwrap_err().to_string().contains("left no input"));
        let stats = "stat::number_of_executed_units: 9\nstat::average_exec_per_sec:     3\n";
        assert_eq!(summary(stats), "9 inputs, 3 a second, ? new");
    }
}
