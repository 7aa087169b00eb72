//! How subcommands print what they have to say: all of it, or until nobody reads it any more.

use std::io::{self, ErrorKind, Write};

use anyhow::{Context, Result};

/// Prints `text` on standard output, at once.
///
/// A reader that has gone, such as `head`, has seen enough: nothing is said of that, and the exit code is what it
/// would have been.
pub(crate) fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.context("cannot write to standard output"),
    }
}
