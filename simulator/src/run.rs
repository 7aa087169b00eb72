//! One seed from start to end.

use crate::judge::judge;
use crate::machine::{Body, Machine, Mode};
use crate::ranks::{self, Ending};
use crate::scenario::{Fault, Scenario};
use ringccl::Communicator;
use ringccl::comm::AbortHandle;
use std::cell::RefCell;
use std::fmt::Write;
use std::rc::Rc;

/// What a seed came to.
#[derive(Debug)]
pub struct Outcome {
    /// Accesses to shared memory.
    pub steps: u64,
    /// Simulated time, in nanoseconds.
    pub time: u64,
    /// Whether the fault changed anything: a rank died, stopped or returned an error.
    pub fault_felt: bool,
    /// What is wrong.
    pub failure: Option<String>,
    /// What happened last, if it was to be remembered.
    pub events: String,
}

/// Runs a seed. `trace` is how many events are remembered.
pub fn run(scenario: &Scenario, trace: usize) -> Outcome {
    let make = || Communicator::init_all(scenario.nranks as u32, &scenario.config);
    // The first communicator is made last: the machine takes the segment that was made last for the one to look into.
    let seconds = if scenario.others.is_empty() { Ok(Vec::new()) } else { make() };
    let (seconds, comms) = match seconds.and_then(|seconds| Ok((seconds, make()?))) {
        Ok(both) => both,
        Err(error) => return failed(format!("no communicators: {error}")),
    };
    let handles = [comms.first(), seconds.first()].map(|comm| comm.map(Communicator::abort_handle));
    let segment = Box::new(handles);
    let machine = Machine::new(scenario.knobs, scenario.machine_rng(), scenario.fibers(), segment, trace);
    if let Some((which, step, time)) = scenario.servant {
        machine.stall_servant(which, step, time);
    }
    let shared = Rc::new(scenario.clone());
    let endings = Rc::new(RefCell::new(Vec::new()));
    endings.borrow_mut().resize_with(scenario.nranks, || Ending::Open);
    let aborter = match scenario.fault {
        Fault::Abort { rank, .. } => Some(comms[rank].abort_handle()),
        _ => None,
    };
    let mut bodies: Vec<Body> = Vec::new();
    let mut seconds = seconds.into_iter();
    for (rank, comm) in comms.into_iter().enumerate() {
        let second = seconds.next();
        let (scenario, endings, machine) = (Rc::clone(&shared), Rc::clone(&endings), Rc::downgrade(&machine));
        bodies.push(Box::new(move || match ranks::run(&scenario, comm, second) {
            Ok(ending) => endings.borrow_mut()[rank] = ending,
            Err(wrong) => {
                if let Some(machine) = machine.upgrade() {
                    machine.fail(|| wrong);
                }
            }
        }));
    }
    bodies.extend(aborter.map(|handle| -> Body { Box::new(move || AbortHandle::abort(&handle)) }));
    machine.run(bodies);
    let endings = endings.take();
    let failure = machine.failure().or_else(|| judge(scenario, &machine, &endings).err());
    let felt = |ending: &Ending| !matches!(ending, Ending::Right);
    let struck = (0..scenario.nranks).any(|rank| machine.fate(rank).0.is_some());
    Outcome {
        steps: machine.steps(),
        time: machine.clock(),
        fault_felt: struck || endings.iter().any(felt) || matches!(scenario.fault, Fault::Late { .. }),
        failure,
        events: machine.events(),
    }
}

fn failed(why: String) -> Outcome {
    Outcome { steps: 0, time: 0, fault_felt: false, failure: Some(why), events: String::new() }
}

/// Everything there is to know about a failing seed; runs it again with a memory for events.
pub fn explain(seed: u64, mode: Mode, failure: &str) -> String {
    const EVENTS: usize = 40;
    let scenario = Scenario::new(seed, mode);
    // On a thread of its own, which nothing is left on of the run that failed.
    let again = std::thread::scope(|scope| scope.spawn(|| run(&scenario, EVENTS)).join());
    let again = again.unwrap_or_else(|_| failed("the second run panicked".into()));
    let mut text = format!("seed {seed}: {failure}\n");
    describe(&mut text, &scenario);
    if again.failure.as_deref().map(unnumbered) != Some(unnumbered(failure)) {
        let other = again.failure.as_deref().unwrap_or("nothing");
        let _ = writeln!(text, "NOT REPEATED: the second run found {other}");
    }
    let _ = writeln!(text, "the last events:\n{}", again.events);
    text
}

/// A failure without the numbers of communicators, which count on from seed to seed.
fn unnumbered(failure: &str) -> String {
    let mut parts = failure.split("communicator ");
    let first = parts.next().unwrap_or_default();
    parts.fold(first.into(), |text, part| {
        text + "communicator " + part.trim_start_matches(|c: char| c.is_ascii_digit())
    })
}

/// The scenario in words.
pub fn describe(text: &mut String, scenario: &Scenario) {
    let Scenario { nranks, config, knobs, fault, pause, servant, .. } = scenario;
    let _ = writeln!(
        text,
        "{nranks} ranks, fault: {fault:?}, pause beside it: {pause:?}, of a stream: {servant:?}"
    );
    let _ = writeln!(
        text,
        "chunk {} B, channels {}, algorithm {:?}, protocol {:?}",
        config.chunk_bytes, config.channels, config.algorithm, config.protocol
    );
    let _ = writeln!(text, "{knobs:?}");
    for (index, call) in scenario.calls.iter().enumerate() {
        if let Some(others) = scenario.others.get(index).filter(|others| !others.is_empty()) {
            let _ = writeln!(text, "before it: {others:?}");
        }
        let _ = writeln!(text, "call {index}: {call:?}");
    }
}
