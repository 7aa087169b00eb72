//! The state machine against a naive model: random interleavings of everything that connections can do.

use proptest::prelude::*;

use super::*;

const CONNS: u64 = 6;

/// One thing that happens.
#[derive(Clone, Debug)]
enum Step {
    Init { conn: u64, group: u8, rank: u32, nranks: u32 },
    Split { conn: u64, comm: u64, colour: Option<u32>, key: i32 },
    Destroy { conn: u64, comm: u64 },
    Leave { conn: u64, comm: u64 },
    Abort { conn: u64, comm: u64 },
    Close { conn: u64 },
    TimePasses,
}

fn step() -> impl Strategy<Value = Step> {
    let (conn, comm) = (0..CONNS, 1u64..6);
    prop_oneof![
        6 => (conn.clone(), 0u8..2, 0u32..3, 1u32..4)
            .prop_map(|(conn, group, rank, nranks)| Step::Init { conn, group, rank, nranks }),
        6 => (conn.clone(), comm.clone(), proptest::option::of(0u32..2), -1i32..2)
            .prop_map(|(conn, comm, colour, key)| Step::Split { conn, comm, colour, key }),
        2 => (conn.clone(), comm.clone()).prop_map(|(conn, comm)| Step::Destroy { conn, comm }),
        1 => (conn.clone(), comm.clone()).prop_map(|(conn, comm)| Step::Leave { conn, comm }),
        1 => (conn.clone(), comm).prop_map(|(conn, comm)| Step::Abort { conn, comm }),
        1 => conn.prop_map(|conn| Step::Close { conn }),
        1 => Just(Step::TimePasses),
    ]
}

/// What one connection hears, in order, told in few words.
type Heard = BTreeMap<u64, Vec<String>>;

/// Flat lists and full scans: nothing here is shared with the code under test.
#[derive(Default)]
struct Model {
    forming: Vec<ModelGroup>,
    comms: Vec<ModelComm>,
}

/// A group that waits: name, number of ranks, (rank, connection) of those that are here.
type ModelGroup = (u8, u32, Vec<(u32, u64)>);

struct ModelComm {
    name: Option<u8>,
    /// Connection and phase of each rank: 'a'ctive, 'd'estroyed, 'g'one.
    seats: Vec<(u64, char)>,
    aborted: bool,
    asks: Vec<(u32, Option<u32>, i32)>,
}

impl ModelComm {
    fn active(&self) -> Vec<u64> {
        self.seats.iter().filter(|s| s.1 == 'a').map(|s| s.0).collect()
    }

    fn has_ended(&self) -> bool {
        self.active().is_empty()
    }
}

impl Model {
    fn init(&mut self, conn: u64, group: u8, rank: u32, nranks: u32, heard: &mut Heard) {
        let mut say = |conn: u64, text: String| heard.entry(conn).or_default().push(text);
        let waits = self.forming.iter().any(|f| f.2.iter().any(|m| m.1 == conn));
        let in_use = self.comms.iter().any(|c| {
            c.name == Some(group) && c.seats.get(rank as usize).is_some_and(|s| s.1 == 'a') && !c.has_ended()
        });
        let at = self.forming.iter().position(|f| f.0 == group);
        let clash = at.is_some_and(|at| {
            let f = &self.forming[at];
            f.1 != nranks || f.2.iter().any(|m| m.0 == rank)
        });
        if rank >= nranks || waits || in_use || clash {
            return say(conn, "refused".into());
        }
        let at = at.unwrap_or_else(|| {
            self.forming.push((group, nranks, Vec::new()));
            self.forming.len() - 1
        });
        self.forming[at].2.push((rank, conn));
        if self.forming[at].2.len() == nranks as usize {
            let (_, _, mut members) = self.forming.remove(at);
            members.sort_unstable();
            let seats: Vec<_> = members.iter().map(|m| (m.1, 'a')).collect();
            self.comms.push(ModelComm { name: Some(group), seats, aborted: false, asks: Vec::new() });
            let id = self.comms.len();
            members.iter().for_each(|m| say(m.1, format!("welcome {id}")));
        }
    }

    /// The index of an active membership.
    fn member(&self, conn: u64, comm: u64) -> Option<(usize, u32)> {
        let at = comm as usize - 1;
        let rank = self.comms.get(at)?.seats.iter().position(|s| *s == (conn, 'a'))?;
        Some((at, rank as u32))
    }

    fn split(&mut self, conn: u64, comm: u64, colour: Option<u32>, key: i32, heard: &mut Heard) {
        let Some((at, rank)) = self.member(conn, comm) else {
            return heard.entry(conn).or_default().push("refused".into());
        };
        let c = &mut self.comms[at];
        if c.aborted || c.seats.iter().any(|s| s.1 != 'a') || c.asks.iter().any(|a| a.0 == rank) {
            return heard.entry(conn).or_default().push("refused".into());
        }
        c.asks.push((rank, colour, key));
        if c.asks.len() < c.seats.len() {
            return;
        }
        let asks = std::mem::take(&mut c.asks);
        let seats = c.seats.clone();
        let mut colours: Vec<u32> = asks.iter().filter_map(|a| a.1).collect();
        colours.sort_unstable();
        colours.dedup();
        for colour in colours {
            let mut ranks: Vec<(i32, u32)> =
                asks.iter().filter(|a| a.1 == Some(colour)).map(|a| (a.2, a.0)).collect();
            ranks.sort_unstable();
            let ranks: Vec<u32> = ranks.iter().map(|r| r.1).collect();
            let child: Vec<_> = ranks.iter().map(|&r| (seats[r as usize].0, 'a')).collect();
            self.comms.push(ModelComm { name: None, seats: child.clone(), aborted: false, asks: Vec::new() });
            let id = self.comms.len();
            for (conn, _) in child {
                heard.entry(conn).or_default().push(format!("child {id} {ranks:?}"));
            }
        }
        for (rank, _, _) in asks.iter().filter(|a| a.1.is_none()) {
            heard.entry(seats[*rank as usize].0).or_default().push("no child".into());
        }
    }

