//! The nodes of a file: each by itself, then what must hold between them.

use std::collections::{BTreeMap, HashMap};

use super::reader::{Reader, Table};
use super::tree::Tree;
use crate::cluster::Place;
use crate::lines::join;
use crate::near::near;
use crate::{Node, PROFILES};

const NODE_KEYS: &[&str] = &["id", "host", "ranks", "gpus"];
const GPU_KEYS: &[&str] = &["profile"];

/// What could be read of a node.
struct Draft {
    id: Option<String>,
    host: Option<String>,
    ranks: Option<Vec<Option<u32>>>,
    profiles: Option<Vec<Option<String>>>,
}

/// The nodes and where each rank lives, if all of it is right.
pub(super) fn read(reader: &mut Reader<'_>, file: &Table<'_>) -> Option<(Vec<Node>, Vec<Place>)> {
    let list = reader.list(file, "nodes", "one entry per machine")?;
    let drafts: Vec<Option<Draft>> =
        list.iter().map(|(field, value)| read_node(reader, value, field)).collect();
    check_ids(reader, &drafts);
    let places = places(reader, &drafts);
    let nodes: Option<Vec<Node>> = drafts.into_iter().map(|draft| draft?.finish()).collect();
    Some((nodes?, places?))
}

impl Draft {
    fn finish(self) -> Option<Node> {
        let all = self.ranks?.into_iter().collect::<Option<Vec<u32>>>();
        let profiles = self.profiles?.into_iter().collect::<Option<Vec<String>>>();
        Some(Node { id: self.id?, host: self.host?, ranks: all?, profiles: profiles? })
    }
}

fn read_node(reader: &mut Reader<'_>, value: &Tree, field: &str) -> Option<Draft> {
    let table = reader.table(value, field, NODE_KEYS)?;
    let id = reader.text(&table, "id");
    let host = reader.text(&table, "host");
    let ranks = reader.list(&table, "ranks", "the global ranks on this node, such as `[0, 1]`");
    let ranks: Option<Vec<Option<u32>>> =
        ranks.map(|list| list.iter().map(|(field, value)| reader.rank(value, field)).collect());
    let profiles = reader.list(&table, "gpus", "one `profile: ID` per rank of this node");
    let profiles: Option<Vec<Option<String>>> =
        profiles.map(|list| list.iter().map(|(field, value)| read_profile(reader, value, field)).collect());
    if let (Some(ranks), Some(profiles)) = (&ranks, &profiles)
        && ranks.len() != profiles.len()
    {
        let message = format!(
            "{} GPUs for {} ranks; give one `profile: ID` per rank, in the order of `ranks`",
            profiles.len(),
            ranks.len()
        );
        reader.problem(&join(field, "gpus"), message);
    }
    Some(Draft { id, host, ranks, profiles })
}

fn read_profile(reader: &mut Reader<'_>, value: &Tree, field: &str) -> Option<String> {
    let table = reader.table(value, field, GPU_KEYS)?;
    let profile = reader.text(&table, "profile")?;
    if PROFILES.contains(&profile.as_str()) {
        return Some(profile);
    }
    let names = match near(&profile, PROFILES).as_slice() {
        [] => "known are for example a100, h100, v100, l4, t4".to_owned(),
        names => format!("near names are {}", names.join(", ")),
    };
    reader.problem(&join(field, "profile"), format!("no GPU profile is called `{profile}`; {names}"));
    None
}

fn check_ids(reader: &mut Reader<'_>, drafts: &[Option<Draft>]) {
    let mut seen: HashMap<&str, usize> = HashMap::new();
    for (i, draft) in drafts.iter().enumerate() {
        let Some(id) = draft.as_ref().and_then(|draft| draft.id.as_deref()) else { continue };
        let first = *seen.entry(id).or_insert(i);
        if first != i {
            let message = format!("`{id}` is also the id of nodes[{first}]; give each node its own");
            reader.problem(&format!("nodes[{i}].id"), message);
        }
    }
}

/// Where each rank lives, if the ranks are exactly `0 .. their number`, each once.
fn places(reader: &mut Reader<'_>, drafts: &[Option<Draft>]) -> Option<Vec<Place>> {
    let mut places: BTreeMap<u32, Place> = BTreeMap::new();
    let (mut complete, mut valid) = (true, true);
    for (node, draft) in drafts.iter().enumerate() {
        let Some(ranks) = draft.as_ref().and_then(|draft| draft.ranks.as_ref()) else {
            complete = false;
            continue;
        };
        for (local_rank, &rank) in (0..).zip(ranks) {
            let Some(rank) = rank else {
                complete = false;
                continue;
            };
            let place = Place { node, local_rank };
            let first = *places.entry(rank).or_insert(place);
            if first != place {
                let message = twice(drafts, rank, first, place);
                reader.problem(&format!("nodes[{node}].ranks[{local_rank}]"), message);
                valid = false;
            }
        }
    }
    // Where a rank could not be read, a gap may be just that one.
    if !complete || !valid {
        return None;
    }
    let largest = places.last_key_value().map_or(0, |(&rank, _)| rank);
    let missing: Vec<String> =
        (0..largest).filter(|rank| !places.contains_key(rank)).take(9).map(|rank| rank.to_string()).collect();
    if !missing.is_empty() {
        let etc = if missing.len() == 9 { ", ..." } else { "" };
        let is = if missing.len() > 1 { "are" } else { "is" };
        let message = format!(
            "ranks go up to {largest} but {}{etc} {is} on no node; number them from 0 without gaps",
            missing.join(", ")
        );
        reader.problem("nodes", message);
        return None;
    }
    Some(places.into_values().collect())
}

fn twice(drafts: &[Option<Draft>], rank: u32, first: Place, second: Place) -> String {
    let id = drafts[first.node].as_ref().and_then(|draft| draft.id.as_deref());
    let place = match id {
        _ if first.node == second.node => "listed twice here".to_owned(),
        Some(id) => format!("also on node `{id}`"),
        None => format!("also on nodes[{}]", first.node),
    };
    format!("rank {rank} is {place}; give each rank one place")
}
