//! What can be wrong with a cluster file.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// One thing to mend in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Line of the field, or of the nearest thing around it that has one; from 1.
    pub line: Option<usize>,
    /// The field, such as `nodes[1].ranks`; empty if the whole file is meant.
    pub field: String,
    /// What is wrong, and what to do.
    pub message: String,
}

/// Why a cluster file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cluster file `{}`: {cause}; check the path and its permissions", .path.display())]
    Read {
        /// The file as it was named.
        path: PathBuf,
        /// Answer of the system.
        cause: io::Error,
    },
    /// The path names a directory, a pipe or a device.
    #[error("cluster file `{}`: this is {what}; name a YAML file", .path.display())]
    NotAFile {
        /// The path as it was named.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
    /// The file is far larger than any cluster.
    #[error("cluster file `{}`: more than {limit} bytes; is this the right file?", .path.display())]
    TooLarge {
        /// The file as it was named.
        path: PathBuf,
        /// Largest size in bytes.
        limit: u64,
    },
    /// The file says something that it must not say; all problems are listed.
    #[error("{}", Listing(.path, .problems))]
    Invalid {
        /// The file as it was named.
        path: PathBuf,
        /// At least one problem, in the order of the file's lines.
        problems: Vec<Problem>,
    },
    /// A job has another number of ranks than the file.
    #[error(
        "the job has {ranks} ranks, but cluster file `{}` describes {described}; start {described} ranks, or use a \
         file for {ranks}", .path.display()
    )]
    WorldSize {
        /// The file as it was named.
        path: PathBuf,
        /// Ranks of the job.
        ranks: u32,
        /// Ranks of the file.
        described: u32,
    },
}

impl ConfigError {
    /// The problems found in the file's text; empty if the text could not be had.
    pub fn problems(&self) -> &[Problem] {
        match self {
            Self::Invalid { problems, .. } => problems,
            _ => &[],
        }
    }
}

/// One line per problem, each in the form `file:line: field: message` that editors can follow.
struct Listing<'a>(&'a PathBuf, &'a [Problem]);

impl fmt::Display for Listing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(path, problems) = *self;
        if problems.len() > 1 {
            writeln!(f, "cluster file `{}` has {} problems:", path.display(), problems.len())?;
        }
        for (i, Problem { line, field, message }) in problems.iter().enumerate() {
            let newline = if i == 0 { "" } else { "\n" };
            write!(f, "{newline}{}:", path.display())?;
            if let Some(line) = line {
                write!(f, "{line}:")?;
            }
            if !field.is_empty() {
                write!(f, " {field}:")?;
            }
            write!(f, " {message}")?;
        }
        Ok(())
    }
}
