//! Files with descriptions of nodes, by name.
//!
//! ```yaml
//! dgx-like:
//!   cpu: amd                  # bdw, skl, icx, spr, emr (or intel_MODEL), amd, arm, power9, zhaoxin, yongfeng
//!   sm: 80                    # compute capability without the dot
//!   numa:                     # one entry per NUMA node: what its PCIe root has
//!     -
//!       - {switch: true, pcie_gen: 4, gpus: 2, nics: [[200000, 0, 1]]}  # Mbit/s, latency in us, GPU-direct RDMA;
//!                             # or with units: [[200Gb/s, 0us, 1]]
//!   nvswitch: 12              # NVLinks of each GPU to the switch; or `nvlink`, a matrix of links between GPUs
//!   p2p: true                 # false: GPUs reach each other by NVLink or through memory of the host, as GeForce cards
//! ```
//!
//! An entry may also have `lanes` (16), or `bandwidth` in GB/s instead of `pcie_gen`; `sm` and `gdr` of its GPUs;
//! `card`, a list of ports on one card; and, if it is a switch, `slots`, the entries below it.

use std::path::Path;

use super::node::NodeError;
use super::{Cpu, CpuKind, Device, Gpu, Node, NvLink, NvPeer, Port, Slot};
use crate::config::reader::{self, Range, Reader, Table, show};
use crate::config::tree::Tree;
use crate::config::units::Unit;
use crate::config::{FILE_BYTES_MAX, bytes_of, syntax};
use crate::lines::join;
use crate::nccl::CAPABILITIES;
use crate::near::near;
use crate::{ConfigError, Problem};

const NODE_KEYS: &[&str] = &["cpu", "sm", "numa", "nvlink", "nvswitch", "p2p"];
const SLOT_KEYS: &[&str] =
    &["switch", "pcie_gen", "lanes", "bandwidth", "sm", "gpus", "gdr", "nics", "card", "slots"];
/// Names of CPUs; `intel_MODEL` stands for any other Intel.
const CPUS: [(&str, CpuKind); 15] = [
    ("intel_bdw", CpuKind::Intel(79)),
    ("intel_skl", CpuKind::Intel(85)),
    ("intel_icx", CpuKind::Intel(106)),
    ("intel_spr", CpuKind::Intel(143)),
    ("intel_emr", CpuKind::Intel(207)),
    ("bdw", CpuKind::Intel(79)),
    ("skl", CpuKind::Intel(85)),
    ("icx", CpuKind::Intel(106)),
    ("spr", CpuKind::Intel(143)),
    ("emr", CpuKind::Intel(207)),
    ("amd", CpuKind::Amd),
    ("arm", CpuKind::Arm),
    ("power9", CpuKind::Power),
    ("zhaoxin", CpuKind::Zhaoxin(false)),
    ("yongfeng", CpuKind::Zhaoxin(true)),
];
/// Fastest port that is believed, in 10^6 bits per second.
const MBPS_MAX: u64 = 10_000_000;
/// Most GPUs behind one entry; a node has fewer, and this bounds what a short file can ask for.
const GPUS_PER_SLOT: u64 = 32;
/// Most entries of one list.
const LIST_MAX: usize = 64;
/// Largest model number of a CPU.
const MODEL_MAX: u32 = 4095;

const SM: Range = Range::new(is_capability, "a compute capability, 35 to 139, such as 90, without the dot");
const GENERATION: Range = Range::new(
    |generation| (1.0..=6.0).contains(&generation) && generation.fract() == 0.0,
    "a PCIe generation, 1 to 6",
);
const SPEED: Range =
    Range::new(|speed| speed > 0.0 && speed <= 5000.0, "a speed in GB/s above 0, at most 5000");
const LANES: Range = Range::new(
    |lanes| [1.0, 2.0, 4.0, 8.0, 12.0, 16.0].contains(&lanes),
    "a number of PCIe lanes: 1, 2, 4, 8, 12 or 16",
);
const GPUS: Range = Range::new(
    |gpus| (0.0..=GPUS_PER_SLOT as f64).contains(&gpus) && gpus.fract() == 0.0,
    "a number of GPUs, 0 to 32",
);
const LINKS: Range =
    Range::new(|links| (1.0..=64.0).contains(&links) && links.fract() == 0.0, "a number of NVLinks, 1 to 64");

