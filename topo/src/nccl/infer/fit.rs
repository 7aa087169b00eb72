//! Tries inputs of the tuner against a log's claims.

use std::time::{Duration, Instant};

use super::machines::{Candidate, Known, Origin, SPEEDS, known, of_log};
use super::read::{Claim, Line, Log};
use crate::nccl::release::Release;
use crate::nccl::tuner::{
    Algorithm, Collective, Cpu, Environment, Operation, Protocol, Setup, Tuner, TunerError,
};

/// Compute capabilities that are tried where nothing says.
const CAPABILITIES: [u32; 8] = [70, 75, 80, 86, 89, 90, 100, 120];
/// Latencies of plugins that are tried, in microseconds.
const LATENCIES_US: [f32; 4] = [0.0, 35.0, 75.0, 150.0];
/// Longest latency that a log's times may lead to, in microseconds.
const LATENCY_MAX_US: f32 = 10_000.0;

/// How much was tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tried {
    /// Combinations of inputs.
    pub combinations: usize,
    /// Whether the time sufficed for all.
    pub is_complete: bool,
}

/// The inputs that explain the most lines.
#[derive(Clone, Debug)]
pub struct Fit {
    /// The tuner with these inputs.
    pub tuner: Tuner,
    /// Where its graphs come from.
    pub origin: Origin,
    /// Lines that it explains.
    pub explained: Vec<Line>,
    /// Lines that it does not explain, with what the model says instead.
    pub unexplained: Vec<(Line, String)>,
    /// Other values of single inputs that explain as much, such as `compute capability 86`.
    pub alike: Vec<String>,
}

/// Finds the inputs that explain the most lines of a log within about `limit`.
///
/// # Errors
///
/// [`TunerError::Setup`] if the log has no line to explain or no machine fits its ranks, and errors of its variables.
pub fn infer(log: &Log, limit: Duration) -> Result<(Fit, Tried), TunerError> {
    if log.lines.is_empty() {
        return Err(TunerError::Setup(
            "the log has no line of the tuner; run with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH,TUNING"
                .to_owned(),
        ));
    }
    let deadline = Instant::now() + limit;
    let mut state =
        State { log, best: None, score: 0, alike: Vec::new(), combinations: 0, deadline, complete: true };
    let machines = if of_log(log).is_some() { Vec::new() } else { known(log) };
    for release in releases(log) {
        let environment = environment(log, release)?;
        match of_log(log) {
            Some(candidate) => state.try_candidate(&candidate, release, &environment),
            None => state.try_machines(&machines, release, &environment),
        }
    }
    let tried = Tried { combinations: state.combinations, is_complete: state.complete };
    let (tuner, origin) = state.best.ok_or_else(|| {
        TunerError::Setup(
            "no machine fits; the log needs its Pattern lines (NCCL_DEBUG_SUBSYS=GRAPH)".to_owned(),
        )
    })?;
    let mut fit = Fit { tuner, origin, explained: Vec::new(), unexplained: Vec::new(), alike: state.alike };
    for line in &log.lines {
        match explain(&fit.tuner, &line.claim) {
            Ok(()) => fit.explained.push(line.clone()),
            Err(instead) => fit.unexplained.push((line.clone(), instead)),
        }
    }
    Ok((fit, tried))
}

/// The log's release, or those whose lines have the form of the log's.
fn releases(log: &Log) -> Vec<Release> {
    if let Some(release) = log.release {
        return vec![release];
    }
    let fits = |release: &Release| {
        log.lines.iter().all(|line| match &line.claim {
            Claim::Operation { time, collective, .. } => match (time, collective) {
                (Some(_), None) => release.since(20, 0) && !release.since(23, 0),
                (Some(_), Some(_)) => release.since(23, 0) && !release.since(24, 0),
                (None, _) => release.since(24, 0),
            },
            _ => true,
        })
    };
    // The newest first: of releases that explain as much, it is kept.
    let mut releases: Vec<Release> = Release::last_of_each_minor().filter(fits).collect();
    releases.reverse();
    releases
}

/// The log's variables, those that the tuner reads.
fn environment(log: &Log, release: Release) -> Result<Environment, TunerError> {
    let known = log
        .variables
        .iter()
        .filter(|(name, value)| Environment::parse([(&**name, &**value)], release).is_ok());
    Environment::parse(known.map(|(name, value)| (name.as_str(), value.as_str())), release)
}

