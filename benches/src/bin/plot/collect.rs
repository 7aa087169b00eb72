//! Reads what criterion leaves: `GROUP/CASE/VALUE/new/` with `benchmark.json` and `estimates.json`.

use crate::points::Point;
use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use std::path::Path;

/// The suite that records are made of.
const SUITE: &str = "staging/";
/// Folders within criterion's: a group, a case, a value, `new`. None is deeper.
const DEPTH: usize = 5;

/// What of `benchmark.json` counts.
#[derive(Debug, Deserialize)]
struct Benchmark {
    group_id: String,
    function_id: Option<String>,
    value_str: Option<String>,
}

/// What of `estimates.json` counts; nanoseconds.
#[derive(Debug, Deserialize)]
struct Estimates {
    median: Estimate,
}

#[derive(Debug, Deserialize)]
struct Estimate {
    point_estimate: f64,
    confidence_interval: Interval,
}

#[derive(Debug, Deserialize)]
struct Interval {
    lower_bound: f64,
    upper_bound: f64,
}

/// Removes the suite's results, if there are any.
pub(crate) fn clear(folder: &Path) -> Result<()> {
    if !folder.is_dir() {
        return Ok(());
    }
    for entry in std::fs::read_dir(folder).with_context(|| format!("cannot read `{}`", folder.display()))? {
        let path = entry?.path();
        // Criterion names a group's folder after it, with `_` for what no name of a file may have.
        let is_ours =
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&SUITE.replace('/', "_")));
        if is_ours && path.is_dir() {
            std::fs::remove_dir_all(&path).with_context(|| format!("cannot remove `{}`", path.display()))?;
        }
    }
    Ok(())
}

/// The points of the suite under criterion's folder, in order.
pub(crate) fn points(folder: &Path) -> Result<Vec<Point>> {
    let mut points = Vec::new();
    visit(folder, DEPTH, &mut points)?;
    ensure!(!points.is_empty(), "no results of the suite in `{}`: run it first", folder.display());
    points.sort_by(|a: &Point, b: &Point| (&a.group, &a.case, a.value).cmp(&(&b.group, &b.case, b.value)));
    Ok(points)
}

fn visit(folder: &Path, depth: usize, points: &mut Vec<Point>) -> Result<()> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("cannot read `{}`", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        if depth == 0 || !path.is_dir() {
            continue;
        }
        let files = ["benchmark.json", "estimates.json"].map(|name| path.join(name));
        if path.ends_with("new") && files.iter().all(|file| file.is_file()) {
            let [benchmark, estimates] = files.map(|file| {
                std::fs::read_to_string(&file).with_context(|| format!("cannot read `{}`", file.display()))
            });
            let found = point(&benchmark?, &estimates?);
            points.extend(found.with_context(|| format!("in `{}`", path.display()))?);
        } else {
            visit(&path, depth - 1, points)?;
        }
    }
    Ok(())
}

/// The point of two files, or none if it is another suite's.
fn point(benchmark: &str, estimates: &str) -> Result<Option<Point>> {
    let Benchmark { group_id, function_id, value_str } =
        serde_json::from_str(benchmark).context("benchmark.json has another form")?;
    let Some(group) = group_id.strip_prefix(SUITE) else { return Ok(None) };
    let Estimates { median } = serde_json::from_str(estimates).context("estimates.json has another form")?;
    let value =
        value_str.map(|text| text.parse().with_context(|| format!("the value `{text}` is no number")));
    let case = function_id.unwrap_or_default();
    ensure!(![group, &case].iter().any(|name| name.contains([',', '\n'])), "a comma in a name of a case");
    let Interval { lower_bound, upper_bound } = median.confidence_interval;
    Ok(Some(Point {
        group: group.to_owned(),
        case,
        value: value.transpose()?,
        median_us: median.point_estimate / 1e3,
        range_us: [lower_bound / 1e3, upper_bound / 1e3],
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ESTIMATES: &str = r#"{"mean":{"point_estimate":9.0},"median":{"confidence_interval":
        {"confidence_level":0.95,"lower_bound":1000.0,"upper_bound":3000.0},
        "point_estimate":2000.0,"standard_error":1.0}}"#;

    /// Results of this suite are found wherever they are, in order, and those of others are left.
    #[test]
    fn results_are_found() {
        let root = std::env::temp_dir().join(format!("ringccl-plot-{}", std::process::id()));
        for (folder, name) in [
            ("b/case/64/new", r#"{"group_id":"staging/b","function_id":"case","value_str":"64"}"#),
            ("b/case/8/new", r#"{"group_id":"staging/b","function_id":"case","value_str":"8"}"#),
            ("b/case/8/base", r#"{"group_id":"staging/b","function_id":"case","value_str":"8"}"#),
            ("a/spin/new", r#"{"group_id":"staging/a","function_id":"spin","value_str":null}"#),
            ("cost/x/new", r#"{"group_id":"cost","function_id":"x","value_str":null}"#),
        ] {
            let folder = root.join(folder);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("benchmark.json"), name).unwrap();
            std::fs::write(folder.join("estimates.json"), ESTIMATES).unwrap();
        }
        let found = points(&root).unwrap();
        std::fs::rename(root.join("b"), root.join("staging_b")).unwrap();
        clear(&root).unwrap();
        let left = points(&root).unwrap();
        std::fs::remove_dir_all(&root).unwrap();
        let names: Vec<_> = found.iter().map(|p| (p.group.as_str(), p.case.as_str(), p.value)).collect();
        assert_eq!(names, [("a", "spin", None), ("b", "case", Some(8)), ("b", "case", Some(64))]);
        assert_eq!(left, found[..1], "only folders named after the suite go");
        assert_eq!((found[0].median_us, found[0].range_us), (2.0, [1.0, 3.0]));
    }

    /// Files of another form, and no results, are errors that say so.
    #[test]
    fn nonsense_is_refused() {
        let text =
            |benchmark: &str, estimates: &str| format!("{:#}", point(benchmark, estimates).unwrap_err());
        let name = r#"{"group_id":"staging/b","function_id":"case","value_str":"64"}"#;
        assert!(text("{}", ESTIMATES).contains("benchmark.json has another form"));
        assert!(text(name, "{}").contains("estimates.json has another form"));
        assert!(text(&name.replace("64", "x"), ESTIMATES).contains("`x` is no number"));
        assert!(text(&name.replace("case", "a,b"), ESTIMATES).contains("a comma"));
        assert!(points(Path::new("/no/such")).is_err());
    }
}