/// Whether a number of a file is a compute capability.
pub(crate) fn is_capability(number: f64) -> bool {
    number.fract() == 0.0 && CAPABILITIES.contains(&(number as u32))
}

/// Reads the nodes of the file at `path`, in the order of the file.
///
/// # Errors
///
/// [`ConfigError`] as for cluster files: what cannot be read, or every problem of the file.
pub fn load_nodes(path: impl AsRef<Path>) -> Result<Vec<(String, Node)>, ConfigError> {
    let path = path.as_ref();
    nodes_of(path, &bytes_of(path)?)
}

/// Reads nodes from `text`; `path` is only its name in messages.
///
/// # Errors
///
/// As [`load_nodes`].
pub fn parse_nodes(path: impl AsRef<Path>, text: &str) -> Result<Vec<(String, Node)>, ConfigError> {
    nodes_of(path.as_ref(), text.as_bytes())
}

fn nodes_of(path: &Path, bytes: &[u8]) -> Result<Vec<(String, Node)>, ConfigError> {
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(ConfigError::TooLarge { path: path.to_owned(), limit: FILE_BYTES_MAX });
    }
    let invalid = |problems: Vec<Problem>| ConfigError::Invalid { path: path.to_owned(), problems };
    let text = syntax::text_of(bytes).map_err(|problem| invalid(vec![problem]))?;
    let tree = syntax::parse(text).map_err(|problem| invalid(vec![problem]))?;
    let mut reader = Reader::new(text);
    let nodes = read_all(&mut reader, &tree, "");
    match nodes {
        Some(nodes) if reader.is_clean() => Ok(nodes),
        _ => Err(invalid(reader.into_problems())),
    }
}

/// The descriptions behind the key `field`, or of a whole file where that is empty.
pub(crate) fn read_all(reader: &mut Reader<'_>, tree: &Tree, field: &str) -> Option<Vec<(String, Node)>> {
    let Tree::Table(entries) = tree else {
        reader.problem(field, format!("found {}; write a name and a node for each description", show(tree)));
        return None;
    };
    let names: Vec<&str> = entries
        .iter()
        .filter_map(|(key, _)| if let Tree::Text(name) = key { Some(&**name) } else { None })
        .collect();
    // The names are free; this finds those that are no texts or come twice.
    let table = reader.table(tree, field, &names)?;
    let mut nodes = Vec::new();
    for name in names {
        let Some(value) = table.get(name) else { continue };
        let place = join(field, name);
        if !reader::is_fit(name) {
            reader
                .problem(&place, "the name of a node is a text of at most 255 bytes on one line".to_owned());
            continue;
        }
        if let Some(node) = read_node(reader, value, &place) {
            nodes.push((name.to_owned(), node));
        }
    }
    Some(nodes)
}

/// Reads one description; `None` if there is at least one problem.
fn read_node(reader: &mut Reader<'_>, value: &Tree, field: &str) -> Option<Node> {
    let table = reader.table(value, field, NODE_KEYS)?;
    let cpu = read_cpu(reader, &table);
    let sm = whole(reader, &table, "sm", None, SM);
    let numa = reader.list(&table, "numa", "one list per NUMA node, of what its PCIe root has");
    let sm_or_any = sm.unwrap_or(80);
    let slots: Option<Vec<Vec<Slot>>> = numa
        .map(|list| list.iter().map(|(field, value)| read_slots(reader, value, field, sm_or_any)).collect())
        .unwrap_or(None);
    let kind = cpu?;
    let cpus = slots?.into_iter().map(|slots| Cpu { kind, slots }).collect();
    let peer_access = reader.truth(&table, "p2p", true)?;
    let mut node = Node { cpus, nvlinks: Vec::new(), peer_access };
    node.nvlinks = read_nvlinks(reader, &table, node.gpus().len())?;
    sm?;
    match node.check() {
        Ok(()) => Some(node),
        Err(error) => {
            let key = match error {
                NodeError::OneWay { .. } | NodeError::Links { .. } | NodeError::Dangling { .. } => "nvlink",
                _ => "numa",
            };
            reader.problem(&join(field, key), error.to_string());
            None
        }
    }
}

