//! Operations of different groups of ranks that run at the same time and share links.

use std::collections::HashMap;

use super::pricer::{Group, Price};

/// How long each of some operations takes that begin together, each of a group of its own, in us.
///
/// A link is told by its node and its name, so groups of different ranks meet where their links are the same ones:
/// those of a GPU that both use, a switch that both go through, a port that serves both. The time that a link needs for
/// what the others put on it comes on top where it is the longest.
pub fn together_us(operations: &[(&Group, Price)]) -> Vec<f64> {
    let mut busy: HashMap<(u32, String), f64> = HashMap::new();
    for (group, price) in operations {
        each(group, price, |place, us| *busy.entry(place).or_default() += us);
    }
    let time = |(group, price): &(&Group, Price)| {
        let (mut own, mut shared) = (0.0f64, 0.0f64);
        each(group, price, |place, us| {
            own = own.max(us);
            shared = shared.max(busy.get(&place).copied().unwrap_or(us));
        });
        // What the channels hide alone, the link shows when others use it too.
        let transfer = group.transfer_us(price).max(own);
        price.predicted_us + (shared - transfer).max(0.0)
    };
    operations.iter().map(time).collect()
}

/// Calls `take` for each link that carries something, on each node of the group.
fn each(group: &Group, price: &Price, mut take: impl FnMut((u32, String), f64)) {
    let Some((_, first)) = group.members.first() else { return };
    for (node, gpus) in &group.members {
        for (number, link) in group.links().iter().enumerate() {
            let us = group.busy_us(price, number);
            if us > 0.0 {
                take((*node, named(&link.name, first, gpus)), us);
            }
        }
    }
}

/// A link's name with the GPUs of another node in place of those of the first.
fn named(name: &str, first: &[u32], gpus: &[u32]) -> String {
    if first == gpus {
        return name.to_owned();
    }
    let word = |word: &str| {
        let number = word.strip_prefix("gpu").and_then(|number| number.parse::<u32>().ok());
        let place = number.and_then(|number| first.iter().position(|known| *known == number));
        place.and_then(|place| gpus.get(place)).map_or_else(|| word.to_owned(), |gpu| format!("gpu{gpu}"))
    };
    name.split(' ').map(word).collect::<Vec<_>>().join(" ")
}
