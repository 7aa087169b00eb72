//! `ringccl predict`: the line, the reasons, comparisons, files, sweeps, and what is refused.

mod common;

use common::{output, ringccl, text};
use std::fs;
use std::path::Path;
use std::process::Output;

fn predict(arguments: &[&str]) -> Output {
    let mut command = ringccl();
    command.arg("predict").args(arguments).env_clear().current_dir(env!("CARGO_MANIFEST_DIR"));
    output(command)
}

/// What it prints; it must succeed.
fn says(arguments: &[&str]) -> String {
    let output = predict(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// What it says on stderr; it must fail.
fn refuses(arguments: &[&str]) -> String {
    let output = predict(arguments);
    assert!(!output.status.success(), "{arguments:?}: {}", text(&output.stdout));
    text(&output.stderr)
}

fn first_line(arguments: &[&str]) -> String {
    says(arguments).lines().next().unwrap_or_default().to_owned()
}

const V100: [&str; 2] = ["--profile", "4xv100-nv2"];
const TWO_NODES: [&str; 2] = ["--graph", "testdata/predict/h100x16.yaml"];

#[test]
fn the_first_line_is_nccl_s() {
    // Each release's form; the size may be written in units.
    let line = |release| first_line(&[&V100[..], &["--nccl", release, "--bytes", "64MiB"]].concat());
    assert_eq!(line("2.22.3"), "67108864 Bytes -> Algo 1 proto 2 time 867.660767");
    assert_eq!(line("2.23"), "AllReduce: 67108864 Bytes -> Algo 1 proto 2 time 867.660767");
    let newest = "AllReduce: 67108864 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..11}";
    assert_eq!(line("2.30.7"), newest);
    assert_eq!(line("2.19.4"), "(NCCL 2.19.4 prints no line)");
}

#[test]
fn the_whole_text_is_as_reviewed() {
    // Table, derivation, runner-up, flips and comparison, word for word.
    let mut wrong = Vec::new();
    for (name, arguments) in [
        (
            "v100",
            &[
                "--profile",
                "4xv100-nv2",
                "--nccl",
                "2.22.3",
                "--bytes",
                "64MiB",
                "--versus",
                "NCCL_ALGO=Tree",
            ][..],
        ),
        ("h100", &["--profile", "dgx-h100", "--nccl", "2.27.7", "--bytes", "1M", "--versus", "2.30.7"]),
        (
            "two_nodes",
            &[
                "--graph",
                "testdata/predict/h100x16.yaml",
                "--nccl",
                "2.22.3",
                "--bytes",
                "1G",
                "--env",
                "NCCL_ALGO=Ring,Tree",
            ],
        ),
    ] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("testdata/predict/{name}.txt"));
        let found = says(arguments);
        if std::env::var_os("PREDICT_UPDATE").is_some() {
            fs::write(&path, &found).unwrap();
        }
        if fs::read_to_string(&path).unwrap_or_default() != found {
            wrong.push(format!("{name}:\n{found}"));
        }
    }
    assert!(
        wrong.is_empty(),
        "PREDICT_UPDATE=1 writes the texts anew; review them as code\n{}",
        wrong.join("\n")
    );
}

#[test]
fn json_has_what_the_text_has() {
    // The same numbers, the derivation as data, and the other answer behind `versus`.
    let arguments =
        [&V100[..], &["--nccl", "2.22.3", "--bytes", "64M", "--json", "--versus", "2.30.7"]].concat();
    let value: serde_json::Value = serde_json::from_str(&says(&arguments)).unwrap();
    assert_eq!(value["schema"], "ringccl.predict.v1");
    assert_eq!(value["line"], "67108864 Bytes -> Algo 1 proto 2 time 867.660767");
    assert_eq!(value["channels"]["communicator"], 12);
    assert_eq!(value["runner_up"]["protocol"], "LL128");
    assert_eq!(value["flips"]["down"]["bytes"], 3_128_006);
    assert_eq!(value["versus"]["nccl"], "2.30.7");
    let cells = value["table"].as_array().unwrap();
    let best = cells.iter().find(|cell| cell["algorithm"] == "Ring" && cell["protocol"] == "Simple").unwrap();
    let after: Vec<f64> = best["bandwidth_steps"]
        .as_array()
        .unwrap()
        .iter()
        .map(|step| step["after"].as_f64().unwrap())
        .collect();
    assert_eq!(after, [20.0, 120.0, 80.0]);
}

#[test]
fn bytes_of_gathers_are_those_of_all_ranks() {
    // As in nccl-tests, cut to a whole part for each rank; from 2.24 the line has one rank's bytes.
    let line = |release, bytes| {
        first_line(
            &[&V100[..], &["--collective", "all_gather", "--nccl", release, "--bytes", bytes]].concat(),
        )
    };
    assert!(line("2.22.3", "1025").starts_with("1024 Bytes -> "));
    assert!(line("2.30.7", "1025").starts_with("AllGather: 256 Bytes -> "));
}

