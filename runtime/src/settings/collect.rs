//! From variables to a [`Config`]: every value checked, then what they say together.
//!
//! Of two settings that contradict each other, the one of a higher level counts (ours, then NCCL's, then
//! FakeGPU's) and the other one gives way with a note; at one level a contradiction is an error that names both.

use super::env::Vars;
use super::setting::{Found, Setting, level};
use super::table::{self, DistMode, Mode};
use super::{Level, staging, tuning};
use crate::config::{Config, Numerics, default_chunk};
use crate::error::Error;
use crate::model::{PlanSource, World};
use crate::plan::Algorithm;
use shmring::Protocol;
use std::time::Duration;

/// What the variables come to.
#[derive(Debug)]
pub struct Resolved {
    /// The settings; where something is wrong, the default stands.
    pub config: Config,
    /// Everything that is wrong, in the order of the page.
    pub problems: Vec<Error>,
    /// What a user may want to know about values that are used, or not, in another way than they say.
    pub notes: Vec<String>,
}

/// A value that is set.
struct Given<T> {
    name: &'static str,
    text: String,
    value: T,
}

impl<T> Given<T> {
    fn level(&self) -> Level {
        level(self.name)
    }

    fn says(&self) -> String {
        format!("{}={}", self.name, self.text)
    }

    fn wrong(&self, expected: String) -> Error {
        Error::Setting { name: self.name, value: self.text.clone(), expected }
    }
}

/// Reads and checks the settings of a communicator of `nranks`, all problems at once.
pub fn resolve(nranks: u32, vars: &Vars) -> Resolved {
    let (problems, notes) = (Vec::new(), Vec::new());
    let resolved = Resolved { config: Config::new(nranks), problems, notes };
    let mut collector = Collector { vars, nranks, to: resolved };
    collector.times();
    collector.tuning();
    collector.plan();
    collector.model();
    collector.staging();
    collector.place();
    collector.modes();
    collector.without_effect();
    collector.to
}

struct Collector<'a> {
    vars: &'a Vars,
    nranks: u32,
    to: Resolved,
}

