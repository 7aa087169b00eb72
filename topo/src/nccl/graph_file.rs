//! Files with what a log of NCCL says of a communicator.
//!
//! ```yaml
//! ranks: 16
//! nodes: 2
//! compute_capability: 90      # of the oldest GPU, without the dot
//! cpu: intel                  # intel, amd, zhaoxin, arm, power, mixed
//! plugin_latency_us: 0        # what the network plugin reports; may be left out
//! graphs: |                   # the Pattern lines of one rank, or a list of them
//!   Pattern 4, crossNic 0, nChannels 8, bw 24.000000/24.000000, type NVL/PIX, sameChannels 0
//!   Pattern 1, crossNic 0, nChannels 8, bw 30.000000/24.000000, type NVL/PIX, sameChannels 0
//! ```

use std::path::Path;

use super::graph::{Graph, Graphs, Pattern};
use super::log::pattern_line;
use super::release::Release;
use super::system::is_capability;
use super::tuner::{CollNet, Cpu, Environment, Setup};
use crate::config::reader::{AT_LEAST_ZERO, Range, Reader, Table, show};
use crate::config::tree::Tree;
use crate::config::{FILE_BYTES_MAX, bytes_of, syntax};
use crate::lines::join;
use crate::{ConfigError, Problem};

const KEYS: &[&str] = &[
    "ranks",
    "nodes",
    "compute_capability",
    "compute_capability_max",
    "cpu",
    "cuda",
    "plugin_latency_us",
    "graphs",
    "collnet",
];
const COLLNET_KEYS: &[&str] = &["heads", "gathers"];
/// Most lines of a file that are looked at for patterns.
const LINES_MAX: usize = 100_000;

const COUNT: Range =
    Range::new(|x| (1.0..=1_048_576.0).contains(&x) && x.fract() == 0.0, "a whole number from 1 to 1048576");
pub(crate) const CAPABILITY: Range =
    Range::new(is_capability, "a compute capability, 35 to 139, such as 90, without the dot");
const TRUTH: Range = Range::new(|x| x == 0.0 || x == 1.0, "0 or 1");

/// Reads the communicator that the file at `path` describes.
///
/// # Errors
///
/// [`ConfigError`] as for cluster files: what cannot be read, or every problem of the file.
pub fn load(
    path: impl AsRef<Path>,
    release: Release,
    environment: Environment,
) -> Result<Setup, ConfigError> {
    let path = path.as_ref();
    from_bytes(path, &bytes_of(path)?, release, environment)
}

/// Reads a communicator from the bytes of a file; `path` is only its name in messages.
///
/// # Errors
///
/// As [`load`].
pub fn from_bytes(
    path: impl AsRef<Path>,
    bytes: &[u8],
    release: Release,
    environment: Environment,
) -> Result<Setup, ConfigError> {
    let path = path.as_ref();
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(ConfigError::TooLarge { path: path.to_owned(), limit: FILE_BYTES_MAX });
    }
    let invalid = |problems: Vec<Problem>| ConfigError::Invalid { path: path.to_owned(), problems };
    let text = syntax::text_of(bytes).map_err(|problem| invalid(vec![problem]))?;
    let tree = syntax::parse(text).map_err(|problem| invalid(vec![problem]))?;
    let mut reader = Reader::new(text);
    let setup = read(&mut reader, &tree, release, environment);
    if let Some(problem) = setup.as_ref().and_then(|setup| setup.check().err()) {
        reader.problem("", problem.to_string());
    }
    match setup {
        Some(setup) if reader.is_clean() => Ok(setup),
        _ => Err(invalid(reader.into_problems())),
    }
}