#[test]
fn profiles_and_logs_agree() {
    // The graphs that a log prints and those that the search finds give the same answer, cluster and all.
    let searched = says(&["--profile", "dgx-h100", "--nodes", "2", "--nccl", "2.22.3", "--bytes", "64M"]);
    let given = says(&[&TWO_NODES[..], &["--nccl", "2.22.3", "--bytes", "64M"]].concat());
    // The links of a log's graphs have other names; all before them is the tuner's.
    let tuners = |text: &str| {
        let lines =
            text.lines().take_while(|line| !line.starts_with("predicted ") || line.starts_with("predicted:"));
        lines.filter(|line| !line.starts_with("predicted:")).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(tuners(&searched), tuners(&given));
    let machines = concat!(env!("CARGO_MANIFEST_DIR"), "/../topo/testdata/nccl/topologies.yaml");
    let described = ["--machines", machines, "--profile", "v100x4_nv2", "--nccl", "2.22.3", "--bytes", "64M"];
    assert_eq!(first_line(&described), "67108864 Bytes -> Algo 1 proto 2 time 867.660767");
}

#[test]
fn a_sweep_writes_a_table_and_a_picture() {
    // Every row has every column; changes of the choice are those of single predictions.
    let folder = tempfile::tempdir().unwrap();
    let name = folder.path().join("a.b");
    let said = says(&[
        "--profile",
        "dgx-a100",
        "--nccl",
        "2.22.3",
        "--sweep=1K..1G",
        "--output",
        name.to_str().unwrap(),
    ]);
    assert!(said.contains("from      24287979 bytes  Ring Simple"), "{said}");
    let csv = fs::read_to_string(folder.path().join("a.b.csv")).unwrap();
    let rows: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!((rows.len(), rows[1][0], rows.last().unwrap()[0]), (82, "1024", "1073741824"));
    assert_eq!(rows[0][4], "predicted_us");
    assert!(rows.iter().all(|row| row.len() == rows[0].len()));
    assert_eq!(
        rows.iter().find(|row| row[0] == "67108864").unwrap()[..4],
        ["67108864", "Ring", "Simple", "545.335388"]
    );
    let svg = fs::read_to_string(folder.path().join("a.b.svg")).unwrap();
    assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n") && svg.matches("<path d=\"M").count() > 8);
}

#[test]
fn what_cannot_be_is_refused_with_a_remedy() {
    // Values, names, files and combinations; each message says what to write instead.
    let with = |more: &[&str]| refuses(&[&V100[..], more].concat());
    for (arguments, says) in [
        (&["--bytes", "1X"][..], "whole number of bytes"),
        (&["--bytes", "17T"], "whole number of bytes"),
        (&["--bytes", "99999G"], "16 TiB"),
        (&["--bytes", "8", "--nccl", "2.17.1"], "from 2.18.1 to 2.30.7"),
        (&["--bytes", "8", "--collective", "all_to_all"], "reduce_scatter"),
        (&["--bytes", "8", "--env", "NCCL_ALGO"], "NAME=VALUE"),
        (&["--bytes", "8", "--env", "NCCL_ALGO=Rng"], "did you mean Ring?"),
        (&["--bytes", "8", "--env", "NCCL_P2P_LEVEL=FAR"], "PHB or SYS"),
        (&["--bytes", "8", "--env", "NCCL_IB_HCA=mlx5"], "chooses network cards"),
        (&["--bytes", "8", "--machines", "testdata/predict/h100x16.yaml"], "h100x16.yaml"),
        (&["--bytes", "8", "--env", "NCCL_TOPO_FILE=/x"], "keep one of them"),
        (&["--bytes", "8", "--env", "NCCL_GRAPH_FILE=/x"], "check the path"),
        (&["--bytes", "8", "--oversubscription", "0"], "0.01 to 1000"),
        (&["--bytes", "8", "--nodes-per-leaf", "0"], "at least 1 node"),
        (&["--bytes", "8", "--output", "x"], "add --sweep"),
        (&["--bytes", "8", "--sweep=8..1K", "--sweep-nodes", "1"], "keep one of them"),
        (&["--sweep-nodes", "0"], "such as 1,2,8"),
        (&["--sweep-nic", "fast"], "100Gb/s"),
        (&["--bytes", "8", "--versus", "3"], "2.22.3"),
        (&["--bytes", "8", "--nodes", "0"], "at least one node"),
        (&["--bytes", "8", "--nodes", "4294967295"], "ranks; the tuner chooses for 2 to"),
        (&["--bytes", "8", "--env", "NCCL_ALGO=PAT"], "no algorithm/protocol available"),
        (&["--sweep=1G..1K"], "below the second"),
        (&["--sweep=8..1K", "--output", "/nonexistent/x"], "cannot write"),
        (&[], "--bytes"),
    ] {
        let error = with(arguments);
        assert!(error.contains(says), "{arguments:?}: {error}");
    }
    let unknown = refuses(&["--profile", "dgx-h101", "--bytes", "8"]);
    assert!(unknown.contains("dgx-h100"), "{unknown}");
    let given = refuses(&[&TWO_NODES[..], &["--bytes", "8", "--env", "NCCL_P2P_LEVEL=SYS"]].concat());
    assert!(given.contains("leave it out"), "{given}");
    let machines = ["--machines", "../topo/testdata/nccl/topologies.yaml", "--bytes", "8", "--profile"];
    let alone = refuses(&[&machines[..], &["a100x8", "--nodes", "2"]].concat());
    assert!(alone.contains("no network port"), "{alone}");
    let other = refuses(&[&machines[..], &["dgx-h100"]].concat());
    assert!(other.contains("describes no machine `dgx-h100`"), "{other}");
    let missing = refuses(&["--graph", "/nonexistent", "--bytes", "8"]);
    assert!(missing.contains("check the path"), "{missing}");
}

