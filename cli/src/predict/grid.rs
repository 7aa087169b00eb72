//! Predictions for several clusters: other numbers of nodes, other network cards.

use std::fmt::Write as _;

use ::topo::links::Model;
use anyhow::{Context, Result, ensure};

use super::plot::{Axis, Curve, Plot};
use super::source::{Size, Source};
use super::sweep::{bounds, save};
use super::{Args, BYTES_MAX, bytes, operation};

/// Most clusters of a sweep: each needs a search of its own.
const CLUSTERS_MAX: usize = 256;
/// Most nodes of a cluster.
const NODES_MAX: u32 = 1 << 16;
/// Fastest port in 10^6 bits per second.
const MBPS_MAX: u64 = 10_000_000;

/// One cluster, one size.
struct Row {
    size: Size,
    nodes: u32,
    bytes: u64,
    algorithm: &'static str,
    protocol: &'static str,
    tuner_us: f32,
    predicted_us: f64,
    bus_gbps: f64,
    bottleneck: String,
}

/// Writes the two files and says which.
pub(super) fn write(source: &Source, args: &Args) -> Result<String> {
    let nodes = args.sweep_nodes.as_deref().map(numbers).transpose()?;
    let speeds = args.sweep_nic.as_deref().map(speeds).transpose()?;
    let sizes = sizes(args)?;
    let nodes = nodes.map_or(vec![None], |list| list.into_iter().map(Some).collect());
    let speeds = speeds.map_or(vec![None], |list| list.into_iter().map(Some).collect());
    ensure!(
        nodes.len() * speeds.len() <= CLUSTERS_MAX,
        "{} clusters; sweep over at most {CLUSTERS_MAX}",
        nodes.len() * speeds.len()
    );
    let mut rows = Vec::new();
    for &mbps in &speeds {
        for &nodes in &nodes {
            let size = Size { nodes, mbps };
            let model = source.model_of(source.release(), &[], size)?;
            for &bytes in &sizes {
                rows.push(row(&model, args, size, bytes)?);
            }
        }
    }
    let (csv, svg) = args.files();
    let title = format!("{} on {}, NCCL {}", args.collective, source.name(), source.release());
    save(&csv, &table(&rows))?;
    save(&svg, &plot(title.clone(), &rows))?;
    Ok(format!("{title}\n  {} predictions\nwrote {} and {}\n", rows.len(), csv.display(), svg.display()))
}

fn row(model: &Model, args: &Args, size: Size, bytes: u64) -> Result<Row> {
    let operation = operation(model.tuner(), args, bytes);
    let found = model.predict(operation)?;
    let setup = model.tuner().setup();
    let ranks = f64::from(setup.ranks);
    // As nccl-tests has it.
    let on_bus = match operation.collective {
        ::topo::nccl::tuner::Collective::AllReduce => 2.0 * (ranks - 1.0) / ranks,
        one if one.counts_all_ranks() => (ranks - 1.0) / ranks,
        _ => 1.0,
    };
    let named = found.bottleneck().map(|load| &model.links()[load.link]);
    Ok(Row {
        size,
        nodes: setup.nodes,
        bytes: operation.bytes,
        algorithm: found.algorithm.name(),
        protocol: found.protocol.name(),
        tuner_us: found.tuner_us,
        predicted_us: found.total_us,
        bus_gbps: operation.bytes as f64 * on_bus / (1000.0 * found.total_us),
        bottleneck: named.map_or("channels".to_owned(), |link| format!("{}: {}", link.kind, link.name)),
    })
}

/// `1,2,8`, or `1..64` for powers of two between.
fn numbers(text: &str) -> Result<Vec<u32>> {
    let wrong = || {
        format!(
            "--sweep-nodes {text}: write numbers from 1 to {NODES_MAX}, such as 1,2,8, or two of them, 1..64"
        )
    };
    let number = |text: &str| {
        text.trim().parse::<u32>().ok().filter(|nodes| (1..=NODES_MAX).contains(nodes)).with_context(wrong)
    };
    let Some((low, high)) = text.split_once("..") else { return text.split(',').map(number).collect() };
    let (low, high) = (number(low)?, number(high)?);
    ensure!(low <= high, "{}", wrong());
    let mut list: Vec<u32> =
        std::iter::successors(Some(low), |&last| last.checked_mul(2)).take_while(|&n| n < high).collect();
    list.push(high);
    Ok(list)
}

