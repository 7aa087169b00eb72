//! NCCL's dumps read, and nodes written and read again.

use super::*;
use crate::nccl::search::graphs_of;

const DUMP: &str = include_str!("../../../../testdata/nccl/dump.xml");

#[test]
fn a_dump_is_read_whole() {
    // CPUs, switches, GPUs, NVLinks, functions of one card, virtual cards; what is not used is told.
    let Imported { node, notes } = import("dump.xml", DUMP).unwrap();
    assert_eq!((node.cpus.len(), node.gpus().len(), node.ports().len()), (2, 2, 4));
    assert!(node.cpus.iter().all(|cpu| cpu.kind == CpuKind::Amd));
    assert_eq!((node.links_between(0, 1), node.links_between(1, 0)), (4, 4));
    let Device::Switch(below) = &node.cpus[1].slots[0].device else { panic!("{node:?}") };
    assert!(matches!(&below[1].device, Device::Card(ports) if ports.len() == 2), "{below:?}");
    assert_eq!((below.len(), below[0].bandwidth, node.cpus[1].slots[1].bandwidth), (2, 24.0, 5000.0));
    let ports = node.ports();
    assert_eq!((ports[0].mbps, ports[0].gdr, ports[3].mbps, ports[3].latency_us), (200_000, true, 0, 12.5));
    assert!(ports[0].card != ports[1].card && ports[0].card.is_some() && ports[3].card.is_none());
    assert_eq!(notes.len(), 1);
    assert!(notes[0].contains("0x010802"), "{notes:?}");
}

#[test]
fn broken_dumps_name_line_and_element() {
    // What is replaced, by what, and the line, element and word of the problem.
    let cases: &[(&str, &str, Option<usize>, &str, &str)] = &[
        ("<system", "<sytem", Some(1), "", "not a topology dump"),
        ("vendor=\"AuthenticAMD\"", "vendor=\"ACME\"", Some(2), "cpu 0", "known are"),
        (" sm=\"80\" rank=\"0\"", "", Some(5), "gpu", "missing"),
        ("sm=\"80\"", "sm=\"8\"", Some(1), "system", "compute capability"),
        ("link_width=\"16\"", "link_width=\"3\"", Some(3), "pci 0000:40:00.0", "lanes"),
        ("link_width=\"16\"", "link_width=\"wide\"", Some(3), "pci 0000:40:00.0", "whole number"),
        ("count=\"4\"", "count=\"5\"", Some(1), "system", "lead back"),
        ("latency=\"12.5\"", "latency=\"soon\"", Some(36), "net", "microseconds"),
        ("speed=\"-1\"", "speed=\"1e9\"", Some(36), "net", "whole number"),
    ];
    for &(from, to, line, field, word) in cases {
        assert!(DUMP.contains(from), "{from}");
        let error = import("dump.xml", &DUMP.replacen(from, to, 1)).unwrap_err();
        let found = error.problems().iter().any(|problem| {
            (line.is_none() || field.is_empty() || problem.line == line)
                && problem.field == field
                && problem.message.contains(word)
        });
        assert!(found, "{to}: {error} {:?}", error.problems());
    }
    for text in ["", "<system", "<a/>", "<system/>", "<system><cpu/></system>", "no xml"] {
        assert!(matches!(import("x", text), Err(ConfigError::Invalid { .. })), "{text}");
    }
}

#[test]
fn hostile_dumps_end_soon() {
    // Nesting, entities, size: an error each, no overflow of the stack.
    let deep = "<system>".to_owned() + &"<pci>".repeat(100_000);
    assert!(import("x", &deep).unwrap_err().to_string().contains("elements in each other"));
    let bomb = "<!DOCTYPE s [<!ENTITY a \"b\"><!ENTITY c \"&a;&a;\">]><system>&c;</system>";
    assert!(matches!(import("x", bomb), Err(ConfigError::Invalid { .. })));
    assert!(matches!(import("x", &" ".repeat(2 << 20)), Err(ConfigError::TooLarge { .. })));
    let wide = format!("<system>{}</system>", "<cpu/>".repeat(50_000));
    assert!(matches!(import("x", &wide), Err(ConfigError::Invalid { .. })));
    let many = format!("<system>{}</system>", "<cpu/>".repeat(5_000));
    assert!(import("x", &many).unwrap_err().problems().len() <= 20);
}

#[test]
fn what_is_written_is_read_as_the_same_node() {
    // Every golden node and profile, and the dump, whose cards lose their identity but not their graphs.
    for (name, node) in parse_nodes("t", TOPOLOGIES).unwrap() {
        let text = to_yaml(&name, &node);
        assert_eq!(parse_nodes("written", &text).unwrap(), [(name, node)], "{text}");
    }
    let node = import("dump.xml", DUMP).unwrap().node;
    let text = to_yaml("2 GPUs: \"a\"", &node);
    let (name, again) = parse_nodes("written", &text).unwrap().pop().unwrap();
    assert_eq!(name, "2 GPUs: \"a\"");
    let graphs = |node| graphs_of(node, 2, Release::NEWEST, &Env::default()).unwrap();
    assert_eq!(graphs(&again), graphs(&node), "{text}");
}

proptest! {
    #[test]
    fn damaged_dumps_never_panic(at in 0..DUMP.len(), with in "[-0-9a-z=<>/\" ]{0,6}", cut in 0usize..9) {
        let (head, tail) = DUMP.split_at(at);
        let text = format!("{head}{with}{}", tail.get(cut..).unwrap_or(""));
        if let Ok(Imported { node, .. }) = import("x", &text) {
            prop_assert!(node.check().is_ok());
        }
    }
}
