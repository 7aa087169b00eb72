//! `plot`: makes a record of the results that criterion has left, tables and drawings of a record.
//!
//! ```text
//! target/criterion/staging_*/  --collect-->  benches/record/MACHINE/DATE-staging.csv  --tables-->  Markdown
//!                                                                                     --draw---->  docs/plots/*.svg
//! ```

mod chart;
mod collect;
mod draw;
mod points;
mod tables;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Records, tables and drawings of the suite `staging`.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Remove what criterion has left of the suite, so that a record has nothing of before
    Clear {
        /// Criterion's folder; the one beside this program's by default
        #[arg(long, value_name = "DIR")]
        criterion: Option<PathBuf>,
    },
    /// Write what criterion has left to a record
    Collect {
        /// Criterion's folder; the one beside this program's by default
        #[arg(long, value_name = "DIR")]
        criterion: Option<PathBuf>,
        /// The record; what was in it goes
        #[arg(long, value_name = "FILE")]
        csv: PathBuf,
    },
    /// Print a record as Markdown tables
    Tables {
        /// The record
        #[arg(long, value_name = "FILE")]
        csv: PathBuf,
    },
    /// Draw a record: time against bytes and against ranks, both axes logarithmic
    Draw {
        /// The record
        #[arg(long, value_name = "FILE")]
        csv: PathBuf,
        /// Where the drawings go
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
}

fn main() -> ExitCode {
    match execute(&Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn execute(command: &Command) -> Result<()> {
    match command {
        Command::Clear { criterion } => collect::clear(&criterion.clone().map_or_else(beside, Ok)?)?,
        Command::Collect { criterion, csv } => {
            let folder = criterion.clone().map_or_else(beside, Ok)?;
            let points = collect::points(&folder)?;
            write(csv, &points::to_csv(&points, &points::origin()))?;
            println!("{} points in {}", points.len(), csv.display());
        }
        Command::Tables { csv } => print!("{}", tables::markdown(&read(csv)?)),
        Command::Draw { csv, out } => {
            for (name, drawing) in draw::drawings(&read(csv)?)? {
                let path = out.join(name);
                write(&path, &drawing)?;
                println!("{}", path.display());
            }
        }
    }
    Ok(())
}

fn read(csv: &Path) -> Result<Vec<points::Point>> {
    let text = std::fs::read_to_string(csv).with_context(|| format!("cannot read `{}`", csv.display()))?;
    points::from_csv(&text).with_context(|| format!("`{}` is no record of this suite", csv.display()))
}

fn write(path: &Path, text: &str) -> Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make `{}`", folder.display()))?;
    }
    std::fs::write(path, text).with_context(|| format!("cannot write `{}`", path.display()))
}

/// Criterion's folder of the build that this program is of.
fn beside() -> Result<PathBuf> {
    let own = std::env::current_exe().context("cannot find this program's own file")?;
    let target = own.ancestors().nth(2).context("this program is in no target folder")?;
    Ok(target.join("criterion"))
}
