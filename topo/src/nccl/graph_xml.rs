//! Graphs as the XML that `NCCL_GRAPH_DUMP_FILE` writes and `NCCL_GRAPH_FILE` reads.
//!
//! ```xml
//! <graphs version="1">
//!   <graph id="0" pattern="4" crossnic="0" nchannels="1" speedintra="12" speedinter="12" latencyinter="0"
//!          typeintra="NVL" typeinter="PIX" samechannels="1">
//!     <channel><net dev="0"/><gpu dev="0"/><gpu dev="1"/><net dev="0"/></channel>
//!   </graph>
//! </graphs>
//! ```
//!
//! Ids are 0 for the ring, 1 for the tree, 2 for CollNet's chain, 3 for NVLS and 4 for CollNet's direct graph.

use std::fmt::Write as _;
use std::path::Path;

use roxmltree::{Document, ParsingOptions};

use super::graph::{Graph, Graphs, PathType, Pattern};
use super::search::{Channel, Search};
use super::system::Node;
use crate::config::{bytes_of, syntax};
use crate::xml::line_too_deep;
use crate::{ConfigError, Problem};

/// Largest file that is read.
const BYTES_MAX: usize = 1 << 20;
/// Most XML nodes of a file.
const NODES_MAX: u32 = 20_000;
/// Deepest nesting: graphs, channels, devices.
const DEPTH_MAX: usize = 16;
/// Most channels of a graph, in any release.
const CHANNELS_MAX: u32 = 64;
/// Fastest channel that is believed, in 10^9 bytes per second.
const SPEED_MAX: f32 = 10_000.0;
const ATTRIBUTES: &str =
    "id, pattern, crossnic, nchannels, speedintra, speedinter, typeintra, typeinter, samechannels";

type Element<'a> = roxmltree::Node<'a, 'a>;

/// Reads the graphs of a machine from the file at `path`, in place of a search.
///
/// # Errors
///
/// [`ConfigError`] if it cannot be read, has no ring or no tree, or has what no graph of `node` is, with lines.
pub fn load(path: impl AsRef<Path>, node: &Node, nodes: u32) -> Result<Search, ConfigError> {
    let path = path.as_ref();
    let bytes = bytes_of(path)?;
    let text = syntax::text_of(&bytes)
        .map_err(|problem| ConfigError::Invalid { path: path.to_owned(), problems: vec![problem] })?;
    parse(path, text, node, nodes)
}

/// Reads graphs from their text; `path` is only its name in messages.
///
/// # Errors
///
/// As [`load`].
pub fn parse(path: impl AsRef<Path>, text: &str, node: &Node, nodes: u32) -> Result<Search, ConfigError> {
    let path = path.as_ref();
    if text.len() > BYTES_MAX {
        return Err(ConfigError::TooLarge { path: path.to_owned(), limit: BYTES_MAX as u64 });
    }
    let invalid = |problem| ConfigError::Invalid { path: path.to_owned(), problems: vec![problem] };
    // Graphs, channels, devices: nothing nests deeper, so a file that does is none.
    if let Some(line) = line_too_deep(text, DEPTH_MAX) {
        let message =
            format!("more than {DEPTH_MAX} elements in each other; name the file of NCCL_GRAPH_DUMP_FILE");
        return Err(invalid(Problem { line: Some(line), field: String::new(), message }));
    }
    let options = ParsingOptions { allow_dtd: false, nodes_limit: NODES_MAX, ..ParsingOptions::default() };
    let document = Document::parse_with_options(text, options).map_err(|error| {
        let message = format!("not a graph dump of NCCL: {error}; name the file of NCCL_GRAPH_DUMP_FILE");
        invalid(Problem { line: Some(error.pos().row as usize), field: String::new(), message })
    })?;
    let reader = Reader {
        document: &document,
        gpus: node.gpus().len() as u32,
        ports: node.ports().len() as u32,
        nodes,
    };
    let latency = node.ports().iter().map(|port| port.latency_us).fold(0.0, f32::max);
    reader.search(if nodes > 1 { latency } else { 0.0 }).map_err(invalid)
}

struct Reader<'a> {
    document: &'a Document<'a>,
    gpus: u32,
    ports: u32,
    nodes: u32,
}