#[test]
fn the_prediction_stands_beside_the_tuner() {
    // Both times, the terms, the link that decides, and bytes on links; in JSON every link, and terms that add up.
    let arguments = ["--profile", "aws-p4d", "--nodes", "2", "--nccl", "2.22.3", "--bytes", "1G"];
    let said = says(&arguments);
    for line in ["predicted: ", "  channels: 8 need ", "steps between nodes", "x NIC ", "filling"] {
        assert!(said.contains(line), "{line}\n{said}");
    }
    let json = says(&[&arguments[..], &["--json"]].concat());
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    let predicted = &value["predicted"];
    let number = |value: &serde_json::Value| value.as_f64().unwrap();
    let terms = predicted["terms"].as_array().unwrap();
    let sum: f64 = terms.iter().map(|term| number(&term["count"]) * number(&term["each_us"])).sum();
    assert!((sum - number(&predicted["time_us"])).abs() < 1e-6 * sum);
    assert!(number(&predicted["time_us"]) > number(&value["tuner"]["time_us"]));
    let links = predicted["links"].as_array().unwrap();
    let out: f64 = links
        .iter()
        .filter(|link| link["kind"] == "NIC" && link["name"].as_str().unwrap().contains("-> port"))
        .map(|link| number(&link["total_bytes"]))
        .sum();
    assert!(
        (out - 2.0 * f64::from(1u32 << 30)).abs() < 16.0,
        "a tree of two nodes has one edge: up and down, {out}"
    );
    assert!(predicted["bound_by"].as_str().unwrap().starts_with("NIC"), "{predicted}");
}

#[test]
fn oversubscription_and_channels_count() {
    // A leaf's way to the spine at a quarter is slower; one channel is slower than twelve, and no tuner's number moves.
    let time = |more: &[&str], base: &[&str]| {
        let value: serde_json::Value =
            serde_json::from_str(&says(&[base, more, &["--json"]].concat())).unwrap();
        (value["predicted"]["time_us"].as_f64().unwrap(), value["tuner"]["time_us"].as_f64().unwrap())
    };
    let base = ["--profile", "dgx-a100", "--nodes", "8", "--nccl", "2.22.3", "--bytes", "1G"];
    let (plain, quarter) = (time(&[], &base), time(&["--oversubscription", "4"], &base));
    assert!(quarter.0 > 2.0 * plain.0 && quarter.1 == plain.1, "{plain:?} {quarter:?}");
    let base = [&V100[..], &["--nccl", "2.22.3", "--bytes", "64M"]].concat();
    let (twelve, one) = (time(&[], &base), time(&["--env", "NCCL_MAX_NCHANNELS=1"], &base));
    assert!(one.0 > 5.0 * twelve.0 && one.1 == twelve.1, "{twelve:?} {one:?}");
}

