//! A node as YAML that [`parse_nodes`](super::parse_nodes) reads.

use std::fmt::Write as _;

use super::{CpuKind, Device, Node, NvPeer, Port, Slot};

/// Generations and widths of PCIe links that are named instead of a bandwidth.
const GENERATIONS: std::ops::RangeInclusive<u64> = 1..=6;
const LANES: [u64; 5] = [16, 8, 4, 2, 1];

/// The description of `node` under `name`.
///
/// What is told is the kind of the first CPU for all of them, as NCCL takes it, and ports without the identity of
/// their card.
pub fn to_yaml(name: &str, node: &Node) -> String {
    let mut text = String::new();
    let kind = node.cpus.first().map_or(CpuKind::Amd, |cpu| cpu.kind);
    let sm = node.gpus().first().map_or(80, |gpu| gpu.sm);
    // Writing to a String cannot fail.
    let _ = write!(text, "{}:\n  cpu: {}\n  sm: {sm}\n  numa:\n", quoted(name), cpu_name(kind));
    for cpu in &node.cpus {
        if cpu.slots.is_empty() {
            text.push_str("    - []\n");
            continue;
        }
        text.push_str("    -\n");
        write_slots(&mut text, &cpu.slots, 6, sm);
    }
    write_nvlinks(&mut text, node);
    if !node.peer_access {
        text.push_str("  p2p: false\n");
    }
    text
}

/// A name that YAML takes for a text, whatever it is.
fn quoted(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    match name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.chars().all(plain) {
        true => name.to_owned(),
        false => format!("{name:?}"),
    }
}

fn cpu_name(kind: CpuKind) -> String {
    match kind {
        CpuKind::Intel(model) => format!("intel_{model}"),
        CpuKind::Amd => "amd".into(),
        CpuKind::Arm => "arm".into(),
        CpuKind::Power => "power9".into(),
        CpuKind::Zhaoxin(true) => "yongfeng".into(),
        CpuKind::Zhaoxin(false) => "zhaoxin".into(),
    }
}

fn write_slots(text: &mut String, slots: &[Slot], indent: usize, sm: u32) {
    for slot in slots {
        let speed = speed_of(slot.bandwidth).join(", ");
        let _ = match &slot.device {
            Device::Gpu(gpu) => {
                let sm = if gpu.sm == sm { String::new() } else { format!(", sm: {}", gpu.sm) };
                let gdr = if gpu.gdr { "" } else { ", gdr: false" };
                writeln!(text, "{:indent$}- {{{speed}, gpus: 1{sm}{gdr}}}", "")
            }
            Device::Card(ports) => writeln!(text, "{:indent$}- {{{speed}, card: {}}}", "", ports_of(ports)),
            Device::Switch(below) if below.is_empty() => {
                writeln!(text, "{:indent$}- {{switch: true, {speed}}}", "")
            }
            Device::Switch(_) => {
                let lines = speed_of(slot.bandwidth).join(&format!("\n{:indent$}  ", ""));
                writeln!(text, "{0:indent$}- switch: true\n{0:indent$}  {lines}\n{0:indent$}  slots:", "")
            }
        };
        if let Device::Switch(below) = &slot.device {
            write_slots(text, below, indent + 4, sm);
        }
    }
}

/// The speed by the names that people know, or as a number; one key with its value each.
fn speed_of(bandwidth: f32) -> Vec<String> {
    for lanes in LANES {
        let generation =
            GENERATIONS.into_iter().find(|&generation| Node::pcie(generation, lanes) == Some(bandwidth));
        match generation {
            Some(generation) if lanes == 16 => return vec![format!("pcie_gen: {generation}")],
            Some(generation) => return vec![format!("pcie_gen: {generation}"), format!("lanes: {lanes}")],
            None => {}
        }
    }
    vec![format!("bandwidth: {bandwidth}")]
}

fn ports_of(ports: &[Port]) -> String {
    let port = |port: &Port| {
        // A port that reports no speed counts as 10 Gb/s.
        let mbps = if port.mbps == 0 { 10_000 } else { port.mbps };
        format!("[{mbps}, {}, {}]", port.latency_us, u8::from(port.gdr))
    };
    format!("[{}]", ports.iter().map(port).collect::<Vec<_>>().join(", "))
}

/// The switch's links if all GPUs have the same, and the matrix if GPUs are joined directly.
fn write_nvlinks(text: &mut String, node: &Node) {
    let gpus = node.gpus().len() as u32;
    let to_switch = node.nvlinks.iter().find(|link| link.peer == NvPeer::Switch).map(|link| link.links);
    if let Some(links) = to_switch {
        let _ = writeln!(text, "  nvswitch: {links}");
    }
    if node.nvlinks.iter().any(|link| link.peer != NvPeer::Switch) {
        text.push_str("  nvlink:\n");
        for gpu in 0..gpus {
            let row: Vec<String> = (0..gpus).map(|peer| node.links_between(gpu, peer).to_string()).collect();
            let _ = writeln!(text, "    - [{}]", row.join(", "));
        }
    }
}