struct State<'a> {
    log: &'a Log,
    best: Option<(Tuner, Origin)>,
    score: usize,
    alike: Vec<String>,
    combinations: usize,
    deadline: Instant,
    complete: bool,
}

impl State<'_> {
    fn explains_all(&self) -> bool {
        self.score == self.log.lines.len()
    }

    /// Tries machines as they are and, unless one of them explains all, with other network cards.
    fn try_machines(&mut self, machines: &[Known], release: Release, environment: &Environment) {
        let others =
            || SPEEDS.into_iter().flat_map(|mbps| machines.iter().map(move |known| (known, Some(mbps))));
        for (known, mbps) in machines.iter().map(|known| (known, None)).chain(others()) {
            if mbps.is_some() && self.explains_all() {
                return;
            }
            for candidate in known.candidates(mbps, release) {
                self.try_candidate(&candidate, release, environment);
                if !self.complete {
                    return;
                }
            }
        }
    }

    /// Tries every value of what neither the log nor the machine says.
    fn try_candidate(&mut self, candidate: &Candidate, release: Release, environment: &Environment) {
        let capabilities = candidate.capability.map_or(CAPABILITIES.to_vec(), |one| vec![one]);
        for &(ranks, nodes) in &candidate.ranks {
            for &capability in &capabilities {
                let cpus = candidate.cpu.map_or(vec![Cpu::Intel, Cpu::Amd], |cpu| vec![cpu]);
                for cpu in if nodes > 1 { vec![Cpu::Intel, Cpu::Amd] } else { cpus } {
                    if Instant::now() >= self.deadline {
                        self.complete = false;
                        return;
                    }
                    let setup = Setup {
                        release,
                        ranks,
                        nodes,
                        compute_capability: capability,
                        compute_capability_max: capability,
                        cpu,
                        plugin_latency_us: candidate.latency_us,
                        graphs: candidate.graphs.clone(),
                        collnet: None,
                        cuda_11_8: false,
                        environment: environment.clone(),
                    };
                    self.try_latencies(setup, &candidate.origin);
                }
            }
        }
    }

    fn try_latencies(&mut self, setup: Setup, origin: &Origin) {
        let mut latencies = vec![setup.plugin_latency_us];
        if setup.nodes > 1 {
            latencies.extend(LATENCIES_US);
            latencies.extend(self.solved(&setup));
        }
        latencies.dedup();
        for plugin_latency_us in latencies {
            let Ok(tuner) = Tuner::new(Setup { plugin_latency_us, ..setup.clone() }) else { continue };
            self.combinations += 1;
            let score = self.log.lines.iter().filter(|line| explain(&tuner, &line.claim).is_ok()).count();
            if self.best.is_none() || score > self.score {
                (self.best, self.score) = (Some((tuner, origin.clone())), score);
                self.alike.clear();
            } else if score == self.score && self.alike.len() < 20 {
                let other =
                    self.best.as_ref().and_then(|(best, known)| difference(best, known, &tuner, origin));
                self.alike.extend(other.filter(|text| !self.alike.contains(text)));
            }
        }
    }

    /// Latencies to which printed times lead: time grows with the latency along a straight line.
    fn solved(&self, setup: &Setup) -> Vec<f32> {
        let at = |plugin_latency_us| Tuner::new(Setup { plugin_latency_us, ..setup.clone() }).ok();
        let (Some(none), Some(much)) = (at(0.0), at(100.0)) else { return Vec::new() };
        let mut found = Vec::new();
        for line in self.log.lines.iter().take(50) {
            let Claim::Operation { collective, bytes, algorithm, protocol, time: Some(time), .. } =
                &line.claim
            else {
                continue;
            };
            let Ok(time) = time.parse::<f32>() else { continue };
            let collective = collective.unwrap_or(Collective::AllReduce);
            let of = |tuner: &Tuner| {
                let cell = tuner.cell(collective, *algorithm, *protocol)?;
                Some(tuner.time_of(cell, *bytes)?.time)
            };
            let (Some(low), Some(high)) = (of(&none), of(&much)) else { continue };
            // Plugins report whole microseconds.
            let latency = ((time - low) / (high - low) * 100.0).round();
            if latency > 0.0 && latency <= LATENCY_MAX_US && !found.contains(&latency) && found.len() < 4 {
                found.push(latency);
            }
        }
        found
    }
}