fn read_cpu(reader: &mut Reader<'_>, table: &Table<'_>) -> Option<CpuKind> {
    let name = reader.text(table, "cpu")?;
    let known = CPUS.iter().find(|(known, _)| *known == name).map(|&(_, kind)| kind);
    let model =
        name.strip_prefix("intel_").and_then(|model| model.parse().ok()).filter(|&model| model <= MODEL_MAX);
    let kind = known.or(model.map(CpuKind::Intel));
    if kind.is_none() {
        let names = CPUS.map(|(name, _)| name);
        let hint = match near(&name, &names).first() {
            Some(meant) => format!("did you mean `{meant}`?"),
            None => format!("known are {} and intel_MODEL", names.join(", ")),
        };
        reader
            .problem(&join(&table.field, "cpu"), format!("no CPU is called `{}`; {hint}", show_name(&name)));
    }
    kind
}

/// The beginning of a name.
fn show_name(name: &str) -> String {
    name.chars().take(40).collect::<String>().escape_debug().to_string()
}

/// A whole number in `range`.
fn whole(
    reader: &mut Reader<'_>,
    table: &Table<'_>,
    key: &str,
    default: Option<u32>,
    range: Range,
) -> Option<u32> {
    // The range admits whole numbers below 2^32 only.
    reader.number(table, key, default.map(f64::from), range).map(|number| number as u32)
}

fn items<'a>(reader: &mut Reader<'_>, value: &'a Tree, field: &str, what: &str) -> Option<&'a [Tree]> {
    match value {
        Tree::List(items) if items.len() <= LIST_MAX => Some(items),
        Tree::List(items) => {
            reader.problem(field, format!("{} entries; at most {LIST_MAX} are modelled", items.len()));
            None
        }
        other => {
            reader.problem(field, format!("found {}, not a list; write {what}", show(other)));
            None
        }
    }
}

fn read_slots(reader: &mut Reader<'_>, value: &Tree, field: &str, sm: u32) -> Option<Vec<Slot>> {
    let list = items(
        reader,
        value,
        field,
        "what is plugged into this NUMA node, such as `- {gpus: 2, pcie_gen: 4}`",
    )?;
    let parts: Vec<Option<Vec<Slot>>> = list
        .iter()
        .enumerate()
        .map(|(i, value)| read_slot(reader, value, &format!("{field}[{i}]"), sm))
        .collect();
    let parts: Option<Vec<Vec<Slot>>> = parts.into_iter().collect();
    parts.map(|parts| parts.into_iter().flatten().collect())
}

/// What one entry stands for: a switch with devices, or the devices themselves.
fn read_slot(reader: &mut Reader<'_>, value: &Tree, field: &str, sm: u32) -> Option<Vec<Slot>> {
    let table = reader.table(value, field, SLOT_KEYS)?;
    let switch = reader.truth(&table, "switch", false);
    let bandwidth = read_bandwidth(reader, &table);
    let sm = whole(reader, &table, "sm", Some(sm), SM);
    let gdr = reader.truth(&table, "gdr", true);
    let gpus = whole(reader, &table, "gpus", Some(0), GPUS);
    let mut ports = |key: &str| match table.get(key) {
        None => Some(Vec::new()),
        Some(value) => read_ports(reader, value, &join(field, key)),
    };
    let (cards, shared) = (ports("nics"), ports("card"));
    let below = match table.get("slots") {
        None => Some(Vec::new()),
        Some(value) => read_slots(reader, value, &join(field, "slots"), sm.unwrap_or(80)),
    };
    if switch == Some(false) && table.has("slots") {
        reader.problem(&join(field, "slots"), "only a switch has slots; write `switch: true` too".to_owned());
    }
    let (bandwidth, shared) = (bandwidth?, shared?);
    let gpu = Device::Gpu(Gpu { sm: sm?, gdr: gdr? });
    let devices = std::iter::repeat_n(gpu, gpus? as usize)
        .chain(cards?.into_iter().map(|port| Device::Card(vec![port])))
        .chain((!shared.is_empty()).then_some(Device::Card(shared)));
    let mut slots: Vec<Slot> = devices.map(|device| Slot { bandwidth, device }).collect();
    slots.extend(below?);
    Some(if switch? { vec![Slot { bandwidth, device: Device::Switch(slots) }] } else { slots })
}