    fn drop_asks(&mut self, at: usize, heard: &mut Heard) {
        let c = &mut self.comms[at];
        for (rank, _, _) in std::mem::take(&mut c.asks) {
            let (conn, phase) = c.seats[rank as usize];
            if phase == 'a' {
                heard.entry(conn).or_default().push("refused".into());
            }
        }
    }

    fn end_part(&mut self, conn: u64, comm: u64, phase: char, heard: &mut Heard) {
        let Some((at, rank)) = self.member(conn, comm) else {
            return heard.entry(conn).or_default().push("refused".into());
        };
        self.comms[at].seats[rank as usize].1 = phase;
        if phase == 'd' {
            heard.entry(conn).or_default().push(format!("destroyed {comm}"));
        }
        self.drop_asks(at, heard);
        if phase == 'g' {
            for other in self.comms[at].active() {
                heard.entry(other).or_default().push(format!("gone {comm} {rank}"));
            }
        }
    }

    fn abort(&mut self, conn: u64, comm: u64, heard: &mut Heard) {
        let Some((at, rank)) = self.member(conn, comm) else {
            return heard.entry(conn).or_default().push("refused".into());
        };
        if !std::mem::replace(&mut self.comms[at].aborted, true) {
            self.drop_asks(at, heard);
            for other in self.comms[at].active().into_iter().filter(|&other| other != conn) {
                heard.entry(other).or_default().push(format!("aborted {comm} {rank}"));
            }
        }
    }

    fn close(&mut self, conn: u64, heard: &mut Heard) {
        if let Some(at) = self.forming.iter().position(|f| f.2.iter().any(|m| m.1 == conn)) {
            for (_, other) in self.forming.remove(at).2 {
                if other != conn {
                    heard.entry(other).or_default().push("refused".into());
                }
            }
        }
        for comm in 1..=self.comms.len() as u64 {
            if self.member(conn, comm).is_some() {
                self.end_part(conn, comm, 'g', heard);
            }
        }
    }

    fn time_passes(&mut self, heard: &mut Heard) {
        for (_, _, members) in std::mem::take(&mut self.forming) {
            members.iter().for_each(|m| heard.entry(m.1).or_default().push("refused".into()));
        }
        (0..self.comms.len()).for_each(|at| self.drop_asks(at, heard));
    }
}

/// Spreads answers over the connections, in the model's words.
fn spread(answers: Vec<Answer>, heard: &mut Heard) {
    for Answer { to, reply } in answers {
        let texts: Vec<String> = match reply {
            Reply::Welcome(welcome) => vec![format!("welcome {}", welcome.comm)],
            Reply::Split { child: None, .. } => vec!["no child".into()],
            Reply::Split { child: Some(child), .. } => {
                vec![format!("child {} {:?}", child.welcome.comm, child.parent_ranks)]
            }
            Reply::Destroyed { comm } => vec![format!("destroyed {comm}")],
            Reply::PeersGone { comm, gone } => {
                gone.iter().map(|g| format!("gone {comm} {}", g.rank)).collect()
            }
            Reply::Aborted { comm, by, .. } => vec![format!("aborted {comm} {by}")],
            Reply::Refused { .. } => vec!["refused".into()],
            other => panic!("{other:?}"),
        };
        assert!(!to.is_empty(), "an answer to nobody");
        for conn in to {
            heard.entry(conn.0).or_default().extend(texts.clone());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn every_interleaving_is_as_in_the_model(steps in proptest::collection::vec(step(), 1..60)) {
        // Each connection hears the same in the same order, and both agree on what is left.
        let (mut state, mut model) = (state(), Model::default());
        let mut now = Instant::now();
        for step in steps {
            let (mut expected, mut heard) = (Heard::new(), Heard::new());
            let answers = match step.clone() {
                Step::Init { conn, group, rank, nranks } => {
                    model.init(conn, group, rank, nranks, &mut expected);
                    state.init(now, ConnId(conn), hello(&group.to_string(), rank, nranks), WAIT)
                }
                Step::Split { conn, comm, colour, key } => {
                    model.split(conn, comm, colour, key, &mut expected);
                    state.split(now, ConnId(conn), Split { comm: CommId(comm), colour, key }, WAIT)
                }
                Step::Destroy { conn, comm } => {
                    model.end_part(conn, comm, 'd', &mut expected);
                    state.destroy(ConnId(conn), CommId(comm))
                }
                Step::Leave { conn, comm } => {
                    model.end_part(conn, comm, 'g', &mut expected);
                    state.leave(ConnId(conn), CommId(comm))
                }
                Step::Abort { conn, comm } => {
                    model.abort(conn, comm, &mut expected);
                    state.abort(ConnId(conn), CommId(comm), "enough")
                }
                Step::Close { conn } => {
                    model.close(conn, &mut expected);
                    state.closed(&[ConnId(conn)])
                }
                Step::TimePasses => {
                    model.time_passes(&mut expected);
                    now += WAIT;
                    state.tick(now)
                }
            };
            spread(answers, &mut heard);
            prop_assert_eq!(&heard, &expected, "after {:?}", step);
            prop_assert_eq!(state.groups(), model.forming.len());
            prop_assert_eq!(state.communicators(), model.comms.iter().filter(|c| !c.has_ended()).count());
        }
        let all: Vec<_> = (0..CONNS).map(ConnId).collect();
        state.closed(&all);
        assert_empty(&state);
    }
}
