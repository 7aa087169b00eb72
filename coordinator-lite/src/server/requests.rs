//! What a request may do, and for whom.
//!
//! | request | a stranger | same user, Unix socket | secret proved |
//! | --- | --- | --- | --- |
//! | HELLO, PROVE, text PING | yes | yes | yes |
//! | STATUS, SHUTDOWN, text SHUTDOWN | no | yes | yes |
//! | INIT, SPLIT, DESTROY, LEAVE, ABORT | no | only with `trust_uid` | yes |

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::connection::Standing;
use super::event_loop::Loop;
use crate::messages::{Reply, Request, Status};
use crate::proof::{Nonce, Proof, Side, Talk, same_secret};
use crate::state::{Answer, ConnId, Split};
use crate::wire::{self, WireError};
use crate::{Refusal, Secret};

/// Version of the text commands, as FakeGPU's scripts know it.
const TEXT_VERSION: u32 = 1;

impl Loop {
    pub(super) fn request(&mut self, now: Instant, conn: ConnId, request: Request) {
        let Some(connection) = self.connections.get(&conn) else { return };
        let (proved, operator) = (connection.is_proved(), connection.is_proved() || connection.same_user);
        match request {
            Request::Hello { nonce, same_user } => return self.hello(now, conn, nonce, same_user),
            Request::Prove { proof } => return self.prove(now, conn, &proof),
            Request::Status if operator => {
                let status = self.status();
                self.answer(now, vec![Answer { to: vec![conn], reply: Reply::Status(status) }]);
                // A member may ask as well, and stays.
                if !self.state.is_bound(conn) {
                    self.end(now, conn);
                }
                return;
            }
            Request::Shutdown if operator => {
                self.answer(now, vec![Answer { to: vec![conn], reply: Reply::Stopping }]);
                self.stopping = true;
                return;
            }
            _ if !proved => return self.refuse_and_end(now, conn, Refusal::NotProved),
            _ => {}
        }
        let wait = Duration::from_millis;
        let answers = match request {
            Request::Init { wait_ms, hello } => self.state.init(now, conn, hello, wait(wait_ms)),
            Request::Split { comm, colour, key, wait_ms } => {
                self.state.split(now, conn, Split { comm, colour, key }, wait(wait_ms))
            }
            Request::Destroy { comm } => self.state.destroy(conn, comm),
            Request::Leave { comm } => self.state.leave(conn, comm),
            Request::Abort { comm, reason } => self.state.abort(conn, comm, &reason),
            Request::Hello { .. } | Request::Prove { .. } | Request::Status | Request::Shutdown => Vec::new(),
        };
        self.answer(now, answers);
        self.review(now, conn);
    }

    fn hello(&mut self, now: Instant, conn: ConnId, theirs: Nonce, same_user: bool) {
        let Some(connection) = self.connections.get_mut(&conn) else { return };
        if connection.standing != Standing::Stranger {
            return self.refuse_and_end(now, conn, Refusal::Malformed("a second hello".into()));
        }
        if same_user && !(self.rules.access.trust_uid && connection.same_user) {
            return self.refuse_and_end(now, conn, Refusal::SecretNeeded);
        }
        let Ok(bytes) = self.entropy.bytes() else {
            tracing::error!("no random bytes: a rank is turned away");
            return self.remove(conn);
        };
        let nonce = Nonce(bytes);
        let mut proof = None;
        if same_user {
            self.accept_proof(conn);
        } else {
            let talk = Talk { rank: theirs, coordinator: nonce };
            connection.standing = Standing::Challenged(talk);
            proof = Some(talk.prove(&self.rules.access.secret, Side::Coordinator));
        }
        self.answer(now, vec![Answer { to: vec![conn], reply: Reply::Challenge { nonce, proof } }]);
    }

    fn prove(&mut self, now: Instant, conn: ConnId, proof: &Proof) {
        let Some(connection) = self.connections.get(&conn) else { return };
        match connection.standing {
            Standing::Challenged(talk) if talk.holds(&self.rules.access.secret, Side::Rank, proof) => {
                self.accept_proof(conn);
                self.set_deadline(conn, Some(now + super::event_loop::IDLE_MAX));
            }
            Standing::Challenged(_) => self.refuse_and_end(now, conn, Refusal::WrongSecret),
            _ => self.refuse_and_end(now, conn, Refusal::Malformed("a proof out of turn".into())),
        }
    }

    /// From here on the connection is one of ours.
    fn accept_proof(&mut self, conn: ConnId) {
        if let Some(connection) = self.connections.get_mut(&conn) {
            connection.standing = Standing::Proved;
            self.unproved.remove(&conn);
        }
    }

    /// Answers a line that a script has sent.
    pub(super) fn line(&mut self, now: Instant, conn: ConnId, line: &str) {
        let same_user = self.connections.get(&conn).is_some_and(|connection| connection.same_user);
        let transport = self.rules.endpoint.transport();
        let told =
            |status| format!("OK ringccl status={status} version={TEXT_VERSION} transport={transport}\n");
        let mut words = line.split_ascii_whitespace();
        let answer = match (words.next(), words.next(), words.next()) {
            (Some("PING"), None, None) => told("ready"),
            (Some("SHUTDOWN"), secret, None) => {
                let secret = secret.and_then(|text| Secret::from_hex(text).ok());
                if same_user || secret.is_some_and(|s| same_secret(&s, &self.rules.access.secret)) {
                    self.stopping = true;
                    told("stopping")
                } else {
                    self.warn(now, "refused a SHUTDOWN without the secret");
                    "ERROR SHUTDOWN needs the secret here: `SHUTDOWN <64 hex digits>`\n".to_owned()
                }
            }
            _ => "ERROR the commands are PING and SHUTDOWN\n".to_owned(),
        };
        self.send(conn, Arc::from(answer.into_bytes()));
        self.end(now, conn);
    }

    pub(super) fn malformed(&mut self, now: Instant, conn: ConnId, error: WireError) {
        let refusal = match error {
            WireError::Version { theirs } => Refusal::WireVersion { ours: wire::VERSION, theirs },
            other => Refusal::Malformed(other.to_string()),
        };
        self.refuse_and_end(now, conn, refusal);
        // A member that breaks the protocol is as good as gone, though its connection lasts until it has read why.
        let answers = self.state.closed(&[conn]);
        self.answer(now, answers);
    }

    /// Says no and takes nothing more from this connection.
    pub(super) fn refuse_and_end(&mut self, now: Instant, conn: ConnId, refusal: Refusal) {
        self.answer(now, vec![Answer { to: vec![conn], reply: Reply::Refused { comm: None, refusal } }]);
        self.end(now, conn);
    }

    pub(super) fn status(&self) -> Status {
        let mut status = Status {
            version: env!("CARGO_PKG_VERSION").into(),
            wire_version: wire::VERSION,
            endpoint: self.rules.endpoint.to_string(),
            pid: std::process::id(),
            connections: self.connections.len() as u64,
            unproved: self.unproved.len() as u64,
            ..Status::default()
        };
        self.state.describe(&mut status);
        status
    }
}
