//! Descriptions of nodes: files of them, NCCL's dumps, and machines known by name.

use std::fmt::Write as _;
use std::path::Path;

use ::topo::ConfigError;
use ::topo::nccl::profiles;
use ::topo::nccl::system::{CpuKind, Device, Node, NvPeer, Port, Slot, import_file, load_nodes};
use anyhow::{Result, bail};

/// Bytes of a file that are looked at to see what kind of file it is.
const LOOK_BYTES: u64 = 64 << 10;

/// What a file is, by its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Nodes, ranks and fabric.
    Cluster,
    /// Descriptions of nodes by name.
    Nodes,
    /// XML.
    Dump,
}

/// Tells the kind of the file at `path`; what cannot be read counts as a cluster file, whose reader says why.
pub(super) fn kind_of(path: &Path) -> Kind {
    use std::io::Read;
    if !std::fs::metadata(path).is_ok_and(|data| data.is_file()) {
        return Kind::Cluster;
    }
    let mut bytes = Vec::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(LOOK_BYTES).read_to_end(&mut bytes));
    if read.is_err() { Kind::Cluster } else { kind_of_text(&String::from_utf8_lossy(&bytes)) }
}

fn kind_of_text(text: &str) -> Kind {
    let text = text.trim_start_matches('\u{feff}');
    if text.trim_start().starts_with('<') {
        return Kind::Dump;
    }
    let keys = ["version:", "cluster:", "nodes:", "fabric:"];
    let is_cluster = text.lines().any(|line| keys.iter().any(|key| line.starts_with(key)));
    // A description has its NUMA nodes below its name, or in braces.
    let has_numa = text.lines().any(|line| !line.starts_with("numa:") && line.contains("numa:"));
    if has_numa && !is_cluster { Kind::Nodes } else { Kind::Cluster }
}

/// The nodes of a file of that kind, or the machine called so if there is no such file.
pub(super) fn load(path: &Path, kind: Kind) -> Result<Vec<(String, Node)>, ConfigError> {
    match kind {
        Kind::Dump => {
            let stem = path.file_stem().map_or("node".into(), |stem| stem.to_string_lossy().into_owned());
            import_file(path).map(|imported| vec![(stem, imported.node)])
        }
        _ => load_nodes(path),
    }
}

/// The machine called `name`, unless it is rather a path.
pub(super) fn machine(name: &Path) -> Option<(String, Node)> {
    let text = name.to_str()?;
    (!name.exists()).then(|| profiles::find(text).ok().map(|node| (text.to_owned(), node))).flatten()
}

/// How many nodes, and GPUs and ports of each.
pub(super) fn counts(nodes: &[(String, Node)]) -> String {
    let one = |(name, node): &(String, Node)| {
        format!("{name}: {}, {}", plural(node.gpus().len(), "GPU"), plural(node.ports().len(), "port"))
    };
    nodes.iter().map(one).collect::<Vec<_>>().join("\n")
}

