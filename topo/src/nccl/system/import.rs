//! NCCL's own description of a node, the XML file that `NCCL_TOPO_DUMP_FILE` names.
//!
//! Elements that change nothing in the model are passed over, and told in [`Imported::notes`] if a person might miss
//! them.

use std::collections::HashMap;
use std::path::Path;

use roxmltree::{Document, ParsingOptions};

use super::{Cpu, CpuKind, Device, Gpu, Node, NvLink, NvPeer, Port, Slot, rates};
use crate::config::{bytes_of, syntax};
use crate::xml::line_too_deep;
use crate::{ConfigError, Problem};

/// Largest dump that is read; those of real nodes have a hundredth of it.
const BYTES_MAX: usize = 1 << 20;
/// Most XML nodes of a dump, texts and attributes' elements together.
const NODES_MAX: u32 = 20_000;
/// Deepest nesting of elements; a dump has one for each level of PCIe switches.
const DEPTH_MAX: usize = 32;
/// Most problems that are told.
const PROBLEMS_MAX: usize = 20;
/// What NCCL takes for a PCIe link whose speed is unknown: generation 3 with 16 lanes.
const UNKNOWN_PCIE: (f64, u64) = (8.0, 16);

/// A node from a dump.
#[derive(Clone, Debug, PartialEq)]
pub struct Imported {
    /// The node; its GPUs are numbered in the order of the dump.
    pub node: Node,
    /// What the dump has and the model does not use, one sentence each.
    pub notes: Vec<String>,
}

/// Reads the dump at `path`.
///
/// # Errors
///
/// [`ConfigError`] if it cannot be read, is too large, or says what no node is, with the lines.
pub fn import_file(path: impl AsRef<Path>) -> Result<Imported, ConfigError> {
    let path = path.as_ref();
    let bytes = bytes_of(path)?;
    let text = syntax::text_of(&bytes)
        .map_err(|problem| ConfigError::Invalid { path: path.to_owned(), problems: vec![problem] })?;
    import(path, text)
}

/// Reads a dump from its text; `path` is only its name in messages.
///
/// # Errors
///
/// As [`import_file`].
pub fn import(path: impl AsRef<Path>, text: &str) -> Result<Imported, ConfigError> {
    let path = path.as_ref();
    if text.len() > BYTES_MAX {
        return Err(ConfigError::TooLarge { path: path.to_owned(), limit: BYTES_MAX as u64 });
    }
    let invalid = |problems| ConfigError::Invalid { path: path.to_owned(), problems };
    if let Some(problem) = too_deep(text) {
        return Err(invalid(vec![problem]));
    }
    let options = ParsingOptions { allow_dtd: false, nodes_limit: NODES_MAX, ..ParsingOptions::default() };
    let document = Document::parse_with_options(text, options).map_err(|error| {
        let message = format!("not a topology dump of NCCL: {error}; name the file of NCCL_TOPO_DUMP_FILE");
        invalid(vec![Problem { line: Some(error.pos().row as usize), field: String::new(), message }])
    })?;
    let mut dump = Dump { document: &document, gpus: Vec::new(), notes: Vec::new(), problems: Vec::new() };
    let node = dump.node();
    match node {
        Some(node) if dump.problems.is_empty() => Ok(Imported { node, notes: dump.notes }),
        _ => Err(invalid(dump.problems)),
    }
}

/// Why the text nests too deeply to be parsed.
fn too_deep(text: &str) -> Option<Problem> {
    let line = line_too_deep(text, DEPTH_MAX)?;
    let message = format!("more than {DEPTH_MAX} elements in each other; a dump has one per PCIe switch");
    Some(Problem { line: Some(line), field: String::new(), message })
}

type Element<'a> = roxmltree::Node<'a, 'a>;

/// A GPU and the NVLinks that are told below it.
struct GpuEntry<'a> {
    bus: String,
    element: Element<'a>,
}

/// A dump that is being read.
struct Dump<'a> {
    document: &'a Document<'a>,
    gpus: Vec<GpuEntry<'a>>,
    notes: Vec<String>,
    problems: Vec<Problem>,
}

impl<'a> Dump<'a> {
    fn node(&mut self) -> Option<Node> {
        let root = self.document.root_element();
        if root.tag_name().name() != "system" {
            self.problem(root, format!("found <{}>; a dump begins with <system>", root.tag_name().name()));
            return None;
        }
        let mut cpus = Vec::new();
        for element in root.children().filter(Element::is_element) {
            match element.tag_name().name() {
                "cpu" => {
                    let kind = self.cpu(element);
                    let slots = self.slots(element);
                    cpus.extend(kind.map(|kind| Cpu { kind, slots }));
                }
                other => self.note(format!("<{other}> in <system> is not used")),
            }
        }
        let nvlinks = self.nvlinks();
        let node = Node { cpus, nvlinks, peer_access: true };
        if self.problems.is_empty()
            && let Err(error) = node.check()
        {
            self.problem(root, error.to_string());
        }
        Some(node)
    }

