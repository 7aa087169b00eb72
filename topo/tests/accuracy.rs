//! The figures of `docs/accuracy.md`, computed from `testdata/accuracy/measured.tsv` and compared with the page.
//!
//! `ACCURACY_UPDATE=1 cargo test -p topo --test accuracy` writes them anew; review them as code.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use topo::links::{Calibration, Fabric, Model, Site};
use topo::nccl::profiles;
use topo::nccl::tuner::{Environment, Operation};

const BEGIN: &str = "<!-- figures: begin -->\n";
const END: &str = "<!-- figures: end -->\n";

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// Rows of the file of measurements: machine, profile, nodes, release, collective, bytes, microseconds.
fn rows(text: &str) -> Vec<[&str; 7]> {
    let row = |line: &'_ str| -> Vec<String> { line.split('\t').map(str::to_owned).collect() };
    let whole = text.lines().skip(1).all(|line| row(line).len() == 7);
    assert!(whole, "every row has seven columns");
    text.lines().skip(1).map(|line| std::array::from_fn(|i| line.split('\t').nth(i).unwrap())).collect()
}

/// A size as people write it.
fn size(bytes: u64) -> String {
    match bytes.ilog2() / 10 {
        0 => format!("{bytes} B"),
        1 => format!("{} KiB", bytes >> 10),
        2 => format!("{} MiB", bytes >> 20),
        _ => format!("{} GiB", bytes >> 30),
    }
}

/// The tables, one for each machine.
fn figures(text: &str) -> String {
    let mut page = String::new();
    for alike in rows(text).chunk_by(|a, b| a[0] == b[0]) {
        let [machine, profile, nodes, nccl, collective, ..] = alike[0];
        let site = Site {
            node: profiles::find(profile).unwrap(),
            nodes: nodes.parse().unwrap(),
            fabric: Fabric::default(),
        };
        let model =
            Model::of_site(&site, nccl.parse().unwrap(), Environment::default(), Calibration::default())
                .unwrap();
        let of_nodes = if nodes == "1" { String::new() } else { format!(" --nodes {nodes}") };
        writeln!(
            page,
            "\n### {machine}\n\n`ringccl predict --profile {profile}{of_nodes} --nccl {nccl} --bytes SIZE`, \
             {collective}\n"
        )
        .unwrap();
        page.push_str("| size | choice | tuner us | predicted us | measured us | ");
        page.push_str("tuner / measured | predicted / measured |\n");
        page.push_str("| ---: | --- | ---: | ---: | ---: | ---: | ---: |\n");
        for row in alike {
            let (bytes, measured): (u64, f64) = (row[5].parse().unwrap(), row[6].parse().unwrap());
            let found = model.predict(Operation::new(collective.parse().unwrap(), bytes)).unwrap();
            let tuner = f64::from(found.tuner_us);
            writeln!(
                page,
                "| {} | {} {} | {tuner:.1} | {:.1} | {} | {:.2} | {:.2} |",
                size(bytes),
                found.algorithm,
                found.protocol,
                found.total_us,
                row[6],
                tuner / measured,
                found.total_us / measured
            )
            .unwrap();
        }
    }
    page
}

#[test]
fn the_page_has_the_figures_that_the_model_gives() {
    // Every row of every table, from the data; the page cannot say anything else.
    let measured = fs::read_to_string(path("testdata/accuracy/measured.tsv")).unwrap();
    let page_path = path("../docs/accuracy.md");
    let page = fs::read_to_string(&page_path).unwrap();
    let (before, rest) = page.split_once(BEGIN).unwrap();
    let (_, after) = rest.split_once(END).unwrap();
    let expected = format!("{before}{BEGIN}{}\n{END}{after}", figures(&measured));
    if std::env::var_os("ACCURACY_UPDATE").is_some() {
        fs::write(&page_path, &expected).unwrap();
    }
    assert_eq!(
        fs::read_to_string(&page_path).unwrap(),
        expected,
        "ACCURACY_UPDATE=1 writes the figures anew"
    );
}

#[test]
fn the_page_has_the_constants_that_the_model_uses() {
    // Each constant of the calibration is in the page's table with its value.
    let page = fs::read_to_string(path("../docs/accuracy.md")).unwrap();
    let numbers = Calibration::default();
    let list = |numbers: &[f64]| numbers.iter().map(f64::to_string).collect::<Vec<_>>().join(", ");
    for (name, value) in [
        ("launch_floor_us", numbers.launch_floor_us.to_string()),
        ("start_us", numbers.start_us.to_string()),
        ("nvlink_step_us", list(&numbers.nvlink_step_us)),
        ("nvlink_step_factor", list(&numbers.nvlink_step_factor)),
        ("pcie_step_us", list(&numbers.pcie_step_us)),
        ("net_step_us", list(&numbers.net_step_us)),
        ("nvls_start_us", numbers.nvls_start_us.to_string()),
        ("nvlink_part", list(&numbers.nvlink_part)),
        ("nvls_part", list(&numbers.nvls_part)),
        ("pcie_part", numbers.pcie_part.to_string()),
        ("host_part", numbers.host_part.to_string()),
        ("socket_part", numbers.socket_part.to_string()),
        ("nic_part", list(&numbers.nic_part)),
        ("channel_gbps", list(&numbers.channel_gbps)),
        ("channel_ll_gbps", list(&numbers.channel_ll_gbps)),
        ("host_channel_gbps", numbers.host_channel_gbps.to_string()),
        ("nvls_channel_gbps", numbers.nvls_channel_gbps.to_string()),
        ("protocol_part", list(&numbers.protocol_part)),
    ] {
        let row = format!("| `{name}` | {value} |");
        assert!(page.contains(&row), "the page lacks {row}");
    }
}
