//! What a report says of the modelled cluster.

use crate::model::Summary;
use serde::Serialize;

/// The prices of the job's collectives and what they put on the links.
#[derive(Serialize)]
pub(super) struct Model {
    /// Release of NCCL whose choices are priced.
    nccl: String,
    /// Whether NCCL's tuner was asked; otherwise each operation is a ring over the file's fabric.
    is_tuned: bool,
    /// `host` or `model`: which plan the host executed.
    plan: &'static str,
    /// How many times their modelled time operations took; absent if nothing was delayed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pace: Option<f64>,
    /// Collectives of all communicators that were priced, and those that the model cannot run.
    operations: u64,
    unpriced_operations: u64,
    /// The sum of the link model's times.
    predicted_time_us_total: f64,
    /// The sum of the times by which NCCL chooses.
    tuner_time_us_total: f64,
    /// Every link that carried something, the busiest first.
    links: Vec<Link>,
}

/// A link of the nodes; each node has one of this name.
#[derive(Serialize)]
struct Link {
    name: String,
    kind: &'static str,
    bandwidth_gbytes_per_s: f64,
    effective_gbytes_per_s: f64,
    /// Payload, of all nodes together.
    bytes: u64,
    /// Payload of the node where each operation kept it busiest.
    busiest_node_bytes: u64,
    /// How long the link needs for those.
    busy_us: f64,
}

/// Three decimals, as everywhere in the report.
pub(super) fn rounded(number: f64) -> f64 {
    (number * 1e3).round() / 1e3
}

impl Model {
    pub(super) fn of(summary: &Summary) -> Self {
        let (operations, unpriced_operations, predicted, tuner) = summary.totals();
        let mut links: Vec<Link> = summary
            .links()
            .map(|(link, booked)| Link {
                name: link.name.clone(),
                kind: link.kind.name(),
                bandwidth_gbytes_per_s: rounded(link.bandwidth_gbps),
                effective_gbytes_per_s: rounded(link.effective_gbps),
                bytes: booked.bytes.round() as u64,
                busiest_node_bytes: booked.busiest_bytes.round() as u64,
                busy_us: rounded(booked.busy_us),
            })
            .collect();
        links.sort_by(|a, b| b.busy_us.total_cmp(&a.busy_us));
        Self {
            nccl: summary.world.cluster().nccl().release.to_string(),
            is_tuned: summary.world.is_tuned(),
            plan: if summary.is_planned { "model" } else { "host" },
            pace: summary.pace,
            operations,
            unpriced_operations,
            predicted_time_us_total: rounded(predicted),
            tuner_time_us_total: rounded(tuner),
            links,
        }
    }
}