impl Collector<'_> {
    fn given<T>(&mut self, setting: &Setting<T>) -> Option<Given<T>> {
        let found = setting.find(self.vars).unwrap_or_else(|problem| {
            self.to.problems.push(problem);
            None
        });
        let Found { name, value, note, text } = found?;
        self.to.notes.extend(note.map(|note| format!("{name}={text}: {note}")));
        value.map(|value| Given { name, text, value })
    }

    /// A contradiction between `weaker` and `stronger`: an error at one level, a note otherwise. Says whether
    /// `weaker` must give way.
    fn contradict<T, U>(&mut self, weaker: &Given<T>, stronger: &Given<U>, expected: String) -> bool {
        if weaker.level() == stronger.level() {
            self.to.problems.push(weaker.wrong(expected));
            return false;
        }
        self.to.notes.push(format!("{}: gives way to {}", weaker.says(), stronger.says()));
        true
    }

    fn times(&mut self) {
        let both = self.given(&table::COORDINATOR_TIMEOUT).map(|both| both.value);
        let join = self.given(&table::JOIN_TIMEOUT).map(|join| join.value).or(both);
        let operation = self.given(&table::TIMEOUT).map(|timeout| timeout.value).or(both);
        let connect = self.given(&table::CONNECT_TIMEOUT);
        let finalize = self.given(&table::FINALIZE_TIMEOUT);
        let config = &mut self.to.config;
        config.join_timeout = join.unwrap_or(config.join_timeout);
        config.timeout = operation.unwrap_or(config.timeout);
        config.finalize_timeout = finalize.map(|finalize| finalize.value);
        let join: Duration = config.join_timeout;
        if let Some(connect) = connect {
            config.connect_timeout = Some(connect.value);
            if connect.value > join {
                let ms = join.as_millis();
                let expected =
                    format!("at most the join time-out, {ms}: raise RINGCCL_JOIN_TIMEOUT_MS or lower this");
                self.to.problems.push(connect.wrong(expected));
            }
        }
    }

    /// The table of the user's machine, if there is one.
    fn tuning(&mut self) {
        let Found { name, text, value, .. } = match table::TUNING.find(self.vars) {
            Ok(Some(found)) => found,
            Ok(None) => match tuning::standard_file(self.vars) {
                Some(path) => Found {
                    name: "RINGCCL_TUNING",
                    text: path.display().to_string(),
                    value: Some(path),
                    note: None,
                },
                None => return,
            },
            Err(problem) => return self.to.problems.push(problem),
        };
        let Some(path) = value.filter(|path| path.as_os_str() != tuning::NO_TABLE) else { return };
        match tuning::load(&path) {
            Ok(table) => {
                self.to.notes.push(format!("{name}={text}: measured on {}", table.machine));
                self.to.config.tuning = table.into();
            }
            Err(why) => {
                let remedy = "run `ringccl tune` again, or set RINGCCL_TUNING=none";
                let expected = format!("a table as `ringccl tune` writes it: {why}; {remedy}");
                self.to.problems.push(Error::Setting { name, value: text, expected });
            }
        }
    }

    fn plan(&mut self) {
        let most = self.given(&table::CHANNELS);
        let least = self.given(&table::MIN_CHANNELS);
        let (mut low, high) = (least.as_ref().map_or(1, |l| l.value), most.as_ref().map(|m| m.value));
        if let (Some(least), Some(most)) = (&least, &most)
            && least.value > most.value
        {
            let expected = format!("at most {}; lower it or raise that", most.says());
            self.contradict(least, most, expected);
            low = most.value;
        }
        let config = &mut self.to.config;
        config.min_channels = low;
        config.channels = high.unwrap_or(config.channels).max(low);

        let algorithm = self.given(&table::ALGO);
        let protocols = self.given(&table::PROTO);
        let config = &mut self.to.config;
        config.algorithm = algorithm.as_ref().map(|algorithm| algorithm.value);
        if config.algorithm == Some(Algorithm::Tree) && high.is_none() {
            // A tree for each half of the buffer: each rank is a leaf in one of them.
            config.channels = config.channels.max(2);
        }
        if let Some(protocols) = &protocols {
            let mut allowed = Protocol::ALL.into_iter().filter(|p| protocols.value[*p as usize]);
            config.protocol = allowed.next().filter(|_| allowed.next().is_none());
            config.protocols = protocols.value;
        }
        self.numerics(algorithm.as_ref());
        if let (Some(algorithm), Some(protocols)) = (algorithm, protocols)
            && algorithm.value.needs_simple()
            && !protocols.value[Protocol::Simple as usize]
        {
            let expected = format!("Simple, the only layout of {}; change one of the two", algorithm.says());
            self.contradict(&protocols, &algorithm, expected);
        }
    }

    /// The cluster on which operations are priced, and what follows its model.
    fn model(&mut self) {
        let file = self.given(&table::CLUSTER_CONFIG);
        let plan = self.given(&table::PLAN);
        let pace = self.given(&table::PACE);
        if let Some(file) = &file {
            match World::load(&file.value, self.vars) {
                Ok(world) => self.to.config.cluster = Some(world),
                Err(error) => {
                    let first = error.to_string().replace('\n', " ");
                    self.to.notes.push(format!("{}: nothing is modelled: {first}", file.says()));
                }
            }
        }
        let world = self.to.config.cluster.clone();
        let needs =
            "set together with RINGCCL_CLUSTER_CONFIG (`ringccl run --cluster FILE`), whose model it takes";
        for (name, text) in [
            plan.as_ref()
                .filter(|plan| plan.value == PlanSource::Model)
                .map(|plan| (plan.name, plan.text.clone())),
            pace.as_ref().map(|pace| (pace.name, pace.text.clone())),
        ]
        .into_iter()
        .flatten()
        .filter(|_| world.is_none())
        {
            self.to.problems.push(Error::Setting { name, value: text, expected: needs.into() });
        }
        let config = &mut self.to.config;
        config.plan = plan.map(|plan| plan.value).unwrap_or_default();
        config.pace = pace.map(|pace| pace.value);
        if let Some(world) = world.filter(|_| config.plan == PlanSource::Model) {
            // As many as the model's plans may have; rings are made when they are used.
            let most = world.channels(self.nranks).unwrap_or(1).min(shmring::layout::MAX_CHANNELS);
            config.channels = config.channels.max(most);
        }
    }

    /// In which order sums add up, and what NCCL's order depends on.
    ///
    /// Reads no setting twice, because a problem or a note of it would be told twice.
    fn numerics(&mut self, algorithm: Option<&Given<Algorithm>>) {
        let ll = self.given(&table::LL_BUFFER_BYTES).map(|buffer| buffer.value);
        let ll128 = self.given(&table::LL128_BUFFER_BYTES).map(|buffer| buffer.value);
        let numerics = self.given(&table::NUMERICS);
        let config = &mut self.to.config;
        (config.ll_buffer_bytes, config.ll128_buffer_bytes) = (ll, ll128);
        let Some(numerics) = numerics else { return };
        config.numerics = numerics.value;
        if let Some(algorithm) = algorithm.filter(|_| numerics.value == Numerics::Nccl)
            && algorithm.value != Algorithm::Ring
        {
            let expected = format!("ring, the algorithm of {}; change one of the two", numerics.says());
            self.contradict(algorithm, &numerics, expected);
        }
    }

    fn staging(&mut self) {
        let chunk = self.given(&table::CHUNK_BYTES);
        let buffer = self.given(&table::BUFFER_BYTES);
        let bound = self.given(&table::STAGING_MAX_BYTES);
        let config = &mut self.to.config;
        let by_size = default_chunk(self.nranks, &config.tuning);
        config.chunk_bytes = chunk.as_ref().map_or(by_size, |chunk| chunk.value as usize);
        config.buffer_bytes = buffer.as_ref().map(|buffer| buffer.value);
        config.staging_max_bytes = bound.as_ref().map(|bound| bound.value);
        if let Some(bound) = &bound {
            let least = staging::least(config, self.nranks);
            if bound.value < least {
                let channels = config.channels;
                let expected =
                    format!("at least {least}, what {} ranks need on {channels} channel(s)", self.nranks);
                self.to.problems.push(bound.wrong(expected));
            }
        }
        if let (Some(chunk), Some(bound)) = (&chunk, &bound)
            && chunk.value > bound.value
        {
            let expected = format!("within {}; lower it or raise that", bound.says());
            self.contradict(chunk, bound, expected);
        }
        if let (Some(chunk), Some(buffer)) = (&chunk, &buffer)
            && chunk.value > staging::fan_slot(buffer.value)
        {
            // NCCL's and FakeGPU's sizes were not made for our four slots, so only ours contradict each other.
            let slot = staging::fan_slot(buffer.value);
            if (chunk.level(), buffer.level()) == (Level::Own, Level::Own) {
                let expected =
                    format!("at most {slot}, a quarter of {}; lower it or raise that", buffer.says());
                self.to.problems.push(chunk.wrong(expected));
            } else {
                self.to.notes.push(format!("{}: messages have at most {slot} bytes", buffer.says()));
            }
        }
        // The numerics are known by now.
        if let Some(buffer) = buffer.as_ref().filter(|buffer| buffer.value < 1024)
            && self.to.config.numerics == Numerics::Nccl
        {
            let expected =
                "at least 1024, half of which is one grain of NCCL's ring, with RINGCCL_NUMERICS=nccl";
            self.to.problems.push(buffer.wrong(expected.into()));
        }
        if let Some(socket) = self.given(&table::FORCE_SOCKET).filter(|socket| socket.value) {
            let expected = "off, as it must be: this version has no socket transport; unset it";
            self.to.problems.push(socket.wrong(expected.into()));
        }
    }

    fn place(&mut self) {
        let bind = self.given(&table::BIND).map(|bind| bind.value);
        let scheduling = self.given(&table::SCHED).is_none_or(|asks| asks.value);
        let dir = self.given(&table::SHM_DIR).map(|dir| dir.value);
        let report = self.given(&table::REPORT).map(|report| report.value);
        let fail_point = self.given(&table::FAIL_POINT).map(|point| point.value);
        let config = &mut self.to.config;
        config.bind = bind.unwrap_or_default();
        config.scheduling = scheduling;
        config.shm_dir = dir.unwrap_or_else(|| std::mem::take(&mut config.shm_dir));
        config.report = report;
        config.fail_point = fail_point;
    }

    fn modes(&mut self) {
        if let Some(mode) = self.given(&table::MODE).filter(|mode| mode.value != Mode::Simulate) {
            let expected = "available in this version, which has simulate; unset it or set simulate";
            self.to.problems.push(mode.wrong(expected.into()));
        }
        let Some(mode) = self.given(&table::DIST_MODE) else { return };
        let expected = match mode.value {
            DistMode::Simulate => return,
            DistMode::Disabled if self.nranks == 1 => return,
            DistMode::Disabled => format!("possible with {} ranks; unset it or set simulate", self.nranks),
            DistMode::Proxy | DistMode::Passthrough => {
                "available in this version, which has simulate and disabled; unset it or set simulate".into()
            }
        };
        self.to.problems.push(mode.wrong(expected));
    }

    fn without_effect(&mut self) {
        let idle = table::ALL.iter().filter(|setting| setting.about().group == super::Group::NoEffect);
        for setting in idle {
            match setting.look(self.vars) {
                Ok(Some(found)) => {
                    self.to.notes.push(format!("{}={}: no effect in this version", found.name, found.text));
                }
                Ok(None) => {}
                Err(problem) => self.to.problems.push(problem),
            }
        }
    }
}
