//! `ringccl env`: a command that finds our `libnccl.so.2` in place of NVIDIA's.

use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// The library's name, which is also its soname.
const LIBRARY: &str = "libnccl.so.2";

/// Options of `ringccl env`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The library [default: libnccl.so.2 beside this program, or in ../lib of its folder]
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,
    /// The command, and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Becomes the command.
pub(crate) fn main(args: Args) -> Result<ExitCode> {
    let mut words = args.command.into_iter();
    let program = words.next().context("which command?")?;
    let mut command = Command::new(&program);
    command.args(words).envs(variables(args.library.as_deref())?);
    // Returns only if that fails.
    let cause = command.exec();
    Err(cause).with_context(|| format!("cannot start `{}`", program.to_string_lossy()))
}

/// The variables that put the library in front: the preload for programs that look beside themselves first, the search
/// path for those that load it by name.
pub(crate) fn variables(library: Option<&Path>) -> Result<Vec<(OsString, OsString)>> {
    let library = find(library)?;
    let dir = library.parent().unwrap_or(Path::new("/")).to_path_buf();
    Ok(vec![
        ("LD_PRELOAD".into(), in_front(library.into_os_string(), "LD_PRELOAD")),
        ("LD_LIBRARY_PATH".into(), in_front(dir.into_os_string(), "LD_LIBRARY_PATH")),
    ])
}

/// `first`, before what a variable has already.
fn in_front(first: OsString, name: &str) -> OsString {
    let vars = ringccl::settings::Vars::of_process();
    match vars.get(name) {
        None => first,
        Some(rest) => {
            let mut both = first;
            both.push(":");
            both.push(rest);
            both
        }
    }
}

fn find(library: Option<&Path>) -> Result<PathBuf> {
    let places = match library {
        Some(file) => vec![file.to_path_buf()],
        None => {
            let own = std::env::current_exe().context("cannot find this program's folder")?;
            let dir = own.parent().unwrap_or(Path::new("/"));
            vec![dir.join(LIBRARY), dir.join("../lib").join(LIBRARY)]
        }
    };
    let found = places.iter().find_map(|place| place.canonicalize().ok().filter(|place| place.is_file()));
    let Some(found) = found else {
        let places: Vec<String> = places.iter().map(|place| format!("`{}`", place.display())).collect();
        bail!(
            "there is no {LIBRARY} at {}; build it by `cargo xtask nccl`, or give --library FILE",
            places.join(" or ")
        );
    };
    // The loader takes spaces and colons for the ends of names.
    if found.to_string_lossy().contains([' ', ':']) {
        bail!(
            "LD_PRELOAD cannot name `{}`, which has a space or a colon: copy it elsewhere",
            found.display()
        );
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A library that is not there is told with where it was looked for; one that is comes first in both variables.
    #[test]
    fn the_library_is_found_or_told() {
        let error = find(Some(Path::new("/nowhere/libnccl.so.2"))).unwrap_err().to_string();
        assert!(error.contains("/nowhere/libnccl.so.2") && error.contains("cargo xtask nccl"), "{error}");
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(LIBRARY);
        std::fs::write(&file, "").unwrap();
        let set = variables(Some(&file)).unwrap();
        let file = file.canonicalize().unwrap();
        assert!(set[0].1.to_string_lossy().starts_with(file.to_string_lossy().as_ref()));
        assert!(
            set[1]
                .1
                .to_string_lossy()
                .starts_with(dir.path().canonicalize().unwrap().to_string_lossy().as_ref())
        );
        let spaced = dir.path().join("a b");
        std::fs::write(&spaced, "").unwrap();
        assert!(find(Some(&spaced)).unwrap_err().to_string().contains("space"));
    }
}
