//! `ringccl topo check`, `show` and `import` for descriptions of machines.

mod common;

use common::{output, ringccl, text};
use std::fs;

const MACHINES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../topo/testdata/nccl/topologies.yaml");
const INVALID: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../topo/testdata/invalid_nodes");

/// Exit code, stdout and stderr.
fn topo(arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = ringccl();
    command.arg("topo").args(arguments).env_clear();
    let output = output(command);
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn descriptions_are_checked() {
    // A good file is counted, machine by machine; a bad one ends with 1 and file, line, field and remedy on stderr.
    let (code, said, _) = topo(&["check", MACHINES]);
    assert_eq!(code, Some(0));
    assert!(said.contains(": ok, ") && said.contains("a100x8_8hdr: 8 GPUs, 8 ports"), "{said}");
    for (name, says) in [
        ("nvlink_one_way", ":7: a.nvlink: GPU 0 has 4 NVLinks to GPU 1, but 2 lead back"),
        ("pcie_gen_seven", "a.numa[0][0].pcie_gen: "),
        ("cpu_unknown", "did you mean `amd`?"),
        ("two_problems", "has 2 problems"),
    ] {
        let file = format!("{INVALID}/{name}.yaml");
        let (code, said, error) = topo(&["check", &file]);
        assert_eq!((code, said.as_str()), (Some(1), ""), "{name}");
        assert!(error.contains(says) && error.contains(&file), "{name}: {error}");
        assert_eq!(topo(&["show", &file]), (Some(1), String::new(), error), "{name}");
    }
}

#[test]
fn machines_are_shown_by_name_and_from_files() {
    // As text with what is plugged into what, as a picture in a file, one of several by --node.
    let (code, said, _) = topo(&["show", "2xrtx4090-switch"]);
    assert_eq!(code, Some(0));
    assert!(said.contains("2 GPUs") && said.contains("do not reach each other over PCIe"), "{said}");
    let (_, one, _) = topo(&["show", MACHINES, "--node", "v100x4_nv2"]);
    assert!(one.starts_with("v100x4_nv2: 4 GPUs"), "{one}");
    let folder = tempfile::tempdir().unwrap();
    let picture = folder.path().join("a.svg");
    let picture = picture.to_str().unwrap();
    assert_eq!(topo(&["show", "dgx-h100", "--svg", picture]), (Some(0), String::new(), String::new()));
    let svg = fs::read_to_string(picture).unwrap();
    assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n") && !svg.contains("NaN"));
    let (code, _, error) = topo(&["show", MACHINES, "--node", "none"]);
    assert!(code == Some(1) && error.contains("v100x4_nv2"), "{error}");
    let (code, _, error) = topo(&["show", "dgx-h100", "--svg", "/nonexistent/a.svg"]);
    assert!(code == Some(1) && error.contains("cannot write"), "{error}");
}

#[test]
fn dumps_are_imported_as_descriptions() {
    // What is printed is a description that check and predict take; what is no dump is refused.
    let folder = tempfile::tempdir().unwrap();
    let (dump, yaml) = (folder.path().join("box.xml"), folder.path().join("box.yaml"));
    let gpu = |at: u32| {
        format!(r#"<pci busid="{at}" class="0x030200" link_width="16"><gpu dev="{at}" sm="80"/></pci>"#)
    };
    let cpu = r#"<cpu numaid="0" arch="x86_64" vendor="AuthenticAMD" familyid="143" modelid="49">"#;
    fs::write(&dump, format!("<system version=\"1\">{cpu}{}{}</cpu></system>", gpu(0), gpu(1))).unwrap();
    let (code, said, _) = topo(&["import", dump.to_str().unwrap(), "--name", "mine"]);
    assert_eq!(code, Some(0));
    assert!(said.starts_with("mine:\n  cpu: amd\n  sm: 80\n"), "{said}");
    fs::write(&yaml, &said).unwrap();
    let yaml = yaml.to_str().unwrap();
    assert!(topo(&["check", yaml]).1.contains("mine: 2 GPUs, 0 ports"));
    let mut command = ringccl();
    command.args(["predict", "--machines", yaml, "--profile", "mine", "--nccl", "2.22.3", "--bytes", "64M"]);
    assert!(text(&output(command).stdout).contains("on 2 ranks, 1 node"));
    let (code, said, error) = topo(&["import", yaml]);
    assert_eq!((code, said.as_str()), (Some(1), ""));
    assert!(error.contains("name the file of NCCL_TOPO_DUMP_FILE"), "{error}");
}