    fn problem(&mut self, element: Element<'_>, message: String) {
        if self.problems.len() >= PROBLEMS_MAX {
            return;
        }
        let line = self.document.text_pos_at(element.range().start).row as usize;
        let name = element.tag_name().name();
        let field = match element.attribute("busid").or(element.attribute("numaid")) {
            Some(id) => format!("{name} {}", shown(id)),
            None => name.to_owned(),
        };
        self.problems.push(Problem { line: Some(line), field, message });
    }

    /// Keeps a note once.
    fn note(&mut self, note: String) {
        if !self.notes.contains(&note) && self.notes.len() < PROBLEMS_MAX {
            self.notes.push(note);
        }
    }

    /// A whole number of an attribute, or `default` without it.
    fn number(&mut self, element: Element<'_>, name: &str, default: Option<i64>) -> Option<i64> {
        let Some(text) = element.attribute(name) else {
            if default.is_none() {
                self.problem(element, format!("the attribute `{name}` is missing; dump the node again"));
            }
            return default;
        };
        let number = text.trim().parse().ok();
        if number.is_none() {
            self.problem(element, format!("`{name}` is `{}`; it must be a whole number", shown(text)));
        }
        number
    }

    fn cpu(&mut self, element: Element<'_>) -> Option<CpuKind> {
        let (arch, vendor) = (element.attribute("arch"), element.attribute("vendor"));
        match (arch, vendor.unwrap_or_default()) {
            (Some("arm64" | "aarch64"), _) => Some(CpuKind::Arm),
            (Some("ppc64" | "ppc64le"), _) => Some(CpuKind::Power),
            (Some("x86_64"), "AuthenticAMD") => Some(CpuKind::Amd),
            (Some("x86_64"), "GenuineIntel") => {
                let model = self.number(element, "modelid", Some(0))?;
                Some(CpuKind::Intel(u32::try_from(model).unwrap_or(0)))
            }
            (Some("x86_64"), "CentaurHauls" | "  Shanghai  ") => {
                // Family 7 with model 0x5b, and what came after it, is Yongfeng.
                let family = self.number(element, "familyid", Some(0))?;
                let model = self.number(element, "modelid", Some(0))?;
                Some(CpuKind::Zhaoxin(family == 7 && model >= 0x5b))
            }
            (arch, vendor) => {
                let what = format!("`{}` `{}`", shown(arch.unwrap_or("no arch")), shown(vendor));
                self.problem(
                    element,
                    format!("no CPU is known as {what}; known are Intel, AMD, ARM, POWER, Zhaoxin"),
                );
                None
            }
        }
    }

    /// What is plugged into a CPU or a switch.
    fn slots(&mut self, element: Element<'a>) -> Vec<Slot> {
        let mut slots: Vec<Slot> = Vec::new();
        // Functions of one card are told as devices of their own.
        let mut cards: HashMap<&str, usize> = HashMap::new();
        for child in element.children().filter(Element::is_element) {
            match child.tag_name().name() {
                "pci" => {
                    let Some(slot) = self.pci(child) else { continue };
                    let card =
                        child.attribute("busid").and_then(|bus| bus.rsplit_once('.')).map(|(card, _)| card);
                    if let (Some(card), Device::Card(ports)) = (card, &slot.device) {
                        if let Some(&known) = cards.get(card)
                            && let Device::Card(all) = &mut slots[known].device
                        {
                            all.extend_from_slice(ports);
                            continue;
                        }
                        cards.insert(card, slots.len());
                    }
                    slots.push(slot);
                }
                // A virtual card stands right below the CPU; nothing limits the way to it.
                "nic" => {
                    let ports = self.ports(child);
                    slots.push(Slot { bandwidth: rates::SAME_DEVICE, device: Device::Card(ports) });
                }
                other => self.note(format!("<{other}> in <{}> is not used", element.tag_name().name())),
            }
        }
        slots
    }

