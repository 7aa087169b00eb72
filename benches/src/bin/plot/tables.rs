//! Tables of a record: a line per value, a column per case; times in microseconds.

use crate::points::Point;
use ringccl_benches::figures::{bytes_name, short};
use std::collections::{BTreeMap, BTreeSet};

/// All groups as Markdown.
pub(crate) fn markdown(points: &[Point]) -> String {
    let mut groups: BTreeMap<&str, Vec<&Point>> = BTreeMap::new();
    for point in points {
        groups.entry(&point.group).or_default().push(point);
    }
    groups.iter().map(|(name, points)| format!("### {name}\n\n{}\n", table(points))).collect()
}

fn table(points: &[&Point]) -> String {
    let cases: BTreeSet<&str> = points.iter().map(|point| point.case.as_str()).collect();
    let values: BTreeSet<Option<u64>> = points.iter().map(|point| point.value).collect();
    let find = |value, case: &str| points.iter().find(|point| point.value == value && point.case == case);
    let mut text = String::from("| |");
    text.extend(cases.iter().map(|case| format!(" {} |", if case.is_empty() { "us" } else { case })));
    text += &format!("\n|{}\n", " --- |".repeat(cases.len() + 1));
    for value in values {
        text += &format!("| {} |", value.map_or("us".into(), bytes_name));
        text.extend(
            cases.iter().map(|case| format!(" {} |", short(find(value, case).map(|point| point.median_us)))),
        );
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values are lines in ascending order, cases columns, and what was not measured a dash.
    #[test]
    fn tables_are_sorted() {
        let point = |case: &str, value, median_us| Point {
            group: "g".into(),
            case: case.into(),
            value,
            median_us,
            range_us: [median_us; 2],
        };
        let points = [point("b", Some(8192), 20.0), point("a", Some(8), 0.5), point("b", Some(8), 1.0)];
        assert_eq!(
            markdown(&points),
            "### g\n\n| | a | b |\n| --- | --- | --- |\n| 8 | 0.500 | 1.00 |\n| 8K | - | 20.0 |\n\n"
        );
        assert_eq!(markdown(&[point("", None, 3.0)]), "### g\n\n| | us |\n| --- | --- |\n| us | 3.00 |\n\n");
    }
}