#[test]
fn sweeps_over_nodes_and_cards_write_a_row_for_each() {
    // Every combination once, times that fall with faster cards, and a curve for each cluster.
    let folder = tempfile::tempdir().unwrap();
    let name = folder.path().join("grid");
    let arguments = ["--profile", "dgx-a100", "--nccl", "2.22.3", "--output", name.to_str().unwrap()];
    let more = ["--sweep=1M..1G", "--sweep-nodes", "2,4", "--sweep-nic", "100Gb/s,200Gb/s"];
    let said = says(&[&arguments[..], &more].concat());
    assert!(said.contains("44 predictions"), "{said}");
    let csv = fs::read_to_string(folder.path().join("grid.csv")).unwrap();
    let rows: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!((rows.len(), rows[0][6]), (45, "predicted_us"));
    let time = |nodes: &str, nic: &str| {
        let row = rows.iter().find(|row| row[..3] == [nodes, nic, "1073741824"]).unwrap();
        row[6].parse::<f64>().unwrap()
    };
    assert!(time("2", "100") > time("2", "200") && time("4", "100") > time("4", "200"));
    let svg = fs::read_to_string(folder.path().join("grid.svg")).unwrap();
    for curve in ["2 nodes 100 Gb/s", "4 nodes 200 Gb/s"] {
        assert!(svg.contains(curve), "{curve}");
    }
    // One size: the picture is over nodes.
    says(&[&arguments[..], &["--bytes", "64M", "--sweep-nodes", "1..8"]].concat());
    let svg = fs::read_to_string(folder.path().join("grid.svg")).unwrap();
    assert!(svg.contains(">8 nodes</text>") && !svg.contains("NaN"), "{svg}");
    assert_eq!(fs::read_to_string(folder.path().join("grid.csv")).unwrap().lines().count(), 5);
}

#[test]
fn files_of_nccl_stand_for_machine_and_graphs() {
    // A topology instead of a profile; graphs that were written are read as the same, and without a search.
    let folder = tempfile::tempdir().unwrap();
    let graphs = folder.path().join("graphs.xml");
    let named = |name: &str| format!("{name}={}", graphs.display());
    let base = ["--profile", "dgx-a100", "--nodes", "2", "--nccl", "2.22.3", "--bytes", "64M"];
    let plain = says(&base);
    assert_eq!(says(&[&base[..], &["--env", &named("NCCL_GRAPH_DUMP_FILE")]].concat()), plain);
    assert_eq!(says(&[&base[..], &["--env", &named("NCCL_GRAPH_FILE")]].concat()), plain);
    fs::write(
        &graphs,
        fs::read_to_string(&graphs).unwrap().replace("speedintra=\"24\"", "speedintra=\"12\""),
    )
    .unwrap();
    let slower = says(&[&base[..], &["--env", &named("NCCL_GRAPH_FILE")]].concat());
    assert!(slower.contains("bw 12.000000/24.000000") && slower != plain, "{slower}");
    let topology = folder.path().join("box.xml");
    fs::write(&topology, BOX).unwrap();
    let variable = format!("NCCL_TOPO_FILE={}", topology.display());
    let said = says(&["--env", &variable, "--nccl", "2.22.3", "--bytes", "64M"]);
    assert!(said.contains("on 2 ranks, 1 node"), "{said}");
}

/// Two A100 below one switch, as NCCL dumps them.
const BOX: &str = r#"<system version="1">
  <cpu numaid="0" affinity="0" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="85">
    <pci busid="0000:10:00.0" class="0x060400" link_speed="16.0 GT/s PCIe" link_width="16">
      <pci busid="0000:11:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="16">
        <gpu dev="0" sm="80" rank="0" gdr="1"/>
      </pci>
      <pci busid="0000:12:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="16">
        <gpu dev="1" sm="80" rank="1" gdr="1"/>
      </pci>
    </pci>
  </cpu>
</system>
"#;

#[test]
fn a_cluster_file_is_predicted() {
    // Its machines, release and variables; options change them; a part of its ranks; what does not fit is refused.
    let file = ["--cluster", "testdata/predict/v100_cluster.yaml", "--bytes", "64MiB"];
    assert_eq!(first_line(&file), "67108864 Bytes -> Algo 1 proto 2 time 867.660767");
    let newer = first_line(&[&file[..], &["--nccl", "2.23"]].concat());
    assert_eq!(newer, "AllReduce: 67108864 Bytes -> Algo 1 proto 2 time 867.660767");
    let tree = first_line(&[&file[..], &["--env", "NCCL_ALGO=Tree"]].concat());
    assert!(tree.starts_with("67108864 Bytes -> Algo 0 "), "{tree}");
    let part = first_line(&[&file[..], &["--ranks", "0-1"]].concat());
    assert!(part.starts_with("67108864 Bytes") && part != first_line(&file), "{part}");
    assert!(refuses(&[&file[..], &["--ranks", "0-4"]].concat()).contains("0 to 3"));
    assert!(refuses(&[&file[..], &["--nodes", "2"]].concat()).contains("--nodes"));
}

#[test]
fn an_unknown_machine_lists_those_that_are() {
    // Also where nothing else is said.
    let told = refuses(&["--profile", "xx"]);
    assert!(told.contains("aws-p4d") && told.contains("dgx-h100"), "{told}");
    let told = refuses(&V100);
    assert!(told.contains("give --bytes, or --sweep"), "{told}");
}
