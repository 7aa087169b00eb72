//! The nodes of a file: each by itself, then what must hold between them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::reader::{Range, Reader, Table};
use super::tree::Tree;
use crate::cluster::{Machine, Place};
use crate::lines::join;
use crate::nccl::profiles;
use crate::nccl::system::{Node as NcclNode, read_all};
use crate::near::near;
use crate::{Node, PROFILES};

const NODE_KEYS: &[&str] = &["id", "host", "machine", "ranks", "gpus"];
const GPU_KEYS: &[&str] = &["profile", "index"];
/// Numbers that a GPU of a machine can have.
const INDEX: Range =
    Range::new(|x| (0.0..=31.0).contains(&x) && x.fract() == 0.0, "the GPU's number in its machine, 0 to 31");

/// What could be read of a node.
struct Draft {
    id: Option<String>,
    host: Option<String>,
    /// The machine, if the file names one.
    machine: Option<Option<Arc<Machine>>>,
    ranks: Option<Vec<Option<u32>>>,
    profiles: Option<Vec<Option<String>>>,
    /// Which GPU of its machine each rank has.
    gpus: Option<Vec<u32>>,
}

/// The machines that a file describes, by name.
pub(super) type Machines = BTreeMap<String, Arc<Machine>>;

/// The descriptions behind `machines`, if there are any; `None` if there is a problem.
pub(super) fn machines(reader: &mut Reader<'_>, file: &Table<'_>) -> Option<Machines> {
    let Some(value) = file.get("machines") else { return Some(Machines::new()) };
    let before = reader.count();
    let all = read_all(reader, value, "machines")?;
    let machine = |(name, node): (String, NcclNode)| (name.clone(), Arc::new(Machine { name, node }));
    (reader.count() == before).then(|| all.into_iter().map(machine).collect())
}

/// The nodes and where each rank lives, if all of it is right.
pub(super) fn read(
    reader: &mut Reader<'_>,
    file: &Table<'_>,
    machines: Option<&Machines>,
) -> Option<(Vec<Node>, Vec<Place>)> {
    let list = reader.list(file, "nodes", "one entry per machine")?;
    // A file names few machines, and some of them often.
    let mut known = machines.cloned().unwrap_or_default();
    let mut find = |name: &str| match machines {
        // What is wrong with the descriptions has been told.
        None => Ok(None),
        Some(_) => find(&mut known, name).map(Some),
    };
    let drafts: Vec<Option<Draft>> =
        list.iter().map(|(field, value)| read_node(reader, value, field, &mut find)).collect();
    check_ids(reader, &drafts);
    check_ports(reader, &drafts);
    let places = places(reader, &drafts);
    let nodes: Option<Vec<Node>> = drafts.into_iter().map(|draft| draft?.finish()).collect();
    Some((nodes?, places?))
}

impl Draft {
    fn finish(self) -> Option<Node> {
        let all = self.ranks?.into_iter().collect::<Option<Vec<u32>>>();
        let profiles = self.profiles?.into_iter().collect::<Option<Vec<String>>>();
        Some(Node {
            id: self.id?,
            host: self.host?,
            machine: self.machine?,
            ranks: all?,
            profiles: profiles?,
            gpus: self.gpus?,
        })
    }
}

/// The machine called `name`: of the file, or one that is known.
fn find(known: &mut Machines, name: &str) -> Result<Arc<Machine>, String> {
    if let Some(machine) = known.get(name) {
        return Ok(Arc::clone(machine));
    }
    let node = profiles::find(name).map_err(|error| match known.is_empty() {
        true => error.to_string(),
        false => {
            let own: Vec<&str> = known.keys().take(9).map(String::as_str).collect();
            format!("{error}; `machines` describes {}", own.join(", "))
        }
    })?;
    let machine = Arc::new(Machine { name: name.to_owned(), node });
    known.insert(name.to_owned(), Arc::clone(&machine));
    Ok(machine)
}

/// Finds a machine; nothing where the descriptions are wrong, or what is wrong with the name.
type Find<'a> = dyn FnMut(&str) -> Result<Option<Arc<Machine>>, String> + 'a;

/// Reads which machine a node is; `Some(None)` if the file does not say, as FakeGPU's do not.
fn read_machine(
    reader: &mut Reader<'_>,
    table: &Table<'_>,
    find: &mut Find<'_>,
) -> Option<Option<Arc<Machine>>> {
    if !table.has("machine") {
        return Some(None);
    }
    let name = reader.text(table, "machine")?;
    let found = find(&name).map_err(|message| reader.problem(&join(&table.field, "machine"), message));
    found.ok()?.map(Some)
}

