//! How the ranks of a communicator meet: rendezvous, then the segment.

use super::health::{Health, Meeting};
use super::order;
use super::registry::{self, Announced};
use crate::config::Config;
use crate::error::{Error, Stage};
use crate::fail::{self, FailPoint};
use crate::settings::{CoordinatorAddr, Vars, coordinator, job_name, table};
use crate::transport::shm::Shm;
use coordinator_lite::{
    Cancel, Deadlines, Endpoint, Hello, Key, Listening, Member, Refusal, Secret, Server, Session, UniqueId,
    Welcome,
};
use shmring::segment::{Segment, SegmentName, SegmentSpec, remove_stale};
use std::io::ErrorKind;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use topo::Cluster;

/// Where and as what a rank joins.
#[derive(Debug)]
pub(super) struct Bootstrap {
    endpoint: Endpoint,
    key: Key,
    group: String,
    pub(super) rank: u32,
    pub(super) nranks: u32,
    /// Name of this rank's node, and the rank's number on it.
    place: (String, u32),
    /// Whether rank 0 hosts the rendezvous.
    is_hosted_by_rank_0: bool,
    /// Kept until everybody has joined, when this process hosts the rendezvous.
    pub(super) server: Option<Server>,
}

/// A rank that has joined.
#[derive(Debug)]
pub(super) struct Joined {
    pub(super) shm: Shm,
    pub(super) health: Health,
    pub(super) job: u64,
    /// How the coordinator is reached, in words for the report.
    pub(super) transport: &'static str,
    pub(super) fail: Option<FailPoint>,
}

/// Communicators made from the environment so far: each has a group of its own, in the order of their making.
static FROM_ENV: Mutex<u64> = Mutex::new(0);
/// Communicators of this process so far, however made, in which it was rank 0.
static MADE_FIRST: Mutex<u64> = Mutex::new(0);

fn next(counter: &Mutex<u64>) -> u64 {
    let mut made = counter.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    *made += 1;
    *made
}

/// Counts one more communicator of this process, in which it is `rank`.
pub(super) fn count(rank: u32) {
    if rank == 0 {
        next(&MADE_FIRST);
    }
}

