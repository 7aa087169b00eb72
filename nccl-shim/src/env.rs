//! The variables under which the library runs: the environment, then NCCL's files of variables.
//!
//! ```text
//!  environment   counts more than   NCCL_CONF_FILE, or else ~/.nccl.conf   counts more than   /etc/nccl.conf
//! ```
//!
//! *Source*: precedence and syntax as NCCL 2.30's guide has them: one NAME=VALUE a line, cut at the first `=`, nothing
//! trimmed, `#` in the first column begins a comment.

use crate::log::{self, Subsys};
use ringccl::settings::Vars;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Longest line of a file, and longest name or value in it.
const LINE_MAX: usize = 4095;
const WORD_MAX: usize = 1023;
/// Most bytes that are read of a file.
const FILE_MAX: u64 = 1 << 20;

/// The variables now. The files are read once.
pub(crate) fn vars() -> Vars {
    let process = Vars::of_process();
    let files = files(&process);
    if files.is_empty() {
        return process;
    }
    let own = process.names().filter_map(|name| Some((name.to_owned(), process.get(name)?.to_owned())));
    let own: Vec<(String, OsString)> = own.collect();
    Vars::from_pairs(files.iter().cloned().chain(own))
}

/// What the files say, the least important first.
fn files(process: &Vars) -> &'static [(String, OsString)] {
    static FILES: OnceLock<Vec<(String, OsString)>> = OnceLock::new();
    FILES.get_or_init(|| {
        let user = match process.get("NCCL_CONF_FILE") {
            Some(path) => Some(PathBuf::from(path)),
            None => process.get("HOME").map(|home| Path::new(home).join(".nccl.conf")),
        };
        let mut pairs = read(Path::new("/etc/nccl.conf"));
        pairs.extend(user.map(|path| read(&path)).unwrap_or_default());
        pairs
    })
}

fn read(path: &Path) -> Vec<(String, OsString)> {
    let mut text = Vec::new();
    let is_read = File::open(path).and_then(|file| file.take(FILE_MAX).read_to_end(&mut text)).is_ok();
    if is_read { parse(&String::from_utf8_lossy(&text)) } else { Vec::new() }
}

/// The pairs of a file; of a name that is there twice the first counts, so it comes last.
fn parse(text: &str) -> Vec<(String, OsString)> {
    let pair = |line: &str| {
        let line = line.strip_suffix('\r').unwrap_or(line);
        let (name, value) = line.split_once('=')?;
        let fits = line.len() <= LINE_MAX && name.len() <= WORD_MAX && value.len() <= WORD_MAX;
        (fits && !line.starts_with('#')).then(|| (name.to_owned(), OsString::from(value)))
    };
    let mut pairs: Vec<_> = text.lines().filter_map(pair).collect();
    pairs.reverse();
    pairs
}

/// A variable as text.
pub(crate) fn text(vars: &Vars, name: &str) -> Option<String> {
    vars.get(name).map(|value| value.to_string_lossy().into_owned())
}

/// A whole number as NCCL reads it (`12`, `-1`, `0x1f`, `017`); a value that is none is warned about and not used.
pub(crate) fn number(vars: &Vars, name: &'static str) -> Option<i64> {
    let text = text(vars, name)?;
    match integer(&text) {
        Some(number) => {
            if first_time(name) {
                log::info(Subsys::ENV, 0, format_args!("{name} set by environment to {number}."));
            }
            Some(number)
        }
        None => {
            if first_time(name) {
                log::warn(&format!(
                    "{name}={text} is not a whole number (as 12, -1, 0x1f or 017); the default is used"
                ));
            }
            None
        }
    }
}

/// A number within limits; one outside is warned about and not used.
pub(crate) fn number_in(vars: &Vars, name: &'static str, least: i64, most: i64) -> Option<i64> {
    let number = number(vars, name)?;
    let fits = (least..=most).contains(&number);
    if !fits && first_time(name) {
        log::warn(&format!("{name}={number} is not from {least} to {most}; the default is used"));
    }
    fits.then_some(number)
}

fn first_time(name: &'static str) -> bool {
    static TOLD: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    TOLD.lock().unwrap_or_else(PoisonError::into_inner).insert(name)
}

fn integer(text: &str) -> Option<i64> {
    let text = text.trim();
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let magnitude = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => i64::from_str_radix(&digits[2..], 16),
        [b'0', _, ..] => i64::from_str_radix(&digits[1..], 8),
        _ if digits.starts_with(['+', '-']) => return None,
        _ => digits.parse(),
    };
    magnitude.ok().filter(|value| *value >= 0).map(|value| sign * value)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files are read as NCCL reads them: first `=`, first name, comments in column one only.
    #[test]
    fn files_are_read_as_nccl_reads_them() {
        let pairs = parse("# no\nNCCL_A=1\r\nNCCL_SOCKET_IFNAME==eth0\nnothing\n #NCCL_B=2\nNCCL_A=3\n");
        let vars = Vars::from_pairs(pairs);
        assert_eq!(text(&vars, "NCCL_A").as_deref(), Some("1"));
        assert_eq!(text(&vars, "NCCL_SOCKET_IFNAME").as_deref(), Some("=eth0"));
        assert_eq!(text(&vars, " #NCCL_B").as_deref(), Some("2"));
        assert_eq!(text(&vars, "nothing"), None);
        assert!(parse(&format!("NCCL_LONG={}", "x".repeat(5000))).is_empty());
    }

    /// Numbers in the three bases, and what is none.
    #[test]
    fn numbers_have_three_bases() {
        for (text, value) in [("12", 12), ("-3", -3), ("0x1F", 31), ("017", 15), ("0", 0), (" 5 ", 5)] {
            assert_eq!(integer(text), Some(value), "{text}");
        }
        for text in ["", "x", "0x", "08", "1.5", "--1", "99999999999999999999", "1k"] {
            assert_eq!(integer(text), None, "{text}");
        }
    }
}
