//! A prediction as JSON.

use ::topo::nccl::graph::Graph;
use ::topo::nccl::log::show_pattern;
use ::topo::nccl::tuner::{Cell, Correction, Estimate, Flip};
use anyhow::Result;
use serde_json::{Value, json};

use super::{Answer, links};

/// The answer, and with `--versus` the other one behind `versus`.
pub(super) fn answer(answer: &Answer, other: Option<&Answer>) -> Result<String> {
    let mut value = document(answer);
    if let Some(other) = other {
        value["versus"] = document(other);
    }
    Ok(serde_json::to_string_pretty(&value)? + "\n")
}

fn document(answer: &Answer) -> Value {
    let setup = answer.tuner().setup();
    let choice = &answer.choice;
    let (best, operation) = (&choice.best, answer.operation);
    let cells: Vec<Value> =
        answer.tuner().cells_of(operation.collective).map(|cell| cell_value(answer, cell)).collect();
    json!({
        "schema": "ringccl.predict.v1",
        "line": answer.line(),
        "nccl": setup.release.to_string(),
        "collective": operation.collective.name(),
        "bytes": operation.bytes,
        "ranks": setup.ranks,
        "nodes": setup.nodes,
        "graphs": {
            "ring": graph(&setup.graphs.ring),
            "tree": graph(&setup.graphs.tree),
            "nvls": setup.graphs.nvls.as_ref().map(graph),
        },
        "tuner": {
            "algorithm": best.algorithm.name(),
            "protocol": best.protocol.name(),
            "time_us": best.time,
            "is_fallback": choice.is_fallback,
        },
        "predicted": links::value(answer),
        "channels": {
            "communicator": setup.channels(),
            "for_size": answer.spread.channels,
            "last": answer.spread.last_channel,
            "threads": answer.spread.threads,
        },
        "runner_up": choice.runner_up().map(|second| json!({
            "algorithm": second.algorithm.name(),
            "protocol": second.protocol.name(),
            "time_us": second.time,
            "more_us": second.time - best.time,
        })),
        "flips": {
            "down": answer.tuner().flip_down(operation).map(flip),
            "up": answer.tuner().flip_up(operation).map(flip),
        },
        "table": cells,
    })
}

fn flip(flip: Flip) -> Value {
    json!({"bytes": flip.bytes, "algorithm": flip.algorithm.name(), "protocol": flip.protocol.name()})
}

fn graph(graph: &Graph) -> Value {
    json!({
        "pattern": graph.pattern.id(),
        "channels": graph.channels,
        "bw_intra": graph.bw_intra,
        "bw_inter": graph.bw_inter,
        "type_intra": graph.type_intra.name(),
        "type_inter": graph.type_inter.name(),
        "same_channels": graph.same_channels,
        "cross_nic": graph.cross_nic,
        "line": show_pattern(graph),
    })
}

fn cell_value(answer: &Answer, cell: &Cell) -> Value {
    let is_same = |one: &&Estimate| (one.algorithm, one.protocol) == (cell.algorithm, cell.protocol);
    let estimate = answer.choice.candidates.iter().find(is_same);
    let steps: Vec<Value> = cell
        .bandwidth
        .steps
        .iter()
        .map(|step| {
            json!({
                "what": step.rule.name(),
                "kind": if step.rule.is_cap() { "cap" } else { "factor" },
                "operand": step.operand,
                "after": step.after,
                "active": step.active,
            })
        })
        .collect();
    let terms: Vec<Value> = cell
        .latency
        .terms
        .iter()
        .map(|term| json!({"what": term.part.to_string(), "count": term.count, "each_us": term.each}))
        .collect();
    json!({
        "algorithm": cell.algorithm.name(),
        "protocol": cell.protocol.name(),
        "off": cell.off.as_ref().map(|off| &off.reason),
        "latency_us": cell.latency.total,
        "bandwidth_gbps": cell.bandwidth.total,
        "latency_terms": terms,
        "bandwidth_steps": steps,
        "time_us": estimate.map(|one| one.time),
        "corrections": estimate.map(|one| one.corrections.iter().map(correction).collect::<Vec<Value>>()),
    })
}

fn correction(correction: &Correction) -> Value {
    match correction {
        Correction::Tree { factor, from } => {
            json!({"what": "tree", "bandwidth_factor": factor, "from_bytes": from})
        }
        Correction::RingPlateau { factor, from } => {
            json!({"what": "ring plateau", "latency_factor": factor, "from_bytes": from})
        }
        Correction::Fp8Ring => json!({"what": "8-bit floats on a deep ring", "time_factor": 1024}),
    }
}
