//! Machines that are known by name.
//!
//! `boxes.yaml` has what makers build, `clouds.yaml` what clouds rent. A cluster is a profile and a number of nodes:
//!
//! ```
//! use topo::nccl::{profiles, release::Release, search};
//!
//! let node = profiles::find("dgx-h100")?;
//! let found = search::graphs_of(&node, 2, Release::new(2, 27, 7), &search::Env::default())?;
//! assert_eq!((found.graphs.ring.channels, found.graphs.ring.bw_intra), (8, 48.0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::near::near;

use super::system::{Node, parse_nodes};

const FILES: [(&str, &str); 2] =
    [("boxes.yaml", include_str!("boxes.yaml")), ("clouds.yaml", include_str!("clouds.yaml"))];

/// What people also call a profile.
const ALSO: [(&str, &str); 18] = [
    ("dgx1v", "dgx-1v"),
    ("dgx1", "dgx-1v"),
    ("dgx2", "dgx-2"),
    ("dgxa100", "dgx-a100"),
    ("8xa100", "dgx-a100"),
    ("dgxh100", "dgx-h100"),
    ("8xh100", "dgx-h100"),
    ("h200", "dgx-h200"),
    ("8xh200", "dgx-h200"),
    ("b200", "dgx-b200"),
    ("8xb200", "dgx-b200"),
    ("4xv100", "4xv100-nv2"),
    ("p3dn.24xlarge", "aws-p3dn"),
    ("p4d.24xlarge", "aws-p4d"),
    ("p4de.24xlarge", "aws-p4de"),
    ("p5.48xlarge", "aws-p5"),
    ("p5en.48xlarge", "aws-p5en"),
    ("p6-b200.48xlarge", "aws-p6-b200"),
];

/// A name that no profile has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no machine is called `{name}`; {hint}")]
pub struct UnknownProfile {
    /// The beginning of the name.
    pub name: String,
    /// Names that may have been meant.
    pub hint: String,
}

/// The names of all profiles, those of makers first.
pub fn names() -> Vec<&'static str> {
    FILES.iter().flat_map(|&(_, text)| text.lines().filter_map(name_of)).collect()
}

/// The name on a line that begins a profile: a key at the left margin.
fn name_of(line: &str) -> Option<&str> {
    let name = line.split_once(':')?.0;
    (!name.is_empty() && !name.starts_with([' ', '#', '-'])).then_some(name)
}

/// The profile called `name`; capitals do not matter, and the provider's prefix may be missing.
///
/// # Errors
///
/// [`UnknownProfile`] with names that are near, if there is none.
pub fn find(name: &str) -> Result<Node, UnknownProfile> {
    let wanted = name.trim().to_lowercase();
    let wanted = ALSO.iter().find(|(also, _)| *also == wanted).map_or(wanted.as_str(), |&(_, known)| known);
    let known = names();
    let is_meant =
        |known: &str| known == wanted || known.split_once('-').is_some_and(|(_, rest)| rest == wanted);
    let found = known.iter().copied().find(|&known| known == wanted).or_else(|| {
        // A short name must mean one machine only.
        let mut meant = known.iter().copied().filter(|&known| is_meant(known));
        meant.next().filter(|_| meant.next().is_none())
    });
    let node = found.and_then(read);
    node.ok_or_else(|| {
        let near = near(wanted, &known);
        let hint = if near.is_empty() {
            format!("known are {}", known.join(", "))
        } else {
            format!("near names are {}", near.join(", "))
        };
        UnknownProfile { name: name.chars().take(40).collect(), hint }
    })
}

/// Reads one profile alone, which is faster than its whole file.
fn read(name: &str) -> Option<Node> {
    for (file, text) in FILES {
        let lines: Vec<&str> = text.lines().collect();
        let Some(start) = lines.iter().position(|line| name_of(line) == Some(name)) else { continue };
        let rest = &lines[start + 1..];
        let end = rest.iter().position(|line| name_of(line).is_some()).unwrap_or(rest.len());
        let part = lines[start..start + 1 + end].join("\n");
        return parse_nodes(file, &part).ok()?.pop().map(|(_, node)| node);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nccl::release::Release;
    use crate::nccl::search::{Env, graphs_of};

    #[test]
    fn every_profile_is_sound_and_found_by_its_name() {
        // Each file parses as a whole with the names of `names`, and each name leads to the same node.
        let mut all = Vec::new();
        for (file, text) in FILES {
            all.extend(parse_nodes(file, text).unwrap_or_else(|error| panic!("{error}")));
        }
        assert_eq!(all.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), names());
        for (name, node) in &all {
            assert_eq!(find(name).as_ref(), Ok(node), "{name}");
            assert_eq!(find(&name.to_uppercase()).as_ref(), Ok(node), "{name}");
        }
        for (also, name) in ALSO {
            assert_eq!(find(also), find(name), "{also}");
        }
        assert_eq!(find("p4d"), find("aws-p4d"));
    }

    #[test]
    fn every_profile_has_graphs_on_one_and_two_nodes() {
        // The search never falls back to the slow order of numbers, with the oldest and the newest release.
        for name in names() {
            let node = find(name).unwrap();
            for release in [Release::new(2, 18, 3), Release::NEWEST] {
                for nodes in [1, 2] {
                    let found = graphs_of(&node, nodes, release, &Env::default()).unwrap();
                    let ring = &found.graphs.ring;
                    assert!(ring.bw_intra >= 1.0, "{name} {nodes} {release}: {ring:?}");
                    assert_eq!(ring.channels, found.graphs.tree.channels, "{name}");
                }
            }
        }
    }

    #[test]
    fn slips_are_answered_with_near_names() {
        // A wrong name says which ones are near, a senseless one which there are; long ones are cut.
        let error = find("dgx-h10").unwrap_err().to_string();
        assert!(error.contains("dgx-h100"), "{error}");
        let error = find("toaster").unwrap_err().to_string();
        assert!(error.contains("aws-p4d") && error.contains("2xrtx4090"), "{error}");
        assert!(find(&"x".repeat(1 << 20)).unwrap_err().name.len() <= 40);
    }
}
