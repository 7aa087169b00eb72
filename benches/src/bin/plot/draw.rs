//! The drawings: all-reduce against bytes and against ranks, each with its floor.

use crate::chart::{Chart, Series};
use crate::points::Point;
use anyhow::{Result, ensure};
use ringccl_benches::figures::bytes_name;
use std::collections::BTreeMap;

/// Sizes of the drawing against ranks.
const SIZES: [u64; 5] = [8, 4 << 10, 256 << 10, 2 << 20, 16 << 20];

/// Files and their texts.
pub(crate) fn drawings(points: &[Point]) -> Result<[(&'static str, String); 2]> {
    let [ours, floor] = all_reduces(points);
    ensure!(!ours.is_empty(), "the record has no groups `allreduce/RANKS`");
    Ok([
        ("all-reduce-bytes.svg", against_bytes(&ours, &floor).svg()),
        ("all-reduce-ranks.svg", against_ranks(&ours, &floor).svg()),
    ])
}

/// Ranks and bytes.
type At = (u64, u64);
/// Times in microseconds.
type Times = BTreeMap<At, f64>;

fn ranks(at: At) -> u64 {
    at.0
}

fn bytes(at: At) -> u64 {
    at.1
}

/// Ours, and the floor: the fastest of all ways to copy as many bytes.
fn all_reduces(points: &[Point]) -> [Times; 2] {
    let (mut ours, mut floor) = (Times::new(), Times::new());
    for point in points {
        let ranks = point.group.strip_prefix("allreduce/").and_then(|ranks| ranks.parse().ok());
        let (Some(ranks), Some(bytes)) = (ranks, point.value) else { continue };
        if point.case == "ringccl" {
            ours.insert((ranks, bytes), point.median_us);
        } else if point.case.starts_with("floor") {
            let least = floor.entry((ranks, bytes)).or_insert(f64::INFINITY);
            *least = least.min(point.median_us);
        }
    }
    [ours, floor]
}

/// What is drawn of `times`: for each key that `key` makes, points at what `x` makes.
fn lines(times: &Times, key: fn(At) -> u64, x: fn(At) -> u64) -> BTreeMap<u64, Vec<(f64, f64)>> {
    let mut lines: BTreeMap<u64, Vec<(f64, f64)>> = BTreeMap::new();
    for (at, time) in times {
        lines.entry(key(*at)).or_default().push((x(*at) as f64, *time));
    }
    lines
}

fn against_bytes(ours: &Times, floor: &Times) -> Chart {
    let name = |ranks| format!("{ranks} ranks");
    let mut ticks: Vec<u64> = ours.keys().map(|at| at.1).collect();
    ticks.sort_unstable();
    ticks.dedup();
    Chart {
        title: "All-reduce of float32, private buffers: time against bytes".into(),
        x_title: "bytes per rank".into(),
        x_ticks: ticks.into_iter().map(|bytes| (bytes as f64, bytes_name(bytes))).collect(),
        series: with_floor(lines(ours, ranks, bytes), lines(floor, ranks, bytes), name),
    }
}

fn against_ranks(ours: &Times, floor: &Times) -> Chart {
    let shown = |times: &Times| -> Times {
        times.iter().filter(|(at, _)| SIZES.contains(&at.1)).map(|(at, time)| (*at, *time)).collect()
    };
    let mut ticks: Vec<u64> = ours.keys().map(|at| at.0).collect();
    ticks.dedup();
    Chart {
        title: "All-reduce of float32, private buffers: time against ranks".into(),
        x_title: "ranks".into(),
        x_ticks: ticks.into_iter().map(|ranks| (ranks as f64, ranks.to_string())).collect(),
        series: with_floor(lines(&shown(ours), bytes, ranks), lines(&shown(floor), bytes, ranks), |bytes| {
            format!("{}B", bytes_name(bytes))
        }),
    }
}

/// Solid lines, each followed by its dashed floor in the same colour.
fn with_floor(
    ours: BTreeMap<u64, Vec<(f64, f64)>>,
    mut floor: BTreeMap<u64, Vec<(f64, f64)>>,
    name: impl Fn(u64) -> String,
) -> Vec<Series> {
    let mut series = Vec::new();
    for (colour, (key, points)) in ours.into_iter().enumerate() {
        series.push(Series { name: name(key), points, colour, dashed: false });
        if let Some(points) = floor.remove(&key) {
            series.push(Series { name: format!("{}: floor", name(key)), points, colour, dashed: true });
        }
    }
    series
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(group: &str, case: &str, bytes: u64, median_us: f64) -> Point {
        Point {
            group: group.into(),
            case: case.into(),
            value: Some(bytes),
            median_us,
            range_us: [median_us; 2],
        }
    }

    /// Each number of ranks is a line against bytes, each size one against ranks; the floor is the fastest copy.
    #[test]
    fn lines_are_sorted_out() {
        let points = [
            point("allreduce/2", "ringccl", 8, 0.5),
            point("allreduce/2", "ringccl", 2 << 20, 300.0),
            point("allreduce/16", "ringccl", 8, 20.0),
            point("allreduce/2", "floor plain", 2 << 20, 250.0),
            point("allreduce/2", "floor non-temporal", 2 << 20, 200.0),
            point("path/2", "ring", 8, 9.0),
        ];
        let [ours, floor] = all_reduces(&points);
        let chart = against_bytes(&ours, &floor);
        let names = |chart: &Chart| chart.series.iter().map(|s| s.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(&chart), ["2 ranks", "2 ranks: floor", "16 ranks"]);
        assert_eq!(chart.series[0].points, [(8.0, 0.5), (2097152.0, 300.0)]);
        assert_eq!((chart.series[1].dashed, &chart.series[1].points[..]), (true, &[(2097152.0, 200.0)][..]));
        let chart = against_ranks(&ours, &floor);
        assert_eq!(names(&chart), ["8B", "2MB", "2MB: floor"]);
        assert_eq!(chart.series[0].points, [(2.0, 0.5), (16.0, 20.0)]);
        assert_eq!(chart.x_ticks, [(2.0, "2".to_owned()), (16.0, "16".to_owned())]);
        assert!(drawings(&points[5..]).is_err());
    }
}
