//! The link model's prediction in text and JSON.

use ::topo::links::{LinkKind, LinkLoad, TermKind};
use serde_json::{Value, json};

use super::Answer;
use super::text::rounded;

/// Most groups of links in the text; JSON has every link.
const GROUPS_MAX: usize = 8;

/// The line below the tuner's.
pub(super) fn head(answer: &Answer) -> String {
    let found = &answer.predicted;
    format!("predicted: {:.1} us, bound by {}", found.total_us, bound(answer))
}

fn bound(answer: &Answer) -> String {
    match answer.predicted.bottleneck() {
        Some(load) => {
            let link = &answer.model.links()[load.link];
            format!("{} {}", link.kind, link.name)
        }
        None => format!("what {} channels copy", answer.predicted.channels),
    }
}

/// The terms and the links behind the prediction.
pub(super) fn section(text: &mut String, answer: &Answer) {
    let found = &answer.predicted;
    text.push_str(&format!("predicted {:.3} us\n", found.total_us));
    for term in &found.terms {
        let how = match term.kind {
            TermKind::StepsInside | TermKind::StepsBetween => {
                format!("{} x {}", rounded(term.count), rounded(term.each_us))
            }
            _ => String::new(),
        };
        let line = format!("    {:>12.3}  {how:<16} {}", term.count * term.each_us, term.kind);
        text.push_str(line.trim_end());
        text.push('\n');
    }
    let channels = found.channels;
    text.push_str(&format!("  channels: {channels} need {:.3} us to copy their bytes\n", found.channels_us));
    text.push_str("  links of a node     bytes each       GB/s    busy us\n");
    for (alike, load) in groups(answer).into_iter().take(GROUPS_MAX) {
        let link = &answer.model.links()[load.link];
        let line = format!(
            "    {:>4} x {:<8}{:>16.0}{:>11}{:>11.3}  {}{}",
            alike,
            link.kind.name(),
            load.bytes,
            rounded(link.effective_gbps),
            load.busy_us,
            link.name,
            if alike > 1 { " and others" } else { "" }
        );
        text.push_str(&line);
        text.push('\n');
    }
}

/// Links of a kind that carry the same, with how many they are, the costliest first.
fn groups(answer: &Answer) -> Vec<(usize, LinkLoad)> {
    let mut groups: Vec<(usize, LinkLoad)> = Vec::new();
    let kind = |load: &LinkLoad| answer.model.links()[load.link].kind;
    let same = |a: &LinkLoad, b: &LinkLoad| {
        let near = |x: f64, y: f64| (x - y).abs() <= 1e-6 * x.abs();
        kind(a) == kind(b) && near(a.bytes, b.bytes) && near(a.busy_us, b.busy_us)
    };
    for load in &answer.predicted.loads {
        match groups.iter_mut().find(|(_, first)| same(first, load)) {
            Some((alike, _)) => *alike += 1,
            None => groups.push((1, *load)),
        }
    }
    groups
}

/// Everything as data.
pub(super) fn value(answer: &Answer) -> Value {
    let found = &answer.predicted;
    let terms: Vec<Value> = found
        .terms
        .iter()
        .map(|term| json!({"what": term.kind.name(), "count": term.count, "each_us": term.each_us}))
        .collect();
    let links: Vec<Value> = found
        .loads
        .iter()
        .map(|load| {
            let link = &answer.model.links()[load.link];
            json!({
                "kind": link.kind.name(),
                "name": link.name,
                "scope": if link.kind == LinkKind::Trunk { "leaf" } else { "node" },
                "bytes": load.bytes.round(),
                "total_bytes": load.total_bytes.round(),
                "bandwidth_gbps": link.bandwidth_gbps,
                "effective_gbps": link.effective_gbps,
                "busy_us": load.busy_us,
            })
        })
        .collect();
    json!({
        "time_us": found.total_us,
        "channels": found.channels,
        "channels_us": found.channels_us,
        "bound_by": bound(answer),
        "terms": terms,
        "links": links,
    })
}