impl<'a> Reader<'a> {
    fn search(&self, latency_us: f32) -> Result<Search, Problem> {
        let root = self.document.root_element();
        if root.tag_name().name() != "graphs" {
            return Err(self.problem(root, "a dump of graphs begins with <graphs>".to_owned()));
        }
        let mut found: Vec<(u32, Graph, Vec<Channel>)> = Vec::new();
        for element in root.children().filter(|child| child.has_tag_name("graph")) {
            let (id, graph) = self.graph(element)?;
            let ways: Result<Vec<Channel>, Problem> = element
                .children()
                .filter(|child| child.has_tag_name("channel"))
                .map(|one| self.channel(one))
                .collect();
            let ways = ways?;
            if ways.len() != graph.channels as usize {
                let message =
                    format!("nchannels is {}, but there are {} <channel>", graph.channels, ways.len());
                return Err(self.problem(element, message + "; make them agree"));
            }
            if found.iter().any(|(known, ..)| *known == id) {
                return Err(self.problem(element, format!("a second graph with id {id}; keep one")));
            }
            found.push((id, graph, ways));
        }
        let mut take = |id: u32, fits: fn(Pattern) -> bool| {
            let at = found.iter().position(|(known, graph, _)| *known == id && fits(graph.pattern))?;
            let (_, graph, ways) = found.swap_remove(at);
            Some((graph, ways))
        };
        let missing =
            |what| self.problem(root, format!("no graph of {what}; dump the graphs of a whole communicator"));
        let ring = take(0, |pattern| pattern == Pattern::Ring)
            .ok_or_else(|| missing("the ring, id 0, pattern 4"))?;
        let is_tree = |pattern| matches!(pattern, Pattern::BalancedTree | Pattern::SplitTree | Pattern::Tree);
        let tree = take(1, is_tree).ok_or_else(|| missing("the tree, id 1, patterns 1 to 3"))?;
        let nvls = take(3, |pattern| pattern == Pattern::Nvls);
        Ok(Search {
            channels: (2 * ring.0.channels.min(tree.0.channels)).min(CHANNELS_MAX),
            net_latency_us: latency_us,
            collnet: None,
            graphs: Graphs {
                ring: ring.0,
                tree: tree.0,
                nvls: nvls.as_ref().map(|(graph, _)| graph.clone()),
            },
            ring: ring.1,
            tree: tree.1,
            nvls: nvls.map_or(Vec::new(), |(_, ways)| ways),
        })
    }

    fn graph(&self, element: Element<'a>) -> Result<(u32, Graph), Problem> {
        let number = |name: &str, most: u32| {
            let value = element.attribute(name).and_then(|text| text.parse::<u32>().ok());
            value.filter(|&value| value <= most).ok_or_else(|| {
                let message =
                    format!("`{name}` is missing or no number up to {most}; a graph has {ATTRIBUTES}");
                self.problem(element, message)
            })
        };
        let speed = |name: &str| {
            let value = element.attribute(name).and_then(|text| text.parse::<f32>().ok());
            value.filter(|value| (0.0..=SPEED_MAX).contains(value)).ok_or_else(|| {
                self.problem(
                    element,
                    format!("`{name}` is missing or no speed; write GB/s up to {SPEED_MAX}"),
                )
            })
        };
        let kind = |name: &str| {
            let text = element.attribute(name).unwrap_or_default();
            text.parse::<PathType>().map_err(|error| self.problem(element, format!("`{name}`: {error}")))
        };
        let pattern = number("pattern", 6)?;
        let graph = Graph {
            pattern: Pattern::from_id(pattern)
                .ok_or_else(|| self.problem(element, format!("pattern {pattern}; NCCL has 1 to 6")))?,
            channels: number("nchannels", CHANNELS_MAX)?,
            bw_intra: speed("speedintra")?,
            bw_inter: speed("speedinter")?,
            type_intra: kind("typeintra")?,
            type_inter: kind("typeinter")?,
            same_channels: number("samechannels", 1)? == 1,
            cross_nic: number("crossnic", 2)? as u8,
        };
        Ok((number("id", 15)?, graph))
    }

    fn channel(&self, element: Element<'a>) -> Result<Channel, Problem> {
        let devices = |tag: &str, count: u32| {
            let all = element.children().filter(|child| child.has_tag_name(tag));
            let numbers: Result<Vec<u32>, Problem> = all
                .map(|child| {
                    let number = child.attribute("dev").and_then(|text| text.parse::<u32>().ok());
                    number.filter(|&number| number < count).ok_or_else(|| {
                        let shown: String =
                            child.attribute("dev").unwrap_or_default().chars().take(20).collect();
                        let message =
                            format!("<{tag} dev=\"{shown}\">: the machine has {count} of them, from 0");
                        self.problem(child, message)
                    })
                })
                .collect();
            numbers
        };
        let (gpus, nets) = (devices("gpu", self.gpus)?, devices("net", self.ports)?);
        if gpus.is_empty() {
            return Err(self.problem(element, "a channel without <gpu>; list its GPUs in order".to_owned()));
        }
        let ports = nets.first().copied().zip(nets.last().copied()).filter(|_| self.nodes > 1);
        if self.nodes > 1 && ports.is_none() {
            return Err(self
                .problem(element, "a channel without <net>; on several nodes it enters by one".to_owned()));
        }
        Ok(Channel { gpus, ports })
    }