/// Reads on after every problem; `None` only if there is at least one.
fn read(reader: &mut Reader<'_>, tree: &Tree, release: Release, environment: Environment) -> Option<Setup> {
    let file = reader.table(tree, "", KEYS)?;
    let ranks = reader.number(&file, "ranks", None, COUNT);
    let nodes = reader.number(&file, "nodes", Some(1.0), COUNT);
    let low = reader.number(&file, "compute_capability", None, CAPABILITY);
    let high = reader.number(&file, "compute_capability_max", Some(low.unwrap_or(35.0)), CAPABILITY);
    let cpu = reader.text(&file, "cpu").and_then(|text| {
        let cpu = text.parse::<Cpu>();
        cpu.map_err(|error| reader.problem("cpu", error.to_string())).ok()
    });
    let latency = reader.number(&file, "plugin_latency_us", Some(0.0), AT_LEAST_ZERO);
    let cuda = if file.has("cuda") { reader.text(&file, "cuda")? } else { String::new() };
    let collnet = read_collnet(reader, &file);
    let found = read_graphs(reader, &file, collnet.is_some());
    let found = found?;
    let collnet =
        collnet.map(|(heads, gathers)| CollNet { direct: found.direct, chain: found.chain, heads, gathers });
    Some(Setup {
        release,
        ranks: ranks? as u32,
        nodes: nodes? as u32,
        compute_capability: low? as u32,
        compute_capability_max: high? as u32,
        cpu: cpu?,
        plugin_latency_us: latency? as f32,
        graphs: found.graphs,
        collnet,
        cuda_11_8: cuda == "11.8",
        environment,
    })
}

fn read_collnet(reader: &mut Reader<'_>, file: &Table<'_>) -> Option<(u32, bool)> {
    if !file.has("collnet") {
        return None;
    }
    let table = reader.part(file, "collnet", COLLNET_KEYS)?;
    let heads = reader.number(&table, "heads", None, COUNT)?;
    let gathers = reader.number(&table, "gathers", Some(1.0), TRUTH)?;
    Some((heads as u32, gathers == 1.0))
}

/// What the lines of a log say.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Found {
    pub(crate) graphs: Graphs,
    pub(crate) direct: Option<Graph>,
    pub(crate) chain: Option<Graph>,
}

/// The graphs of the lines behind `graphs`: a text of many lines, or a list.
pub(crate) fn read_graphs(reader: &mut Reader<'_>, file: &Table<'_>, has_collnet: bool) -> Option<Found> {
    let field = join(&file.field, "graphs");
    let what = "the Pattern lines of a log: `graphs: |` and the lines below it, indented";
    let lines: Vec<&str> = match reader.required(file, "graphs", what)? {
        Tree::Text(text) => text.lines().take(LINES_MAX).collect(),
        Tree::List(items) => items.iter().filter_map(Tree::as_text).take(LINES_MAX).collect(),
        other => {
            reader.problem(&field, format!("found {}; write {what}", show(other)));
            return None;
        }
    };
    let mut graphs: Vec<Graph> = Vec::new();
    for line in lines {
        match pattern_line(line) {
            Some(Ok(graph)) if graphs.contains(&graph) => {}
            Some(Ok(graph)) => graphs.push(graph),
            Some(Err(problem)) => {
                let shown: String = line.chars().take(60).collect();
                reader.problem(&field, format!("`{shown}`: {problem}"));
                return None;
            }
            None => {}
        }
    }
    sort_out(&graphs, has_collnet).map_err(|problem| reader.problem(&field, problem)).ok()
}

