//! The cases, and one launch of `ringccl perf`.

use crate::Args;
use anyhow::{Result, ensure};
use ringccl_benches::figures::{bytes_name, parse_bytes, round3};
use ringccl_benches::launch::json_lines;
use ringccl_benches::machine::Neighbours;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::process::Command;
use std::str::FromStr;
use std::time::Duration;

/// Sizes up to this are checked on every rank; the check takes longer than the measurement beyond.
const CHECK_BYTES_MAX: u64 = 1 << 20;

/// One way to run an all-reduce.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) algo: Option<&'static str>,
    pub(crate) proto: Option<&'static str>,
    /// Beyond this the layout's cost per line is far above the others', and grows with the size.
    bytes_max: Option<u64>,
}

const fn case(
    name: &'static str,
    algo: Option<&'static str>,
    proto: Option<&'static str>,
    bytes_max: Option<u64>,
) -> Case {
    Case { name, algo, proto, bytes_max }
}

impl Case {
    /// The three layouts of one algorithm, the algorithms, and what the runtime chooses.
    pub(crate) const ALL: [Self; 6] = [
        case("flat LL", Some("flat"), Some("LL"), Some(4 << 10)),
        case("flat LL128", Some("flat"), Some("LL128"), Some(32 << 10)),
        case("flat Simple", Some("flat"), Some("Simple"), None),
        case("twoshot", Some("twoshot"), None, None),
        case("ring", Some("ring"), None, None),
        case("default", None, None, None),
    ];

    /// The largest size to measure.
    pub(crate) fn largest(&self, all: bool) -> u64 {
        self.bytes_max.filter(|_| !all).unwrap_or(u64::MAX)
    }
}

/// Sizes from `first` to `last`, each `factor` times the one before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    first: u64,
    last: u64,
    factor: u64,
}

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wanted = || format!("`{text}` is not FIRST:LAST:FACTOR, such as 8:2M:4");
        let parts: Vec<&str> = text.split(':').collect();
        let [first, last, factor] = parts[..] else { return Err(wanted()) };
        let span = Self {
            first: parse_bytes(first)?,
            last: parse_bytes(last)?,
            factor: factor.parse().map_err(|_| wanted())?,
        };
        if span.first < 4 || span.first > span.last || span.factor < 2 {
            return Err(format!("`{text}`: sizes go up from 4 bytes, by a factor of at least 2"));
        }
        Ok(span)
    }
}

impl std::fmt::Display for Span {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} to {} bytes", bytes_name(self.first), bytes_name(self.last))
    }
}

impl Span {
    /// The part of it that ends at `largest`.
    pub(crate) fn up_to(&self, largest: u64) -> Option<Self> {
        (self.first <= largest).then(|| Self { last: self.last.min(largest), ..*self })
    }
}

/// What `ringccl perf --json` says of a point, as far as it is used here.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Point {
    pub(crate) bytes: u64,
    pub(crate) inplace: bool,
    pub(crate) time_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) cpu_us: f64,
    pub(crate) wrong: Option<u64>,
    pub(crate) algo: Option<String>,
    pub(crate) proto: Option<String>,
}

/// A point measured once.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Sample {
    pub(crate) case: &'static str,
    pub(crate) ranks: u32,
    pub(crate) round: u32,
    /// Cores that other programs kept busy during the launch.
    pub(crate) foreign_cpus: f64,
    #[serde(flatten)]
    pub(crate) point: Point,
}

impl Sample {
    /// Algorithm and protocol that really ran.
    pub(crate) fn ran(&self) -> String {
        let name = |name: &Option<String>| name.as_deref().unwrap_or("none").to_owned();
        format!("{}/{}", name(&self.point.algo), name(&self.point.proto))
    }
}

/// Launches `ranks` ranks that run `case` over the sizes of `span`.
pub(crate) fn measure(
    ringccl: &Path,
    case: &'static Case,
    ranks: u32,
    span: &Span,
    round: u32,
    args: &Args,
) -> Result<Vec<Sample>> {
    // Enough for a median where an operation is short, and not the whole run where it is long.
    let iters = (64 << 20) / span.last.max(1);
    let iters = iters.clamp(3, 200) * u64::from(args.effort);
    let check = u8::from(span.last <= CHECK_BYTES_MAX);
    let mut command = Command::new(ringccl);
    command.args(["perf", "all_reduce", "--json", "-n", &ranks.to_string()]);
    command.args(["-b", &span.first.to_string(), "-e", &span.last.to_string()]);
    command.args(["-f", &span.factor.to_string(), "-c", &check.to_string()]);
    command.args(["--iters", &iters.to_string(), "-w", &(iters / 10 + 1).to_string()]);
    command.args(["--bind", &args.bind]);
    for (variable, value) in [("RINGCCL_ALGO", case.algo), ("RINGCCL_PROTO", case.proto)] {
        match value {
            Some(value) => command.env(variable, value),
            None => command.env_remove(variable),
        };
    }
    let neighbours = Neighbours::watch()?;
    let points: Vec<Point> = json_lines(&mut command, Duration::from_secs(args.deadline))?;
    let foreign_cpus = round3(neighbours.cores()?);
    ensure!(!points.is_empty(), "ringccl perf printed no point");
    points
        .into_iter()
        .map(|point| {
            ensure_as_asked(case, &point)?;
            Ok(Sample { case: case.name, ranks, round, foreign_cpus, point })
        })
        .collect()
}

/// Figures of something else than what was asked for would be worse than none.
fn ensure_as_asked(case: &Case, point: &Point) -> Result<()> {
    ensure!(point.wrong.unwrap_or(0) == 0, "{} bytes: {:?} wrong elements", point.bytes, point.wrong);
    for (asked, ran) in [(case.algo, &point.algo), (case.proto, &point.proto)] {
        let same = asked.is_none_or(|asked| ran.as_deref() == Some(asked));
        ensure!(same, "{} bytes: {asked:?} was asked for, but {ran:?} ran", point.bytes);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spans are read and clipped; what goes down or nowhere is refused.
    #[test]
    fn spans() {
        let span: Span = "8:2M:4".parse().unwrap();
        assert_eq!(span, Span { first: 8, last: 2 << 20, factor: 4 });
        assert_eq!(span.up_to(1024).map(|s| s.last), Some(1024));
        assert_eq!(span.up_to(u64::MAX), Some(span.clone()));
        assert_eq!(span.up_to(4), None);
        for text in ["", "8", "8:16", "8:16:x", "16:8:2", "8:16:1", "0:8:2", "8:16:2:2"] {
            assert!(text.parse::<Span>().is_err(), "{text}");
        }
    }

    /// A point that ran otherwise than asked for, or wrong, is not taken.
    #[test]
    fn only_what_was_asked_counts() {
        let text = r#"{"bytes":8,"inplace":false,"time_us":0.4,"p99_us":1,"cpu_us":0.8,"wrong":0,
            "algo":"flat","proto":"LL","channels":1}"#;
        let point: Point = serde_json::from_str(text).unwrap();
        let [ll, ll128, ..] = &Case::ALL;
        assert!(ensure_as_asked(ll, &point).is_ok());
        assert!(ensure_as_asked(&Case::ALL[5], &point).is_ok());
        assert!(ensure_as_asked(ll128, &point).unwrap_err().to_string().contains("LL128"));
        let wrong = Point { wrong: Some(2), ..point };
        assert!(ensure_as_asked(ll, &wrong).unwrap_err().to_string().contains("wrong"));
    }
}