/// The one input in which two fits differ; `None` if there are several.
fn difference(best: &Tuner, best_origin: &Origin, other: &Tuner, origin: &Origin) -> Option<String> {
    let (a, b) = (best.setup(), other.setup());
    let mut text = Vec::new();
    if a.release != b.release {
        text.push(format!("NCCL {}", b.release));
    }
    // Another machine may have other GPUs, CPUs and plugins with it.
    if best_origin != origin {
        return match origin {
            Origin::Machine { name, mbps: None } => Some((*name).to_owned()),
            Origin::Machine { name, mbps: Some(mbps) } => Some(format!("{name} with {} Gbit/s", mbps / 1000)),
            Origin::Log => None,
        };
    }
    if (a.ranks, a.nodes) != (b.ranks, b.nodes) {
        text.push(format!("{} ranks on {} nodes", b.ranks, b.nodes));
    }
    if a.compute_capability != b.compute_capability {
        text.push(format!("compute capability {}", b.compute_capability));
    }
    if a.cpu != b.cpu {
        text.push(format!("CPU {}", b.cpu));
    }
    if a.plugin_latency_us != b.plugin_latency_us {
        text.push(format!("plugin latency {} us", b.plugin_latency_us));
    }
    if text.len() == 1 { text.pop() } else { None }
}

/// Whether the tuner says the same; otherwise what it says.
fn explain(tuner: &Tuner, claim: &Claim) -> Result<(), String> {
    match claim {
        Claim::Channels(channels) => match tuner.setup().channels() {
            same if same == *channels => Ok(()),
            other => Err(format!("{other} coll channels")),
        },
        Claim::Row { collective, algorithms, cells } => explain_row(tuner, *collective, algorithms, cells),
        Claim::Operation { collective, .. } => {
            let possible = collective.map_or(Collective::ALL.to_vec(), |one| vec![one]);
            // Where the log does not name the collective, all-reduce is what is told.
            let mut said = possible.into_iter().rev().map(|one| explain_operation(tuner, one, claim));
            match said.next() {
                Some(Err(instead)) if !said.any(|other| other.is_ok()) => Err(instead),
                _ => Ok(()),
            }
        }
    }
}

fn explain_operation(tuner: &Tuner, one: Collective, claim: &Claim) -> Result<(), String> {
    let Claim::Operation { bytes, algorithm, protocol, time, last_channel, .. } = claim else {
        return Ok(());
    };
    // From 2.24 the printed bytes are one rank's.
    let per_rank = one.counts_all_ranks() && tuner.setup().release.since(24, 0);
    let factor = if per_rank { tuner.setup().ranks.into() } else { 1 };
    let operation = Operation::new(one, bytes.saturating_mul(factor));
    let choice = tuner.choose(operation).map_err(|error| error.to_string())?;
    let best = &choice.best;
    let spread = tuner.spread(operation, best.algorithm, best.protocol);
    let same = (best.algorithm, best.protocol) == (*algorithm, *protocol)
        && time.as_ref().is_none_or(|time| *time == format!("{:.6}", best.time))
        && last_channel.is_none_or(|last| last == spread.last_channel);
    let line = || tuner.line(operation, best, spread);
    if same { Ok(()) } else { Err(line().unwrap_or_else(|| "no line in this release".to_owned())) }
}

/// A row is explained if every cell that it has a bandwidth for is the same in what is printed.
fn explain_row(
    tuner: &Tuner,
    collective: Collective,
    algorithms: &[Algorithm],
    cells: &[(String, String)],
) -> Result<(), String> {
    let columns =
        algorithms.iter().flat_map(|&algorithm| Protocol::ALL.map(|protocol| (algorithm, protocol)));
    for ((algorithm, protocol), (latency, bandwidth)) in columns.zip(cells) {
        let cell = tuner.cell(collective, algorithm, protocol);
        let found = cell.map_or(0.0, |cell| cell.effective_bandwidth());
        let found_latency = cell.map_or(0.0, |cell| cell.latency.total);
        let printed = (format!("{found_latency:.1}"), format!("{found:.1}"));
        let is_off = bandwidth.parse() == Ok(0.0f32) && found == 0.0;
        if !is_off && (latency, bandwidth) != (&printed.0, &printed.1) {
            return Err(format!(
                "{algorithm} {protocol} {}/{}, not {latency}/{bandwidth}",
                printed.0, printed.1
            ));
        }
    }
    Ok(())
}
