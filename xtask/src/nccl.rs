//! `cargo xtask nccl`: builds the library and puts it where programs look for it, as `libnccl.so.2`.

use crate::run;
use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What cargo builds, and what programs ask for.
const BUILT: &str = "libnccl.so";
const ASKED: &str = "libnccl.so.2";

/// Options of the library.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Build with optimization
    #[arg(long)]
    release: bool,
}

/// Builds, checks and places the library; prints where it is.
pub(crate) fn run(options: &Options) -> Result<()> {
    let mut cargo = run::cargo();
    cargo.args(["build", "--package", "nccl-shim"]);
    if options.release {
        cargo.arg("--release");
    }
    run::show(&mut cargo)?;
    let dir = target().join(if options.release { "release" } else { "debug" });
    let (built, asked) = (dir.join(BUILT), dir.join(ASKED));
    check(&built)?;
    // The name appears at once and whole, as programs may be loading it.
    let draft = dir.join(format!("{ASKED}.draft"));
    std::fs::copy(&built, &draft).with_context(|| format!("cannot copy {}", built.display()))?;
    std::fs::rename(&draft, &asked).with_context(|| format!("cannot make {}", asked.display()))?;
    println!("{}", asked.display());
    Ok(())
}

/// Where cargo builds.
fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| run::root().join("target"), PathBuf::from)
}

/// Whether the file has the soname, the weak names and their strong twins: a linker that is not LLD would drop them.
fn check(library: &Path) -> Result<()> {
    let text = |option| -> Result<String> {
        let output = Command::new("readelf").args([option, "-W"]).arg(library).output();
        let output = output.context("cannot start `readelf`; is binutils installed?")?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    ensure!(
        text("--dynamic")?.contains(&format!("[{ASKED}]")),
        "{} has not the soname {ASKED}",
        library.display()
    );
    let symbols = text("--dyn-syms")?;
    let count = |kind: &str, prefix: &str| {
        let name = format!(" {prefix}");
        symbols.lines().filter(|line| line.contains(kind) && line.contains(&name)).count()
    };
    let (weak, strong) = (count(" WEAK ", "nccl"), count(" GLOBAL ", "pnccl"));
    if weak == 0 || weak != strong {
        bail!(
            "{} has {weak} weak names and {strong} strong twins: build with the linker that comes with rustc",
            library.display()
        );
    }
    Ok(())
}
