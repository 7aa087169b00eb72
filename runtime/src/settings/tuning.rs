//! Where the table of the user's machine is, and reading it.

use super::env::Vars;
use super::table::TUNING;
use crate::error::Error;
use crate::plan::Tuning;
use crate::task::cores;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The value of `RINGCCL_TUNING` with which the table that is built in counts.
pub const NO_TABLE: &str = "none";

/// Most bytes of a table: some hundred times those of a usual one.
const LARGEST: u64 = 1 << 20;

/// The file that `ringccl tune` writes and communicators read: that of `RINGCCL_TUNING`, or the one in the user's
/// directory of settings. `None` where neither is known, or no file is to be read.
///
/// # Errors
/// [`Error::Setting`] for a bad path.
pub fn tuning_file(vars: &Vars) -> Result<Option<PathBuf>, Error> {
    let given = TUNING.get(vars)?;
    Ok(given.or_else(|| in_home(vars)).filter(|path| path.as_os_str() != NO_TABLE))
}

/// The file in the user's directory of settings, if it is there.
pub(super) fn standard_file(vars: &Vars) -> Option<PathBuf> {
    in_home(vars).filter(|path| path.is_file())
}

fn in_home(vars: &Vars) -> Option<PathBuf> {
    let own = vars.get("XDG_CONFIG_HOME").map(PathBuf::from);
    let config = own.or_else(|| vars.get("HOME").map(|home| Path::new(home).join(".config")))?;
    config.is_absolute().then(|| config.join("ringccl").join("tuning.yaml"))
}

/// Reads the table, and leaves what was measured with as many cores as there are.
pub(super) fn load(path: &Path) -> Result<Tuning, String> {
    // Opening a pipe would wait for its writer.
    let is_file = path.metadata().map_err(|cause| cause.to_string())?.is_file();
    if !is_file {
        return Err("this is no regular file".into());
    }
    let mut text = String::new();
    let file = File::open(path).map_err(|cause| cause.to_string())?;
    file.take(LARGEST + 1).read_to_string(&mut text).map_err(|cause| cause.to_string())?;
    if text.len() as u64 > LARGEST {
        return Err(format!("it has more than {LARGEST} bytes"));
    }
    Ok(Tuning::parse(&text)?.for_cores(cores() as u32))
}
