//! `ringccl tune`: measures which algorithm is the fastest from which size on, and keeps it for all communicators.
//!
//! ```text
//! ringccl tune -- a job of N ranks for each N -- rank 0: one row of the table --> PART
//!                                                         rows, and those of a file that is there --> tuning.yaml
//! ```

mod fit;
mod measure;

use crate::launch::{self, Job};
use crate::perf::sizes;
use crate::print::print;
use crate::run::place;
use anyhow::{Context, Result, bail, ensure};
use ringccl::settings::{Vars, tuning_file};
use ringccl::{Tuning, TuningRow};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Options of `ringccl tune`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Args {
    /// Numbers of ranks to measure
    #[arg(short = 'n', long, value_delimiter = ',', default_value = "2,4,8,16")]
    #[arg(value_parser = clap::value_parser!(u32).range(2..=i64::from(shmring::layout::MAX_MEMBERS)))]
    ranks: Vec<u32>,
    /// Largest size in bytes; K, M, G are powers of 1024. What is the fastest there is taken for all larger sizes
    #[arg(short = 'e', long = "maxbytes", default_value = "16M")]
    max_bytes: String,
    /// How often every candidate is measured at every size; of the times the median counts
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Where the table is written [default: the file that communicators read, see `ringccl doctor`]
    #[arg(short = 'o', long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print what was measured and write nothing
    #[arg(long)]
    dry_run: bool,
    /// Run as one of the ranks, which leave their row there (set by tune itself)
    #[arg(long, hide = true)]
    part: Option<PathBuf>,
}

pub(crate) fn main(args: Args) -> Result<ExitCode> {
    let max_bytes = sizes::bytes("-e", &args.max_bytes)?;
    ensure!((64..=1 << 30).contains(&max_bytes), "-e {}: from 64 bytes to 1G", args.max_bytes);
    if let Some(part) = &args.part {
        return measure::rank_main(part, max_bytes, args.rounds as usize);
    }
    let file = match args.output.clone() {
        Some(file) => Some(file),
        None => tuning_file(&Vars::of_process())?,
    };
    let file = match file {
        _ if args.dry_run => std::env::temp_dir().join("ringccl-tuning"),
        Some(file) => file,
        None => bail!("neither RINGCCL_TUNING nor HOME says where the table goes: give -o FILE"),
    };
    let earlier = if args.dry_run { vec![] } else { earlier(&file)? };
    let mut rows = Vec::new();
    for &ranks in &args.ranks {
        match measured(&args, ranks, &file)? {
            Ok(row) => rows.push(row),
            Err(code) => return Ok(code),
        }
    }
    let measured = |row: &TuningRow| rows.iter().any(|new| (new.ranks, new.cores) == (row.ranks, row.cores));
    let kept: Vec<TuningRow> = earlier.into_iter().filter(|row| !measured(row)).collect();
    let note = if kept.is_empty() { String::new() } else { format!(", {} earlier rows kept", kept.len()) };
    rows.extend(kept);
    rows.sort_by_key(|row| (row.cores, row.ranks));
    let text = Tuning { machine: machine(), rows }.text().map_err(anyhow::Error::msg)?;
    if args.dry_run {
        print(&text)?;
        return Ok(ExitCode::SUCCESS);
    }
    write(&file, &text)?;
    print(&format!("written to {}{note}\n", file.display()))?;
    Ok(ExitCode::SUCCESS)
}

/// The rows of a file that is there, so that other numbers of ranks, or cores, stay known.
fn earlier(file: &Path) -> Result<Vec<TuningRow>> {
    match fs::read_to_string(file) {
        Ok(text) => {
            let table = Tuning::parse(&text).map_err(|why| {
                anyhow::anyhow!(
                    "{} is there and is no table: {why}; remove it, or give -o FILE",
                    file.display()
                )
            })?;
            Ok(table.rows)
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(vec![]),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", file.display())),
    }
}

/// Runs a job of `ranks` ranks and reads the row that it leaves; `Err` is the exit code of one that has failed, which
/// has said why.
fn measured(args: &Args, ranks: u32, file: &Path) -> Result<Result<TuningRow, ExitCode>> {
    make_folder(file)?;
    let part = Part(with_suffix(file, &format!("{}.part", std::process::id())));
    let program = std::env::current_exe().context("cannot find the program's own file")?;
    let mut command =
        vec![program.into_os_string(), "tune".into(), "-e".into(), args.max_bytes.clone().into()];
    command.extend([
        "--rounds".into(),
        args.rounds.to_string().into(),
        "--part".into(),
        part.0.clone().into(),
    ]);
    let mut job = Job::new(command, place(ranks, None));
    job.prefix = false;
    job.ranks_explain = true;
    // Two ranks that happen to share a core would be no measure of the others.
    job.env.push(("RINGCCL_BIND".into(), "even".into()));
    let code = launch::launch(&job)?;
    let text = match fs::read_to_string(&part.0) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Err(code.into())),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", part.0.display())),
    };
    let table = Tuning::parse(&text).map_err(anyhow::Error::msg).context("the ranks have left no row")?;
    let row = table.rows.into_iter().next().context("the ranks have left no row")?;
    Ok(Ok(row))
}

/// A file that is removed when this is dropped.
struct Part(PathBuf);

impl Drop for Part {
    fn drop(&mut self) {
        // It may never have been made.
        let _ = fs::remove_file(&self.0);
    }
}

fn make_folder(file: &Path) -> Result<()> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    let Some(folder) = folder else { return Ok(()) };
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))
}

/// Replaces the file at once: who reads it meanwhile has the old one or the new one.
fn write(file: &Path, text: &str) -> Result<()> {
    let new = Part(with_suffix(file, &format!("{}.new", std::process::id())));
    fs::write(&new.0, text).with_context(|| format!("cannot write {}", new.0.display()))?;
    fs::rename(&new.0, file).with_context(|| format!("cannot write {}", file.display()))
}

fn with_suffix(file: &Path, suffix: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".");
    name.push(suffix);
    name.into()
}

/// What the machine is called in the table.
fn machine() -> String {
    let cores = shmring::wait::usable_cores();
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let model = model.map_or(String::new(), |(_, model)| format!(", {}", model.trim()));
    format!("{cores} cores{model}")
}