/// The speed of an entry's links, by PCIe generation and lanes or as a number.
fn read_bandwidth(reader: &mut Reader<'_>, table: &Table<'_>) -> Option<f32> {
    if table.has("bandwidth") {
        for key in ["pcie_gen", "lanes"] {
            if table.has(key) {
                let field = join(&table.field, key);
                reader.problem(&field, "`bandwidth` says the speed already; keep one of them".to_owned());
            }
        }
        let speed = (SPEED, Unit::GigabytesPerSecond);
        return reader.measure(table, "bandwidth", None, speed).map(|bandwidth| bandwidth as f32);
    }
    let generation = whole(reader, table, "pcie_gen", None, GENERATION);
    let lanes = whole(reader, table, "lanes", Some(16), LANES);
    Node::pcie(generation?.into(), lanes?.into())
}

fn read_ports(reader: &mut Reader<'_>, value: &Tree, field: &str) -> Option<Vec<Port>> {
    let list = items(reader, value, field, "ports such as `[[100000, 0, 1]]`")?;
    let mut ports = Some(Vec::new());
    for (i, value) in list.iter().enumerate() {
        let port = match value {
            Tree::List(parts) => read_port(parts),
            _ => None,
        };
        if port.is_none() {
            let what = "`[Mbit/s, latency in us, 1 or 0 for GPU-direct RDMA]`, such as `[400000, 0, 1]`";
            reader.problem(&format!("{field}[{i}]"), format!("found {}; write {what}", show(value)));
        }
        ports = ports.zip(port).map(|(mut ports, port)| {
            ports.push(port);
            ports
        });
    }
    ports
}

fn read_port(parts: &[Tree]) -> Option<Port> {
    let [speed, latency, gdr] = parts else { return None };
    let written = |tree: &Tree, unit: Unit| if let Tree::Text(text) = tree { unit.read(text) } else { None };
    let mbps = match written(speed, Unit::GigabitsPerSecond) {
        Some(gbps) => (gbps * 1000.0).round() as u64,
        None => speed.as_u64()?,
    };
    let mbps = Some(mbps).filter(|speed| (1..=MBPS_MAX).contains(speed))?;
    let latency_us = written(latency, Unit::Microseconds).or_else(|| latency.as_f64());
    let latency_us = latency_us.filter(|latency| (0.0..=1e6).contains(latency))?;
    let gdr = match gdr {
        Tree::Bool(gdr) => *gdr,
        other => other.as_u64().filter(|&gdr| gdr <= 1)? == 1,
    };
    Some(Port { mbps: mbps as u32, latency_us: latency_us as f32, gdr, card: None })
}

fn read_nvlinks(reader: &mut Reader<'_>, table: &Table<'_>, gpus: usize) -> Option<Vec<NvLink>> {
    let mut links = Vec::new();
    if table.has("nvswitch") {
        let each = whole(reader, table, "nvswitch", None, LINKS)?;
        links.extend((0..gpus as u32).map(|gpu| NvLink { gpu, peer: NvPeer::Switch, links: each }));
    }
    let Some(matrix) = table.get("nvlink") else { return Some(links) };
    let field = join(&table.field, "nvlink");
    let rows = items(reader, matrix, &field, "a row per GPU with the number of links to each GPU")?;
    let mut sound = rows.len() == gpus;
    for (i, row) in rows.iter().enumerate() {
        let Tree::List(cells) = row else {
            sound = false;
            continue;
        };
        sound &= cells.len() == gpus;
        for (j, cell) in cells.iter().enumerate().take(LIST_MAX) {
            match cell.as_u64().and_then(|links| u32::try_from(links).ok()) {
                Some(0) => {}
                Some(count) => {
                    links.push(NvLink { gpu: i as u32, peer: NvPeer::Gpu(j as u32), links: count });
                }
                None => sound = false,
            }
        }
    }
    if !sound {
        let message = format!("the matrix does not fit; write {gpus} rows of {gpus} numbers of links");
        reader.problem(&field, message);
        return None;
    }
    Some(links)
}