    fn problem(&self, element: Element<'_>, message: String) -> Problem {
        let line = self.document.text_pos_at(element.range().start).row as usize;
        Problem { line: Some(line), field: element.tag_name().name().to_owned(), message }
    }
}

/// What NCCL writes to `NCCL_GRAPH_DUMP_FILE` for a search's result.
pub fn write(found: &Search) -> String {
    let mut text = String::from("<graphs version=\"1\">\n");
    let graphs = &found.graphs;
    let all = [
        (0, Some(&graphs.ring), &found.ring),
        (1, Some(&graphs.tree), &found.tree),
        (3, graphs.nvls.as_ref(), &found.nvls),
    ];
    for (id, graph, ways) in all {
        let Some(graph) = graph else { continue };
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "  <graph id=\"{id}\" pattern=\"{}\" crossnic=\"{}\" nchannels=\"{}\" speedintra=\"{}\" speedinter=\"{}\" \
             latencyinter=\"{}\" typeintra=\"{}\" typeinter=\"{}\" samechannels=\"{}\">",
            graph.pattern.id(),
            graph.cross_nic,
            graph.channels,
            graph.bw_intra,
            graph.bw_inter,
            found.net_latency_us,
            graph.type_intra,
            graph.type_inter,
            u8::from(graph.same_channels)
        );
        for way in ways.iter().take(graph.channels as usize) {
            text.push_str("    <channel>\n");
            let net = |text: &mut String, port: Option<u32>| {
                if let Some(port) = port {
                    let _ = writeln!(text, "      <net dev=\"{port}\"/>");
                }
            };
            net(&mut text, way.ports.map(|(entry, _)| entry));
            for gpu in &way.gpus {
                let _ = writeln!(text, "      <gpu dev=\"{gpu}\"/>");
            }
            net(&mut text, way.ports.map(|(_, exit)| exit));
            text.push_str("    </channel>\n");
        }
        text.push_str("  </graph>\n");
    }
    text.push_str("</graphs>\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nccl::profiles;
    use crate::nccl::release::Release;
    use crate::nccl::search::{Env, graphs_of};

    #[test]
    fn what_is_written_is_read_as_the_same() {
        // Graphs and ways of every profile, on one node and on two.
        for name in profiles::names() {
            let node = profiles::find(name).unwrap();
            for nodes in [1, 2] {
                let found = graphs_of(&node, nodes, Release::new(2, 22, 3), &Env::default()).unwrap();
                let again = parse("g.xml", &write(&found), &node, nodes).unwrap();
                assert_eq!(
                    (&again.graphs, again.net_latency_us),
                    (&found.graphs, found.net_latency_us),
                    "{name}"
                );
                assert_eq!(
                    (&again.ring, &again.tree, &again.nvls),
                    (&found.ring, &found.tree, &found.nvls),
                    "{name}"
                );
            }
        }
    }

    #[test]
    fn what_is_no_dump_is_refused_with_its_line() {
        // Broken XML, other files, missing graphs, devices that are not there; each with line and remedy.
        let node = profiles::find("dgx-a100").unwrap();
        let good = write(&graphs_of(&node, 2, Release::NEWEST, &Env::default()).unwrap());
        let deep = "<graphs>".repeat(1000);
        for (text, line, says) in [
            ("", 1, "not a graph dump"),
            ("<system/>", 1, "begins with <graphs>"),
            ("<graphs version=\"1\"/>", 1, "no graph of the ring"),
            (deep.as_str(), 1, "in each other"),
            (good.replace("pattern=\"4\"", "pattern=\"9\"").as_str(), 2, "`pattern` is missing"),
            (good.replace("pattern=\"4\"", "pattern=\"0\"").as_str(), 2, "NCCL has 1 to 6"),
            (good.replacen("speedintra=\"24\"", "speedintra=\"NaN\"", 1).as_str(), 2, "`speedintra`"),
            (good.replacen("typeintra=\"NVL\"", "typeintra=\"NEAR\"", 1).as_str(), 2, "NVL"),
            (good.replacen("<gpu dev=\"0\"/>", "<gpu dev=\"8\"/>", 1).as_str(), 5, "8 of them"),
            (good.replacen("nchannels=\"8\"", "nchannels=\"7\"", 1).as_str(), 2, "make them agree"),
            (good.replace("id=\"1\"", "id=\"0\"").as_str(), 0, "a second graph with id 0"),
        ] {
            let error = parse("g.xml", text, &node, 2).unwrap_err();
            let problem = &error.problems()[0];
            assert!(problem.message.contains(says), "{says}: {error}");
            assert!(line == 0 || problem.line == Some(line), "{says}: {error}");
        }
    }
}