    fn pci(&mut self, element: Element<'a>) -> Option<Slot> {
        let bandwidth = self.pcie(element)?;
        let child = |name: &str| element.children().find(|child| child.has_tag_name(name));
        let device = if let Some(gpu) = child("gpu") {
            let bus = element.attribute("busid").unwrap_or_default().to_ascii_lowercase();
            self.gpus.push(GpuEntry { bus, element: gpu });
            let sm = self.number(gpu, "sm", None)?;
            let gdr = self.number(gpu, "gdr", Some(1))? != 0;
            Device::Gpu(Gpu { sm: u32::try_from(sm).unwrap_or(0), gdr })
        } else if let Some(nic) = child("nic") {
            Device::Card(self.ports(nic))
        } else if element.children().any(|child| child.has_tag_name("pci")) {
            Device::Switch(self.slots(element))
        } else {
            let class = shown(element.attribute("class").unwrap_or("no class"));
            self.note(format!("a device of class {class} without GPU or card is not used"));
            return None;
        };
        Some(Slot { bandwidth, device })
    }

    /// Bandwidth of the link above a device, as NCCL computes it from width and speed.
    fn pcie(&mut self, element: Element<'_>) -> Option<f32> {
        let text = element.attribute("link_speed").unwrap_or_default();
        let digits = text.split_whitespace().next().unwrap_or_default();
        let (unknown_speed, unknown_lanes) = UNKNOWN_PCIE;
        let lanes = match self.number(element, "link_width", Some(0))? {
            0 => unknown_lanes,
            lanes => u64::try_from(lanes).unwrap_or(0),
        };
        let speed: f64 = digits.parse().unwrap_or(unknown_speed);
        let generation = [2.5, 5.0, 8.0, 16.0, 32.0, 64.0].iter().position(|&known| known == speed);
        // Speeds that NCCL does not know count as generation 3.
        let generation = generation.map_or(3, |index| index as u64 + 1);
        let bandwidth = rates::pcie(generation, lanes);
        if bandwidth.is_none() {
            let message = format!("`link_width` is {lanes}; PCIe links have 1, 2, 4, 8, 12 or 16 lanes");
            self.problem(element, message);
        }
        bandwidth
    }

    fn ports(&mut self, nic: Element<'_>) -> Vec<Port> {
        let mut ports = Vec::new();
        for net in nic.children().filter(|child| child.has_tag_name("net")) {
            let speed = self.number(net, "speed", Some(0));
            let gdr = self.number(net, "gdr", Some(0));
            let number = self.number(net, "port", Some(0));
            let text = net.attribute("latency").unwrap_or("0");
            let latency = text.trim().parse::<f32>().ok().filter(|latency| latency.is_finite());
            if latency.is_none() {
                self.problem(
                    net,
                    format!("`latency` is `{}`; it must be a number of microseconds", shown(text)),
                );
            }
            let (Some(speed), Some(gdr), Some(number), Some(latency)) = (speed, gdr, number, latency) else {
                continue;
            };
            let guid = net.attribute("guid").and_then(|guid| guid.strip_prefix("0x"));
            let guid = guid.and_then(|guid| u64::from_str_radix(guid, 16).ok()).filter(|&guid| guid != 0);
            ports.push(Port {
                mbps: u32::try_from(speed).unwrap_or(0),
                latency_us: latency,
                gdr: gdr != 0,
                card: guid.map(|guid| guid.rotate_left(8) ^ number as u64),
            });
        }
        ports
    }

    /// The NVLinks of all GPUs; those to GPUs that the job does not use are left out.
    fn nvlinks(&mut self) -> Vec<NvLink> {
        let numbers: HashMap<String, u32> = self.gpus.iter().map(|gpu| gpu.bus.clone()).zip(0..).collect();
        let mut found: Vec<NvLink> = Vec::new();
        let elements: Vec<Element<'a>> = self.gpus.iter().map(|gpu| gpu.element).collect();
        for (gpu, element) in (0..).zip(elements) {
            for link in element.children().filter(|child| child.has_tag_name("nvlink")) {
                let Some(count) = self.number(link, "count", None) else { continue };
                let target = link.attribute("target").unwrap_or_default().to_ascii_lowercase();
                let class = link.attribute("tclass").unwrap_or_default();
                let peer = match numbers.get(&target) {
                    Some(&peer) => NvPeer::Gpu(peer),
                    None if class.starts_with("0x0680") && class != "0x068001" => NvPeer::Switch,
                    None => {
                        self.note(
                            "NVLinks to devices that are not in the dump, or to CPUs, are not used"
                                .to_owned(),
                        );
                        continue;
                    }
                };
                let links = u32::try_from(count).unwrap_or(0);
                // Each NVSwitch is told by itself, and all of them count as one.
                match found.iter_mut().find(|known| known.gpu == gpu && known.peer == peer) {
                    Some(known) => known.links = known.links.saturating_add(links),
                    None => found.push(NvLink { gpu, peer, links }),
                }
            }
        }
        found
    }
}

/// The beginning of a text of the dump.
fn shown(text: &str) -> String {
    text.chars().take(40).collect::<String>().escape_debug().to_string()
}
