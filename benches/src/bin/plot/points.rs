//! What was measured, and the record of it.

use anyhow::{Context, Result, ensure};
use ringccl_benches::figures::round3;
use ringccl_benches::machine::{describe, said};

const COLUMNS: &str = "date,machine,cores,kernel,compiler,commit,group,case,value,median_us,low_us,high_us";
/// Columns behind those that say where the record was made; of these, none has a comma.
const OWN_COLUMNS: usize = 6;

/// One case of the suite.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Point {
    /// The group's name, without the suite's.
    pub(crate) group: String,
    /// What was compared within the group; empty where only values are.
    pub(crate) case: String,
    /// Bytes, or slots.
    pub(crate) value: Option<u64>,
    /// Median time of one iteration in microseconds.
    pub(crate) median_us: f64,
    /// The interval in which the median is, with 95 % confidence.
    pub(crate) range_us: [f64; 2],
}

/// Where and when a record is made: its first columns.
pub(crate) fn origin() -> String {
    let date = said("date", &["+%Y-%m-%d"]);
    // No quotes are needed without commas.
    std::iter::once(date)
        .chain(describe())
        .map(|text| text.replace([',', '"', '\n'], " "))
        .collect::<Vec<_>>()
        .join(",")
}

/// The record of these points.
pub(crate) fn to_csv(points: &[Point], origin: &str) -> String {
    let mut text = format!("{COLUMNS}\n");
    for Point { group, case, value, median_us, range_us } in points {
        let value = value.map_or(String::new(), |value| value.to_string());
        let [low, high] = range_us.map(round3);
        text += &format!("{origin},{group},{case},{value},{},{low},{high}\n", round3(*median_us));
    }
    text
}

/// The points of a record.
pub(crate) fn from_csv(text: &str) -> Result<Vec<Point>> {
    let mut lines = text.lines();
    let first = lines.next().unwrap_or_default();
    ensure!(first == COLUMNS, "the first line is `{first}`, not `{COLUMNS}`");
    let points = (2..)
        .zip(lines)
        .map(|(number, line)| point(line).with_context(|| format!("line {number}: `{line}`")));
    points.collect()
}

fn point(line: &str) -> Result<Point> {
    let fields: Vec<&str> = line.rsplitn(OWN_COLUMNS + 1, ',').collect();
    let [high, low, median, value, case, group, _origin] = fields[..] else {
        anyhow::bail!("fewer than {} fields", OWN_COLUMNS + 1)
    };
    let time = |text: &str| -> Result<f64> {
        let time: f64 = text.parse().with_context(|| format!("`{text}` is no time"))?;
        ensure!(time.is_finite() && time >= 0.0, "`{text}` is no time");
        Ok(time)
    };
    let number = |text: &str| text.parse().with_context(|| format!("`{text}` is no number"));
    let value = if value.is_empty() { None } else { Some(number(value)?) };
    let (group, case) = (group.to_owned(), case.to_owned());
    Ok(Point { group, case, value, median_us: time(median)?, range_us: [time(low)?, time(high)?] })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record is read as it was written, whatever the machine is called.
    #[test]
    fn records_come_back() {
        let named = Point {
            group: "path/2".into(),
            case: "ring".into(),
            value: Some(65536),
            median_us: 12.5,
            range_us: [12.0, 13.125],
        };
        let bare = Point { case: String::new(), value: None, ..named.clone() };
        let points = vec![named, bare];
        assert_eq!(from_csv(&to_csv(&points, "2026-01-31,a, b")).unwrap(), points);
        assert_eq!(origin().split(',').count(), COLUMNS.split(',').count() - OWN_COLUMNS);
    }

    /// What is no record is refused with the line that is not one.
    #[test]
    fn others_are_refused() {
        let text = |body: &str| format!("{:#}", from_csv(&format!("{COLUMNS}\n{body}")).unwrap_err());
        assert!(from_csv("a,b\n").unwrap_err().to_string().contains("the first line is `a,b`"));
        assert!(text("1,2,3").contains("line 2: `1,2,3`: fewer than 7 fields"));
        assert!(text("m,g,c,8,x,1,1").contains("`x` is no time"));
        assert!(text("m,g,c,8,inf,1,1").contains("`inf` is no time"));
        assert!(text("m,g,c,8.5,1,1,1").contains("`8.5` is no number"));
    }
}