/// How many communicators this process has made as their rank 0.
pub(super) fn made_first() -> u64 {
    // What a simulation stores repeats with its seed.
    #[cfg(ringccl_sim)]
    if shmring::sim::with(|_| ()).is_some() {
        return 1;
    }
    *MADE_FIRST.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl Bootstrap {
    /// From `RINGCCL_RENDEZVOUS` and `RINGCCL_SECRET`, which `ringccl run` sets, or from `MASTER_ADDR` and
    /// `MASTER_PORT`, where rank 0 hosts the rendezvous.
    pub(super) fn from_env() -> Result<Self, Error> {
        let vars = Vars::of_process();
        let rank = table::RANK.require(&vars)?;
        let nranks = table::WORLD_SIZE.require(&vars)?;
        check_ranks(rank, nranks)?;
        let place = place(&vars, rank, Some(nranks))?;
        let coordinator = coordinator(&vars)?;
        // A coordinator that runs already may serve other jobs, whose ranks have the same numbers.
        let job = coordinator.as_ref().and_then(|_| job_name(&vars).transpose()).transpose()?;
        let group = job.map_or(String::new(), |job| format!("{job}/")) + &format!("env-{}", next(&FROM_ENV));
        let at = |endpoint, key, server| {
            let is_hosted_by_rank_0 = false;
            Self { endpoint, key, group, rank, nranks, place, is_hosted_by_rank_0, server }
        };
        if let Some(addr) = coordinator {
            let endpoint = match addr {
                CoordinatorAddr::Unix(path) => Endpoint::unix(path)?,
                CoordinatorAddr::Tcp(addr) => resolve("RINGCCL_COORDINATOR_ADDR", addr)?.into(),
            };
            // Without a secret only a coordinator lets this rank in that trusts the user at its socket.
            let secret = table::SECRET.get(&vars)?;
            let key =
                secret.map(|text| Secret::from_hex(&text)).transpose()?.map_or(Key::SameUser, Key::Secret);
            return Ok(at(endpoint, key, None));
        }
        if let Some(addr) = table::RENDEZVOUS.get(&vars)? {
            let addr = resolve("RINGCCL_RENDEZVOUS", addr)?;
            let secret = Secret::from_hex(&table::SECRET.require(&vars)?)?;
            return Ok(at(addr.into(), secret.into(), None));
        }
        let port = table::MASTER_PORT.require(&vars)?;
        let addr = resolve("MASTER_ADDR", format!("{}:{port}", table::MASTER_ADDR.require(&vars)?))?;
        // The ranks share nothing but these variables, so there is no secret to prove; whoever reaches the port
        // may join, as with other libraries' MASTER_PORT. The unique id and `ringccl run` have one.
        let secret = Secret::from_bytes([0; 32]);
        let server = (rank == 0).then(|| Server::bind(addr, secret.clone())).transpose()?;
        Ok(Self { is_hosted_by_rank_0: true, ..at(addr.into(), secret.into(), server) })
    }

    pub(super) fn from_id(id: &UniqueId, rank: u32, nranks: u32) -> Result<Self, Error> {
        check_ranks(rank, nranks)?;
        let place = place(&Vars::of_process(), rank, None)?;
        let (endpoint, key) = (id.addr().into(), id.secret().into());
        let (group, is_hosted_by_rank_0) = ("id".into(), false);
        Ok(Self { endpoint, key, group, rank, nranks, place, is_hosted_by_rank_0, server: None })
    }

    /// Joins the others and maps the segment, unless that is cancelled.
    pub(super) fn join(self, config: &Config, cancel: Option<&Cancel>) -> Result<Joined, Error> {
        let mut fail = fail_point(config)?;
        let start = Instant::now();
        let geometry = config.geometry(self.nranks)?;
        let segment_error = |cause| Error::Segment { rank: self.rank, cause };
        geometry.validate().map_err(segment_error)?;
        let (node, local_rank) = self.place;
        let member = Member::current(&node, local_rank)?;
        let hello = Hello { group: self.group, rank: self.rank, nranks: self.nranks, member };
        fail::at(&mut fail, fail::INIT_JOIN);
        let deadlines = Deadlines { connect: config.connect_limit(), join: config.join_timeout };
        let number = registry::upcoming();
        let making = Announced::making(number);
        let (session, welcome) = Session::join_unless(&self.endpoint, self.key, hello, deadlines, cancel)
            .map_err(|cause| match cause {
                coordinator_lite::Error::Cancelled => Error::Cancelled { rank: self.rank },
                cause => unreachable_host(cause, self.is_hosted_by_rank_0),
            })
            .map_err(|error| with_suspicion(error, number, self.rank, config))?;
        drop(making);
        let Welcome { job, members, .. } = welcome;
        fail::at(&mut fail, fail::INIT_WELCOME);
        if let Some(rank) = members.iter().position(|m| m.host != members[0].host) {
            return Err(Error::OtherHost { rank: rank as u32 });
        }
        let job = u64::from_str_radix(&job, 16).map_err(|_| Error::Setting {
            name: "job",
            value: job.clone(),
            expected: "16 hexadecimal digits from the rendezvous".into(),
        })?;
        let name = SegmentName {
            job,
            pid: members[0].pid,
            start_time: members[0].start_time,
            pid_namespace: members[0].pid_namespace,
        };
        let spec = SegmentSpec {
            dir: config.shm_dir.clone(),
            name,
            generation: job,
            settings: config.agreement(self.nranks),
            geometry,
        };
        let left = config.join_timeout.saturating_sub(start.elapsed()).max(Duration::from_millis(100));
        let meeting = cancel.map_or(Meeting::Plain, |cancel| Meeting::Cancellable(cancel.clone()));
        let mut health = Health::new(members, self.rank, Some(session)).with(meeting);
        let segment = if self.rank == 0 {
            remove_stale(&spec.dir);
            Segment::create(&spec).map_err(segment_error)?
        } else {
            attach(&spec, self.rank, left, &mut health)?
        };
        fail::at(&mut fail, fail::INIT_ATTACHED);
        Ok(Joined { shm: Shm::new(segment), health, job, transport: self.endpoint.transport(), fail })
    }
}

/// The error for a rendezvous that cannot be had: if rank 0 hosts it, that rank is the one to look at.
fn unreachable_host(cause: coordinator_lite::Error, is_rank_0: bool) -> Error {
    use coordinator_lite::Error::{Lost, Silent, Unreachable};
    if !is_rank_0 {
        return cause.into();
    }
    let longer =
        "raise RINGCCL_CONNECT_TIMEOUT_MS (not above RINGCCL_JOIN_TIMEOUT_MS) if it only needs longer";
    let seconds = |waited: &Duration| format!("{:.1} s", waited.as_secs_f64());
    let what = match &cause {
        Unreachable { endpoint, waited, cause } if cause.kind() == ErrorKind::ConnectionRefused => format!(
            "nobody has listened at {endpoint} for {}: it has not started yet or has ended, which look the same from \
             here; start it or see what it printed last, compare both variables on all ranks, and {longer}",
            seconds(waited)
        ),
        Unreachable { endpoint, waited, cause } => {
            let (waited, who) = (seconds(waited), listener_of(endpoint));
            format!("has taken no connection at {endpoint} for {waited} ({cause}): {who}; {longer}")
        }
        Silent { endpoint, waited } => {
            let (waited, who) = (seconds(waited), listener_of(endpoint));
            format!(
                "has not answered at {endpoint} for {waited} although the connection was taken: {who}; {longer}"
            )
        }
        Lost { .. } => format!("has died: {cause}"),
        _ => return cause.into(),
    };
    Error::Host { what, cause }
}

/// The error of a rank that has waited in vain for others to make its communicator `number`, with what they may do
/// instead.
fn with_suspicion(error: Error, number: u64, rank: u32, config: &Config) -> Error {
    let is_in_vain = matches!(
        error,
        Error::Host { .. } | Error::Rendezvous(coordinator_lite::Error::Refused(Refusal::Timeout { .. }))
    );
    match order::suspicion_in_making(number).filter(|_| is_in_vain) {
        Some(suspicion) => {
            let standing = format!("{error}; {suspicion}");
            Error::Timeout { rank, stage: Stage::Join, limit: config.join_timeout, standing }
        }
        None => error,
    }
}

/// What can be said of the process that listens at `endpoint` and does not answer.
fn listener_of(endpoint: &Endpoint) -> String {
    match endpoint.addr().and_then(coordinator_lite::listening) {
        Some(Listening { pid, is_stopped: true }) => {
            format!("its process {pid} is stopped: send it SIGCONT, or look who stopped it")
        }
        Some(Listening { pid, .. }) => {
            format!(
                "process {pid} listens there, is not stopped, and hangs or is another program: look at it"
            )
        }
        None => "it is stopped or hangs, or another program listens there (`ss -ltnp`)".into(),
    }
}

/// The node of a rank: what the launcher says, or else what the cluster file says of a job of `world` ranks.
fn place(vars: &Vars, rank: u32, world: Option<u32>) -> Result<(String, u32), Error> {
    let local_rank = table::LOCAL_RANK.get(vars)?;
    if let Some(node) = table::NODE.get(vars)? {
        return Ok((node, local_rank.unwrap_or(rank)));
    }
    let Some((world, path)) = world.zip(table::CLUSTER_CONFIG.get(vars)?) else {
        return Ok(("node0".into(), local_rank.unwrap_or(rank)));
    };
    let cluster = Cluster::load(path).map_err(Box::new)?;
    cluster.check_world_size(world).map_err(Box::new)?;
    Ok((cluster.node_of(rank).id().to_owned(), local_rank.unwrap_or_else(|| cluster.local_rank(rank))))
}

/// Makes a communicator's parts for ranks that all live in this process, over memory that only it has.
pub(super) fn join_in_process(nranks: u32, config: &Config) -> Result<Vec<Joined>, Error> {
    check_ranks(0, nranks)?;
    let geometry = config.geometry(nranks)?;
    let segments = Segment::in_memory(&geometry).map_err(|cause| Error::Segment { rank: 0, cause })?;
    let node = table::NODE.get(&Vars::of_process())?.unwrap_or_else(|| "node0".into());
    let first = Member::current(&node, 0)?;
    let members: Vec<Member> = (0..nranks).map(|local_rank| Member { local_rank, ..first.clone() }).collect();
    let job = registry::private_job()?;
    let parts = segments.into_iter().enumerate().map(|(rank, segment)| {
        let health = Health::new(members.clone(), rank as u32, None);
        Ok(Joined { shm: Shm::new(segment), health, job, transport: "none", fail: fail_point(config)? })
    });
    parts.collect()
}

/// Attaches by tries of this length.
const ATTACH_TRY: Duration = Duration::from_millis(20);

/// Attaches within `deadline`. Between tries it looks at the other processes: when one has died, the segment may
/// never come, or have gone with a creator that has given up.
pub(super) fn attach(
    spec: &SegmentSpec,
    rank: u32,
    deadline: Duration,
    health: &mut Health,
) -> Result<Segment, Error> {
    let start = Instant::now();
    loop {
        let left = deadline.saturating_sub(start.elapsed());
        match Segment::attach(spec, rank, left.min(ATTACH_TRY)) {
            Ok(segment) => return Ok(segment),
            Err(shmring::Error::NotReady { .. }) if left > ATTACH_TRY => {
                health.check_meeting()?;
                // Without a segment there is no verdict to share: a rank that ended at once would be taken for the
                // cause by those that look a moment later.
                health.check_processes().inspect_err(|_| std::thread::sleep(5 * ATTACH_TRY))?;
            }
            Err(shmring::Error::NotReady { .. }) if health.is_stopped(0) => {
                return Err(health.creator_is_stopped(deadline));
            }
            Err(shmring::Error::NotReady { path, state, .. }) => {
                let cause = shmring::Error::NotReady { path, state, waited: deadline };
                return Err(Error::Segment { rank, cause });
            }
            Err(cause) => return Err(Error::Segment { rank, cause }),
        }
    }
}

pub(super) fn fail_point(config: &Config) -> Result<Option<FailPoint>, Error> {
    let Some(text) = &config.fail_point else { return Ok(None) };
    let setting = |expected| Error::Setting { name: "RINGCCL_FAIL_POINT", value: text.clone(), expected };
    FailPoint::parse(text).map(Some).map_err(setting)
}

fn check_ranks(rank: u32, nranks: u32) -> Result<(), Error> {
    let max = shmring::layout::MAX_MEMBERS;
    if nranks == 0 || nranks > max {
        let expected = format!("a number of ranks from 1 to {max}");
        return Err(Error::Setting { name: "WORLD_SIZE", value: nranks.to_string(), expected });
    }
    if rank >= nranks {
        let expected = format!("a rank below the number of ranks, {nranks}");
        return Err(Error::Setting { name: "RANK", value: rank.to_string(), expected });
    }
    Ok(())
}

fn resolve(name: &'static str, value: String) -> Result<SocketAddr, Error> {
    let resolved = value.to_socket_addrs().ok().and_then(|mut all| all.next());
    resolved.ok_or(Error::Setting { name, value, expected: "an address of this host".into() })
}