fn plural(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// All nodes as text: what is plugged into what, then the NVLinks.
pub(super) fn show(nodes: &[(String, Node)]) -> String {
    let mut text = String::new();
    for (i, node) in nodes.iter().enumerate() {
        if i > 0 {
            text.push('\n');
        }
        show_node(&mut text, node);
    }
    text
}

fn show_node(text: &mut String, named: &(String, Node)) {
    let node = &named.1;
    // Writing to a String cannot fail.
    let _ = writeln!(text, "{}", counts(std::slice::from_ref(named)));
    let mut numbers = Numbers::default();
    for (i, cpu) in node.cpus.iter().enumerate() {
        let _ = writeln!(text, "  CPU {i}, {}", cpu_name(cpu.kind));
        show_slots(text, &cpu.slots, 4, &mut numbers);
    }
    if !node.peer_access {
        let _ = writeln!(text, "  GPUs do not reach each other over PCIe");
    }
    for line in nvlinks(node) {
        let _ = writeln!(text, "  {line}");
    }
}

/// Numbers that are given in the order of the listing.
#[derive(Default)]
pub(super) struct Numbers {
    gpus: usize,
    ports: usize,
}

impl Numbers {
    pub(super) fn gpu(&mut self) -> usize {
        self.gpus += 1;
        self.gpus - 1
    }

    pub(super) fn port(&mut self) -> usize {
        self.ports += 1;
        self.ports - 1
    }
}

fn show_slots(text: &mut String, slots: &[Slot], indent: usize, numbers: &mut Numbers) {
    for slot in slots {
        let speed = slot.bandwidth;
        let what = match &slot.device {
            Device::Switch(_) => "PCIe switch".to_owned(),
            Device::Gpu(gpu) => format!("GPU {}, compute capability {}", numbers.gpu(), capability(gpu.sm)),
            Device::Card(ports) => {
                ports.iter().map(|port| port_name(port, numbers.port())).collect::<Vec<_>>().join("; ")
            }
        };
        let _ = writeln!(text, "{:indent$}{what}, on a link of {speed} GB/s", "");
        if let Device::Switch(below) = &slot.device {
            show_slots(text, below, indent + 2, numbers);
        }
    }
}

/// `90` as `9.0`.
pub(super) fn capability(sm: u32) -> String {
    format!("{}.{}", sm / 10, sm % 10)
}

pub(super) fn port_name(port: &Port, number: usize) -> String {
    let speed = match port.mbps {
        0 => "unknown speed".to_owned(),
        mbps => format!("{} Gb/s", f64::from(mbps) / 1000.0),
    };
    let latency = if port.latency_us > 0.0 { format!(", {} us", port.latency_us) } else { String::new() };
    let rdma = if port.gdr { ", GPU-direct RDMA" } else { "" };
    format!("port {number}, {speed}{latency}{rdma}")
}

pub(super) fn cpu_name(kind: CpuKind) -> String {
    match kind {
        CpuKind::Intel(model) => format!("Intel model {model}"),
        CpuKind::Amd => "AMD".into(),
        CpuKind::Arm => "ARM".into(),
        CpuKind::Power => "POWER9".into(),
        CpuKind::Zhaoxin(_) => "Zhaoxin".into(),
    }
}

/// A line for the switch, and one for each GPU that is joined to others directly.
pub(super) fn nvlinks(node: &Node) -> Vec<String> {
    let mut lines = Vec::new();
    let switched: Vec<u32> =
        node.nvlinks.iter().filter(|link| link.peer == NvPeer::Switch).map(|link| link.links).collect();
    if let (Some(least), Some(most)) = (switched.iter().min(), switched.iter().max()) {
        let each = if least == most { least.to_string() } else { format!("{least} to {most}") };
        lines.push(format!("NVSwitch: {each} NVLinks from each of {}", plural(switched.len(), "GPU")));
    }
    let gpus = node.gpus().len() as u32;
    for gpu in 0..gpus {
        let peers: Vec<String> = (0..gpus)
            .filter_map(|peer| match node.links_between(gpu, peer) {
                0 => None,
                links => Some(format!("{links} to {peer}")),
            })
            .collect();
        if !peers.is_empty() {
            lines.push(format!("NVLinks of GPU {gpu}: {}", peers.join(", ")));
        }
    }
    lines
}

/// The one node that a picture can show: of the file, or that with the name.
pub(super) fn one(nodes: Vec<(String, Node)>, name: Option<&str>) -> Result<(String, Node)> {
    let names: Vec<String> = nodes.iter().map(|(name, _)| name.clone()).collect();
    let mut wanted: Vec<(String, Node)> =
        nodes.into_iter().filter(|(known, _)| name.is_none_or(|name| name == known)).collect();
    match (wanted.pop(), wanted.is_empty()) {
        (Some(node), true) => Ok(node),
        _ => bail!("a picture shows one node; name one by --node: {}", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::topo::nccl::system::parse_nodes;

    #[test]
    fn kinds_are_told_by_the_beginning() {
        // Cluster files as FakeGPU has them, descriptions, dumps; what is none of these is a cluster file.
        for (text, kind) in [
            ("version: 1\nnodes: []", Kind::Cluster),
            ("# numa:\nversion: 1", Kind::Cluster),
            ("a:\n  cpu: amd\n  numa:\n", Kind::Nodes),
            ("a: {cpu: amd, numa: []}", Kind::Nodes),
            ("\u{feff}  <system version=\"1\">", Kind::Dump),
            ("", Kind::Cluster),
        ] {
            assert_eq!(kind_of_text(text), kind, "{text}");
        }
        assert_eq!(kind_of(Path::new("/dev/null")), Kind::Cluster);
    }

    #[test]
    fn a_node_is_shown_whole() {
        // Numbers, speeds and links of everything, in the order of the file.
        let text = "box:
  cpu: spr
  sm: 90
  numa:
    - [{switch: true, pcie_gen: 5, gpus: 1, nics: [[400000, 35, 1]]}]
    - [{pcie_gen: 4, gpus: 1, nics: [[10000, 0, 0]]}]
  nvlink: [[0, 4], [4, 0]]
";
        let nodes = parse_nodes("t", text).unwrap();
        let expected = "box: 2 GPUs, 2 ports
  CPU 0, Intel model 143
    PCIe switch, on a link of 48 GB/s
      GPU 0, compute capability 9.0, on a link of 48 GB/s
      port 0, 400 Gb/s, 35 us, GPU-direct RDMA, on a link of 48 GB/s
  CPU 1, Intel model 143
    GPU 1, compute capability 9.0, on a link of 24 GB/s
    port 1, 10 Gb/s, on a link of 24 GB/s
  NVLinks of GPU 0: 4 to 1
  NVLinks of GPU 1: 4 to 0
";
        assert_eq!(show(&nodes), expected);
        assert!(one(nodes.clone(), Some("box")).is_ok() && one(nodes.clone(), None).is_ok());
        let two = [nodes.clone(), nodes].concat();
        assert!(one(two, None).unwrap_err().to_string().contains("--node"));
    }

    #[test]
    fn machines_are_found_by_name_where_no_file_is() {
        // A name of a profile, but not a path that exists, and not any word.
        assert!(machine(Path::new("dgx-h100")).is_some());
        assert!(machine(Path::new("/")).is_none() && machine(Path::new("nothing-like-this")).is_none());
    }
}