/// Which graph is which: patterns 1 to 3 are trees, and with CollNet the second of them is its chain.
fn sort_out(graphs: &[Graph], has_collnet: bool) -> Result<Found, String> {
    let of = |patterns: &[Pattern]| -> Vec<Graph> {
        graphs.iter().filter(|graph| patterns.contains(&graph.pattern)).cloned().collect()
    };
    let one = |mut found: Vec<Graph>, what: &str| match found.len() {
        0 => Ok(None),
        1 => Ok(found.pop()),
        _ => Err(format!("{} different lines for {what}; keep those of one rank", found.len())),
    };
    let mut trees = of(&[Pattern::BalancedTree, Pattern::SplitTree, Pattern::Tree]);
    let chain = (has_collnet && trees.len() == 2).then(|| trees.pop()).flatten();
    let ring = one(of(&[Pattern::Ring]), "rings, pattern 4")?.ok_or("no line of pattern 4, the ring")?;
    let tree = one(trees, "trees, patterns 1 to 3")?.ok_or("no line of pattern 1, 2 or 3, the tree")?;
    let nvls = one(of(&[Pattern::Nvls]), "NVLS, pattern 5")?;
    let direct = one(of(&[Pattern::CollNetDirect]), "CollNetDirect, pattern 6")?;
    if direct.is_some() && !has_collnet {
        return Err("pattern 6 belongs to CollNet; add `collnet: {heads: 8}`, or remove the line".to_owned());
    }
    Ok(Found { graphs: Graphs { ring, tree, nvls }, direct, chain })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &str = "graphs: |
  x:1:2 [0] NCCL INFO Pattern 4, crossNic 0, nChannels 6, bw 20.000000/20.000000, type NVL/PIX, sameChannels 0
  x:1:2 [0] NCCL INFO Pattern 1, crossNic 0, nChannels 6, bw 20.000000/20.000000, type NVL/PIX, sameChannels 0
";
    const HEAD: &str = "ranks: 4\ncompute_capability: 70\ncpu: intel\n";

    fn parse(text: &str) -> Result<Setup, String> {
        let release = Release::new(2, 22, 3);
        from_bytes("g.yaml", text.as_bytes(), release, Environment::default())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_log_becomes_a_communicator() {
        // The lines of several ranks are one graph each; what is left out has its default.
        let setup = parse(&format!("{HEAD}{LINES}{}", LINES.trim_start_matches("graphs: |\n"))).unwrap();
        assert_eq!((setup.ranks, setup.nodes, setup.compute_capability_max), (4, 1, 70));
        assert_eq!((setup.graphs.ring.channels, setup.graphs.tree.pattern), (6, Pattern::BalancedTree));
        let list = "graphs:\n  - Pattern 4, crossNic 0, nChannels 6, bw 20/20, type NVL/PIX, sameChannels 0\n  \
                    - Pattern 1, crossNic 0, nChannels 6, bw 20/20, type NVL/PIX, sameChannels 0\n";
        assert_eq!(parse(&format!("{HEAD}{list}")).unwrap(), setup);
    }

    #[test]
    fn problems_name_line_and_field() {
        // One mistake at a time, each with its place and what to write.
        for (text, says) in [
            (format!("{HEAD}graphs: |\n  nothing\n"), "g.yaml:4: graphs: no line of pattern 4"),
            (format!("{HEAD}{LINES}").replace("ranks: 4", "ranks: 0"), "g.yaml:1: ranks: found `0`"),
            (format!("{HEAD}{LINES}").replace("intel", "i960"), "g.yaml:3: cpu: `i960` is no CPU"),
            (format!("{HEAD}{LINES}").replace("NVL/PIX", "NVL"), "write the line as NCCL prints it"),
            (format!("{HEAD}{LINES}nodes: 5\n"), "5 nodes for 4 ranks"),
            (format!("{HEAD}{LINES}node: 1\n"), "did you mean `nodes`?"),
            (format!("{HEAD}graphs: 7\n"), "found `7`"),
            (format!("{HEAD}{LINES}").replacen("nChannels 6", "nChannels 99", 1), "99 channels"),
            ("ranks: [".to_owned(), "g.yaml"),
            (String::new(), "empty"),
        ] {
            let error = parse(&text).unwrap_err();
            assert!(error.contains(says), "{says}: {error}");
        }
        let other = LINES.replace("nChannels 6", "nChannels 4").replace("graphs: |\n", "");
        assert!(parse(&format!("{HEAD}{LINES}{other}")).unwrap_err().contains("2 different lines for rings"));
    }
}