/// `100Gb/s,400Gb/s`, also `100G` and `100`, in 10^6 bits per second.
fn speeds(text: &str) -> Result<Vec<u32>> {
    let one = |text: &str| {
        let bare = text.trim().trim_end_matches("b/s").trim_end_matches("bps").trim_end_matches("bit/s");
        let (digits, unit) = match bare.strip_suffix('M') {
            Some(digits) => (digits, 1.0),
            None => (bare.trim_end_matches('G'), 1000.0),
        };
        let mbps = digits.trim().parse::<f64>().ok().map(|number| number * unit);
        let fits = |mbps: &f64| (1.0..=MBPS_MAX as f64).contains(mbps) && mbps.fract() == 0.0;
        mbps.filter(fits).map(|mbps| mbps as u32).with_context(|| {
            let shown: String = text.chars().take(40).collect();
            format!("--sweep-nic `{shown}`: write speeds such as 100Gb/s,200Gb/s up to 10000Gb/s")
        })
    };
    text.split(',').map(one).collect()
}

/// The size of `--bytes`, or powers of two of `--sweep`.
fn sizes(args: &Args) -> Result<Vec<u64>> {
    if let Some(size) = &args.bytes {
        ensure!(args.sweep.is_none(), "--bytes and --sweep both give sizes; keep one of them");
        let size = bytes("--bytes", size)?;
        ensure!((1..=BYTES_MAX).contains(&size), "--bytes {size}: give 1 byte to 16 TiB");
        return Ok(vec![size]);
    }
    let (low, high) = bounds(args.sweep.as_deref().unwrap_or("8..8G"))?;
    let mut list: Vec<u64> =
        std::iter::successors(Some(low), |&last| Some(last * 2)).take_while(|&size| size < high).collect();
    list.push(high);
    Ok(list)
}

fn table(rows: &[Row]) -> String {
    let mut text =
        String::from("nodes,nic_gbps,bytes,algorithm,protocol,tuner_us,predicted_us,busbw_gbps,bottleneck\n");
    for row in rows {
        let nic = row.size.mbps.map_or(String::new(), |mbps| (f64::from(mbps) / 1000.0).to_string());
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "{},{nic},{},{},{},{:.6},{:.3},{:.3},{}",
            row.nodes,
            row.bytes,
            row.algorithm,
            row.protocol,
            row.tuner_us,
            row.predicted_us,
            row.bus_gbps,
            row.bottleneck
        );
    }
    text
}

/// Times over sizes with a curve for each cluster; of one size, over nodes, or over speeds.
fn plot(title: String, rows: &[Row]) -> String {
    let differ = |pick: fn(&Row) -> u64| rows.windows(2).any(|pair| pick(&pair[0]) != pick(&pair[1]));
    let speed = |row: &Row| f64::from(row.size.mbps.unwrap_or(0)) / 1000.0;
    let of_nodes = |row: &Row| format!("{} node{}", row.nodes, if row.nodes == 1 { "" } else { "s" });
    let of_speed = |row: &Row| row.size.mbps.map_or(String::new(), |_| format!("{} Gb/s", speed(row)));
    if differ(|row| row.bytes) {
        let both = |row: &Row| format!("{} {}", of_nodes(row), of_speed(row)).trim_end().to_owned();
        return curves(title, rows, Axis::Bytes, &|row| row.bytes as f64, &both);
    }
    if differ(|row| row.nodes.into()) {
        return curves(title, rows, Axis::Number(" nodes"), &|row| row.nodes.into(), &of_speed);
    }
    curves(title, rows, Axis::Number(" Gb/s"), &speed, &of_nodes)
}

fn curves(
    title: String,
    rows: &[Row],
    axis: Axis,
    along: &dyn Fn(&Row) -> f64,
    name: &dyn Fn(&Row) -> String,
) -> String {
    let mut curves: Vec<Curve> = Vec::new();
    for row in rows {
        let point = (along(row), row.predicted_us);
        let name = name(row);
        match curves.iter_mut().find(|curve| curve.name == name) {
            Some(curve) => curve.points.push(point),
            None => curves.push(Curve { name, points: vec![point] }),
        }
    }
    let subtitle = "the predicted time".to_owned();
    Plot { title, subtitle, curves, chosen: None, axis }.svg()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_nodes_and_speeds() {
        // Numbers, doubled ranges, units; anything else is refused with the forms.
        assert_eq!(numbers("1,2,8").unwrap(), [1, 2, 8]);
        assert_eq!(numbers("1..24").unwrap(), [1, 2, 4, 8, 16, 24]);
        assert_eq!(numbers("5..5").unwrap(), [5]);
        for text in ["", "0", "8..2", "a", "1,,2", "70000", "1..", "-1"] {
            assert!(numbers(text).unwrap_err().to_string().contains("such as 1,2,8"), "{text}");
        }
        assert_eq!(speeds("100Gb/s,400G,25,2500M").unwrap(), [100_000, 400_000, 25_000, 2500]);
        for text in ["", "fast", "0", "1e9", "100Gb/s,", "nan", "0.0001"] {
            assert!(speeds(text).unwrap_err().to_string().contains("100Gb/s"), "{text}");
        }
    }
}