fn read_node(reader: &mut Reader<'_>, value: &Tree, field: &str, find: &mut Find<'_>) -> Option<Draft> {
    let table = reader.table(value, field, NODE_KEYS)?;
    let id = reader.text(&table, "id");
    let host = reader.text(&table, "host");
    let machine = read_machine(reader, &table, find);
    let ranks = reader.list(&table, "ranks", "the global ranks on this node, such as `[0, 1]`");
    let ranks: Option<Vec<Option<u32>>> =
        ranks.map(|list| list.iter().map(|(field, value)| reader.rank(value, field)).collect());
    let count = ranks.as_ref().map_or(0, Vec::len);
    let (profiles, gpus) = match (&machine, table.has("gpus")) {
        // Whoever names the machine has named its GPUs.
        (Some(Some(machine)), false) => {
            let profiles = vec![Some(machine.name.clone()); count];
            (Some(profiles), Some((0..count as u32).collect()))
        }
        // A machine that could not be had has been told.
        (None, false) => (None, None),
        _ => read_gpus(reader, &table, ranks.as_deref()),
    };
    if let (Some(Some(machine)), Some(gpus)) = (&machine, &gpus) {
        check_gpus(reader, &table, machine, gpus);
    }
    Some(Draft { id, host, machine, ranks, profiles, gpus })
}

/// The profile of each rank's GPU, and its number in the machine: its place in the list, or `index`.
type Gpus = (Option<Vec<Option<String>>>, Option<Vec<u32>>);

fn read_gpus(reader: &mut Reader<'_>, table: &Table<'_>, ranks: Option<&[Option<u32>]>) -> Gpus {
    let Some(list) = reader.list(table, "gpus", "one `profile: ID` per rank of this node") else {
        return (None, None);
    };
    let profiles: Vec<Option<String>> =
        list.iter().map(|(field, value)| read_profile(reader, value, field)).collect();
    let numbers = list.iter().enumerate().map(|(place, (field, value))| {
        // What is no table has been told already.
        let Tree::Table(_) = value else { return Some(place as u32) };
        let entry = reader.table_again(value, field);
        reader.number(&entry, "index", Some(place as f64), INDEX).map(|number| number as u32)
    });
    let numbers: Option<Vec<u32>> = numbers.collect();
    if let Some(ranks) = ranks.filter(|ranks| ranks.len() != profiles.len()) {
        let message = format!(
            "{} GPUs for {} ranks; give one `profile: ID` per rank, in the order of `ranks`",
            profiles.len(),
            ranks.len()
        );
        reader.problem(&join(&table.field, "gpus"), message);
    }
    (Some(profiles), numbers)
}

/// Whether the machine has these GPUs, each once.
fn check_gpus(reader: &mut Reader<'_>, table: &Table<'_>, machine: &Machine, gpus: &[u32]) {
    let all = machine.node.gpus().len();
    let key = if table.has("gpus") { "gpus" } else { "ranks" };
    let field = join(&table.field, key);
    if gpus.len() > all {
        let message = format!(
            "{} ranks, but `{}` has {all} GPUs; spread them over more nodes",
            gpus.len(),
            machine.name
        );
        return reader.problem(&field, message);
    }
    if let Some((place, gpu)) = gpus.iter().enumerate().find(|(_, gpu)| **gpu as usize >= all) {
        let message = format!("`{}` has no GPU {gpu}; number them from 0 to {}", machine.name, all - 1);
        return reader.problem(&join(&format!("{field}[{place}]"), "index"), message);
    }
    if let Some((place, gpu)) = gpus.iter().enumerate().find(|(at, gpu)| gpus[..*at].contains(gpu)) {
        let message = format!("two ranks have GPU {gpu}; give each rank its own");
        reader.problem(&join(&format!("{field}[{place}]"), "index"), message);
    }
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

/// Several nodes meet by their network ports.
fn check_ports(reader: &mut Reader<'_>, drafts: &[Option<Draft>]) {
    if drafts.len() < 2 {
        return;
    }
    for (i, draft) in drafts.iter().enumerate() {
        let Some(Some(machine)) = draft.as_ref().and_then(|draft| draft.machine.as_ref()) else { continue };
        if machine.node.ports().is_empty() {
            let message = format!(
                "`{}` has no network port, and there are {} nodes; describe it with `nics` in `machines`",
                machine.name,
                drafts.len()
            );
            reader.problem(&format!("nodes[{i}].machine"), message);
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
